"""The training loop: torch's own optimisers, the reference values, replicas apart, seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from attnviz import lookup_task, training
from attnviz.lookup_task import Source
from attnviz.projections import VARIANTS
from attnviz.training import Recipe, Record

SMALL = Recipe(
    d_k=5,
    divisor=5**0.5,
    optimiser="Adam",
    rates=(1e-2,),
    seeds=(3,),
    steps=7,
    looks=(0, 2),
    d_v=11,
    batch=13,
    held_out=17,
)
NUMBERS = ("loss", "accuracy", "entropy", "target_weight", "jacobian_mean", "jacobian_median")


def last(recipe: Recipe) -> Record:
    *_, record = training.train(recipe)
    return record


def by_torch(recipe: Recipe) -> dict[str, nn.Parameter]:
    """One replica trained by torch's optimiser."""
    matrices = {name: nn.Parameter(m) for name, m in training.first_matrices(recipe).items()}
    kind = torch.optim.Adam if recipe.optimiser == "Adam" else torch.optim.SGD
    optimiser = kind(matrices.values(), lr=recipe.rates[0])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps)
    source = Source(recipe.task, recipe.seeds[0])
    for _ in range(recipe.steps):
        batch = source.draw(recipe.batch)
        optimiser.zero_grad()
        lookup_task.loss(training.answered(matrices, recipe, batch).answers, batch).sum().backward()
        optimiser.step()
        if recipe.cosine:
            schedule.step()
    return matrices


@pytest.mark.parametrize("optimiser", ["Adam", "SGD"])
@pytest.mark.parametrize("cosine", [False, True])
def test_steps_are_those_of_torch_s_optimisers(optimiser, cosine):
    recipe = replace(SMALL, optimiser=optimiser, cosine=cosine)
    held_out = Source("same", training.HELD_OUT_SEED + 3).draw(17)
    found = training.answered(by_torch(recipe), recipe, held_out)
    expected = float(lookup_task.loss(found.answers, held_out).detach())
    assert float(last(recipe).loss) == pytest.approx(expected, rel=1e-4)


def test_same_seed_same_numbers():
    for one, other in zip(training.train(SMALL), training.train(SMALL), strict=True):
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in NUMBERS)


def test_another_seed_other_numbers():
    assert not torch.equal(last(SMALL).loss, last(replace(SMALL, seeds=(4,))).loss)


def test_records_are_of_the_looks_and_the_last_step():
    assert [record.step for record in training.train(SMALL)] == [0, 2, 7]


def test_replicas_learn_as_if_alone():
    beside = replace(SMALL, seeds=(2, 3), rates=(3e-3, 1e-2))
    together = last(beside)
    for place, (rate, seed) in enumerate(beside.replicas):
        alone = last(replace(SMALL, rates=(rate,), seeds=(seed,)))
        for name in (*NUMBERS, "query_gradient"):
            expected = float(getattr(alone, name))
            assert float(getattr(together, name)[place]) == pytest.approx(expected, rel=1e-3)


def test_divisor_and_optimiser_change_no_draw():
    first = training.first_matrices(SMALL)
    for other in (replace(SMALL, divisor=1.0), replace(SMALL, optimiser="SGD", rates=(3.0,))):
        assert all(
            torch.equal(first[name], m) for name, m in training.first_matrices(other).items()
        )


def test_first_matrices_have_the_variance_that_is_said():
    matrices = training.first_matrices(replace(SMALL, d_k=257, d_v=263, seeds=tuple(range(7))))
    expected = {"E": 1 / 2, "W_Q": 1 / 64, "W_K": 1 / 64, "W_V": 1 / 64, "W_O": 1 / 263, "b": 0}
    for name, variance in expected.items():
        assert float(matrices[name].var()) == pytest.approx(variance, rel=0.05)


def test_what_is_recorded_against_rows_one_by_one():
    record = next(training.train(SMALL))
    held_out = Source("same", training.HELD_OUT_SEED + 3).draw(17)
    matrices = training.first_matrices(SMALL)
    rows = training.answered(matrices, SMALL, held_out).weights[0].double()
    norms = torch.stack([torch.linalg.matrix_norm(torch.diag(p) - torch.outer(p, p)) for p in rows])
    entropies = torch.stack([-(p * p.log()).sum() for p in rows])
    targets = torch.stack([p[i] for p, i in zip(rows, held_out.place[0], strict=True)])
    assert float(record.jacobian_mean) == pytest.approx(float(norms.mean()), rel=1e-4)
    assert float(record.jacobian_median) == pytest.approx(float(norms.median()), rel=1e-4)
    assert float(record.entropy) == pytest.approx(float(entropies.mean()) / math.log(16), rel=1e-4)
    assert float(record.target_weight) == pytest.approx(float(targets.mean()), rel=1e-4)


def test_gradient_of_w_q_by_differences():
    matrices = {name: m.double() for name, m in training.first_matrices(SMALL).items()}
    batch = Source("same", 3).draw(SMALL.batch)
    batch = replace(batch, items=batch.items.double(), query=batch.query.double())

    def loss_at(change: torch.Tensor) -> float:
        moved = matrices | {"W_Q": matrices["W_Q"] + change}
        return float(lookup_task.loss(training.answered(moved, SMALL, batch).answers, batch))

    squares, small = 0.0, 1e-5
    for i in range(64):
        for j in range(SMALL.d_k):
            change = torch.zeros(1, 64, SMALL.d_k).double()
            change[0, i, j] = small
            squares += ((loss_at(change) - loss_at(-change)) / (2 * small)) ** 2
    assert float(next(training.train(SMALL)).query_gradient) == pytest.approx(
        squares**0.5, rel=1e-3
    )


def test_attention_is_that_of_the_probe():
    record = last(SMALL)
    assert record.attention.shape == (1, 16, 16)
    assert torch.allclose(record.attention.sum(-1), torch.ones(1, 16))


def test_who_diverges_has_no_numbers_and_leaves_the_others_alone():
    both = replace(SMALL, optimiser="SGD", rates=(1e-3, 1e6), steps=11)
    record = last(both)
    for name in NUMBERS:
        one, other = getattr(record, name).tolist()
        assert math.isfinite(one)
        assert math.isnan(other)
    alone = last(replace(both, rates=(1e-3,)))
    assert float(record.loss[0]) == pytest.approx(float(alone.loss), rel=1e-4)


def test_a_run_stops_when_nobody_takes_its_records(monkeypatch):
    batches = []
    draw = Source.draw
    monkeypatch.setattr(Source, "draw", lambda *given: batches.append(1) or draw(*given))
    run = training.train(SMALL)
    next(run)
    run.close()
    assert len(batches) == 2  # what is measured on, and the first batch


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", lookup_task.TASKS)
def test_every_variant_trains_on_every_task(task, variant):
    first, end = training.train(replace(SMALL, task=task, variant=variant, d_v=5, looks=(0,)))
    for name in (*NUMBERS, "query_gradient"):
        assert math.isfinite(getattr(end, name))
    assert not torch.equal(first.loss, end.loss)


# Before the first step, by an independent program (5 seeds): relative entropy, ‖J‖ mean and
# median, gradient of W_Q with its spread
START = {
    (64, "1"): (0.172, 0.198, 0.141, 2.89, 0.4),
    (64, "√d_k"): (0.866, 0.301, 0.294, 0.506, 0.09),
    (64, "d_k"): (0.998, 0.243, 0.243, 0.047, 0.01),
    (64, "d_k²"): (1.000, 0.242, 0.242, 7.2e-4, 1.5e-4),
    (256, "1"): (0.073, 0.105, 0.0077, 4.58, 1.0),
    (256, "√d_k"): (0.829, 0.309, 0.308, 0.515, 0.08),
    (256, "d_k"): (0.999, 0.242, 0.242, 0.023, 0.005),
    (256, "d_k²"): (1.000, 0.242, 0.242, 9.0e-5, 2e-5),
}


@pytest.mark.parametrize(("d_k", "divisor"), START)
def test_start_of_the_scale_s_curves(d_k, divisor):
    recipe = replace(training.of_scale(d_k, "Adam", divisor), rates=(1e-3,))
    record = next(training.train(recipe))
    entropy, mean, median, gradient, spread = START[d_k, divisor]
    assert float(record.entropy.mean()) == pytest.approx(entropy, abs=0.03)
    assert float(record.jacobian_mean.mean()) == pytest.approx(mean, abs=0.03)
    assert float(record.jacobian_median.mean()) == pytest.approx(median, abs=0.04)
    # Two means of five, each with this spread: four standard errors of their difference
    assert float(record.query_gradient.mean()) == pytest.approx(gradient, abs=4 * spread * 0.4**0.5)
