"""On the whole model: its heads' scores multiplied for one run, and what that does to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import downloads, heads, look, sentences, surgery
from attnviz.ui import effect_figures as effects
from attnviz.ui import selection as selected
from attnviz.ui import surgery_sentences as told
from attnviz.ui.fields import keep
from attnviz.ui.readings import NotServed, Reading
from attnviz.ui.source import show_code
from attnviz.ui.surgery import NO_SCORES, STRONGEST, Change, Of
from attnviz.ui.views import Place

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.outcome import Effect
    from attnviz.ui.look import Drawing

PATIENCE = 0.3  # seconds, before a bar shows how far it is
FACTOR = "factor"
CODE = (
    *("attnviz.surgery.as_if_divided", "attnviz.surgery.multiplied", "attnviz.surgery.scaled"),
    *("attnviz.outcome.outcome", "attnviz.outcome.effect"),
)


def on_the_whole_model(place: Place, reading: Reading) -> None:
    """Fields that say what is changed, and what became of the model's loss and its next token."""
    with look.panel("real", "surgery"):
        try:
            _surgery(place, reading)
        except NotServed as problem:
            st.error(look.plain(str(problem)))


def _surgery(place: Place, reading: Reading) -> None:
    call = reading.calls(place.part)[place.layer]
    if call.d_k is None:
        raise NotServed(
            "Of this layer only the weights are known, not the queries and keys, so its scores "
            "cannot be multiplied."
        )
    head = heads.which(reading, place.part, place.layer, place.head)
    change = _change(place, head, call.d_k)
    what = told.done(change.factor, change.divisor)
    _scale(change, head, what)
    effect = _effect(change, reading)
    if effect is None:
        return
    asked = change.place.asked
    effects.said(asked, effect, told.headline(effect, what), reading)
    drawn = _drawn(change, effect, what, reading)
    made, whose = f"scores {what}{effects.masks(effect)}", told.of_whom(change.of, head)
    st.caption(look.plain(sentences.caption(head, made, whose)))
    added = told.ADDED if any(call.bias is not None for call in reading.capture.calls) else ""
    notes = (added, told.not_changed(reading.capture.unread), told.TRAINED, told.UNTOUCHED)
    st.caption(look.plain(" ".join(filter(None, notes))))
    show_code("surgery", *CODE)
    if drawn:
        _take_home(change, reading, made, whose, drawn)


def _scale(change: Change, head: heads.WhichHead, what: str) -> None:
    """The model's own scale, and what the chosen divisor is to it."""
    several = change.of == "all" and surgery.several_factors(change.place, "all")
    scale = told.own_divisor(head, several)
    if change.divisor:
        scale += f" {told.as_factor(what, surgery.mean_factor(change), several)}"
    st.caption(look.plain(scale))


def _drawn(change: Change, effect: Effect, what: str, reading: Reading) -> list[Drawing]:
    """The curve, what comes next, and the tokens, as they are on screen."""
    left, right = look.sides(name="surgery")
    with left:
        drawn = _curve(change, effect, reading)
    with right:
        divisor = change.divisor or ""
        drawn += effects.next_tokens(change.place.asked, effect, "surgery", what, divisor)
    # Where nothing comes next, there is room for the tokens beside the curve.
    with st.container() if effect.next_tokens else right:
        drawn += effects.tokens(effect, reading, "surgery", what, divisor)
    return drawn


def _take_home(
    change: Change, reading: Reading, made: str, whose: str, drawn: Sequence[Drawing]
) -> None:
    """What is drawn, as files; the tables have their numbers."""
    from attnviz import export

    place = change.place
    call = reading.calls(place.part)[place.layer]
    shown = replace(export.head_shown(reading, call, place.head, made), place=whose)
    if change.of != "head":
        shown = replace(export.many_shown(reading, None, whose, made), part=None)
    downloads.downloads(downloads.figure(shown, lambda: drawn), "surgery_downloads")


# --- what is changed


def _change(place: Place, head: heads.WhichHead, d_k: int) -> Change:
    """Fields for which heads, for the divisor, and for any factor."""
    names: dict[Of, str] = {
        "all": "all heads",
        "layer": f"layer {place.layer}",
        "head": f"layer {place.layer}, head {place.head}",
    }
    left, middle, right = st.columns([3, 4, 3])
    now = selected.current()
    keep("surgery_of", now.surgery_of)
    of = left.radio("What is changed", [*names], format_func=names.__getitem__, key="surgery_of")
    divisor = _divisor(middle)
    keep("surgery_step", now.surgery_step)
    step = right.select_slider(
        "Factor on every q·k",
        range(NO_SCORES, STRONGEST + 1),
        format_func=lambda step: told.factor_of(surgery.factor_of(step, d_k)),
        key="surgery_step",
        disabled=divisor is not None,
        help=f"From 0, which leaves only what the model adds to q·k, over 1/√{d_k} to √{d_k}; "
        "1 is the model’s own scale.",
    )
    selected.change(surgery_of=of, surgery_step=step)
    factor = 1.0 if divisor else surgery.factor_of(step, d_k)
    return Change(place, of, factor, divisor)


def _divisor(place: st.delta_generator.DeltaGenerator) -> str | None:
    """The divisor chosen, None for a factor."""
    from attnviz.synthetic import POWERS

    keep("surgery_by", selected.current().surgery_by)
    by = place.radio(
        "As if divided by",
        [*POWERS, FACTOR],
        format_func=lambda by: "or times a factor" if by == FACTOR else by,
        horizontal=True,
        key="surgery_by",
        help="The factor is what the model divides by over this divisor, call by call.",
    )
    selected.change(surgery_by=by)
    return None if by == FACTOR else by


# --- what takes long is done when asked for


def _effect(change: Change, reading: Reading) -> Effect | None:
    """What the change does; of a slow model once a visitor wants it."""
    asked = change.place.asked
    needed = 2 * surgery.seconds(asked, reading)
    name = "Run the model with this change"
    if not effects.wanted("surgery_runs", name, (asked.key,), needed):
        return None
    with (
        st.spinner("The model runs", show_time=True) if needed > effects.AT_ONCE else st.container()
    ):
        return surgery.effect(change)


# --- what became of it


def _curve(change: Change, effect: Effect, reading: Reading) -> list[Drawing]:
    """Loss against the factor, with the change that is looked at."""
    from attnviz.charts import losses

    if effect.amount is None:
        return []
    asked = change.place.asked
    layer = (change.place.part, change.place.layer) if change.of != "all" else ()
    which = (*layer, change.place.head) if change.of == "head" else layer
    needed = surgery.seconds(asked, reading) * len(surgery.changes(change.place, change.of))
    name = "Work out the curve over all factors"
    if not effects.wanted("surgery_curve", name, (asked.key, change.of, *which), needed):
        return []
    points = _points(change)
    quantity = told.CHANGE if effect.mean_losses is None else told.LOSS
    chosen = (surgery.mean_factor(change), effect.amount)
    chart = losses.against_factor(points, quantity, chosen)
    look.chart(chart, f"{quantity} against the factor")
    if "difference" in points:
        st.markdown(look.plain(told.lowest(points)))
    st.markdown(look.plain(told.by_divisor(points)))
    look.numbers("The numbers of the curve", points, "surgery_curve")
    return [chart]


def _points(change: Change) -> pd.DataFrame:
    """The curve; a bar says how far it is once that takes longer than a moment."""
    bar, start = st.empty(), monotonic()

    def progress(share: float, doing: str) -> None:
        if monotonic() - start > PATIENCE:
            bar.progress(share, doing)

    points = surgery.curve(change.place, change.of, progress)
    bar.empty()
    return points
