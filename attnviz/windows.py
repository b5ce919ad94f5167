"""A part of one head's matrix, and the whole of it in few cells, for texts of any length.

A head of 16,000 tokens has 256 million weights. What is looked at is a window of them, or all of
them downsampled: each is computed from the rows that it needs, some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnviz.attention_call import AttentionCall
from attnviz.weight_blocks import (
    ALL,
    BLOCK_WEIGHTS,
    logits_of,
    of_batch,
    part_of,
    scores_of,
    seen_keys,
    weights_of,
)

What = Literal["weights", "scores", "logits"]
PART = {"weights": weights_of, "scores": scores_of, "logits": logits_of}


@dataclass(frozen=True)
class Blocks:
    """A matrix whose rows and columns each stand for one token or several.

    `queries` and `keys` have the positions of the tokens of each row and column. A value is NaN
    where the keys are hidden from the queries.
    """

    values: Float[Tensor, "row column"]
    queries: tuple[tuple[int, ...], ...]
    keys: tuple[tuple[int, ...], ...]


def window(
    call: AttentionCall,
    head: int,
    queries: slice = ALL,
    keys: slice = ALL,
    what: What = "weights",
    batch: int = 0,
) -> Float[Tensor, "query key"]:
    """Some rows and columns of one head's weights, scores or logits; NaN where a key is hidden.

    Weights are shares of the whole row, whatever keys are asked for. Raises `ValueError` for
    scores and logits of a model that offers weights only.
    """
    rows, columns = (within(asked, n) for asked, n in zip((queries, keys), call.n, strict=True))
    found = torch.full((rows.stop - rows.start, columns.stop - columns.start), torch.nan)
    at_once = max(1, BLOCK_WEIGHTS // call.n[1])
    for start in range(rows.start, rows.stop, at_once):
        some = slice(start, min(start + at_once, rows.stop))
        place = slice(some.start - rows.start, some.stop - rows.start)
        _fill(found[place], call, head, some, columns, what, batch)
    return found


def by_largest(
    rows: Callable[[slice], Float[Tensor, "query key"]], n: tuple[int, int], cells: int
) -> Blocks:
    """Downsample a matrix of n queries and keys that `rows` gives, some whole rows at a time.

    A cell is the number of largest magnitude in its block, NaN where all of it is hidden. All
    blocks but the last have the same size, which is 1 where the matrix is small enough.
    """
    tall, wide = (-(-tokens // cells) for tokens in n)
    at_once = tall * max(1, BLOCK_WEIGHTS // (tall * n[1]))
    values = [
        _largest_by_magnitude(rows(slice(start, min(start + at_once, n[0]))), tall, wide)
        for start in range(0, n[0], at_once)
    ]
    return Blocks(torch.cat(values), runs(n[0], tall), runs(n[1], wide))


def within(asked: slice, tokens: int) -> slice:
    """The positions that a slice means, with both ends given."""
    start, stop, _ = asked.indices(tokens)
    return slice(start, max(start, stop))


def runs(tokens: int, size: int = 1) -> tuple[tuple[int, ...], ...]:
    """Positions in runs of one size; the last may be shorter."""
    return tuple(tuple(range(start, min(start + size, tokens))) for start in range(0, tokens, size))


def _fill(
    found: Float[Tensor, "query key"],
    call: AttentionCall,
    head: int,
    queries: slice,
    keys: slice,
    what: What,
    batch: int,
) -> None:
    """Write what the queries see; a softmax needs all keys that they see, a product does not."""
    heads = slice(head, head + 1)
    mask = part_of(of_batch(call.mask, batch), heads, queries, ALL)
    seen = seen_keys(mask, ALL, call.n[1])
    first, last = max(seen.start, keys.start), min(seen.stop, keys.stop)
    if first >= last:
        return
    needed = seen if what == "weights" else slice(first, last)
    values = PART[what](call, batch, heads, queries, needed)[0]
    shown = slice(first - needed.start, last - needed.start)
    visible = _visible(call, mask, values, needed)
    if visible is not None:
        values = values.masked_fill(~visible, torch.nan)
    found[:, first - keys.start : last - keys.start] = values[:, shown]


def _visible(
    call: AttentionCall,
    mask: Bool[Tensor, "1 query key"] | None,
    values: Float[Tensor, "query some"],
    keys: slice,
) -> Bool[Tensor, "query some"] | None:
    """Which keys are seen, None for all; of a model's own weights those above 0."""
    if call.observed_weights is not None:
        return values > 0
    return None if mask is None else mask[0, :, keys]


def _largest_by_magnitude(
    rows: Float[Tensor, "query key"], tall: int, wide: int
) -> Float[Tensor, "row column"]:
    high = _highest(rows, tall, wide)
    if not bool((rows < 0).any()):
        return high
    low = -_highest(-rows, tall, wide)
    return torch.where(-low > high, low, high)


def _highest(rows: Float[Tensor, "query key"], tall: int, wide: int) -> Float[Tensor, "row column"]:
    """The maximum of each block, NaN left out; rows first, since those lie side by side."""
    rows = rows.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    queries, keys = rows.shape
    short = (-keys % wide, -queries % tall)
    rows = torch.nn.functional.pad(rows, (0, short[0], 0, short[1]), value=-torch.inf)
    highest = rows.unflatten(0, (-1, tall)).amax(1).unflatten(1, (-1, wide)).amax(2)
    return highest.masked_fill(highest == -torch.inf, torch.nan)
