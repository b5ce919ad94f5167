"""Observe the attention functions that transformers hands to its models.

transformers asks `AttentionInterface.get_interface` which function shall compute attention.
While an observer is held in this thread's context, that function comes back wrapped: it is
called with the same arguments, its result goes back untouched, and both are shown to the
observer. Configuration, weights and masks stay as they are, and other threads that use the
same model see nothing.

`get_interface` is internal to transformers, whose version is therefore pinned.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import AttentionInterface

HIDDEN_BELOW = -1e4  # an additive mask hides a key with at most this; a bias stays above it


@dataclass(frozen=True)
class Arguments:
    """What an attention function was given, under the names used here.

    `causal` is True where the function itself hides later keys, no mask being given.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None
    sinks: Tensor | None
    position_bias: Tensor | None
    causal: bool


Observer = Callable[[Arguments, Tensor], None]
_observer: ContextVar[Observer | None] = ContextVar("attnviz_observer", default=None)
_installing = threading.Lock()


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Show the observer each attention call of this thread, with its output."""
    _install()
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def _install() -> None:
    """Let `get_interface` hand out wrapped functions, but only where there is an observer."""
    with _installing:
        original = AttentionInterface.get_interface
        if hasattr(original, "observable"):
            return

        @functools.wraps(original)
        def get_interface(
            self: AttentionInterface, attn_implementation: str, default: Callable
        ) -> Callable:
            function = original(self, attn_implementation, default)
            observer = _observer.get()
            if observer is None:
                return function
            return _shown_to(observer, function, eager=attn_implementation == "eager")

        get_interface.observable = True  # type: ignore[attr-defined]
        AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]


def _shown_to(observer: Observer, function: Callable, *, eager: bool) -> Callable:
    @functools.wraps(function)
    def shown(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        *others: Any,
        **named: Any,
    ) -> Any:
        result = function(module, query, key, value, attention_mask, *others, **named)
        observer(_read(eager, module, query, key, value, attention_mask, **named), result[0])
        return result

    return shown


def _read(
    eager: bool,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **named: Any,
) -> Arguments:
    """Follow the conventions of transformers' attention functions."""
    scale, causal = named.get("scaling"), named.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    # Under the eager functions a missing mask means that every key is visible.
    hides_later = causal and not eager and mask is None and query.shape[2] > 1
    return Arguments(
        module=module,
        query=query,
        key=key,
        value=value,
        mask=mask,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        softcap=named.get("softcap"),
        sinks=named["s_aux"] if named.get("s_aux") is not None else named.get("sinks"),
        position_bias=named.get("position_bias"),
        causal=bool(hides_later),
    )


def mask_and_bias(arguments: Arguments) -> tuple[Tensor | None, Tensor | None]:
    """Which keys are visible (bool), and what is added to the logits; None for all and nothing.

    A mask may come as nothing with causality left to the function, as bool, or as numbers to
    add; position biases come apart from it.
    """
    size = (arguments.query.shape[2], arguments.key.shape[2])
    mask, bias = _split(arguments.mask, arguments.causal, size)
    added = arguments.position_bias
    if added is not None and bool(added.any()):
        added = added[..., : size[1]]
        bias = added if bias is None else bias + added
    return mask, bias


def _split(
    given: Tensor | None, causal: bool, size: tuple[int, int]
) -> tuple[Tensor | None, Tensor | None]:
    if given is None:
        return (torch.ones(1, 1, *size, dtype=torch.bool).tril() if causal else None), None
    given = given[..., : size[1]].expand(*given.shape[:-2], *size)
    if given.dtype == torch.bool:
        return given, None
    mask = given > HIDDEN_BELOW
    rest = given.masked_fill(~mask, 0.0)
    return mask, (rest if bool(rest.any()) else None)
