"""What a change of attention does to a model, on screen: for every way to change it alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import look, surgery
from attnviz.ui import surgery_sentences as told
from attnviz.ui.readings import Asked, Reading

if TYPE_CHECKING:
    from attnviz.outcome import Effect
    from attnviz.ui.look import Drawing

AT_ONCE = 3.0  # seconds; what takes longer waits for a click
MOST_SECONDS = 180.0  # of one change or curve, as of one reading


def wanted(key: str, name: str, of: tuple[object, ...], needed: float) -> bool:
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


def said(asked: Asked, effect: Effect, headline: str, reading: Reading) -> None:
    """The effect in words, and how it was measured."""
    st.subheader(look.plain(headline))
    ids = [i for i, _, _ in effect.next_tokens]
    if sentence := told.what_comes_next(effect, surgery.labels(asked, ids)):
        st.markdown(look.plain(sentence))
    if effect.predicted == "masked":
        runs = surgery.runs(asked, reading)
        st.caption(told.MASKED.format(runs=runs, seed=_masking_seed()))
    if effect.predicted == "not":
        st.caption(told.NOTHING_PREDICTED)
    elif effect.mean_losses is None:
        st.caption(told.ONE_TOKEN)
    elif reading.inputs.target:
        st.caption(told.OF_THE_TARGET.format(n=len(reading.inputs.target) - 1))


def masks(effect: Effect) -> str:
    """What a caption says of the masks, "" where there are none."""
    return f" · masks drawn with seed {_masking_seed()}" if effect.predicted == "masked" else ""


def _masking_seed() -> int:
    from attnviz.outcome import MASKING_SEED

    return MASKING_SEED


def next_tokens(
    asked: Asked, effect: Effect, name: str, after: str, divisor: str = ""
) -> list[Drawing]:
    """The likeliest next tokens before and after; `name` is that of the section."""
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    if not effect.next_tokens:
        return []
    ids = [i for i, _, _ in effect.next_tokens]
    table = frames.next_tokens(effect, surgery.labels(asked, ids))
    chart = losses.next_tokens(table, after, divisor)
    look.chart(chart, "Probabilities of the likeliest next tokens, before and after")
    look.numbers("The numbers of the next tokens", table.drop(columns="row"), f"{name}_next")
    return [chart]


def tokens(
    effect: Effect, reading: Reading, name: str, after: str, divisor: str = ""
) -> list[Drawing]:
    """The loss of each token before and after, or how far its vector went."""
    from attnviz import surgery_frames as frames
    from attnviz.charts import losses

    numbers = effect.losses[1] if effect.losses else effect.moved
    if numbers is None:
        return []
    read = reading.inputs.queries(reading.capture.calls[-1].tower, len(numbers))
    table = frames.of_tokens(effect, read.labels)
    assert table is not None
    quantity = told.TOKEN_LOSS if effect.losses else told.TOKEN_CHANGE
    chart = losses.of_tokens(table, quantity, after, divisor)
    look.chart(chart, f"{quantity} of each token")
    remark = told.in_blocks(table)
    if remark:
        st.caption(remark)
    look.numbers("The numbers of the tokens", table, f"{name}_tokens", remark)
    return [chart]
