"""The toy in training on the page: curves of five seeds, and a run before one's eyes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.charts import theme
from attnviz.charts import training as charts
from attnviz.ui import look
from attnviz.ui import selection as selected
from attnviz.ui import training_sentences as told
from attnviz.ui.fields import keep
from attnviz.ui.source import show_code
from attnviz.ui.training import Choice, Curves, Run, line, live_recipes, recorded, seen

if TYPE_CHECKING:
    from attnviz.training import Optimiser

Option = TypeVar("Option")

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
EVERY = 0.5  # seconds between two looks at a run
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
    d_k = _one_of(row, "d_k", D_KS, "training_d_k")
    optimiser = _one_of(row, "Optimiser", OPTIMISERS, "training_optimiser")
    key = f"training_rate_{optimiser}"
    linked = float(now.training_rate)
    keep(key, linked if linked in RATES[optimiser] else RATES[optimiser][0])
    rate = _one_of(row, "Learning rate", RATES[optimiser], key, told.rate)
    selected.change(training_d_k=str(d_k), training_optimiser=optimiser, training_rate=str(rate))
    return Choice(d_k, optimiser, rate)


def _one_of(
    place: DeltaGenerator,
    label: str,
    options: Sequence[Option],
    key: str,
    named: Callable[[Option], str] = str,
) -> Option:
    """One of a few, always."""
    chosen = place.segmented_control(label, options, format_func=named, key=key, required=True)
    assert chosen is not None
    return chosen


def _second() -> str:
    """What stands beside the right answers."""
    keep("training_second", selected.current().training_second)
    place = st.container()
    second = _one_of(place, "Beside them", list(SECOND), "training_second", SECOND.__getitem__)
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
        _leave()
        return
    with fold:
        st.markdown(look.plain(told.LIVE))
        run: Run | None = st.session_state.get("training_run")
        _start_fields(choice, run)
        if message := st.session_state.pop("training_refused", ""):
            st.warning(look.plain(message))
        if run is not None:
            is_going = run.is_going
            watch = st.fragment(_watch, run_every=EVERY if is_going else None)
            watch(run, is_going)


def _start_fields(choice: Choice, run: Run | None) -> None:
    keep("training_live_divisor", ALL)
    keep("training_live_seed", 0)
    row = st.container(horizontal=True, vertical_alignment="bottom")
    options = [ALL, *theme.DIVISOR_COLOURS]
    divisor = _one_of(row, "Divide q·k by", options, "training_live_divisor")
    seed = row.number_input("Seed", 0, 9999, key="training_live_seed", width=120)
    row.button(
        f"Train with {choice.optimiser}, rate {told.rate(choice.rate)}",
        type="primary",
        on_click=_start,
        args=(choice, divisor, seed),
        disabled=run is not None and run.is_going,
        key="training_start",
    )


def _start(choice: Choice, divisor: str, seed: int) -> None:
    _leave()
    divisors = tuple(theme.DIVISOR_COLOURS) if divisor == ALL else (divisor,)
    run = Run(live_recipes(choice.optimiser, choice.rate, seed, divisors))
    if line().join(run):
        st.session_state["training_run"] = run
    else:
        st.session_state["training_refused"] = told.FULL


def _leave() -> None:
    """A run at which nobody looks is not trained on."""
    run = st.session_state.get("training_run")
    if run is not None:
        run.stop()


def _watch(run: Run, was_going: bool) -> None:
    """How far it is, its curves so far, and a button that stops it."""
    run.look()
    row = st.container(horizontal=True, vertical_alignment="center")
    is_going = run.is_going
    row.progress(min(1.0, run.done), look.plain(told.progress(run, line().before(run))))
    if is_going:
        row.button("Stop", on_click=run.stop, key="training_stop")
    shown = seen(run)
    if shown is not None:
        _pair(shown, st.session_state.get("training_second", "loss"), "live")
        _under(shown)
        if not is_going:
            st.markdown("\n".join(f"- {look.plain(line)}" for line in told.by_divisor(shown)))
    if was_going and not is_going:
        # The page anew: without this the browser would go on asking.
        st.rerun()
