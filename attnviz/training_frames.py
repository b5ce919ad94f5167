"""Training runs as tidy frames: the one place that spells their column names.

| frame | one row | columns |
|---|---|---|
| rows_of | a replica at a step | rate, seed, step, and the numbers of a `training.Record` |
| scale_cells | the same, from the data file | d_k, optimiser, divisor, and those |
| projection_cells | the same, from the data file | task, variant, d_k, and those |
| curves | a curve at a step | `by`, step, quantity, median, low, high, seeds |
| lost | a curve and a step at which seeds diverged | `by`, step, seeds |
| outcomes | a curve | `by`, and see there |
| at_the_start | a curve | `by`, query_gradient, jacobian_mean, jacobian_median, entropy |
| by_width | a variant at a head width | task, variant, d_k, and see there |
| attention | a query and an item of the probe | `by`, query, item, weight |
| references | a number to compare with | quantity, value, name |

`by` names the column that tells curves apart: divisor, or variant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import lookup_task, projections, training
from attnviz.lookup_task import CHANCE, ITEMS, Task
from attnviz.projections import VARIANTS
from attnviz.training import Recipe, Record

CURVES = Path(__file__).parent / "curves"
SCALE, PROJECTIONS = CURVES / "scale.csv", CURVES / "projections.csv"
NUMBERS = (
    *("loss", "accuracy", "entropy", "target_weight"),
    *("jacobian_mean", "jacobian_median", "query_gradient"),
)
REPLICA = ["rate", "seed"]
SCALE_CELL = ["d_k", "optimiser", "divisor"]
PROJECTIONS_CELL = ["task", "variant", "d_k"]
LEARNT = 0.9  # the accuracy that counts as learnt
ONE_OF_EACH_PAIR = (1 + CHANCE) / 2
NO_BIT = {"accuracy": 0.5, "loss": math.log(2)}


def rows_of(recipe: Recipe, records: Iterable[Record]) -> pd.DataFrame:
    """What was recorded, a row for each replica; one that diverged ends with a row of NaN."""
    known = list(records)
    replicas = pd.DataFrame(recipe.replicas * len(known), columns=REPLICA)
    steps = np.repeat([record.step for record in known], len(recipe.replicas))
    numbers = {
        name: torch.cat([getattr(record, name) for record in known]).numpy() for name in NUMBERS
    }
    return until_lost(replicas.assign(step=steps, **numbers))


def until_lost(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of each replica up to the first without a loss."""
    lost = rows["loss"].isna().groupby([rows[name] for name in REPLICA]).cumsum()
    return rows[lost <= 1].reset_index(drop=True)


def scale_cells(path: Path = SCALE) -> pd.DataFrame:
    """The curves of the four divisors, as `scripts.train_toy` wrote them."""
    return pd.read_csv(path, encoding="utf-8", dtype={"divisor": str})


def projection_cells(path: Path = PROJECTIONS) -> pd.DataFrame:
    """The curves of all ways to project, as `scripts.train_toy` wrote them."""
    return pd.read_csv(path, encoding="utf-8")


def cell(rows: pd.DataFrame, d_k: int, optimiser: str, rate: float) -> pd.DataFrame:
    """Of all curves those that one chart shows: every divisor and seed at one rate."""
    wanted = (rows["d_k"] == d_k) & (rows["optimiser"] == optimiser)
    return rows[wanted & np.isclose(rows["rate"], rate)]


def curves(
    rows: pd.DataFrame, quantities: Sequence[str] = NUMBERS, by: str = "divisor"
) -> pd.DataFrame:
    """Median over the seeds with least and largest; who diverged is left out from there on.

    `seeds` is how many the median is of; where none is left there is no row.
    """
    long = rows.melt([by, "seed", "step"], list(quantities), "quantity", "value")
    groups = long.dropna().groupby([by, "step", "quantity"], sort=False)["value"]
    found = groups.agg(median="median", low="min", high="max", seeds="count")
    return found.reset_index()


def lost(rows: pd.DataFrame, by: str = "divisor") -> pd.DataFrame:
    """At which recorded step how many seeds of a curve were first without numbers."""
    gone = rows[rows["loss"].isna()]
    found = gone.groupby([by, "step"], sort=False)["seed"].count()
    return found.rename("seeds").reset_index()


def references(task: Task = "same") -> pd.DataFrame:
    """What guessing gives, and who lacks one part of what a task asks for.

    The expectations are exact but for the bag's, which has three digits. Where partners are asked
    for and Q = K, at most one of each pair is found and the other guessed (of a linear head, whose
    scores are then symmetric); who does not know the query's bit is right half the time.
    """
    known = [("entropy", 1.0, "even weights"), ("target_weight", 1 / ITEMS, "even weights")]
    if task == "copy a vector":
        known += [("accuracy", 0.0, "always the mean"), ("loss", 1.0, "always the mean")]
    else:
        known += [
            ("accuracy", CHANCE, "guessing"),
            ("accuracy", lookup_task.BAG_CEILING, "the most frequent content, always"),
            ("loss", -math.log(CHANCE), "guessing"),
        ]
    if task == "partner":
        known.append(("accuracy", ONE_OF_EACH_PAIR, "one of each pair, the other guessed"))
    if task == "readout by the query":
        known += [(name, value, "without the query’s bit") for name, value in NO_BIT.items()]
    return pd.DataFrame(known, columns=["quantity", "value", "name"])


def attention(name: str, weights: Float[Tensor, "query item"], by: str = "divisor") -> pd.DataFrame:
    """What each query gives each item of the probe; query i has its answer in item i."""
    queries, items = np.indices(weights.shape).reshape(2, -1)
    columns = {"query": queries, "item": items, "weight": weights.numpy().ravel()}
    return pd.DataFrame({by: name, **columns})


def outcomes(rows: pd.DataFrame, by: str = "divisor") -> pd.DataFrame:
    """How each curve ended.

    Columns: `by`, reached, steps_to_90, accuracy, accuracy_std, loss, diverged, seeds.
    `reached` is how many of the seeds came to 90 %, `steps_to_90` the median over all seeds of the
    first recorded step with that (NaN where half of them or more never came to it); accuracy and
    loss are those of the last step, over the seeds that did not diverge.
    """
    found = []
    for name, of_name in rows.groupby(by, sort=False):
        seeds = [seed for _, seed in of_name.groupby("seed")]
        first = np.array([_first_learnt(seed) for seed in seeds])
        last = [seed.sort_values("step").iloc[-1] for seed in seeds]
        kept = [row for row in last if np.isfinite(row["loss"])]
        accuracies = np.array([row["accuracy"] for row in kept]) if kept else np.array([np.nan])
        steps = float(np.median(first))
        found.append(
            {
                by: name,
                "reached": int(np.isfinite(first).sum()),
                "steps_to_90": steps if np.isfinite(steps) else np.nan,
                "accuracy": float(accuracies.mean()),
                "accuracy_std": float(accuracies.std(ddof=1)) if len(kept) > 1 else np.nan,
                "loss": float(np.mean([row["loss"] for row in kept])) if kept else np.nan,
                "diverged": len(seeds) - len(kept),
                "seeds": len(seeds),
            }
        )
    return pd.DataFrame(found)


def _first_learnt(seed: pd.DataFrame) -> float:
    learnt = seed.loc[seed["accuracy"] >= LEARNT, "step"]
    return float(learnt.min()) if len(learnt) else np.inf


def at_the_start(rows: pd.DataFrame, by: str = "divisor") -> pd.DataFrame:
    """Before the first step, means over the seeds: gradient of W_Q, ‖J‖ of the rows, entropy.

    The data file of projections has of these the entropy only.
    """
    numbers = ["query_gradient", "jacobian_mean", "jacobian_median", "entropy"]
    first = rows[rows["step"] == 0]
    known = [name for name in numbers if name in rows]
    return first.groupby(by, sort=False)[known].mean().reset_index()


def by_width(rows: pd.DataFrame) -> pd.DataFrame:
    """What each variant came to at each head width, with what it costs.

    Columns: task, variant, d_k; accuracy (mean over the seeds), accuracy_std, low, high;
    target_weight, the mean weight on the item that holds the answer; weights, the numbers in its
    matrices; kept, the numbers that a cache holds for each item; seeds.
    """
    last = rows[rows["step"] == rows["step"].max()]
    groups = last.groupby(PROJECTIONS_CELL, sort=False)
    found = groups["accuracy"].agg(
        accuracy="mean", accuracy_std="std", low="min", high="max", seeds="count"
    )
    found = found.assign(target_weight=groups["target_weight"].mean()).reset_index()
    costs = [_costs(*cell) for cell in found[PROJECTIONS_CELL].itertuples(index=False, name=None)]
    return found.assign(weights=[w for w, _ in costs], kept=[kept for _, kept in costs])


def _costs(task: Task, variant: str, width: int) -> tuple[int, int]:
    """Numbers in the matrices, and numbers kept for each item."""
    widths = training.of_projections(task, variant, width).widths
    known = VARIANTS[variant]
    return projections.weights_of(known, widths), projections.numbers_kept(known, widths)
