"""The toy in training on the page: curves of five seeds, and a run before one's eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attnviz.charts import theme
from attnviz.charts import training as charts
from attnviz.ui import look, watching
from attnviz.ui import selection as selected
from attnviz.ui import training_sentences as told
from attnviz.ui.controls import one_of
from attnviz.ui.fields import keep
from attnviz.ui.source import show_code
from attnviz.ui.training import Choice, Curves, Run, live_recipes, recorded, seen

if TYPE_CHECKING:
    from attnviz.training import Optimiser

ALL = "all four"
D_KS = (64, 256)
OPTIMISERS: tuple[Optimiser, ...] = ("Adam", "SGD")
RATES: dict[Optimiser, tuple[float, ...]] = {"Adam": (0.001, 0.003, 0.01), "SGD": (0.3, 1.0, 3.0)}
SECOND = {
    "loss": "loss",
    "entropy": "entropy of the weights",
    "jacobian_median": "‖J‖ of the median row",
    "query_gradient": "gradient of W_Q",
}
NAME = "training"  # of the run that is before one's eyes
CODE = ("attnviz.training.train", "attnviz.projections.attended", "attnviz.equation.logits")


def in_training() -> None:
    """The section: what each divisor does to learning."""
    st.markdown(look.plain(told.TASK))
    with look.panel("synthetic", "training"):
        choice = _choice()
        shown = recorded(choice)
        second = _second()
        _pair(shown, second, "recorded")
        _under(shown)
        _read(shown)
        _tables(shown, "recorded")
        _live(choice)
        show_code("training", *CODE)


def _choice() -> Choice:
    """Which curves are shown."""
    now = selected.current()
    keep("training_d_k", int(now.training_d_k))
    keep("training_optimiser", now.training_optimiser)
    row = st.container(horizontal=True)
    d_k = one_of(row, "d_k", D_KS, "training_d_k")
    optimiser = one_of(row, "Optimiser", OPTIMISERS, "training_optimiser")
    key = f"training_rate_{optimiser}"
    linked = float(now.training_rate)
    keep(key, linked if linked in RATES[optimiser] else RATES[optimiser][0])
    rate = one_of(row, "Learning rate", RATES[optimiser], key, told.rate)
    selected.change(training_d_k=str(d_k), training_optimiser=optimiser, training_rate=str(rate))
    return Choice(d_k, optimiser, rate)


def _second() -> str:
    """What stands beside the right answers."""
    keep("training_second", selected.current().training_second)
    place = st.container()
    second = one_of(place, "Beside them", list(SECOND), "training_second", SECOND.__getitem__)
    selected.change(training_second=second)
    return second


def _pair(shown: Curves, second: str, name: str) -> None:
    """Right answers at the left, another number at the right."""
    places = look.sides(name=f"training_{name}")
    for place, quantity in zip(places, ("accuracy", second), strict=True):
        with place:
            look.chart(
                charts.curves(
                    shown.curves, quantity, shown.recipe.steps, shown.lost, shown.references
                ),
                f"{charts.QUANTITIES[quantity].title} against training steps for each divisor. "
                + " ".join(told.by_divisor(shown)),
            )


def _under(shown: Curves) -> None:
    """The line under the charts, and what their crosses mean where there are some."""
    crosses = f" {told.CROSSES}" if len(shown.lost) else ""
    st.caption(look.plain(f"{told.caption(shown)}.{crosses}" if crosses else told.caption(shown)))


def _read(shown: Curves) -> None:
    """What to see in the curves."""
    st.markdown("\n".join(f"- {look.plain(line)}" for line in told.by_divisor(shown)))
    for sentence in (*told.verdict(shown), told.start(shown)):
        if sentence:
            st.markdown(look.plain(sentence))


def _tables(shown: Curves, name: str) -> None:
    """How each divisor ended and began, and the curves themselves, as tables."""
    look.numbers("Steps to 90 % right", shown.outcomes, f"training_{name}", told.NOT_A_NUMBER)
    look.numbers("Before the first step", shown.start, f"training_start_{name}")
    look.numbers("The curves as a table", shown.curves, f"training_curves_{name}")


# --- a run before one's eyes


def _live(choice: Choice) -> None:
    """Train it now, under the chosen optimiser and rate."""
    fold = look.fold("Train it now", "training_live")
    if not fold:
        watching.leave(NAME)
        return
    with fold:
        st.markdown(look.plain(told.LIVE))
        _start_fields(choice)
        watching.watch(NAME, _so_far)


def _start_fields(choice: Choice) -> None:
    keep("training_live_divisor", ALL)
    keep("training_live_seed", 0)
    row = st.container(horizontal=True, vertical_alignment="bottom")
    options = [ALL, *theme.DIVISOR_COLOURS]
    divisor = one_of(row, "Divide q·k by", options, "training_live_divisor")
    seed = row.number_input("Seed", 0, 9999, key="training_live_seed", width=120)
    row.button(
        f"Train with {choice.optimiser}, rate {told.rate(choice.rate)}",
        type="primary",
        on_click=_start,
        args=(choice, divisor, seed),
        disabled=watching.is_going(NAME),
        key="training_start",
    )


def _start(choice: Choice, divisor: str, seed: int) -> None:
    divisors = tuple(theme.DIVISOR_COLOURS) if divisor == ALL else (divisor,)
    watching.start(NAME, Run(live_recipes(choice.optimiser, choice.rate, seed, divisors)))


def _so_far(run: Run) -> None:
    """The curves as far as they are."""
    shown = seen(run)
    if shown is not None:
        _pair(shown, st.session_state.get("training_second", "loss"), "live")
        _under(shown)
        if not run.is_going:
            st.markdown("\n".join(f"- {look.plain(line)}" for line in told.by_divisor(shown)))
