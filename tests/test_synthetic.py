"""The playground against published reference values, closed forms and a direct simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attnviz import synthetic
from attnviz.synthetic import DIVISORS, simulate

TRIALS = 20_000

# d_k, n, divisor: means and their standard errors over 20,000 trials of an independent
# simulation: largest weight, entropy (nats), ‖J‖_F, ‖dL/dq‖; medians of the last two.
# fmt: off
# ruff: noqa: E501
REFERENCE = {
    (1, 8, "1"): (0.3039, 1.2e-3, 1.8001, 2.5e-3, 0.3486, 3.0e-4, 0.233, 1.5e-3, 0.348, 0.175),
    (1, 512, "1"): (0.0323, 4.3e-4, 5.7699, 4.4e-3, 0.0733, 3.1e-4, 0.06776, 5.8e-4, 0.0551, 0.0454),
    (4, 8, "1"): (0.5284, 1.5e-3, 1.2863, 3.3e-3, 0.3398, 6.9e-4, 0.5191, 2.7e-3, 0.371, 0.434),
    (4, 64, "√d_k"): (0.1051, 5.3e-4, 3.6994, 2.4e-3, 0.1801, 2.8e-4, 0.1683, 6.4e-4, 0.171, 0.15),
    (4, 512, "d_k"): (0.0081, 3.3e-5, 6.1146, 6.2e-4, 0.05007, 3.3e-5, 0.02421, 6.7e-5, 0.049, 0.0232),
    (64, 8, "1"): (0.8770, 1.2e-3, 0.3142, 2.4e-3, 0.1493, 1.2e-3, 0.9609, 1.1e-2, 0.06, 0.245),
    (64, 64, "1"): (0.7911, 1.4e-3, 0.5844, 3.5e-3, 0.2115, 1.2e-3, 1.409, 1.2e-2, 0.199, 0.814),
    (64, 64, "√d_k"): (0.1069, 3.4e-4, 3.6859, 1.1e-3, 0.1833, 1.5e-4, 0.1778, 3.9e-4, 0.179, 0.167),
    (64, 512, "√d_k"): (0.0268, 9.2e-5, 5.7423, 7.4e-4, 0.07144, 6.1e-5, 0.07084, 1.1e-4, 0.0699, 0.0681),
    (64, 64, "d_k"): (0.0208, 8.8e-6, 4.1512, 1.4e-5, 0.1249, 1.6e-6, 0.0155, 1.4e-5, 0.125, 0.0154),
    (64, 8, "d_k²"): (0.1253, 8.9e-7, 2.0794, 6.8e-9, 0.3307, 1.3e-9, 0.0006216, 1.3e-6, 0.331, 0.00061),
}
# fmt: on


@pytest.mark.parametrize(("d_k", "n", "name"), REFERENCE)
def test_simulation_agrees_with_the_reference_table(d_k: int, n: int, name: str):
    reference = REFERENCE[d_k, n, name]
    drawn = simulate(d_k, n, DIVISORS[name](d_k), TRIALS, seed=11)
    measured = (drawn.max_weight, drawn.entropy, drawn.jacobian_norm, drawn.query_gradient_norm)
    for values, mean, error in zip(measured, reference[0:8:2], reference[1:8:2], strict=True):
        rounding = 0.5 * 10 ** (math.floor(math.log10(mean)) - 3)
        tolerance = 4 * math.hypot(error, error) + rounding
        assert values.mean() == pytest.approx(mean, abs=tolerance)
    # A median of 20,000 lies within four standard errors of the true one if that is between
    # these quantiles, whatever the distribution; the reference has one to three digits.
    medians = (drawn.jacobian_norm, drawn.query_gradient_norm)
    for values, median in zip(medians, reference[8:], strict=True):
        low, high = np.quantile(values, [0.48, 0.52])
        digit = 10 ** math.floor(math.log10(median)) / (2 if median == 0.06 else 200)
        assert low - digit < median < high + digit


@pytest.mark.parametrize("name", DIVISORS)
@pytest.mark.parametrize(("d_k", "n"), [(1, 8), (4, 64), (64, 8)])
def test_mean_square_logit_is_d_k_over_the_squared_divisor(d_k: int, n: int, name: str):
    divisor = DIVISORS[name](d_k)
    values = simulate(d_k, n, divisor, TRIALS, seed=12).mean_square_logit
    error = values.std() / TRIALS**0.5
    assert values.mean() == pytest.approx(d_k / divisor**2, abs=4 * error)


def test_simulation_has_the_law_of_whole_key_matrices():
    d_k, n, divisor, trials = 5, 7, 5**0.5, 20_000
    dice = torch.Generator().manual_seed(13)
    query = torch.randn(trials, d_k, generator=dice, dtype=torch.float64)
    key = torch.randn(trials, n, d_k, generator=dice, dtype=torch.float64)
    loss = torch.randn(trials, n, generator=dice, dtype=torch.float64)
    query.requires_grad_()
    weights = (torch.einsum("tnd,td->tn", key, query) / divisor).softmax(-1)
    (gradient,) = torch.autograd.grad((weights * loss).sum(), query)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    direct = {
        "max_weight": weights.amax(-1),
        "jacobian_trace": jacobian.diagonal(dim1=1, dim2=2).sum(-1),
        "jacobian_norm": jacobian.flatten(1).norm(dim=1),
        "query_gradient_norm": gradient.norm(dim=1),
    }
    drawn = simulate(d_k, n, divisor, trials, seed=14)
    for name, values in direct.items():
        ours, theirs = getattr(drawn, name), values.detach().numpy()
        error = math.hypot(ours.std(), theirs.std()) / trials**0.5
        assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * error), name
        quantiles = [0.1, 0.5, 0.9]
        np.testing.assert_allclose(
            np.quantile(ours, quantiles), np.quantile(theirs, quantiles), rtol=0.05
        )


def test_root_mean_square_gradient_has_its_closed_form():
    """E‖dL/dq‖² = ((d − 1)/s²) E‖J‖² + E[(ζ·Jg)²]/s², whose second part is small."""
    d_k, n = 64, 64
    drawn = simulate(d_k, n, d_k**0.5, TRIALS, seed=15)
    squared = float((drawn.query_gradient_norm**2).mean())
    across = (d_k - 1) / d_k * float((drawn.jacobian_norm**2).mean())
    assert across < squared < across * 1.05
    assert squared**0.5 == pytest.approx(0.1853, rel=0.02)


def test_at_d_k_1_every_divisor_gives_the_same():
    draws = [simulate(1, 7, divisor(1), 101, seed=16) for divisor in DIVISORS.values()]
    for other in draws[1:]:
        for name in vars(other):
            np.testing.assert_array_equal(getattr(other, name), getattr(draws[0], name))


def test_divisors_share_their_draw():
    plain, divided = simulate(16, 7, 1.0, 101, seed=17), simulate(16, 7, 4.0, 101, seed=17)
    np.testing.assert_allclose(plain.mean_square_logit, 16 * divided.mean_square_logit)


def test_simulation_is_float64_of_shape_trials():
    drawn = simulate(3, 5, 2.0, 7, seed=1)
    for name, values in vars(drawn).items():
        assert (values.shape, values.dtype) == ((7,), np.float64), name


def test_jacobian_of_hand_worked_rows():
    rows = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    matrix = torch.diag_embed(rows) - rows[:, :, None] * rows[:, None, :]
    assert float(matrix.sum(-1).abs().max()) < 1e-15
    torch.testing.assert_close(
        synthetic.jacobian_norm(rows), matrix.flatten(1).norm(dim=1), atol=1e-15, rtol=0
    )
    torch.testing.assert_close(
        synthetic.jacobian_trace(rows), 1 - (rows**2).sum(-1), atol=1e-15, rtol=0
    )
    assert synthetic.jacobian_norm(rows)[0] == pytest.approx(0.5)


def test_jacobian_of_a_nearly_one_hot_row_does_not_cancel():
    rest = 1e-12
    row = torch.tensor([[1 - rest, rest]], dtype=torch.float64)
    assert float(synthetic.jacobian_norm(row)) == pytest.approx(2 * rest, rel=1e-3)
    assert float(synthetic.jacobian_trace(row)) == pytest.approx(2 * rest, rel=1e-3)


@pytest.mark.parametrize("d_k", [1, 3, 32, 1024])
def test_variance_of_scores_is_d_k(d_k: int):
    scores = synthetic.sample_scores(d_k, n_keys=1, trials=4000, seed=18)[:, 0]
    measured = synthetic.variance(scores)
    assert measured.value == pytest.approx(d_k, abs=4 * measured.standard_error)
    expected_error = d_k * ((2 + 6 / d_k) / 4000) ** 0.5
    assert measured.standard_error == pytest.approx(expected_error, rel=0.25)
    divided = synthetic.variance(scores / d_k**0.5)
    assert divided.value == pytest.approx(measured.value / d_k)


def test_sampled_scores_are_dot_products_of_the_seeds_vectors():
    scores = synthetic.sample_scores(d_k=3, n_keys=5, trials=2, seed=19)
    dice = np.random.default_rng([19, 3, 5])
    query, key = dice.standard_normal((2, 1, 3)), dice.standard_normal((2, 5, 3))
    np.testing.assert_allclose(scores.numpy(), (query * key).sum(-1))


def test_row_of_weights_by_hand():
    row = synthetic.row_of_weights(torch.tensor([0.0, 2.0], dtype=torch.float64), divisor=2.0)
    assert float(row[1]) == pytest.approx(math.e / (1 + math.e))
