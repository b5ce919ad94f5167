"""What the libraries say stays out of the log, as long as anyone asks for it."""

import threading
from logging import CRITICAL, WARNING, getLogger

import pytest
import torch
from transformers import LongformerConfig, LongformerModel
from transformers.utils import logging

from attnviz.quiet import quiet


@pytest.fixture(autouse=True)
def _levels(monkeypatch):
    monkeypatch.setattr(getLogger("transformers"), "propagate", True)
    logging.set_verbosity(WARNING)
    yield
    assert logging.get_verbosity() == WARNING
    logging.set_verbosity_warning()


def messages_of_a_run(caplog) -> list[str]:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LongformerConfig(
        **sizes, vocab_size=20, intermediate_size=8, attention_window=[4], pad_token_id=1
    )
    logging.warning_once.cache_clear()
    LongformerModel(config).eval()(torch.arange(7)[None] + 2)
    return [record.message for record in caplog.records]


def test_a_run_says_nothing(caplog):
    with quiet():
        assert messages_of_a_run(caplog) == []
    assert any("automatically padded" in message for message in messages_of_a_run(caplog))


def test_the_last_one_out_restores():
    logging.enable_progress_bar()
    inside, leave = threading.Barrier(2), threading.Event()

    def stay() -> None:
        with quiet():
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    with quiet():
        assert getLogger("accelerate").level == CRITICAL
    assert logging.get_verbosity() == CRITICAL
    assert not logging.is_progress_bar_enabled()
    leave.set()
    thread.join()
    assert logging.get_verbosity() == WARNING
    assert getLogger("accelerate").level != CRITICAL
    assert logging.is_progress_bar_enabled()


def test_an_error_restores():
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert logging.get_verbosity() == WARNING
