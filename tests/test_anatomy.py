"""The card of a model says what its family is known to do, and what each call shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import tiny_models
import torch
from torch import nn

from attnviz import families
from attnviz.anatomy import LayerAnatomy, anatomy, grouped, outline
from attnviz.capture import Capture, capture


@cache
def model(family: str):
    attention = "eager" if family in tiny_models.EAGER_ONLY else "sdpa"
    return tiny_models.build(family, attention)


@cache
def run(family: str, length: int = 13) -> Capture:
    return capture(model(family), tiny_models.inputs_for(family, length))


def card(family: str, length: int = 13) -> tuple[LayerAnatomy, ...]:
    return anatomy(model(family), run(family, length))


def heads(family: str, layer: int = 0, kind: str = "self", tower: str | None = None):
    found = [x for x in card(family) if (x.layer, x.kind) == (layer, kind)]
    return next(x for x in found if tower in (None, x.tower)).heads


def with_call(family: str, **changes) -> LayerAnatomy:
    """The card of a first call that is other than what the model did."""
    read = run(family)
    return anatomy(model(family), replace(read, calls=(replace(read.calls[0], **changes),)))[0]


@pytest.mark.parametrize(
    ("family", "numbers"),
    [
        ("gpt2", (5, 5, 11, 11)),
        ("llama", (6, 3, 14, 14)),
        ("deepseek_v3", (5, 5, 13, 11)),  # d_k 8 + 5 rotated, d_v apart
        ("falcon", (5, 1, 12, 12)),
        ("t5", (5, 5, 11, 11)),
    ],
)
def test_heads_and_widths(family: str, numbers: tuple[int, ...]):
    shown = heads(family)
    assert (shown.heads, shown.kv_heads, shown.d_k, shown.d_v) == numbers


@pytest.mark.parametrize(
    ("family", "layer", "position"),
    [
        ("gpt2", 0, "learned"),
        ("bert", 2, "learned"),
        ("vit", 0, "learned"),
        ("marian", 1, "fixed"),
        ("llama", 0, "rotary"),
        ("gptj", 0, "rotary"),
        ("smollm3", 0, "rotary"),
        ("smollm3", 1, "none"),  # one of its layers does without
        ("jamba", 1, "none"),
        ("t5", 0, "relative bias"),
        ("mpnet", 0, "relative bias"),
        ("swin", 0, "relative bias"),
        ("falcon_alibi", 0, "ALiBi"),
        ("mpt", 0, "ALiBi"),
        ("deberta", 0, "position terms"),
        ("wav2vec2", 0, "convolution"),
    ],
)
def test_position(family: str, layer: int, position: str):
    assert heads(family, layer).position == position


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_cross_attention_has_no_positions_of_its_own(family: str):
    assert heads(family, 0, "cross").position == "none"


def test_whisper_has_waves_for_sound_and_learned_positions_for_text():
    assert heads("whisper", tower="audio").position == "fixed"
    assert heads("whisper", tower="decoder").position == "learned"


@pytest.mark.parametrize(
    ("family", "rule", "value", "reason", "setting"),
    [
        ("gpt2", "1/√d_k", 11**-0.5, None, None),
        ("opt", "1/√d_k", 11**-0.5, "query", None),
        ("whisper", "1/√d_k", 14**-0.5, "query", None),
        ("t5", "1", 1.0, "start values", None),
        ("gpt_neo", "1", 1.0, None, None),
        ("gemma2", "another", 0.25, "setting", ("query_pre_attn_scalar", 16.0)),
        ("granite", "another", 0.23, "setting", ("attention_multiplier", 0.23)),
        ("deberta", "1/√(3 · d_k)", 33**-0.5, None, None),
        ("deberta_v2_c2p", "1/√(2 · d_k)", 22**-0.5, None, None),
        ("gpt2_by_layer", "1/(√d_k · (layer + 1))", None, None, None),
    ],
)
def test_scale(family: str, rule: str, value: float | None, reason: str, setting: tuple):
    scale = heads(family).scale
    assert (scale.rule, scale.reason, scale.setting) == (rule, reason, setting)
    assert scale.value == (None if value is None else pytest.approx(value, rel=1e-5))


@pytest.mark.parametrize(
    ("family", "scale", "rule"),
    [
        ("granite", 1 / 14, "1/d_k"),
        ("llama", 1.3 * 14**-0.5, "another"),
        ("qwen3", 1.0, "1"),
        ("llama", 28**-0.5, "another"),  # two products only where something is added
    ],
)
def test_scale_is_that_of_the_call(family: str, scale: float, rule: str):
    assert with_call(family, scale=scale).heads.scale.rule == rule


def test_a_norm_takes_the_place_of_the_divisor():
    assert with_call("qwen3", scale=1.0).heads.scale.reason == "norm"
    assert with_call("llama", scale=1.0).heads.scale.reason is None


@pytest.mark.parametrize(
    ("family", "norm", "projections"),
    [
        ("gpt2", False, "fused"),
        ("gpt_neox", False, "fused"),
        ("falcon", False, "fused"),
        ("phi3", False, "fused"),
        ("bert", False, "split"),
        ("distilbert", False, "split"),
        ("t5", False, "split"),
        ("llama", False, "split"),
        ("qwen3", True, "split"),
        ("olmo2", True, "split"),
        ("gemma3", True, "split"),
        ("deepseek_v3", False, "latent"),
    ],
)
def test_norm_and_projections(family: str, norm: bool, projections: str):
    shown = heads(family)
    assert (shown.norm, shown.projections) == (norm, projections)


@pytest.mark.parametrize(
    ("names", "projections"),
    [
        (("q_proj", "kv_proj"), "partly fused"),
        (("q_attn", "c_attn"), "partly fused"),
        (("qkv", "q_norm"), "fused"),
        (("Wqkv", "out_proj"), "fused"),
        (("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"), "latent"),
        (("query", "key", "value"), "split"),
        (("out_proj", "dropout"), None),
    ],
)
def test_projections_by_their_names(names: tuple[str, ...], projections: str | None):
    module = nn.Module()
    for name in names:
        module.add_module(name, nn.Linear(2, 2))
    assert families.projections_of(module) == projections


def test_soft_cap_and_sinks():
    assert heads("gemma2").softcap == 5.0
    assert heads("gpt_oss").sinks
    assert heads("llama").softcap is None
    assert not heads("llama").sinks


@pytest.mark.parametrize(("family", "causal"), [("gpt2", True), ("bert", False), ("vit", False)])
def test_who_hides_later_keys(family: str, causal: bool):
    assert heads(family).causal is causal


@pytest.mark.parametrize("length", [4, 13])
@pytest.mark.parametrize("family", ["mistral", "gpt_neo", "llama4", "gemma3"])
def test_windows_and_chunks_are_named_even_where_the_text_is_shorter(family: str, length: int):
    """The windows and chunks of these models are 5 tokens."""
    reach = {layer.layer: (layer.reach, layer.window) for layer in card(family, length)}
    whole, local, chunked = ("global", None), ("local", 5), ("chunked", 5)
    assert (
        reach
        == {
            "mistral": {0: local, 1: local, 2: local},
            "gpt_neo": {0: whole, 1: local, 2: whole, 3: local},
            "llama4": {0: chunked, 1: whole, 2: chunked},
            "gemma3": {0: local, 1: whole, 2: local},
        }[family]
    )


def test_a_mask_that_shows_all_is_believed_before_a_name():
    read = run("gpt_neo")
    whole = torch.ones(13, 13, dtype=torch.bool).tril()[None, None]
    calls = [replace(call, mask=whole, window=None) for call in read.calls]
    layers = anatomy(model("gpt_neo"), replace(read, calls=tuple(calls)))
    assert {layer.reach for layer in layers} == {"global"}


def bias_of(kind: str, heads: int, n: int) -> torch.Tensor:
    query, key = torch.arange(n)[:, None], torch.arange(n)
    slopes = torch.tensor([0.5**head for head in range(1, heads + 1)])[:, None, None]
    dice = torch.Generator().manual_seed(3)
    by_distance = torch.randn(heads, 2 * n, generator=dice)
    return {
        "by distance": -slopes * (query - key),
        "by key": slopes * key,  # BLOOM: the same weights, for a row may be shifted
        "any": by_distance[:, (query - key) + n],
        "content": torch.randn(heads, n, n, generator=dice),
    }[kind][None].expand(-1, -1, n, n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "position"),
    [
        ("by distance", "ALiBi"),
        ("by key", "ALiBi"),
        ("any", "relative bias"),
        ("content", "position terms"),
    ],
)
def test_a_bias_is_known_by_its_numbers(kind: str, position: str, dtype: torch.dtype):
    bias = bias_of(kind, 5, 13).to(dtype)
    assert with_call("gpt2", bias=bias).heads.position == position


def test_a_bias_that_only_two_keys_show_is_not_called_even():
    two = torch.ones(2, 2, dtype=torch.bool).tril()[None, None]
    call = run("gpt2").calls[0]
    short = {name: getattr(call, name)[:, :, :2] for name in ("query", "key", "value")}
    shown = with_call("gpt2", bias=bias_of("by distance", 5, 2), mask=two, **short)
    assert shown.heads.position == "relative bias"


def test_a_model_that_can_rotate_but_was_not_seen_to_is_not_said_to_do_without():
    read = run("llama")
    calls = [replace(call, query_unrotated=None, key_unrotated=None) for call in read.calls]
    layers = anatomy(model("llama"), replace(read, calls=tuple(calls)))
    assert {layer.heads.position for layer in layers} == {"not known"}


def test_like_layers_stand_together_whatever_their_error():
    groups = grouped(card("gemma3"))
    assert [group.numbers for group in groups] == [(0, 2), (1,)]
    errors = {layer.layer: layer.max_error for layer in card("gemma3")}
    assert groups[0].max_error == max(errors[0], errors[2])


def test_a_scale_that_follows_the_layer_does_not_split_them():
    assert [group.numbers for group in grouped(card("gpt2_by_layer"))] == [(0, 1, 2)]


def test_towers_and_kinds_stand_apart():
    groups = [(g.first.tower, g.first.kind, g.numbers) for g in grouped(card("t5"))]
    assert groups == [
        ("encoder", "self", (0, 1, 2)),
        ("decoder", "self", (0, 1)),
        ("decoder", "cross", (0, 1)),
    ]
    assert {layer.n for layer in card("t5") if layer.kind == "cross"} == {(7, 13)}


@pytest.mark.parametrize(
    ("family", "twice"), [("diffllama", True), ("llama", False), ("albert", False)]
)
def test_which_layers_use_their_weights_twice(family: str, twice: bool):
    assert {layer.twice for layer in card(family)} == {twice}


def test_a_layer_with_two_calls_is_one_layer():
    assert [layer.layer for layer in card("diffllama")] == [0, 1, 2]
    worst = {call.layer: 0.0 for call in run("diffllama").calls}
    for call in run("diffllama").calls:
        worst[call.layer] = max(worst[call.layer], call.max_error)
    assert {layer.layer: layer.max_error for layer in card("diffllama")} == worst


@pytest.mark.parametrize(("family", "reach"), [("qwen3_next", "linear"), ("jamba", "none")])
def test_layers_that_were_not_read_keep_their_number_and_their_reason(family: str, reach: str):
    layers = card(family)
    assert [layer.layer for layer in layers] == [0, 1, 2, 3, 4]
    unread = [layer for layer in layers if layer.heads is None]
    assert [layer.layer for layer in unread] == [0, 2, 3]
    assert {layer.reach for layer in unread} == {reach}
    assert len({layer.unread for layer in unread}) == 1  # or each would be a group of its own
    assert all(layer.max_error is None for layer in unread)


def test_what_is_known_of_a_model_that_cannot_be_read():
    layers = outline(model("mamba"), "It has no attention.")
    assert [(layer.layer, layer.tower, layer.reach) for layer in layers] == [
        (number, "decoder", "none") for number in range(3)
    ]
    assert {layer.unread for layer in layers} == {"It has no attention."}


def test_every_tower_of_a_model_that_was_not_read_is_listed():
    layers = outline(model("whisper"), "It takes sound.")
    assert [(layer.tower, layer.layer) for layer in layers] == [
        *(("audio", number) for number in range(3)),
        *(("decoder", number) for number in range(2)),
    ]


def test_the_encoder_comes_first_even_where_it_was_not_read():
    groups = [(g.first.tower, g.first.kind, g.first.heads is None) for g in grouped(card("led"))]
    assert groups == [
        ("encoder", "self", True),
        ("decoder", "self", False),
        ("decoder", "cross", False),
    ]


def test_tiles_of_a_picture_are_no_windows_around_a_patch():
    """Swin: 12 × 12 patches in 16 tiles of 3 × 3."""
    assert {(x.tiled, x.reach, x.window) for x in card("swin")} == {(True, "local", 9)}
    pictures = {name: value.repeat(2, 1, 1, 1) for name, value in
                tiny_models.inputs_for("vit").items()}  # fmt: skip
    two = anatomy(model("vit"), capture(model("vit"), pictures), batch=2)
    assert not any(x.tiled for x in (*two, *card("vit")))


@pytest.mark.parametrize(
    ("family", "rotated"),
    [("deepseek_v3", 6), ("gpt_neox", 4), ("gptj", 6), ("llama", 14), ("gpt2", None)],
)
def test_how_many_dimensions_turn(family: str, rotated: int | None):
    config = model(family).config
    stated = getattr(config, "qk_rope_head_dim", None) or getattr(config, "rotary_dim", None)
    assert stated in (None, rotated)
    assert heads(family).rotated == rotated


def test_half_precision_does_not_tell_how_many_dimensions_turn():
    call = run("llama").calls[0]
    half = {name: getattr(call, name).bfloat16() for name in ("query", "key", "value")}
    assert with_call("llama", **half).heads.rotated is None


def test_precision_is_that_of_the_call():
    assert heads("llama").dtype == "float32"
    call = run("llama").calls[0]
    half = {name: getattr(call, name).bfloat16() for name in ("query", "key", "value")}
    assert with_call("llama", **half).heads.dtype == "bfloat16"
