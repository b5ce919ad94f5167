"""W_QK, W_OV and the symmetry of scores against parameters and sums by hand, in float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import cell_reference
import pytest
import tiny_models
import torch
import transformers as hf
from calls_by_hand import plain_call
from cell_recipes import RECIPES
from cell_reference import Surroundings
from test_distance import by_the_model
from torch import Tensor

from attnviz import attention
from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.capture import capture
from attnviz.circuits import (
    Factor,
    QueryKey,
    at_distance,
    output_value,
    query_key,
    symmetric_share,
)
from attnviz.tying import Tying, makers, tied
from attnviz.wiring import Wiring, wiring

SAME = 1e-6  # relative to the largest number
NORMED = ("qwen3", "qwen3_next", "olmo2")
PLAIN = [f for f in RECIPES if f not in (*NORMED, "deepseek_v3", "xlnet")]
MIXED = [f for f in RECIPES if f not in ("deepseek_v3", "diffllama", "qwen3_next")]


EAGER = (*tiny_models.OWN_ATTENTION, *tiny_models.EAGER_ONLY)  # as their references are


def model_of(family: str) -> hf.PreTrainedModel:
    return cell_reference.model_of(family, "eager" if family in EAGER else "sdpa")


@cache
def ends(family: str) -> list[tuple[AttentionCall, Wiring, Surroundings]]:
    """The first and the last call, as the model has it and by hand."""
    model, inputs = model_of(family), cell_reference.inputs_for(family)
    read, real = capture(model, inputs), cell_reference.surroundings(family)
    pairs = (read.calls[0], real[0]), (read.calls[-1], real[-1])
    return [(call, wiring(model, inputs, read, call), one) for call, one in pairs]


def assert_close(found: Tensor, real: Tensor, off: float = SAME) -> None:
    assert found.shape == real.shape
    assert float((found - real).abs().max()) <= off * float(real.abs().max())


# --- W_QK


@pytest.mark.parametrize("family", PLAIN)
def test_scores_from_w_qk_alone(family: str):
    """Those captured; where queries and keys are rotated, those before."""
    for call, wires, _ in ends(family):
        for head in (0, call.heads - 1):
            found = query_key(call, wires, head)
            assert found.rotated is (call.query_unrotated is not None)
            of_pairs = attention.scores_unrotated if found.rotated else attention.scores
            real = of_pairs(call, head)
            assert_close(found.scores(), real)
            assert_close(found.scores(slice(1, 4), slice(2, 3)), real[1:4, 2:3], 1e-5)


@pytest.mark.parametrize("family", PLAIN)
def test_w_qk_is_the_product_of_the_parameters(family: str):
    for call, wires, real in ends(family):
        head = call.heads - 1
        (query,), (key,) = real.query, real.key
        w_q, w_k = query.weight[head].double(), key.weight[call.kv_head(head)].double()
        found = query_key(call, wires, head)
        assert torch.equal(found.matrix, w_q.T @ w_k)
        assert found.query.name == query.matrix
        assert_close(found.query.x, query.entering[0].double(), 1e-5)
        if query.bias is None or key.bias is None:
            return
        b_q, b_k = query.bias[head].double(), key.bias[call.kv_head(head)].double()
        assert torch.allclose(found.of_query, w_q.T @ b_k)
        assert torch.allclose(found.of_key, w_k.T @ b_q)
        assert found.constant == pytest.approx(float(b_q @ b_k))


def test_what_the_model_multiplies_the_query_by_stands_apart():
    """OPT divides its queries by √11 before it asks for attention."""
    call, wires, _ = ends("opt")[0]
    assert query_key(call, wires, 0).factor == pytest.approx(11**-0.5, rel=1e-5)
    assert query_key(*ends("gpt2")[0][:2], 0).factor == 1


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_half_precision_is_no_term_of_its_own(family: str):
    model, inputs = copy.deepcopy(model_of(family)).bfloat16(), cell_reference.inputs_for(family)
    read = capture(model, inputs)
    wires = wiring(model, inputs, read, read.calls[0])
    found = query_key(read.calls[0], wires, 1)
    of_pairs = attention.scores_unrotated if found.rotated else attention.scores
    assert found.factor == 1
    assert_close(found.scores(), of_pairs(read.calls[0], 1), 0.02)


@pytest.mark.parametrize("family", ["minilm", "bundled", "gpt2", "llama", "t5"])
def test_rank_and_singular_values(family: str):
    """Of the whole product, made in full: d_k of them, and then none."""
    call, wires, _ = ends(family)[0]
    found = query_key(call, wires, 1)
    spectrum, d_k = found.spectrum(), call.d_k
    values = torch.linalg.svdvals(found.matrix)
    assert spectrum.rank_bound == d_k
    assert torch.allclose(spectrum.values, values[:d_k], rtol=1e-9)
    assert float(values[d_k:].max()) < 1e-12 * float(values[0])
    d_model = len(found.matrix)
    assert (spectrum.in_factors, spectrum.in_product) == (2 * d_k * d_model, d_model**2)


def test_numbers_of_minilm():
    """By hand: 384 wide, d_k 32; two factors of 12,288 for a product of 147,456."""
    spectrum = query_key(*ends("minilm")[0][:2], 0).spectrum()
    assert (spectrum.rank_bound, spectrum.in_factors, spectrum.in_product) == (32, 24576, 147456)


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("qwen3", "queries are more than the matrix makes of x: a norm"),
        ("olmo2", "queries are more than the matrix makes of x: a norm"),
        ("deepseek_v3", "made from a latent vector, by two matrices"),
        ("xlnet", "or something that is added, stands in between"),
    ],
)
def test_no_one_matrix(family: str, sentence: str):
    call, wires, _ = ends(family)[0]
    with pytest.raises(UnreadableModel, match=f"has no W_QK that could be shown: .*{sentence}"):
        query_key(call, wires, 0)


def test_by_hand():
    """x W_QK x′ of two tokens: W_Q = [1 2], W_K = [3 −1], b_Q = 1, b_K = 2."""

    def factor(weight: list[float], bias: float) -> Factor:
        x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
        return Factor("w", torch.tensor([weight]).double(), torch.tensor([bias]).double(), x)

    found = QueryKey(factor([1.0, 2.0], 1.0), factor([3.0, -1.0], 2.0), 1.0, False)
    assert found.matrix.tolist() == [[3.0, -1.0], [6.0, -2.0]]
    assert found.of_query.tolist() == [2.0, 4.0]
    assert found.of_key.tolist() == [3.0, -1.0]
    assert found.constant == 2
    assert found.scores().tolist() == [[10.0, 2.0], [15.0, 3.0]]  # (2, 3) times (5, 1)
    assert found.spectrum().values.tolist() == pytest.approx([50**0.5])  # √5 · √10
    # The symmetric part is [[3, 2.5], [2.5, −2]], of 50 in all.
    assert found.symmetric_share == pytest.approx((9 + 6.25 + 6.25 + 4) / 50)


# --- W_QK of one distance


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj", "bundled"])
@pytest.mark.parametrize("distance", [0, 1, 5, -3])
def test_w_qk_of_one_distance(family: str, distance: int):
    """Scores after rotation, of pairs so far apart and of no others."""
    call, wires, _ = ends(family)[1]
    for head in (0, call.heads - 1):
        found = query_key(call, wires, head)
        made, real = at_distance(call, found, head, distance), attention.scores(call, head)
        assert not made.rotated
        scores = made.scores()
        assert_close(scores.diagonal(-distance), real.diagonal(-distance).double(), 1e-5)
        others = (scores - real).abs() > 1e-2 * float(real.abs().max())
        assert bool(others.any())
        assert made.spectrum().rank_bound == call.d_k


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj"])
def test_w_qk_of_one_distance_by_the_models_own_rotation(family: str):
    """Columns of W_Q at place 7 against those of W_K at place 3."""
    model, (call, wires, real) = model_of(family), ends(family)[0]
    (query,), (key,) = real.query, real.key
    w_q, w_k = query.weight[0], key.weight[0]
    later = torch.stack([by_the_model(model, column, 7) for column in w_q.T], 1).double()
    earlier = torch.stack([by_the_model(model, column, 3) for column in w_k.T], 1).double()
    made = at_distance(call, query_key(call, wires, 0), 0, 4)
    assert_close(made.matrix, later.T @ earlier, 1e-5)


def test_no_w_qk_of_one_distance():
    call, wires, _ = ends("gpt2")[0]
    found = query_key(call, wires, 0)
    with pytest.raises(UnreadableModel, match="could not be told by the distance of two tokens"):
        at_distance(call, found, 0, 1)
    call, wires, _ = ends("llama")[0]
    with pytest.raises(ValueError, match="Of 13 tokens, no two have a distance of 13"):
        at_distance(call, query_key(call, wires, 0), 0, 13)


def test_a_rotation_that_is_not_that_of_the_keys_is_refused():
    """Queries that turn by other angles: no matrix of one distance gives their scores."""
    call, wires, _ = ends("llama")[0]
    assert call.query is not None
    other = replace(call, query=call.query.flip(2))
    found = query_key(call, wires, 0)
    with pytest.raises(UnreadableModel, match="could not be told by the distance of two tokens"):
        at_distance(other, found, 0, 1)


# --- W_OV


@pytest.mark.parametrize("family", MIXED)
def test_output_from_w_ov_alone(family: str):
    """Weights times values times W_O, all in float64."""
    for call, wires, real in ends(family):
        for head in (0, call.heads - 1):
            found, weights = output_value(call, wires, head), attention.weights(call, head)
            value = real.made("value")[0, call.kv_head(head)].double()
            w_o = real.mixed.weight[head].double()
            assert_close(found.into_stream(weights), weights.double() @ value @ w_o.T)
            kept = call.value[0, call.kv_head(head)].double()
            assert_close(found.into_stream(weights), weights.double() @ kept @ w_o.T)


@pytest.mark.parametrize("family", MIXED)
def test_w_ov_is_the_product_of_the_parameters(family: str):
    for call, wires, real in ends(family):
        head, (value,) = call.heads - 1, real.value
        w_o, w_v = real.mixed.weight[head].double(), value.weight[call.kv_head(head)].double()
        found = output_value(call, wires, head)
        assert torch.equal(found.matrix, w_o @ w_v)
        if value.bias is not None:
            assert torch.allclose(found.bias, w_o @ value.bias[call.kv_head(head)].double())
        values = torch.linalg.svdvals(w_o @ w_v)[: call.d_v]
        assert torch.allclose(found.spectrum().values, values, rtol=1e-8)


def test_a_sink_takes_its_share_of_the_bias():
    """gpt-oss: rows of weights sum to less than 1, and so does what they bring of W_O b_V."""
    call, wires, _ = ends("gpt_oss")[0]
    weights = attention.weights(call, 0)
    found = output_value(call, wires, 0)
    assert float(weights.sum(-1).max()) < 0.99
    assert float(found.bias.abs().max()) > 0.01
    assert_close(found.into_stream(weights), attention.output(call, 0).double() @ found.output.T)


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("qwen3_next", "its output is multiplied by a gate"),
        ("deepseek_v3", "its values are made from a latent vector"),
        ("diffllama", "could not be followed to a matrix W_O"),
    ],
)
def test_no_w_ov(family: str, sentence: str):
    call, wires, _ = ends(family)[0]
    with pytest.raises(UnreadableModel, match=f"has no W_OV that could be shown: .*{sentence}"):
        output_value(call, wires, 0)


# --- symmetry


def share_by_hand(scores: Tensor) -> float:
    """Pair by pair."""
    both = alone = 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if i != j:
                both += float((scores[i, j] + scores[j, i]) / 2) ** 2
                alone += float(scores[i, j]) ** 2
    return both / alone


def call_of(query: Tensor, key: Tensor, **more) -> AttentionCall:
    query, key = query[None, None].float(), key[None, None].float()
    return plain_call(query=query, key=key, value=key, scale=1.0, **more)


def draw(n: int, d_k: int, seed: int) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, d_k, generator=dice) for _ in range(2))


@pytest.mark.parametrize("family", ["bundled", "minilm", "llama", "gpt2", "vit", "bloom"])
def test_share_of_real_heads(family: str):
    """Pair by pair, causal or not: before the mask both directions have a score."""
    for call, _, _ in ends(family):
        for head in (0, call.heads - 1):
            query, key = call.query[0, head], call.key[0, call.kv_head(head)]
            scores = query.double() @ key.double().T
            assert symmetric_share(call, head) == pytest.approx(share_by_hand(scores), abs=1e-9)


@pytest.mark.parametrize("n", [2, 17])
def test_queries_that_are_keys_know_no_direction(n: int):
    query, key = draw(n, 5, 0)
    assert symmetric_share(call_of(query, query), 0) == pytest.approx(1, abs=1e-12)
    assert symmetric_share(call_of(query, query), 0, centred=True) == pytest.approx(1, abs=1e-12)
    assert symmetric_share(call_of(query, key), 0) < 0.999


def test_scores_that_turn_their_sign_have_no_symmetric_part():
    """q = (a, b) and k = (b′, −a′): their product is that of a cross product."""
    query, _ = draw(13, 2, 0)
    key = torch.stack([query[:, 1], -query[:, 0]], dim=1)
    assert symmetric_share(call_of(query, key), 0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("n", "d_k"), [(7, 3), (31, 16)])
def test_half_on_average_where_nothing_is_shared(n: int, d_k: int):
    shares = torch.tensor(
        [symmetric_share(call_of(*draw(n, d_k, seed)), 0) for seed in range(400)]
    ).double()
    assert abs(float(shares.mean()) - 0.5) < 4 * float(shares.std()) / 20


def test_a_common_mean_is_symmetric_and_can_be_left_out():
    query, key = draw(40, 8, 1)
    moved = call_of(query + 3, key + 3)
    assert symmetric_share(moved, 0) > 0.9
    scores = (query - query.mean(0)) @ (key - key.mean(0)).T
    found = symmetric_share(moved, 0, centred=True)
    assert found == pytest.approx(share_by_hand(scores.double()), abs=1e-5)
    assert 0.4 < found < 0.6


def test_padding_is_left_out():
    query, key = draw(11, 5, 2)
    padding = torch.arange(11)[None] >= 7
    whole = call_of(query, key, query_padding=padding, key_padding=padding)
    assert symmetric_share(whole, 0) == symmetric_share(call_of(query[:7], key[:7]), 0)


@pytest.mark.parametrize("family", ["bundled", "minilm", "llama", "gpt2"])
def test_a_real_model_whose_queries_are_made_by_w_k(family: str):
    """Rotated or not: its rotation turns both alike."""
    model, inputs = model_of(family), cell_reference.inputs_for(family)
    with tied(model, makers(model, inputs), [Tying("Q := K")]):
        calls = capture(model, inputs).calls
    for call in calls:
        for head in range(call.heads):
            assert symmetric_share(call, head) == pytest.approx(1, abs=1e-6)


def test_sixteen_thousand_tokens_need_no_matrix_of_theirs():
    query, key = draw(16_000, 32, 3)
    assert symmetric_share(call_of(query, key), 0) == pytest.approx(0.5, abs=0.01)


def test_no_pair_with_two_directions():
    query, key = draw(13, 5, 0)
    for call, sentence in (
        (call_of(query, key, kind="cross"), "no pair of tokens has two directions"),
        (call_of(query[:7], key), "no pair of tokens has two directions"),
        (call_of(query[:1], key[:1]), "One token alone"),
        (call_of(0 * query, key), "All scores of this head are 0"),
    ):
        with pytest.raises(UnreadableModel, match=sentence):
            symmetric_share(call, 0)
