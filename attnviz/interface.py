"""Observe, or change, the attention functions that transformers hands to its models.

transformers asks `AttentionInterface.get_interface` which function shall compute attention.
While an observer is held in this thread's context, that function comes back wrapped: it is
called with the same arguments, its result goes back untouched, and both are shown to the
observer. A changer is called instead of the function, and may give it other values; an observer
beside it is shown those. Configuration, weights and masks stay as they are, and other threads
that use the same model see nothing.

`get_interface` is internal to transformers: its version is pinned, and `self_test` tries it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

HIDDEN_BELOW = -1e4  # an additive mask hides a key with at most this; a bias stays above it


@dataclass(frozen=True)
class Arguments:
    """What an attention function was given, under the names used here.

    `again` calls the same function with other values. `causal` is True where the function itself
    hides later keys, no mask being given; `window` is the number of tokens that a local layer
    sees.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None
    sinks: Tensor | None
    position_bias: Tensor | None
    causal: bool
    window: int | None
    again: Callable[[Tensor], Any]


@runtime_checkable
class Observer(Protocol):
    """Is shown each call; `aside` holds while the function computes."""

    def aside(self) -> AbstractContextManager[None]:
        """Entered while an attention function computes."""

    def note(self, module: nn.Module, given: Callable[[], Arguments], output: Any) -> None:
        """Told who called, what the function was given, and what it returned."""


@runtime_checkable
class Changer(Protocol):
    """Takes the place of attention functions."""

    def attend(
        self, function: Callable, module: nn.Module, query: Tensor, *others: Any, **named: Any
    ) -> Any:
        """Called instead of `function`, with what that was to be given."""


_observer: ContextVar[Observer | None] = ContextVar("attnviz_observer", default=None)
_changer: ContextVar[Changer | None] = ContextVar("attnviz_changer", default=None)
_installing = threading.Lock()
_usable = threading.Event()
_usable.set()


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Show the observer each attention call of this thread, with its output."""
    _install()
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


@contextmanager
def changed_by(changer: Changer) -> Iterator[None]:
    """Let the changer do each attention call of this thread."""
    _install()
    token = _changer.set(changer)
    try:
        yield
    finally:
        _changer.reset(token)


def give_up() -> None:
    """Wrap no more: the functions are not what this module was written for."""
    _usable.clear()


def _install() -> None:
    """Let `get_interface` hand out wrapped functions, but only where someone is held."""
    with _installing:
        try:
            from transformers.modeling_utils import AttentionInterface

            original = AttentionInterface.get_interface
        except (ImportError, AttributeError):  # another version of transformers
            give_up()
            return
        if hasattr(original, "observable"):
            return

        @functools.wraps(original)
        def get_interface(self: Any, attn_implementation: str, default: Callable) -> Callable:
            function = original(self, attn_implementation, default)
            if not _usable.is_set():
                return function
            observer, changer = _observer.get(), _changer.get()
            if observer is not None:
                function = _shown_to(observer, function, eager=attn_implementation == "eager")
            return function if changer is None else _done_by(changer, function)

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
        def on(value: Tensor) -> Any:
            with observer.aside():
                return function(module, query, key, value, attention_mask, *others, **named)

        def given() -> Arguments:
            return _read(eager, module, query, key, value, attention_mask, on, **named)

        result = on(value)
        observer.note(module, given, result)
        return result

    return shown


def _done_by(changer: Changer, function: Callable) -> Callable:
    @functools.wraps(function)
    def done(module: nn.Module, query: Tensor, *others: Any, **named: Any) -> Any:
        return changer.attend(function, module, query, *others, **named)

    return done


def _read(
    eager: bool,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    again: Callable[[Tensor], Any],
    **named: Any,
) -> Arguments:
    """Follow the conventions of transformers' attention functions."""
    scale, causal = named.get("scaling"), named.get("is_causal")
    sinks = named["s_aux"] if named.get("s_aux") is not None else named.get("sinks")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    # Under the eager functions a missing mask means that every key is visible.
    hides_later = causal and not eager and mask is None and query.shape[2] > 1
    return Arguments(
        query=query,
        key=key,
        value=value,
        mask=mask,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        softcap=named.get("softcap"),
        sinks=None if sinks is None else sinks.detach(),  # it may be the parameter itself
        position_bias=named.get("position_bias"),
        causal=bool(hides_later),
        window=_window(named.get("sliding_window"), bool(causal)),
        again=again,
    )


def _window(said: Any, causal: bool) -> int | None:
    """A window counts the keys to one side, itself included."""
    if not isinstance(said, int) or said <= 0:
        return None
    return said if causal else 2 * said - 1


def mask_and_bias(arguments: Arguments) -> tuple[Tensor | None, Tensor | None]:
    """Which keys are visible (bool), and what is added to the logits; None for all and nothing.

    A mask may come as nothing with causality left to the function, as bool, or as numbers to
    add; position biases come apart from it.
    """
    size = (arguments.query.shape[2], arguments.key.shape[2])
    mask, bias = _split(arguments.mask, arguments.causal, size, arguments.query.device)
    added = arguments.position_bias
    if added is not None and bool(added.any()):
        added = added[..., : size[1]]
        bias = added if bias is None else bias + added
    return mask, bias


def _split(
    given: Tensor | None, causal: bool, size: tuple[int, int], device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    if given is None:
        return (
            torch.ones(1, 1, *size, dtype=torch.bool, device=device).tril_() if causal else None
        ), None
    return split_mask(given[..., : size[1]].expand(*given.shape[:-2], *size))


def split_mask(given: Tensor) -> tuple[Tensor, Tensor | None]:
    """Which keys are visible, and what else is added to the logits, if anything."""
    if given.dtype == torch.bool:
        return given, None
    mask = given > HIDDEN_BELOW
    rest = given.masked_fill(~mask, 0.0)
    return mask, (rest if bool(rest.any()) else None)
