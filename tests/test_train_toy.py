"""The file of curves: its cells, and that training again gives its numbers."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from attnviz import training, training_frames
from attnviz.synthetic import POWERS
from attnviz.training import Recipe
from scripts import train_toy as script

LARGEST = 300_000  # bytes
NUMBERS = [name for name in training_frames.NUMBERS if name != script.LEFT_OUT]


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    return training_frames.scale_cells()


def test_file_holds_every_cell_in_order(cells):
    found = list(cells[training_frames.CELL].drop_duplicates().itertuples(index=False, name=None))
    assert found == list(script.scale_cells())
    assert len(found) == len(training.D_KS) * 2 * len(POWERS)


def test_file_holds_every_replica_up_to_the_end_or_to_where_it_diverged(cells):
    keys = [*training_frames.CELL, *training_frames.REPLICA]
    for (d_k, optimiser, divisor, rate, seed), rows in cells.groupby(keys):
        recipe = training.of_scale(d_k, optimiser, divisor)
        assert (rate, seed) in recipe.replicas
        lost = rows["loss"].isna()
        assert rows["step"].iloc[0] == 0
        assert lost.iloc[-1] if lost.any() else rows["step"].iloc[-1] == recipe.steps
    assert len(cells[keys].drop_duplicates()) == len(list(script.scale_cells())) * 15


def test_file_is_small():
    assert training_frames.SCALE.stat().st_size <= LARGEST


@pytest.mark.parametrize(
    "cell", [(64, "Adam", "√d_k"), (64, "SGD", "1"), (256, "Adam", "1")], ids=script.name_of
)
def test_training_again_gives_the_numbers_of_the_file(cells, cell):
    """Two replicas of a cell, as far as rounding has not yet driven two machines apart."""
    whole = training.of_scale(*cell)
    recipe = replace(whole, rates=whole.rates[:1], seeds=whole.seeds[1:3], steps=60)
    again = training_frames.rows_of(recipe, training.train(recipe))
    rows = cells[script.of_cell(cells, cell)]
    rows = rows[rows["rate"].isin(recipe.rates) & rows["seed"].isin(recipe.seeds)]
    rows = rows[rows["step"] <= recipe.steps]
    keys = [*training_frames.REPLICA, "step"]
    both = rows.merge(again, on=keys, suffixes=("", "_again"))
    assert len(both) == len(again) == len(rows) == 8
    for name in NUMBERS:
        tolerance = {"rel": 0.02, "abs": 0.005}
        assert both[f"{name}_again"].tolist() == pytest.approx(both[name].tolist(), **tolerance)


def quick(d_k: int, optimiser: str, divisor: str) -> Recipe:
    rate = {"Adam": 1e-2, "SGD": 0.3}[optimiser]
    return Recipe(5, 5.0 ** POWERS[divisor], optimiser, (rate,), (1, 2), 3, (0,), batch=7)


def test_cells_are_added_one_by_one_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "of_scale", quick)
    path = tmp_path / "scale.csv"
    script.rebuild(path, "256 SGD d_k", again=False)
    script.rebuild(path, "64 Adam d_k²", again=False)
    rows = training_frames.scale_cells(path)
    cells = list(rows[training_frames.CELL].drop_duplicates().itertuples(index=False, name=None))
    assert cells == [(64, "Adam", "d_k²"), (256, "SGD", "d_k")]
    assert len(rows) == 2 * 2 * 2

    before = path.read_bytes()
    monkeypatch.setattr(script, "trained", lambda cell: pytest.fail("trained once more"))
    script.rebuild(path, "64 Adam d_k²", again=False)
    assert path.read_bytes() == before


def test_a_cell_that_is_trained_again_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "of_scale", quick)
    path = tmp_path / "scale.csv"
    script.rebuild(path, "64 Adam 1", again=False)
    before = path.read_bytes()
    script.rebuild(path, "64 Adam 1", again=True)
    assert path.read_bytes() == before


def test_no_such_cell(tmp_path):
    with pytest.raises(SystemExit, match="No cell is called '65 Adam 1'"):
        script.rebuild(tmp_path / "scale.csv", "65 Adam 1", again=False)
