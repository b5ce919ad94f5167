"""Random queries and keys: how the variance of q·k grows with d_k, and what softmax makes of it.

Vaswani et al. 2017, section 3.2.1, footnote 4: if the components of q and k are independent
with mean 0 and variance 1, q·k has mean 0 and variance d_k. Everything is float64, and one
seed gives one draw, whatever the divisor, so that only the divisor makes the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from attnviz import equation

DIVISORS: dict[str, Callable[[int], float]] = {
    "1": lambda d_k: 1.0,
    "√d_k": lambda d_k: d_k**0.5,
    "d_k": lambda d_k: float(d_k),
    "d_k²": lambda d_k: float(d_k) ** 2,
}


@dataclass(frozen=True)
class Estimate:
    """A measured number and its standard error, in the same unit."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Simulation:
    """One value per trial; a trial is one query before `n_keys` keys.

    `mean_square_logit` is (1/n) Σ z²; `entropy` is in nats; `jacobian_trace` and
    `jacobian_norm` (Frobenius) belong to J = diag(p) − p pᵀ, the derivative of the weights p
    by the logits; `query_gradient_norm` is ‖dL/dq‖ of a loss with random gradient g ~ N(0, I)
    on the weights.
    """

    mean_square_logit: Float64[np.ndarray, " trials"]
    max_weight: Float64[np.ndarray, " trials"]
    entropy: Float64[np.ndarray, " trials"]
    jacobian_trace: Float64[np.ndarray, " trials"]
    jacobian_norm: Float64[np.ndarray, " trials"]
    query_gradient_norm: Float64[np.ndarray, " trials"]


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


def predicted_variance(d_k: int, divisor: float) -> float:
    """Variance of q·k / divisor for independent entries of variance 1: d_k / divisor²."""
    return d_k / divisor**2


def simulate(d_k: int, n_keys: int, divisor: float, trials: int, seed: int) -> Simulation:
    """Attention of random queries before random keys, trial by trial.

    A trial has q, k₁…k_n ~ N(0, I_d) and g ~ N(0, I_n), all independent; z = Kq / divisor,
    p = softmax z, dL/dq = Kᵀ J g / divisor. The n · d_k entries of K are not drawn one by one:
    given q, the scores are |q| ζ with ζ ~ N(0, I_n), and ‖Kᵀu‖² = (ζ·u)² + |u|² χ²_{d−1}
    for any u that depends on the scores alone, which has exactly the same law.
    """
    dice = np.random.default_rng(seed)
    zeta = torch.from_numpy(dice.standard_normal((trials, n_keys)))
    loss_gradient = torch.from_numpy(dice.standard_normal((trials, n_keys)))
    query_norm = torch.from_numpy((2 * dice.standard_gamma(d_k / 2, trials)) ** 0.5)
    across = torch.from_numpy(2 * dice.standard_gamma((d_k - 1) / 2, trials))

    logits = equation.logits(query_norm[:, None] * zeta, 1 / divisor)
    weights = equation.weights(logits)
    pulled = weights * (loss_gradient - (weights * loss_gradient).sum(-1, keepdim=True))
    along = (zeta * pulled).sum(-1)
    gradient = (along**2 + (pulled**2).sum(-1) * across).sqrt() / divisor
    return Simulation(
        mean_square_logit=(logits**2).mean(-1).numpy(),
        max_weight=weights.amax(-1).numpy(),
        entropy=torch.special.entr(weights).sum(-1).numpy(),
        jacobian_trace=jacobian_trace(weights).numpy(),
        jacobian_norm=jacobian_norm(weights).numpy(),
        query_gradient_norm=gradient.numpy(),
    )


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
