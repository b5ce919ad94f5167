"""Weights times the length of what keys bring, against the modules of real models and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from calls_by_hand import plain_call
from test_wiring import EAGER, around
from torch import Tensor

from attnviz import attention, windows
from attnviz.attention_call import AttentionCall
from attnviz.cell import cell
from attnviz.weighing import brought_lengths, is_gated, refusal, weighed
from attnviz.windows import Blocks, by_largest
from attnviz.wiring import Mixing, Projection, Wiring


def same(found: Tensor, expected: Tensor, off: float = 1e-5) -> None:
    assert found.dtype == torch.float32
    largest = float(expected[~expected.isnan()].abs().max())
    torch.testing.assert_close(
        found.double(), expected.double(), atol=off * largest, rtol=0, equal_nan=True
    )


def largest_weighed(call: AttentionCall, wiring: Wiring, head: int, cells: int = 512) -> Blocks:
    return by_largest(lambda queries: weighed(call, wiring, head, queries), call.n, cells)


# --- by hand


def two_by_two() -> tuple[AttentionCall, Wiring]:
    """The second query gives 3/4 and 1/4; W_O · value is (0, 3, 4) and (0, 0, 12)."""
    call = plain_call(
        query=torch.tensor([[[[0.0], [1.0]]]]),
        key=torch.tensor([[[[1.0], [0.0]]]]),
        value=torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]),
        scale=math.log(3),
        mask=torch.ones(1, 1, 2, 2, dtype=torch.bool).tril(),
    )
    weight = torch.tensor([[0.0, 0.0], [0.0, 3.0], [6.0, 4.0]])
    source = torch.tensor([[9.0, 0.0, 1.0], [9.0, 0.5, 0.75]])  # what another gives, then ours
    row, column = torch.tensor([[0, 0], [1, 1]]), torch.tensor([[2, 1], [2, 1]])
    padded = torch.cat([torch.full((3, 1), 99.0), weight], 1)
    projection = Projection("attention.o", source, padded, None)
    return call, Wiring(output=Mixing(projection, row[None, None], column[None, None]))


def test_two_tokens_by_hand():
    call, wiring = two_by_two()
    assert refusal(wiring) is None
    assert not is_gated(call, wiring.output, 0)
    same(brought_lengths(call, wiring, 0), torch.tensor([[5.0, 12.0]]))
    same(weighed(call, wiring, 0), torch.tensor([[5.0, math.nan], [3.75, 3.0]]))
    same(weighed(call, wiring, 0, slice(1, 2), slice(1, 2)), torch.tensor([[3.0]]))
    same(largest_weighed(call, wiring, 0, 1).values, torch.tensor([[5.0]]))


def test_a_gate_makes_the_lengths_those_of_each_query():
    call, wiring = two_by_two()
    projection = wiring.output.projection
    gated = projection.source * torch.tensor([[1.0, 1.0, 3.0], [1.0, 0.5, 0.25]])
    mixing = replace(wiring.output, projection=replace(projection, source=gated))
    assert is_gated(call, mixing, 0)
    # Of the first output, (1, 0), the second number tells no factor: it counts as 0.
    expected = torch.tensor([[15.0, 0.0], [1.25, 6.0]])
    same(brought_lengths(call, Wiring(output=mixing), 0), expected)
    same(
        weighed(call, Wiring(output=mixing), 0),
        torch.tensor([[15.0, math.nan], [0.9375, 1.5]]),
    )
    same(largest_weighed(call, Wiring(output=mixing), 0, 1).values, torch.tensor([[15.0]]))


def test_without_w_o_there_is_a_reason():
    call, wiring = two_by_two()
    assert "could not be followed" in refusal(Wiring())
    for ask in (weighed, brought_lengths, largest_weighed):
        with pytest.raises(ValueError, match="could not be followed"):
            ask(call, Wiring(), 0)
    column = wiring.output.column.clone()
    column[0, 0, 1] = column[0, 0, 1].flip(0)
    turned = Wiring(output=replace(wiring.output, column=column))
    with pytest.raises(ValueError, match="another order"):
        weighed(call, turned, 0)


# --- real models


def expected(call: AttentionCall, real, head: int) -> Tensor:
    """‖W_O · (gate · weight · value)‖ in double precision, from the model's own modules."""
    recipe = real.recipe
    value = real.real.value[0, head // (recipe.heads // recipe.kv_heads)].double()
    shares = real.real.weights[0, head].double()[:, :, None] * value
    if real.gate is not None:
        shares = shares * real.gate[0, head].double()[:, None]
    norms = (shares @ real.mixed.weight[head].double().T).norm(dim=-1)
    mask = attention.mask(call, head)
    return norms if mask is None else norms.masked_fill(~mask, math.nan)


@pytest.mark.parametrize("rows_at_once", [2**20, 29])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_oss", "t5", "bart", "qwen3_next", "vit"])
def test_what_keys_bring_in_real_models(family: str, rows_at_once: int, monkeypatch):
    monkeypatch.setattr(windows, "BLOCK_WEIGHTS", rows_at_once)
    for call, wiring, real in around(family, "eager" if family in EAGER else "sdpa"):
        assert is_gated(call, wiring.output, 0) is (real.gate is not None)
        for head in {0, call.heads // 2, call.heads - 1}:
            matrix = expected(call, real, head)
            same(weighed(call, wiring, head), matrix, 2e-5)
            same(weighed(call, wiring, head, slice(2, 6), slice(1, 4)), matrix[2:6, 1:4], 2e-5)
            whole = largest_weighed(call, wiring, head, max(call.n)).values
            same(whole, matrix, 2e-5)
            row = cell(call, wiring, head, 5, 0).retrieved.brought
            same(weighed(call, wiring, head)[5].nan_to_num(0), row)


def test_few_rows_tell_a_gate():
    """A gate that is 1 for the first tokens only is still one."""
    call, wiring = two_by_two()
    source = wiring.output.projection.source.clone()
    source[1] *= 2
    mixing = replace(wiring.output, projection=replace(wiring.output.projection, source=source))
    assert is_gated(call, mixing, 0)
