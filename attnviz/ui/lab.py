"""What the scale lab is set to, and what either of its sides shows.

Random vectors and the head on screen come as the same frames, so that the same charts draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.moments import Vectors

POWER_NAMES = {0.0: "1", 0.5: "√d_k", 1.0: "d_k", 2.0: "d_k²"}


@dataclass(frozen=True)
class Setting:
    """What is drawn, and what it is divided by: d_k to a power.

    `n` counts the keys of a query. The rest is as in `attnviz.moments.Vectors`.
    """

    d_k: int
    n: int
    seed: int
    power: float = 0.5
    entries: Literal["Gaussian", "Rademacher", "uniform", "Laplace", "normalised"] = "Gaussian"
    query_std: float = 1.0
    key_std: float = 1.0
    query_mean: float = 0.0
    key_mean: float = 0.0
    correlation: float = 0.0

    @property
    def vectors(self) -> Vectors:
        """What queries and keys are drawn from."""
        from attnviz.moments import Vectors

        return Vectors(
            self.entries,
            self.query_std,
            self.key_std,
            self.query_mean,
            self.key_mean,
            self.correlation,
        )

    @property
    def plain(self) -> bool:
        """Whether the entries are as the paper has them: mean 0, variance 1, independent."""
        moved = (self.query_std, self.key_std, self.query_mean, self.key_mean, self.correlation)
        return moved == (1, 1, 0, 0, 0)


def divisor_name(power: float) -> str:
    """What d_k to this power is called."""
    return POWER_NAMES.get(power, f"d_k^{power:g}")


def powers(power: float) -> dict[str, float]:
    """The four divisors by name, and the chosen one where it is another."""
    return {name: known for known, name in POWER_NAMES.items()} | {divisor_name(power): power}


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of scores under a divisor, drawn or read, as frames of `attnviz.lab_frames`.

    `n` counts the keys of the row on screen. `variance` and `row_variance` are those of the
    scores, pooled and within rows, with standard errors where rows are independent draws, else
    None; `predicted` and `predicted_row` are the closed forms: for a head those of independent
    entries of variance 1. `logit_variance` is within rows. `reach` is what the axes of scores
    and of logits span. `most_keys` is how many keys a row sees at most; `even_weight` and
    `even_keys` are what the largest weight and the effective number of keys would be on average
    over the rows if all weights were even.
    """

    d_k: int
    n: int
    name: str
    divisor: float
    scores: pd.DataFrame
    scores_curve: pd.DataFrame
    logits: pd.DataFrame
    logits_curve: pd.DataFrame
    reach: tuple[float, float]
    row: pd.DataFrame
    chain: pd.DataFrame
    gradients: pd.DataFrame
    marks: pd.DataFrame
    variance: tuple[float, float | None]
    row_variance: tuple[float, float | None]
    predicted: float
    predicted_row: float
    logit_variance: float
    most_keys: int
    even_weight: float
    even_keys: float


def reach(scores: pd.DataFrame) -> tuple[float, float]:
    """What an axis of scores spans; 0 is always on it, to which division pulls them."""
    return min(0.0, float(scores["left"].min())), max(0.0, float(scores["right"].max()))
