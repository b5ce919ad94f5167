"""Means, maxima and rollout, against loops over heads and layers and products by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from calls_by_hand import plain_call
from test_windows import by_loops, calls_of
from torch import Tensor

from attnviz import attention, pooling
from attnviz.attention_call import AttentionCall
from attnviz.pooling import (
    HIDES,
    over_heads,
    over_layers,
    pooled,
    rollout,
)
from attnviz.windows import by_largest

NAN = math.nan
HEADS, KV_HEADS, QUERIES, KEYS, D_K, D_V, LAYERS = 6, 2, 7, 11, 5, 3, 3


def random(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def call(queries: int = QUERIES, keys: int = KEYS, seed: int = 1, **changes) -> AttentionCall:
    fields = {
        "query": random(2, HEADS, queries, D_K, seed=seed),
        "key": random(2, KV_HEADS, keys, D_K, seed=seed + 10),
        "value": random(2, KV_HEADS, keys, D_V, seed=seed + 20),
        "scale": 0.9,
        "mask": torch.ones(1, 1, queries, keys, dtype=torch.bool).tril(keys - queries),
    }
    return plain_call(**(fields | changes))


def by_head(of: AttentionCall, what: str = "weights", batch: int = 0) -> np.ndarray:
    """(head query key) in double precision, NaN where hidden."""
    heads = []
    for head in range(of.heads):
        matrix = getattr(attention, what)(of, head, batch)
        mask = attention.mask(of, head, batch)
        heads.append(matrix if mask is None else matrix.masked_fill(~mask, NAN))
    return torch.stack(heads).double().numpy()


def mean_of(heads: np.ndarray) -> np.ndarray:
    hidden = np.isnan(heads).all(0)
    return np.where(hidden, NAN, np.nan_to_num(heads).sum(0) / len(heads))


def same(found: Tensor, expected: np.ndarray | Tensor | list) -> None:
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), atol=2e-6, rtol=1e-5)


def of_weights(*heads: list[list[float]]) -> AttentionCall:
    """A call of which the weights of each head are known."""
    weights = torch.tensor([heads])
    value = torch.zeros(1, len(heads), weights.shape[-1], D_V)
    return plain_call(query=None, key=None, value=value, scale=1.0, observed_weights=weights)


# --- heads


def test_two_heads_by_hand():
    of = of_weights([[0.75, 0.25], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]])
    same(over_heads(of, "mean"), [[0.5, 0.5], [0.75, 0.25]])
    same(over_heads(of, "maximum"), [[0.75, 0.75], [1.0, 0.5]])


@pytest.mark.parametrize("what", ["weights", "scores", "logits"])
def test_heads_by_loops(what: str):
    of = call()
    heads = by_head(of, what, batch=1)
    hidden = np.isnan(heads).all(0)
    same(over_heads(of, "mean", what=what, batch=1), mean_of(heads))
    filled = np.nan_to_num(heads)
    order = np.abs(filled).argmax(0)[None]
    strongest = np.where(hidden, NAN, np.take_along_axis(filled, order, 0)[0])
    same(over_heads(of, "maximum", what=what, batch=1), strongest)


def test_some_heads_and_a_window():
    of = call()
    some = over_heads(of, "mean", slice(2, 5), slice(3, 9), heads=[1, 4])
    same(some, mean_of(by_head(of)[[1, 4]])[2:5, 3:9])


@pytest.mark.parametrize("same_mask", [True, False])
def test_rows_of_a_mean_sum_to_1(same_mask: bool):
    mask = call().mask if same_mask else random(1, HEADS, QUERIES, KEYS, seed=5) > -1
    mean = over_heads(call(mask=mask), "mean")
    torch.testing.assert_close(mean.nansum(1), torch.ones(QUERIES))


def test_a_learned_sink_keeps_its_share_of_a_mean():
    of = call(sinks=random(HEADS, seed=7))
    expected = torch.stack([attention.weights(of, head).sum(1) for head in range(HEADS)]).mean(0)
    found = over_heads(of, "mean").nansum(1)
    torch.testing.assert_close(found, expected)
    assert float(found.max()) < 1


def test_what_is_hidden_in_some_only():
    ours, other = torch.tensor([[-2.0, NAN, NAN]]), torch.tensor([[1.0, -4.0, NAN]])
    same(pooled([ours, other], "mean"), [[-0.5, -2.0, NAN]])
    same(pooled([ours, other], "mean", "scores"), [[-0.5, -4.0, NAN]])
    same(pooled([ours, other], "maximum", "scores"), [[-2.0, -4.0, NAN]])


def test_matrices_given_are_left_as_they_are():
    given = torch.ones(2, 2)
    pooled([given, given], "mean")
    assert torch.equal(given, torch.ones(2, 2))


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="nothing"):
        over_heads(call(), "mean", heads=[])


@pytest.mark.parametrize("how", ["mean", "maximum"])
@pytest.mark.parametrize("what", ["weights", "scores"])
def test_pooled_heads_in_few_cells(how: str, what: str):
    of = call()
    found = by_largest(
        lambda queries: over_heads(of, how, queries, slice(None), what, [0, 3, 5]), of.n, 4
    )
    whole = over_heads(of, how, what=what, heads=[0, 3, 5])
    same(found.values, by_loops(whole, 2, 3))
    assert found.queries[-1] == (6,)
    assert found.keys[-1] == (9, 10)


# --- layers


def layers(**changes) -> dict[int, AttentionCall]:
    return {layer: call(seed=layer + 1, layer=layer, **changes) for layer in range(LAYERS)}


def test_layers_are_pooled_by_the_mean_of_their_heads():
    calls = layers()
    means = [mean_of(by_head(of)) for of in calls.values()]
    same(over_layers(calls, "mean"), np.mean(means, 0))
    same(over_layers(calls, "maximum"), np.max(means, 0))
    same(over_layers(calls, "mean", slice(1, 4), slice(0, 5)), np.mean(means, 0)[1:4, :5])
    torch.testing.assert_close(over_layers(calls, "mean").nansum(1), torch.ones(QUERIES))


def test_a_local_layer_beside_a_global_one_keeps_sums():
    calls = layers()
    calls[1] = replace(calls[1], mask=calls[1].mask.triu(3))
    torch.testing.assert_close(over_layers(calls, "mean").nansum(1), torch.ones(QUERIES))


def test_layers_of_different_lengths_are_refused():
    calls = layers() | {1: call(queries=5)}
    for ask in (lambda: over_layers(calls, "mean"), lambda: rollout(calls)):
        with pytest.raises(ValueError, match="same tokens"):
            ask()


# --- rollout


def test_rollout_of_two_tokens_and_two_layers_by_hand():
    first = of_weights([[0.25, 0.75], [0.25, 0.75]], [[0.0, 1.0], [0.5, 0.5]])
    second = of_weights([[0.75, 0.25], [0.75, 0.25]], [[1.0, 0.0], [1.0, 0.0]])
    # Half of the mean and half of the identity, of the first layer and of the second:
    one = [[0.5625, 0.4375], [0.1875, 0.8125]]
    two = [[0.9375, 0.0625], [0.4375, 0.5625]]
    expected = [[sum(two[q][m] * one[m][k] for m in range(2)) for k in range(2)] for q in range(2)]
    same(rollout({1: second, 0: first}), expected)
    same(rollout({0: first}), one)


def test_rollout_divides_rows_from_which_a_sink_takes():
    drained = of_weights([[0.5, 0.0], [0.25, 0.25]])
    same(rollout({0: drained}), [[1.0, NAN], [1 / 6, 5 / 6]])


def test_where_no_path_leads_there_is_nothing():
    """Two layers that see the token before see the last two between them."""
    chain = [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]
    found = rollout({0: of_weights(chain), 1: of_weights(chain)})
    same(found[3], [NAN, 0.25, 0.5, 0.25])
    same(found[1], [0.75, 0.25, NAN, NAN])


@pytest.mark.parametrize("turned", [False, True])
def test_a_path_takes_layers_in_their_order(turned: bool):
    """The last token reaches the first where its own step comes after that of the middle one."""
    middle, last = np.eye(3).tolist(), np.eye(3).tolist()
    middle[1], last[2] = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    first, second = (last, middle) if turned else (middle, last)
    found = rollout({0: of_weights(first), 1: of_weights(second)})
    same(found[2], [NAN, 0.5, 0.5] if turned else [0.25, 0.25, 0.5])


def test_padding_has_no_row():
    n = 5
    padding = torch.tensor([[False, False, False, True, True], [False] * n])
    mask = torch.ones(1, 1, n, n, dtype=torch.bool) & ~padding[:1, None, None]
    mask = mask & ~padding[:1, None, :, None]
    padded = call(n, n, mask=mask, query_padding=padding)
    alone = call(n, n)
    cut = {name: getattr(alone, name)[:, :, :3] for name in ("query", "key", "value")}
    expected = rollout({0: call(3, 3, mask=None, **cut)})
    found = rollout({0: padded})
    same(found[:3, :3], expected)
    assert bool(found[3:].isnan().all())
    assert bool(found[:3, 3:].isnan().all())


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "gpt_oss", "t5"])
def test_rollout_of_real_models(family: str):
    calls = {
        of.layer: of
        for of in calls_of(family)
        if of.kind == "self" and (family != "t5" or of.tower == "encoder")
    }
    assert len(calls) == 3
    whole = np.eye(calls[0].n[0])
    for layer in range(3):
        step = 0.5 * np.nan_to_num(by_head(calls[layer])).mean(0) + 0.5 * np.eye(len(whole))
        whole = step / step.sum(1, keepdims=True) @ whole
    found = rollout(calls)
    same(found.nan_to_num(0.0), whole)
    torch.testing.assert_close(found.nansum(1), torch.ones(len(found)))
    assert bool(found.isnan().any()) is (family != "t5")


@pytest.mark.parametrize(
    ("calls", "unread", "sentence"),
    [
        ({0: call(kind="cross")}, (), "another text"),
        ({}, (), "another text"),
        ({0: call(7, 7), 1: call(7, 7)}, (2,), "could not be read: 2"),
        ({1: call(7, 7), 4: call(7, 7)}, (), "could not be read: 0, 2, 3"),
        ({0: call()}, (), "as many queries as keys"),
    ],
)
def test_rollout_says_why_not(calls: dict, unread: tuple, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        rollout(calls, unread)


def test_rollout_is_for_short_texts(monkeypatch):
    monkeypatch.setattr(pooling, "LONGEST", 6)
    with pytest.raises(ValueError, match="at most 6 tokens; this one has 7"):
        rollout({0: call(7, 7)})


def test_each_way_says_what_it_hides():
    assert set(HIDES) == {"mean", "maximum", "layers", "rollout"}
    assert all(sentence.endswith(".") for sentence in HIDES.values())
