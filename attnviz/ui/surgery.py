"""A model whose attention is changed for one run: what that does, cached, never on the model.

What was done once is kept for all sessions; models themselves are shared and stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import exp, isclose, log
from typing import TYPE_CHECKING, Literal

import streamlit as st

from attnviz.ui.readings import MAX_TOKENS, Asked, in_a_sentence, loaded, served
from attnviz.ui.views import Place, call_of

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.outcome import Effect, Outcome
    from attnviz.reading import Reading
    from attnviz.surgery import Scaling

    Scalings = tuple[Scaling, ...]

Of = Literal["all", "layer", "head"]

STEPS = 20  # a factor is d_k to the power of so many parts: 1/√d_k is −10 of them, √d_k is 10
WEAKEST, STRONGEST = -10, 10
NO_SCORES = WEAKEST - 1  # stands for the factor 0
CURVE = (-10, -7, -4, -2, -1, 0, 1, 2, 4, 7, 10)  # steps that are always worked out

_long_run = threading.Lock()


@dataclass(frozen=True)
class Change:
    """Which heads' scores are changed, and how: times a factor, or as if by another divisor.

    `of` says whether all heads that were read are meant, those of the place's layer, or its head.
    `divisor` is a name as in `synthetic.POWERS`, and goes before the factor.
    """

    place: Place
    of: Of
    factor: float = 1.0
    divisor: str | None = None


def factor_of(step: int, d_k: int) -> float:
    """The factor that a step of the slider stands for; 0 left of all others."""
    return 0.0 if step == NO_SCORES else float(d_k) ** (step / STEPS)


def effect(change: Change) -> Effect:
    """What a change does; raises `NotServed` where it cannot be made."""
    with in_a_sentence():
        return _effect(change.place.asked, _scalings(change))


def mean_factor(change: Change) -> float:
    """The factor of a change; the geometric mean where another divisor asks for several."""
    factors = [scaling.factor for scaling in _scalings(change)]
    if not all(factors):
        return 0.0
    return factors[0] if _alike(factors) else exp(sum(map(log, factors)) / len(factors))


def several_factors(place: Place, of: Of) -> bool:
    """Whether a divisor means another factor in another layer."""
    factors = [x.factor for x in _scalings(Change(place, of, divisor="1"))]
    return not _alike(factors)


def changes(place: Place, of: Of) -> tuple[Change, ...]:
    """All that the curve shows: the divisors, the factors besides that are none, and 0."""
    from attnviz.synthetic import POWERS

    d_k = call_of(place).d_k
    assert d_k is not None
    divisors = [Change(place, of, divisor=name) for name in POWERS]
    taken = [mean_factor(change) for change in divisors]
    factors = [factor_of(step, d_k) for step in (NO_SCORES, *CURVE)]
    others = [x for x in factors if not any(isclose(x, y, rel_tol=1e-6) for y in taken)]
    return (*divisors, *(Change(place, of, factor) for factor in others))


def curve(place: Place, of: Of, progress: Callable[[float, str], None]) -> pd.DataFrame:
    """`against_factor` of all that the curve shows; `progress` is told the share that is done.

    Each point is kept, so that little is lost where a visitor leaves in between.
    """
    from attnviz.surgery_frames import against_factor

    todo, points, before = changes(place, of), [], None
    for done, change in enumerate(todo):
        progress(done / len(todo), f"Run {done + 1} of {len(todo)}")
        found = effect(change)
        before = None if found.mean_losses is None else found.mean_losses[0]
        if found.amount is not None:
            points.append((mean_factor(change), change.divisor or "", found.amount))
    return against_factor(points, before)


def seconds(asked: Asked, reading: Reading) -> float:
    """About how long it takes to measure one change."""
    from attnviz.limits import cost

    tokens = max(max(call.n) for call in reading.capture.calls)
    return cost(loaded(asked.model).model, tokens).seconds * runs(asked, reading)


def runs(asked: Asked, reading: Reading) -> int:
    """How often the model runs to measure one change."""
    from attnviz import outcome

    return outcome.runs(loaded(asked.model), reading.inputs)


def labels(asked: Asked, ids: Sequence[int]) -> list[str]:
    """What tokens are called that stand in no text, each by itself."""
    from attnviz.tokens import from_ids

    tokenizer = loaded(asked.model).tokenizer
    if tokenizer is None:
        return [f"#{i}" for i in ids]
    return [from_ids(tokenizer, [i]).labels[0] for i in ids]


@contextmanager
def one_long_run(reading: Reading) -> Iterator[None]:
    """Of long texts one changed run at a time, for the sake of memory."""
    long = any(max(call.n) > MAX_TOKENS for call in reading.capture.calls)
    with _long_run if long else nullcontext():
        yield


def _alike(factors: Sequence[float]) -> bool:
    return all(isclose(factor, factors[0], rel_tol=1e-6) for factor in factors)


def _scalings(change: Change) -> Scalings:
    """What is asked of the run, call by call: only calls that were read are changed."""
    from attnviz.surgery import as_if_divided, multiplied
    from attnviz.synthetic import POWERS, divisor

    place, reading = change.place, served(change.place.asked, None)
    every = reading.capture.calls
    calls = every if change.of == "all" else [reading.calls(place.part)[place.layer]]
    head = place.head if change.of == "head" else None
    if change.divisor is None:
        return multiplied(calls, change.factor, head)
    power = POWERS[change.divisor]
    with in_a_sentence():
        return as_if_divided(calls, lambda d_k: divisor(d_k, power), head)


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _effect(asked: Asked, scalings: Scalings) -> Effect:
    from attnviz.outcome import effect

    return effect(untouched(asked), _run(asked, scalings))


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def untouched(asked: Asked) -> Outcome:
    """What the model makes of its inputs as it is."""
    return _run(asked, ())


def _run(asked: Asked, scalings: Scalings) -> Outcome:
    from attnviz.outcome import outcome

    reading = served(asked, None)
    with one_long_run(reading):
        return outcome(loaded(asked.model), reading.inputs, scalings)
