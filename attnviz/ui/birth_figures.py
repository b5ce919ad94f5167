"""The birth of an induction head: the bundled model's own training log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attnviz.charts import birth as charts
from attnviz.ui import birth_sentences as told
from attnviz.ui import look
from attnviz.ui import selection as selected
from attnviz.ui.controls import one_of
from attnviz.ui.fields import keep
from attnviz.ui.source import show_code

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.training_log import PhaseChange

CLOSE = 2000  # steps around the phase change
CODE = (
    *("attnviz.training_log.phase_change", "attnviz.head_statistics.previous_token"),
    "attnviz.head_statistics.induction",
)


@st.cache_resource(show_spinner=False)
def _log() -> pd.DataFrame:
    from attnviz import training_log

    return training_log.log()


def birth() -> None:
    """The section: losses and scores against steps, and the phase change in them."""
    from attnviz import training_log

    log = _log()
    last = int(log["step"].max())
    found = training_log.phase_change(log)
    st.markdown(look.plain(told.TASK))
    with look.panel("real", "birth"):
        _charts(log, _steps(last), found)
        st.caption(look.plain(told.caption(last)))
        st.markdown(f"**{look.plain(told.change(found, last))}**")
        ends = (training_log.at(log, step) for step in (found.begin, found.end))
        st.markdown("\n".join(f"- {look.plain(line)}" for line in told.seen(*ends)))
        st.markdown(look.plain(f"{told.SCORES} {told.DEFINED}"))
        look.numbers("The log as a table", log, "birth")
        show_code("birth", *CODE)
    st.markdown(look.plain(told.LEARNED))
    st.markdown(look.plain(told.HONEST))


def _steps(last: int) -> int:
    """How far the charts go."""
    linked = int(selected.current().birth_steps)
    keep("birth_steps", linked if linked in (CLOSE, last) else CLOSE)
    chosen = one_of(
        st.container(),
        "Steps shown",
        (CLOSE, last),
        "birth_steps",
        lambda steps: f"{'all' if steps == last else 'the first'} {steps:,}",
    )
    selected.change(birth_steps=str(chosen))
    return chosen


def _charts(log: pd.DataFrame, steps: int, found: PhaseChange) -> None:
    """Scores at the left, losses at the right, over the same steps."""
    from attnviz import training_log

    curves, stages = training_log.curves(log), training_log.stages(log)
    for place, quantity in zip(look.sides(name="birth"), ("score", "loss"), strict=True):
        with place:
            look.chart(
                charts.birth(curves, quantity, steps, (found.begin, found.end), stages),
                told.described(quantity, found),
            )
