"""Random queries and keys: how the variance of q·k grows with d_k, and what softmax makes of it.

Vaswani et al. 2017, section 3.2.1, footnote 4: if the components of q and k are independent
with mean 0 and variance 1, q·k has mean 0 and variance d_k. Everything is float64, and one
seed gives one draw, whatever the divisor, so that only the divisor makes the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from attnviz import equation, moments
from attnviz.moments import Distribution, Vectors

DIVISORS: dict[str, Callable[[int], float]] = {
    "1": lambda d_k: 1.0,
    "√d_k": lambda d_k: d_k**0.5,
    "d_k": lambda d_k: float(d_k),
    "d_k²": lambda d_k: float(d_k) ** 2,
}
POWERS = {"1": 0.0, "√d_k": 0.5, "d_k": 1.0, "d_k²": 2.0}  # of d_k, under the same names
MOST_ENTRIES = 2**23  # of whole keys, 64 MiB: 2,000 trials of 64 keys at d_k = 64


@dataclass(frozen=True)
class Estimate:
    """A measured number and its standard error, in the same unit."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Simulation:
    """One value per trial; a trial is one query before its keys.

    `mean_square_logit` is (1/n) Σ z²; `entropy` is in nats, `relative_entropy` over that of
    even weights, and `effective_keys` its exponential; `jacobian_trace` and `jacobian_norm`
    (Frobenius) belong to J = diag(p) − p pᵀ, the derivative of the weights p by the logits z.
    With a random gradient g ~ N(0, I) of the loss on the weights, `logit_gradient_norm` is
    ‖dL/dz‖ = ‖J g‖ and `query_gradient_norm` is ‖dL/dq‖, which has the divisor in it.
    """

    mean_square_logit: Float64[np.ndarray, " trials"]
    max_weight: Float64[np.ndarray, " trials"]
    entropy: Float64[np.ndarray, " trials"]
    relative_entropy: Float64[np.ndarray, " trials"]
    effective_keys: Float64[np.ndarray, " trials"]
    jacobian_trace: Float64[np.ndarray, " trials"]
    jacobian_norm: Float64[np.ndarray, " trials"]
    logit_gradient_norm: Float64[np.ndarray, " trials"]
    query_gradient_norm: Float64[np.ndarray, " trials"]


@dataclass(frozen=True)
class NormalKeys:
    """Gaussian keys as far as scores and gradients need them, without their n · d_k entries.

    Given q, the scores are ‖q‖ ζ with ζ ~ N(0, I_n) up to a constant, and
    ‖Kᵀu‖² = σ² ((ζ·u)² + ‖u‖² χ²) with χ² of d_k − 1 degrees of freedom, for any u that depends
    on the scores alone and sums to 0: exactly the law of keys drawn entry by entry.
    """

    zeta: Float64[Tensor, "trial key"]
    across: Float64[Tensor, " trial"]
    std: float

    def scores(self, query: Float64[Tensor, "trial d_k"]) -> Float64[Tensor, "trial key"]:
        """q·k of each trial's query."""
        return self.std * query.norm(dim=-1, keepdim=True) * self.zeta

    def sum_norm(self, factors: Float64[Tensor, "trial key"]) -> Float64[Tensor, " trial"]:
        """‖Σ factor · key‖."""
        along = (self.zeta * factors).sum(-1)
        return self.std * (along**2 + (factors**2).sum(-1) * self.across).sqrt()


@dataclass(frozen=True)
class WholeKeys:
    """Keys with all their entries, without what the keys of a trial have in common."""

    key: Float64[Tensor, "trial key d_k"]

    def scores(self, query: Float64[Tensor, "trial d_k"]) -> Float64[Tensor, "trial key"]:
        """q·k of each trial's query."""
        return equation.scores(query[:, None], self.key).squeeze(1)

    def sum_norm(self, factors: Float64[Tensor, "trial key"]) -> Float64[Tensor, " trial"]:
        """‖Σ factor · key‖ for factors that sum to 0."""
        return (factors[:, None] @ self.key).squeeze(1).norm(dim=-1)


@dataclass(frozen=True)
class Draw:
    """Rows of random scores and what their gradients need; it knows of no divisor."""

    scores: Float64[Tensor, "trial key"]
    loss_gradient: Float64[Tensor, "trial key"]
    keys: NormalKeys | WholeKeys


def divisor(d_k: int, power: float) -> float:
    """d_k^power: ½ is the divisor of the paper, 0 is none."""
    return float(d_k) ** power


def most_trials(vectors: Vectors, d_k: int, n_keys: int, wanted: int) -> int:
    """How many of the trials wanted are drawn: keys that are not Gaussian need all entries."""
    if vectors.distribution == "Gaussian":
        return wanted
    return max(1, min(wanted, MOST_ENTRIES // (d_k * n_keys)))


def draw(vectors: Vectors, d_k: int, n_keys: int, trials: int, seed: int) -> Draw:
    """Queries before their own n keys, for `most_trials` of the trials wanted.

    The numbers depend on the seed, the sizes and the distribution; standard deviations, means
    and the correlation are put on one and the same draw.
    """
    trials = most_trials(vectors, d_k, n_keys, trials)
    dice = np.random.default_rng([seed, d_k, n_keys])
    standard = _standard(dice, vectors.distribution, trials, d_k)
    loss_gradient = torch.from_numpy(dice.standard_normal((trials, n_keys)))
    query = vectors.query_mean + vectors.query_std * standard
    common = vectors.key_mean + vectors.key_std * vectors.correlation * standard
    keys = _keys(dice, vectors, trials, n_keys, d_k)
    in_common = (query * common).sum(-1, keepdim=True)
    return Draw(in_common + keys.scores(query), loss_gradient, keys)


def _keys(
    dice: np.random.Generator, vectors: Vectors, trials: int, n_keys: int, d_k: int
) -> NormalKeys | WholeKeys:
    """What each key has of its own."""
    std = vectors.key_std * vectors.own_share
    if vectors.distribution != "Gaussian":
        return WholeKeys(_standard(dice, vectors.distribution, trials, n_keys, d_k).mul_(std))
    zeta = torch.from_numpy(dice.standard_normal((trials, n_keys)))
    across = torch.from_numpy(2 * dice.standard_gamma((d_k - 1) / 2, trials))
    return NormalKeys(zeta, across, std)


def _standard(
    dice: np.random.Generator, distribution: Distribution, *shape: int
) -> Float64[Tensor, ...]:
    """Vectors along the last axis whose entries have mean 0 and variance 1."""
    if distribution == "Rademacher":
        return torch.from_numpy(dice.integers(0, 2, shape, np.int8)).double().mul_(2).sub_(1)
    if distribution == "uniform":
        return torch.from_numpy(dice.random(shape)).sub_(0.5).mul_(12**0.5)
    if distribution == "Laplace":
        size = torch.from_numpy(dice.standard_exponential(shape)).mul_(0.5**0.5)
        return size.mul_(_standard(dice, "Rademacher", *shape))
    entries = torch.from_numpy(dice.standard_normal(shape))
    if distribution == "normalised":
        entries.mul_(shape[-1] ** 0.5 / entries.norm(dim=-1, keepdim=True))
    return entries


def pair_scores(vectors: Vectors, d_k: int, trials: int, seed: int) -> Float64[Tensor, " trials"]:
    """q·k of independent pairs, each entry drawn; one draw whatever the means and the like."""
    sums = _pair_sums(vectors.distribution, d_k, trials, seed)
    constant = d_k * vectors.query_mean * vectors.key_mean
    return constant + sums @ torch.tensor(moments.coefficients(vectors), dtype=torch.float64)


@lru_cache(maxsize=128)
def _pair_sums(
    distribution: Distribution, d_k: int, trials: int, seed: int
) -> Float64[Tensor, "trials 4"]:
    """Σxᵢ, Σyᵢ, x·y and ‖x‖² of standard pairs: all that q·k depends on."""
    dice = np.random.default_rng([seed, d_k])
    x, y = (_standard(dice, distribution, trials, d_k) for _ in "xy")
    return torch.stack([x.sum(-1), y.sum(-1), (x * y).sum(-1), (x * x).sum(-1)], dim=-1)


def sample_scores(d_k: int, n_keys: int, trials: int, seed: int) -> Float64[Tensor, "trials keys"]:
    """Draw q and keys ~ N(0, I) for each trial and take their dot products."""
    dice = np.random.default_rng([seed, d_k, n_keys])
    query = torch.from_numpy(dice.standard_normal((trials, 1, d_k)))
    key = torch.from_numpy(dice.standard_normal((trials, n_keys, d_k)))
    return equation.scores(query, key).squeeze(1)


def row_of_weights(scores: Float64[Tensor, " keys"], divisor: float) -> Float64[Tensor, " keys"]:
    """What the softmax makes of one row of scores under a divisor."""
    return equation.weights(equation.logits(scores[None], 1 / divisor))[0]


def variance(values: Float64[Tensor, " sample"]) -> Estimate:
    """Unbiased variance of independent values, with its standard error √((m₄ − s⁴)/n)."""
    second = float(values.var())
    fourth = float(((values - values.mean()) ** 4).mean())
    return Estimate(second, (max(fourth - second**2, 0.0) / len(values)) ** 0.5)


def excess_kurtosis(values: Float64[Tensor, " sample"]) -> Estimate:
    """Excess kurtosis m₄/m₂² − 3 of independent values, its error to the first order."""
    centred = values - values.mean()
    second, third, fourth = (float((centred**order).mean()) for order in (2, 3, 4))
    by_value = (centred**4 - fourth - 4 * third * centred) / second**2
    by_value = by_value - 2 * fourth / second**3 * (centred**2 - second)
    return Estimate(fourth / second**2 - 3, float(by_value.std()) / len(values) ** 0.5)


def pooled_variance(scores: Float64[Tensor, "trial key"]) -> Estimate:
    """Variance over all trials and keys; keys of one trial share their query, hence the error."""
    by_trial = ((scores - scores.mean()) ** 2).mean(-1)
    return _mean(by_trial)


def row_variance(scores: Float64[Tensor, "trial key"]) -> Estimate:
    """Variance over the keys of a trial, unbiased, averaged over the trials."""
    return _mean(scores.var(-1))


def _mean(by_trial: Float64[Tensor, " trial"]) -> Estimate:
    return Estimate(float(by_trial.mean()), float(by_trial.std()) / len(by_trial) ** 0.5)


def predicted_variance(d_k: int, divisor: float) -> float:
    """Variance of q·k / divisor for independent entries of variance 1: d_k / divisor²."""
    return d_k / divisor**2


def simulate(d_k: int, n_keys: int, divisor: float, trials: int, seed: int) -> Simulation:
    """Attention of random queries before random keys, trial by trial.

    A trial has q, k₁…k_n ~ N(0, I_d) and g ~ N(0, I_n), all independent; z = Kq / divisor,
    p = softmax z, dL/dq = Kᵀ J g / divisor.
    """
    return measured(draw(Vectors(), d_k, n_keys, trials, seed), divisor)


def measured(draw: Draw, divisor: float) -> Simulation:
    """What the softmax makes of the rows of a draw under a divisor."""
    logits = equation.logits(draw.scores, 1 / divisor)
    return of_rows(
        logits, draw.loss_gradient, lambda gradient: draw.keys.sum_norm(gradient) / divisor
    )


def of_rows(
    logits: Float64[Tensor, "trial key"],
    loss_gradient: Float64[Tensor, "trial key"],
    query_gradient_norm: Callable[[Tensor], Tensor],
    sinks: Float64[Tensor, "1 1"] | None = None,
) -> Simulation:
    """The numbers of each row of logits; −∞ where a key is hidden, which then counts nowhere.

    `query_gradient_norm` takes dL/dz to ‖dL/dq‖. A learned sink is one more key in J, without
    a value; `max_weight` and the entropies are those of the other keys' weights.
    """
    weights = equation.weights(logits, sinks)
    visible = logits > -torch.inf
    keys = visible.sum(-1)
    logit_gradient = pulled(weights, loss_gradient)
    entropy = torch.special.entr(weights).sum(-1)
    whole = weights if sinks is None else _with_rest(weights)
    return Simulation(
        mean_square_logit=(logits.where(visible, 0.0).square().sum(-1) / keys).numpy(),
        max_weight=weights.amax(-1).numpy(),
        entropy=entropy.numpy(),
        relative_entropy=(entropy / keys.clamp(min=2).double().log()).numpy(),
        effective_keys=entropy.exp().numpy(),
        jacobian_trace=jacobian_trace(whole).numpy(),
        jacobian_norm=jacobian_norm(whole).numpy(),
        logit_gradient_norm=logit_gradient.norm(dim=-1).numpy(),
        query_gradient_norm=query_gradient_norm(logit_gradient).numpy(),
    )


def _with_rest(weights: Float64[Tensor, "trial key"]) -> Float64[Tensor, "trial rest"]:
    """The weights and what a sink took."""
    return torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], dim=-1)


def pulled(
    weights: Float[Tensor, "*row key"], loss_gradient: Float[Tensor, "*row key"]
) -> Float[Tensor, "*row key"]:
    """J g, the gradient on the logits of a gradient on the weights: p (g − p·g)."""
    return weights * (loss_gradient - (weights * loss_gradient).sum(-1, keepdim=True))


def jacobian_trace(weights: Float[Tensor, "*row key"]) -> Float[Tensor, "*row"]:
    """Tr J = 1 − Σp² of J = diag(p) − p pᵀ, as Σ p (1 − p)."""
    return (weights * _others(weights)).sum(-1)


def jacobian_norm(weights: Float[Tensor, "*row key"]) -> Float[Tensor, "*row"]:
    """Frobenius norm of J = diag(p) − p pᵀ: Σᵢ (pᵢ(1 − pᵢ))² + Σᵢ≠ⱼ (pᵢpⱼ)²."""
    square = weights**2
    return (square * (_others(weights) ** 2 + _others(square))).sum(-1).sqrt()


def _others(values: Float[Tensor, "*row key"]) -> Float[Tensor, "*row key"]:
    """For each key the sum over the other keys.

    Taking the key from the total cancels for a row that is nearly one-hot; there the small
    entries are summed on their own.
    """
    top = values.argmax(-1, keepdim=True)
    rest = values.scatter(-1, top, 0.0).sum(-1, keepdim=True)
    return (values.sum(-1, keepdim=True) - values).scatter(-1, top, rest)
