"""Heads of MiniLM that are known from its eager attention: found again through capture."""

from __future__ import annotations

import pytest

from attnviz import attention
from attnviz.capture import Capture, capture
from attnviz.head_statistics import first_token, previous_token
from attnviz.models import ModelNotLoaded, load
from attnviz.tokens import model_inputs, tokenize

TEXT = (
    "The quick brown fox jumps over the lazy dog. "
    "The dog did not mind, because the dog was asleep in the sun."
)


@pytest.fixture(scope="module")
def read() -> Capture:
    try:
        minilm = load("minilm")
    except ModelNotLoaded as reason:
        pytest.skip(str(reason))
    return capture(minilm.model, model_inputs(tokenize(minilm.tokenizer, TEXT)))


def test_previous_token_head(read: Capture):
    weights = attention.weights(read.calls[0], 2)
    assert float(previous_token(weights)) == pytest.approx(0.9998, abs=1e-3)


def test_next_token_head(read: Capture):
    between_words = slice(1, -1)  # not from [CLS], not to [SEP]
    weights = attention.weights(read.calls[1], 8).diagonal(offset=1)[between_words]
    assert float(weights.mean()) == pytest.approx(0.644, abs=5e-4)


def test_head_that_looks_at_cls(read: Capture):
    weights = attention.weights(read.calls[4], 5)
    assert float(first_token(weights)) == pytest.approx(0.807, abs=5e-4)


def test_no_other_head_of_layer_0_looks_back_as_much(read: Capture):
    scores = [float(previous_token(attention.weights(read.calls[0], h))) for h in range(12)]
    assert scores.index(max(scores)) == 2
