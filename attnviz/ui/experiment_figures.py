"""Ways to project in training on the page: runs before one's eyes, and the chart that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from attnviz.charts import theme
from attnviz.charts import training as charts
from attnviz.charts import widths as width_charts
from attnviz.ui import experiment_sentences as told
from attnviz.ui import look, watching
from attnviz.ui import selection as selected
from attnviz.ui.controls import one_of
from attnviz.ui.experiment import (
    RATES,
    TASKS,
    WIDTHS,
    Setting,
    answers,
    live_recipes,
    probes,
    recorded,
    warm_up,
)
from attnviz.ui.fields import keep
from attnviz.ui.source import show_code
from attnviz.ui.training import Curves, Run, seen
from attnviz.ui.training_sentences import rate

if TYPE_CHECKING:
    from attnviz.lookup_task import Task

NAME, WIDTHS_NAME = "experiment", "widths"  # of the sections, and of what is kept for them
SHOWN: dict[Task, tuple[str, ...]] = {
    "same": ("Q K V", "K = V"),
    "partner": ("Q K V", "K = V", "Q = K"),
    "copy a vector": ("Q K V", "K = V"),
    "readout by the query": ("Q K V", "+ linear fourth", "+ query gate"),
}
RECORDED_RATES: dict[Task, float] = {
    "same": 0.003,
    "partner": 0.003,
    "copy a vector": 0.01,
    "readout by the query": 0.003,
}
FIRST_WIDTHS: dict[Task, int] = {
    "same": 4,
    "partner": 16,
    "copy a vector": 16,
    "readout by the query": 16,
}
OF_A_TASK: dict[str, dict[str, Any]] = {
    NAME: {"experiment_variants": "", "experiment_width": 0, "experiment_rate": ""},
    WIDTHS_NAME: {"widths_variants": ""},
}
SECOND = {
    "loss": "loss",
    "target_weight": "weight on the right item",
    "entropy": "entropy of the weights",
}
CODE = ("attnviz.projections.attended", "attnviz.training.train", "attnviz.lookup_task.Source")


def experiment() -> None:
    """The section: ways to project, trained before one's eyes."""
    st.markdown(look.plain(told.TOY))
    with look.panel("synthetic", NAME):
        task = _task(NAME)
        variants = _variants(NAME, task)
        if variants:
            setting = _how(task, variants)
            watching.watch(NAME, _so_far)
            _recorded(setting)
        show_code(NAME, *CODE)
    warm_up()


def widths() -> None:
    """The section: what each way to project comes to, by width and by cost."""
    with look.panel("synthetic", WIDTHS_NAME):
        task = _task(WIDTHS_NAME)
        variants = _variants(WIDTHS_NAME, task)
        if variants:
            _answer(task, variants)
        show_code(
            WIDTHS_NAME, "attnviz.training.of_projections", "attnviz.training_frames.by_width"
        )


def _task(section: str) -> Task:
    """What is asked of the toy. Both sections may be in view: each has fields of its own."""
    key = f"{section}_task"
    keep(key, getattr(selected.current(), key))
    task = one_of(st.container(), "Task", TASKS, key, told.NAMED.__getitem__)
    if task != getattr(selected.current(), key):  # what was chosen there is not for here
        selected.change(**OF_A_TASK[section] | {key: task})
    st.markdown(look.plain(told.TASKS[task]))
    return task


def _variants(section: str, task: Task) -> tuple[str, ...]:
    """The ways to project that are overlaid, in their usual order; none while none is chosen."""
    key, every = f"{section}_variants_{task}", list(theme.VARIANT_COLOURS)
    linked = getattr(selected.current(), f"{section}_variants")
    keep(key, [every[int(place)] for place in linked] or list(SHOWN[task]))
    chosen = st.pills("Projections", every, selection_mode="multi", key=key)
    named = [name for name in every if name in chosen]
    places = "".join(str(every.index(name)) for name in named)
    usual = named == [name for name in every if name in SHOWN[task]]
    selected.change(**{f"{section}_variants": "" if usual else places})
    if not named:
        st.info(told.NONE_CHOSEN)
    else:
        st.caption(look.plain(" · ".join(f"{name}: {told.VARIANTS[name]}" for name in named)))
    return tuple(named)


# --- before one's eyes


def _how(task: Task, variants: tuple[str, ...]) -> Setting:
    """Width, rate and seed, and the button that starts it."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    width_key, rate_key = f"experiment_width_{task}", f"experiment_rate_{task}"
    now = selected.current()
    linked = now.experiment_width
    keep(width_key, linked if linked in WIDTHS[task] else FIRST_WIDTHS[task])
    keep(rate_key, float(now.experiment_rate or RECORDED_RATES[task]))
    keep("experiment_seed", now.experiment_seed)
    width = one_of(row, "Head width", WIDTHS[task], width_key)
    at = one_of(row, "Learning rate", RATES, rate_key, rate)
    seed = row.number_input("Seed", 0, 9999, key="experiment_seed", width=120)
    setting = Setting(task, variants, width, at)
    row.button(
        "Train",
        type="primary",
        on_click=_start,
        args=(setting, seed),
        disabled=watching.is_going(NAME),
        key="experiment_start",
    )
    keep("experiment_second", now.experiment_second)
    place = st.container()
    second = one_of(
        place, "Beside the answers", list(SECOND), "experiment_second", SECOND.__getitem__
    )
    selected.change(
        experiment_width=0 if width == FIRST_WIDTHS[task] else width,
        experiment_rate="" if at == RECORDED_RATES[task] else str(at),
        experiment_seed=seed,
        experiment_second=second,
    )
    return setting


def _start(setting: Setting, seed: int) -> None:
    watching.start(NAME, Run(live_recipes(setting, seed), "variant"))


def _so_far(run: Run) -> None:
    """Curves as far as they are, and where the toys look."""
    shown = seen(run)
    if shown is None:
        return
    _pair(shown, "live")
    st.caption(look.plain(told.caption(shown)))
    _probes(run)
    if not run.is_going:
        st.markdown(_list(told.by_variant(shown)))
        look.numbers("The curves as a table", shown.curves, "experiment_live")


def _probes(run: Run) -> None:
    found = probes(run)
    if not found:
        return
    row = st.container(horizontal=True)
    for probe in found:
        with row.container(width="content"):
            picture = charts.probe(probe.weights, probe.variant)
            look.chart(picture, f"Weights of {probe.variant} on 16 items", square=True)
    st.caption(look.plain(told.probes_caption(found)))


def _recorded(setting: Setting) -> None:
    """Curves of five seeds under the same setting."""
    fold = look.fold(told.RECORDED, "experiment_recorded")
    if not fold:
        return
    with fold:
        shown = recorded(setting)
        if shown is None:
            at = RECORDED_RATES[setting.task]
            st.info(look.plain(told.not_recorded(setting.task, at, setting.rate)))
            return
        _pair(shown, "recorded")
        st.caption(look.plain(told.caption(shown)))
        st.markdown(_list(told.by_variant(shown)))
        look.numbers("Steps to 90 %", shown.outcomes, "experiment_outcomes")
        look.numbers("The curves as a table", shown.curves, "experiment_recorded")


def _pair(shown: Curves, name: str) -> None:
    """Right answers at the left, another number at the right."""
    second = st.session_state.get("experiment_second", "loss")
    axes = _axes(shown.recipe.task)
    places = look.sides(name=f"experiment_{name}")
    for place, quantity in zip(places, ("accuracy", second), strict=True):
        drawn = charts.curves(
            shown.curves,
            quantity,
            shown.recipe.steps,
            shown.lost,
            shown.references,
            shown.by,
            axes,
        )
        said = f"{axes[quantity].title} against training steps. "
        with place:
            look.chart(drawn, said + " ".join(told.by_variant(shown)))


def _axes(task: Task) -> dict[str, charts.Axis]:
    return charts.OF_VECTORS if task == "copy a vector" else charts.QUANTITIES


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {look.plain(line)}" for line in lines)


# --- the chart that answers


def _answer(task: Task, variants: tuple[str, ...]) -> None:
    keep("widths_cost", selected.current().widths_cost)
    costs = list(told.COSTS)
    cost = one_of(st.container(), "Compared at", costs, "widths_cost", told.COSTS.__getitem__)
    selected.change(widths_cost=cost)
    found = answers(task)
    cells = found.of(variants)
    said = told.verdict(found, cost, variants)
    axis = _axes(task)["accuracy"]
    st.markdown(look.plain(told.COMPARED[cost]))
    look.chart(
        width_charts.widths(cells, cost, axis, found.references),
        f"{axis.title} against {width_charts.COSTS[cost]}. {' '.join(said)}",
    )
    st.caption(look.plain(told.widths_caption(found)))
    st.markdown(_list(said))
    look.numbers("The numbers as a table", cells, "widths")
