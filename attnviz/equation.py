"""Scaled dot-product attention, softmax(q·kᵀ / √d_k) v, once, for everything that needs it.

Vaswani et al. 2017, "Attention is all you need", equation 1, with the terms that later
models added: a soft cap, a position bias and a learned sink. Real heads (`attention`), the
check of a capture (`capture`) and the synthetic playground (`synthetic`) all call this.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def scores(
    query: Float[Tensor, "*#batch query d_k"], key: Float[Tensor, "*#batch key d_k"]
) -> Float[Tensor, "*batch query key"]:
    """q·k for every query and key."""
    return query @ key.mT


def logits(
    scores: Float[Tensor, "*batch query key"],
    scale: float,
    *,
    softcap: float | None = None,
    bias: Float[Tensor, ...] | None = None,
    mask: Bool[Tensor, ...] | None = None,
) -> Float[Tensor, "*batch query key"]:
    """What enters the softmax: softcap(scale · scores) + bias, and −∞ where mask is False.

    `bias` and `mask` broadcast against the scores. The soft cap is c · tanh(x / c)
    (Gemma 2); it comes before the mask, so that a hidden key stays hidden.
    """
    logits = scale * scores
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias
    return logits if mask is None else logits.masked_fill(~mask, -torch.inf)


def weights(
    logits: Float[Tensor, "*batch query key"], sinks: Float[Tensor, ...] | None = None
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the keys; a row that sees no key is all zero.

    `sinks`, of shape (*batch, 1, 1) up to broadcasting, are learned logits without a value
    (gpt-oss): they take their share of the row, which then sums to less than 1.
    """
    rows = logits
    if sinks is not None:
        rows = torch.cat([logits, sinks.expand(*logits.shape[:-1], 1)], dim=-1)
    keys = logits.shape[-1]
    return rows.softmax(-1)[..., :keys].masked_fill(logits == -torch.inf, 0.0)


def output(
    weights: Float[Tensor, "*#batch query key"], value: Float[Tensor, "*#batch key d_v"]
) -> Float[Tensor, "*batch query d_v"]:
    """The weighted mean of the values."""
    return weights @ value
