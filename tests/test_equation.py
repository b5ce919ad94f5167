"""The equation against numbers worked by hand and against PyTorch's own attention."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz import equation


def test_two_by_two_by_hand():
    query = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    key = torch.tensor([[1.0, 1.0], [0.0, 3.0]])
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    scores = equation.scores(query, key)
    assert scores.tolist() == [[1.0, 0.0], [2.0, 6.0]]

    logits = equation.logits(scores, scale=0.5)
    assert logits.tolist() == [[0.5, 0.0], [1.0, 3.0]]

    first = math.exp(0.5) / (math.exp(0.5) + 1)
    second = math.exp(1) / (math.exp(1) + math.exp(3))
    weights = equation.weights(logits)
    torch.testing.assert_close(
        weights, torch.tensor([[first, 1 - first], [second, 1 - second]]), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(equation.output(weights, value), weights)


def test_equals_pytorchs_attention():
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 13)
    mask = torch.rand(2, 3, 5, 11) > 0.4
    mask[..., 0] = True
    logits = equation.logits(equation.scores(query, key), scale=0.3, mask=mask)
    ours = equation.output(equation.weights(logits), value)
    theirs = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_soft_cap_comes_before_bias_and_mask():
    scores = torch.tensor([[8.0, -8.0, 1.0]])
    bias = torch.tensor([[0.0, 10.0, 0.0]])
    mask = torch.tensor([[True, True, False]])
    logits = equation.logits(scores, 0.5, softcap=2.0, bias=bias, mask=mask)
    capped = 2 * math.tanh(4 / 2)
    torch.testing.assert_close(logits, torch.tensor([[capped, 10 - capped, -math.inf]]))


def test_sink_takes_its_share():
    logits = torch.zeros(1, 3)
    weights = equation.weights(logits, sinks=torch.tensor(math.log(2.0)))
    torch.testing.assert_close(weights, torch.full((1, 3), 1 / 5))


def test_row_that_sees_nothing_is_zero():
    logits = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    assert equation.weights(logits).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("constant", [-50.0, 3.0, 1000.0])
def test_constant_in_a_row_changes_nothing(constant: float):
    logits = torch.tensor([[0.1, -0.7, 2.0]], dtype=torch.float64)
    shifted = equation.weights(logits + constant)
    torch.testing.assert_close(shifted, equation.weights(logits), atol=1e-12, rtol=0)
