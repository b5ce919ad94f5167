"""The files of curves: their cells, and that training again gives their numbers."""

from __future__ import annotations

import sys
from dataclasses import replace

import pandas as pd
import pytest

from attnviz import training, training_frames
from attnviz.synthetic import POWERS
from attnviz.training import Recipe
from scripts import train_toy as script
from scripts.train_toy import PROJECTIONS, SCALE, TABLES, Table

LARGEST = 300_000  # bytes
SEEDS = 5

tables = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


@pytest.fixture(scope="module")
def files() -> dict[str, pd.DataFrame]:
    return {table.name: table.read(training_frames.CURVES / table.name) for table in TABLES}


def cells_of(table: Table, rows: pd.DataFrame) -> list[script.Cell]:
    named = rows[[*table.columns]].drop_duplicates()
    return list(named.itertuples(index=False, name=None))


@tables
def test_file_holds_every_cell_in_order(table, files):
    assert cells_of(table, files[table.name]) == list(table.cells())


def test_numbers_of_cells():
    assert len(list(SCALE.cells())) == 2 * 2 * 4
    assert len(list(PROJECTIONS.cells())) == (4 + 4 + 5 + 4) * 8


@tables
def test_file_holds_every_replica_up_to_the_end_or_to_where_it_diverged(table, files):
    rows = files[table.name]
    keys = [*table.columns, *training_frames.REPLICA]
    replicas = 0
    for (*cell, rate, seed), found in rows.groupby(keys, sort=False):
        recipe = table.recipe(*cell)
        lost = found["loss"].isna()
        assert (rate, seed) in recipe.replicas
        assert found["step"].iloc[0] == 0
        assert lost.iloc[-1] if lost.any() else found["step"].iloc[-1] == recipe.steps
        assert lost.sum() <= 1
        replicas += 1
    rates = {SCALE.name: 3, PROJECTIONS.name: 1}[table.name]
    assert replicas == len(list(table.cells())) * rates * SEEDS


@tables
def test_file_is_small(table):
    assert (training_frames.CURVES / table.name).stat().st_size <= LARGEST


@pytest.mark.parametrize(
    ("table", "cell"),
    [
        (SCALE, (64, "Adam", "√d_k")),
        (SCALE, (64, "SGD", "1")),
        (SCALE, (256, "Adam", "1")),
        (PROJECTIONS, ("same", "K = V", 4)),
        (PROJECTIONS, ("copy a vector", "x as key", 16)),
    ],
    ids=lambda given: given.name if isinstance(given, Table) else script.name_of(given),
)
def test_training_again_gives_the_numbers_of_the_file(table, cell, files):
    """Two replicas of a cell, as far as rounding has not yet driven two machines apart."""
    whole = table.recipe(*cell)
    recipe = replace(whole, rates=whole.rates[:1], seeds=whole.seeds[1:3])
    until = [look for look in whole.looks if look <= 60]
    run = training.train(recipe)
    again = training_frames.rows_of(recipe, [next(run) for _ in until])
    rows = files[table.name]
    rows = rows[script.of_cell(table, rows, cell) & (rows["step"] <= until[-1])]
    rows = rows[rows["rate"].isin(recipe.rates) & rows["seed"].isin(recipe.seeds)]
    keys = [*training_frames.REPLICA, "step"]
    both = rows.merge(again, on=keys, suffixes=("", "_again"))
    assert len(both) == len(again) == len(rows) == 2 * len(until)
    for name in table.numbers:
        expected = pytest.approx(both[name].tolist(), rel=0.02, abs=0.005)
        assert both[f"{name}_again"].tolist() == expected


def quick(d_k: int, optimiser: str, divisor: str) -> Recipe:
    rate = {"Adam": 1e-2, "SGD": 0.3}[optimiser]
    return Recipe(5, 5.0 ** POWERS[divisor], optimiser, (rate,), (1, 2), 3, (0,), batch=7)


def test_cells_are_added_one_by_one_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "of_scale", quick)
    path = tmp_path / SCALE.name
    script.rebuild(SCALE, tmp_path, "256 SGD d_k", again=False)
    script.rebuild(SCALE, tmp_path, "64 Adam d_k²", again=False)
    rows = SCALE.read(path)
    assert cells_of(SCALE, rows) == [(64, "Adam", "d_k²"), (256, "SGD", "d_k")]
    assert len(rows) == 2 * 2 * 2

    before = path.read_bytes()
    monkeypatch.setattr(script, "trained", lambda *_: pytest.fail("trained once more"))
    script.rebuild(SCALE, tmp_path, "64 Adam d_k²", again=False)
    assert path.read_bytes() == before


def test_a_cell_that_is_trained_again_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "of_scale", quick)
    path = tmp_path / SCALE.name
    script.rebuild(SCALE, tmp_path, "64 Adam 1", again=False)
    before = path.read_bytes()
    script.rebuild(SCALE, tmp_path, "64 Adam 1", again=True)
    assert path.read_bytes() == before


def test_one_command_trains_the_cell_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "of_scale", quick)
    named = ["train_toy", "--only", "64 SGD √d_k", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", named)
    script.main()
    assert [path.name for path in tmp_path.iterdir()] == [SCALE.name]


def test_no_such_cell(tmp_path, monkeypatch, capsys):
    named = ["train_toy", "--only", "65 Adam 1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", named)
    with pytest.raises(SystemExit):
        script.main()
    assert "no cell is called '65 Adam 1'" in capsys.readouterr().err
