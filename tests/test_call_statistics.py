"""The statistics of all heads at once against those of each head's matrix by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from calls_by_hand import plain_call
from torch import Tensor

from attnviz import attention, call_statistics, weight_blocks
from attnviz import head_statistics as statistics
from attnviz.attention_call import AttentionCall

HEADS, KV_HEADS, N, D_K, D_V, BATCH = 6, 2, 13, 7, 11, 3
CAUSAL = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
NAMES = (
    "relative_entropy",
    "effective_keys",
    "previous_token",
    "first_token",
    "diagonal",
    "distance",
    "largest_weight",
)


@pytest.fixture(params=[2**20, 100, 1], autouse=True, ids=["one block", "blocks", "rows"])
def block(request, monkeypatch):
    """Whatever the block, the numbers are the same."""
    monkeypatch.setattr(weight_blocks, "BLOCK_WEIGHTS", request.param)
    monkeypatch.setattr(weight_blocks, "BLOCK_ROWS", 5 if request.param == 100 else 128)


def call(queries: int = N, keys: int = N, **changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(1)
    fields = {
        "query": torch.randn(BATCH, HEADS, queries, D_K, generator=dice),
        "key": torch.randn(BATCH, KV_HEADS, keys, D_K, generator=dice),
        "value": torch.randn(BATCH, KV_HEADS, keys, D_V, generator=dice),
        "scale": 0.9,
    }
    return plain_call(**(fields | changes))


def one_by_one(of: AttentionCall, batch: int, rows: slice, keys: slice) -> dict[str, Tensor]:
    """Each head's matrix, cut to the tokens, through the functions for one matrix."""
    found: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    for head in range(of.heads):
        visible = torch.ones(of.n, dtype=torch.bool)
        if of.mask is not None:
            mask = of.mask.expand(BATCH, HEADS, *of.n)
            visible = mask[batch, head]
        weights = attention.weights(of, head, batch)[rows, keys]
        visible = visible[rows, keys]
        found["relative_entropy"].append(statistics.relative_entropy(weights, visible))
        for name in NAMES[1:-1]:
            found[name].append(getattr(statistics, name)(weights))
        found["largest_weight"].append(torch.stack([row.max() for row in weights]).mean())
    return {name: torch.stack(values) for name, values in found.items()}


def check(of: AttentionCall, rows: slice = slice(None), keys: slice = slice(None)) -> None:
    for batch in range(BATCH):
        at_once = call_statistics.of_all_heads(of, batch)
        for name, expected in one_by_one(of, batch, rows, keys).items():
            assert bool(expected.isfinite().all())
            torch.testing.assert_close(
                getattr(at_once, name), expected, atol=2e-6, rtol=1e-5, msg=name
            )


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


CALLS = {
    "bidirectional": {},
    "causal": {"mask": CAUSAL},
    "sliding window": {"mask": CAUSAL.triu(-3)},
    "window both ways": {"mask": torch.ones_like(CAUSAL).tril(2).triu(-2)},
    "soft cap": {"mask": CAUSAL, "softcap": 1.3},
    "bias of each head": {"bias": random(1, HEADS, N, N), "mask": CAUSAL},
    "bias of each sequence": {"bias": random(BATCH, 1, N, N)},
    "mask of each head": {"mask": (random(1, HEADS, N, N) > 0) | torch.eye(N, dtype=torch.bool)},
    "mask of each sequence": {
        "mask": ((random(BATCH, 1, N, N) > 0) | torch.eye(N, dtype=torch.bool)) & CAUSAL
    },
    "sinks": {"mask": CAUSAL, "sinks": random(HEADS)},
}


@pytest.mark.parametrize("case", CALLS)
def test_all_heads_at_once_are_the_heads_one_by_one(case: str):
    check(call(**CALLS[case]))


@pytest.mark.parametrize(("queries", "keys"), [(5, 17), (17, 5)])
def test_cross_attention_is_not_square(queries: int, keys: int):
    check(call(queries, keys, kind="cross", bias=random(1, HEADS, queries, keys)))


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_padding_on_either_side_changes_nothing(first: int, causal: bool):
    tokens = slice(first, first + 9)
    padding = torch.ones(BATCH, N, dtype=torch.bool)
    padding[:, tokens] = False
    mask = (CAUSAL if causal else torch.ones_like(CAUSAL)) & ~padding[:, None, None]
    padded = {"query_padding": padding, "key_padding": padding}
    check(call(mask=mask & ~padding[:, None, :, None], **padded), tokens, tokens)
    check(call(mask=mask, **padded), tokens, tokens)
    if causal and first:  # told by the mask alone
        blind = torch.ones_like(CAUSAL).expand(BATCH, -1, -1, -1) & ~padding[:, None, :, None]
        check(call(mask=mask & blind), tokens, tokens)


def test_sequences_may_be_padded_differently():
    padding = torch.zeros(BATCH, N, dtype=torch.bool)
    padding[1, :3] = padding[2, 8:] = True
    of = call(mask=CAUSAL & ~padding[:, None, None], query_padding=padding, key_padding=padding)
    for batch, tokens in enumerate((slice(0, N), slice(3, N), slice(0, 8))):
        expected = one_by_one(of, batch, tokens, tokens)["first_token"]
        at_once = call_statistics.of_all_heads(of, batch).first_token
        torch.testing.assert_close(at_once, expected, atol=1e-6, rtol=0)


def test_bfloat16_is_computed_in_float32():
    half = {name: getattr(call(), name).bfloat16() for name in ("query", "key", "value")}
    of = call(mask=CAUSAL, bias=random(1, HEADS, N, N).bfloat16(), **half)
    check(of)
    assert call_statistics.of_all_heads(of).distance.dtype == torch.float32


def test_a_models_own_weights_give_the_numbers_that_queries_and_keys_give():
    whole = call(mask=CAUSAL, scale=0.3)
    weights = torch.stack(
        [
            torch.stack([attention.weights(whole, head, batch) for head in range(HEADS)])
            for batch in range(BATCH)
        ]
    )
    observed = replace(whole, query=None, key=None, mask=None, observed_weights=weights)
    for name in NAMES:
        torch.testing.assert_close(
            getattr(call_statistics.of_all_heads(observed, 2), name),
            getattr(call_statistics.of_all_heads(whole, 2), name),
        )


def flat(n: int, **changes) -> AttentionCall:
    """A call whose logits are all 0."""
    query, key = torch.zeros(1, HEADS, n, D_K), torch.zeros(1, KV_HEADS, n, D_K)
    return call(
        **({"query": query, "key": key, "value": torch.zeros(1, KV_HEADS, n, D_V)} | changes)
    )


def test_uniform_heads_by_hand():
    found = call_statistics.of_all_heads(flat(3, mask=CAUSAL[..., :3, :3]))
    by_hand = {
        "relative_entropy": 1,
        "effective_keys": (1 + 2 + 3) / 3,
        "previous_token": (1 / 2 + 1 / 3) / 2,
        "first_token": (1 / 2 + 1 / 3) / 2,
        "diagonal": (1 / 2 + 1 / 3) / 2,
        "distance": (0 + 1 / 2 + 1) / 3,
        "largest_weight": (1 + 1 / 2 + 1 / 3) / 3,
    }
    for name, value in by_hand.items():
        assert getattr(found, name).tolist() == pytest.approx([value] * HEADS), name
    assert found.sink is None


def test_sink_takes_its_share_of_each_row():
    sinks = torch.arange(1, HEADS + 1).float().log()
    found = call_statistics.of_all_heads(flat(3, mask=CAUSAL[..., :3, :3], sinks=sinks))
    expected = [sum(s / (s + keys) for keys in (1, 2, 3)) / 3 for s in range(1, HEADS + 1)]
    assert found.sink is not None
    assert found.sink.tolist() == pytest.approx(expected)


def test_one_hot_rows_lose_nothing_to_rounding():
    key = 50 * torch.eye(N).expand(1, HEADS, -1, -1)
    query = key.roll(-1, dims=-2)  # each query has the key of the token after it
    found = call_statistics.of_all_heads(flat(N, query=query, key=key, value=key, scale=1.0))
    assert found.effective_keys.tolist() == [1.0] * HEADS
    assert found.relative_entropy.tolist() == [0.0] * HEADS
    assert found.largest_weight.tolist() == [1.0] * HEADS
    assert found.previous_token.tolist() == [0.0] * HEADS
    assert found.distance.tolist() == pytest.approx([(N - 1 + N - 1) / N] * HEADS)


def test_one_token_tells_little():
    found = call_statistics.of_all_heads(flat(1))
    assert found.effective_keys.tolist() == found.largest_weight.tolist() == [1.0] * HEADS
    for name in ("relative_entropy", "previous_token", "first_token", "diagonal"):
        assert all(math.isnan(value) for value in getattr(found, name).tolist()), name


@pytest.mark.parametrize("case", CALLS)
def test_blocks_hold_every_weight_once(case: str):
    of = call(**CALLS[case])
    found = torch.zeros(HEADS, N, N)
    times = torch.zeros(HEADS, N)
    for part in weight_blocks.weight_blocks(of, 1):
        found[part.heads, part.queries, part.keys] = part.weights
        times[part.heads, part.queries] += 1
    for head in range(HEADS):
        torch.testing.assert_close(found[head], attention.weights(of, head, 1))
    assert bool((times == 1).all())


def test_blocks_are_bounded_and_leave_out_what_no_query_sees():
    limit = max(weight_blocks.BLOCK_WEIGHTS, N * HEADS // KV_HEADS)
    for part in weight_blocks.weight_blocks(call(mask=CAUSAL.triu(-3))):
        assert part.weights.numel() <= limit
        assert part.keys == slice(max(0, part.queries.start - 3), part.queries.stop)
