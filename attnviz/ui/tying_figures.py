"""A real model whose heads share projections for one run: its loss, what comes next, a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import downloads, heads, look, sentences, surgery, views
from attnviz.ui import selection as selected
from attnviz.ui import surgery_sentences as effects
from attnviz.ui import tying as runs
from attnviz.ui import tying_sentences as told
from attnviz.ui.fields import held, keep
from attnviz.ui.readings import NotServed, Reading
from attnviz.ui.source import show_code
from attnviz.ui.surgery_figures import AT_ONCE, MOST_SECONDS
from attnviz.ui.tying import Change, Pattern
from attnviz.ui.views import Place

if TYPE_CHECKING:
    from attnviz.outcome import Effect
    from attnviz.tying import Way
    from attnviz.ui.heads import WhichHead
    from attnviz.ui.look import Drawing
    from attnviz.ui.surgery import Of

SHUFFLED: Way = "values shuffled"
MAX_SEED = 9999


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
    if not _wanted(change, reading):
        return
    effect, pattern = runs.effect(change), runs.pattern(change)
    _said(change, effect, head, reading)
    st.markdown(look.plain(told.shows(effect, change.way)))
    drawn = _patterns(change, pattern, head, reading)
    drawn += _effects(change, effect, reading)
    seed = f" · masks drawn with seed {_masking_seed()}" if effect.predicted == "masked" else ""
    made = told.made(change.way, told.of_whom(change.of, head), change.seed) + seed
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


def _wanted(change: Change, reading: Reading) -> bool:
    """Whether the model shall run: at once where it is quick, else after a click."""
    asked, key = change.place.asked, "tying_runs"
    needed = runs.seconds(asked, reading)
    if needed <= AT_ONCE or st.session_state.get(key) == asked.key:
        return True
    if needed > MOST_SECONDS:
        st.caption(effects.too_long(needed, MOST_SECONDS))
        return False
    st.button(
        f"Run the model with this change ({effects.takes(needed)})",
        key=f"{key}_button",
        on_click=st.session_state.__setitem__,
        args=(key, asked.key),
    )
    return False


# --- what became of it


def _said(change: Change, effect: Effect, head: WhichHead, reading: Reading) -> None:
    whom = told.of_whom(change.of, head)
    st.subheader(look.plain(effects.headline(effect, told.what(change.way, whom))))
    ids = [i for i, _, _ in effect.next_tokens]
    if sentence := effects.what_comes_next(effect, surgery.labels(change.place.asked, ids)):
        st.markdown(look.plain(sentence))
    if effect.predicted == "masked":
        count = surgery.runs(change.place.asked, reading)
        st.caption(effects.MASKED.format(runs=count, seed=_masking_seed()))
    if effect.predicted == "not":
        st.caption(effects.NOTHING_PREDICTED)
    elif effect.mean_losses is None:
        st.caption(effects.ONE_TOKEN)
    elif reading.inputs.target:
        st.caption(effects.OF_THE_TARGET.format(n=len(reading.inputs.target) - 1))


def _masking_seed() -> int:
    from attnviz.outcome import MASKING_SEED

    return MASKING_SEED


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
        drawn = _tokens(change, effect, reading)
    with right:
        return drawn + _next_tokens(change, effect)


def _next_tokens(change: Change, effect: Effect) -> list[Drawing]:
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    if not effect.next_tokens:
        return []
    ids = [i for i, _, _ in effect.next_tokens]
    table = frames.next_tokens(effect, surgery.labels(change.place.asked, ids))
    chart = losses.next_tokens(table, change.way)
    look.chart(chart, "Probabilities of the likeliest next tokens, before and after")
    look.numbers("The numbers of the next tokens", table.drop(columns="row"), "tying_next")
    return [chart]


def _tokens(change: Change, effect: Effect, reading: Reading) -> list[Drawing]:
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    numbers = effect.losses[1] if effect.losses else effect.moved
    if numbers is None:
        return []
    tokens = reading.inputs.queries(reading.capture.calls[-1].tower, len(numbers))
    table = frames.of_tokens(effect, tokens.labels)
    assert table is not None
    quantity = effects.TOKEN_LOSS if effect.losses else effects.TOKEN_CHANGE
    chart = losses.of_tokens(table, quantity, change.way)
    look.chart(chart, f"{quantity} of each token")
    remark = effects.in_blocks(table)
    if remark:
        st.caption(remark)
    look.numbers("The numbers of the tokens", table, "tying_tokens", remark)
    return [chart]


def _take_home(change: Change, reading: Reading, made: str, drawn: Sequence[Drawing]) -> None:
    """What is drawn, as files; the tables have their numbers."""
    from attnviz import export

    place = change.place
    shown = export.head_shown(reading, reading.calls(place.part)[place.layer], place.head, made)
    downloads.downloads(downloads.figure(shown, lambda: drawn), "tying_downloads")
