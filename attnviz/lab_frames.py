"""The scale lab as tidy frames: the one place that spells their column names.

| frame | one row | columns |
|---|---|---|
| histogram | a bin of scores or logits | left, right, density, predicted |
| normal_curve | a place on the axis of a histogram | x, predicted |
| row | a key of one query | key, score, logit, weight, and of a text token |
| chain | a number under a divisor | divisor, stage, quantity, mean, median, standard_error |
| variance_curve | d_k under a divisor | d_k, divisor, and see there |
| saturation_map | a d_k and a number of keys | d_k, n, std, largest_weight, entropy |
| freezing_line | a number of keys | n, d_k |
| gradients | a bin of lengths on a log axis | divisor, quantity, left, right, share, least |
| gradient_marks | a kind of length | divisor, quantity, mean, median, rms |
| head_moments | a number of a real head | of, quantity, value |
| cosines | a bin | left, right, share |
| layer_variances | numbers of a layer | layer, d_k, quantity, variance, low, high, pooled |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from torch import Tensor

from attnviz import equation, moments, synthetic
from attnviz.head_moments import HeadMoments
from attnviz.moments import Vectors
from attnviz.synthetic import Simulation

BINS = 64  # at most; few values have fewer
FEWEST_BINS = 16
CURVE_POINTS = 129
REACH = 4.0  # standard deviations to each side of the mean
DECADES = (-10, 2)  # of gradients; what is less is counted in the first bin
BINS_PER_DECADE = 4
COSINE_BINS = 40

QUERY_GRADIENT, LOGIT_GRADIENT, JACOBIAN = "‖dL/dq‖", "‖dL/dz‖", "‖J‖"
LENGTHS = {
    JACOBIAN: "jacobian_norm",
    LOGIT_GRADIENT: "logit_gradient_norm",
    QUERY_GRADIENT: "query_gradient_norm",
}
CHAIN = (
    ("logits", "mean square of a row", "mean_square_logit"),
    ("saturation", "largest weight", "max_weight"),
    ("saturation", "entropy, relative to even weights", "relative_entropy"),
    ("saturation", "effective number of keys", "effective_keys"),
    *(("gradient", name, field) for name, field in LENGTHS.items()),
)


def histogram(
    scores: Float64[Tensor, ...],
    divisor: float,
    mean: float,
    variance: float,
    step: float = 0.0,
    around: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Density of scores / divisor beside the normal one of this mean and variance of the scores.

    The bins are the same under every divisor but for their width; they lie around that mean,
    or around another one with its standard deviation. `predicted` is the mean over the bin.
    `step` is the distance of scores that can only be whole steps from each other (0 if they can
    be anything): bins then hold equally many steps, and lie evenly about them. Without variance
    nothing is predicted.
    """
    values = scores.numpy().ravel()
    middle, spread = around or (mean, variance**0.5)
    reach = REACH * spread if spread > 0 else max(1.0, abs(middle))
    if step:
        edges = _edges_between_steps(float(values[0]), middle, reach, step)
    else:
        edges = np.linspace(middle - reach, middle + reach, _bins(len(values)) + 1)
    counts, _ = np.histogram(values, edges)
    width = np.diff(edges) / divisor
    return pd.DataFrame(
        {
            "left": edges[:-1] / divisor,
            "right": edges[1:] / divisor,
            "density": counts / (len(values) * width),  # of all values, drawn or beyond
            "predicted": np.diff(_normal_below(edges, mean, variance)) / width,
        }
    )


def _bins(values: int) -> int:
    """The rule of Rice: twice the cube root of how many values there are."""
    return min(BINS, max(FEWEST_BINS, round(2 * values ** (1 / 3))))


def _edges_between_steps(
    value: float, middle: float, reach: float, step: float
) -> Float64[np.ndarray, " edge"]:
    """Edges half way between two steps; each bin holds an odd number, one value in its middle."""
    steps = max(1, math.ceil(2 * reach / step / BINS)) // 2 * 2 + 1
    centre = value - step * round((value - middle) / step)  # the value nearest the middle
    bins = 2 * math.ceil(reach / (step * steps)) + 1
    return centre + step * steps * (np.arange(bins + 1) - bins / 2)


def step_of(vectors: Vectors) -> float:
    """The distance between neighbouring scores of plain ±1 vectors: 2 σ_q σ_k; else 0."""
    plain = vectors.query_mean == vectors.key_mean == vectors.correlation == 0
    is_of_steps = vectors.distribution == "Rademacher" and plain
    return 2 * vectors.query_std * vectors.key_std if is_of_steps else 0.0


def normal_curve(
    mean: float, variance: float, divisor: float, reach: tuple[float, float]
) -> pd.DataFrame:
    """The normal density of scores / divisor within reach; the moments are those of the scores.

    Empty without variance.
    """
    if variance <= 0:
        return pd.DataFrame(columns=["x", "predicted"], dtype=float)
    x = np.linspace(-REACH, REACH, CURVE_POINTS)
    std = variance**0.5 / divisor
    curve = pd.DataFrame(
        {"x": mean / divisor + std * x, "predicted": np.exp(-(x**2) / 2) / (2 * np.pi) ** 0.5 / std}
    )
    return curve[curve["x"].between(*reach)].reset_index(drop=True)


def _normal_below(
    x: Float64[np.ndarray, " edge"], mean: float, variance: float
) -> Float64[np.ndarray, " edge"]:
    """Share of a normal distribution below x, NaN without variance."""
    if variance <= 0:
        return np.full_like(x, np.nan)
    return torch.special.ndtr(torch.from_numpy((x - mean) / variance**0.5)).numpy()


def row(scores: Float64[Tensor, " key"], divisor: float) -> pd.DataFrame:
    """One synthetic query before its keys: scores, logits, weights."""
    logits = equation.logits(scores[None], 1 / divisor)
    return row_of(scores, logits[0], equation.weights(logits)[0])


def row_of(
    scores: Float64[Tensor, " key"],
    logits: Float64[Tensor, " key"],
    weights: Float64[Tensor, " key"],
    labels: Sequence[str] | None = None,
) -> pd.DataFrame:
    """One query before the keys that it sees; `key` is the place among all keys.

    `labels` are those of all keys, and become the column `token`.
    """
    seen = np.flatnonzero(logits.numpy() > -np.inf)
    numbers = {"score": scores, "logit": logits, "weight": weights}
    frame = pd.DataFrame({"key": seen} | {name: x.numpy()[seen] for name, x in numbers.items()})
    return frame if labels is None else frame.assign(token=[labels[int(key)] for key in seen])


def chain(simulations: Mapping[str, Simulation]) -> pd.DataFrame:
    """What becomes of rows under each divisor: mean, median and the standard error of the mean."""
    rows = []
    for divisor, simulation in simulations.items():
        for stage, quantity, field in CHAIN:
            values = getattr(simulation, field)
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
            rows.append((divisor, stage, quantity, values.mean(), np.median(values), error))
    columns = ["divisor", "stage", "quantity", "mean", "median", "standard_error"]
    return pd.DataFrame(rows, columns=columns)


def variance_curve(
    vectors: Vectors, d_ks: Sequence[int], pairs: int, seed: int, powers: Mapping[str, float]
) -> pd.DataFrame:
    """Variance of q·k / d_k^power against d_k, measured on independent pairs and in closed form.

    Columns: d_k, divisor (the name), variance, standard_error, predicted; row_variance, the
    closed form within a row; kurtosis, kurtosis_error and predicted_kurtosis, which no divisor
    changes, of the excess.
    """
    rows = []
    for d_k in d_ks:
        scores = synthetic.pair_scores(vectors, d_k, pairs, seed)
        spread = synthetic.variance(scores)
        predicted = moments.variance(vectors, d_k)
        within = moments.row_variance(vectors, d_k)
        shape = (math.nan,) * 3
        if predicted > 0:
            found = synthetic.excess_kurtosis(scores)
            shape = (found.value, found.standard_error, moments.excess_kurtosis(vectors, d_k))
        for name, power in powers.items():
            numbers = (spread.value, spread.standard_error, predicted, within)
            square = synthetic.divisor(d_k, 2 * power)
            rows.append((d_k, name, *(number / square for number in numbers), *shape))
    columns = ["d_k", "divisor", "variance", "standard_error", "predicted", "row_variance"]
    columns += ["kurtosis", "kurtosis_error", "predicted_kurtosis"]
    return pd.DataFrame(rows, columns=columns)


def saturation_map(
    vectors: Vectors,
    d_ks: Sequence[int],
    n_keys: Sequence[int],
    power: float,
    trials: int,
    seed: int,
) -> pd.DataFrame:
    """Mean largest weight and relative entropy for each d_k and n under a divisor d_k^power.

    Keys and queries are Gaussian here whatever the distribution: then a row is exactly normal
    with standard deviation σ_k √(1 − ρ²) ‖q‖. One and the same normal numbers serve the whole
    map. `std` is the square root of the expected variance within a row of logits.
    """
    dice = np.random.default_rng(seed)
    zeta = torch.from_numpy(dice.standard_normal((trials, max(n_keys))))
    rows = []
    for d_k in d_ks:
        length = torch.from_numpy(_query_lengths(vectors, d_k, trials, seed))
        own_std = vectors.key_std * vectors.own_share
        logits = equation.logits(own_std * length * zeta, 1 / synthetic.divisor(d_k, power))
        std = moments.row_variance(vectors, d_k) ** 0.5 / synthetic.divisor(d_k, power)
        rows += [(d_k, n, std, *_saturation(logits[:, :n])) for n in n_keys]
    return pd.DataFrame(rows, columns=["d_k", "n", "std", "largest_weight", "entropy"])


def _query_lengths(
    vectors: Vectors, d_k: int, trials: int, seed: int
) -> Float64[np.ndarray, "trial 1"]:
    """‖q‖ of Gaussian queries: one component has all of the mean, the rest are χ²."""
    dice = np.random.default_rng([seed, d_k])
    along = vectors.query_mean * d_k**0.5 + vectors.query_std * dice.standard_normal((trials, 1))
    across = vectors.query_std**2 * 2 * dice.standard_gamma((d_k - 1) / 2, (trials, 1))
    return (along**2 + across) ** 0.5


def _saturation(logits: Float64[Tensor, "trial key"]) -> tuple[float, float]:
    """Largest weight and relative entropy, means over the rows."""
    weights = equation.weights(logits)
    # H = ln Σ eᶻ − p·z, and ln Σ eᶻ = max z − ln max p: no logarithm of each weight.
    top = weights.amax(-1)
    entropy = logits.amax(-1) - top.log() - (weights * logits).sum(-1)
    relative = float(entropy.mean()) / math.log(max(2, logits.shape[-1]))
    return float(top.mean()), max(0.0, relative)


def freezing_line(vectors: Vectors, n_keys: Iterable[int], power: float) -> pd.DataFrame:
    """The d_k at which rows of n keys freeze (`moments.freezing_d_k`); empty where none is."""
    line = [(n, moments.freezing_d_k(n, power, vectors)) for n in n_keys]
    table = pd.DataFrame(line, columns=["n", "d_k"], dtype=float)
    return table[np.isfinite(table["d_k"]) & (table["d_k"] > 0)].reset_index(drop=True)


def gradients(simulations: Mapping[str, Simulation]) -> pd.DataFrame:
    """Share of the rows in each bin of ‖J‖, ‖dL/dz‖ and ‖dL/dq‖, bins of equal ratio.

    The first bin also holds all that is less, zeros too; `least` is True there.
    """
    low, high = DECADES
    edges = np.logspace(low, high, (high - low) * BINS_PER_DECADE + 1)
    parts = []
    for divisor, simulation in simulations.items():
        for quantity, field in LENGTHS.items():
            values = getattr(simulation, field)
            counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
            bins = {"left": edges[:-1], "right": edges[1:], "share": counts / len(values)}
            least = edges[:-1] == edges[0]
            parts.append(
                pd.DataFrame({"divisor": divisor, "quantity": quantity, **bins, "least": least})
            )
    return pd.concat(parts, ignore_index=True)


def gradient_marks(simulations: Mapping[str, Simulation]) -> pd.DataFrame:
    """Mean, median and root mean square of the lengths in `gradients`."""
    rows = [
        (divisor, quantity, x.mean(), np.median(x), (x**2).mean() ** 0.5)
        for divisor, simulation in simulations.items()
        for quantity, field in LENGTHS.items()
        for x in [getattr(simulation, field)]
    ]
    return pd.DataFrame(rows, columns=["divisor", "quantity", "mean", "median", "rms"])


# --- a real head


def head_moments(found: HeadMoments) -> pd.DataFrame:
    """What a head's variance is made of, each a measured number; `of` groups them."""
    rows = [
        ("scores", "mean", found.mean),
        ("scores", "variance, pooled", found.pooled_variance),
        ("scores", "of it between rows", found.between_rows),
        ("scores", "of it within rows", found.pooled_variance - found.between_rows),
        ("scores", "unbiased variance within a row, mean over rows", found.row_variance),
        ("scores", "mean, if q and k were independent", found.independent_mean),
        ("scores", "variance, if q and k were independent", found.independent_variance),
        ("scores", "variance, if entries were independent of variance 1", float(found.d_k)),
        ("queries", "mean ‖q‖", found.query_length),
        ("queries", "‖mean q‖", found.query_mean_length),
        ("queries", "σ_q of an entry", found.query_std),
        ("keys", "mean ‖k‖", found.key_length),
        ("keys", "‖mean k‖", found.key_mean_length),
        ("keys", "σ_k of an entry", found.key_std),
        ("queries and keys", "mean cosine", found.cosine),
    ]
    return pd.DataFrame(rows, columns=["of", "quantity", "value"])


def cosines(values: Float64[Tensor, " pair"]) -> pd.DataFrame:
    """Share of the visible pairs in each bin of the cosine of q and k, from −1 to 1."""
    edges = np.linspace(-1, 1, COSINE_BINS + 1)
    counts, _ = np.histogram(np.clip(values.numpy(), -1, 1), edges)
    return pd.DataFrame({"left": edges[:-1], "right": edges[1:], "share": counts / len(values)})


def layer_variances(found: Mapping[int, Sequence[HeadMoments]]) -> pd.DataFrame:
    """Variance within rows of every layer's heads: `variance` is the mean, then least and largest.

    `pooled` is the mean of the heads' pooled variances. Logits are scores times the model's
    own scale here, without soft cap and bias.
    """
    rows = []
    for layer, heads in found.items():
        for quantity in ("scores", "logits"):
            squares = [1.0 if quantity == "scores" else head.scale**2 for head in heads]
            within = [x * head.row_variance for x, head in zip(squares, heads, strict=True)]
            pooled = [x * head.pooled_variance for x, head in zip(squares, heads, strict=True)]
            numbers = (np.mean(within), min(within), max(within), np.mean(pooled))
            rows.append((layer, heads[0].d_k, quantity, *numbers))
    columns = ["layer", "d_k", "quantity", "variance", "low", "high", "pooled"]
    return pd.DataFrame(rows, columns=columns)
