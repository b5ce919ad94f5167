"""The section on training as a visitor's session runs it, and the runs behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

from attnviz import training, training_frames
from attnviz.ui import training as runs
from attnviz.ui import training_figures as figures
from attnviz.ui import training_sentences as told
from attnviz.ui.training import Choice, Line, Run

PAGE = Path(__file__).parent / "training_page.py"
SOON = 20.0  # seconds


def page(**state) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    return "\n".join(element.value for element in app.markdown).replace("\\", "")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def recipes(steps: int = 3) -> dict[str, training.Recipe]:
    """Runs of a moment, a record at every step."""
    found = runs.live_recipes("Adam", 1e-2, 7, ("1", "√d_k"))
    short = {"d_k": 5, "steps": steps, "looks": tuple(range(steps)), "batch": 11, "held_out": 13}
    return {name: replace(recipe, **short) for name, recipe in found.items()}


@pytest.fixture
def gate(monkeypatch) -> Iterator[threading.Event]:
    """Training that waits at its second record until the gate is opened."""
    opened, train = threading.Event(), training.train

    def waiting(recipe):
        for record in train(recipe):
            yield record
            assert opened.wait(SOON)

    monkeypatch.setattr(training, "train", waiting)
    yield opened
    opened.set()


# --- the curves of the file


def test_fields_offer_what_the_file_holds():
    cells = training_frames.scale_cells()
    assert set(figures.D_KS) == set(cells["d_k"])
    assert set(figures.OPTIMISERS) == set(cells["optimiser"])
    for optimiser, rates in figures.RATES.items():
        assert rates == training.RATES[optimiser]
        assert set(rates) == set(cells.loc[cells["optimiser"] == optimiser, "rate"])


CHOICES = [
    Choice(d_k, optimiser, rate)
    for d_k, optimiser in product(figures.D_KS, figures.OPTIMISERS)
    for rate in figures.RATES[optimiser]
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_choice_is_told(choice):
    shown = runs.recorded(choice)
    lines = told.by_divisor(shown)
    assert [line.split(":")[0] for line in lines] == ["÷ 1", "÷ √d_k", "÷ d_k", "÷ d_k²"]
    assert not [line for line in (*lines, *told.verdict(shown)) if "nan" in line]
    caption = told.caption(shown)
    assert caption.startswith("synthetic · toy")
    for part in (f"d_k = {choice.d_k}", choice.optimiser, f"rate {choice.rate:g}", "seeds 0 to 4"):
        assert part in caption


def test_what_is_said_of_no_scaling():
    lines = told.by_divisor(runs.recorded(Choice(256, "SGD", 1.0)))
    assert lines[0] == "÷ 1: never 90 % right, and diverged in all 5 seeds."
    verdict = " ".join(told.verdict(runs.recorded(Choice(256, "Adam", 1e-3))))
    assert "all seeds get to 90 %, and 4.7 times as late as under √d_k" in verdict
    for d_k in figures.D_KS:  # what is said wherever no seed gets there
        outcomes = runs.recorded(Choice(d_k, "Adam", 1e-3)).outcomes.set_index("divisor")
        assert outcomes.loc["1", "reached"] == 5
    start = told.start(runs.recorded(Choice(256, "Adam", 1e-3)))
    assert "the gradient of W_Q is largest without a divisor" in start
    assert "typical row's ‖J‖ is smallest" in start


def test_what_is_said_of_d_k_and_of_its_square():
    slow = " ".join(told.verdict(runs.recorded(Choice(64, "Adam", 1e-3))))
    assert "Dividing by d_k ends as well as √d_k, only starts slower: 90 % come 2 times" in slow
    stuck = " ".join(told.verdict(runs.recorded(Choice(256, "SGD", 0.3))))
    assert "Divided by d_k², attention stays even to the end" in stuck
    back = " ".join(told.verdict(runs.recorded(Choice(256, "Adam", 1e-2))))
    assert "does not destroy the signal for good" in back


def test_section_shows_two_charts_and_what_to_see():
    app = page()
    assert len(app.get("vega_lite_chart")) == 2
    assert "made-up lookups" in said(app)
    assert "÷ √d_k: 90 % right by step" in said(app)
    assert "SYNTHETIC" in "".join(caption.value for caption in app.caption)


def test_section_follows_its_fields():
    app = page()
    before = said(app)
    control(app, "training_d_k").set_value(64).run()
    assert said(app) != before
    control(app, "training_optimiser").set_value("SGD").run()
    assert not app.exception
    assert "SGD, rate 0.3" in "".join(c.value for c in app.caption).replace("\\", "")
    control(app, "training_second").set_value("query_gradient").run()
    assert not app.exception


def control(app: AppTest, key: str):
    return app.button_group(key=key)


# --- a run before one's eyes


def test_live_run_from_the_first_step_to_the_last(monkeypatch):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes())
    app = page(fold_training_live=True)
    app.button(key="training_start").click().run()
    run = app.session_state["training_run"]
    until(lambda: not run.is_going)
    app.run()
    assert not app.exception
    assert run.state == "done"
    assert [record.step for record in run.records["√d_k"]] == [0, 1, 2, 3]
    assert len(app.get("vega_lite_chart")) == 4
    assert "seed 7" in "".join(c.value for c in app.caption)
    assert not app.button(key="training_start").disabled


def test_live_run_can_be_stopped(monkeypatch, gate):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes(steps=1000))
    app = page(fold_training_live=True)
    app.button(key="training_start").click().run()
    run = app.session_state["training_run"]
    until(lambda: bool(run.records["√d_k"]))
    app.run()
    assert app.button(key="training_start").disabled
    app.button(key="training_stop").click().run()
    gate.set()
    until(lambda: not run.is_going)
    app.run()
    assert run.state == "stopped"
    assert not app.exception


def test_a_closed_fold_stops_the_run(monkeypatch, gate):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes(steps=1000))
    app = page(fold_training_live=True)
    app.button(key="training_start").click().run()
    run = app.session_state["training_run"]
    app.session_state["fold_training_live"] = False
    app.run()
    gate.set()
    until(lambda: not run.is_going)
    assert run.state == "stopped"


def test_a_full_line_is_told(monkeypatch):
    monkeypatch.setattr(runs, "MOST_IN_LINE", 0)
    app = page(fold_training_live=True)
    app.button(key="training_start").click().run()
    assert [warning.value.replace("\\", "") for warning in app.warning] == [told.FULL]
    assert "training_run" not in app.session_state


def test_live_run_is_the_run_of_the_file():
    """Same seed, rate and divisor: a live run's first steps are those of the curves."""
    recipe = runs.live_recipes("SGD", 0.3, 2, ("d_k",))["d_k"]
    assert recipe.d_k == runs.LIVE_D_K
    whole = training.of_scale(64, "SGD", "d_k")
    assert replace(whole, rates=(0.3,), seeds=(2,)) == replace(
        recipe, steps=whole.steps, looks=whole.looks, held_out=whole.held_out
    )


# --- the line of all sessions


def test_one_after_the_other_and_each_is_told_its_place(gate):
    line = Line(at_once=1)
    first, second, third = (Run(recipes()) for _ in range(3))
    assert all(line.join(run) for run in (first, second, third))
    until(lambda: first.state == "running")
    assert [line.before(run) for run in (first, second, third)] == [0, 1, 2]
    assert told.progress(third, line.before(third)) == "Waiting: 2 before yours"
    gate.set()
    until(lambda: third.state == "done")
    assert first.state == second.state == "done"
    assert line.before(third) == 0


def test_two_train_at_once_where_there_is_room(gate):
    line = Line(at_once=2)
    first, second, third = (Run(recipes()) for _ in range(3))
    for run in (first, second, third):
        line.join(run)
    until(lambda: first.state == second.state == "running")
    assert third.state == "waiting"
    assert line.before(third) == 1
    gate.set()
    until(lambda: third.state == "done")


def test_runs_that_have_shown_the_same_are_not_taken_for_each_other(gate):
    line = Line(at_once=2)
    first, second = Run(recipes()), Run(recipes())
    for run in (first, second):
        line.join(run)
    until(lambda: bool(first.records["√d_k"]) and bool(second.records["√d_k"]))
    assert first != second
    assert [line.before(run) for run in (first, second)] == [0, 0]
    gate.set()
    until(lambda: first.state == second.state == "done")


def test_a_run_at_which_nobody_looks_stops_by_itself(monkeypatch, gate):
    monkeypatch.setattr(runs, "PATIENCE", 0.05)
    line = Line(at_once=1)
    first, second = Run(recipes(steps=1000)), Run(recipes())
    line.join(first)
    until(lambda: first.state == "running")
    line.join(second)
    until(lambda: second.state == "stopped")  # it waited, and its session was gone
    gate.set()
    until(lambda: first.state == "stopped")


def test_a_run_that_fails_says_so_and_lets_the_next_one_train(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    broken = {"1": replace(recipes()["1"], variant="none")}
    line = Line(at_once=1)
    first, second = Run(broken), Run(recipes())
    line.join(first)
    line.join(second)
    until(lambda: second.state == "done")
    assert first.state == "failed"
    assert told.progress(first, 0) == told.FAILED


def test_two_sessions_have_their_own_numbers():
    line = Line(at_once=2)
    both = [Run(recipes()), Run({n: replace(r, seeds=(8,)) for n, r in recipes().items()})]
    for run in both:
        line.join(run)
    until(lambda: all(run.state == "done" for run in both))
    for run in both:
        for name, recipe in run.recipes.items():
            for found, expected in zip(run.records[name], training.train(recipe), strict=True):
                assert torch.equal(found.loss, expected.loss)


def test_a_toy_takes_one_core_and_leaves_the_others_theirs(monkeypatch):
    monkeypatch.setattr(runs, "THREADS", 3)
    before, found = torch.get_num_threads(), {}

    def note(name: str) -> None:
        found[name] = torch.get_num_threads()

    def toy() -> None:
        runs._take_one_core()
        note("toy")
        later = threading.Thread(target=note, args=("later",))
        later.start()
        later.join()
        note("toy still")

    try:
        worker = threading.Thread(target=toy)
        worker.start()
        worker.join()
        assert found == {"toy": 1, "later": 3, "toy still": 1}
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


def test_a_start_waits_for_the_first_records_and_no_longer(gate):
    run = Run(recipes())
    run.wait_for_records(0.01)
    assert not any(run.records.values())
    gate.set()
    Line(at_once=1).join(run)
    run.wait_for_records(SOON)
    assert all(run.records.values())


def test_share_that_is_done():
    run = Run(recipes(steps=4))
    assert run.done == 0
    assert runs.seen(run) is None
    run.train()
    assert run.done == 1
    shown = runs.seen(run)
    assert shown is not None
    assert shown.outcomes["divisor"].tolist() == ["1", "√d_k"]
