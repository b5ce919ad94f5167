"""Attention written out in torch, in the ways that models write it, read back term by term."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnviz.operations import NoForm, OwnAttention, is_attention, own_attention
from attnviz.trace import Step, Trace

BATCH, HEADS, QUERIES, KEYS, D_K, D_V = 2, 3, 5, 7, 11, 13


def tensors(heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return (
        torch.randn(BATCH, heads, QUERIES, D_K),
        torch.randn(BATCH, heads, KEYS, D_K),
        torch.randn(BATCH, heads, KEYS, D_V),
    )


def read(compute, *given) -> OwnAttention:
    """What is read of the one product of weights and values in a computation."""
    found: list[Step] = []
    trace = Trace(lambda step: found.append(step) if is_attention(step) else None, found.append)
    with trace:
        compute(*given)
    assert len(found) == 1
    return own_attention(found[0], BATCH)


def weights(read: OwnAttention) -> Tensor:
    """The softmax of what was read, written out once more."""
    logits = (
        read.scale
        * read.query
        @ read.key.repeat_interleave(read.query.shape[1] // read.key.shape[1], dim=1).transpose(
            -1, -2
        )
    )
    if read.softcap is not None:
        logits = read.softcap * torch.tanh(logits / read.softcap)
    logits = logits if read.bias is None else logits + read.bias
    if read.mask is not None:
        logits = logits.masked_fill(~read.mask, -torch.inf)
    return logits.softmax(-1)


def as_usual(query, key, value):
    return (query @ key.transpose(-1, -2) / D_K**0.5).softmax(-1) @ value


def folded(query, key, value):
    q, k, v = (x.flatten(0, 1) for x in (query, key, value))
    return nn.functional.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.3, dim=-1).bmm(v)


def with_letters(query, key, value):
    scores = torch.einsum("bnid,bnjd->bnij", query, key) * 0.3
    return torch.einsum("bnij,bnjd->bind", scores.softmax(dim=-1), value)


def scaled_before(query, key, value):
    return ((query * 0.3) @ (key.transpose(-1, -2) / 2)).softmax(-1) @ value


def capped(query, key, value):
    return (4 * torch.tanh(query @ key.mT * 0.3 / 4)).softmax(-1) @ value


def added_in_front(query, key, value):
    bias = torch.arange(KEYS) * -0.1
    q, k, v = (x.flatten(0, 1) for x in (query, key, value))
    slopes = bias.expand(BATCH * HEADS, 1, KEYS)
    return slopes.baddbmm(q, k.mT, beta=2.0, alpha=0.3).softmax(-1) @ v


def scaled_by_head(query, key, value):
    return (query @ key.mT * torch.tensor([0.1, 0.3, 0.5])[:, None, None]).softmax(-1) @ value


def masked(how: str):
    hidden = torch.ones(QUERIES, KEYS).triu(2).bool()

    def compute(query, key, value):
        scores = query @ key.mT * 0.3
        if how == "filled":
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        elif how == "chosen":
            scores = torch.where(~hidden, scores, -torch.inf)
        else:
            scores = scores + torch.zeros(1, 1, QUERIES, KEYS).masked_fill(hidden, -1e9) + 0.5
        return scores.softmax(-1) @ value

    return compute


@pytest.mark.parametrize(
    "compute",
    [
        *(as_usual, folded, with_letters, scaled_before, capped, added_in_front, scaled_by_head),
        *(masked("filled"), masked("chosen"), masked("added")),
    ],
)
def test_what_entered_the_softmax_is_read(compute):
    given = tensors()
    found = read(compute, *given)
    assert found.query.shape == given[0].shape
    assert found.key.shape == given[1].shape
    torch.testing.assert_close(weights(found), found.weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.weights @ given[2], found.output, atol=1e-6, rtol=0)


def test_a_number_within_query_or_key_is_part_of_the_scale():
    query, key, value = tensors()
    found = read(scaled_before, query, key, value)
    assert found.scale == pytest.approx(0.15)
    torch.testing.assert_close(found.query, query)
    torch.testing.assert_close(found.key, key)


def test_a_mask_is_no_bias():
    found = read(masked("added"), *tensors())
    assert found.bias is None
    assert torch.equal(found.mask[0, 0], torch.ones(QUERIES, KEYS).triu(2) == 0)


def test_copies_of_a_shared_head_are_one():
    query, key, value = tensors()
    shared = [x[:, :1].expand_as(x) for x in (key, value)]
    found = read(as_usual, query, *shared)
    assert found.key.shape[1] == found.shared_value.shape[1] == 1
    torch.testing.assert_close(weights(found), found.weights)


def test_the_fused_function_says_everything():
    query, key, value = tensors(heads=6)
    key, value = key[:, :2], value[:, :2]
    mask = torch.ones(QUERIES, KEYS).tril(2).bool()

    def compute(query, key, value):
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
        )

    found = read(compute, query, key, value)
    assert found.scale == 0.3
    expected = weights(found) @ value.repeat_interleave(3, dim=1)
    torch.testing.assert_close(expected, found.output)


def test_what_has_no_form_keeps_its_weights():
    def by_key(query, key, value):
        return (query @ key.mT * torch.rand(KEYS)).softmax(-1) @ value

    found = read(by_key, *tensors())
    assert found.query is None
    torch.testing.assert_close(found.weights @ tensors()[2], found.output)


def test_blocks_have_no_form():
    def in_blocks(query, key, value):
        q, k, v = (x.unflatten(2, (1, -1)) for x in (query, key, value))
        return (q @ k.mT).softmax(-1) @ v

    with pytest.raises(NoForm, match="5 axes"):
        read(in_blocks, *tensors())


@pytest.mark.parametrize(
    "compute",
    [
        lambda q, k, v: (q @ k.mT) @ v,
        lambda q, k, v: (q @ k.mT).softmax(-1).mean(),
        lambda q, k, v: v.mT @ (q @ k.mT).softmax(-1).mT,
    ],
)
def test_other_products_are_no_attention(compute):
    seen = []
    with Trace(lambda step: seen.append(is_attention(step)), seen.append):
        compute(*tensors())
    assert not any(seen)
