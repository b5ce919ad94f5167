"""One attention head with its projections, and what becomes of it where some of them are one.

x W_Q, x W_K and x W_V are the queries, keys and values; the answer is (Σ weights · value) W_O + b.
No residual stream, no MLP, no normalisation: nothing but the head can do the work. Several
replicas lie along the first axis of every matrix; none sees another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import equation

Projection = Literal["W_Q", "W_K", "W_V"]


@dataclass(frozen=True)
class Variant:
    """Which matrix makes the queries, keys and values, and what is added as a fourth.

    `key` is None where x itself is the key. A linear fourth is one more matrix on the values; a
    query gate is σ(x W_G) of the query's x, times the head's output, entry by entry (Qiu et al.
    2025, arXiv 2505.06708).
    """

    query: Projection = "W_Q"
    key: Projection | None = "W_K"
    value: Projection = "W_V"
    fourth: Literal["linear", "gate"] | None = None


VARIANTS: Mapping[str, Variant] = {
    "Q K V": Variant(),
    "Q = K": Variant(key="W_Q"),
    "K = V": Variant(value="W_K"),
    "Q = V": Variant(value="W_Q"),
    "Q = K = V": Variant(key="W_Q", value="W_Q"),
    "x as key": Variant(key=None),
    "+ linear fourth": Variant(fourth="linear"),
    "+ query gate": Variant(fourth="gate"),
}


@dataclass(frozen=True)
class Widths:
    """Entries of what a head reads, of its queries and keys, its values, and its answer.

    Where a matrix makes keys and values, d_k and d_v must be equal.
    """

    x: int
    d_k: int
    d_v: int
    answer: int


@dataclass(frozen=True)
class Attended:
    """What a head made of its lookups."""

    answers: Float[Tensor, "replica lookup answer"]
    weights: Float[Tensor, "replica lookup item"]


def shapes(variant: Variant, widths: Widths) -> dict[str, tuple[int, int]]:
    """Rows and columns of the matrices that a variant has."""
    d_k = widths.d_k if variant.key else widths.x
    own: dict[str, int] = {"W_Q": d_k, "W_K": d_k, "W_V": widths.d_v}
    used = [name for name in own if name in (variant.query, variant.key, variant.value)]
    found: dict[str, tuple[int, int]] = {name: (widths.x, own[name]) for name in used}
    if variant.fourth == "linear":
        found["W_4"] = (widths.d_v, widths.d_v)
    if variant.fourth == "gate":
        found["W_G"] = (widths.x, widths.d_v)
    return found | {"W_O": (widths.d_v, widths.answer)}


def key_width(variant: Variant, widths: Widths) -> int:
    """d_k, or the width of x where that is the key."""
    return widths.d_k if variant.key else widths.x


def weights_of(variant: Variant, widths: Widths) -> int:
    """How many numbers the matrices of a variant hold."""
    return sum(rows * columns for rows, columns in shapes(variant, widths).values())


def numbers_kept(variant: Variant, widths: Widths) -> int:
    """Numbers that a cache holds for each item: its key and value, once where they are one."""
    key = widths.d_k if variant.key else widths.x
    return key if variant.key == variant.value else key + widths.d_v


def attended(
    matrices: Mapping[str, Float[Tensor, ...]],
    variant: Variant,
    divisor: float,
    query_x: Float[Tensor, "replica lookup 1 x"],
    item_x: Float[Tensor, "replica lookup item x"],
) -> Attended:
    """One query before its items; `divisor` is what q·k is divided by."""
    query = _through(matrices[variant.query], query_x)
    key = _through(matrices[variant.key], item_x) if variant.key else item_x
    value = key if variant.value == variant.key else _through(matrices[variant.value], item_x)
    logits = equation.logits(equation.scores(query, key), 1 / divisor)
    weights = equation.weights(logits)
    output = equation.output(weights, value).squeeze(2)
    if variant.fourth == "linear":
        output = output @ matrices["W_4"]
    if variant.fourth == "gate":
        output = output * torch.sigmoid(query_x.squeeze(2) @ matrices["W_G"])
    return Attended(output @ matrices["W_O"] + matrices["b"], weights.squeeze(2))


def _through(
    matrix: Float[Tensor, "replica x width"], x: Float[Tensor, "replica lookup row x"]
) -> Float[Tensor, "replica lookup row width"]:
    """Each replica's rows times its own matrix, as one product."""
    return (x.flatten(1, 2) @ matrix).unflatten(1, x.shape[1:3])
