"""Small pictures of all heads of a call: the largest weight in each block of their matrices.

A mean would let a narrow diagonal fade the longer a text is; a maximum keeps it.
"""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnviz.attention_call import AttentionCall
from attnviz.weight_blocks import visible_keys, weight_blocks

CELLS = 144 * 40**2  # of all thumbnails together: a byte each, they are quickly sent
SMALLEST, LARGEST = 8, 40  # cells of one side


def side_for(heads: int) -> int:
    """How many cells wide and high each thumbnail may be where so many heads are shown."""
    return min(max(isqrt(CELLS // max(heads, 1)), SMALLEST), LARGEST)


def thumbnails(call: AttentionCall, side: int, batch: int = 0) -> Float[Tensor, "head down across"]:
    """The largest weight in each block of queries and keys, NaN where all of it is hidden.

    At most `side` blocks down and across; a text with fewer tokens has one for each. All blocks
    are alike to within one token.
    """
    queries, keys = call.n
    rows, columns = _edges(queries, side), _places(_edges(keys, side))
    table = torch.zeros(call.heads, len(rows) - 1, len(columns))
    for block in weight_blocks(call, batch):
        for row, part in _cut(rows, block.queries):
            by_key = torch.zeros(len(block.weights), keys)
            by_key[:, block.keys] = block.weights[:, part].amax(1)
            cells = table[block.heads, row]
            torch.maximum(cells, by_key[:, columns].amax(-1), out=cells)
    visible = visible_keys(call, batch)
    if visible is None:
        return table
    by_key = torch.stack([part.any(1) for part in visible.tensor_split(rows[1:-1], dim=1)], 1)
    return table.masked_fill(~by_key[..., columns].any(-1), torch.nan)


def _edges(count: int, side: int) -> list[int]:
    """Where blocks begin, and where the last one ends."""
    blocks = min(count, side)
    return [at * count // blocks for at in range(blocks + 1)]


def _cut(edges: list[int], within: slice) -> list[tuple[int, slice]]:
    """The blocks that reach into a slice, each with its part of it, counted from its start."""
    cuts = []
    for at, (start, stop) in enumerate(pairwise(edges)):
        first, last = max(start, within.start), min(stop, within.stop)
        if first < last:
            cuts.append((at, slice(first - within.start, last - within.start)))
    return cuts


def _places(edges: list[int]) -> Int[Tensor, "block place"]:
    """What lies in each block; a shorter one has its last place twice."""
    starts, stops = torch.tensor(edges[:-1]), torch.tensor(edges[1:])
    longest = int((stops - starts).max())
    return torch.minimum(starts[:, None] + torch.arange(longest), stops[:, None] - 1)
