"""Ways to project in training as a visitor's session runs them, and what is said of the numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from attnviz import lookup_task, training, training_frames
from attnviz.charts import theme
from attnviz.ui import experiment as runs
from attnviz.ui import experiment_figures as figures
from attnviz.ui import experiment_sentences as told
from attnviz.ui import training as lines
from attnviz.ui.experiment import Setting
from attnviz.ui.training import Line, Run

PAGE = Path(__file__).parent / "experiment_page.py"
SOON = 20.0  # seconds
ALL = tuple(theme.VARIANT_COLOURS)


def page(section: str = "", **state) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=60)
    if section:
        app.query_params["section"] = section
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    found = [*app.markdown, *app.caption, *app.info]
    return "\n".join(element.value for element in found).replace("\\", "").replace("\u2060", "")


def charts_of(app: AppTest) -> int:
    return len(app.get("vega_lite_chart"))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def recipes(steps: int = 3) -> dict[str, training.Recipe]:
    """Runs of a moment, a record at every step."""
    found = runs.live_recipes(Setting("same", ("Q K V", "K = V"), 5, 1e-2), 7)
    short = {"steps": steps, "looks": tuple(range(steps)), "batch": 11, "held_out": 13}
    return {name: replace(recipe, **short) for name, recipe in found.items()}


@pytest.fixture
def gate(monkeypatch) -> Iterator[Event]:
    """Training that waits at its second record until the gate is opened."""
    opened, train = Event(), training.train

    def waiting(recipe):
        for record in train(recipe):
            yield record
            assert opened.wait(SOON)

    monkeypatch.setattr(training, "train", waiting)
    yield opened
    opened.set()


# --- what is offered, and what is recorded


def test_fields_offer_what_the_file_holds():
    cells = training_frames.projection_cells()
    assert runs.TASKS == lookup_task.TASKS
    assert runs.WIDTHS == training.HEAD_WIDTHS
    assert set(cells["variant"]) == set(theme.VARIANT_COLOURS) == set(told.VARIANTS)
    for task in runs.TASKS:
        of_task = cells[cells["task"] == task]
        assert set(runs.WIDTHS[task]) == set(of_task["d_k"])
        assert set(of_task["rate"]) == {figures.RECORDED_RATES[task]}
        assert figures.RECORDED_RATES[task] in runs.RATES
        assert figures.FIRST_WIDTHS[task] in runs.WIDTHS[task]
        assert set(figures.SHOWN[task]) <= set(theme.VARIANT_COLOURS)


@pytest.mark.parametrize("task", runs.TASKS)
def test_a_live_run_is_a_recorded_one_with_more_looks(task):
    width, rate = runs.WIDTHS[task][0], figures.RECORDED_RATES[task]
    recipe = runs.live_recipes(Setting(task, ("x as key",), width, rate), 3)["x as key"]
    whole = training.of_projections(task, "x as key", width)
    assert replace(whole, seeds=(3,)) == replace(recipe, looks=whole.looks, held_out=whole.held_out)


@pytest.mark.parametrize(("task", "width"), [(t, w) for t in runs.TASKS for w in runs.WIDTHS[t]])
def test_every_recorded_setting_is_told(task, width):
    shown = runs.recorded(Setting(task, ALL, width, figures.RECORDED_RATES[task]))
    assert shown is not None
    lines_said = told.by_variant(shown)
    assert [line.split(":")[0] for line in lines_said] == list(ALL)
    assert not [line for line in lines_said if "nan" in line]
    caption = told.caption(shown)
    parts = ("synthetic · toy", "n = 16 items", f"d_k = d_v = {width}", "seeds 0 to 4", "800 steps")
    assert not [part for part in parts if part not in caption]


def test_another_rate_is_not_recorded():
    assert runs.recorded(Setting("same", ("Q K V",), 4, 0.01)) is None


# --- what is said, against the file itself


def percent(task: str, variant: str, width: int) -> float:
    cells = training_frames.projection_cells()
    wanted = (cells["task"] == task) & (cells["variant"] == variant) & (cells["d_k"] == width)
    return 100 * float(cells[wanted & (cells["step"] == 800)]["accuracy"].mean())


@pytest.mark.parametrize(("task", "cost"), [*product(runs.TASKS, told.COSTS)])
def test_every_answer_is_a_sentence(task, cost):
    sentences = told.verdict(runs.answers(task), cost, ALL)
    assert sentences
    assert not [line for line in sentences if "nan" in line or not line.endswith(".")]


def test_narrow_heads_need_three_and_wide_ones_do_not():
    narrow, wide, *_ = told.verdict(runs.answers("same"), "d_k", ("Q K V", "K = V"))
    numbers = [float(x) for x in re.findall(r"[\d.]+(?= ±)", narrow)]
    expected = [percent("same", "K = V", 4), percent("same", "Q K V", 4)]
    np.testing.assert_allclose(numbers, expected, atol=0.06)
    assert "At width 16 K = V is at 100 %: with room, two are enough" in wide


def test_fair_comparisons():
    pair = ("Q K V", "K = V")
    (parameters,) = told.verdict(runs.answers("same"), "weights", pair)
    assert "Q K V of width 4 (832 numbers in the matrices)" in parameters
    assert "K = V of width 6 (864)" in parameters
    assert "K = V still loses, though its head is wider." in parameters
    (cache,) = told.verdict(runs.answers("same"), "kept", pair)
    assert "Q K V of width 4 (8 numbers kept for each item)" in cache
    assert "K = V of width 8 (8)" in cache
    (level,) = told.verdict(runs.answers("copy a vector"), "weights", pair)
    assert "K = V of width 24 (1,920)" in level
    assert "sharing is level" in level
    (dearer,) = told.verdict(runs.answers("partner"), "weights", pair)
    assert "though its head is wider and costs more" in dearer


def test_a_shared_vector_looks_well_and_returns_badly():
    sentences = " ".join(told.verdict(runs.answers("copy a vector"), "d_k", ("Q K V", "K = V")))
    assert "R² 0.73 ± 0.03" in sentences
    assert "looks at the right item (weight 0.95) and returns it badly" in sentences


def test_pairs_are_lost_where_queries_are_keys():
    (sentence,) = told.verdict(runs.answers("partner"), "d_k", ("Q K V", "Q = K"))
    assert f"{percent('partner', 'Q = K', 32):.1f} ±" in sentence
    assert "at most one of each pair" in sentence


def test_a_linear_fourth_is_three_and_a_gate_is_not():
    shown = ("Q K V", "+ linear fourth", "+ query gate")
    linear, gate = told.verdict(runs.answers("readout by the query"), "d_k", shown)
    for variant in ("Q K V", "+ linear fourth"):
        assert f"{percent('readout by the query', variant, 16):.1f} ±" in linear
    assert "adds nothing" in linear
    assert "about half" in gate
    assert "the query gate, comes to 100 %" in gate
    *_, size = told.verdict(runs.answers("readout by the query"), "weights", shown)
    assert "Q K V of width 32 has 6,656 numbers" in size


def test_nothing_is_said_of_what_is_not_shown():
    for task, cost in product(runs.TASKS, told.COSTS):
        assert told.verdict(runs.answers(task), cost, ("Q K V",)) == []


# --- the chart that answers, on the page


@pytest.mark.parametrize("task", runs.TASKS)
@pytest.mark.parametrize("cost", told.COSTS)
def test_answer_on_every_task_at_every_cost(task, cost):
    app = page("widths", widths_task=task, widths_cost=cost)
    assert charts_of(app) == 1
    assert told.COMPARED[cost] in said(app)
    assert "SYNTHETIC" in said(app)
    for sentence in told.verdict(runs.answers(task), cost, figures.SHOWN[task]):
        assert sentence in said(app)


def test_answer_shows_first_what_the_claim_is_about():
    app = page("widths")
    chosen = app.button_group(key="widths_variants_same").value
    assert chosen == ["Q K V", "K = V"]
    app.button_group(key="widths_variants_same").set_value([*chosen, "x as key"]).run()
    assert not app.exception
    assert "With x itself as key" in said(app)


def test_nothing_chosen_is_told():
    for section, name in (("widths", "widths"), ("", "experiment")):
        app = page(section)
        app.button_group(key=f"{name}_variants_same").set_value([]).run()
        assert not app.exception
        assert charts_of(app) == 0
        assert told.NONE_CHOSEN in said(app)


def test_both_sections_may_be_in_view():
    app = page("both", widths_task="partner")
    assert charts_of(app) == 1
    assert app.button_group(key="experiment_task").value == "same"


# --- before one's eyes


def test_recorded_curves_stand_under_the_run():
    app = page(fold_experiment_recorded=True)
    assert charts_of(app) == 2
    assert "seeds 0 to 4" in said(app)
    app.button_group(key="experiment_rate_same").set_value(0.01).run()
    assert charts_of(app) == 0
    assert "Nothing is recorded for rate 0.01" in said(app)
    app.button_group(key="experiment_task").set_value("copy a vector").run()
    assert not app.exception
    assert charts_of(app) == 2
    assert "contents are vectors of 16 normal numbers" in said(app)


def test_live_run_from_the_first_step_to_the_last(monkeypatch):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes())
    app = page()
    assert charts_of(app) == 0
    app.button(key="experiment_start").click().run()
    run = app.session_state["experiment_run"]
    until(lambda: not run.is_going)
    app.run()
    assert not app.exception
    assert run.state == "done"
    assert [record.step for record in run.records["K = V"]] == [0, 1, 2, 3]
    assert charts_of(app) == 4  # two curves, two probes
    assert "seed 7" in said(app)
    assert "After 3 steps" in said(app)
    assert not app.button(key="experiment_start").disabled


def test_live_run_can_be_stopped(monkeypatch, gate):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes(steps=1000))
    app = page()
    app.button(key="experiment_start").click().run()
    run = app.session_state["experiment_run"]
    until(lambda: bool(run.records["K = V"]))
    app.run()
    assert app.button(key="experiment_start").disabled
    app.button(key="experiment_stop").click().run()
    gate.set()
    until(lambda: not run.is_going)
    app.run()
    assert run.state == "stopped"
    assert not app.exception


def test_a_run_of_a_session_that_is_gone_stops(monkeypatch, gate):
    monkeypatch.setattr(figures, "live_recipes", lambda *_: recipes(steps=10**6))
    monkeypatch.setattr(lines, "PATIENCE", 0.2)
    app = page()
    app.button(key="experiment_start").click().run()
    run = app.session_state["experiment_run"]
    del app  # nobody looks any more
    gate.set()
    until(lambda: run.state == "stopped")
    assert 0 < len(run.records["Q K V"]) < 10**6


def test_a_full_line_is_told(monkeypatch):
    monkeypatch.setattr(lines, "MOST_IN_LINE", 0)
    app = page()
    app.button(key="experiment_start").click().run()
    assert len(app.warning) == 1
    assert "experiment_run" not in app.session_state


def test_two_sessions_have_their_own_numbers():
    line = Line(at_once=2)
    both = [
        Run(recipes(), "variant"),
        Run({n: replace(r, seeds=(8,)) for n, r in recipes().items()}, "variant"),
    ]
    for run in both:
        line.join(run)
    until(lambda: all(run.state == "done" for run in both))
    for run in both:
        for name, recipe in run.recipes.items():
            for found, expected in zip(run.records[name], training.train(recipe), strict=True):
                assert torch.equal(found.loss, expected.loss)
                assert torch.equal(found.attention, expected.attention)


def test_what_a_run_has_shown():
    run = Run(recipes(steps=4), "variant")
    assert lines.seen(run) is None
    assert runs.probes(run) == []
    run.train()
    shown = lines.seen(run)
    assert shown is not None
    assert shown.outcomes["variant"].tolist() == ["Q K V", "K = V"]
    first, second = runs.probes(run)
    assert (first.variant, second.variant, second.step) == ("Q K V", "K = V", 4)
    last = run.records["K = V"][-1].attention[0]
    np.testing.assert_array_equal(second.weights["weight"], last.flatten())
    np.testing.assert_allclose(second.weights.groupby("query")["weight"].sum(), 1, rtol=1e-5)


def test_pictures_change_now_and_then_while_it_trains():
    run = Run(recipes(steps=3), "variant")
    run.train()
    run.state = "running"
    assert {probe.step for probe in runs.probes(run)} == {0}
    every = sorted(set(runs.live_recipes(Setting("same", ALL, 4, 1e-3), 0)["Q K V"].looks))
    assert {later - sooner for sooner, later in pairwise(every)} == {runs.LOOK_EVERY}
    assert runs.PROBE_EVERY % runs.LOOK_EVERY == 0
