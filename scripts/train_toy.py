"""Train the toys whose curves attnviz/curves/ holds.

    python -m scripts.train_toy [--only "64 Adam √d_k"] [--again] [--out attnviz/curves]

`scale.csv` is one head that learns lookups under each divisor (`training.of_scale`): d_k = 64 and
256, Adam and SGD, three rates, five seeds. `projections.csv` is every way to project
(`training.of_projections`): all tasks, variants and head widths, five seeds. Cells that are in the
files already are left as they are, so that a run that was stopped goes on; `--again` trains them
anew. Half an hour on one core.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from attnviz import training, training_frames
from attnviz.projections import VARIANTS
from attnviz.synthetic import POWERS
from attnviz.training import OPTIMISERS, Recipe, Record

DIGITS = 4

Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A file of curves: its columns, its cells in their order, and the run of each.

    Some of the numbers are left out, so that the file stays small.
    """

    name: str
    columns: Sequence[str]
    cells: Callable[[], Iterator[Cell]]
    recipe: Callable[..., Recipe]
    left_out: Sequence[str]
    read: Callable[[Path], pd.DataFrame]

    @property
    def numbers(self) -> list[str]:
        """The numbers that it holds."""
        return [name for name in training_frames.NUMBERS if name not in self.left_out]


def scale_cells() -> Iterator[Cell]:
    """d_k, optimiser and divisor."""
    yield from itertools.product(training.D_KS, OPTIMISERS, POWERS)


def projection_cells() -> Iterator[Cell]:
    """Task, variant and head width."""
    for task, widths in training.HEAD_WIDTHS.items():
        yield from itertools.product([task], VARIANTS, widths)


SCALE = Table(
    training_frames.SCALE.name,
    training_frames.SCALE_CELL,
    scale_cells,
    lambda *cell: training.of_scale(*cell),
    ["target_weight"],
    training_frames.scale_cells,
)
PROJECTIONS = Table(
    training_frames.PROJECTIONS.name,
    training_frames.PROJECTIONS_CELL,
    projection_cells,
    lambda *cell: training.of_projections(*cell),
    ["jacobian_mean", "jacobian_median", "query_gradient"],
    training_frames.projection_cells,
)
TABLES = (SCALE, PROJECTIONS)


def name_of(cell: Cell) -> str:
    """A cell as `--only` takes it."""
    return " ".join(map(str, cell))


def trained(table: Table, cell: Cell) -> pd.DataFrame:
    """The rows of one cell."""
    recipe = table.recipe(*cell)
    rows = training_frames.rows_of(recipe, watched(recipe, name_of(cell)))
    rows = rows.drop(columns=[*table.left_out])
    for place, (column, value) in enumerate(zip(table.columns, cell, strict=True)):
        rows.insert(place, column, value)
    return rows


def watched(recipe: Recipe, name: str) -> Iterator[Record]:
    """The records of a run, with a bar on the terminal."""
    with tqdm(total=recipe.steps, desc=name) as bar:
        for record in training.train(recipe):
            bar.update(record.step - bar.n)
            yield record


def of_cell(table: Table, rows: pd.DataFrame, cell: Cell) -> pd.Series:
    """Which rows are of a cell."""
    return (rows[table.columns] == list(cell)).all(axis=1)


def written(table: Table, rows: pd.DataFrame, path: Path) -> None:
    """Write all rows in one move, so that a stop in between leaves the old file."""
    order = {cell: place for place, cell in enumerate(table.cells())}
    places = [order[cell] for cell in rows[table.columns].itertuples(index=False, name=None)]
    keys = ["place", *training_frames.REPLICA, "step"]
    ordered = rows.assign(place=places).sort_values(keys).drop(columns="place")
    unfinished = path.with_suffix(".new")
    ordered.to_csv(
        unfinished, index=False, float_format=f"%.{DIGITS}g", encoding="utf-8", lineterminator="\n"
    )
    unfinished.replace(path)


def rebuild(table: Table, folder: Path, only: str | None, again: bool) -> None:
    """Train the cells that are asked for, and put them into the file one by one."""
    path = folder / table.name
    for cell in table.cells():
        if only not in (None, name_of(cell)):
            continue
        there = table.read(path) if path.exists() else None
        if there is not None:
            same = of_cell(table, there, cell)
            if same.any() and not again:
                continue
            there = there[~same]
        written(table, pd.concat([there, trained(table, cell)], ignore_index=True), path)


def main() -> None:
    """Rebuild the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one cell, as “d_k optimiser divisor” or “task variant d_k”")
    parser.add_argument("--again", action="store_true", help="also what is in the files already")
    parser.add_argument("--out", type=Path, default=training_frames.CURVES)
    arguments = parser.parse_args()
    names = [name_of(cell) for table in TABLES for cell in table.cells()]
    if arguments.only not in (None, *names):
        parser.error(f"no cell is called {arguments.only!r}; there are: {', '.join(names)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        rebuild(table, arguments.out, arguments.only, arguments.again)


if __name__ == "__main__":
    main()
