"""The attention equation applied to one head of a real model.

The n × n matrices of a head are computed when it is looked at, from its captured query, key
and value, in float32 whatever the model's own precision. Rows are queries, columns keys.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from attnviz import equation
from attnviz.capture import AttentionCall


def scores(call: AttentionCall, head: int, batch: int = 0) -> Float[Tensor, "query key"]:
    """q·k of one head; raises `ValueError` where the model offers no queries and keys as such."""
    if call.query is None or call.key is None:
        raise ValueError(f"{call.module} offers weights only, no queries and keys.")
    query = call.query[batch, head].float()
    return equation.scores(query, call.key[batch, call.kv_head(head)].float())


def scores_unrotated(
    call: AttentionCall, head: int, batch: int = 0
) -> Float[Tensor, "query key"] | None:
    """q·k of one head before its rotary position encoding, None where nothing was rotated."""
    if call.query_unrotated is None or call.key_unrotated is None:
        return None
    query = call.query_unrotated[batch, head].float()
    return equation.scores(query, call.key_unrotated[batch, call.kv_head(head)].float())


def logits(call: AttentionCall, head: int, batch: int = 0) -> Float[Tensor, "query key"]:
    """What enters the softmax of one head; −∞ where a key is hidden."""
    return equation.logits(
        scores(call, head, batch),
        call.scale,
        softcap=call.softcap,
        bias=bias(call, head, batch),
        mask=mask(call, head, batch),
    )


def bias(call: AttentionCall, head: int, batch: int = 0) -> Float[Tensor, "query key"] | None:
    """What one head adds to its logits, None if nothing."""
    return _of_head(call.bias, head, batch)


def mask(call: AttentionCall, head: int, batch: int = 0) -> Bool[Tensor, "query key"] | None:
    """True where one head sees a key, None where it sees all."""
    return _of_head(call.mask, head, batch)


def weights(call: AttentionCall, head: int, batch: int = 0) -> Float[Tensor, "query key"]:
    """Softmax of the logits; a row sums to 1, or less where a learned sink takes the rest.

    Where a model offers no queries and keys as such, its own weights.
    """
    if call.observed_weights is not None:
        return call.observed_weights[batch, head].float()
    sinks = None if call.sinks is None else call.sinks[head].float()
    return equation.weights(logits(call, head, batch), sinks)


def output(call: AttentionCall, head: int, batch: int = 0) -> Float[Tensor, "query d_v"]:
    """Σ weights · value of one head, before the output projection."""
    value = call.value[batch, call.kv_head(head)].float()
    return equation.output(weights(call, head, batch), value)


def _of_head(tensor: Tensor | None, head: int, batch: int) -> Tensor | None:
    """The (query, key) slice of a tensor whose batch and head axes may be shared (size 1)."""
    if tensor is None:
        return None
    return tensor[batch if tensor.shape[0] > 1 else 0, head if tensor.shape[1] > 1 else 0]
