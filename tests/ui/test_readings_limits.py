"""How long a text each page reads, what is kept of long ones, and pairs of texts."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
import saved_models
import tiny
import tiny_models
import torch
from tokenizers.processors import TemplateProcessing

from attnviz import limits
from attnviz.ui import readings
from attnviz.ui.readings import MAX_LONG, Asked, NotServed, served

WORDS = "the king gave the key to the cat and sat on the mat. "


def asked(tokens: int, more: str = "") -> Asked:
    """A question of at least so many tokens of the bundled model, and not many more."""
    return Asked("bundled", more + WORDS * (tokens // 14 + 1))


def refused(question: Asked, limit: int | None) -> str:
    with pytest.raises(NotServed) as problem:
        served(question, limit)
    return str(problem.value)


def test_a_page_refuses_what_it_cannot_show_and_names_the_one_that_can():
    told = refused(asked(900), 512)
    assert "tokens; this page shows at most 512. Shorten it by about" in told
    assert told.endswith("or open it on the page “Heads”, which reads longer texts.")


def test_without_a_limit_long_texts_are_read():
    reading = served(asked(900), limit=None)
    assert reading.inputs.source is not None
    assert len(reading.inputs.source) > 900
    assert reading.calls("decoder")[1].n[0] == len(reading.inputs.source)
    assert served(asked(900), limit=None) is reading


def test_one_reading_serves_every_page():
    assert served(asked(40)) is served(asked(40), limit=None)


def test_a_text_longer_than_the_model_was_trained_on_comes_with_a_warning():
    assert served(asked(200)).warning is None
    told = served(asked(300)).warning
    assert told is not None
    assert "longer than the 256 positions that this model was trained on" in told


def test_a_table_of_places_is_a_hard_end(tmp_path):
    path = saved_models.save(tmp_path / "gpt2", "gpt2")
    long = Asked(path, "the cat sat on the mat " * 100)
    for limit in (512, None):
        told = refused(long, limit)
        assert "601 tokens; this model reads at most 97. Shorten it by about nine tenths" in told


def test_what_does_not_fit_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: int(1e7))
    monkeypatch.setattr("attnviz.capture.capture", None)
    for limit in (512, None):
        started = time.process_time()
        told = refused(asked(9000), limit)
        assert time.process_time() - started < 2
        assert "of memory, and 0.0 GB are free. At most about" in told


def test_a_book_is_refused_at_once():
    started = time.process_time()
    told = refused(Asked("bundled", "the cat " * 25_000), None)
    assert time.process_time() - started < 0.5
    assert "200,000 characters; at most 100,000 can be read at once" in told


def test_a_target_may_be_too_long_as_well(tmp_path):
    path = saved_models.save(tmp_path / "t5", "t5")
    told = refused(Asked(path, "the cat", target="the king " * 400), 512)
    assert told.startswith("This target text has 801 tokens; this page shows at most 512.")


def test_few_long_readings_are_kept():
    first = weakref.ref(served(asked(600, "first "), None).capture)
    for number in range(MAX_LONG):
        served(asked(600, f"{number} "), None)
    gc.collect()
    assert first() is None


def test_recording_is_compared_on_the_beginning_of_a_long_text(monkeypatch, tmp_path):
    noted = []

    def noting(model, inputs):
        noted.append(inputs)
        return 0.0

    monkeypatch.setattr("attnviz.capture.recording_difference", noting)
    path = str(tiny.save(tmp_path))
    reading = served(Asked(path, "the cat " * 400 + "the end"), None)
    served(Asked(path, "the dog " * 400), None)
    (cut,) = noted
    whole = reading.inputs.tensors["input_ids"][0].tolist()
    assert cut["input_ids"].tolist() == [[*whole[:63], whole[-1]]]
    assert cut["attention_mask"].shape == (1, 64)
    assert reading.recording_difference == 0


# --- pairs


@pytest.fixture
def encoder(tmp_path) -> str:
    """A BERT whose tokenizer joins two texts as BERT's does."""
    tokenizer = saved_models.small_vocabulary()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    tokenizer.sep_token = "</s>"
    path = tiny.save(tmp_path / "bert", tiny_models.build("bert"), tokenizer)
    return str(path)


def test_a_pair_is_read_as_the_model_wants_it(encoder):
    assert readings.needs(encoder).pair
    inputs = served(Asked(encoder, "the cat sat", pair="it was tired")).inputs
    assert inputs.source is not None
    assert inputs.source.labels == (
        "<s>",
        "the",
        "cat",
        "sat",
        "</s>",
        "it",
        "was",
        "tired",
        "</s>",
    )
    assert inputs.source.segments == (None, 0, 0, 0, None, 1, 1, 1, None)
    assert inputs.tensors["token_type_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 1, 1]]


def test_the_second_text_tells_one_question_from_another(encoder):
    one, other = (served(Asked(encoder, "the cat", pair=text)) for text in ("", "the dog"))
    assert one is not other
    assert "token_type_ids" not in one.inputs.tensors
    assert torch.equal(one.inputs.tensors["input_ids"], torch.tensor([[1, 4, 5, 2]]))


def test_a_pair_is_counted_whole(encoder):
    told = refused(Asked(encoder, "the cat " * 30, pair="the dog " * 30), 512)
    assert "This pair of texts has 123 tokens; this model reads at most 97." in told


def test_a_decoder_leaves_the_second_text_aside():
    assert not readings.needs("bundled").pair
    reading = served(Asked("bundled", "the cat", pair="the dog"))
    assert reading.inputs.source is not None
    assert reading.inputs.source.text == "the cat"
