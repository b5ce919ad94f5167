"""What happens when a version of transformers does not show its attention functions."""

import pytest
import tiny_models
from transformers.modeling_utils import AttentionInterface

from attnviz import interface
from attnviz.capture import capture
from attnviz.models import load
from attnviz.self_test import self_test


@pytest.fixture(autouse=True)
def usable_again():
    yield
    interface._usable.set()


def test_all_is_well_with_the_pinned_versions():
    assert self_test(load("bundled").model) is None


def another_name(self, attn_implementation, default):
    return self.get(attn_implementation, default)


def test_functions_that_cannot_be_seen_are_told_and_read_from_operations(monkeypatch):
    monkeypatch.setattr(AttentionInterface, "get_interface", another_name)
    another_name.observable = True  # as though it had been wrapped, and shows nothing
    said = self_test(load("bundled").model)
    assert said is not None
    assert "their own operations" in said
    assert said.endswith("requirements.txt.")
    read = capture(tiny_models.build("llama"), tiny_models.inputs_for("llama"))
    assert {call.read_at for call in read.calls} == {"operations"}
    assert len(read.calls) == 3


def test_functions_called_in_another_way_are_told(monkeypatch):
    def misread(*given, **named):
        raise KeyError("scaling")

    monkeypatch.setattr(interface, "_read", misread)
    assert "their own operations" in self_test(load("bundled").model)


def test_an_interface_that_is_gone_is_told(monkeypatch):
    monkeypatch.delattr(AttentionInterface, "get_interface")
    interface._install()
    assert not interface._usable.is_set()
