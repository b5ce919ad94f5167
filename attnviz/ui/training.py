"""A toy in training: the curves of the data file, cached, and runs that train while one looks.

A run belongs to one session and changes nothing that others see. Few train at once, in threads of
their own; the others wait in line. A run at which nobody looks any more stops by itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.training import Optimiser, Recipe, Record

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
THREADS = AT_ONCE  # of torch, in all other threads of the app
MOST_IN_LINE = 40  # more would wait for minutes
PATIENCE = 15.0  # seconds without a look; browsers slow down tabs that are not in view
LIVE_D_K = 64
LIVE_STEPS = 600
LIVE_LOOKS = tuple(range(0, LIVE_STEPS, 10))
LIVE_HELD_OUT = 256
GIVE_WAY = 0.002  # seconds after each record in which other threads come first

By = Literal["divisor", "variant"]
State = Literal["waiting", "running", "done", "stopped", "failed"]


@dataclass(frozen=True)
class Curves:
    """What a chart of training shows, under one d_k, optimiser and rate.

    Frames of `training_frames`: `curves`, `lost` and `references` to draw, `outcomes` to tell,
    and `start`, what is measured before the first step. `by` is the column that tells curves
    apart; `recipe` is that of any of the runs.
    """

    recipe: Recipe
    rate: float
    curves: pd.DataFrame
    lost: pd.DataFrame
    references: pd.DataFrame
    outcomes: pd.DataFrame
    start: pd.DataFrame
    by: By = "divisor"


@dataclass(frozen=True)
class Choice:
    """Which curves of the data file are shown."""

    d_k: int
    optimiser: Optimiser
    rate: float


def curves_of(rows: pd.DataFrame, recipe: Recipe, rate: float, by: By = "divisor") -> Curves:
    """The frames of some rows of one rate."""
    from attnviz import training_frames

    drawn = [name for name in training_frames.NUMBERS if name in rows]
    return Curves(
        recipe,
        rate,
        training_frames.curves(rows, drawn, by),
        training_frames.lost(rows, by),
        training_frames.references(recipe.task),
        training_frames.outcomes(rows, by),
        training_frames.at_the_start(rows, by),
        by,
    )


@st.cache_resource(show_spinner=False)
def _file() -> pd.DataFrame:
    from attnviz import training_frames

    return training_frames.scale_cells()


@st.cache_resource(max_entries=16, show_spinner=False)
def recorded(choice: Choice) -> Curves:
    """The curves of the data file: five seeds."""
    from attnviz import training, training_frames

    rows = training_frames.cell(_file(), choice.d_k, choice.optimiser, choice.rate)
    recipe = training.of_scale(choice.d_k, choice.optimiser, "√d_k")
    return curves_of(rows, recipe, choice.rate)


def live_recipes(
    optimiser: Optimiser, rate: float, seed: int, divisors: tuple[str, ...]
) -> dict[str, Recipe]:
    """Short runs of one seed, one for each divisor, at d_k = 64."""
    from dataclasses import replace

    from attnviz.training import of_scale

    return {
        divisor: replace(
            of_scale(LIVE_D_K, optimiser, divisor),
            rates=(rate,),
            seeds=(seed,),
            steps=LIVE_STEPS,
            looks=LIVE_LOOKS,
            held_out=LIVE_HELD_OUT,
        )
        for divisor in divisors
    }


@dataclass(eq=False)
class Run:
    """Toys that train side by side, by the names of their curves, for one session."""

    recipes: Mapping[str, Recipe]
    by: By = "divisor"
    records: dict[str, list[Record]] = field(default_factory=dict)
    state: State = "waiting"
    looked: float = field(default_factory=time.monotonic)
    _begun: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.records = {name: [] for name in self.recipes}

    @property
    def is_going(self) -> bool:
        """Whether anything more will come."""
        return self.state in ("waiting", "running")

    @property
    def done(self) -> float:
        """The share of all steps that is done."""
        steps = sum(recipe.steps for recipe in self.recipes.values())
        return sum(found[-1].step for found in self.records.values() if found) / steps

    def look(self) -> None:
        """Say that somebody still looks."""
        self.looked = time.monotonic()

    def stop(self) -> None:
        """Let it end at its next record."""
        self._stop.set()

    @property
    def is_to_stop(self) -> bool:
        """Whether it was stopped, or is no longer looked at."""
        return self._stop.is_set() or time.monotonic() - self.looked > PATIENCE

    def wait_for_records(self, seconds: float) -> None:
        """Return when each toy has shown something, or after so many seconds."""
        self._begun.wait(seconds)

    def train(self) -> None:
        """Take a record of each toy in turn, until all have ended or it is to stop."""
        from attnviz.training import train

        going = {name: train(recipe) for name, recipe in self.recipes.items()}
        while going and not self.is_to_stop:
            for name, run in list(going.items()):
                record = next(run, None)
                if record is None:
                    del going[name]
                else:
                    self.records[name].append(record)
                time.sleep(GIVE_WAY)
                if self.is_to_stop:
                    break
            self._begun.set()
        self.state = "stopped" if going else "done"


class Line:
    """Runs of all sessions: the first few train, the others wait in the order they came."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self._runs: list[Run] = []
        self._moved = threading.Condition()

    def join(self, run: Run) -> bool:
        """Let a run train as soon as it is its turn; False where the line is too long."""
        with self._moved:
            if len(self._runs) >= MOST_IN_LINE:
                return False
            self._runs.append(run)
        threading.Thread(target=self._work, args=(run,), name="toy", daemon=True).start()
        return True

    def before(self, run: Run) -> int:
        """How many must end before this one begins."""
        with self._moved:
            place = self._runs.index(run) if run in self._runs else 0
        return max(0, place - self.at_once + 1)

    def _work(self, run: Run) -> None:
        try:
            if self._is_its_turn(run):
                _take_one_core()
                run.state = "running"
                run.train()
            else:
                run.state = "stopped"
        except Exception:
            run.state = "failed"
            raise
        finally:
            with self._moved:
                self._runs.remove(run)
                self._moved.notify_all()

    def _is_its_turn(self, run: Run) -> bool:
        """Wait for it; False where the run is to stop before."""
        with self._moved:
            while self._runs.index(run) >= self.at_once:
                if run.is_to_stop:
                    return False
                self._moved.wait(timeout=1.0)
        return not run.is_to_stop


def _take_one_core() -> None:
    """Let torch use one core in this thread, and as many as before in all others.

    Its products are so small that several threads would mostly wait for each other. The number
    that is set holds for this thread and for all that begin later; so a thread that begins now
    sets it back for those.
    """
    import torch

    torch.get_num_threads()  # else torch would take over the others' number when it is first used
    torch.set_num_threads(1)
    back = threading.Thread(target=torch.set_num_threads, args=(THREADS,), name="threads")
    back.start()
    back.join()


@st.cache_resource(show_spinner=False)
def line() -> Line:
    """The one line in which the runs of all sessions stand."""
    return Line()


def seen(run: Run) -> Curves | None:
    """What a run has shown so far; None before its first record."""
    import pandas as pd

    from attnviz import training_frames

    parts = []
    for name, recipe in run.recipes.items():
        if records := tuple(run.records[name]):
            rows = training_frames.rows_of(recipe, records)
            parts.append(rows.assign(**{run.by: name}))
    if not parts:
        return None
    recipe = next(iter(run.recipes.values()))
    return curves_of(pd.concat(parts, ignore_index=True), recipe, recipe.rates[0], run.by)
