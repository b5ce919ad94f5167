"""Closed forms against figures worked elsewhere, each other, and vectors drawn entry by entry."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from attnviz import moments, synthetic
from attnviz.moments import DISTRIBUTIONS, Vectors

EVERYTHING = {
    "query_std": 1.5,
    "key_std": 0.7,
    "query_mean": 0.4,
    "key_mean": -0.3,
    "correlation": 0.6,
}
SETTINGS = (
    {},
    {"query_std": 2.0, "key_std": 3.0},
    {"query_mean": 0.5, "key_mean": 0.25},
    {"correlation": -0.8},
    EVERYTHING,
)


def entries(dice: np.random.Generator, distribution: str, shape: tuple[int, ...]) -> np.ndarray:
    """Standard vectors, each distribution written down a second time."""
    if distribution == "Rademacher":
        return dice.choice([-1.0, 1.0], shape)
    if distribution == "uniform":
        return dice.uniform(-(3**0.5), 3**0.5, shape)
    if distribution == "Laplace":
        return dice.laplace(0, 0.5**0.5, shape)
    drawn = dice.normal(size=shape)
    if distribution == "normalised":
        drawn /= ((drawn**2).mean(-1, keepdims=True)) ** 0.5
    return drawn


def rows_drawn(vectors: Vectors, d_k: int, n: int, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of each trial's query with its n keys, and the queries."""
    dice = np.random.default_rng(41)
    x = entries(dice, vectors.distribution, (trials, 1, d_k))
    y = entries(dice, vectors.distribution, (trials, n, d_k))
    rho = vectors.correlation
    query = vectors.query_mean + vectors.query_std * x
    key = vectors.key_mean + vectors.key_std * (rho * x + (1 - rho**2) ** 0.5 * y)
    return (query * key).sum(-1), query[:, 0]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_moments_agree_with_vectors_drawn_entry_by_entry(distribution: str, settings: dict):
    vectors, d_k, n, trials = Vectors(distribution, **settings), 6, 3, 40_000
    rows, queries = rows_drawn(vectors, d_k, n, trials)
    pairs = torch.from_numpy(rows[:, 0].copy())
    error = float(pairs.std()) / trials**0.5
    assert float(pairs.mean()) == pytest.approx(moments.mean(vectors, d_k), abs=4 * error)
    measured = synthetic.variance(pairs)
    expected = moments.variance(vectors, d_k)
    assert measured.value == pytest.approx(expected, abs=4 * measured.standard_error)
    within = rows.var(-1, ddof=1)
    error = within.std() / trials**0.5
    assert within.mean() == pytest.approx(moments.row_variance(vectors, d_k), abs=4 * error)
    given_query = vectors.key_std**2 * (1 - vectors.correlation**2) * (queries**2).sum(-1)
    assert given_query.mean() == pytest.approx(moments.row_variance(vectors, d_k), rel=0.03)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_excess_kurtosis_agrees_with_vectors_drawn_entry_by_entry(
    distribution: str, settings: dict
):
    vectors, d_k, trials = Vectors(distribution, **settings), 4, 400_000
    rows, _ = rows_drawn(vectors, d_k, 1, trials)
    measured = synthetic.excess_kurtosis(torch.from_numpy(rows[:, 0].copy()))
    expected = moments.excess_kurtosis(vectors, d_k)
    assert measured.value == pytest.approx(expected, abs=4 * measured.standard_error)


@pytest.mark.parametrize("d_k", [1, 5, 64])
def test_named_forms_of_the_moments(d_k: int):
    std = Vectors(query_std=2.0, key_std=3.0)
    assert moments.variance(std, d_k) == pytest.approx(36 * d_k)
    means = Vectors(query_mean=0.5, key_mean=0.5)
    assert moments.mean(means, d_k) == pytest.approx(d_k / 4)
    assert moments.variance(means, d_k) == pytest.approx(1.5 * d_k)
    assert moments.row_variance(means, d_k) == pytest.approx(1.25 * d_k)
    aligned = Vectors(correlation=0.5)
    assert moments.mean(aligned, d_k) == pytest.approx(d_k / 2)
    assert moments.variance(aligned, d_k) == pytest.approx(1.25 * d_k)
    for distribution, kurtosis in zip(DISTRIBUTIONS, (3, 1, 9 / 5, 6), strict=False):
        plain = Vectors(distribution)
        assert moments.variance(plain, d_k) == pytest.approx(d_k)
        assert moments.excess_kurtosis(plain, d_k) == pytest.approx((kurtosis**2 - 3) / d_k)
    sphere = Vectors("normalised")
    assert moments.variance(sphere, d_k) == pytest.approx(d_k)
    assert moments.excess_kurtosis(sphere, d_k) == pytest.approx(-6 / (d_k + 2))


def test_published_figures_of_the_moments():
    """Variances of 400,000 drawn pairs at d_k = 64, kurtoses at 1, 4 and 16 with their errors."""
    assert moments.variance(Vectors(query_std=2.0, key_std=3.0), 64) == 2304
    assert moments.variance(Vectors(query_mean=0.5, key_mean=0.5), 64) == 96
    assert moments.variance(Vectors(correlation=1.0), 64) == 128
    assert moments.row_variance(Vectors(correlation=1.0), 64) == 0
    for d_k, measured, error in ((1, 5.89, 0.11), (4, 1.513, 0.025), (16, 0.368, 0.019)):
        assert moments.excess_kurtosis(Vectors(), d_k) == pytest.approx(measured, abs=4 * error)
    for d_k, measured in ((4, -1.0006), (16, -0.338)):
        expected = moments.excess_kurtosis(Vectors("normalised"), d_k)
        assert measured == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_on_a_line_normalised_vectors_are_signs(settings: dict):
    sphere, signs = Vectors("normalised", **settings), Vectors("Rademacher", **settings)
    for moment in (moments.mean, moments.variance, moments.row_variance, moments.excess_kurtosis):
        assert moment(sphere, 1) == pytest.approx(moment(signs, 1))


def test_a_mean_of_the_keys_is_invisible_within_a_row_and_one_of_the_queries_is_not():
    plain = moments.row_variance(Vectors(), 7)
    assert moments.row_variance(Vectors(key_mean=5.0), 7) == plain
    assert moments.row_variance(Vectors(query_mean=2.0), 7) == 5 * plain


def test_without_variance_there_is_no_kurtosis():
    assert math.isnan(moments.excess_kurtosis(Vectors(query_std=0.0), 3))
    assert math.isnan(moments.excess_kurtosis(Vectors("Rademacher", correlation=1.0), 3))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"query_std": -1.0}, "cannot be negative"),
        ({"key_mean": math.inf}, "finite"),
        ({"correlation": 1.5}, "between −1 and 1"),
    ],
)
def test_impossible_vectors_are_refused(settings: dict, words: str):
    with pytest.raises(ValueError, match=words):
        Vectors(**settings)


# --- softmax


@pytest.mark.parametrize(
    ("n", "published"),
    [
        *((1, 0.0), (2, math.pi**-0.5), (3, 1.5 * math.pi**-0.5)),
        *((8, 1.4236), (64, 2.3437), (512, 3.0439), (4096, 3.6261)),
    ],
)
def test_expected_maximum(n: int, published: float):
    assert moments.expected_maximum(n) == pytest.approx(published, abs=6e-5)


@pytest.mark.parametrize(("n", "published"), [(8, 2.04), (64, 2.88), (512, 3.53), (4096, 4.08)])
def test_freezing_line(n: int, published: float):
    std = moments.freezing_std(n)
    assert std == pytest.approx(published, abs=0.005)
    assert moments.freezing_d_k(n) == pytest.approx(2 * math.log(n))
    for power, settings in product((0.0, 0.25, 0.75, 1.0), ({}, EVERYTHING)):
        vectors = Vectors(**settings)
        d_k = moments.freezing_d_k(n, power, vectors)
        row_std = (d_k * moments.row_variance(vectors, 1)) ** 0.5 / d_k**power
        assert row_std == pytest.approx(std)
    assert math.isnan(moments.freezing_d_k(n, 0.5))
    assert math.isnan(moments.freezing_d_k(n, 0.0, Vectors(key_std=0.0)))


def test_freezing_line_at_its_ends():
    assert moments.freezing_d_k(1) == 0.0
    assert moments.freezing_d_k(64, 0.4999) == math.inf


def softmax_of_normal_logits(n: int, std: float, trials: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(43)
    return (std * torch.randn(trials, n, generator=dice, dtype=torch.float64)).softmax(-1)


def mean_and_error(values: torch.Tensor) -> tuple[float, float]:
    return float(values.mean()), float(values.std()) / len(values) ** 0.5


@pytest.mark.parametrize(
    ("n", "std", "higher"), [(64, 0.25, 1e-3), (7, 0.1, 1e-4), (64, 1.0, 0.04)]
)
def test_entropy_of_small_logits(n: int, std: float, higher: float):
    """`higher` bounds the terms in s⁴ that the closed form leaves out."""
    drawn = softmax_of_normal_logits(n, std, 10_000)
    mean, error = mean_and_error(torch.special.entr(drawn).sum(-1))
    expected = moments.entropy_of_small_logits(n, std)
    assert mean == pytest.approx(expected, abs=4 * error + higher)


def test_participation_of_small_logits():
    assert moments.participation_of_small_logits(512, 1.0) == pytest.approx(188.4, abs=0.05)
    drawn = softmax_of_normal_logits(512, 1.0, 2000)
    mean, _ = mean_and_error(1 / (drawn**2).sum(-1))
    assert mean == pytest.approx(moments.participation_of_small_logits(512, 1.0), rel=0.06)


@pytest.mark.parametrize(("n", "std"), [(64, 32.0), (8, 100.0)])
def test_large_logits(n: int, std: float):
    """The closed forms are limits; the next term is about ‖J‖'s tenth at s = 32."""
    drawn = softmax_of_normal_logits(n, std, 40_000)
    norm = synthetic.jacobian_norm(drawn)
    measured = {
        moments.largest_weight_of_large_logits: drawn.amax(-1),
        moments.entropy_of_large_logits: torch.special.entr(drawn).sum(-1),
        moments.jacobian_of_large_logits: synthetic.jacobian_trace(drawn),
        moments.jacobian_square_of_large_logits: norm**2,
    }
    for form, values in measured.items():
        mean, error = mean_and_error(values)
        expected = form(n, std)
        slow = 0.05 * min(expected, 1 - expected)
        assert mean == pytest.approx(expected, abs=4 * error + slow), form.__name__
    mean, _ = mean_and_error(norm)
    assert mean == pytest.approx(moments.jacobian_of_large_logits(n, std), rel=0.15)
    assert moments.largest_weight_of_large_logits(64, 32.0) == pytest.approx(1 - 0.0508, abs=1e-4)
    assert moments.entropy_of_large_logits(64, 32.0) == pytest.approx(0.1205, abs=1e-4)
    assert moments.jacobian_of_large_logits(64, 32.0) == pytest.approx(0.0732, abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_jacobian_of_even_weights(n: int):
    even = torch.full((1, n), 1 / n, dtype=torch.float64)
    matrix = torch.diag(even[0]) - even.T @ even
    assert moments.jacobian_of_even_weights(n) == pytest.approx(float(matrix.norm()), abs=1e-15)


# --- gradients


@pytest.mark.parametrize(
    ("name", "published"), [("1", 2.158), ("√d_k", 0.1853), ("d_k", 0.015618), ("d_k²", 2.422e-4)]
)
def test_gradient_rms(name: str, published: float):
    """Closed form from whole key matrices, without any gradient being drawn; n = 64, d_k = 64."""
    d_k, n, trials = 64, 64, 20_000
    divisor = synthetic.DIVISORS[name](d_k)
    dice = np.random.default_rng(44)
    length = (dice.chisquare(d_k, (trials, 1))) ** 0.5
    along_keys = torch.from_numpy(dice.normal(size=(trials, n)))
    weights = (torch.from_numpy(length) * along_keys / divisor).softmax(-1)
    pulled = synthetic.pulled(weights, along_keys)
    squares = float((synthetic.jacobian_norm(weights) ** 2).mean())
    rms = moments.gradient_rms(d_k, divisor, squares, float((pulled**2).sum(-1).mean()))
    assert rms == pytest.approx(published, rel=0.02)
    drawn = synthetic.simulate(d_k, n, divisor, trials, seed=45).query_gradient_norm ** 2
    error = drawn.std() / trials**0.5
    assert drawn.mean() == pytest.approx(rms**2, abs=4 * error * 2**0.5)


def test_gradient_rms_of_one_draw_is_exact():
    """E over g of ‖Kᵀ J g‖² is ‖Kᵀ J‖²; with d_k = 1 only the part along the query is left."""
    dice = torch.Generator().manual_seed(46)
    along_keys = torch.randn(5, generator=dice, dtype=torch.float64)
    weights = (1.7 * along_keys).softmax(-1)
    jacobian = torch.diag(weights) - torch.outer(weights, weights)
    exact = float((along_keys @ jacobian).norm()) / 1.7
    assert moments.gradient_rms(1, 1.7, 99.0, (exact * 1.7) ** 2) == pytest.approx(exact)


@pytest.mark.parametrize(("n", "limit"), [(8, 1.136), (64, 1.870), (512, 2.429)])
def test_saturated_gradient(n: int, limit: float):
    assert moments.saturated_gradient(n) == pytest.approx(limit, abs=6e-4)


@pytest.mark.parametrize(
    ("moved", "measured"),
    [({"query_std": 0.5}, 2.27), ({"query_std": 2.0}, 0.582), ({"query_mean": 2.0}, 0.521)],
)
def test_saturated_gradient_of_other_vectors(moved: dict, measured: float):
    """Means over 2,000 rows of 8 keys at d_k = 1,024, measured on the page."""
    assert moments.saturated_gradient(8, Vectors(**moved)) == pytest.approx(measured, rel=0.05)


def test_where_all_keys_score_alike_no_gradient_has_a_limit():
    assert math.isnan(moments.saturated_gradient(8, Vectors(correlation=1.0)))


def test_without_a_divisor_the_mean_gradient_stays_and_the_median_goes():
    drawn = synthetic.simulate(1024, 8, 1.0, 20_000, seed=47).query_gradient_norm
    error = drawn.std() / len(drawn) ** 0.5
    assert drawn.mean() == pytest.approx(moments.saturated_gradient(8), abs=4 * error + 0.03)
    assert np.median(drawn) < 0.01


@pytest.mark.parametrize(
    ("n", "name", "published"),
    [
        *((16, "√d_k", 0.995), (16, "d_k", 0.153), (16, "d_k²", 0.063)),
        *((64, "√d_k", 0.979), (64, "d_k", 0.041), (64, "d_k²", 0.0159)),
        *((512, "√d_k", 0.854), (512, "d_k", 0.0053)),
    ],
)
def test_aligned_weight(n: int, name: str, published: float):
    weight = moments.aligned_weight(64, n, synthetic.DIVISORS[name](64))
    assert weight == pytest.approx(published, rel=0.015)
