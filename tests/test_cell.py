"""Every number of one cell, against values worked by hand and plain double precision."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from calls_by_hand import plain_call
from torch import Tensor

from attnviz import attention
from attnviz.capture import AttentionCall
from attnviz.cell import Cell, cell
from attnviz.wiring import Mixing, Origin, Projection, Stream, Wiring

BATCH, HEADS, KV_HEADS, N, D_K, D_V, D_MODEL = 2, 6, 2, 5, 7, 3, 13
CAUSAL = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
CELLS = [(0, 4, 0), (1, 3, 3), (2, 2, 1), (3, 4, 2), (4, 1, 0), (5, 0, 0)]


def random(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def call(**changes) -> AttentionCall:
    fields = {
        "query": random(BATCH, HEADS, N, D_K, seed=1),
        "key": random(BATCH, KV_HEADS, N, D_K, seed=2),
        "value": random(BATCH, KV_HEADS, N, D_V, seed=3),
        "scale": 0.4,
    }
    return plain_call(**(fields | changes))


FULL = {
    "softcap": 1.7,
    "bias": random(BATCH, HEADS, N, N, seed=4),
    "mask": CAUSAL,
    "sinks": random(HEADS, seed=5),
}


def outputs(of: AttentionCall) -> Tensor:
    """(batch head query d_v) of all heads."""
    heads = range(of.heads)
    batches = range(of.value.shape[0])
    return torch.stack(
        [torch.stack([attention.output(of, h, batch) for h in heads]) for batch in batches]
    )


def mixing(of: AttentionCall, gate: Tensor | None = None) -> Mixing:
    """A W_O whose columns are shuffled, so that only the map tells a head's own."""
    given = outputs(of) if gate is None else gate * outputs(of)
    batch, heads, queries, width = given.shape
    order = torch.randperm(heads * width, generator=torch.Generator().manual_seed(6))
    column = order.reshape(1, heads, 1, width).expand_as(given)
    row = torch.arange(batch * queries).reshape(batch, 1, queries, 1).expand_as(given)
    source = torch.zeros(batch * queries, heads * width)
    source[row, column] = given
    weight, bias = random(D_MODEL, heads * width, seed=7), random(D_MODEL, seed=8)
    return Mixing(Projection("attention.o_proj", source, weight, bias), row, column)


def weights_by_hand(of: AttentionCall, head: int, query: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and weights of one row, term by term, in double precision."""
    kv_head = head // (HEADS // KV_HEADS)
    q = of.query[0, head, query].double().numpy()
    logits = []
    for j in range(of.n[1]):
        k = of.key[0, kv_head, j].double().numpy()
        logit = of.scale * sum(q[d] * k[d] for d in range(len(q)))
        if of.softcap:
            logit = of.softcap * math.tanh(logit / of.softcap)
        if of.bias is not None:
            logit += float(of.bias.expand(BATCH, HEADS, N, N)[0, head, query, j])
        if of.mask is not None and not of.mask.expand(BATCH, HEADS, N, N)[0, head, query, j]:
            logit = -math.inf
        logits.append(logit)
    total = sum(math.exp(logit) for logit in logits)
    if of.sinks is not None:
        total += math.exp(of.sinks[head])
    return np.array(logits), np.array([math.exp(logit) / total for logit in logits])


def close(found: Tensor | float | None, expected: np.ndarray | Tensor | float | list) -> None:
    assert found is not None
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=2e-6, rtol=2e-6)


# --- by hand


def two_by_two() -> tuple[AttentionCall, Wiring]:
    """The second query matches 3 and 1: with a scale of ln 3 / 2 the weights are 3/4 and 1/4."""
    x = torch.tensor([[[[1.0, 0.0], [2.0, 1.0]]]])
    worked = call(
        query=x,
        key=torch.tensor([[[[1.0, 1.0], [1.0, -1.0]]]]),
        value=torch.tensor([[[[4.0, 0.0], [0.0, 8.0]]]]),
        scale=math.log(3) / 2,
    )
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    source = torch.tensor([[0.0, 0.0], [3.0, 2.0]])
    row, column = torch.tensor([[0, 0], [1, 1]]), torch.tensor([[0, 1], [0, 1]])
    bias = torch.tensor([0.5, 0.25, 0.125])
    wiring = Wiring(
        output=Mixing(Projection("o", source, weight, bias), row[None, None], column[None, None]),
        stream=Stream(torch.eye(2, 3), 10 * torch.eye(2, 3), changed=False),
        weights=torch.tensor([[[[0.75, 0.25], [0.7, 0.3]]]]),
    )
    return worked, wiring


def test_two_tokens_by_hand():
    found = cell(*two_by_two(), head=0, query=1, key=0)
    assert found.match is not None
    assert found.logit is not None
    assert found.softmax is not None
    assert found.into_stream is not None
    close(found.match.products, [2.0, 1.0])
    close(found.match.row, [3.0, 1.0])
    close(found.logit.scaled, 1.5 * math.log(3))
    close(found.softmax.exponentials, [3**1.5, 3**0.5])
    close(found.softmax.total, 4 * math.sqrt(3))
    close(found.weight, 0.75)
    close(found.retrieved.share, [3.0, 0.0])
    close(found.retrieved.output, [3.0, 2.0])
    close(found.retrieved.brought, [math.sqrt(18), math.sqrt(8)])
    close(found.into_stream.part, [3.0, 2.0, 5.0])
    close(found.into_stream.heads, [math.sqrt(38)])
    close(found.into_stream.bias, [0.5, 0.25, 0.125])
    close(found.into_stream.before, [0.0, 1.0, 0.0])
    close(found.into_stream.added, [0.0, 10.0, 0.0])
    assert found.into_stream.changed is False
    assert found.into_stream.gated is False
    assert found.into_stream.matrix == "o"


def test_the_models_own_weight_and_the_largest_difference_of_the_head():
    found = cell(*two_by_two(), head=0, query=1, key=0)
    close(found.model_weight, 0.7)
    # In the first row both keys match 1, so that the weights are one half and one half.
    close(found.largest_difference, 0.25)


# --- from the match to the weight


@pytest.mark.parametrize(("head", "query", "key"), CELLS)
@pytest.mark.parametrize("terms", [{}, {"softcap": 1.7}, {"bias": FULL["bias"]}, FULL])
def test_each_step_to_the_weight(terms: dict, head: int, query: int, key: int):
    of = call(**terms)
    found = cell(of, Wiring(), head, query, key)
    logits, weights = weights_by_hand(of, head, query)
    products = of.query[0, head, query] * of.key[0, head // 3, key]
    close(found.match.products, products)
    close(found.match.score, products.double().sum())
    close(found.match.row[key], found.match.score)
    close(found.logit.scaled, 0.4 * products.double().sum())
    close(found.logit.row, logits)
    close(found.logit.logit, logits[key])
    close(found.softmax.exponentials, np.exp(logits))
    close(found.softmax.exponentials / found.softmax.total, weights)
    close(found.weights, weights)
    close(found.weight, weights[key])
    assert found.weight == float(attention.weights(of, head)[query, key])
    assert (found.head, found.kv_head) == (head, head // 3)
    assert found.softmax.shift == 0
    close(found.query.used, of.query[0, head, query])
    close(found.key.used, of.key[0, head // 3, key])
    close(found.value.used, of.value[0, head // 3, key])
    assert (found.query.token, found.key.token, found.value.token) == (query, key, key)


def test_a_step_is_there_only_if_the_model_takes_it():
    plain, full = (cell(call(**terms), Wiring(), 4, 3, 1) for terms in ({}, FULL))
    assert (plain.logit.softcap, plain.logit.capped, plain.logit.bias) == (None, None, None)
    assert (plain.softmax.sink, plain.sink_share) == (None, None)
    assert plain.logit.scale == 0.4
    assert full.logit.softcap == 1.7
    close(full.logit.capped, 1.7 * math.tanh(full.logit.scaled / 1.7))
    close(full.logit.bias, FULL["bias"][0, 4, 3, 1])
    close(full.logit.logit, full.logit.capped + full.logit.bias)
    close(full.softmax.sink, math.exp(FULL["sinks"][4]))
    close(full.softmax.total, full.softmax.exponentials.sum() + full.softmax.sink)
    close(full.sink_share, 1 - full.weights.sum())


def test_bias_and_mask_may_be_shared_by_batch_and_heads():
    bias = FULL["bias"][:1, :1]
    of = call(bias=bias, mask=CAUSAL)
    found = cell(of, Wiring(), 5, 3, 2)
    close(found.logit.bias, bias[0, 0, 3, 2])
    close(found.weights, weights_by_hand(of, 5, 3)[1])


def test_a_hidden_key_gets_nothing():
    found = cell(call(**FULL), Wiring(), 2, 1, 3)
    assert not found.logit.visible
    assert found.logit.logit == -math.inf
    close(found.softmax.exponentials[2:], [0.0, 0.0, 0.0])
    assert found.weight == 0
    close(found.logit.bias, FULL["bias"][0, 2, 1, 3])
    assert cell(call(**FULL), Wiring(), 2, 1, 1).logit.visible


@pytest.mark.parametrize("sinks", [None, torch.full((HEADS,), -900.0), torch.ones(HEADS)])
def test_a_row_that_sees_no_key(sinks: Tensor | None):
    of = call(mask=torch.zeros(1, 1, N, N, dtype=torch.bool), sinks=sinks)
    own = random(BATCH, HEADS, N, N, seed=9)
    mixed = mixing(of)
    source = mixed.projection.source + 1  # what a model makes of such a row is its own affair
    mixed = replace(mixed, projection=replace(mixed.projection, source=source))
    found = cell(of, Wiring(output=mixed, weights=own), 3, 2, 4)
    assert found.softmax.total == (found.softmax.sink or 0)
    assert found.sink_share == (None if sinks is None else 1)
    close(found.weights, torch.zeros(N))
    close(found.softmax.exponentials, torch.zeros(N))
    close(found.retrieved.brought, torch.zeros(N))
    assert found.into_stream.gated is False
    assert found.largest_difference is None


def with_logits(row: list[float], sink: float | None = None) -> Cell:
    """One query whose logits are these."""
    of = AttentionCall(
        **{
            **vars(call()),
            "query": torch.ones(1, 1, 1, 1),
            "key": torch.tensor(row).reshape(1, 1, -1, 1),
            "value": torch.ones(1, 1, len(row), D_V),
            "scale": 1.0,
            "sinks": None if sink is None else torch.tensor([sink]),
        }
    )
    return cell(of, Wiring(), 0, 0, 0)


@pytest.mark.parametrize(
    ("row", "sink", "shift"),
    [
        ([1.0, 20.0, -3.0], None, 0.0),
        ([1.0, 20.5, -3.0], None, 20.5),
        ([-31.0, -30.0, -50.0], None, -30.0),
        ([-31.0, -20.0, -50.0], None, 0.0),
        ([300.0, 305.0, 290.0], 299.0, 305.0),
        ([-31.0, -30.0, -50.0], -29.0, -30.0),
        ([1.0, 2.0, 3.0], 900.0, 900.0),  # a sink alone may be too large as well
        ([-31.0, -30.0, -50.0], 2.0, 0.0),
    ],
)
def test_exponentials_that_could_not_be_written_are_shifted(
    row: list[float], sink: float | None, shift: float
):
    found = with_logits(row, sink)
    terms = [math.exp(logit - shift) for logit in row]
    term = 0.0 if sink is None else math.exp(sink - shift)
    assert found.softmax.shift == shift
    np.testing.assert_allclose(found.softmax.exponentials, terms, rtol=1e-5)
    np.testing.assert_allclose(found.softmax.total, sum(terms) + term, rtol=1e-6)
    np.testing.assert_allclose(found.weights, np.array(terms) / (sum(terms) + term), rtol=1e-5)
    if sink is not None:
        np.testing.assert_allclose(found.sink_share, term / (sum(terms) + term), rtol=1e-6)


def test_weights_alone_have_no_roles_of_query_and_key():
    own = random(BATCH, HEADS, N, N, seed=9).square()
    of = call(query=None, key=None, observed_weights=own, scale=1.0)
    found = cell(of, Wiring(weights=own), 4, 3, 1)
    assert {found.query, found.key, found.match, found.logit, found.softmax} == {None}
    assert found.sink_share is None
    close(found.weights, own[0, 4, 3])
    close(found.retrieved.output, own[0, 4, 3].double() @ of.value[0, 1].double())
    assert (found.model_weight, found.largest_difference) == (found.weight, 0.0)


def test_half_precision_is_worked_out_in_float32():
    halves = {name: getattr(call(), name).half() for name in ("query", "key", "value")}
    of = call(**halves)
    found = cell(of, Wiring(), 1, 4, 2)
    for vector in (found.query.used, found.value.used, found.match.row, found.retrieved.output):
        assert vector.dtype == torch.float32
    close(found.weights, weights_by_hand(of, 1, 4)[1])


def test_rows_of_padding_and_rows_without_keys_are_not_compared():
    mask = CAUSAL.clone()
    mask[..., 3, :] = False
    of = call(mask=mask, query_padding=torch.tensor([[True] + 4 * [False], 5 * [False]]))
    own = torch.stack([attention.weights(of, head) for head in range(HEADS)])[None]
    own = own.repeat(BATCH, 1, 1, 1)
    own[0, 2, 0], own[0, 2, 3] = math.nan, 0.2
    own[0, 2, 4, 1] += 0.0625
    own[0, 1] += 0.5
    found = cell(of, Wiring(weights=own), 2, 4, 1)
    close(found.largest_difference, 0.0625)
    close(found.model_weight, found.weight + 0.0625)


def test_without_the_models_own_weights_nothing_is_compared():
    found = cell(call(), Wiring(), 2, 4, 1)
    assert (found.model_weight, found.largest_difference) == (None, None)


# --- the three roles

ROWS = BATCH * N


def origin(projections: tuple[Projection, ...], which: Tensor, column: Tensor) -> Origin:
    """Of (head width) maps, for rows that are the tokens of one text after the other."""
    heads, width = column.shape
    shape = (BATCH, heads, N, width)
    row = torch.arange(ROWS).reshape(BATCH, 1, N, 1).expand(shape)
    return Origin(
        projections,
        which[None, :, None].expand(shape),
        row,
        column[None, :, None].expand(shape),
    )


def fused() -> tuple[Projection, Origin]:
    """One matrix for all roles, its columns shuffled; this is the map of the keys."""
    columns = (HEADS + KV_HEADS) * D_K + KV_HEADS * D_V
    projection = Projection(
        "attention.c_attn",
        random(ROWS, D_MODEL, seed=11),
        random(columns, D_MODEL, seed=12),
        random(columns, seed=13),
    )
    order = torch.randperm(columns, generator=torch.Generator().manual_seed(14))
    column = order[: KV_HEADS * D_K].reshape(KV_HEADS, D_K)
    return projection, origin((projection,), torch.zeros_like(column), column)


def product(projection: Projection, row: int, column: int) -> float:
    weight, source = projection.weight[column].double(), projection.source[row].double()
    bias = 0.0 if projection.bias is None else float(projection.bias[column])
    return sum(float(w * s) for w, s in zip(weight, source, strict=True)) + bias


@pytest.mark.parametrize(("head", "query", "key"), CELLS)
def test_a_key_is_made_by_its_kv_heads_numbers_of_a_fused_matrix(head: int, query: int, key: int):
    projection, keys = fused()
    unrotated = random(BATCH, KV_HEADS, N, D_K, seed=15)
    of = call(key_unrotated=unrotated, query_unrotated=call().query + 1)
    found = cell(of, Wiring(key=keys), head, query, key)
    columns = keys.column[0, head // 3, 0].tolist()
    close(found.key.made, [product(projection, key, column) for column in columns])
    close(found.key.entering, projection.source[key])
    close(found.key.x, projection.source[key])
    close(found.key.unrotated, unrotated[0, head // 3, key])
    close(found.query.unrotated, of.query[0, head, query] + 1)
    assert found.key.matrix == "attention.c_attn"
    assert found.value.unrotated is None
    for role in (found.query, found.value):
        assert {role.matrix, role.x, role.entering, role.made} == {None}


def latent(rows: int = ROWS) -> tuple[Projection, Projection]:
    """A key of a latent vector, and dimensions that come straight from x, shared by all heads."""
    down = Projection(
        "attention.kv_a", random(rows, D_MODEL, seed=21), random(11, D_MODEL, seed=22), None
    )
    up = Projection(
        "attention.kv_b",
        random(ROWS, 5, seed=23),
        random(19, 5, seed=24),
        random(19, seed=25),
        inner=down,
    )
    return up, down


def latent_keys(up: Projection, down: Projection, missing: bool = False) -> Origin:
    """Five numbers of each key from the latent vector, then two from x."""
    which = torch.tensor([[0] * 5 + [1] * 2] * KV_HEADS)
    if missing:
        which[0, 6] = -1
    column = torch.tensor([[3, 1, 4, 15, 9, 2, 6], [5, 10, 8, 18, 7, 2, 6]])
    return origin((up, down), which, column)


def test_a_key_of_a_latent_vector():
    up, down = latent()
    found = cell(call(), Wiring(key=latent_keys(up, down)), 4, 3, 2)
    by_hand = [product(up, 2, column) for column in (5, 10, 8, 18, 7)]
    close(found.key.made, by_hand + [product(down, 2, column) for column in (2, 6)])
    close(found.key.entering, up.source[2])
    close(found.key.x, down.source[2])
    assert found.key.matrix == "attention.kv_b and attention.kv_a"


def test_x_is_not_told_where_the_rows_of_the_inner_product_are_others():
    up, down = latent(rows=ROWS + 3)
    found = cell(call(), Wiring(key=latent_keys(up, down)), 4, 3, 2)
    assert found.key.x is None
    close(found.key.entering, up.source[2])


def test_a_vector_with_a_number_from_nowhere_is_not_made():
    up, down = latent()
    keys = latent_keys(up, down, missing=True)
    one, other = (cell(call(), Wiring(key=keys), head, 3, 2).key for head in (0, 3))
    assert one.made is None
    assert other.made is not None
    close(one.entering, up.source[2])
    nowhere = replace(keys, which=torch.full_like(keys.which, -1))
    none = cell(call(), Wiring(key=nowhere), 3, 3, 2).key
    assert {none.matrix, none.made, none.entering, none.x} == {None}


def test_a_vector_made_of_several_rows_has_no_one_vector_that_entered():
    projection, keys = fused()
    row = keys.row.clone()
    row[0, 1, 2, 3] += 1
    found = cell(call(), Wiring(key=replace(keys, row=row)), 5, 4, 2).key
    columns = keys.column[0, 1, 2].tolist()
    rows = [2, 2, 2, 3, 2, 2, 2]
    pairs = zip(rows, columns, strict=True)
    close(found.made, [product(projection, at, column) for at, column in pairs])
    assert {found.entering, found.x} == {None}


# --- what comes back, and where it goes


def brought_by_hand(of: AttentionCall, mixed: Mixing, head: int, query: int, gate=None):
    weights = weights_by_hand(of, head, query)[1]
    columns = mixed.column[0, head, query].tolist()
    w_o = mixed.projection.weight.double().numpy()[:, columns]
    values = of.value[0, head // 3].double().numpy()
    factor = 1 if gate is None else gate[0, head, query].double().numpy()
    return [np.linalg.norm(w_o @ (factor * weights[j] * values[j])) for j in range(N)]


@pytest.mark.parametrize(("head", "query", "key"), CELLS)
def test_what_each_key_brings_through_the_heads_own_columns(head: int, query: int, key: int):
    of = call(**FULL)
    mixed = mixing(of)
    found = cell(of, Wiring(output=mixed), head, query, key)
    weights = weights_by_hand(of, head, query)[1]
    values = of.value[0, head // 3].double().numpy()
    close(found.retrieved.share, weights[key] * values[key])
    close(found.retrieved.output, weights @ values)
    close(found.retrieved.brought, brought_by_hand(of, mixed, head, query))
    assert found.retrieved.through_w_o
    assert found.into_stream.gated is False


@pytest.mark.parametrize(("head", "query", "key"), CELLS)
def test_the_parts_of_all_heads_and_the_bias_are_the_whole_product(head: int, query: int, key: int):
    of = call(mask=CAUSAL)
    mixed = mixing(of)
    rows = [cell(of, Wiring(output=mixed), h, query, key).into_stream for h in range(HEADS)]
    projection = mixed.projection
    whole = projection.weight.double() @ projection.source[query].double() + projection.bias
    close(sum(found.part for found in rows) + rows[0].bias, whole)
    close(rows[head].heads, [float(found.part.norm()) for found in rows])
    assert (rows[0].added, rows[0].before, rows[0].changed) == (None, None, None)


def test_heads_side_by_side_are_the_same_as_shuffled_ones():
    of = call()
    shuffled = mixing(of)
    projection = shuffled.projection
    order = shuffled.column[0, :, 0].flatten()
    side_by_side = Mixing(
        replace(
            projection,
            weight=projection.weight[:, order].contiguous(),
            source=projection.source[:, order].contiguous(),
        ),
        shuffled.row,
        torch.arange(HEADS * D_V).reshape(1, HEADS, 1, D_V).expand_as(shuffled.column),
    )
    one, other = (cell(of, Wiring(output=mixed), 4, 2, 1) for mixed in (shuffled, side_by_side))
    close(one.into_stream.part, other.into_stream.part)
    close(one.into_stream.heads, other.into_stream.heads)
    close(one.retrieved.brought, other.retrieved.brought)


def test_a_gate_between_output_and_w_o():
    of = call(mask=CAUSAL)
    gate = random(BATCH, HEADS, N, D_V, seed=31).sigmoid()
    mixed = mixing(of, gate)
    found = cell(of, Wiring(output=mixed), 3, 4, 2)
    assert found.into_stream.gated
    close(found.retrieved.brought, brought_by_hand(of, mixed, 3, 4, gate))
    close(found.retrieved.output, attention.output(of, 3)[4])
    w_o = mixed.projection.weight[:, mixed.column[0, 3, 4]].double()
    close(found.into_stream.part, w_o @ (gate * outputs(of))[0, 3, 4].double())


def test_an_output_of_0_tells_no_gate():
    value = call().value.clone()
    value[..., 1] = 0
    of = call(value=value)
    gate = torch.full((BATCH, HEADS, N, D_V), 3.0)
    found = cell(of, Wiring(output=mixing(of, gate)), 3, 4, 2)
    assert found.into_stream.gated
    close(found.retrieved.brought, brought_by_hand(of, mixing(of), 3, 4, gate))


@pytest.mark.parametrize(("off", "gated"), [(2e-6, False), (1e-3, True)])
@pytest.mark.parametrize("times", [1, 1000])
def test_what_the_call_is_uncertain_of_is_no_gate(off: float, gated: bool, times: int):
    of = call(value=times * call().value)
    mixed = mixing(of, torch.full((BATCH, HEADS, N, D_V), 1 + off))
    assert cell(of, Wiring(output=mixed), 3, 4, 2).into_stream.gated is gated
    uncertain = replace(of, max_error=0.01 * times)
    assert cell(uncertain, Wiring(output=mixed), 3, 4, 2).into_stream.gated is False


def test_without_w_o_the_values_are_weighed_as_they_are():
    of = call()
    split = mixing(of)
    split = replace(split, row=split.row + torch.arange(HEADS).reshape(1, HEADS, 1, 1))
    weights = weights_by_hand(of, 3, 4)[1]
    values = of.value[0, 1].double().norm(dim=-1).numpy()
    for wiring in (Wiring(), Wiring(output=split)):  # nor where heads meet in no row
        found = cell(of, wiring, 3, 4, 2)
        assert found.into_stream is None
        assert not found.retrieved.through_w_o
        close(found.retrieved.brought, weights * values)


def test_the_row_of_the_stream_is_that_of_the_query():
    of = call()
    stream = Stream(random(ROWS, D_MODEL, seed=41), random(ROWS, D_MODEL, seed=42), changed=True)
    found = cell(of, Wiring(output=mixing(of), stream=stream), 3, 4, 2).into_stream
    close(found.before, stream.before[4])
    close(found.added, stream.added[4])
    assert found.changed is True
