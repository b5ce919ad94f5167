"""Ways to project in training: the runs that a visitor starts, and the recorded ones, cached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.training import By, Curves, Run, curves_of

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.lookup_task import Task
    from attnviz.training import Recipe, Record

TASKS: tuple[Task, ...] = ("same", "partner", "copy a vector", "readout by the query")
WIDTHS: dict[Task, tuple[int, ...]] = {
    "same": (4, 6, 8, 16),
    "partner": (4, 8, 16, 32),
    "copy a vector": (16, 18, 20, 24, 32),
    "readout by the query": (4, 8, 16, 32),
}
RATES = (0.001, 0.003, 0.01, 0.03)
LIVE_HELD_OUT = 256
LOOK_EVERY = 20  # steps
PROBE_EVERY = 100  # steps; a picture that changes twice a second cannot be read
BY: By = "variant"


@dataclass(frozen=True)
class Setting:
    """What is trained: on which task, with which variants, and how."""

    task: Task
    variants: tuple[str, ...]
    width: int
    rate: float


@st.cache_resource(show_spinner=False)
def warm_up() -> None:
    """Let torch be imported while a visitor reads, so that the first run begins at once."""
    Thread(target=import_module, args=("attnviz.training",), daemon=True).start()


def live_recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """The recorded runs again, with one seed and a look every few steps."""
    from attnviz.training import PROJECTION_STEPS, of_projections

    return {
        variant: replace(
            of_projections(setting.task, variant, setting.width),
            rates=(setting.rate,),
            seeds=(seed,),
            looks=tuple(range(0, PROJECTION_STEPS, LOOK_EVERY)),
            held_out=LIVE_HELD_OUT,
        )
        for variant in setting.variants
    }


@st.cache_resource(show_spinner=False)
def _file() -> pd.DataFrame:
    from attnviz import training_frames

    return training_frames.projection_cells()


@st.cache_resource(max_entries=16, show_spinner=False)
def recorded(setting: Setting) -> Curves | None:
    """The curves of the data file, five seeds; None at a rate that it does not have."""
    from attnviz.training import of_projections

    rows = _file()
    rows = rows[(rows["task"] == setting.task) & (rows["d_k"] == setting.width)]
    rows = rows[rows["variant"].isin(setting.variants) & (rows["rate"] == setting.rate)]
    if rows.empty:
        return None
    recipe = of_projections(setting.task, setting.variants[0], setting.width)
    return curves_of(rows, recipe, setting.rate, BY)


@st.cache_resource(show_spinner=False)
def _by_width() -> pd.DataFrame:
    from attnviz import training_frames

    return training_frames.by_width(_file())


@dataclass(frozen=True)
class Answers:
    """What every variant comes to on one task: a `by_width`, with what to compare it with."""

    task: Task
    cells: pd.DataFrame
    references: pd.DataFrame
    recipe: Recipe

    def of(self, variants: tuple[str, ...]) -> pd.DataFrame:
        """The rows of these variants, in their order."""
        import pandas as pd

        return pd.concat([self.cells[self.cells["variant"] == name] for name in variants])


@st.cache_resource(max_entries=8, show_spinner=False)
def answers(task: Task) -> Answers:
    """The answers of the data file; `recipe` is that of any of its runs."""
    from attnviz import training_frames
    from attnviz.training import of_projections

    cells = _by_width()
    recipe = of_projections(task, "Q K V", WIDTHS[task][0])
    return Answers(task, cells[cells["task"] == task], training_frames.references(task), recipe)


@dataclass(frozen=True)
class Probe:
    """What each query of one set of items gives each item, after so many steps."""

    variant: str
    step: int
    weights: pd.DataFrame


def probes(run: Run) -> list[Probe]:
    """The attention of each variant, now and then; once a run has ended, its last."""
    from attnviz import training_frames

    found = []
    for variant, records in run.records.items():
        if record := _probed(tuple(records), run.is_going):
            frame = training_frames.attention(variant, record.attention[0], BY)
            found.append(Probe(variant, record.step, frame))
    return found


def _probed(records: tuple[Record, ...], is_going: bool) -> Record | None:
    if not is_going:
        return records[-1] if records else None
    return next((one for one in reversed(records) if one.step % PROBE_EVERY == 0), None)
