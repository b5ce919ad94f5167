"""Training a toy of one attention head on made-up lookups, step by step.

Several seeds and learning rates train at once, as replicas along the first axis of every matrix:
what a replica learns depends on its own seed and rate. A seed has the same first weights and the
same lookups under every divisor, rate and optimiser, so that only these make the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import lookup_task, projections, synthetic
from attnviz.lookup_task import CONTENTS, ITEMS, Lookups, Source, Task
from attnviz.projections import VARIANTS, Attended, Widths

Optimiser = Literal["Adam", "SGD"]
OPTIMISERS: tuple[Optimiser, ...] = ("Adam", "SGD")
D_MODEL = 64
D_V = 64
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
HELD_OUT_SEED = 900_000  # added to a seed: what is measured on is never trained on
EMBEDDING = "E"


@dataclass(frozen=True)
class Recipe:
    """All that a run depends on.

    `divisor` is what q·k is divided by; `looks` are the steps at which a record is made, the
    last step always. With `cosine` the rate falls to 0 like a quarter of a wave, else it stays.
    `batch` lookups a step, `held_out` others for what is measured.
    """

    d_k: int
    divisor: float
    optimiser: Optimiser
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: int
    looks: tuple[int, ...] = ()
    task: Task = "same"
    variant: str = "Q K V"
    d_v: int = D_V
    batch: int = 32
    held_out: int = 512
    cosine: bool = False

    @property
    def replicas(self) -> tuple[tuple[float, int], ...]:
        """The rate and the seed of each replica."""
        return tuple((rate, seed) for rate in self.rates for seed in self.seeds)

    @property
    def widths(self) -> Widths:
        """Of the head that is trained."""
        copies = self.task == "copy a vector"
        x = lookup_task.features(self.task) if copies else D_MODEL
        return Widths(x, self.d_k, self.d_v, CONTENTS)


@dataclass(frozen=True)
class Record:
    """What is known after so many steps, one number for each replica.

    Loss (nats, or squared error), accuracy (or R²), the entropy of the weights over that of even
    ones, the weight on the item that holds the answer, and the mean and median over the lookups of
    ‖J‖ (Frobenius), J = diag(p) − p pᵀ, are measured on lookups that training never sees.
    `query_gradient` is ‖dL/dW_Q‖ (Frobenius) on the batch of the next step. `attention` is what
    one set of items gets from a query for each of them. Where a replica has diverged, all is NaN.
    """

    step: int
    loss: Float[Tensor, " replica"]
    accuracy: Float[Tensor, " replica"]
    entropy: Float[Tensor, " replica"]
    target_weight: Float[Tensor, " replica"]
    jacobian_mean: Float[Tensor, " replica"]
    jacobian_median: Float[Tensor, " replica"]
    query_gradient: Float[Tensor, " replica"]
    attention: Float[Tensor, "replica query item"]


Matrices = Mapping[str, Tensor]

# The scale in training: every d_k, optimiser, divisor and rate of these, with every seed.
D_KS, SEEDS = (64, 256), (0, 1, 2, 3, 4)
RATES: Mapping[Optimiser, tuple[float, ...]] = {"Adam": (1e-3, 3e-3, 1e-2), "SGD": (0.3, 1.0, 3.0)}
STEPS: Mapping[Optimiser, int] = {"Adam": 1500, "SGD": 1000}
LOOKS = (*range(0, 100, 20), *range(100, 400, 50), *range(400, 1001, 100), 1200)


def of_scale(d_k: int, optimiser: Optimiser, divisor: str) -> Recipe:
    """The run behind the curves of one divisor, by its name."""
    power = synthetic.POWERS[divisor]
    return Recipe(
        d_k,
        synthetic.divisor(d_k, power),
        optimiser,
        RATES[optimiser],
        SEEDS,
        STEPS[optimiser],
        LOOKS,
    )


# Projections in training: every task, variant and head width of these, with every seed.
HEAD_WIDTHS: Mapping[Task, tuple[int, ...]] = {
    "same": (4, 6, 8, 16),
    "partner": (4, 8, 16, 32),
    "copy a vector": (16, 18, 20, 24, 32),
    "readout by the query": (4, 8, 16, 32),
}
PROJECTION_STEPS = 800
PROJECTION_LOOKS = (0, 50, 100, 200, 400, 600)
PROJECTION_BATCH = 64


def of_projections(task: Task, variant: str, width: int) -> Recipe:
    """The run behind the curves of one variant: d_k = d_v = width, divisor √d_k."""
    recipe = Recipe(
        d_k=width,
        divisor=1.0,
        optimiser="Adam",
        rates=(1e-2 if task == "copy a vector" else 3e-3,),
        seeds=SEEDS,
        steps=PROJECTION_STEPS,
        looks=PROJECTION_LOOKS,
        task=task,
        variant=variant,
        d_v=width,
        batch=PROJECTION_BATCH,
        cosine=True,
    )
    key = projections.key_width(VARIANTS[variant], recipe.widths)
    return replace(recipe, divisor=float(key) ** 0.5)


def train(recipe: Recipe) -> Iterator[Record]:
    """Train; a record at each look. Whoever takes no more records has stopped the run."""
    seeds = range(len(recipe.seeds))
    sources = [Source(recipe.task, seed) for seed in recipe.seeds]
    held_out = [Source(recipe.task, HELD_OUT_SEED + seed) for seed in recipe.seeds]
    for source, other in zip(sources, held_out, strict=True):
        other.codes = source.codes
    times = len(recipe.rates)
    measured_on = lookup_task.together([one.draw(recipe.held_out) for one in held_out], times)
    probe = lookup_task.together([one.probe() for one in held_out], times)
    matrices = first_matrices(recipe)
    update = _Update(recipe, matrices)
    for step in range(recipe.steps + 1):
        batch = lookup_task.together([sources[i].draw(recipe.batch) for i in seeds], times)
        gradients = _gradients(matrices, recipe, batch)
        if step in recipe.looks or step == recipe.steps:
            yield _record(step, matrices, recipe, measured_on, probe, gradients["W_Q"])
        if step < recipe.steps:
            update.step(step, gradients)


def first_matrices(recipe: Recipe) -> dict[str, Tensor]:
    """Normal entries of variance 1/rows; ½ for the symbols' vectors, of which two are added."""
    shapes = projections.shapes(VARIANTS[recipe.variant], recipe.widths)
    by_seed = []
    for seed in recipe.seeds:
        dice = torch.Generator().manual_seed(2**33 + seed)
        own = {}
        if recipe.task != "copy a vector":
            rows = lookup_task.features(recipe.task)
            own[EMBEDDING] = torch.randn(rows, D_MODEL, generator=dice) * 0.5**0.5
        for name, (rows, columns) in shapes.items():
            own[name] = torch.randn(rows, columns, generator=dice) * rows**-0.5
        own["b"] = torch.zeros(1, CONTENTS)
        by_seed.append(own)
    times = len(recipe.rates)
    return {name: torch.stack([own[name] for own in by_seed] * times) for name in by_seed[0]}


def answered(matrices: Matrices, recipe: Recipe, lookups: Lookups) -> Attended:
    """What the head makes of lookups."""
    query, items = lookups.query, lookups.items
    if EMBEDDING in matrices:
        table = matrices[EMBEDDING][:, None]
        query, items = query @ table, items @ table
    variant = VARIANTS[recipe.variant]
    return projections.attended(matrices, variant, recipe.divisor, query, items)


def _gradients(matrices: Matrices, recipe: Recipe, batch: Lookups) -> dict[str, Tensor]:
    leaves = {name: matrix.detach().requires_grad_() for name, matrix in matrices.items()}
    losses = lookup_task.loss(answered(leaves, recipe, batch).answers, batch)
    # The sum over replicas leaves each with the gradient of its own loss.
    found = torch.autograd.grad(losses.sum(), list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


class _Update:
    """Changes the matrices by Adam (Kingma and Ba 2015) or by plain gradient descent.

    Written out since torch's optimisers know one rate for a tensor, and replicas differ in it.
    """

    def __init__(self, recipe: Recipe, matrices: dict[str, Tensor]) -> None:
        self.recipe, self.matrices = recipe, matrices
        self.rates = torch.tensor([rate for rate, _ in recipe.replicas])[:, None, None]
        self.first = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}
        self.second = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}

    def step(self, step: int, gradients: Matrices) -> None:
        """One step, counted from 0."""
        share = (1 + math.cos(math.pi * step / self.recipe.steps)) / 2 if self.recipe.cosine else 1
        for name, gradient in gradients.items():
            change = (
                gradient if self.recipe.optimiser == "SGD" else self._adam(name, gradient, step)
            )
            self.matrices[name].sub_(share * self.rates * change)

    def _adam(self, name: str, gradient: Tensor, step: int) -> Tensor:
        first, second = self.first[name], self.second[name]
        first.lerp_(gradient, 1 - BETAS[0])
        second.lerp_(gradient.square(), 1 - BETAS[1])
        mean, square = (
            moment / (1 - beta ** (step + 1))
            for moment, beta in zip((first, second), BETAS, strict=True)
        )
        return mean / (square.sqrt() + EPSILON)


@torch.no_grad()
def _record(
    step: int,
    matrices: Matrices,
    recipe: Recipe,
    held_out: Lookups,
    probe: Lookups,
    query_gradient: Float[Tensor, "replica x d_k"],
) -> Record:
    found = answered(matrices, recipe, held_out)
    weights = found.weights
    losses = lookup_task.loss(found.answers, held_out)
    jacobian = synthetic.jacobian_norm(weights)
    numbers = {
        "loss": losses,
        "accuracy": lookup_task.accuracy(found.answers, held_out),
        "entropy": torch.special.entr(weights).sum(-1).mean(-1) / math.log(ITEMS),
        "target_weight": weights.gather(-1, held_out.place[..., None]).mean((1, 2)),
        "jacobian_mean": jacobian.mean(-1),
        "jacobian_median": jacobian.median(-1).values,
        "query_gradient": query_gradient.norm(dim=(1, 2)),
    }
    # What a diverged replica answers is a number still: the first content, always.
    lost = ~losses.isfinite()
    return Record(
        step,
        **{name: number.masked_fill(lost, torch.nan) for name, number in numbers.items()},
        attention=answered(matrices, recipe, probe).weights,
    )
