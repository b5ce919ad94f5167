"""Confirm what was read: recompute rows of a call and compare with the model's own output."""

from __future__ import annotations

import torch
from torch import Tensor

from attnviz import equation
from attnviz.attention_call import AttentionCall

ROWS_CHECKED = 8  # query rows per call that are recomputed
TOLERANCE = {  # of weights, and of outputs relative to the largest values that they mix
    torch.float32: 1e-4,
    torch.float64: 1e-4,  # recomputed in float32 like the others
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}


class Unconfirmed(Exception):  # noqa: N818 - what is known, in a sentence
    """What was read does not give the model's output; told in a clause."""


def confirmed_error(call: AttentionCall, real: Tensor) -> float:
    """Largest difference between recomputed rows and the real output (batch query head d_v).

    Rows of padding are left out. Raises `Unconfirmed` where the shape differs or the difference
    is beyond the tolerance of the model's precision.
    """
    expected = (call.value.shape[0], call.n[0], call.heads, call.d_v)
    if tuple(real.shape) != expected:
        raise Unconfirmed(
            f"its attention returns the shape {tuple(real.shape)}, "
            f"not (batch, query, head, d_v) = {expected}, so it cannot be verified"
        )
    rows = torch.linspace(0, call.n[0] - 1, min(call.n[0], ROWS_CHECKED), dtype=torch.float64)
    rows = rows.long().to(real.device)
    shown = real[:, rows].transpose(1, 2).float()
    weights = _weights(call, rows)
    computed = _apart(equation.output(_together(weights, call), call.value.float()), call)
    seen = weights.any(-1, keepdim=True)
    difference = torch.where(seen, (computed - shown).abs(), _of_blind_rows(call, shown))
    difference = _without_padding(call, difference, rows)
    # By column, so that one large value confirms no other.
    size = _per_head(call.value.float().abs().amax(2, keepdim=True), call)
    if not bool(difference.isfinite().all()):
        raise Unconfirmed("the model itself computes values here that are not numbers (NaN)")
    if not bool((difference <= TOLERANCE[call.value.dtype] * size).all()):
        raise Unconfirmed(
            "attention recomputed from what it was given differs from the model's own output by "
            f"{float(difference.max()):.2g}, so it would not be the truth about this model"
        )
    return float(difference.max())


def confirm_weights(call: AttentionCall, real: Tensor) -> None:
    """Raise `Unconfirmed` unless all weights (batch head query key) are the model's own."""
    rows = torch.arange(call.n[0], device=real.device)
    weights = _weights(call, rows)
    blind = torch.minimum(real.abs(), (real - 1 / call.n[1]).abs())  # nothing, or all alike
    difference = torch.where(weights.any(-1, keepdim=True), (weights - real).abs(), blind)
    difference = _without_padding(call, difference, rows)
    if not bool((difference <= TOLERANCE[call.value.dtype]).all()):
        raise Unconfirmed(
            "weights recomputed from what it was given differ from the model's own by "
            f"{float(difference.max()):.2g}, so they would not be the truth about this model"
        )


def _without_padding(call: AttentionCall, difference: Tensor, rows: Tensor) -> Tensor:
    if call.query_padding is None:
        return difference
    return difference.masked_fill(call.query_padding[:, None, rows, None], 0.0)


def _of_blind_rows(call: AttentionCall, shown: Tensor) -> Tensor:
    """How far rows are from what a model makes of one that sees no key.

    That is nothing (0, or not a number), or the mean of all values, where its mask was finite.
    """
    mean = _per_head(call.value.float().mean(2, keepdim=True), call)
    return torch.minimum(shown.nan_to_num().abs(), (shown.nan_to_num() - mean).abs())


def _weights(call: AttentionCall, rows: Tensor) -> Tensor:
    """Weights (batch head row key) of some query rows."""

    def at_rows(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else _together(tensor[:, :, rows], call)

    if call.observed_weights is not None:
        return call.observed_weights[:, :, rows].float()
    assert call.query is not None
    assert call.key is not None
    sinks = call.sinks
    if sinks is not None:
        sinks = sinks.float().reshape(1, -1, 1, 1).expand(-1, -1, call.n[0], -1)
    logits = equation.logits(
        equation.scores(_together(call.query[:, :, rows], call).float(), call.key.float()),
        call.scale,
        softcap=call.softcap,
        bias=at_rows(call.bias),
        mask=at_rows(call.mask),
    )
    return _apart(equation.weights(logits, at_rows(sinks)), call)


def _together(tensor: Tensor, call: AttentionCall) -> Tensor:
    """Rows of all heads that share a key and value head, one below the other.

    So neither keys nor values need be copied for each head.
    """
    group = call.heads // call.kv_heads
    if tensor.shape[1] == 1:
        return tensor.repeat(1, 1, group, 1)
    return tensor.unflatten(1, (call.kv_heads, group)).flatten(2, 3)


def _apart(tensor: Tensor, call: AttentionCall) -> Tensor:
    """Undo `_together`."""
    group = call.heads // call.kv_heads
    return tensor.unflatten(2, (group, -1)).flatten(1, 2)


def _per_head(tensor: Tensor, call: AttentionCall) -> Tensor:
    """What belongs to a key and value head, for each query head."""
    return tensor.repeat_interleave(call.heads // call.kv_heads, dim=1)
