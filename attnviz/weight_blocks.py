"""The weights of all heads of a call, a block at a time.

All heads' n × n weights are far too many to keep (36 GiB at 12 × 12 heads and 8,192 tokens).
What is small (a number per row, a picture of few cells) can be gathered from blocks of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from attnviz import equation
from attnviz.attention_call import AttentionCall

ALL = slice(None)
# 2^20 weights are 4 MiB: large enough that torch's threads seldom wait for each other, small
# enough for the cache. Few rows at once, so that a causal mask spares almost half of the work.
BLOCK_WEIGHTS = 2**20
BLOCK_ROWS = 128


@dataclass(frozen=True)
class WeightBlock:
    """Weights of some heads and queries, over the keys that these queries see.

    A key outside `keys` is hidden from all of them: its weight is 0.
    """

    heads: slice
    queries: slice
    keys: slice
    weights: Float[Tensor, "head query key"]


def weight_blocks(call: AttentionCall, batch: int = 0) -> Iterator[WeightBlock]:
    """All weights of one sequence of the batch, each head and query in one block.

    Keys before the first and after the last that a block's queries see are left out.
    """
    queries, keys = call.n
    group = call.heads // call.kv_heads
    rows_at_once = min(queries, BLOCK_ROWS, max(1, BLOCK_WEIGHTS // (group * keys)))
    heads_at_once = group * max(1, BLOCK_WEIGHTS // (group * rows_at_once * keys))
    mask = of_batch(call.mask, batch)
    for start in range(0, queries, rows_at_once):
        rows = slice(start, min(start + rows_at_once, queries))
        seen = seen_keys(mask, rows, keys)
        for head in range(0, call.heads, heads_at_once):
            heads = slice(head, min(head + heads_at_once, call.heads))
            yield WeightBlock(heads, rows, seen, weights_of(call, batch, heads, rows, seen))


def visible_keys(
    call: AttentionCall, batch: int = 0, queries: slice = ALL, keys: slice = ALL
) -> Bool[Tensor, "_ query key"] | None:
    """Which keys some queries see, None for all; of a model's own weights those above 0.

    The first axis is that of the heads, of size 1 where all see the same.
    """
    if call.observed_weights is not None:
        return call.observed_weights[batch, :, queries, keys] > 0
    mask = of_batch(call.mask, batch)
    return None if mask is None else mask[:, queries, keys]


def of_batch(tensor: Tensor | None, batch: int) -> Tensor | None:
    """The (head, query, key) part of a tensor whose batch axis may be shared (size 1)."""
    return None if tensor is None else tensor[batch if tensor.shape[0] > 1 else 0]


def seen_keys(mask: Bool[Tensor, "head query key"] | None, queries: slice, keys: int) -> slice:
    """From the first to the last key that any of the queries sees; all if they see none."""
    if mask is None:
        return slice(0, keys)
    seen = mask[:, queries].flatten(0, 1).any(0).int()
    return slice(int(seen.argmax()), keys - int(seen.flip(0).argmax()))


def scores_of(
    call: AttentionCall, batch: int, heads: slice, queries: slice, keys: slice
) -> Float[Tensor, "head query key"]:
    """q·k of heads that are whole groups, or lie within one; `ValueError` if there is none."""
    if call.query is None or call.key is None:
        raise ValueError(f"{call.module} offers weights only, no queries and keys.")
    group = call.heads // call.kv_heads
    kv_heads = slice(heads.start // group, (heads.stop - 1) // group + 1)
    key = call.key[batch, kv_heads, keys].float()
    # Rows of the heads that read the same key head are stacked, so that keys are not copied.
    query = call.query[batch, heads, queries].float().unflatten(0, (len(key), -1))
    return equation.scores(query.flatten(1, 2), key).unflatten(1, query.shape[1:3]).flatten(0, 1)


def logits_of(
    call: AttentionCall, batch: int, heads: slice, queries: slice, keys: slice
) -> Float[Tensor, "head query key"]:
    """What enters the softmax of the same heads; −∞ where a key is hidden."""
    return equation.logits(
        scores_of(call, batch, heads, queries, keys),
        call.scale,
        softcap=call.softcap,
        bias=part_of(of_batch(call.bias, batch), heads, queries, keys),
        mask=part_of(of_batch(call.mask, batch), heads, queries, keys),
    )


def weights_of(
    call: AttentionCall, batch: int, heads: slice, queries: slice, keys: slice
) -> Float[Tensor, "head query key"]:
    """Softmax of these logits, or the model's own weights: `keys` must be all that are seen."""
    if call.observed_weights is not None:
        return call.observed_weights[batch, heads, queries, keys].float()
    sinks = None if call.sinks is None else call.sinks[heads].float().reshape(-1, 1, 1)
    return equation.weights(logits_of(call, batch, heads, queries, keys), sinks)


def part_of(tensor: Tensor | None, heads: slice, queries: slice, keys: slice) -> Tensor | None:
    """A block of a (head, query, key) tensor whose head axis may be shared (size 1)."""
    if tensor is None:
        return None
    return tensor[heads if tensor.shape[0] > 1 else slice(None), queries, keys]
