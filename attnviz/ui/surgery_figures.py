"""On the whole model: its heads' scores multiplied for one run, and what that does to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import downloads, heads, look, sentences, surgery
from attnviz.ui import selection as selected
from attnviz.ui import surgery_sentences as told
from attnviz.ui.fields import keep
from attnviz.ui.readings import NotServed, Reading
from attnviz.ui.surgery import NO_SCORES, STRONGEST, Change, Of
from attnviz.ui.views import Place

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.outcome import Effect
    from attnviz.ui.look import Drawing

AT_ONCE = 3.0  # seconds; what takes longer waits for a click
PATIENCE = 0.3  # seconds, before a bar shows how far it is
MOST_SECONDS = 180.0  # of one curve, as of one reading
FACTOR = "factor"


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
    _said(change, effect, what, reading)
    drawn = _drawn(change, effect, what, reading)
    seed = f" · masks drawn with seed {_masking_seed()}" if effect.predicted == "masked" else ""
    made, whose = f"scores {what}{seed}", told.of_whom(change.of, head)
    st.caption(look.plain(sentences.caption(head, made, whose)))
    added = told.ADDED if any(call.bias is not None for call in reading.capture.calls) else ""
    notes = (added, told.not_changed(reading.capture.unread), told.TRAINED, told.UNTOUCHED)
    st.caption(look.plain(" ".join(filter(None, notes))))
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
        drawn += _next_tokens(change, effect, what)
    # Where nothing comes next, there is room for the tokens beside the curve.
    with st.container() if effect.next_tokens else right:
        drawn += _tokens(change, effect, what, reading)
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
    if not _wanted("surgery_runs", name, (asked.key,), needed):
        return None
    with st.spinner("The model runs", show_time=True) if needed > AT_ONCE else st.container():
        return surgery.effect(change)


def _wanted(key: str, name: str, of: tuple[object, ...], needed: float) -> bool:
    """Whether something shall be done: at once where it is short, else after a click."""
    if needed <= AT_ONCE or st.session_state.get(key) == of:
        return True
    if needed > MOST_SECONDS:
        st.caption(told.too_long(needed, MOST_SECONDS))
        return False
    st.button(
        f"{name} ({told.takes(needed)})",
        key=f"{key}_button",
        on_click=st.session_state.__setitem__,
        args=(key, of),
    )
    return False


# --- what became of it


def _said(change: Change, effect: Effect, what: str, reading: Reading) -> None:
    st.subheader(look.plain(told.headline(effect, what)))
    ids = [i for i, _, _ in effect.next_tokens]
    if sentence := told.what_comes_next(effect, surgery.labels(change.place.asked, ids)):
        st.markdown(look.plain(sentence))
    if effect.predicted == "masked":
        runs = surgery.runs(change.place.asked, reading)
        st.caption(told.MASKED.format(runs=runs, seed=_masking_seed()))
    if effect.predicted == "not":
        st.caption(told.NOTHING_PREDICTED)
    elif effect.mean_losses is None:
        st.caption(told.ONE_TOKEN)
    elif reading.inputs.target:
        st.caption(told.OF_THE_TARGET.format(n=len(reading.inputs.target) - 1))


def _masking_seed() -> int:
    from attnviz.outcome import MASKING_SEED

    return MASKING_SEED


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
    if not _wanted("surgery_curve", name, (asked.key, change.of, *which), needed):
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


def _next_tokens(change: Change, effect: Effect, what: str) -> list[Drawing]:
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    if not effect.next_tokens:
        return []
    ids = [i for i, _, _ in effect.next_tokens]
    table = frames.next_tokens(effect, surgery.labels(change.place.asked, ids))
    chart = losses.next_tokens(table, what, change.divisor or "")
    look.chart(chart, "Probabilities of the likeliest next tokens, before and after")
    look.numbers("The numbers of the next tokens", table.drop(columns="row"), "surgery_next")
    return [chart]


def _tokens(change: Change, effect: Effect, what: str, reading: Reading) -> list[Drawing]:
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    numbers = effect.losses[1] if effect.losses else effect.moved
    if numbers is None:
        return []
    tokens = reading.inputs.queries(reading.capture.calls[-1].tower, len(numbers))
    table = frames.of_tokens(effect, tokens.labels)
    quantity = told.TOKEN_LOSS if effect.losses else told.TOKEN_CHANGE
    chart = losses.of_tokens(table, quantity, what, change.divisor or "")
    look.chart(chart, f"{quantity} of each token")
    remark = told.in_blocks(table)
    if remark:
        st.caption(remark)
    look.numbers("The numbers of the tokens", table, "surgery_tokens", remark)
    return [chart]
