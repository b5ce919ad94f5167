"""A real head beside the synthetic one: moments of its scores, and its rows under any divisor.

Masked keys and rows that stand for no token are left out of everything. Of a long text evenly
spaced queries are taken, with all their keys, so that a bounded number of scores is held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from attnviz import attention, equation
from attnviz.attention_call import AttentionCall
from attnviz.synthetic import Simulation, of_rows

MOST_PAIRS = 2**21  # 16 MiB in float64; all of 1,448 × 1,448


@dataclass(frozen=True)
class HeadRows:
    """Queries of one head, each with all keys, in float64.

    `scores` are q·k with q as papers mean it: what the model multiplied the query by before
    the product is taken out, and is part of `scale`. `visible` is False where the mask hides a
    key. `positions` are the places of the queries in their sequence.
    """

    positions: Int[Tensor, " query"]
    query: Float64[Tensor, "query d_k"]
    key: Float64[Tensor, "key d_k"]
    scores: Float64[Tensor, "query key"]
    visible: Bool[Tensor, "query key"]
    scale: float
    softcap: float | None
    bias: Float64[Tensor, "query key"] | None
    sink: Float64[Tensor, "1 1"] | None

    @property
    def seen_scores(self) -> Float64[Tensor, " pair"]:
        """The scores of all visible pairs in one row."""
        return self.scores[self.visible]


@dataclass(frozen=True)
class HeadMoments:
    """Moments of a head's scores over its visible pairs, and what they come from.

    `pooled_variance` is what texts speak of; `between_rows` is the part of it that lies between
    the rows' means, which no softmax sees. `row_variance` is the mean over the rows of the
    unbiased variance within each: what the softmax sees. `independent_mean` and
    `independent_variance` are what queries and keys with these means and covariances would
    have if they knew nothing of each other. Stds are root mean squares over the entries of the
    deviation from each entry's mean; lengths are means of ‖q‖ and ‖k‖, mean lengths ‖E q‖ and
    ‖E k‖. `scale` is the model's own, as papers mean it.
    """

    queries: int
    pairs: int
    d_k: int
    scale: float
    mean: float
    pooled_variance: float
    between_rows: float
    row_variance: float
    independent_mean: float
    independent_variance: float
    query_length: float
    key_length: float
    query_mean_length: float
    key_mean_length: float
    query_std: float
    key_std: float
    cosine: float


def rows_of(
    call: AttentionCall, head: int, batch: int = 0, most_pairs: int = MOST_PAIRS
) -> HeadRows:
    """Evenly spaced queries of a head with all keys, at most so many pairs, but one query.

    `ValueError` if the model offers no queries and keys as such.
    """
    if call.query is None or call.key is None:
        raise ValueError(f"{call.module} offers weights only, no queries and keys.")
    positions = _positions(call, head, batch, most_pairs)
    query = call.query[batch, head, positions].double() / call.query_factor
    key = call.key[batch, call.kv_head(head)].double()
    bias, mask = attention.bias(call, head, batch), attention.mask(call, head, batch)
    everything = torch.ones(len(positions), len(key), dtype=torch.bool)
    return HeadRows(
        positions=positions,
        query=query,
        key=key,
        scores=equation.scores(query, key),
        visible=everything if mask is None else mask[positions],
        scale=call.scale * call.query_factor,
        softcap=call.softcap,
        bias=None if bias is None else bias[positions].double(),
        sink=None if call.sinks is None else call.sinks[head].double().reshape(1, 1),
    )


def _positions(
    call: AttentionCall, head: int, batch: int, most_pairs: int
) -> Int[Tensor, " query"]:
    """Of the queries that stand for a token and see a key, as many as may be held."""
    mask = attention.mask(call, head, batch)
    counted = torch.ones(call.n[0], dtype=torch.bool) if mask is None else mask.any(-1)
    if call.query_padding is not None:
        counted = counted & ~call.query_padding[batch]
    places = counted.nonzero().squeeze(-1)
    most = max(1, most_pairs // call.n[1])
    if len(places) <= most:
        return places
    return places[torch.linspace(0, len(places) - 1, most).round().long()]


def moments_of(rows: HeadRows) -> HeadMoments:
    """Where the variance of a head's scores comes from; NaN where there is too little to tell."""
    visible, scores = rows.visible, rows.scores.where(rows.visible, 0.0)
    keys, pairs = visible.sum(-1), int(visible.sum())
    counted = pairs or math.nan
    mean, row_means = float(scores.sum()) / counted, scores.sum(-1) / keys
    within = ((scores - row_means[:, None]) ** 2).where(visible, 0.0).sum(-1)
    between = float((keys * (row_means - mean) ** 2).sum()) / counted
    several = keys > 1
    key = rows.key[visible.any(0)]
    query_mean, key_mean = rows.query.mean(0), key.mean(0)
    query_away, key_away = rows.query - query_mean, key - key_mean
    return HeadMoments(
        queries=len(rows.query),
        pairs=pairs,
        d_k=rows.query.shape[-1],
        scale=rows.scale,
        mean=mean,
        pooled_variance=between + float(within.sum()) / counted,
        between_rows=between,
        row_variance=float((within / (keys - 1))[several].mean()),
        independent_mean=float(query_mean @ key_mean),
        independent_variance=_if_independent(query_mean, query_away, key_mean, key_away),
        query_length=float(rows.query.norm(dim=-1).mean()),
        key_length=float(key.norm(dim=-1).mean()),
        query_mean_length=float(query_mean.norm()),
        key_mean_length=float(key_mean.norm()),
        query_std=float((query_away**2).mean().sqrt()),
        key_std=float((key_away**2).mean().sqrt()),
        cosine=float(cosines(rows).mean()),
    )


def _if_independent(
    query_mean: Float64[Tensor, " d_k"],
    query_away: Float64[Tensor, "query d_k"],
    key_mean: Float64[Tensor, " d_k"],
    key_away: Float64[Tensor, "key d_k"],
) -> float:
    """Tr(Σ_q Σ_k) + μ_qᵀ Σ_k μ_q + μ_kᵀ Σ_q μ_k."""
    query_covariance = query_away.T @ query_away / len(query_away)
    key_covariance = key_away.T @ key_away / len(key_away)
    from_means = query_mean @ key_covariance @ query_mean + key_mean @ query_covariance @ key_mean
    return float((query_covariance * key_covariance).sum() + from_means)


def cosines(rows: HeadRows) -> Float64[Tensor, " pair"]:
    """q·k / (‖q‖ ‖k‖) of all visible pairs; 0 where a vector is 0."""
    lengths = rows.query.norm(dim=-1)[:, None] * rows.key.norm(dim=-1)
    tiny = torch.finfo(torch.float64).tiny
    return (rows.scores / lengths.clamp(min=tiny))[rows.visible]


def of_several_keys(rows: HeadRows) -> HeadRows:
    """The rows that see more than one key: in others every divisor leaves the weight at 1.

    All rows, where none does.
    """
    several = rows.visible.sum(-1) > 1
    return _taken(rows, several.nonzero().squeeze(-1)) if bool(several.any()) else rows


def _taken(rows: HeadRows, at: Int[Tensor, " taken"]) -> HeadRows:
    return replace(
        rows,
        positions=rows.positions[at],
        query=rows.query[at],
        scores=rows.scores[at],
        visible=rows.visible[at],
        bias=None if rows.bias is None else rows.bias[at],
    )


def measured(rows: HeadRows, divisor: float, seed: int, nudges: int = 1) -> Simulation:
    """What the softmax makes of a head's rows if the model divided q·k by this divisor.

    Soft cap, bias, mask and sink are the model's own;
    `1 / rows.scale` is its own divisor. The gradient of the loss on the weights is drawn,
    N(0, I), the same whatever the divisor, and so many times for each row.
    """
    rows = _taken(rows, torch.arange(len(rows.scores)).repeat(nudges))
    dice = np.random.default_rng([seed, *rows.scores.shape])
    loss_gradient = torch.from_numpy(dice.standard_normal(tuple(rows.scores.shape)))
    return of_rows(
        row_logits(rows, divisor),
        loss_gradient,
        lambda gradient: _onto_queries(rows, divisor, gradient).norm(dim=-1),
        rows.sink,
    )


def _onto_queries(
    rows: HeadRows, divisor: float, logit_gradient: Float64[Tensor, "query key"]
) -> Float64[Tensor, "query d_k"]:
    """dL/dq of dL/dz: through the soft cap, whose slope is 1 − tanh², and the keys."""
    if rows.softcap is not None:
        capped = torch.tanh(rows.scores / divisor / rows.softcap)
        logit_gradient = logit_gradient * (1 - capped**2)
    return logit_gradient @ rows.key / divisor


def row_logits(rows: HeadRows, divisor: float) -> Float64[Tensor, "query key"]:
    """The logits of a head's rows under a divisor; −∞ where a key is hidden."""
    return equation.logits(
        rows.scores, 1 / divisor, softcap=rows.softcap, bias=rows.bias, mask=rows.visible
    )


def row_weights(rows: HeadRows, divisor: float) -> Float64[Tensor, "query key"]:
    """The weights of a head's rows under a divisor; a sink takes its share."""
    return equation.weights(row_logits(rows, divisor), rows.sink)
