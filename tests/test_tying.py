"""Runs with shared projections against copies whose parameters were really overwritten."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from threading import Barrier

import cell_reference
import pytest
import tiny_models
import torch
import transformers as hf
from calls_by_hand import plain_call
from cell_recipes import RECIPES, Cut, Recipe
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from attnviz import attention, tying
from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.capture import capture
from attnviz.inputs import inputs_for
from attnviz.models import load
from attnviz.outcome import outcome
from attnviz.surgery import Scaling, scaled
from attnviz.tying import WAYS, Makers, Tying, makers, moved_attention, tied, why_not

ONE_MATRIX = [family for family in RECIPES if family not in ("deepseek_v3", "diffllama")]
GROUPED = [f for f in ONE_MATRIX if any(r.kv_heads < r.heads for r in RECIPES[f])]
EXCHANGES = [way for way in WAYS if way != "values shuffled"]


def model_of(family: str) -> hf.PreTrainedModel:
    if family in cell_reference.REAL:
        return cell_reference.model_of(family)
    return cell_reference.model_of(family, "eager" if family in tiny_models.EAGER_ONLY else "sdpa")


def inputs_of(family: str) -> dict[str, Tensor]:
    return cell_reference.inputs_for(family)


@cache
def known(family: str) -> tuple[Makers, ...]:
    return makers(model_of(family), inputs_of(family))


def numbers(output: object) -> Tensor:
    logits = getattr(output, "logits", None)
    return output.last_hidden_state if logits is None else logits


def plain(model: hf.PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return numbers(model(**inputs))


def tied_run(family: str, *tyings: Tying) -> Tensor:
    with tied(model_of(family), known(family), tyings):
        return plain(model_of(family), inputs_of(family))


# --- by hand


def matrix_and_bias(model: nn.Module, layer: str, cut: Cut) -> tuple[Tensor, Tensor | None]:
    """(d_out, d_in), to write into."""
    parameters, path = dict(model.named_parameters()), f"{layer}.{cut.matrix}"
    if path in parameters:  # (d_in, head, width)
        return parameters[path].data.flatten(1).T, None
    weight, bias = parameters[f"{path}.weight"].data, parameters.get(f"{path}.bias")
    turned = type(model.get_submodule(path)).__name__ == "Conv1D"
    return weight.T if turned else weight, None if bias is None else bias.data


def layers_of(family: str) -> Iterator[tuple[Recipe, str]]:
    for recipe in RECIPES[family]:
        for number in recipe.runs:
            yield recipe, f"{recipe.layer}.{number}"


def exchanges(recipe: Recipe, way: str, head: int | None) -> list[tuple[str, int, str, int]]:
    group = recipe.heads // recipe.kv_heads
    heads = range(recipe.heads) if head is None else [head]
    groups = range(recipe.kv_heads) if head is None else [head // group]
    from_key = [("query", h, "key", h // group) for h in heads]
    to_key = [("key", h // group, "query", h) for h in heads]
    return {
        "K := V": [("key", g, "value", g) for g in groups],
        "V := K": [("value", g, "key", g) for g in groups],
        "Q := K": from_key,
        "Q and K swapped": from_key + to_key,
    }[way]


def overwritten(
    family: str, way: str, module: str | None = None, head: int | None = None
) -> hf.PreTrainedModel:
    """A copy whose parameters are other ones."""
    model = model_of(family)
    changed = copy.deepcopy(model)
    for recipe, path in layers_of(family):
        if module not in (None, f"{path}.{recipe.attention}"):
            continue
        for role, at, other, by in exchanges(recipe, way, head):
            (to,), (source,) = getattr(recipe, role), getattr(recipe, other)
            weight, bias = matrix_and_bias(changed, path, to)
            old, old_bias = matrix_and_bias(model, path, source)
            weight[to.rows(at)] = old[source.rows(by)]
            if bias is not None:
                bias[to.rows(at)] = old_bias[source.rows(by)]
    return changed


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    after = model.state_dict()
    return all(torch.equal(after[name], tensor) for name, tensor in before.items())


# --- it is as if the model were another one


@pytest.mark.parametrize("way", EXCHANGES)
@pytest.mark.parametrize("family", ONE_MATRIX)
def test_all_heads(family: str, way: str):
    model, before = model_of(family), state(model_of(family))
    if way == "Q and K swapped" and family in GROUPED:
        with pytest.raises(UnreadableModel, match="several heads share what would have to"):
            tied_run(family, Tying(way))
        return
    after = tied_run(family, Tying(way))
    assert torch.equal(after, plain(overwritten(family, way), inputs_of(family)))
    assert not torch.allclose(after, plain(model, inputs_of(family)), atol=1e-3)
    assert unchanged(model, before)


@pytest.mark.parametrize("way", EXCHANGES)
@pytest.mark.parametrize("family", [f for f in ONE_MATRIX if f != "albert"])
def test_one_head_of_one_layer(family: str, way: str):
    recipe, path = list(layers_of(family))[-1]
    head = recipe.heads - 1
    one = next(x for x in known(family) if x.module == f"{path}.{recipe.attention}")
    after = tied_run(family, Tying(way, one.module, one.layer, head))
    assert torch.equal(after, plain(overwritten(family, way, one.module, head), inputs_of(family)))
    assert not torch.equal(after, plain(model_of(family), inputs_of(family)))


@pytest.mark.parametrize("family", ONE_MATRIX)
def test_without_tyings_nothing_changes(family: str):
    assert torch.equal(tied_run(family), plain(model_of(family), inputs_of(family)))


# --- values shuffled


@pytest.mark.parametrize("family", ONE_MATRIX)
def test_no_head_keeps_its_values(family: str):
    """The first layer is given what it always is: its values are those of other heads."""
    model, inputs = model_of(family), inputs_of(family)
    before = capture(model, inputs).calls[0]
    with tied(model, known(family), [Tying("values shuffled", seed=3)]):
        after = capture(model, inputs).calls[0]
    order = [same_values(after.value[:, head], before.value) for head in range(before.kv_heads)]
    assert sorted(order) == list(range(before.kv_heads))
    assert all(head != other for head, other in enumerate(order))
    assert torch.equal(after.key, before.key)


def same_values(value: Tensor, others: Tensor) -> int:
    apart = (others - value[:, None]).abs().amax((0, 2, 3))
    assert float(apart.min()) < 1e-5
    return int(apart.argmin())


def test_another_seed_draws_another_order():
    first, again, other = (tied_run("minilm", Tying("values shuffled", seed=s)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_one_head_changes_places_with_another():
    """GPT-2's third head of five, and one other."""
    model, inputs = model_of("gpt2"), inputs_of("gpt2")
    before = capture(model, inputs).calls[0]
    tying = Tying("values shuffled", before.module, before.layer, head=2)
    with tied(model, known("gpt2"), [tying]):
        after = capture(model, inputs).calls[0]
    order = [same_values(after.value[:, head], before.value) for head in range(5)]
    partner = order[2]
    assert partner != 2
    assert order[partner] == 2
    assert sum(head != other for head, other in enumerate(order)) == 2


# --- what the run sees


@pytest.mark.parametrize("family", ["gpt2", "bloom", "bert", "llama", "gpt_neox"])
def test_v_as_k_gives_values_that_are_keys(family: str):
    """Before their rotation, in the first layer."""
    model, inputs = model_of(family), inputs_of(family)
    with tied(model, known(family), [Tying("V := K")]):
        call = capture(model, inputs).calls[0]
    key = call.key if call.key_unrotated is None else call.key_unrotated
    assert torch.allclose(call.value, key, atol=1e-5)


def test_q_as_k_repeats_the_key_of_the_group():
    model, inputs = model_of("llama"), inputs_of("llama")
    with tied(model, known("llama"), [Tying("Q := K")]):
        call = capture(model, inputs).calls[0]
    assert torch.allclose(call.query, call.key.repeat_interleave(2, 1), atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "phi3", "bert", "bloom", "qwen3"])
def test_what_is_tied_already_does_not_change(family: str):
    """W_V and b_V are those of the keys beforehand: "V := K" changes no bit."""
    model, inputs = overwritten(family, "V := K"), inputs_of(family)
    before = state(model)
    with tied(model, makers(model, inputs), [Tying("V := K")]):
        after = plain(model, inputs)
    assert torch.equal(after, plain(model, inputs))
    assert unchanged(model, before)


def test_an_equal_matrix_is_not_exchanged():
    """A product may round otherwise where the same numbers lie elsewhere in memory."""
    model, inputs, seen = overwritten("bert", "V := K"), inputs_of("bert"), []
    value = model.encoder.layer[1].attention.self.value
    forward = value.forward

    def noting(x: Tensor) -> Tensor:
        seen.append(value.weight.detach().data_ptr())
        return forward(x)

    value.forward = noting
    with tied(model, makers(model, inputs), [Tying("V := K")]):
        plain(model, inputs)
    assert set(seen) == {value.weight.data_ptr()}


def test_what_follows_the_projection_acts_as_before():
    """Qwen3's queries pass a norm and a rotation of their own, be they made by W_K."""
    model, inputs = model_of("qwen3"), inputs_of("qwen3")
    with tied(model, known("qwen3"), [Tying("Q := K")]):
        call = capture(model, inputs).calls[0]
    attention = model.model.layers[0].self_attn
    hidden = model.model.layers[0].input_layernorm(model.model.embed_tokens(inputs["input_ids"]))
    keys = attention.k_proj(hidden).unflatten(-1, (3, 14))
    by_hand = attention.q_norm(keys).transpose(1, 2).repeat_interleave(2, 1)
    assert torch.allclose(call.query_unrotated, by_hand, atol=1e-5)


def test_several_tyings_at_once():
    first, second = (x for x in known("gpt2")[:2])
    tyings = [Tying("V := K", first.module), Tying("Q := K", second.module)]
    by_hand = overwritten("gpt2", "V := K", first.module)
    other = overwritten("gpt2", "Q := K", second.module)
    by_hand.transformer.h[1] = other.transformer.h[1]
    assert torch.equal(tied_run("gpt2", *tyings), plain(by_hand, inputs_of("gpt2")))


def test_a_bias_goes_where_the_model_has_none():
    """Whisper's keys have none: "K := V" gives them that of the values, "Q := K" takes one away."""
    model, inputs = model_of("whisper"), tiny_models.inputs_for("whisper")
    for way in ("K := V", "Q := K"):
        by_hand = copy.deepcopy(model)
        for path, module in by_hand.named_modules():
            if path.endswith(("self_attn", "encoder_attn")):
                source, target = module.v_proj, module.k_proj
                if way == "Q := K":
                    source, target = module.k_proj, module.q_proj
                target.weight.data = source.weight.data.clone()
                target.bias = source.bias
        with tied(model, makers(model, inputs), [Tying(way)]):
            after, calls = plain(model, inputs), capture(model, inputs).calls
        assert torch.allclose(after, plain(by_hand, inputs), atol=1e-5)
        assert not torch.allclose(after, plain(model, inputs), atol=1e-3)
        for call, other in zip(calls, capture(by_hand, inputs).calls, strict=True):
            assert torch.allclose(call.key, other.key, atol=1e-5)  # no softmax sees its bias
            assert torch.allclose(call.query, other.query, atol=1e-5)


class TorchsOwn(nn.Module):
    """torch's own attention: one parameter for all three, and one function for all it does."""

    def __init__(self, crossed: bool) -> None:
        super().__init__()
        self.attention, self.crossed = nn.MultiheadAttention(55, 5, batch_first=True), crossed

    def forward(self, hidden: Tensor) -> Tensor:
        keys = hidden.flip(1) if self.crossed else hidden
        return hidden + self.attention(hidden, keys, keys, need_weights=False)[0]


def test_biases_that_are_put_together_first_are_refused():
    """WavLM's function takes three matrices, and their biases as one new tensor."""
    config = hf.WavLMConfig(
        hidden_size=55,
        intermediate_size=31,
        num_hidden_layers=2,
        num_attention_heads=5,
        conv_dim=(13, 13),
        conv_stride=(5, 3),
        conv_kernel=(7, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=5,
        feat_extract_norm="layer",
    )
    model, inputs = hf.WavLMModel(config).eval(), tiny_models.inputs_for("wav2vec2")
    places = makers(model, inputs)
    sentence = r"the bias beside its encoder\.layers\.0\.attention\.v_proj\.weight could not be"
    with pytest.raises(UnreadableModel, match=sentence), tied(model, places, [Tying("V := K")]):
        plain(model, inputs)


class Latent(nn.Module):
    """One head of 11 numbers; its keys are made of 11 numbers that are made of x."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.down, self.up, self.value = (nn.Linear(55, 55) for _ in range(4))

    def forward(self, hidden: Tensor) -> Tensor:
        vectors = self.query(hidden), self.up(self.down(hidden)), self.value(hidden)
        heads = (x.unflatten(-1, (5, 11)).transpose(1, 2) for x in vectors)
        return nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


class OfTwo(hf.PreTrainedModel):
    config_class = hf.PretrainedConfig
    main_input_name = "inputs_embeds"

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__(hf.PretrainedConfig())
        self.layers = nn.ModuleList([layer(), layer()])

    def forward(self, inputs_embeds: Tensor) -> BaseModelOutput:
        for layer in self.layers:
            inputs_embeds = layer(inputs_embeds)
        return BaseModelOutput(last_hidden_state=inputs_embeds)


VECTORS = {"inputs_embeds": torch.randn(1, 13, 55, generator=torch.Generator().manual_seed(1))}


@pytest.mark.parametrize("crossed", [False, True])
def test_torchs_own_attention(crossed: bool):
    """One parameter: 55 rows of queries, of keys and of values, which it may cut first."""
    model = tiny_models.spread(OfTwo(lambda: TorchsOwn(crossed)))
    by_hand = copy.deepcopy(model)
    for layer in by_hand.layers:
        for parameter in (layer.attention.in_proj_weight, layer.attention.in_proj_bias):
            parameter.data[110:] = parameter.data[55:110]
    with tied(model, makers(model, VECTORS), [Tying("V := K")]):
        after = plain(model, VECTORS)
    assert torch.allclose(after, plain(by_hand, VECTORS), atol=1e-6)
    assert not torch.allclose(after, plain(model, VECTORS), atol=1e-2)


def test_keys_of_a_latent_vector_are_made_by_two_matrices():
    model = tiny_models.spread(OfTwo(Latent))
    places = makers(model, VECTORS)
    for way in EXCHANGES:
        sentence = "in layer 0, its keys are made from a latent vector, not from x by one matrix"
        assert sentence in str(why_not(model, places, [Tying(way)]))
    assert why_not(model, places, [Tying("values shuffled")]) is None


@pytest.mark.parametrize("half", ["encoder", "decoder"])
def test_halves_that_share_their_parameters(half: str):
    """Only the half that is meant is changed."""
    model, inputs = model_of("tied_encoder_decoder"), tiny_models.inputs_for("tied_encoder_decoder")
    by_hand = copy.deepcopy(model)
    layers = getattr(by_hand, half)
    layers = layers.encoder.layer if half == "encoder" else layers.bert.encoder.layer
    own = layers[1].attention.self
    own.value = copy.deepcopy(own.key)
    module = next(p for p, m in by_hand.named_modules() if m is own)
    with tied(model, makers(model, inputs), [Tying("V := K", module)]):
        after = plain(model, inputs)
    assert torch.equal(after, plain(by_hand, inputs))
    assert not torch.allclose(after, plain(model, inputs), atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_another_scale_at_the_same_time(family: str):
    model, inputs, scaling = model_of(family), inputs_of(family), [Scaling(0.37, layer=1, head=2)]
    with tied(model, known(family), [Tying("V := K")]):
        after = numbers(scaled(model, inputs, scaling))
    by_hand = overwritten(family, "V := K")
    assert torch.equal(after, numbers(scaled(by_hand, inputs, scaling)))
    assert not torch.equal(after, plain(by_hand, inputs))


def test_a_trained_model_uses_separate_roles():
    """The bundled model's loss in nats; a copy that was overwritten loses the same."""
    bundled = load("bundled")
    inputs = inputs_for(bundled, "Once upon a time there was a king who had a daughter.")
    places, before = makers(bundled.model, inputs.tensors), outcome(bundled, inputs)
    for way in WAYS:
        with tied(bundled.model, places, [Tying(way)]):
            after = outcome(bundled, inputs)
        assert after.mean_loss > before.mean_loss + 2
    assert torch.equal(outcome(bundled, inputs).next_token, before.next_token)
    with tied(bundled.model, places, [Tying("V := K")]):
        tied_loss = outcome(bundled, inputs).mean_loss
    by_hand = replace(bundled, model=copy.deepcopy(bundled.model))
    for layer in by_hand.model.model.layers:
        layer.self_attn.v_proj = layer.self_attn.k_proj
    assert outcome(by_hand, inputs).mean_loss == tied_loss


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "bloom"])
def test_ten_threads_do_not_see_each_other(family: str):
    model, inputs = model_of(family), inputs_of(family)
    before, places = state(model), known(family)
    ways = ["K := V", "V := K", "Q := K"]
    tyings: list[list[Tying]] = [[Tying(way)] for way in ways]
    tyings += [[Tying(way, layer=2, head=1)] for way in ways]
    tyings += [[Tying("values shuffled", seed=s)] for s in range(3)] + [[]]
    alone = [tied_run(family, *some) for some in tyings]
    settings, together = model.config.to_json_string(), Barrier(10)

    def work(number: int) -> bool:
        together.wait(timeout=60)
        for _ in range(4):
            with tied(model, places, tyings[number]):
                after = plain(model, inputs)
            if not torch.equal(after, alone[number]):
                return False
        return True

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(work, range(10)))
    assert unchanged(model, before)
    assert model.config.to_json_string() == settings


# --- what cannot be done


@pytest.mark.parametrize(
    ("family", "tying", "sentence"),
    [
        ("deepseek_v3", Tying("V := K"), "keys are put together from the results of 2 matrices"),
        ("deepseek_v3", Tying("K := V"), "keys are put together from the results of 2 matrices"),
        ("deepseek_v3", Tying("Q := K", layer=1), "in layer 1, its keys are put together"),
        ("diffllama", Tying("V := K"), "several heads share what would have to become another"),
        ("albert", Tying("V := K", layer=1), "its layers share their matrices"),
        ("llama", Tying("V := K", layer=7), "its layer 7 has no softmax attention"),
        ("llama", Tying("V := K", layer=1, head=6), "there are 6 heads and no head 6"),
        ("llama", Tying("V := K", head=-1), "there are 6 heads and no head -1"),
        ("falcon", Tying("values shuffled"), "one value head alone"),
    ],
)
def test_what_cannot_be_done_is_said(family: str, tying: Tying, sentence: str):
    model, inputs = model_of(family), tiny_models.inputs_for(family)
    with (
        pytest.raises(UnreadableModel, match=f"cannot be changed as asked: .*({sentence}).*\\.$"),
        tied(model, makers(model, inputs), [tying]),
    ):
        plain(model, inputs)


def test_values_of_latent_attention_can_be_shuffled():
    """DeepSeek's one matrix gives each head 7 numbers of its key and 11 of its value."""
    model, inputs = model_of("deepseek_v3"), inputs_of("deepseek_v3")
    first = capture(model, inputs).calls[0]
    tying = Tying("values shuffled", first.module)
    with tied(model, known("deepseek_v3"), [tying]):
        call, after = capture(model, inputs).calls[0], plain(model, inputs)
    order = [same_values(call.value[:, head], first.value) for head in range(5)]
    by_hand = copy.deepcopy(model)
    matrix = by_hand.model.layers[0].self_attn.kv_b_proj.weight.data.view(5, 18, -1)
    matrix[:, 7:] = matrix[order, 7:]
    assert torch.equal(after, plain(by_hand, inputs))


def test_why_not_is_told_without_a_run():
    model, places = model_of("llama"), known("llama")
    assert why_not(model, places, [Tying("Q := K")]) is None
    assert why_not(model, places, [Tying("Q and K swapped", head=3)]) is None
    told = why_not(model, places, [Tying("Q and K swapped")])
    assert told == (
        "LlamaForCausalLM cannot be changed as asked: in layer 0, several heads share what would "
        "have to become another one for each of them; one head alone can be changed."
    )
    assert [places[0].beside(head) for head in (0, 3)] == [(1,), (2,)]


def test_a_run_that_fails_leaves_nothing_behind():
    model, inputs = model_of("gpt2"), inputs_of("gpt2")
    before = plain(model, inputs)
    with pytest.raises(IndexError), tied(model, known("gpt2"), [Tying("V := K")]):
        plain(model, {"input_ids": torch.tensor([[10**6]])})
    assert torch.equal(plain(model, inputs), before)


def test_weights_that_were_read_elsewhere_are_noticed():
    """A model that keeps a copy of its own matrix does not use what takes its place."""
    model, inputs = copy.deepcopy(model_of("bert")), inputs_of("bert")
    places, value = makers(model, inputs), model.encoder.layer[1].attention.self.value
    weight, bias = value.weight.detach().clone(), value.bias.detach().clone()
    value.forward = lambda x: x @ weight.T + bias
    with (
        pytest.raises(UnreadableModel, match=r"nothing was seen to use its encoder\.layer\.1\."),
        tied(model, places, [Tying("V := K")]),
    ):
        plain(model, inputs)


def test_weights_on_disk_are_refused():
    accelerate = pytest.importorskip("accelerate")
    model, inputs = copy.deepcopy(model_of("llama")), inputs_of("llama")
    accelerate.cpu_offload(model)
    with (
        pytest.raises(UnreadableModel, match="too large for the memory"),
        tied(model, makers(model, inputs), [Tying("V := K")]),
    ):
        plain(model, inputs)


class Packed(nn.Linear):
    """Its numbers are unpacked at each use, as those of a quantised matrix are."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, (self.weight * 8).round() / 8, self.bias)


def test_weights_that_are_unpacked_at_each_use_are_refused():
    model, inputs = copy.deepcopy(model_of("llama")), inputs_of("llama")
    for layer in model.model.layers:
        layer.self_attn.v_proj.__class__ = Packed
    places = makers(model, inputs)
    sentence = "no matrix was found that makes its values"
    with pytest.raises(UnreadableModel, match=sentence), tied(model, places, [Tying("V := K")]):
        plain(model, inputs)
    with tied(model, places, [Tying("Q := K")]):  # these are plain
        assert not torch.equal(plain(model, inputs), plain(model_of("llama"), inputs))


def test_one_matrix_in_two_roles():
    """Keys and values of one matrix, as in some layers of Gemma 4."""
    model, inputs = copy.deepcopy(model_of("llama")), inputs_of("llama")
    model.model.layers[1].self_attn.v_proj = model.model.layers[1].self_attn.k_proj
    places = makers(model, inputs)

    def run(way: str, layer: int | None = 1) -> Tensor:
        with tied(model, places, [Tying(way, layer=layer)]):
            return plain(model, inputs)

    for way in ("V := K", "K := V"):
        with pytest.raises(UnreadableModel, match="is one and the same already"):
            run(way)
        assert not torch.equal(run(way, None), plain(model, inputs))  # the other layers
    with pytest.raises(UnreadableModel, match="serves in several roles"):
        run("values shuffled")
    assert not torch.equal(run("Q := K"), plain(model, inputs))


# --- how far attention moves


def call_of(logits: Tensor, **more: object) -> AttentionCall:
    """One head whose logits these are: q are their rows, k the unit vectors."""
    key = torch.eye(logits.shape[1])[None, None]
    return plain_call(query=logits[None, None].float(), key=key, value=key, scale=1.0, **more)


def test_moved_attention_by_hand():
    """From weights ¼, ¾ to ½, ½: a quarter moves. From ½, ½ to 1, 0: a half."""
    before = call_of(torch.tensor([[1.0, 3.0], [1.0, 1.0]]).log())
    after = call_of(torch.tensor([[1.0, 1.0], [1.0, 1e-30]]).log())
    assert moved_attention(before, after, 0).tolist() == pytest.approx([0.25, 0.5])
    assert moved_attention(before, before, 0).tolist() == [0, 0]


def test_what_a_sink_takes_is_attention_too():
    """Logits 0 and 0 without and with a sink of log 2: half of the row goes to the sink."""
    before = call_of(torch.zeros(1, 2), sinks=torch.tensor([-1e4]))
    after = replace(before, sinks=torch.tensor([2.0]).log())
    assert moved_attention(before, after, 0).tolist() == pytest.approx([0.5])


@pytest.mark.parametrize("family", ["llama", "t5", "gpt_oss"])
def test_moved_attention_of_a_real_head(family: str, monkeypatch: pytest.MonkeyPatch):
    model, inputs = model_of(family), inputs_of(family)
    before = capture(model, inputs).calls[-1]
    with tied(model, known(family), [Tying("Q := K")]):
        after = capture(model, inputs).calls[-1]
    p, q = (attention.weights(call, 1).double().numpy() for call in (before, after))
    rest = abs((1 - p.sum(1)) - (1 - q.sum(1)))
    expected = (abs(p - q).sum(1) + rest) / 2
    assert moved_attention(before, after, 1).numpy() == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr(tying, "BLOCK_WEIGHTS", 29)
    assert moved_attention(before, after, 1).numpy() == pytest.approx(expected, abs=1e-6)
