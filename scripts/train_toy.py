"""Train the toys whose curves attnviz/curves/ holds.

    python -m scripts.train_toy [--only "64 Adam √d_k"] [--again] [--out attnviz/curves]

`scale.csv` is one head that learns lookups under each divisor (`training.of_scale`): d_k = 64 and
256, Adam and SGD, three rates, five seeds. Cells that are in the file already are left as they
are, so that a run that was stopped goes on; `--again` trains them anew. Twenty minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from attnviz import training, training_frames
from attnviz.synthetic import POWERS
from attnviz.training import OPTIMISERS, Optimiser, Recipe, Record

DIGITS = 4
LEFT_OUT = "target_weight"  # nothing on the page shows it, and the file stays small

Cell = tuple[int, Optimiser, str]


def scale_cells() -> Iterator[Cell]:
    """d_k, optimiser and divisor of all curves, in the order of the file."""
    yield from itertools.product(training.D_KS, OPTIMISERS, POWERS)


def name_of(cell: Cell) -> str:
    """A cell as `--only` takes it."""
    return " ".join(map(str, cell))


def trained(cell: Cell) -> pd.DataFrame:
    """The rows of one cell."""
    recipe = training.of_scale(*cell)
    rows = training_frames.rows_of(recipe, watched(recipe, name_of(cell))).drop(columns=LEFT_OUT)
    for place, (column, value) in enumerate(zip(training_frames.CELL, cell, strict=True)):
        rows.insert(place, column, value)
    return rows


def watched(recipe: Recipe, name: str) -> Iterator[Record]:
    """The records of a run, with a bar on the terminal."""
    with tqdm(total=recipe.steps, desc=name) as bar:
        for record in training.train(recipe):
            bar.update(record.step - bar.n)
            yield record


def written(rows: pd.DataFrame, path: Path) -> None:
    """Write all rows in one move, so that a stop in between leaves the old file."""
    order = {name_of(cell): place for place, cell in enumerate(scale_cells())}
    places = [order[name_of(tuple(cell))] for cell in rows[training_frames.CELL].to_numpy()]
    keys = [*training_frames.REPLICA, "step"]
    ordered = rows.assign(place=places).sort_values(["place", *keys]).drop(columns="place")
    unfinished = path.with_suffix(".new")
    ordered.to_csv(
        unfinished, index=False, float_format=f"%.{DIGITS}g", encoding="utf-8", lineterminator="\n"
    )
    unfinished.replace(path)


def rebuild(path: Path, only: str | None, again: bool) -> None:
    """Train the cells that are asked for, and put them into the file one by one."""
    cells = [cell for cell in scale_cells() if only in (None, name_of(cell))]
    if not cells:
        names = ", ".join(name_of(cell) for cell in scale_cells())
        raise SystemExit(f"No cell is called {only!r}. There are: {names}.")
    for cell in cells:
        there = training_frames.scale_cells(path) if path.exists() else None
        if there is not None:
            same = of_cell(there, cell)
            if same.any() and not again:
                continue
            there = there[~same]
        written(pd.concat([there, trained(cell)], ignore_index=True), path)


def of_cell(rows: pd.DataFrame, cell: Cell) -> pd.Series:
    """Which rows are of a cell."""
    return (rows[training_frames.CELL] == list(cell)).all(axis=1)


def main() -> None:
    """Rebuild the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one cell, as “d_k optimiser divisor”")
    parser.add_argument("--again", action="store_true", help="also what is in the file already")
    parser.add_argument("--out", type=Path, default=training_frames.CURVES)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rebuild(arguments.out / training_frames.SCALE.name, arguments.only, arguments.again)


if __name__ == "__main__":
    main()
