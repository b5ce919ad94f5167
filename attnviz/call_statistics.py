"""The numbers of `head_statistics` for all heads of one attention call at once.

Weights are computed a block at a time and left again, so that n × n of all heads never lie in
memory. Rows that stand for no token, or see none, are left out of every mean, and the first
token is the first one that is seen: padding changes no number.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnviz.attention_call import AttentionCall
from attnviz.head_statistics import entropy
from attnviz.weight_blocks import WeightBlock, visible_keys, weight_blocks


@dataclass(frozen=True)
class CallStatistics:
    """One value per head, means over the queries; NaN where no query can tell.

    Where both are given, names mean what the functions of `head_statistics` compute.
    `largest_weight` is the mean of each row's largest weight, `sink` the mean share that a
    learned sink takes, None where there is none.
    """

    relative_entropy: Float[Tensor, " head"]
    effective_keys: Float[Tensor, " head"]
    previous_token: Float[Tensor, " head"]
    first_token: Float[Tensor, " head"]
    diagonal: Float[Tensor, " head"]
    distance: Float[Tensor, " head"]
    largest_weight: Float[Tensor, " head"]
    sink: Float[Tensor, " head"] | None


@dataclass(frozen=True)
class _Rows:
    """One value per row, before the means."""

    entropy: Float[Tensor, "head query"]
    previous_token: Float[Tensor, "head query"]
    first_token: Float[Tensor, "head query"]
    diagonal: Float[Tensor, "head query"]
    distance: Float[Tensor, "head query"]
    largest_weight: Float[Tensor, "head query"]
    total: Float[Tensor, "head query"]


def of_all_heads(call: AttentionCall, batch: int = 0) -> CallStatistics:
    """The statistics of every head of a call, for one sequence of the batch."""
    queries, keys = call.n
    visible = visible_keys(call, batch)
    seen = torch.full((1, queries), keys) if visible is None else _count(visible)
    counted = seen > 0
    if call.query_padding is not None:
        counted = counted & ~call.query_padding[batch]
    first_row = int(counted.any(0).int().argmax())
    first_key = 0 if visible is None else int(visible[:, first_row].any(0).int().argmax())
    rows = _rows(call, batch, first_key)
    later, query = counted & (counted.cumsum(-1) > 1), torch.arange(queries)
    return CallStatistics(
        relative_entropy=_mean(rows.entropy / seen.clamp(min=2).log(), counted & (seen > 1)),
        effective_keys=_mean(rows.entropy.exp(), counted),
        previous_token=_mean(rows.previous_token, later & (query <= keys)),
        first_token=_mean(rows.first_token, later),
        diagonal=_mean(rows.diagonal, later & (query < keys)),
        distance=_mean(rows.distance, counted),
        largest_weight=_mean(rows.largest_weight, counted),
        sink=None if call.sinks is None else _mean(1 - rows.total, counted),
    )


def _count(visible: Bool[Tensor, "head query key"]) -> Int[Tensor, "head query"]:
    # In slices: the sum of a bool tensor begins with a copy of 8 bytes per number.
    return torch.cat([rows.sum(-1) for rows in visible.split(64, dim=1)], dim=1)


def _rows(call: AttentionCall, batch: int, first_key: int) -> _Rows:
    table = torch.empty(len(fields(_Rows)), call.heads, call.n[0])
    for block in weight_blocks(call, batch):
        table[:, block.heads, block.queries] = _of_block(block, first_key)
    return _Rows(*table)


def _of_block(block: WeightBlock, first_key: int) -> Float[Tensor, "statistic head query"]:
    """The fields of `_Rows`, in their order."""
    weights, start = block.weights, block.keys.start
    queries = torch.arange(block.queries.start, block.queries.stop, dtype=weights.dtype)
    keys = torch.arange(start, block.keys.stop, dtype=weights.dtype)
    own = block.queries.start - start
    return torch.stack(
        [
            entropy(weights),
            _diagonal(weights, own - 1),
            _column(weights, first_key - start),
            _diagonal(weights, own),
            (weights * (queries[:, None] - keys).abs()).sum(-1),
            weights.amax(-1),
            weights.sum(-1),
        ]
    )


def _column(weights: Float[Tensor, "head query key"], key: int) -> Float[Tensor, "head query"]:
    """The weight of one key in each row; 0 outside the block, where keys are hidden."""
    inside = 0 <= key < weights.shape[-1]
    return weights[..., key] if inside else torch.zeros(weights.shape[:2])


def _diagonal(weights: Float[Tensor, "head query key"], offset: int) -> Float[Tensor, "head query"]:
    """The weight of key query + offset in each row; 0 outside the block."""
    diagonal = weights.diagonal(offset, dim1=1, dim2=2)
    rows = torch.zeros(weights.shape[:2])
    rows[:, max(0, -offset) :][:, : diagonal.shape[1]] = diagonal
    return rows


def _mean(
    rows: Float[Tensor, "head query"], counted: Bool[Tensor, "#head query"]
) -> Float[Tensor, " head"]:
    return rows.where(counted, 0.0).sum(-1) / counted.sum(-1)
