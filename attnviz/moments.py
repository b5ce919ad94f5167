"""Closed forms of the dot product q·k of random vectors, and of the softmax of such numbers.

Vaswani et al. 2017, section 3.2.1, footnote 4: for independent components of mean 0 and
variance 1, q·k has mean 0 and variance d_k. What follows says what becomes of it under other
standard deviations, means, a correlation and other distributions. Nothing is drawn here: the
same numbers by simulation are in `synthetic`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float64

Distribution = Literal["Gaussian", "Rademacher", "uniform", "Laplace", "normalised"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)

# E x⁰, E x², E x⁴, E x⁶, E x⁸ of an entry of mean 0 and variance 1; odd moments are 0.
EVEN_MOMENTS: dict[Distribution, tuple[float, ...]] = {
    "Gaussian": (1, 1, 3, 15, 105),
    "Rademacher": (1, 1, 1, 1, 1),
    "uniform": (1, 1, 9 / 5, 27 / 7, 9),
    "Laplace": (1, 1, 6, 90, 2520),
}


@dataclass(frozen=True)
class Vectors:
    """What queries and keys are drawn from.

    q = query_mean + query_std · x and, for each key,
    k = key_mean + key_std · (ρ x + √(1 − ρ²) y), with x and y independent, of mean 0 and
    variance 1 in each entry, and ρ the `correlation` of qᵢ with kᵢ. "normalised" vectors lie
    on the sphere of radius √d_k, as after QK-norm without gain (Dehghani et al. 2023), whose
    gain is then the standard deviation; the entries of all others are independent. ValueError
    for a negative standard deviation, a number that is not finite or a correlation beyond ±1.
    """

    distribution: Distribution = "Gaussian"
    query_std: float = 1.0
    key_std: float = 1.0
    query_mean: float = 0.0
    key_mean: float = 0.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.query_std, self.key_std, self.query_mean, self.key_mean)
        if not all(map(math.isfinite, numbers)):
            raise ValueError("Means and standard deviations must be finite numbers.")
        if self.query_std < 0 or self.key_std < 0:
            raise ValueError("A standard deviation cannot be negative.")
        if not -1 <= self.correlation <= 1:
            raise ValueError("A correlation lies between −1 and 1.")

    @property
    def own_share(self) -> float:
        """√(1 − ρ²): how much of a key is its own, not its query's."""
        return math.sqrt(1 - self.correlation**2)


# --- q·k


def mean(vectors: Vectors, d_k: int) -> float:
    """E q·k = d_k (μ_q μ_k + ρ σ_q σ_k)."""
    aligned = vectors.correlation * vectors.query_std * vectors.key_std
    return d_k * (vectors.query_mean * vectors.key_mean + aligned)


def variance(vectors: Vectors, d_k: int) -> float:
    """Var q·k over queries and keys.

    d_k (σ_q² σ_k² (1 − ρ² + ρ² v) + μ_q² σ_k² + μ_k² σ_q² + 2 ρ μ_q μ_k σ_q σ_k), with v the
    variance of x²: 2 for Gaussian entries (hence 1 + ρ²), 0 where |x| is fixed. With ρ and the
    means 0 every distribution has d_k σ_q² σ_k².
    """
    along_query, own, product, square = coefficients(vectors)
    return d_k * (along_query**2 + own**2 + product**2 + square**2 * _square_variance(vectors))


def row_variance(vectors: Vectors, d_k: int) -> float:
    """Expected variance of q·k over the keys of one query: all that softmax sees.

    d_k σ_k² (1 − ρ²)(σ_q² + μ_q²): given q it is σ_k² (1 − ρ²) ‖q‖². What keys have in common,
    their mean or their part along q, shifts the whole row and cancels in the softmax.
    """
    own = vectors.key_std * vectors.own_share
    return d_k * own**2 * (vectors.query_std**2 + vectors.query_mean**2)


def excess_kurtosis(vectors: Vectors, d_k: int) -> float:
    """Excess kurtosis of q·k, 0 for a normal distribution; NaN where the variance is 0.

    With ρ and the means 0 it is (κ_q κ_k − 3) / d_k with κ = E x⁴: 6 / d_k for Gaussian
    entries, −2 / d_k for Rademacher; −6 / (d_k + 2) on the sphere.
    """
    spread = variance(vectors, d_k)
    if spread <= 0:
        return math.nan
    if vectors.distribution == "normalised":
        return _fourth_moment_on_sphere(vectors, d_k) / spread**2 - 3
    # Fourth cumulants of independent terms add up.
    second, fourth = (_central_moment_of_term(vectors, order) for order in (2, 4))
    return (fourth / second**2 - 3) / d_k


def coefficients(vectors: Vectors) -> tuple[float, float, float, float]:
    """The factors of x, y, x·y and x² in one term of q·k, beside the constant μ_q μ_k."""
    product = vectors.query_std * vectors.key_std
    return (
        vectors.query_mean * vectors.key_std * vectors.correlation
        + vectors.key_mean * vectors.query_std,
        vectors.query_mean * vectors.key_std * vectors.own_share,
        product * vectors.own_share,
        product * vectors.correlation,
    )


def _square_variance(vectors: Vectors) -> float:
    """Variance of ‖x‖² over d_k."""
    if vectors.distribution == "normalised":
        return 0.0
    return EVEN_MOMENTS[vectors.distribution][2] - 1.0


def _central_moment_of_term(vectors: Vectors, order: int) -> float:
    """E (qᵢkᵢ − E qᵢkᵢ)^order, from the moments of x and y.

    The term is a polynomial in x and y; y is written as x⁹, beyond every power of x in the
    fourth power of the term, so that one list of coefficients holds both.
    """
    along_query, own, product, square = coefficients(vectors)
    term = np.zeros(11)
    term[[0, 1, 2, 9, 10]] = -square, along_query, square, own, product
    powers = np.polynomial.polynomial.polypow(term, order)
    of_x = np.zeros(9)
    of_x[::2] = EVEN_MOMENTS[vectors.distribution]
    return float(powers @ np.outer(of_x[:5], of_x).ravel()[: len(powers)])


def _fourth_moment_on_sphere(vectors: Vectors, d_k: int) -> float:
    """E (q·k − E q·k)⁴ for x and y on the sphere of radius √d.

    Given y, q·k is x·v + own Σyᵢ with v = along 1 + product y; E (x·v)² = ‖v‖² and
    E (x·v)⁴ = 3 d/(d + 2) ‖v‖⁴. The same holds for Σyᵢ = y·1.
    """
    along_query, own, product, _ = coefficients(vectors)
    flat = 3 * d_k / (d_k + 2)
    square = d_k * (along_query**2 + product**2)  # ‖v‖² is square + slope Σyᵢ
    slope = 2 * along_query * product
    return flat * (square**2 + slope**2 * d_k) + 6 * own**2 * d_k * square + own**4 * flat * d_k**2


# --- softmax of n independent normal logits of standard deviation s


def expected_maximum(n: int) -> float:
    """M_n: the expected largest of n standard normal numbers, ∫ x n φ(x) Φ(x)ⁿ⁻¹ dx."""
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    log_density = -(x**2) / 2 - math.log(2 * math.pi) / 2
    log_below: Float64[torch.Tensor, " x"] = torch.special.log_ndtr(x)
    return float(torch.trapezoid(x * n * torch.exp(log_density + (n - 1) * log_below), x))


def freezing_std(n: int) -> float:
    """√(2 ln n): from this standard deviation of the logits on, few keys hold the weight.

    The random energy model (Derrida 1981); for finite n a crossover, not a step.
    """
    return math.sqrt(2 * math.log(n))


def freezing_d_k(n: int, power: float = 0.0, vectors: Vectors | None = None) -> float:
    """The d_k at which logits q·k / d_k^power reach the freezing standard deviation.

    2 ln n for plain vectors and no divisor. Above it rows are frozen for a power below ½;
    for a power above ½ they are frozen below it, which is less than 1 for plain vectors. At
    ½ the standard deviation does not depend on d_k: NaN, as where all keys score alike.
    """
    per_entry = row_variance(vectors or Vectors(), 1)
    if power == 0.5 or per_entry == 0:
        return math.nan
    logarithm = math.log(2 * math.log(n) / per_entry) / (1 - 2 * power) if n > 1 else -math.inf
    return math.exp(logarithm) if logarithm < 700 else math.inf


def entropy_of_small_logits(n: int, std: float) -> float:
    """E H ≈ ln n − s² (1 − 1/n) / 2 in nats, up to terms in s⁴."""
    return math.log(n) - std**2 * (1 - 1 / n) / 2


def participation_of_small_logits(n: int, std: float) -> float:
    """1 / Σp² ≈ n exp(−s²), the participation ratio for many keys."""
    return n * math.exp(-(std**2))


def entropy_of_large_logits(n: int, std: float) -> float:
    """E H → (π²/6) M_n / s in nats: rows in which two keys come close hold all of it."""
    return math.pi**2 / 6 * expected_maximum(n) / std


def largest_weight_of_large_logits(n: int, std: float) -> float:
    """E max p → 1 − ln 2 · M_n / s."""
    return 1 - math.log(2) * expected_maximum(n) / std


def jacobian_of_large_logits(n: int, std: float) -> float:
    """E tr J and E ‖J‖ → M_n / s, J = diag(p) − p pᵀ: means fall as 1/s, not exponentially."""
    return expected_maximum(n) / std


def jacobian_square_of_large_logits(n: int, std: float) -> float:
    """E ‖J‖² → M_n / (3 s)."""
    return expected_maximum(n) / (3 * std)


def jacobian_of_even_weights(n: int) -> float:
    """‖J‖ = √(n − 1) / n if every key has the weight 1/n."""
    return math.sqrt(n - 1) / n


# --- gradients: dL/dq = Kᵀ J g / divisor, with g = dL/dp ~ N(0, I)


def gradient_rms(d_k: int, divisor: float, jacobian_square: float, along: float = 0.0) -> float:
    """√E ‖dL/dq‖² = √((d_k − 1) E ‖J‖² + E ζᵀJ²ζ) / divisor, exact for plain Gaussian vectors.

    ζ = Kq / ‖q‖ are the keys along the query; `jacobian_square` is E ‖J‖² and `along` E ζᵀJ²ζ,
    a small part for many d_k.
    """
    return math.sqrt((d_k - 1) * jacobian_square + along) / divisor


def saturated_gradient(n: int, vectors: Vectors | None = None) -> float:
    """E ‖dL/dq‖ → √(2/π) M_n / √(σ_q² + μ_q²) without a divisor as d_k grows: a constant.

    A few rows in which two keys nearly tie carry it; the median goes to 0. The keys' standard
    deviation cancels: it makes near-ties rarer and what they bring larger. NaN where all keys
    of a row score alike.
    """
    vectors = vectors or Vectors()
    if row_variance(vectors, 1) == 0:
        return math.nan
    length = math.hypot(vectors.query_std, vectors.query_mean)  # of q, over √d_k
    return math.sqrt(2 / math.pi) * expected_maximum(n) / length


def aligned_weight(d_k: int, n: int, divisor: float) -> float:
    """The weight of a key that equals its query if the n − 1 other logits are 0.

    1 / (1 + (n − 1) exp(−d_k / divisor)) for entries of variance 1. Divided by d_k the largest
    lead is 1, however long the vectors are.
    """
    return 1 / (1 + (n - 1) * math.exp(-d_k / divisor))
