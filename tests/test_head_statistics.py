"""Each statistic on heads whose value one can do in the head, and against slow loops."""

from __future__ import annotations

import math

import pytest
import torch

from attnviz import head_statistics as statistics

N = 7
UNIFORM_CAUSAL = torch.ones(N, N).tril() / torch.arange(1, N + 1)[:, None]
VISIBLE = torch.ones(N, N, dtype=torch.bool).tril()


def shifted(offset: int) -> torch.Tensor:
    """A head that puts all weight `offset` tokens back, and on the first where there is none."""
    weights = torch.zeros(N, N)
    for query in range(N):
        weights[query, max(0, query - offset)] = 1
    return weights


def test_entropy_of_uniform_and_of_one_hot():
    expected = torch.arange(1, N + 1).float().log()
    torch.testing.assert_close(statistics.entropy(UNIFORM_CAUSAL), expected, atol=1e-6, rtol=0)
    assert statistics.entropy(shifted(1)).tolist() == [0.0] * N


def test_relative_entropy_is_one_for_uniform_and_zero_for_one_hot():
    assert float(statistics.relative_entropy(UNIFORM_CAUSAL, VISIBLE)) == pytest.approx(1)
    assert float(statistics.relative_entropy(shifted(1), VISIBLE)) == 0


def test_effective_keys_of_uniform_is_the_mean_number_visible():
    assert float(statistics.effective_keys(UNIFORM_CAUSAL)) == pytest.approx((N + 1) / 2)


def test_previous_first_and_diagonal_tell_directions_apart():
    previous = shifted(1)
    assert float(statistics.previous_token(previous)) == 1
    assert float(statistics.previous_token(previous.T)) == 0
    assert float(statistics.diagonal(shifted(0))) == 1
    assert float(statistics.diagonal(previous)) == 0
    assert float(statistics.first_token(shifted(N))) == 1
    assert float(statistics.first_token(shifted(N).T)) == 0


def test_first_token_of_uniform_causal_is_the_harmonic_mean():
    harmonic = sum(1 / i for i in range(1, N + 1))
    expected = (harmonic - 1) / (N - 1)
    assert float(statistics.first_token(UNIFORM_CAUSAL)) == pytest.approx(expected)


def test_distance_counts_tokens_either_way():
    assert float(statistics.distance(shifted(0))) == 0
    assert float(statistics.distance(shifted(2))) == pytest.approx((0 + 1 + 2 * (N - 2)) / N)
    assert float(statistics.distance(shifted(2).T)) > 0


def test_induction_looks_at_what_followed():
    period = 3
    weights = torch.zeros(1 + 2 * period, 1 + 2 * period)
    for query in range(1 + period, 1 + 2 * period):
        weights[query, query - period + 1] = 1
    assert float(statistics.induction(weights, period)) == 1
    assert float(statistics.induction(shifted(period), period)) == 0


def test_statistics_keep_leading_axes():
    heads = torch.stack([shifted(0), shifted(1), UNIFORM_CAUSAL]).expand(2, 3, N, N)
    for statistic in (
        statistics.effective_keys,
        statistics.previous_token,
        statistics.first_token,
        statistics.diagonal,
        statistics.distance,
    ):
        assert statistic(heads).shape == (2, 3)
        assert float(statistic(heads)[1, 1]) == pytest.approx(float(statistic(heads[1, 1])))


def test_row_variance_equals_a_loop_over_rows():
    torch.manual_seed(3)
    values = torch.randn(N, N).masked_fill(~VISIBLE, -math.inf)
    rows = [values[i, : i + 1] for i in range(1, N)]
    expected = sum(float(row.var()) for row in rows) / len(rows)
    assert float(statistics.row_variance(values, VISIBLE)) == pytest.approx(expected, rel=1e-5)


def test_row_variance_ignores_what_is_added_to_a_whole_row():
    torch.manual_seed(4)
    values = torch.randn(N, N)
    moved = values + 100 * torch.randn(N, 1)
    same = statistics.row_variance(values, VISIBLE)
    torch.testing.assert_close(statistics.row_variance(moved, VISIBLE), same, atol=1e-4, rtol=0)


def test_row_variance_of_random_scores_is_d_k_for_short_rows_too():
    dice = torch.Generator().manual_seed(5)
    query = torch.randn(3000, 5, 11, generator=dice)
    key = torch.randn(3000, 5, 11, generator=dice)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    means = statistics.row_variance(query @ key.mT, visible)
    error = float(means.std()) / 3000**0.5
    assert float(means.mean()) == pytest.approx(11, abs=4 * error)
