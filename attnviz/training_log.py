"""The training log of the bundled model, and where in it the induction heads appear.

The log is a table that `scripts.train_bundled_model` wrote beside the weights. Losses are in nats
per token, scores those of the best head at that step, and both are of texts not trained on.

| frame | one row | columns |
|---|---|---|
| log | a measured step | step, context, story_loss, repeat_loss, repeat_accuracy, |
| | | previous_token, induction, first_token |
| curves | a number at a step | step, quantity, name, value |
| stages | a context length after the first | step, context |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

LOG = Path(__file__).parent / "bundled" / "training_log.csv"
CURVES = {
    "repeat_loss": ("loss", "on repeats"),
    "story_loss": ("loss", "on stories"),
    "induction": ("score", "induction"),
    "previous_token": ("score", "previous token"),
}
BEGUN, DONE = 0.1, 0.9  # of the largest score


@dataclass(frozen=True)
class PhaseChange:
    """The two measured steps between which a score rises."""

    begin: int
    end: int


def log(path: Path = LOG) -> pd.DataFrame:
    """What was measured, step by step."""
    return pd.read_csv(path, encoding="utf-8")


def phase_change(log: pd.DataFrame, score: str = "induction") -> PhaseChange:
    """Where a score rises: the first step above a tenth of its largest, and above nine tenths.

    Olsson et al. 2022, "In-context learning and induction heads", call it so; how they bound it
    is not copied here.
    """
    share = log[score] / log[score].max()
    begin, end = (int(log.loc[share >= least, "step"].iloc[0]) for least in (BEGUN, DONE))
    return PhaseChange(begin, end)


def at(log: pd.DataFrame, step: int) -> dict[str, float]:
    """All numbers of a measured step."""
    return {str(name): float(value) for name, value in log.set_index("step").loc[step].items()}


def curves(log: pd.DataFrame) -> pd.DataFrame:
    """Losses and scores, a row for each number."""
    long = log.melt("step", list(CURVES), "column", "value")
    named = long["column"].map(CURVES)
    columns = {"quantity": named.str[0], "name": named.str[1], "value": long["value"]}
    return pd.DataFrame({"step": long["step"], **columns})


def stages(log: pd.DataFrame) -> pd.DataFrame:
    """From which step on the model was trained on longer contexts (tokens)."""
    first = log.drop_duplicates("context")[["step", "context"]]
    return first.iloc[1:].reset_index(drop=True)
