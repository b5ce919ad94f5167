"""A real head's moments against loops over its pairs, its rows against autograd."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from calls_by_hand import plain_call
from cell_reference import inputs_for, model_of

from attnviz import attention, head_moments, head_statistics
from attnviz.attention_call import AttentionCall
from attnviz.call_statistics import of_all_heads
from attnviz.capture import capture

HEADS, KV_HEADS, N, D_K, D_V, BATCH = 6, 2, 13, 7, 11, 3
CAUSAL = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
HEAD, KV_HEAD, ROW = 4, 1, 2
CHANGES = {
    "plain": {},
    "causal": {"mask": CAUSAL},
    "softcap": {"mask": CAUSAL, "softcap": 1.5},
    "bias": {"mask": CAUSAL, "bias": torch.linspace(-2, 2, N * N).reshape(1, 1, N, N)},
    "sinks": {"mask": CAUSAL, "sinks": torch.linspace(-1, 1, HEADS)},
    "factor": {"query_factor": 0.25, "scale": 1.0},
}


def call(**changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(51)
    fields = {
        "query": torch.randn(BATCH, HEADS, N, D_K, generator=dice) + 0.3,
        "key": 2 * torch.randn(BATCH, KV_HEADS, N, D_K, generator=dice) - 0.5,
        "value": torch.randn(BATCH, KV_HEADS, N, D_V, generator=dice),
        "scale": 0.4,
    }
    return plain_call(**(fields | changes))


def pairs_of(of: AttentionCall, visible: np.ndarray) -> list[list[tuple[float, float]]]:
    """Score and cosine of each visible pair, row by row, in Python's own numbers."""
    query, key = of.query[ROW, HEAD].tolist(), of.key[ROW, KV_HEAD].tolist()
    rows = []
    for i, j in zip(*np.nonzero(visible), strict=True):
        score = sum(a * b for a, b in zip(query[i], key[j], strict=True))
        lengths = math.hypot(*query[i]) * math.hypot(*key[j])
        while len(rows) <= i:
            rows.append([])
        rows[i].append((score, score / lengths))
    return rows


@pytest.mark.parametrize("name", ["plain", "causal"])
def test_moments_are_those_of_the_visible_pairs(name: str):
    of = call(**CHANGES[name])
    rows = head_moments.rows_of(of, HEAD, ROW)
    found = head_moments.moments_of(rows)
    visible = (np.tril(np.ones((N, N))) if name == "causal" else np.ones((N, N))) > 0
    by_hand = pairs_of(of, visible)
    scores = [np.array([score for score, _ in row]) for row in by_hand]
    pooled = np.concatenate(scores)
    assert found.mean == pytest.approx(pooled.mean())
    assert found.pooled_variance == pytest.approx(pooled.var())
    within = [row.var(ddof=1) for row in scores if len(row) > 1]
    assert found.row_variance == pytest.approx(np.mean(within))
    means = np.concatenate([np.full(len(row), row.mean()) for row in scores])
    assert found.between_rows == pytest.approx(means.var())
    assert found.cosine == pytest.approx(np.mean([cos for row in by_hand for _, cos in row]))
    assert (found.queries, found.pairs, found.d_k) == (N, visible.sum(), D_K)
    assert found.row_variance == pytest.approx(
        float(head_statistics.row_variance(attention.scores(of, HEAD, ROW), rows.visible)),
        rel=1e-5,
    )
    query, key = of.query[ROW, HEAD].double().numpy(), of.key[ROW, KV_HEAD].double().numpy()
    assert found.query_length == pytest.approx(np.linalg.norm(query, axis=1).mean())
    assert found.key_length == pytest.approx(np.linalg.norm(key, axis=1).mean())
    assert found.query_mean_length == pytest.approx(np.linalg.norm(query.mean(0)))
    assert found.key_mean_length == pytest.approx(np.linalg.norm(key.mean(0)))
    assert found.query_std == pytest.approx((query.var(0).mean()) ** 0.5)
    assert found.key_std == pytest.approx((key.var(0).mean()) ** 0.5)


def test_if_every_query_sees_every_key_they_are_independent():
    """All pairs of N queries and N keys are just the product of the two distributions."""
    found = head_moments.moments_of(head_moments.rows_of(call(), HEAD, ROW))
    assert found.independent_mean == pytest.approx(found.mean)
    assert found.independent_variance == pytest.approx(found.pooled_variance)


@pytest.mark.parametrize("name", CHANGES)
def test_under_its_own_divisor_a_head_is_as_the_model_has_it(name: str):
    of = call(**CHANGES[name])
    rows = head_moments.rows_of(of, HEAD, ROW)
    weights = attention.weights(of, HEAD, ROW).double()
    own = 1 / rows.scale
    torch.testing.assert_close(head_moments.row_weights(rows, own), weights, atol=2e-6, rtol=1e-5)
    measured = head_moments.measured(rows, own, seed=1)
    everywhere = of_all_heads(of, ROW)
    assert measured.max_weight.mean() == pytest.approx(
        float(everywhere.largest_weight[HEAD]), rel=1e-4
    )
    assert measured.effective_keys.mean() == pytest.approx(
        float(everywhere.effective_keys[HEAD]), rel=1e-4
    )
    several = rows.visible.sum(-1) > 1
    assert measured.relative_entropy[several.numpy()].mean() == pytest.approx(
        float(everywhere.relative_entropy[HEAD]), rel=1e-4
    )


@pytest.mark.parametrize("name", CHANGES)
def test_jacobian_and_gradients_by_autograd(name: str):
    rows, divisor = head_moments.rows_of(call(**CHANGES[name]), HEAD, ROW), 1.9
    measured = head_moments.measured(rows, divisor, seed=52)
    loss = torch.from_numpy(np.random.default_rng([52, N, N]).standard_normal((N, N)))
    query = rows.query.clone().requires_grad_()

    def softmax(logits: torch.Tensor) -> torch.Tensor:
        if rows.sink is None:
            return logits.softmax(-1)
        return torch.cat([logits, rows.sink.expand(len(logits), 1)], -1).softmax(-1)

    scaled = query @ rows.key.T / divisor
    if rows.softcap is not None:
        scaled = rows.softcap * torch.tanh(scaled / rows.softcap)
    if rows.bias is not None:
        scaled = scaled + rows.bias
    logits = scaled.masked_fill(~rows.visible, -torch.inf)
    (softmax(logits)[:, :N] * loss).sum().backward()
    np.testing.assert_allclose(measured.query_gradient_norm, query.grad.norm(dim=1), atol=1e-12)
    weights = softmax(logits.detach())
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
    assert float(jacobian.sum(-1).abs().max()) < 1e-14
    np.testing.assert_allclose(measured.jacobian_norm, jacobian.flatten(1).norm(dim=1), atol=1e-12)
    np.testing.assert_allclose(measured.jacobian_trace, 1 - (weights**2).sum(-1), atol=1e-12)
    pulled = (jacobian[:, :N, :N] @ loss[..., None]).squeeze(-1)
    np.testing.assert_allclose(measured.logit_gradient_norm, pulled.norm(dim=1), atol=1e-12)


def test_what_the_query_was_multiplied_by_is_part_of_the_scale():
    plain = head_moments.rows_of(call(), HEAD, ROW)
    shortened = call(query_factor=0.25)
    found = head_moments.rows_of(shortened, HEAD, ROW)
    torch.testing.assert_close(found.scores, 4 * plain.scores)
    assert found.scale == pytest.approx(0.1)


def test_padding_and_rows_that_see_nothing_are_left_out():
    padded = torch.zeros(BATCH, N, dtype=torch.bool)
    padded[:, :3] = True
    mask = CAUSAL.repeat(BATCH, 1, 1, 1) & ~padded[:, None, None]
    mask[ROW, 0, 5] = False
    found = head_moments.rows_of(call(mask=mask, query_padding=padded), HEAD, ROW)
    assert found.positions.tolist() == [3, 4, *range(6, N)]
    cut = call()
    cut = dataclasses.replace(
        cut, query=cut.query[:, :, 3:], key=cut.key[:, :, 3:], value=cut.value[:, :, 3:]
    )
    whole = mask[:, :, 3:, 3:]
    other = head_moments.rows_of(dataclasses.replace(cut, mask=whole), HEAD, ROW)
    one, two = head_moments.moments_of(found), head_moments.moments_of(other)
    for name, value in vars(one).items():
        assert getattr(two, name) == pytest.approx(value), name


def test_of_a_long_text_evenly_spaced_queries_are_taken():
    found = head_moments.rows_of(call(mask=CAUSAL), HEAD, ROW, most_pairs=4 * N + 5)
    assert found.positions.tolist() == [0, 4, 8, 12]
    every = attention.scores(call(), HEAD, ROW).double()
    torch.testing.assert_close(found.scores, every[[0, 4, 8, 12]], atol=1e-5, rtol=1e-5)
    assert found.visible.sum(-1).tolist() == [1, 5, 9, 13]
    assert head_moments.rows_of(call(), HEAD, ROW, most_pairs=1).positions.tolist() == [0]


def test_where_nothing_is_seen_there_is_nothing_to_tell():
    hidden = call(mask=torch.zeros(1, 1, N, N, dtype=torch.bool))
    found = head_moments.moments_of(head_moments.rows_of(hidden, HEAD, ROW))
    assert (found.queries, found.pairs) == (0, 0)
    assert math.isnan(found.pooled_variance)
    assert math.isnan(found.row_variance)


def test_weights_alone_have_no_scores():
    given = call(query=None, key=None, observed_weights=torch.ones(BATCH, HEADS, N, N) / N)
    with pytest.raises(ValueError, match="offers weights only"):
        head_moments.rows_of(given, HEAD)


def test_seeds_gradient_is_the_same_whatever_the_divisor():
    rows = head_moments.rows_of(call(query=torch.zeros(BATCH, HEADS, N, D_K)), HEAD, ROW)
    one, other = (head_moments.measured(rows, divisor, seed=3) for divisor in (1.0, 2.0))
    np.testing.assert_allclose(one.query_gradient_norm, 2 * other.query_gradient_norm)
    np.testing.assert_allclose(one.jacobian_norm, (N - 1) ** 0.5 / N)


@pytest.mark.parametrize("family", ["bundled", "minilm"])
def test_heads_of_real_models_from_their_captured_vectors(family: str):
    of = capture(model_of(family), inputs_for(family)).calls[1]
    n, head = of.n[0], of.heads - 1
    rows = head_moments.rows_of(of, head, batch=1)
    found = head_moments.moments_of(rows)
    query = of.query[1, head].double().numpy()
    key = of.key[1, of.kv_head(head)].double().numpy()
    visible = np.tril(np.ones((n, n))) > 0 if family == "bundled" else np.ones((n, n)) > 0
    scores = query @ key.T
    assert found.pooled_variance == pytest.approx(scores[visible].var())
    several = visible.sum(1) > 1
    within = [
        row[seen].var(ddof=1) for row, seen in zip(scores[several], visible[several], strict=True)
    ]
    assert found.row_variance == pytest.approx(np.mean(within))
    lengths = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(key, axis=1)
    assert found.cosine == pytest.approx((scores / lengths)[visible].mean())
    for divisor in (1.0, of.d_k**0.5):
        exponentials = np.exp(scores / divisor) * visible
        weights = exponentials / exponentials.sum(1, keepdims=True)
        measured = head_moments.measured(rows, divisor, seed=1)
        np.testing.assert_allclose(measured.max_weight, weights.max(1))
        loss = np.random.default_rng([1, n, n]).standard_normal((n, n))
        pulled = weights * (loss - (weights * loss).sum(1, keepdims=True))
        gradient = np.linalg.norm(pulled @ key, axis=1) / divisor
        np.testing.assert_allclose(measured.query_gradient_norm, gradient, atol=1e-12)
