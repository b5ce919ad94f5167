"""A model whose heads share projections for one run: what that does, cached, never on the model.

What was done once is kept for all sessions; models themselves are shared and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.models import fingerprint
from attnviz.ui import surgery
from attnviz.ui.readings import Asked, in_a_sentence, loaded, served
from attnviz.ui.surgery import Of
from attnviz.ui.views import Place, call_of

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.capture import AttentionCall
    from attnviz.inputs import Inputs
    from attnviz.models import LoadedModel
    from attnviz.outcome import Effect
    from attnviz.reading import Reading
    from attnviz.tying import Makers, Tying, Way
    from attnviz.windows import Blocks

CELLS = 128  # rows and columns of a pattern, of which two stand side by side


@dataclass(frozen=True)
class Change:
    """What takes the place of what, and in which heads; `seed` says how values are shuffled.

    `of` says whether all heads that were read are meant, those of the place's layer, or its head.
    """

    place: Place
    way: Way
    of: Of
    seed: int = 0


@dataclass(frozen=True)
class Pattern:
    """A head's weights before and after, as frames of at most `CELLS` rows and columns.

    `moved` is the share of a query's attention that goes elsewhere, on average; `most` is the
    query of which most does. `top` is the largest weight of both.
    """

    before: pd.DataFrame
    after: pd.DataFrame
    queries: pd.DataFrame
    keys: pd.DataFrame
    moved: float
    most: int
    most_moved: float
    top: float


def why_not(change: Change) -> str | None:
    """Why a change cannot be made, in a sentence, told without a run; None if it can be tried."""
    from attnviz import tying

    asked = change.place.asked
    known = _told_makers(asked)
    return tying.why_not(loaded(asked.model).model, known, [_tying(change)])


def beside(change: Change) -> tuple[int, ...]:
    """The other heads that change with the place's head, since they read the same key and value.

    None of them where its queries alone change, or all heads of the layer.
    """
    place = change.place
    if change.of != "head" or change.way == "Q := K":
        return ()
    call = call_of(place)
    one = next(
        x
        for x in _told_makers(place.asked)
        if (x.module, x.layer, x.kind) == (call.module, call.layer, call.kind)
    )
    return one.beside(place.head)


def effect(change: Change) -> Effect:
    """What a change does; raises `NotServed` where it cannot be made."""
    with in_a_sentence():
        return _effect(change.place.asked, _tying(change))


def pattern(change: Change) -> Pattern | None:
    """The weights of the place's head before and after; None where those after are not readable.

    Raises `NotServed` where the change cannot be made.
    """
    place = change.place
    with in_a_sentence():
        return _pattern(place.asked, _tying(change), place.part, place.layer, place.head)


def seconds(asked: Asked, reading: Reading) -> float:
    """About how long it takes to measure one change and to read the pattern after it."""
    runs = surgery.runs(asked, reading)
    return surgery.seconds(asked, reading) * (1 + 1 / runs)


def _tying(change: Change) -> Tying:
    from attnviz.tying import Tying

    if change.of == "all":
        return Tying(change.way, seed=change.seed)
    call = call_of(change.place)
    head = change.place.head if change.of == "head" else None
    return Tying(change.way, call.module, call.layer, head, change.seed)


def _told_makers(asked: Asked) -> tuple[Makers, ...]:
    with in_a_sentence():
        return _makers(asked.model, fingerprint(asked.model), asked)


@st.cache_resource(max_entries=4, show_spinner=False)
def _makers(model: str, version: str, _asked: Asked) -> tuple[Makers, ...]:
    """Where the model's matrices lie, the same for all texts."""
    from attnviz.tying import makers

    return makers(loaded(model).model, served(_asked, None).inputs.tensors)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _effect(asked: Asked, tying: Tying) -> Effect:
    from attnviz.outcome import effect, outcome

    before = surgery.untouched(asked)
    with _changed(asked, tying) as (model, inputs):
        return effect(before, outcome(model, inputs))


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _pattern(asked: Asked, tying: Tying, part: str, layer: int, head: int) -> Pattern | None:
    from attnviz.tying import moved_attention

    before = served(asked, None).calls(part)[layer]
    after = _read_after(asked, tying, part, layer)
    if after is None:
        return None
    moved = moved_attention(before, after, head)
    was, now, queries, keys = _frames(served(asked, None), before, after, head)
    most = int(moved.argmax())
    return Pattern(
        before=was,
        after=now,
        queries=queries,
        keys=keys,
        moved=float(moved.mean()),
        most=most,
        most_moved=float(moved[most]),
        top=max(float(was.max().max()), float(now.max().max())) or 1.0,
    )


def _read_after(asked: Asked, tying: Tying, part: str, layer: int) -> AttentionCall | None:
    """The same call in a run with the change."""
    from attnviz.capture import capture

    with _changed(asked, tying) as (model, inputs):
        read = capture(model.model, inputs.tensors)
    return replace(served(asked, None), capture=read).calls(part).get(layer)


def _blocks(call: AttentionCall, head: int) -> Blocks:
    from attnviz.windows import by_largest, window

    return by_largest(lambda rows: window(call, head, rows), call.n, CELLS)


def _frames(
    reading: Reading, before: AttentionCall, after: AttentionCall, head: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Both pictures' numbers, and the tokens of their rows and columns, which are the same."""
    from attnviz import circuits_frames as frames

    was, now = _blocks(before, head), _blocks(after, head)
    queries = frames.axis(reading.queries(before), was.queries)
    keys = frames.axis(reading.keys(before), was.keys)
    found = [frames.matrix(one.values, queries, keys) for one in (was, now)]
    return found[0], found[1], queries, keys


@contextmanager
def _changed(asked: Asked, tying: Tying) -> Iterator[tuple[LoadedModel, Inputs]]:
    """While this is entered, this thread's runs of the model on its inputs see the change.

    Nothing is loaded meanwhile: another object would not be the one that is changed.
    """
    from attnviz.tying import tied

    reading, known, model = served(asked, None), _told_makers(asked), loaded(asked.model)
    with surgery.one_long_run(reading), tied(model.model, known, [tying]):
        yield model, reading.inputs
