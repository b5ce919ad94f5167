"""One head of a call: which key and value head it reads, and every term of its logits."""

from __future__ import annotations

import math

import pytest
import torch
from calls_by_hand import plain_call

from attnviz import attention
from attnviz.capture import AttentionCall

HEADS, KV_HEADS, QUERIES, KEYS, D_K, D_V = 6, 2, 3, 5, 7, 11


def call(**changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(1)
    fields = {
        "query": torch.randn(2, HEADS, QUERIES, D_K, generator=dice),
        "key": torch.randn(2, KV_HEADS, KEYS, D_K, generator=dice),
        "value": torch.randn(2, KV_HEADS, KEYS, D_V, generator=dice),
        "scale": 0.4,
    }
    return plain_call(**(fields | changes))


@pytest.mark.parametrize(("head", "kv_head"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)])
def test_grouped_query_heads_read_their_group(head: int, kv_head: int):
    grouped = call()
    for batch in range(2):
        by_hand = [
            [
                sum(q * k for q, k in zip(query.tolist(), key.tolist(), strict=True))
                for key in grouped.key[batch, kv_head]
            ]
            for query in grouped.query[batch, head]
        ]
        scores = attention.scores(grouped, head, batch)
        torch.testing.assert_close(scores, torch.tensor(by_hand), atol=1e-5, rtol=0)
        weights = (0.4 * torch.tensor(by_hand)).softmax(-1)
        torch.testing.assert_close(
            attention.output(grouped, head, batch),
            weights @ grouped.value[batch, kv_head],
            atol=1e-5,
            rtol=0,
        )


def test_bias_and_mask_of_the_right_head_and_batch():
    bias = torch.arange(2 * HEADS * QUERIES * KEYS).float().reshape(2, HEADS, QUERIES, KEYS)
    mask = torch.ones(1, 1, QUERIES, KEYS, dtype=torch.bool).tril()
    logits = attention.logits(call(bias=bias, mask=mask), head=4, batch=1)
    scores = attention.scores(call(), head=4, batch=1)
    assert logits[0, 1] == -math.inf
    assert float(logits[2, 1]) == pytest.approx(float(0.4 * scores[2, 1] + bias[1, 4, 2, 1]))


def test_sinks_of_the_right_head():
    sinks = torch.arange(HEADS).float()
    free, drained = call(), call(sinks=sinks)
    exponentials = attention.logits(free, 5).exp()
    expected = exponentials / (exponentials.sum(-1, keepdim=True) + math.exp(5.0))
    torch.testing.assert_close(attention.weights(drained, 5), expected, atol=1e-6, rtol=0)
    assert float(attention.weights(drained, 5).sum(-1).max()) < 1


def test_half_precision_is_recomputed_in_float32():
    half = call(**{name: getattr(call(), name).half() for name in ("query", "key", "value")})
    assert attention.weights(half, 0).dtype == torch.float32
    assert attention.output(half, 0).dtype == torch.float32
