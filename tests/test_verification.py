"""Rows are recomputed from what was kept; what the output does not confirm is not believed."""

from dataclasses import replace

import pytest
import torch

from attnviz.attention_call import AttentionCall
from attnviz.verification import Unconfirmed, confirm_weights, confirmed_error

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, D_K, D_V = 2, 6, 3, 11, 13, 7, 5


def call(**changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=dice)

    plain = AttentionCall(
        module="layers.1.attention",
        layer=1,
        tower="decoder",
        kind="self",
        query=normal(BATCH, HEADS, QUERIES, D_K),
        key=normal(BATCH, KV_HEADS, KEYS, D_K),
        value=normal(BATCH, KV_HEADS, KEYS, D_V),
        scale=0.4,
        softcap=None,
        sinks=None,
        bias=normal(1, HEADS, QUERIES, KEYS),
        mask=torch.ones(1, 1, QUERIES, KEYS).tril(3).bool(),
        max_error=0.0,
    )
    return replace(plain, **changes)


def output_of(call: AttentionCall) -> torch.Tensor:
    """Outputs (batch, query, head, d_v), element by element of the definition."""
    out = torch.empty(BATCH, QUERIES, HEADS, D_V)
    for b in range(BATCH):
        for h in range(HEADS):
            kv = h * KV_HEADS // HEADS
            logits = call.scale * call.query[b, h] @ call.key[b, kv].T + call.bias[0, h]
            odds = logits.exp() * call.mask[0, 0]
            out[b, :, h] = odds / odds.sum(-1, keepdim=True) @ call.value[b, kv]
    return out


def test_the_models_own_output_confirms():
    read = call()
    assert confirmed_error(read, output_of(read)) < 1e-5


def test_weights_alone_are_confirmed_too():
    weights = torch.rand(BATCH, HEADS, QUERIES, KEYS)
    value = torch.randn(BATCH, HEADS, KEYS, D_V)
    read = call(query=None, key=None, value=value, observed_weights=weights, bias=None, mask=None)
    output = torch.einsum("bhqk,bhkv->bqhv", weights, value)
    assert confirmed_error(read, output) < 1e-5
    with pytest.raises(Unconfirmed, match="would not be the truth"):
        confirmed_error(read, output * 1.01)


def test_a_wrong_scale_is_not_confirmed():
    with pytest.raises(Unconfirmed, match="differs from the model's own output"):
        confirmed_error(call(scale=0.5), output_of(call()))


def test_another_shape_is_not_confirmed():
    with pytest.raises(Unconfirmed, match="returns the shape"):
        confirmed_error(call(), output_of(call()).transpose(1, 2))


def test_rows_of_padding_do_not_count():
    padding = torch.zeros(BATCH, QUERIES, dtype=torch.bool)
    padding[:, 0] = True
    read = call(query_padding=padding)
    output = output_of(read)
    output[:, 0] = torch.nan
    assert confirmed_error(read, output) < 1e-5


def test_hidden_rows_confirm_nothing():
    read = call()
    hidden = replace(read, mask=torch.zeros_like(read.mask))
    with pytest.raises(Unconfirmed):
        confirmed_error(hidden, output_of(read))


@pytest.mark.parametrize("made", ["nothing", "mean", "nan"])
def test_a_blind_row_is_confirmed_by_what_models_make_of_one(made: str):
    read = call()
    output = output_of(read)
    means = read.value.mean(2).repeat_interleave(HEADS // KV_HEADS, dim=1)
    output[:, 0] = {"nothing": 0.0, "mean": means, "nan": torch.nan}[made]
    blind = replace(read, mask=read.mask & (torch.arange(QUERIES) > 0)[:, None])
    assert confirmed_error(blind, output) < 1e-5


def test_one_large_column_confirms_no_other():
    read = call()
    large = read.value.clone()
    large[..., 0] *= 1e6
    read = replace(read, value=large)
    output = output_of(read)
    assert confirmed_error(read, output) < 10  # of numbers up to 1e6
    output[..., 1:] *= 1.01
    with pytest.raises(Unconfirmed):
        confirmed_error(read, output)


def test_values_that_are_no_numbers_confirm_nothing():
    read = call()
    broken = replace(read, value=read.value.clone().fill_(torch.nan))
    with pytest.raises(Unconfirmed, match="not numbers"):
        confirmed_error(broken, output_of(broken))


def test_all_weights_are_compared():
    read = call()
    logits = read.scale * read.query @ read.key.repeat_interleave(2, dim=1).mT + read.bias
    real = logits.masked_fill(~read.mask, -torch.inf).softmax(-1)
    confirm_weights(read, real)
    real[1, 5, 7] = 0
    with pytest.raises(Unconfirmed, match="weights recomputed"):
        confirm_weights(read, real)
