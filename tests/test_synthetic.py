"""The playground against published reference values, closed forms and a direct simulation."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import numpy as np
import pytest
import torch

from attnviz import moments, synthetic
from attnviz.moments import DISTRIBUTIONS, Distribution, Vectors
from attnviz.synthetic import DIVISORS, Draw, WholeKeys, simulate

TRIALS = 20_000

# d_k, n, divisor: means and their standard errors over 20,000 trials of an independent
# simulation: largest weight, entropy (nats), ‖J‖_F, ‖dL/dq‖; medians of the last two.
# fmt: off
# ruff: noqa: E501
REFERENCE = {
    (1, 8, "1"): (0.3039, 1.2e-3, 1.8001, 2.5e-3, 0.3486, 3.0e-4, 0.233, 1.5e-3, 0.348, 0.175),
    (1, 64, "1"): (0.0987, 7.9e-4, 3.7389, 3.7e-3, 0.1721, 3.8e-4, 0.138, 9.3e-4, 0.15, 0.104),
    (1, 512, "1"): (0.0323, 4.3e-4, 5.7699, 4.4e-3, 0.0733, 3.1e-4, 0.06776, 5.8e-4, 0.0551, 0.0454),
    (4, 8, "1"): (0.5284, 1.5e-3, 1.2863, 3.3e-3, 0.3398, 6.9e-4, 0.5191, 2.7e-3, 0.371, 0.434),
    (4, 8, "√d_k"): (0.3443, 9.9e-4, 1.7470, 1.9e-3, 0.3592, 2.3e-4, 0.3007, 1.2e-3, 0.36, 0.266),
    (4, 8, "d_k"): (0.2277, 4.8e-4, 1.9778, 6.8e-4, 0.3457, 7.8e-5, 0.1529, 5.5e-4, 0.343, 0.139),
    (4, 8, "d_k²"): (0.1473, 9.0e-5, 2.0727, 4.6e-5, 0.332, 8.4e-6, 0.03758, 1.2e-4, 0.332, 0.035),
    (4, 64, "1"): (0.2749, 1.3e-3, 2.8062, 5.4e-3, 0.2584, 4.5e-4, 0.4349, 1.9e-3, 0.261, 0.372),
    (4, 64, "√d_k"): (0.1051, 5.3e-4, 3.6994, 2.4e-3, 0.1801, 2.8e-4, 0.1683, 6.4e-4, 0.171, 0.15),
    (4, 64, "d_k"): (0.0449, 1.4e-4, 4.0367, 6.4e-4, 0.139, 8.3e-5, 0.06624, 1.9e-4, 0.136, 0.0628),
    (4, 64, "d_k²"): (0.0206, 1.6e-5, 4.1512, 4.0e-5, 0.1249, 4.8e-6, 0.01473, 3.9e-5, 0.125, 0.0143),
    (4, 512, "1"): (0.1372, 1.0e-3, 4.5560, 7.1e-3, 0.1573, 5.1e-4, 0.2832, 1.5e-3, 0.144, 0.226),
    (4, 512, "√d_k"): (0.0287, 2.2e-4, 5.7495, 2.5e-3, 0.07245, 1.8e-4, 0.07201, 3.2e-4, 0.0655, 0.0624),
    (4, 512, "d_k"): (0.0081, 3.3e-5, 6.1146, 6.2e-4, 0.05007, 3.3e-5, 0.02421, 6.7e-5, 0.049, 0.0232),
    (4, 512, "d_k²"): (0.0028, 2.7e-6, 6.2306, 3.8e-5, 0.04449, 1.7e-6, 0.005239, 1.3e-5, 0.0444, 0.0051),
    (64, 8, "1"): (0.8770, 1.2e-3, 0.3142, 2.4e-3, 0.1493, 1.2e-3, 0.9609, 1.1e-2, 0.06, 0.245),
    (64, 8, "√d_k"): (0.3607, 8.4e-4, 1.7227, 1.5e-3, 0.3656, 1.8e-4, 0.3329, 1.1e-3, 0.367, 0.309),
    (64, 8, "d_k"): (0.1486, 6.6e-5, 2.0726, 2.8e-5, 0.332, 5.1e-6, 0.03987, 8.2e-5, 0.332, 0.0391),
    (64, 8, "d_k²"): (0.1253, 8.9e-7, 2.0794, 6.8e-9, 0.3307, 1.3e-9, 0.0006216, 1.3e-6, 0.331, 0.00061),
    (64, 64, "1"): (0.7911, 1.4e-3, 0.5844, 3.5e-3, 0.2115, 1.2e-3, 1.409, 1.2e-2, 0.199, 0.814),
    (64, 64, "√d_k"): (0.1069, 3.4e-4, 3.6859, 1.1e-3, 0.1833, 1.5e-4, 0.1778, 3.9e-4, 0.179, 0.167),
    (64, 64, "d_k"): (0.0208, 8.8e-6, 4.1512, 1.4e-5, 0.1249, 1.6e-6, 0.0155, 1.4e-5, 0.125, 0.0154),
    (64, 64, "d_k²"): (0.0157, 1.0e-7, 4.1589, 3.3e-9, 0.124, 4.0e-10, 0.0002403, 2.1e-7, 0.124, 0.000239),
    (64, 512, "1"): (0.7275, 1.6e-3, 0.8276, 4.3e-3, 0.2407, 1.1e-3, 1.615, 1.1e-2, 0.277, 1.19),
    (64, 512, "√d_k"): (0.0268, 9.2e-5, 5.7423, 7.4e-4, 0.07144, 6.1e-5, 0.07084, 1.1e-4, 0.0699, 0.0681),
    (64, 512, "d_k"): (0.0028, 1.1e-6, 6.2305, 1.0e-5, 0.04449, 4.6e-7, 0.005541, 3.7e-6, 0.0445, 0.00553),
    (64, 512, "d_k²"): (0.0020, 1.2e-8, 6.2383, 2.5e-9, 0.04415, 1.1e-10, 8.59e-05, 5.7e-8, 0.0442, 8.57e-05),
}
# fmt: on


@lru_cache(maxsize=1)
def rows_drawn(d_k: int, n: int) -> Draw:
    return synthetic.draw(Vectors(), d_k, n, TRIALS, seed=11)


@pytest.mark.parametrize(("d_k", "n", "name"), REFERENCE)
def test_simulation_agrees_with_the_reference_table(d_k: int, n: int, name: str):
    reference = REFERENCE[d_k, n, name]
    drawn = synthetic.measured(rows_drawn(d_k, n), DIVISORS[name](d_k))
    measured = (drawn.max_weight, drawn.entropy, drawn.jacobian_norm, drawn.query_gradient_norm)
    printed = [4, 4, *(3 - math.floor(math.log10(mean)) for mean in reference[4:8:2])]
    for values, mean, error, decimals in zip(
        measured, reference[0:8:2], reference[1:8:2], printed, strict=True
    ):
        rounding = 0.5 * 10**-decimals
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


def test_simulate_is_a_draw_that_is_measured():
    simulated = simulate(3, 5, 2.0, 7, seed=1)
    measured = synthetic.measured(synthetic.draw(Vectors(), 3, 5, 7, seed=1), 2.0)
    for name in vars(simulated):
        np.testing.assert_array_equal(getattr(simulated, name), getattr(measured, name))


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


def drawn_by_hand(vectors: Vectors, d_k: int, n: int, trials: int, divisor: float) -> dict:
    """Whole keys with all they have in common, and gradients from autograd."""
    dice = torch.Generator().manual_seed(21)

    def standard(*shape: int) -> torch.Tensor:
        entries = torch.randn(*shape, generator=dice, dtype=torch.float64)
        if vectors.distribution == "Rademacher":
            return entries.sign()
        if vectors.distribution == "normalised":
            return entries / (entries**2).mean(-1, keepdim=True).sqrt()
        return entries

    x, y, rho = standard(trials, 1, d_k), standard(trials, n, d_k), vectors.correlation
    query = (vectors.query_mean + vectors.query_std * x).requires_grad_()
    shared = rho * x + (1 - rho**2) ** 0.5 * y
    key = vectors.key_mean + vectors.key_std * shared
    loss = torch.randn(trials, n, generator=dice, dtype=torch.float64)
    scores = (query * key).sum(-1)
    weights = (scores / divisor).softmax(-1)
    (gradient,) = torch.autograd.grad((weights * loss).sum(), query)
    return {
        "mean_square_logit": ((scores / divisor) ** 2).mean(-1).detach(),
        "max_weight": weights.amax(-1).detach(),
        "query_gradient_norm": gradient.squeeze(1).norm(dim=1),
    }


@pytest.mark.parametrize("distribution", ["Gaussian", "Rademacher", "normalised"])
def test_draw_of_any_vectors_has_the_law_of_whole_key_matrices(distribution: str):
    """With means, widths and a correlation: what keys have in common changes no gradient."""
    vectors = Vectors(distribution, 1.2, 0.8, 0.5, -0.7, 0.6)
    d_k, n, trials = 5, 3, 20_000
    drawn = synthetic.measured(synthetic.draw(vectors, d_k, n, trials, seed=22), 1.9)
    for name, values in drawn_by_hand(vectors, d_k, n, trials, 1.9).items():
        ours, theirs = getattr(drawn, name), values.numpy()
        error = math.hypot(ours.std(), theirs.std()) / trials**0.5
        assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * error), name
        quantiles = np.quantile(theirs, [0.25, 0.5, 0.75])
        np.testing.assert_allclose(np.quantile(ours, [0.25, 0.5, 0.75]), quantiles, rtol=0.05)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "settings", [{}, {"query_mean": 0.5, "key_mean": 2.0}, {"correlation": 0.9}]
)
def test_variances_of_a_draw_have_their_closed_forms(distribution: Distribution, settings: dict):
    vectors, d_k = Vectors(distribution, **settings), 6
    scores = synthetic.draw(vectors, d_k, 7, 6000, seed=23).scores
    for measure, form in (
        (synthetic.pooled_variance, moments.variance),
        (synthetic.row_variance, moments.row_variance),
    ):
        measured = measure(scores)
        assert measured.value == pytest.approx(
            form(vectors, d_k), abs=4 * measured.standard_error + 1e-9
        )


def test_settings_share_their_draw():
    plain = synthetic.draw(Vectors(), 6, 7, 11, seed=24)
    wide = synthetic.draw(Vectors(query_std=2.0, key_std=3.0), 6, 7, 11, seed=24)
    torch.testing.assert_close(wide.scores, 6 * plain.scores)
    torch.testing.assert_close(wide.loss_gradient, plain.loss_gradient)
    again = synthetic.draw(Vectors(), 6, 7, 11, seed=24)
    torch.testing.assert_close(again.scores, plain.scores, atol=0, rtol=0)
    other = synthetic.draw(Vectors(), 6, 7, 11, seed=25)
    assert not torch.equal(other.scores, plain.scores)


def test_a_constant_on_all_scores_of_a_row_changes_nothing():
    drawn = synthetic.draw(Vectors(), 6, 7, 11, seed=26)
    moved = dataclasses.replace(drawn, scores=drawn.scores + 3.0)
    one, other = synthetic.measured(drawn, 2.0), synthetic.measured(moved, 2.0)
    for name in vars(one):
        if name != "mean_square_logit":
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-12)


def test_a_constant_added_to_all_keys_changes_nothing():
    drawn = synthetic.draw(Vectors("uniform"), 6, 7, 11, seed=27)
    assert isinstance(drawn.keys, WholeKeys)
    query, shift = torch.randn(2, 11, 6, dtype=torch.float64).unbind(0)
    moved = WholeKeys(drawn.keys.key + shift[:, None])
    one, other = (
        synthetic.measured(dataclasses.replace(drawn, scores=keys.scores(query), keys=keys), 2.0)
        for keys in (drawn.keys, moved)
    )
    for name in vars(one):
        if name != "mean_square_logit":
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-12)


def test_gradient_of_whole_keys_by_autograd():
    drawn = synthetic.draw(Vectors("Laplace"), 6, 7, 5, seed=28)
    assert isinstance(drawn.keys, WholeKeys)
    query = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    scores = drawn.keys.scores(query)
    ((scores / 1.7).softmax(-1) * drawn.loss_gradient).sum().backward()
    assert query.grad is not None
    measured = synthetic.measured(dataclasses.replace(drawn, scores=scores.detach()), 1.7)
    np.testing.assert_allclose(measured.query_gradient_norm, query.grad.norm(dim=1).numpy())


def test_pulled_is_the_jacobian_times_the_gradient():
    dice = torch.Generator().manual_seed(29)
    weights = torch.randn(3, 5, generator=dice, dtype=torch.float64).softmax(-1)
    loss = torch.randn(3, 5, generator=dice, dtype=torch.float64)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
    torch.testing.assert_close(
        synthetic.pulled(weights, loss), (jacobian @ loss[..., None])[..., 0]
    )
    torch.testing.assert_close(
        synthetic.pulled(weights, torch.ones_like(loss)), torch.zeros_like(loss)
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_pairs_have_their_closed_forms(distribution: Distribution):
    vectors, d_k = Vectors(distribution, 1.5, 0.7, 0.4, -0.3, 0.6), 5
    scores = synthetic.pair_scores(vectors, d_k, 50_000, seed=30)
    error = float(scores.std()) / len(scores) ** 0.5
    assert float(scores.mean()) == pytest.approx(moments.mean(vectors, d_k), abs=4 * error)
    spread, shape = synthetic.variance(scores), synthetic.excess_kurtosis(scores)
    assert spread.value == pytest.approx(
        moments.variance(vectors, d_k), abs=4 * spread.standard_error
    )
    assert shape.value == pytest.approx(
        moments.excess_kurtosis(vectors, d_k), abs=4 * shape.standard_error
    )


def test_pairs_are_dot_products_of_the_seeds_vectors():
    vectors = Vectors("Gaussian", 2.0, 3.0, 0.5, -1.0, 0.6)
    dice = np.random.default_rng([31, 3])
    x, y = dice.standard_normal((5, 3)), dice.standard_normal((5, 3))
    by_hand = ((0.5 + 2 * x) * (-1 + 3 * (0.6 * x + 0.8 * y))).sum(-1)
    np.testing.assert_allclose(synthetic.pair_scores(vectors, 3, 5, seed=31).numpy(), by_hand)


def test_error_of_the_kurtosis_is_that_of_many_samples():
    dice = torch.Generator().manual_seed(32)
    samples = torch.rand(400, 500, generator=dice, dtype=torch.float64)
    found = [synthetic.excess_kurtosis(sample) for sample in samples]
    spread = np.std([one.value for one in found])
    assert np.mean([one.standard_error for one in found]) == pytest.approx(spread, rel=0.15)


def test_named_divisors_are_powers():
    for d_k in (1, 3, 64):
        powers = [synthetic.divisor(d_k, power) for power in synthetic.POWERS.values()]
        assert powers == [divisor(d_k) for divisor in DIVISORS.values()]
    assert list(synthetic.POWERS) == list(DIVISORS)


def test_keys_that_need_all_entries_are_drawn_in_fewer_trials():
    assert synthetic.most_trials(Vectors(), 1024, 512, 2000) == 2000
    assert synthetic.most_trials(Vectors("Laplace"), 64, 64, 2000) == 2000
    assert synthetic.most_trials(Vectors("Laplace"), 1024, 512, 2000) == 16
    drawn = synthetic.draw(Vectors("uniform"), 1024, 512, 17, seed=1)
    assert drawn.scores.shape == (16, 512)


def test_saturation_of_even_and_one_hot_rows():
    even = synthetic.draw(Vectors(key_std=0.0), 3, 5, 7, seed=33)
    measured = synthetic.measured(even, 1.0)
    np.testing.assert_allclose(measured.relative_entropy, 1.0)
    np.testing.assert_allclose(measured.effective_keys, 5.0)
    np.testing.assert_allclose(measured.query_gradient_norm, 0.0, atol=1e-12)
    sharp = synthetic.measured(synthetic.draw(Vectors(key_std=1e6), 3, 5, 7, seed=33), 1.0)
    np.testing.assert_allclose(sharp.effective_keys, 1.0)
    np.testing.assert_allclose(sharp.relative_entropy, 0.0, atol=1e-12)


def test_one_key_has_no_entropy():
    measured = synthetic.simulate(3, 1, 1.0, 7, seed=34)
    np.testing.assert_array_equal(measured.relative_entropy, 0.0)
    np.testing.assert_array_equal(measured.max_weight, 1.0)


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
