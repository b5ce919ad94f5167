"""Faults put in on purpose, one by one: the checks of `test_families` must see each of them.

With verification switched off it is the references alone that catch a fault; with it on,
attnviz refuses what it would otherwise show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import test_families
import tiny_models

from attnviz import interface
from attnviz import recorder as recording
from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.capture import capture

Fault = Callable[[pytest.MonkeyPatch], None]


def arguments(**changes: Callable) -> Fault:
    """What an attention function was given is read wrongly."""
    original = interface._read

    def misread(*args, **named):
        given = original(*args, **named)
        return replace(given, **{name: wrong(given) for name, wrong in changes.items()})

    return lambda patch: patch.setattr(interface, "_read", misread)


def own(**changes: Callable) -> Fault:
    """What a model's own operations say is read wrongly."""
    original = recording.own_attention

    def misread(*args):
        found = original(*args)
        return replace(found, weights=None, **{n: wrong(found) for n, wrong in changes.items()})

    return lambda patch: patch.setattr(recording, "own_attention", misread)


def masks(wrong: Callable) -> Fault:
    original = interface.mask_and_bias
    return lambda patch: patch.setattr(
        recording, "mask_and_bias", lambda given: wrong(*original(given))
    )


def recorder(**wrong: Callable) -> Fault:
    def put_in(patch: pytest.MonkeyPatch) -> None:
        for name, method in wrong.items():
            patch.setattr(recording.Recorder, name, method)

    return put_in


def unrotated_as_rotated(self, given, original=recording.Recorder._from_interface):
    found = original(self, given)
    return found | {"query": found["query_unrotated"], "key": found["key_unrotated"]}


def each_module_once(self, module, given, output, original=recording.Recorder.note):
    paths = {call.module for call in self.calls}
    if self.places.paths[id(module)] not in paths:
        original(self, module, given, output)


def tiled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AttentionCall, "kv_head", lambda self, head: head % self.kv_heads)


SEEN_BY_VERIFICATION = {
    "wrong scale": ("llama", "sdpa", arguments(scale=lambda given: given.scale * 1.5)),
    "1/√d_k where the model has its own scale": (
        "granite",
        "sdpa",
        arguments(scale=lambda given: given.query.shape[-1] ** -0.5),
    ),
    "soft cap dropped": ("gemma2", "eager", arguments(softcap=lambda given: None)),
    "sinks dropped": ("gpt_oss", "eager", arguments(sinks=lambda given: None)),
    "position bias dropped": ("t5", "sdpa", masks(lambda mask, bias: (mask, None))),
    "mask dropped": ("mistral", "eager", masks(lambda mask, bias: (None, bias))),
    "no mask read as full": ("llama", "sdpa", arguments(causal=lambda given: False)),
    "no mask read as causal": ("bert", "sdpa", arguments(causal=lambda given: True)),
    "unrotated passed off as rotated": (
        "llama",
        "sdpa",
        recorder(_from_interface=unrotated_as_rotated),
    ),
    "own scale wrong": ("mpt", "eager", own(scale=lambda found: found.scale * 1.5)),
    "ALiBi dropped": ("bloom", "eager", own(bias=lambda found: None)),
    "own mask dropped": ("gpt_neo", "eager", own(mask=lambda found: None)),
    "content and position terms dropped": ("deberta_v3", "eager", own(bias=lambda found: None)),
}
SEEN_BY_REFERENCE = SEEN_BY_VERIFICATION | {
    "kv_heads tiled": ("llama", "sdpa", tiled),
    "second call of a shared module dropped": ("albert", "sdpa", recorder(note=each_module_once)),
    "weights transposed": (
        "bert",
        "sdpa",
        lambda patch: patch.setattr(
            test_families, "stacked", lambda *given, real=test_families.stacked: real(*given).mT
        ),
    ),
}


def check(family: str, name: str) -> None:
    """What `test_families` asks of a family."""
    if family in tiny_models.FAMILIES:
        test_families.test_family_reads_as_its_eager_function(family, name)
    else:
        test_families.test_family_with_attention_of_its_own_reads_as_it_computes(family, name)


@pytest.mark.parametrize("fault", SEEN_BY_REFERENCE)
def test_the_references_see(fault: str, monkeypatch: pytest.MonkeyPatch):
    family, name, put_in = SEEN_BY_REFERENCE[fault]
    check(family, name)
    put_in(monkeypatch)
    monkeypatch.setattr(recording, "confirmed_error", lambda call, real: 0.0)
    with pytest.raises(AssertionError):
        check(family, name)


@pytest.mark.parametrize("fault", SEEN_BY_VERIFICATION)
def test_verification_refuses(fault: str, monkeypatch: pytest.MonkeyPatch):
    family, name, put_in = SEEN_BY_VERIFICATION[fault]
    model, inputs = tiny_models.build(family, name), tiny_models.inputs_for(family)
    layers = len(capture(model, inputs).calls)
    put_in(monkeypatch)
    try:
        read = capture(model, inputs)
    except UnreadableModel as refusal:
        assert "would not be the truth" in str(refusal)  # noqa: PT017 - either may happen
    else:
        assert len(read.calls) < layers
        assert all("would not be the truth" in layer.reason for layer in read.unread)
