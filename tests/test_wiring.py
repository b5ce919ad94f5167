"""What leads into an attention call and out of it, against modules and parameters by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import cell_reference
import pytest
import tiny_models
import torch
import transformers as hf
from cell_recipes import RECIPES, ROLES
from cell_reference import Mixed, Product, Surroundings, inputs_for, model_of
from torch import Tensor, nn

from attnviz import follower as following
from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.capture import Capture, capture
from attnviz.trace import Step
from attnviz.wiring import AddedPositions, Mixing, Origin, Projection, Stream, Wiring, wiring

EXACT = 1e-5  # of the largest number
# Of the weights themselves; layers before a call were computed by another function under sdpa.
SAME_WEIGHT = {"eager": 1e-6, "sdpa": 3e-6}
EAGER = (*tiny_models.OWN_ATTENTION, *tiny_models.EAGER_ONLY)
RUNS = [(family, "eager" if family in EAGER else "sdpa") for family in RECIPES]
RUNS += [("gpt2", "eager"), ("t5", "eager"), ("deepseek_v3", "eager"), ("falcon_grouped", "sdpa")]
ALL_CALLS = ("albert", "diffllama")  # they ask one module twice


@cache
def expected(family: str) -> list[Surroundings]:
    return cell_reference.surroundings(family)


@cache
def captured(family: str, attention: str) -> Capture:
    return capture(model_of(family, attention), inputs_for(family))


def tried(family: str, attention: str) -> list[int]:
    """The first and the last call of each kind, as layers in between run the same code."""
    calls = captured(family, attention).calls
    if family in ALL_CALLS:
        return list(range(len(calls)))
    first = {(call.tower, call.kind): place for place, call in reversed(list(enumerate(calls)))}
    last = {(call.tower, call.kind): place for place, call in enumerate(calls)}
    return sorted({*first.values(), *last.values()})


def wired_anew(family: str, attention: str) -> list[Wiring]:
    read, model = captured(family, attention), model_of(family, attention)
    places = tried(family, attention)
    return [wiring(model, inputs_for(family), read, read.calls[place]) for place in places]


wired = cache(wired_anew)
by_run = pytest.mark.parametrize(("family", "attention"), RUNS)


def around(
    family: str, attention: str, wired: Callable = wired
) -> Iterator[tuple[AttentionCall, Wiring, Surroundings]]:
    calls, real = captured(family, attention).calls, expected(family)
    assert [call.module for call in calls] == [each.module for each in real]
    for place, found in zip(tried(family, attention), wired(family, attention), strict=True):
        yield calls[place], found, real[place]


def assert_close(found: Tensor, real: Tensor, off: float = EXACT) -> None:
    assert found.shape == real.shape
    assert float((found - real).abs().max()) <= off * float(real.abs().max())


# --- what must be so


def assert_made(origin: Origin | None, products: tuple[Product, ...]) -> None:
    """Each number of a vector is one row of one matrix times what that was given."""
    assert origin is not None
    start = 0
    for product in products:
        numbers = slice(start, start := start + product.weight.shape[1])
        which, row, column = (
            places[..., numbers] for places in (origin.which, origin.row, origin.column)
        )
        assert len(which.unique()) == 1
        projection = origin.projections[int(which.flatten()[0])]
        assert projection.name == product.matrix
        weight = projection.weight[column]  # (batch, head, token, width, d_in)
        assert torch.equal(weight, product.weight[:, None].expand_as(weight))
        source = projection.source[row]
        assert_close(source, product.entering[:, None, :, None].expand_as(source))
        assert_close(innermost(projection).source[row][:, 0, :, 0], product.x)
        assert (projection.bias is None) == (product.bias is None)
        if projection.bias is not None:
            bias = projection.bias[column]
            assert torch.equal(bias, product.bias[:, None].expand_as(bias))
    assert start == origin.which.shape[-1]


def innermost(projection: Projection) -> Projection:
    return projection if projection.inner is None else innermost(projection.inner)


def made(origin: Origin) -> Tensor:
    """(batch, head, token, width), by the products that the origin names."""
    numbers = torch.full(origin.which.shape, torch.nan)
    for index, projection in enumerate(origin.projections):
        result = projection.source @ projection.weight.T
        result = result if projection.bias is None else result + projection.bias
        here = origin.which == index
        numbers[here] = result[origin.row[here], origin.column[here]]
    return numbers


def assert_mixed(mixing: Mixing | None, mixed: Mixed | None) -> None:
    """Each number of an output meets one column of W_O."""
    if mixed is None:
        assert mixing is None
        return
    assert mixing is not None
    projection = mixing.projection
    assert projection.name == mixed.matrix
    weight = projection.weight.T[mixing.column]  # (batch, head, query, d_v, d_model)
    assert torch.equal(weight, mixed.weight.mT[:, None].expand_as(weight))
    assert_close(projection.source[mixing.row, mixing.column], mixed.given)
    assert (projection.bias is None) == (mixed.bias is None)
    if projection.bias is not None:
        assert torch.equal(projection.bias, mixed.bias)


def assert_in_stream(found: Wiring, real: Surroundings) -> None:
    if real.mixed is None:
        assert found.stream is None
        return
    assert found.output is not None
    assert found.stream is not None
    rows = found.output.row[:, :1, :, :1]
    assert torch.equal(found.output.row, rows.expand_as(found.output.row))
    assert_close(found.stream.before[rows[:, 0, :, 0]], real.before)
    assert_close(found.stream.added[rows[:, 0, :, 0]], real.added)
    assert found.stream.changed is real.recipe.changed


def assert_wired(found: Wiring, real: Surroundings, attention: str) -> None:
    for role in ROLES:
        assert_made(getattr(found, role), getattr(real, role))
    assert_mixed(found.output, real.mixed)
    assert_in_stream(found, real)
    assert_placed(found.positions, real.positions)
    assert_weighed(found, real, attention)


def assert_placed(found: AddedPositions | None, real: tuple[str, Tensor] | None) -> None:
    if real is None:
        assert found is None
        return
    assert found is not None
    assert found.name == real[0]
    assert torch.equal(found.vectors, real[1])


def assert_weighed(found: Wiring, real: Surroundings, attention: str) -> None:
    assert found.weights is not None
    off = SAME_WEIGHT[attention]
    torch.testing.assert_close(found.weights, real.real.weights, atol=off, rtol=0)


# --- that it is so


@by_run
@pytest.mark.parametrize("role", ROLES)
def test_rows_of_the_matrix_and_what_it_is_given(family: str, attention: str, role: str):
    for _, found, real in around(family, attention):
        assert_made(getattr(found, role), getattr(real, role))


@by_run
@pytest.mark.parametrize("role", ROLES)
def test_what_is_made_is_what_the_projection_gives(family: str, attention: str, role: str):
    for _, found, real in around(family, attention):
        assert_close(made(getattr(found, role)), real.made(role))


@by_run
def test_columns_of_w_o_and_what_it_is_given(family: str, attention: str):
    for _, found, real in around(family, attention):
        assert_mixed(found.output, real.mixed)


@by_run
def test_stream_before_and_what_is_added(family: str, attention: str):
    for _, found, real in around(family, attention):
        assert_in_stream(found, real)


@by_run
def test_vectors_that_stand_for_places(family: str, attention: str):
    for _, found, real in around(family, attention):
        assert_placed(found.positions, real.positions)


@by_run
def test_weights_are_those_of_the_models_own_function(family: str, attention: str):
    for _, found, real in around(family, attention):
        assert_weighed(found, real, attention)


@pytest.mark.parametrize("family", RECIPES)
def test_the_reference_is_sound(family: str):
    """Its parts fit each other, and tell heads, rows and texts apart."""
    for real in expected(family):
        whole = real.before + real.added
        whole = whole if real.beside is None else whole + real.beside
        assert_close(whole, real.after)
        assert_close(real.made("value"), real.real.value)
        if real.mixed is not None:
            output = real.real.output if real.gate is None else real.gate * real.real.output
            assert_close(real.mixed.given, output)
            same = float((real.mixed.sum - real.added).abs().max()) < EXACT
            assert same is not real.recipe.changed
        query, key = real.unrotated or (real.made("query"), real.made("key"))
        if real.recipe.rotated:  # which keeps lengths
            assert_close(query.norm(dim=-1), real.real.query.norm(dim=-1))
            assert_close(key.norm(dim=-1), real.real.key.norm(dim=-1))
        elif real.recipe.shift is None:
            assert_close(real.recipe.factor * query, real.real.query)
            assert_close(key, real.real.key)
        for vectors in (query, key, real.made("value")):
            for axis in (0, 2):
                assert not torch.allclose(vectors, vectors.roll(1, axis), atol=0.01)
            if vectors.shape[1] > 1:
                assert not torch.allclose(vectors[:, 0], vectors[:, -1], atol=0.01)


# --- faults put in on purpose

Fault = Callable[[pytest.MonkeyPatch], None]


def misled(change: Callable[[Origin], dict]) -> Fault:
    original = following._origin

    def origin(*given) -> Origin:
        found = original(*given)
        return replace(found, **change(found))

    return lambda patch: patch.setattr(following, "_origin", origin)


def rolled(axis: int) -> Fault:
    return misled(lambda o: {n: getattr(o, n).roll(1, axis) for n in ("which", "row", "column")})


def instead(name: str, wrong: Callable) -> Fault:
    return lambda patch: patch.setattr(following, name, wrong)


def parts_in_another_order(patch: pytest.MonkeyPatch) -> None:
    original = Step.again

    def again(self: Step, *given) -> Tensor:
        turned = replace(self, part=(self.part + 1) % 3) if self.part is not None else self
        return original(turned, *given)

    patch.setattr(Step, "again", again)


def columns_as_rows(projection: Projection, *places: Tensor) -> Mixing:
    return Mixing(replace(projection, weight=projection.weight.T), *places)


def the_first_call(self, module: nn.Module) -> bool:
    return self.places.paths.get(id(module)) == self.call.module and self.output is None


FAULTS: dict[str, tuple[str, Fault]] = {
    "heads permuted": ("gpt2", rolled(1)),
    "kv_heads permuted": ("llama", rolled(1)),
    "texts exchanged": ("bert", rolled(0)),
    "tokens shifted": ("vit", rolled(2)),
    "dimensions shifted": ("t5", rolled(3)),
    "fused matrix split in another order": ("gpt2", parts_in_another_order),
    "fused heads split in another order": ("gpt_neox", parts_in_another_order),
    "columns of W_O are rows": ("gpt2", instead("Mixing", columns_as_rows)),
    "bias forgotten": (
        "llama",
        instead(
            "Projection",
            lambda n, source, weight, b, inner: Projection(n, source, weight, None, inner),
        ),
    ),
    "latent vector taken for x": (
        "deepseek_v3",
        instead("Projection", lambda *given: Projection(*given[:4], None)),
    ),
    "stream after the addition taken for the one before": (
        "gemma2",
        instead("Stream", lambda before, added, changed: Stream(before + added, added, changed)),
    ),
    "heads' sum taken for what a norm made of it": (
        "olmo2",
        instead("_is_same", lambda one, other: True),
    ),
    "places counted from the start of the table": (
        "bart",
        instead("AddedPositions", lambda name, vectors: AddedPositions(name, vectors.roll(2, 0))),
    ),
    "first run of a shared layer taken for another": (
        "albert",
        lambda patch: [
            patch.setattr(following.Follower, "_is_it", the_first_call),
            patch.setattr(following.Follower, "_is_same_run", lambda self, value: True),
        ],
    ),
    "keys in another order": (
        "gpt_oss",
        lambda patch: patch.setattr(
            following,
            "_weights_of",
            lambda *given, real=following._weights_of: real(*given).flip(-1),
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reference_sees(fault: str, monkeypatch: pytest.MonkeyPatch):
    family, put_in = FAULTS[fault]
    assert_all_wired(family, wired)
    put_in(monkeypatch)
    with pytest.raises(AssertionError):
        assert_all_wired(family, wired_anew)


def assert_all_wired(family: str, wired: Callable) -> None:
    attention = "eager" if family in EAGER else "sdpa"
    for _, found, real in around(family, attention, wired):
        assert_wired(found, real, attention)


# --- the model is left as it was


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bloom", "falcon_grouped", "qwen3_next"])
def test_nothing_of_the_model_is_changed(family: str):
    model = tiny_models.build(family, "sdpa")
    inputs = inputs_for(family)
    given = {name: tensor.clone() for name, tensor in inputs.items()}
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = model.config.to_dict()
    with torch.no_grad():
        plain = model(**inputs, use_cache=False)[0]
    read = capture(model, inputs)
    found = wiring(model, inputs, read, read.calls[-1])
    assert found.output is not None
    with torch.no_grad():
        assert torch.equal(model(**inputs, use_cache=False)[0], plain)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(inputs[name], given[name]) for name in given)
    assert model.config.to_dict() == settings
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not any(parameter.grad_fn for parameter in model.parameters())


def test_a_model_is_let_go():
    model = tiny_models.build("llama")
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    kept = wiring(model, inputs, read, read.calls[1])
    alive = weakref.ref(model)
    del model
    assert alive() is None or gc.collect() == 0 or alive() is None
    assert kept.query is not None


def test_an_input_that_the_model_cannot_take_is_refused():
    read, model = captured("llama", "sdpa"), model_of("llama", "sdpa")
    with pytest.raises(UnreadableModel):
        wiring(model, {"input_ids": torch.tensor([[10**6]])}, read, read.calls[0])


# --- which call


def test_two_calls_of_one_module_have_values_of_their_own():
    """DiffLlama asks twice in each layer, with the same queries and keys."""
    first, second = wired("diffllama", "sdpa")[2:4]
    assert first.query is not None
    assert torch.equal(first.query.column, second.query.column)
    assert not torch.equal(first.value.column, second.value.column)


def test_one_call_alone_is_found_among_all():
    read, model = captured("albert", "sdpa"), model_of("albert", "sdpa")
    calls = list(read.calls)
    assert len({call.module for call in calls}) == 1
    alone = wiring(model, inputs_for("albert"), read, calls[2])
    assert_wired(alone, expected("albert")[2], "sdpa")


# --- other precisions


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_half_precision(family: str):
    """Sources and matrices stay in it; what they make is what was used, as exactly as that says."""
    model = tiny_models.build(family).to(torch.bfloat16)
    inputs = inputs_for(family)
    read = capture(model, inputs)
    for call in read.calls:
        found = wiring(model, inputs, read, call)
        unrotated = (call.query_unrotated, call.key_unrotated, None)
        for role, before in zip(ROLES, unrotated, strict=True):
            origin = getattr(found, role)
            assert {p.weight.dtype for p in origin.projections} == {torch.bfloat16}
            exact = replace(origin, projections=tuple(map(in_float32, origin.projections)))
            used = getattr(call, role) if before is None else before
            assert_close(made(exact), used.float(), off=2**-7)
        assert found.output.projection.source.dtype == torch.bfloat16
        assert found.stream is not None
        assert found.stream.changed is False
        assert found.weights is not None
        assert float((found.weights.float().sum(-1) - 1).abs().max()) < 2**-6


def in_float32(projection: Projection) -> Projection:
    bias = None if projection.bias is None else projection.bias.float()
    return replace(
        projection,
        source=projection.source.float(),
        weight=projection.weight.float(),
        bias=bias,
    )


# --- tensors that are written to


def around_with(path: str, hook: Callable, *, before: bool = False) -> tuple[Wiring, Surroundings]:
    """The second layer of a Llama, one of whose modules does something else as well."""
    model = tiny_models.build("llama")
    module = model.get_submodule(f"model.layers.1.{path}")
    (module.register_forward_pre_hook if before else module.register_forward_hook)(hook)
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    return wiring(model, inputs, read, read.calls[1]), expected("llama")[1]


def test_a_source_that_is_overwritten_after_the_call_is_what_it_was():
    model = tiny_models.build("llama")

    def overwrite(module, given, named, output):
        named["hidden_states"].zero_()

    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(overwrite, with_kwargs=True)
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    for call, real in zip(read.calls, expected("llama"), strict=True):
        assert_wired(wiring(model, inputs, read, call), real, "sdpa")


def test_a_source_that_is_overwritten_before_the_call_is_not_told():
    """The values' matrix is the last that is given x."""

    def overwrite(module, given, output):
        given[0].zero_()

    found, real = around_with("self_attn.v_proj", overwrite)
    assert (found.query, found.key, found.value) == (None, None, None)
    assert_mixed(found.output, real.mixed)


class InPlace(nn.Module):
    """A layer of Llama that adds to the stream in place."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states: Tensor, **named) -> Tensor:
        normed = self.layer.input_layernorm(hidden_states)
        hidden_states += self.layer.self_attn(hidden_states=normed, **named)[0]
        hidden_states += self.layer.mlp(self.layer.post_attention_layernorm(hidden_states))
        return hidden_states


def test_a_stream_that_is_added_to_in_place():
    model = tiny_models.build("llama")
    model.model.layers = nn.ModuleList(map(InPlace, model.model.layers))
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    for call, real in zip(read.calls, expected("llama"), strict=True):
        assert_in_stream(wiring(model, inputs, read, call), real)


def test_a_stream_that_is_overwritten_afterwards_is_what_it_was():
    model, streams = tiny_models.build("llama"), []

    def keep(module, given):
        streams.append(given[0])

    def overwrite(module, given):
        streams.pop().zero_()

    for layer in model.model.layers:
        layer.input_layernorm.register_forward_pre_hook(keep)
        layer.post_attention_layernorm.register_forward_pre_hook(overwrite)
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    for call, real in zip(read.calls, expected("llama"), strict=True):
        assert_in_stream(wiring(model, inputs, read, call), real)


# --- what can be followed, and what cannot

BACKWARDS = torch.arange(83, -1, -1)
ANOTHER = torch.randn(84, 84, generator=torch.Generator().manual_seed(3)) / 84**0.5
NOISE = torch.randn(2, 13, 42, generator=torch.Generator().manual_seed(4))


def test_numbers_that_change_places_are_followed():
    found, real = around_with("self_attn.q_proj", lambda _, given, output: output[..., BACKWARDS])
    (product,) = real.query
    turned = replace(product, weight=product.weight.flip(0, 1), bias=product.bias.flip(0, 1))
    assert_made(found.query, (turned,))
    mixed, real = around_with(
        "self_attn.o_proj", lambda _, given: (given[0][..., BACKWARDS],), before=True
    )
    turned = real.mixed.weight.flip(0, 2)
    assert torch.equal(mixed.output.projection.weight.T[mixed.output.column[0, :, 0]], turned.mT)


@pytest.mark.parametrize(
    "change",
    [
        nn.functional.gelu,
        lambda made: made.sort(-1)[0],
        lambda made: made.flip(-1),
        lambda made: made @ ANOTHER,
        lambda made: made.copy_(made.roll(1, 0).clone()),
    ],
)
def test_queries_that_cannot_be_followed_are_not_told(change: Callable):
    found, real = around_with("self_attn.q_proj", lambda _, given, output: change(output))
    assert found.query is None
    assert_made(found.key, real.key)
    assert_made(found.value, real.value)
    assert found.weights is not None


@pytest.mark.parametrize(
    "change", [nn.functional.gelu, lambda given: given + 1, lambda given: given @ ANOTHER]
)
def test_heads_that_cannot_be_followed_to_w_o_are_not_told(change: Callable):
    found, real = around_with("self_attn.o_proj", lambda _, given: (change(given[0]),), before=True)
    assert (found.output, found.stream) == (None, None)
    assert_made(found.query, real.query)


def test_a_sum_that_cannot_be_followed_to_the_stream_is_not_told():
    found, real = around_with("self_attn.o_proj", lambda _, given, out: nn.functional.gelu(out))
    assert found.stream is None
    assert_mixed(found.output, real.mixed)


def in_stream(change: Callable) -> tuple[Stream | None, Tensor, Surroundings]:
    found, real = around_with("self_attn.o_proj", lambda _, given, output: change(output))
    return found.stream, found.output.row[:, 0, :, 0], real


def test_a_factor_on_the_heads_sum():
    stream, rows, real = in_stream(lambda output: 0.5 * output)
    assert stream.changed is True
    assert_close(stream.added[rows], 0.5 * real.added)
    assert_close(stream.before[rows], real.before)


@pytest.mark.parametrize("factor", [1, 0.5])
def test_what_is_added_beside_the_heads_is_no_part_of_theirs(factor: float):
    stream, rows, real = in_stream(lambda output: NOISE + factor * output)
    assert stream.changed is (factor != 1)
    assert_close(stream.added[rows], factor * real.added)
    assert_close(stream.before[rows], real.before)


def test_a_factor_on_the_heads_and_on_what_is_beside_them_is_not_told():
    """What of the sum would be the heads' is not known."""
    assert in_stream(lambda output: 0.5 * (output + NOISE))[0] is None
    assert in_stream(lambda output: nn.functional.rms_norm(output + NOISE, (42,)))[0] is None


def test_two_blocks_with_factors_are_no_rotation():
    """Falcon H1 adds 0.7 times its attention to 0.3 times a state space block."""
    config = hf.FalconH1Config(
        vocab_size=53,
        hidden_size=44,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=14,
        mamba_d_ssm=44,
        mamba_n_heads=4,
        mamba_d_head=11,
        mamba_n_groups=1,
        mamba_d_state=7,
        mamba_chunk_size=8,
        attention_out_multiplier=0.7,
        ssm_out_multiplier=0.3,
    )
    model = tiny_models.spread(hf.FalconH1ForCausalLM._from_config(config))
    inputs = inputs_for("llama")
    read = capture(model, inputs)
    with cell_reference.seen_by_hooks(model) as seen, torch.no_grad():
        model(**inputs)
    for call in read.calls:
        found = wiring(model, inputs, read, call)
        rows, layer = found.output.row[:, 0, :, 0], call.module.removesuffix(".self_attn")
        assert found.stream.changed is True
        assert_close(found.stream.added[rows], 0.7 * seen.outputs[f"{call.module}.o_proj"][0])
        assert_close(found.stream.before[rows], seen.inputs[f"{layer}.input_layernorm"][0])


def test_windows_find_their_way_back_to_the_picture():
    """Swin rolls and cuts the picture after a norm, and puts it together again for the stream."""
    model, inputs = tiny_models.build("swin"), inputs_for("swin")
    read = capture(model, inputs)
    for call in read.calls:
        found = wiring(model, inputs, read, call)
        norm = model.get_submodule(call.module.replace("attention", "layernorm_before"))
        (x,) = {id(p.source): p.source for p in found.query.projections}.values()
        assert_close(norm(found.stream.before).detach(), x)
        at = found.query.row[:, 0, :, 0]
        assert torch.equal(found.output.row[:, 0, :, 0], at)


def test_places_of_patches_are_not_those_of_windows():
    """This Swin adds a vector to each patch of the picture; its calls see nine at a time."""
    config = tiny_models.FAMILIES["swin"][1]()
    config.use_absolute_embeddings = True
    model, inputs = tiny_models.spread(hf.SwinModel(config)), inputs_for("swin")
    read = capture(model, inputs)
    found = wiring(model, inputs, read, read.calls[0]).positions
    assert found == AddedPositions("embeddings.position_embeddings", None)


# --- what another run does not repeat, and what is no stream


def test_a_model_that_draws_at_random_is_not_wired_from_another_draw():
    config = hf.ViTMAEConfig(
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=29,
        image_size=20,
        patch_size=4,
        mask_ratio=0.5,
    )
    model = hf.ViTMAEModel(config).eval()
    inputs = {"pixel_values": torch.randn(1, 3, 20, 20)}
    captured = capture(model, inputs)
    torch.manual_seed(99)
    assert wiring(model, inputs, captured, captured.calls[0]) == Wiring()


def test_a_call_of_another_capture_is_refused():
    model, inputs = tiny_models.build("gpt2"), tiny_models.inputs_for("gpt2")
    one, other = (capture(model, inputs) for _ in range(2))
    with pytest.raises(ValueError, match="not one of that capture"):
        wiring(model, inputs, one, other.calls[0])


def test_a_second_way_from_the_heads_to_the_stream_is_not_taken_for_a_block_beside():
    """As where a low-rank correction is added to W_O's result (Hu et al. 2021, LoRA)."""

    class Corrected(torch.nn.Module):
        def __init__(self, whole: torch.nn.Linear) -> None:
            super().__init__()
            self.whole = whole
            self.down = torch.nn.Linear(whole.in_features, 2, bias=False)
            self.up = torch.nn.Linear(2, whole.out_features, bias=False)

        def forward(self, x):
            return self.whole(x) + self.up(self.down(x))

    model, inputs = tiny_models.build("llama"), tiny_models.inputs_for("llama")
    attention = model.model.layers[0].self_attn
    attention.o_proj = Corrected(attention.o_proj)
    captured = capture(model, inputs)
    found = wiring(model, inputs, captured, captured.calls[0])
    assert (found.output, found.stream) == (None, None)
    assert found.query is not None
