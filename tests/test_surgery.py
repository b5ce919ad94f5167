"""A run with multiplied scores against models that were changed by hand, as copies."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace

import pytest
import tiny
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
from attnviz.inputs import Inputs
from attnviz.inputs import inputs_for as inputs_of_text
from attnviz.models import load
from attnviz.surgery import (
    Outcome,
    Scaling,
    as_if_divided,
    likeliest,
    outcome,
    relative_change,
    scaled,
)
from attnviz.tokens import tokenize

FACTOR = 0.37
STORY = "Once upon a time there was a king who had a daughter, and the king loved the daughter."


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


def test_without_queries_there_is_no_divisor():
    call = capture(model_of("bert"), inputs_for("bert")).calls[0]
    weights = attention.weights(call, 0)[None, None].expand(1, call.heads, -1, -1)
    alone = replace(call, query=None, key=None, observed_weights=weights)
    with pytest.raises(UnreadableModel, match="only the weights are known"):
        as_if_divided([alone], lambda d_k: 1.0)
    assert len(as_if_divided([alone, call], lambda d_k: 1.0)) == 1


# --- what it does


def loaded(model: hf.PreTrainedModel, tokenizer: object = None) -> SimpleNamespace:
    return SimpleNamespace(model=model, tokenizer=tokenizer)


def test_loss_and_next_token_of_a_decoder():
    model, inputs = model_of("gpt2"), inputs_for("gpt2", 7)
    found = outcome(loaded(model), Inputs(inputs, None), [Scaling(FACTOR)])
    logits = scaled(model, inputs, [Scaling(FACTOR)]).logits[0].double()
    ids = inputs["input_ids"][0].tolist()
    by_hand = [
        math.log(sum(math.exp(x) for x in logits[i - 1].tolist())) - float(logits[i - 1, ids[i]])
        for i in range(1, 7)
    ]
    assert found.predicted == "from before"
    assert math.isnan(found.loss[0])
    assert found.loss[1:].tolist() == pytest.approx(by_hand, abs=1e-5)
    assert found.mean_loss == pytest.approx(sum(by_hand) / 6, abs=1e-5)
    exponentials = [math.exp(x) for x in logits[-1].tolist()]
    chances = [x / sum(exponentials) for x in exponentials]
    assert found.next_token.tolist() == pytest.approx(chances, abs=1e-6)
    assert found.entropy == pytest.approx(-sum(p * math.log(p) for p in chances), abs=1e-5)


def test_one_token_alone_has_no_loss():
    found = outcome(loaded(model_of("llama")), Inputs(inputs_for("llama", 1), None))
    assert found.mean_loss is None
    assert float(found.next_token.sum()) == pytest.approx(1, abs=1e-5)


def test_an_encoder_decoder_is_asked_for_its_target():
    inputs = inputs_for("t5")
    found = outcome(loaded(model_of("t5")), Inputs(inputs, None))
    assert found.loss.shape == (7,)
    assert int(found.loss.isnan().sum()) == 1


@pytest.fixture(scope="module")
def masked() -> SimpleNamespace:
    tokenizer = tiny.wordpiece()
    config = hf.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=55,
        intermediate_size=31,
        num_hidden_layers=2,
        num_attention_heads=5,
        max_position_embeddings=97,
    )
    torch.manual_seed(0)
    return loaded(hf.BertForMaskedLM(config).eval(), tokenizer)


def inputs_of(tokenizer: object, text: str) -> Inputs:
    tokens = tokenize(tokenizer, text)
    return Inputs({"input_ids": torch.tensor([tokens.ids])}, tokens)


def test_masked_loss_of_few_tokens_masks_each_alone(masked: SimpleNamespace):
    inputs = inputs_of(masked.tokenizer, "the cat sat on the mat")
    ids = inputs.tensors["input_ids"]
    found = outcome(masked, inputs, [Scaling(FACTOR)])
    assert found.predicted == "masked"
    for place in range(1, 7):
        hidden = ids.clone()
        hidden[0, place] = masked.tokenizer.mask_token_id
        logits = scaled(masked.model, {"input_ids": hidden}, [Scaling(FACTOR)]).logits[0, place]
        expected = logits.double().logsumexp(0) - logits[ids[0, place]]
        assert float(found.loss[place]) == pytest.approx(float(expected), abs=1e-5)
    assert found.loss.isnan().tolist() == [True, *[False] * 6, True]
    assert found.next_token is None
    assert found.entropy is None


def test_masked_loss_of_a_longer_text_masks_each_token_once_in_seven_runs(
    masked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    inputs, seen = inputs_of(masked.tokenizer, "the cat sat on the mat, " * 5), []
    forward = masked.model.forward

    def noting(input_ids: Tensor, **others: object) -> object:
        seen.append(input_ids[0] == masked.tokenizer.mask_token_id)
        return forward(input_ids, **others)

    first = outcome(masked, inputs)
    monkeypatch.setattr(masked.model, "forward", noting)
    again = outcome(masked, inputs)
    assert torch.equal(first.loss[1:-1], again.loss[1:-1])
    assert torch.stack(seen).sum(0).tolist() == [0, *[1] * (len(inputs.source) - 2), 0]
    shares = [float(hidden.sum()) / (len(inputs.source) - 2) for hidden in seen]
    assert len(seen) == 7
    assert all(0.1 < share < 0.2 for share in shares)


def test_without_a_loss_the_output_is_compared():
    model, inputs = model_of("bert"), Inputs(inputs_for("bert"), None)
    before, same = outcome(loaded(model), inputs), outcome(loaded(model), inputs, [Scaling(1.0)])
    after = outcome(loaded(model), inputs, [Scaling(FACTOR)])
    assert (before.predicted, before.mean_loss) == ("not", None)
    assert relative_change(before, same) == 0
    a, b = before.output.double().flatten(), after.output.double().flatten()
    assert relative_change(before, after) == pytest.approx(
        math.sqrt(float(((a - b) ** 2).sum() / (a**2).sum())), rel=1e-4
    )
    assert likeliest(before, after) == ()


@pytest.mark.parametrize("family", ["clip", "vit", "wav2vec2", "whisper"])
def test_any_model_has_an_outcome(family: str):
    model, inputs = model_of(family), Inputs(inputs_for(family), None)
    before, after = outcome(loaded(model), inputs), outcome(loaded(model), inputs, [Scaling(0.5)])
    if family == "whisper":
        assert before.mean_loss != after.mean_loss
    else:
        assert relative_change(before, after) > 1e-3


def test_likeliest_before_or_after():
    def predicting(*chances: float) -> Outcome:
        return Outcome("from before", None, torch.tensor(chances), None)

    before, after = predicting(0.5, 0.3, 0.15, 0.05), predicting(0.1, 0.05, 0.2, 0.65)
    assert likeliest(before, after, 3) == (3, 0, 1)
    assert likeliest(before, after) == (3, 0, 1, 2)
    assert relative_change(before, after) is None


def test_the_bundled_model_is_at_its_best_near_its_own_scale():
    """And dividing by d_k or d_k² costs a trained model more than not dividing at all."""
    bundled = load("bundled")
    inputs = inputs_of_text(bundled, STORY)

    def loss(factor: float) -> float:
        return outcome(bundled, inputs, [Scaling(factor)]).mean_loss

    assert min([0.0, 0.1, 0.3, 1.0, 3.0, 10.0], key=loss) == 1.0
    d_k = 32
    own, undivided, by_d_k, by_square = (loss(d_k**p) for p in (0.0, 0.5, -0.5, -1.5))
    assert own + 0.2 < undivided < by_d_k < by_square
