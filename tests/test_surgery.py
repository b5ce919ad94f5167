"""A run with multiplied scores against models that were changed by hand, as copies."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
import torch
import transformers as hf
from eager_reference import eager_reference, noting_eager_functions
from jaxtyping import TypeCheckError
from tiny_models import EAGER_ONLY, FAMILIES, OWN_ATTENTION, build, inputs_for
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from attnviz import attention
from attnviz.attention_call import UnreadableModel
from attnviz.capture import capture
from attnviz.interface import changed_by
from attnviz.surgery import Scaling, as_if_divided, multiplied, scaled

FACTOR = 0.37


def model_of(family: str) -> hf.PreTrainedModel:
    return build(family, "eager" if family in EAGER_ONLY else "sdpa")


def numbers(output: object) -> Tensor:
    """The one tensor that says most about a run."""
    logits = getattr(output, "logits", None)
    return output.last_hidden_state if logits is None else logits


def plain(model: hf.PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return numbers(model(**inputs, use_cache=False))


def by_attribute(name: str) -> Callable[[hf.PreTrainedModel], None]:
    def change(model: hf.PreTrainedModel) -> None:
        for module in model.modules():
            if hasattr(module, name):
                setattr(module, name, getattr(module, name) * FACTOR)

    return change


def by_query_weights(name: str) -> Callable[[hf.PreTrainedModel], None]:
    """Queries that no norm follows are as large as the matrix that makes them."""

    def change(model: hf.PreTrainedModel) -> None:
        for path, parameter in model.named_parameters():
            if f".{name}." in path:
                parameter.data *= FACTOR

    return change


BY_HAND = {
    "gpt2": by_attribute("scaling"),
    "gpt2_by_layer": by_attribute("scaling"),
    "gpt2_reordered": by_attribute("scaling"),
    "llama": by_attribute("scaling"),
    "qwen3": by_attribute("scaling"),
    "gemma2": by_attribute("scaling"),
    "gpt_oss": by_attribute("scaling"),
    "deepseek_v3": by_attribute("scaling"),
    "bert": by_attribute("scaling"),
    "vit": by_attribute("scaling"),
    "t5": by_query_weights("q"),
    "bart": by_query_weights("q_proj"),
    "bloom": by_attribute("inv_norm_factor"),
    "mpt": by_attribute("softmax_scale"),
    "gpt_neo": by_query_weights("q_proj"),
    "mpnet": by_query_weights("q"),
}
SUM_OF_PRODUCTS = "funnel_factorized"
RETURN_THEIR_WEIGHTS = (
    *("bloom", "mpt", "gpt_neo", "deberta", "deberta_content", "deberta_v2", "deberta_v2_c2p"),
    *(
        "deberta_v3",
        "mpnet",
        "roformer",
        "roformer_value",
        "big_bird",
        "convbert",
        "xlnet",
        "funnel",
    ),
)


@pytest.mark.parametrize("family", BY_HAND)
def test_it_is_as_if_the_model_had_another_scale(family: str):
    model, inputs = model_of(family), inputs_for(family)
    by_hand = copy.deepcopy(model)
    BY_HAND[family](by_hand)
    expected, before = plain(by_hand, inputs), plain(model, inputs)
    after = numbers(scaled(model, inputs, [Scaling(FACTOR)]))
    assert torch.allclose(after, expected, atol=2e-5, rtol=1e-4)
    assert not torch.allclose(after, before, atol=1e-2)


@pytest.mark.parametrize("family", RETURN_THEIR_WEIGHTS)
def test_position_terms_stay_as_they_are(family: str):
    """The first layer's weights, as the model returns them, are those of another scale alone."""
    model, inputs = model_of(family), inputs_for(family)
    call = capture(model, inputs).calls[0]
    real = scaled(model, inputs | {"output_attentions": True}, [Scaling(FACTOR)]).attentions[0]
    changed = replace(call, scale=call.scale * FACTOR)
    for head in range(call.heads):
        assert torch.allclose(real[0, head], attention.weights(changed, head), atol=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, *sorted({*OWN_ATTENTION} - {SUM_OF_PRODUCTS})])
def test_factor_1_changes_no_bit(family: str):
    model, inputs = model_of(family), inputs_for(family)
    untouched, once = scaled(model, inputs), scaled(model, inputs, [Scaling(1.0)])
    for name, tensor in untouched.items():
        if isinstance(tensor, Tensor):
            assert torch.equal(tensor, once[name])


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_soft_cap_and_sinks_follow_the_factor(family: str):
    """The first layer, written out from the queries and keys of the untouched run."""
    model, inputs = model_of(family), inputs_for(family)
    before, noted = eager_reference(model, inputs)[0], []
    with noting_eager_functions(model, noted):
        scaled(model, inputs, [Scaling(FACTOR)])
    key = before.key.repeat_interleave(2, dim=1)
    logits = before.query @ key.mT * before.part.scaling * FACTOR
    if family == "gemma2":
        logits = 5.0 * torch.tanh(logits / 5.0)
    exponentials = logits.masked_fill(before.logits == -torch.inf, -torch.inf).exp()
    total = exponentials.sum(-1, keepdim=True)
    if family == "gpt_oss":
        total = total + before.part.sinks.reshape(1, -1, 1, 1).exp()
    assert torch.allclose(noted[0].weights, exponentials / total, atol=1e-5)


@pytest.mark.parametrize("head", [0, 3, 5])
def test_one_head_of_grouped_queries(head: int):
    """Six heads of 14 numbers, two to a key: its rows of the query matrix alone are multiplied."""
    model, inputs = model_of("llama"), inputs_for("llama")
    by_hand = copy.deepcopy(model)
    projection = by_hand.model.layers[1].self_attn.q_proj
    projection.weight.data[14 * head : 14 * head + 14] *= FACTOR
    projection.bias.data[14 * head : 14 * head + 14] *= FACTOR
    call = capture(model, inputs).calls[1]
    after = numbers(scaled(model, inputs, [Scaling(FACTOR, call.module, call.layer, head)]))
    assert torch.allclose(after, plain(by_hand, inputs), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("head", [0, 4])
def test_one_head_of_a_model_that_folds_heads_into_its_batch(head: int):
    """BLOOM's five heads of 11: query, key and value of a head lie side by side."""
    model, inputs = model_of("bloom"), inputs_for("bloom", batch=2)
    by_hand = copy.deepcopy(model)
    fused = by_hand.transformer.h[2].self_attention.query_key_value
    rows = slice(33 * head, 33 * head + 11)
    fused.weight.data[rows] *= FACTOR
    fused.bias.data[rows] *= FACTOR
    after = numbers(scaled(model, inputs, [Scaling(FACTOR, layer=2, head=head)]))
    assert torch.allclose(after, plain(by_hand, inputs), atol=2e-5, rtol=1e-4)


def test_one_part_of_an_encoder_decoder():
    model, inputs = model_of("t5"), inputs_for("t5")
    by_hand = copy.deepcopy(model)
    by_hand.decoder.block[1].layer[1].EncDecAttention.q.weight.data *= FACTOR
    cross = next(c for c in capture(model, inputs).calls if c.kind == "cross" and c.layer == 1)
    after = numbers(scaled(model, inputs, [Scaling(FACTOR, cross.module, cross.layer)]))
    assert torch.allclose(after, plain(by_hand, inputs), atol=2e-5, rtol=1e-4)


def test_one_layer_where_all_share_a_module():
    """ALBERT runs one module three times; the factors of each run multiply to that of all."""
    model, inputs = model_of("albert"), inputs_for("albert")
    places = [(call.module, call.layer) for call in capture(model, inputs).calls]
    assert len({module for module, _ in places}) == 1
    one = numbers(scaled(model, inputs, [Scaling(FACTOR, *places[1])]))
    each = numbers(scaled(model, inputs, [Scaling(FACTOR, *place) for place in places]))
    every = numbers(scaled(model, inputs, [Scaling(FACTOR)]))
    assert torch.equal(each, every)
    assert not torch.allclose(one, every, atol=1e-4)
    assert not torch.allclose(one, plain(model, inputs), atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "bert", "bloom", "gemma2"])
def test_factor_0_gives_even_weights_and_no_nan(family: str):
    model, inputs = model_of(family), inputs_for(family)
    nothing, little = (numbers(scaled(model, inputs, [Scaling(f)])) for f in (0.0, 1e-7))
    assert bool(nothing.isfinite().all())
    assert torch.allclose(nothing, little, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "bloom", "bert"])
def test_ten_threads_do_not_see_each_other(family: str):
    model, inputs = model_of(family), inputs_for(family)
    factors = [0.0, 0.1, 0.3, 0.5, 1.0, 1.3, 2.0, 4.0, 7.0]
    alone = [numbers(scaled(model, inputs, [Scaling(f)])) for f in factors]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = model.config.to_json_string()
    together = Barrier(10)

    def work(number: int) -> bool:
        together.wait(timeout=60)
        for _ in range(5):
            if number == 9:  # one that changes nothing
                after, expected = plain(model, inputs), alone[4]
            else:
                after = numbers(scaled(model, inputs, [Scaling(factors[number])]))
                expected = alone[number]
            if not torch.equal(after, expected):
                return False
        return True

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(work, range(10)))
    assert all(torch.equal(state[name], x) for name, x in model.state_dict().items())
    assert model.config.to_json_string() == settings


def test_what_is_recorded_beside_a_change_is_what_was_used():
    """Queries come multiplied, and the model's own output confirms what they give."""
    model, inputs = model_of("llama"), inputs_for("llama")
    before = capture(model, inputs).calls[0]

    class Halving:
        def attend(self, function: Callable, module: nn.Module, query: Tensor, *rest, **named):
            return function(module, query / 2, *rest, **named)

    with changed_by(Halving()):
        after = capture(model, inputs).calls[0]
    assert torch.equal(after.query, before.query / 2)
    assert after.max_error < 1e-5
    assert torch.equal(capture(model, inputs).calls[0].query, before.query)


def test_a_run_that_fails_leaves_nothing_behind():
    model, inputs = model_of("gpt2"), inputs_for("gpt2")
    before = plain(model, inputs)
    with pytest.raises(UnreadableModel, match="cannot run on this input"):
        scaled(model, {"input_ids": torch.tensor([[10**6]])}, [Scaling(FACTOR)])
    assert torch.equal(plain(model, inputs), before)


@pytest.mark.parametrize(
    ("family", "scaling", "sentence"),
    [
        ("llama", Scaling(2.0, layer=7), "its layer 7 has no softmax attention"),
        ("llama", Scaling(2.0, layer=1, head=6), "there are 6 heads and no head 6"),
        ("llama", Scaling(2.0, head=-1), "there are 6 heads and no head -1"),
        ("bloom", Scaling(2.0, head=5), "there are 5 heads and no head 5"),
        ("mamba", Scaling(2.0), "no softmax attention"),
        ("nystromformer", Scaling(2.0), "landmarks"),
        (SUM_OF_PRODUCTS, Scaling(2.0), "a sum of several products"),
        ("xlnet", Scaling(2.0, head=1), "its heads cannot be told apart"),
    ],
)
def test_what_cannot_be_done_is_said(family: str, scaling: Scaling, sentence: str):
    with pytest.raises(UnreadableModel, match=f"cannot be changed as asked: .*{sentence}.*\\.$"):
        scaled(model_of(family), inputs_for(family), [scaling])


class OddAttention(nn.Module):
    """One head of 11 numbers that computes its weights by itself, in an odd way or a plain one."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.query, self.key, self.value = (nn.Linear(11, 11) for _ in range(3))
        self.router = nn.Parameter(torch.randn(1, 11, 13))

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (f(hidden)[:, None] for f in (self.query, self.key, self.value))
        scores = query @ key.mT
        if self.way == "a step that is not followed":
            scores = scores.sinh()
        if self.way == "a change by another name":
            scores.view(-1).mul_(2.0)
        weights = scores.softmax(-1)
        if self.way == "weights of no values":
            return hidden * weights.amax(-1)[:, 0, :, None]
        hidden = (weights @ value)[:, 0]
        if self.way == "a router":
            hidden = hidden * torch.matmul(hidden, self.router).softmax(-1)[..., :11]
        return hidden


class Odd(hf.PreTrainedModel):
    config_class = hf.PretrainedConfig
    main_input_name = "inputs_embeds"

    def __init__(self, way: str) -> None:
        super().__init__(hf.PretrainedConfig())
        torch.manual_seed(0)
        self.layers = nn.ModuleList([OddAttention(way)])

    def forward(self, inputs_embeds: Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.layers[0](inputs_embeds))


@pytest.mark.parametrize(
    "way", ["a step that is not followed", "a change by another name", "weights of no values"]
)
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_steps_that_cannot_be_followed_are_refused(way: str, factor: float):
    with pytest.raises(UnreadableModel, match="steps that attnviz cannot follow"):
        scaled(Odd(way).eval(), {"inputs_embeds": torch.randn(1, 13, 11)}, [Scaling(factor)])


@pytest.mark.parametrize("way", ["plain", "a router"])
def test_a_softmax_over_learned_columns_is_no_attention(way: str):
    """A router's logits have as many numbers as the scores here, 13 for each of 13 tokens."""
    model, inputs = Odd(way).eval(), {"inputs_embeds": torch.randn(1, 13, 11)}
    by_hand = copy.deepcopy(model)
    by_query_weights("query")(by_hand)
    after = scaled(model, inputs, [Scaling(FACTOR)]).last_hidden_state
    with torch.no_grad():
        assert torch.allclose(after, by_hand(**inputs).last_hidden_state, atol=1e-6)


def test_a_text_too_long_to_follow_is_refused():
    config = hf.BloomConfig(
        vocab_size=53, hidden_size=22, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    model = hf.BloomForCausalLM(config).eval()
    with pytest.raises(UnreadableModel, match="these are 521; shorten the text"):
        scaled(model, inputs_for("bloom", 521), [Scaling(2.0)])


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_factors_are_numbers(factor: float):
    with pytest.raises(ValueError, match="cannot be multiplied"):
        Scaling(factor)
    with pytest.raises(TypeCheckError):
        Scaling("2")


# --- as if divided by something else


def test_factors_are_the_own_divisor_over_the_wanted_one():
    """By hand: GPT-2 here has d_k 11; its layers divide by √11, 2√11 and 3√11."""
    calls = capture(model_of("gpt2_by_layer"), inputs_for("gpt2")).calls
    found = as_if_divided(calls, lambda d_k: float(d_k))
    assert [s.layer for s in found] == [0, 1, 2]
    assert [s.factor for s in found] == pytest.approx([0.3015113, 0.6030227, 0.9045340])
    assert [s.factor for s in as_if_divided(calls, lambda d_k: 1.0)] == pytest.approx(
        [3.3166248, 6.6332496, 9.9498744]
    )


def test_a_scale_in_the_query_counts_and_the_own_divisor_is_exactly_1():
    """OPT multiplies its queries by 1/√d_k before it asks for attention, T5 divides by 1."""
    for family, divisor in (("opt", lambda d_k: d_k**0.5), ("t5", lambda d_k: 1.0)):
        found = as_if_divided(capture(model_of(family), inputs_for(family)).calls, divisor, 3)
        assert {s.factor for s in found} == {1.0}
        assert {s.head for s in found} == {3}


def test_a_layer_that_attends_twice_is_scaled_once():
    calls = capture(model_of("diffllama"), inputs_for("diffllama")).calls
    assert len(calls) == 6
    assert len(as_if_divided(calls, lambda d_k: 1.0)) == 3
    assert [s.layer for s in multiplied(calls, FACTOR)] == [0, 1, 2]
    assert multiplied(calls, FACTOR, 3)[1] == Scaling(FACTOR, calls[2].module, 1, 3)


def test_without_queries_there_is_no_divisor():
    call = capture(model_of("bert"), inputs_for("bert")).calls[0]
    weights = attention.weights(call, 0)[None, None].expand(1, call.heads, -1, -1)
    alone = replace(call, query=None, key=None, observed_weights=weights)
    with pytest.raises(UnreadableModel, match="only the weights are known"):
        as_if_divided([alone], lambda d_k: 1.0)
    assert len(as_if_divided([alone, call], lambda d_k: 1.0)) == 1
