"""A real model whose heads share projections for one run: its loss, what comes next, a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import downloads, heads, look, sentences, views
from attnviz.ui import effect_figures as figures
from attnviz.ui import selection as selected
from attnviz.ui import surgery_sentences as effects
from attnviz.ui import tying as runs
from attnviz.ui import tying_sentences as told
from attnviz.ui.fields import held, keep
from attnviz.ui.readings import NotServed, Reading
from attnviz.ui.selection import MAX_SEED
from attnviz.ui.source import show_code
from attnviz.ui.tying import Change, Pattern
from attnviz.ui.views import Place

if TYPE_CHECKING:
    from attnviz.outcome import Effect
    from attnviz.tying import Way
    from attnviz.ui.heads import WhichHead
    from attnviz.ui.look import Drawing
    from attnviz.ui.surgery import Of

SHUFFLED: Way = "values shuffled"


def tying(place: Place, reading: Reading) -> None:
    """Fields that say what is shared and where, and what becomes of the model and of the head."""
    with look.panel("real", "tying"):
        try:
            _tying(place, reading)
        except NotServed as problem:
            st.error(look.plain(str(problem)))


def _tying(place: Place, reading: Reading) -> None:
    head = heads.which(reading, place.part, place.layer, place.head)
    change = _change(place, head)
    if refused := runs.why_not(change):
        st.info(look.plain(refused))
        return
    if also := told.also(runs.beside(change)):
        st.caption(look.plain(also))
    name, needed = "Run the model with this change", runs.seconds(place.asked, reading)
    if not figures.wanted("tying_runs", name, (place.asked.key,), needed):
        return
    effect, pattern = runs.effect(change), runs.pattern(change)
    what = told.what(change.way, told.of_whom(change.of, head))
    figures.said(place.asked, effect, effects.headline(effect, what), reading)
    st.markdown(look.plain(told.shows(effect, change.way)))
    drawn = _patterns(change, pattern, head, reading)
    drawn += _effects(change, effect, reading)
    made = told.made(change.way, told.of_whom(change.of, head), change.seed) + figures.masks(effect)
    st.caption(look.plain(sentences.caption(head, made)))
    notes = (effects.not_changed(reading.capture.unread), told.UNTOUCHED)
    st.caption(look.plain(" ".join(filter(None, notes))))
    show_code("tying", "attnviz.tying.tied", "attnviz.tying.moved_attention")
    _take_home(change, reading, made, drawn)


# --- what is changed


def _change(place: Place, head: WhichHead) -> Change:
    """Fields for what takes the place of what, for which heads, and for another shuffling."""
    left, right = look.sides(3, 2, name="tying_fields")
    now = selected.current()
    keep("tying_way", now.tying_way)
    way = left.radio("What takes the place of what", [*told.WAYS], horizontal=True, key="tying_way")
    left.caption(look.plain(told.WAYS[way]))
    names: dict[Of, str] = {
        "head": f"layer {place.layer}, head {place.head}",
        "layer": f"layer {place.layer}",
        "all": "all heads",
    }
    keep("tying_of", now.tying_of)
    of = right.radio(
        "Where", [*names], format_func=names.__getitem__, horizontal=True, key="tying_of"
    )
    keep("tying_seed", now.tying_seed)
    seed = held("tying_seed", 0)
    selected.change(tying_way=way, tying_of=of, tying_seed=seed)
    if way == SHUFFLED:
        right.button(f"Shuffle anew (seed {seed})", key="tying_shuffle", on_click=_shuffle)
    return Change(place, way, of, seed if way == SHUFFLED else 0)


def _shuffle() -> None:
    st.session_state["tying_seed"] = (held("tying_seed", 0) + 1) % (MAX_SEED + 1)


# --- what became of it


def _patterns(
    change: Change, found: Pattern | None, head: WhichHead, reading: Reading
) -> list[Drawing]:
    """The head's weights before and after in the same colours, and how much of them moved."""
    from attnviz import circuits_frames as frames
    from attnviz.charts import matrix

    if found is None:
        st.info(told.NO_PATTERN)
        return []
    call = reading.calls(change.place.part)[change.place.layer]
    row = views.nearest(found.queries, found.most)
    drawn = [
        matrix.weight_picture(
            numbers, found.queries, found.keys, row, cross=call.kind == "cross", top=found.top
        )
        for numbers in (found.before, found.after)
    ]
    names = ("before: untouched", f"after: {change.way}")
    for place, name, picture in zip(look.sides(name="tying_patterns"), names, drawn, strict=True):
        with place:
            st.markdown(f"**{look.plain(f'{sentences.place(head)}, {name}')}**")
            look.chart(picture, f"Weights of {sentences.place(head)}, {name}", square=True)
    scale = matrix.weight_scale(found.top)
    look.chart(scale, "Scale of colours for weights", square=True)
    word = sentences.word(found.queries, row)
    table = frames.row(found.before, found.after, found.keys, row)
    said = told.moved(found, sentences.place(head), change.way, change.of, word)
    st.markdown(look.plain(said))
    look.numbers("The numbers of the framed row", table, "tying_row")
    return [*drawn, scale]


def _effects(change: Change, effect: Effect, reading: Reading) -> list[Drawing]:
    """What comes next, and the tokens, before and after."""
    left, right = look.sides(name="tying_effects")
    with left:
        drawn = figures.tokens(effect, reading, "tying", change.way)
    with right:
        return drawn + figures.next_tokens(change.place.asked, effect, "tying", change.way)


def _take_home(change: Change, reading: Reading, made: str, drawn: Sequence[Drawing]) -> None:
    """What is drawn, as files; the tables have their numbers."""
    from attnviz import export

    place = change.place
    shown = export.head_shown(reading, reading.calls(place.part)[place.layer], place.head, made)
    downloads.downloads(downloads.figure(shown, lambda: drawn), "tying_downloads")
