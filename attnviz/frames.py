"""Arrays to tidy frames: the one place that spells column names.

| frame | one row | columns |
|---|---|---|
| weight_matrix | a query | one column per key position, values are weights |
| visible_matrix | a query | one column per key position, values are True or False |
| token_axis | a token | position, token |
| weight_table | a key seen from one query | key, token, weight |
| head_statistics | a statistic of one head | statistic, mean over queries |
| score_histogram | a bin | quantity, left, right, density, predicted |
| variance_curve | d_k under a divisor | d_k, divisor, variance, standard_error, predicted |
| head_marks | what a real head has | d_k, quantity, variance |
| softmax_rows | a key under a divisor | divisor, key, weight, largest, effective_keys |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from attnviz import head_statistics as statistics
from attnviz import synthetic

HISTOGRAM_BINS = 64


def weight_matrix(weights: Float[Tensor, "query key"]) -> pd.DataFrame:
    """One head's weights, queries down, keys across, both by position."""
    return pd.DataFrame(weights.numpy()).rename_axis(index="query", columns="key")


def visible_matrix(visible: Bool[Tensor, "query key"]) -> pd.DataFrame:
    """Which key each query can see, in the shape of `weight_matrix`."""
    return pd.DataFrame(visible.numpy()).rename_axis(index="query", columns="key")


def token_axis(labels: Sequence[str]) -> pd.DataFrame:
    """The tokens by position: equal words stay apart."""
    return pd.DataFrame({"position": range(len(labels)), "token": list(labels)})


def weight_table(matrix: pd.DataFrame, query: int, tokens: pd.DataFrame) -> pd.DataFrame:
    """Where one query looks: the keys that get weight, most first."""
    row = matrix.loc[query].rename("weight").rename_axis("key").reset_index()
    table = row.merge(tokens, left_on="key", right_on="position")[["key", "token", "weight"]]
    return table[table["weight"] > 0].sort_values("weight", ascending=False, ignore_index=True)


def head_statistics(
    weights: Float[Tensor, "query key"], visible: Bool[Tensor, "query key"]
) -> pd.DataFrame:
    """The numbers of one head, each with what it means; NaN where the text is too short."""
    rows = {
        "entropy, relative to uniform": statistics.relative_entropy(weights, visible),
        "effective number of keys": statistics.effective_keys(weights),
        "weight on the first token": statistics.first_token(weights),
        "weight on the previous token": statistics.previous_token(weights),
        "weight on itself": statistics.diagonal(weights),
        "mean distance, in tokens": statistics.distance(weights),
    }
    return pd.DataFrame(
        {"statistic": list(rows), "mean over queries": [float(x) for x in rows.values()]}
    )


def score_histogram(scores: Float64[Tensor, " pair"], d_k: int) -> pd.DataFrame:
    """Density of q·k and of q·k / √d_k over the same bins, beside the predicted normal one."""
    edge = 4 * d_k**0.5
    parts = []
    for quantity, divisor in (("q·k", 1.0), ("q·k / √d_k", d_k**0.5)):
        reach = edge / divisor
        counts, edges = np.histogram(scores.numpy() / divisor, HISTOGRAM_BINS, (-reach, reach))
        density = counts / (len(scores) * np.diff(edges))  # of all pairs, drawn or beyond
        parts.append(
            pd.DataFrame(
                {
                    "quantity": quantity,
                    "left": edges[:-1],
                    "right": edges[1:],
                    "density": density,
                    "predicted": _normal_density(
                        (edges[:-1] + edges[1:]) / 2,
                        synthetic.predicted_variance(d_k, divisor),
                    ),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def variance_curve(d_ks: Sequence[int], pairs: int, seed: int) -> pd.DataFrame:
    """Measured and predicted variance of q·k / divisor, for each d_k and divisor."""
    rows = []
    for d_k in d_ks:
        scores = synthetic.sample_scores(d_k, n_keys=1, trials=pairs, seed=seed)[:, 0]
        for name, divisor in synthetic.DIVISORS.items():
            measured = synthetic.variance(scores / divisor(d_k))
            predicted = synthetic.predicted_variance(d_k, divisor(d_k))
            rows.append((d_k, name, measured.value, measured.standard_error, predicted))
    columns = ["d_k", "divisor", "variance", "standard_error", "predicted"]
    return pd.DataFrame(rows, columns=columns)


def head_marks(d_k: int, scores: float, logits: float) -> pd.DataFrame:
    """A real head's within-row variance of scores and of logits, at its d_k."""
    return pd.DataFrame(
        {"d_k": d_k, "quantity": ["scores", "logits"], "variance": [scores, logits]}
    )


def softmax_rows(scores: Float64[Tensor, " keys"], d_k: int) -> pd.DataFrame:
    """The weights of one and the same row of scores under each divisor."""
    parts = []
    for name, divisor in synthetic.DIVISORS.items():
        weights = synthetic.row_of_weights(scores, divisor(d_k))
        parts.append(
            pd.DataFrame(
                {
                    "divisor": name,
                    "key": range(len(weights)),
                    "weight": weights.numpy(),
                    "largest": float(weights.max()),
                    "effective_keys": float(statistics.effective_keys(weights[None])),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _normal_density(x: Float64[np.ndarray, " bin"], variance: float) -> Float64[np.ndarray, " bin"]:
    return np.exp(-(x**2) / (2 * variance)) / (2 * np.pi * variance) ** 0.5
