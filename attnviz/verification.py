"""Confirm what was read: recompute rows of a call and compare with the model's own output."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnviz import equation
from attnviz.attention_call import AttentionCall

ROWS_CHECKED = 8  # query rows per call that are recomputed
TOLERANCE = {  # relative to the largest output of the call
    torch.float32: 1e-4,
    torch.float64: 1e-4,  # recomputed in float32 like the others
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}


class Unconfirmed(Exception):  # noqa: N818 - what is known, in a sentence
    """What was read does not give the model's output; told in a clause."""


def confirmed_error(call: AttentionCall, real: Tensor) -> float:
    """Largest difference between recomputed rows and the real output (batch query head d_v).

    Rows of padding are left out. Raises `Unconfirmed` where
    the shape differs or the difference is beyond the tolerance of the model's precision.
    """
    expected = (call.value.shape[0], call.n[0], call.heads, call.d_v)
    if tuple(real.shape) != expected:
        raise Unconfirmed(
            f"its attention returns the shape {tuple(real.shape)}, "
            f"not (batch, query, head, d_v) = {expected}, so it cannot be verified"
        )
    rows = torch.linspace(0, call.n[0] - 1, min(call.n[0], ROWS_CHECKED), device=real.device).long()
    shown = real[:, rows].transpose(1, 2).float()
    computed, seen = _recomputed(call, rows)
    difference = torch.where(seen, (computed - shown).abs(), _of_blind_rows(call, shown))
    if call.query_padding is not None:
        difference = difference.masked_fill(call.query_padding[:, None, rows, None], 0.0)
    error = float(difference.max())
    if not error <= TOLERANCE[call.value.dtype] * float(real.nan_to_num().abs().max()):
        raise Unconfirmed(
            "attention recomputed from what it was given differs from the model's own output by "
            f"{error:.2g}, so it would not be the truth about this model"
        )
    return error


def _of_blind_rows(call: AttentionCall, shown: Tensor) -> Tensor:
    """How far rows are from what a model makes of one that sees no key.

    That is nothing (0, or not a number), or the mean of all values, where its mask was finite.
    """
    mean = call.value.float().mean(2, keepdim=True)
    mean = mean.repeat_interleave(call.heads // call.kv_heads, dim=1)
    return torch.minimum(shown.nan_to_num().abs(), (shown.nan_to_num() - mean).abs())


def _recomputed(call: AttentionCall, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (batch, head, row, d_v) of some query rows, and whether such a row sees a key.

    The rows of all heads that share a key and value head are stacked, so that neither keys nor
    values are copied.
    """
    group = call.heads // call.kv_heads

    def stacked(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        if tensor.shape[1] == 1:
            return tensor[:, :, rows].repeat(1, 1, group, 1)
        return tensor[:, :, rows].unflatten(1, (call.kv_heads, group)).flatten(2, 3)

    def unstacked(tensor: Tensor) -> Tensor:
        return tensor.unflatten(2, (group, len(rows))).flatten(1, 2)

    weights = stacked(call.observed_weights)
    if weights is None:
        weights = _weights(call, stacked)
    outputs = equation.output(weights.float(), call.value.float())
    return unstacked(outputs), unstacked(weights.any(-1, keepdim=True))


def _weights(call: AttentionCall, stacked: Callable) -> Tensor:
    assert call.query is not None
    assert call.key is not None
    sinks = call.sinks
    if sinks is not None:
        sinks = stacked(sinks.float().reshape(1, -1, 1, 1).expand(-1, -1, call.n[0], -1))
    logits = equation.logits(
        equation.scores(stacked(call.query).float(), call.key.float()),
        call.scale,
        softcap=call.softcap,
        bias=stacked(call.bias),
        mask=stacked(call.mask),
    )
    return equation.weights(logits, sinks)
