"""One run for all calls against a run for each."""

from __future__ import annotations

import cell_reference
import pytest
import tiny_models
import torch
from cell_recipes import RECIPES

from attnviz.attention_call import Capture
from attnviz.capture import capture
from attnviz.origins import origins
from attnviz.surroundings import Origin, Projection
from attnviz.wiring import wiring

FAMILIES = [*RECIPES, "whisper", "swin", "clip", "tied_encoder_decoder", "jamba", "convbert"]


def read_of(family: str) -> tuple:
    attention = "eager" if family in tiny_models.EAGER_ONLY else "sdpa"
    model, inputs = cell_reference.model_of(family, attention), cell_reference.inputs_for(family)
    return model, inputs, capture(model, inputs)


def assert_same(one: Projection | None, other: Projection | None) -> None:
    if one is None or other is None:
        assert one is other
        return
    assert one.name == other.name
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.source, other.source)
    assert (one.bias is None) == (other.bias is None)
    if one.bias is not None:
        assert torch.equal(one.bias, other.bias)
    assert_same(one.inner, other.inner)


def assert_same_origin(one: Origin | None, other: Origin | None) -> None:
    assert one is not None
    assert other is not None
    for part in ("which", "row", "column"):
        assert torch.equal(getattr(one, part), getattr(other, part))
    for a, b in zip(one.projections, other.projections, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("family", FAMILIES)
def test_as_followed_one_by_one(family: str):
    model, inputs, read = read_of(family)
    for call, found in zip(read.calls, origins(model, inputs, read), strict=True):
        alone = wiring(model, inputs, read, call)
        for role in ("query", "key", "value"):
            assert_same_origin(getattr(found, role), getattr(alone, role))
        assert (found.output, found.stream, found.weights) == (None, None, None)


def test_a_call_that_another_run_does_not_repeat_is_not_told():
    model, inputs, read = read_of("gpt2")
    other = tiny_models.inputs_for("gpt2", batch=2, seed=5)
    found = origins(model, other, read)
    assert [one.query for one in found] == [None, None, None]
    part = Capture(read.model_type, read.calls[1:2])
    (one,) = origins(model, inputs, part)
    assert one.query is not None
    assert one.query.projections[0].name == "transformer.h.1.attn.c_attn.weight"
