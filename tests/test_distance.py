"""Curves over distance, against each family's own rotation and bias, and values by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
import transformers as hf
from calls_by_hand import plain_call
from seen_modules import Part, seen_by_hooks
from tiny_models import FAMILIES, build, inputs_for, spread
from torch import Tensor
from unrotated_reference import unrotated_reference

from attnviz import attention
from attnviz.capture import AttentionCall, capture
from attnviz.distance import distance_curves

N = 13
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 7,
}


def configured(family: str, **changes) -> hf.PreTrainedModel:
    """A tiny model with another configuration."""
    model_class, config = FAMILIES[family]
    changed = config()
    for name, value in changes.items():
        setattr(changed, name, value)
    return spread(model_class._from_config(changed, attn_implementation="sdpa"))


MODELS: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "llama": lambda: build("llama"),  # t with t + 7, two query heads to a key
    "llama_yarn": lambda: configured("llama", rope_parameters=YARN),
    "cohere": lambda: build("cohere"),  # neighbours
    "gpt_neox": lambda: build("gpt_neox"),  # the first 4 of 14
    "gpt_neox_yarn": lambda: configured(
        "gpt_neox", rope_parameters={**YARN, "partial_rotary_factor": 0.6}
    ),
    "gptj": lambda: build("gptj"),  # neighbours among the first 6 of 14
    "deepseek_v3": lambda: build("deepseek_v3"),  # the last 6 of 13
}


def by_the_model(model: hf.PreTrainedModel, key: Tensor, place: int) -> Tensor:
    """A key as the family's own function rotates it at a place."""
    modeling = sys.modules[type(model).__module__]
    one = key[None, None, None]
    if model.config.model_type == "gptj":
        width = model.config.rotary_dim
        sin, cos = modeling.create_sinusoidal_positions(place + 1, width)[place].chunk(2)
        turned = modeling.apply_rotary_pos_emb(one[..., :width], sin[None, None], cos[None, None])
        return torch.cat([turned[0, 0, 0], key[width:]])
    rotary = next(m for path, m in model.named_modules() if path.endswith("rotary_emb"))
    cos, sin = rotary(one, torch.tensor([[place]]))
    if model.config.model_type == "deepseek_v3":
        turned, _ = modeling.apply_rotary_pos_emb_interleave(one[..., 7:], one[..., 7:], cos, sin)
        return torch.cat([key[:7], turned[0, 0, 0]])
    return modeling.apply_rotary_pos_emb(one, one, cos, sin)[1][0, 0, 0]


@pytest.mark.parametrize("length", [2, N])
@pytest.mark.parametrize("name", MODELS)
def test_the_score_were_the_key_elsewhere(name: str, length: int):
    model = MODELS[name]()
    inputs = inputs_for(model.config.model_type, length)
    calls = capture(model, inputs).calls
    for call, (_, unrotated) in zip(calls, unrotated_reference(model, inputs), strict=True):
        for head, query, key in [(0, length - 1, 0), (4, length // 2, 1), (2, 0, length - 1)]:
            (curve,) = distance_curves(call, head, query, key)
            own = unrotated[0, call.kv_head(head), key]
            expected = torch.stack(
                [call.query[0, head, query] @ by_the_model(model, own, p) for p in range(length)]
            )
            size = float(call.query[0, head, query].norm() * own.norm())
            assert curve.kind == "rotation"
            assert curve.distance.tolist() == [query - p for p in range(length)]
            torch.testing.assert_close(curve.value, expected, atol=2e-6 * size, rtol=0)
            here = attention.scores(call, head)[query, key]
            torch.testing.assert_close(curve.value[key], here, atol=2e-6 * size, rtol=0)


def test_yarn_lengthens_what_it_rotates():
    """Else its factor, which is common to all, would be tried by no test."""
    for name in ("llama_yarn", "gpt_neox_yarn"):
        model = MODELS[name]()
        call = capture(model, inputs_for(model.config.model_type)).calls[0]
        stretched = call.key[0, :, :, :4].norm() / call.key_unrotated[0, :, :, :4].norm()
        assert float(stretched) > 1.05


def turned_by_quarters(**changes) -> AttentionCall:
    """Three keys turned by 0, 90 and 180 degrees; the last query is (5, 7)."""
    fields = {
        "query": torch.tensor([[[[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]]]),
        "key": torch.tensor([[[[1.0, 0.0], [-2.0, 0.0], [-3.0, 0.0]]]]),
        "key_unrotated": torch.tensor([[[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]]]),
        "value": torch.ones(1, 1, 3, 1),
        "scale": 0.5,
    }
    return plain_call(**(fields | changes))


def test_quarter_turns_by_hand():
    """The key (0, 2) goes to (0, 2), (−2, 0) and (0, −2)."""
    (curve,) = distance_curves(turned_by_quarters(), head=0, query=2, key=1)
    assert curve.kind == "rotation"
    assert curve.distance.tolist() == [2, 1, 0]
    torch.testing.assert_close(curve.value, torch.tensor([14.0, -10.0, -14.0]))


@pytest.mark.parametrize(("off", "kind"), [(1e-4, "rotation"), (0.01, "measured")])
def test_what_no_rotation_explains_is_not_believed(off: float, kind: str):
    key = turned_by_quarters().key.clone()
    key[0, 0, 1] *= 1 + off
    (curve,) = distance_curves(turned_by_quarters(key=key), head=0, query=2, key=1)
    assert curve.kind == kind


def test_half_precision_tells_no_angles():
    calls = capture(build("llama").bfloat16(), inputs_for("llama")).calls
    assert calls[0].key_unrotated is not None
    assert [curve.kind for curve in distance_curves(calls[0], 0, 5, 2)] == ["measured"]
    exact = turned_by_quarters()
    halves = {name: getattr(exact, name).half() for name in ("query", "key", "key_unrotated")}
    (curve,) = distance_curves(turned_by_quarters(**halves), 0, 2, 1)
    assert curve.kind == "measured"


@pytest.mark.parametrize("tower", ["encoder", "decoder"])
def test_t5_adds_a_bias_that_is_learned_for_each_distance(tower: str):
    model = build("t5")
    calls = [c for c in capture(model, inputs_for("t5")).calls if c.tower == tower]
    stack = model.encoder if tower == "encoder" else model.decoder
    places = {"encoder": 13, "decoder": 7}[tower]
    bias = stack.block[0].layer[0].SelfAttention.compute_bias(places, places)[0].detach()
    for call in (call for call in calls if call.kind == "self"):
        for head, query in [(0, 6), (3, 2)]:
            (curve,) = distance_curves(call, head, query, 1)
            assert curve.kind == "bias"
            assert curve.distance.tolist() == [query - p for p in range(places)]
            torch.testing.assert_close(curve.value, bias[head, query])


def test_bloom_adds_a_slope():
    """Five heads: those of the four slopes 2^(−2 h), and the first of eight of 2^(−h)."""
    call = capture(build("bloom"), inputs_for("bloom")).calls[1]
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1]
    for head, slope in enumerate(slopes):
        (curve,) = distance_curves(call, head, 9, 4)
        assert curve.kind == "bias"
        assert curve.distance.tolist() == [9 - p for p in range(N)]
        torch.testing.assert_close(curve.value, slope * torch.arange(N))


def test_a_bias_that_was_lost_with_the_mask_is_not_told():
    mask = torch.tensor([[[[True, True, False]] * 3]])
    bias = torch.tensor([[[[0.0, 1.0, 0.0], [2.0, 0.0, 0.5], [3.0, 4.0, 0.0]]]])
    call = turned_by_quarters(key_unrotated=None, mask=mask, bias=bias)
    (last,) = distance_curves(call, head=0, query=2, key=1)
    assert (last.distance.tolist(), last.value.tolist()) == ([2, 1], [3.0, 4.0])
    (middle,) = distance_curves(call, head=0, query=1, key=1)
    assert (middle.distance.tolist(), middle.value.tolist()) == ([1, 0, -1], [2.0, 0.0, 0.5])


def test_rotation_and_bias_are_two_curves():
    call = turned_by_quarters(bias=torch.arange(9.0).reshape(1, 1, 3, 3))
    rotation, bias = distance_curves(call, head=0, query=2, key=1)
    assert (rotation.kind, bias.kind) == ("rotation", "bias")
    assert bias.value.tolist() == [6.0, 7.0, 8.0]


def test_gpt2_is_measured():
    """Its places are in the tokens' vectors, so that a mean over its scores is all there is."""
    model, inputs = build("gpt2"), inputs_for("gpt2")
    calls = capture(model, inputs).calls
    with seen_by_hooks(model) as seen, torch.no_grad():
        model(**inputs)
    path = "transformer.h.1.attn"
    part = Part(model.get_submodule(path), path, seen)
    query, key, _ = part.fused("c_attn", 3, 5, 11)[0].permute(1, 2, 0, 3)
    for head in (0, 4):
        by_distance: dict[int, list[float]] = {}
        for i in range(N):
            for j in range(i + 1):
                score = float(query[head, i] @ key[head, j]) / 11**0.5
                by_distance.setdefault(i - j, []).append(score)
        (curve,) = distance_curves(calls[1], head, 7, 3)
        assert curve.kind == "measured"
        assert curve.distance.tolist() == sorted(by_distance)
        expected = [sum(by_distance[d]) / len(by_distance[d]) for d in sorted(by_distance)]
        torch.testing.assert_close(curve.value, torch.tensor(expected), atol=2e-6, rtol=1e-5)


def test_only_visible_cells_are_measured():
    """Scores by row: 1 −2 −3, 3 −6 −9, 5 −10 −15."""
    mask = torch.tensor([[[[True, True, False], [True, False, False], [True, False, True]]]])
    call = turned_by_quarters(key_unrotated=None, mask=mask)
    (curve,) = distance_curves(call, head=0, query=0, key=0)
    assert curve.distance.tolist() == [-1, 0, 1, 2]
    torch.testing.assert_close(curve.value, 0.5 * torch.tensor([-2.0, -7.0, 3.0, 5.0]))
    (every,) = distance_curves(turned_by_quarters(key_unrotated=None), head=0, query=0, key=0)
    assert every.distance.tolist() == [-2, -1, 0, 1, 2]
    expected = torch.tensor([-3.0, -5.5, -20 / 3, -3.5, 5.0])
    torch.testing.assert_close(every.value, 0.5 * expected)


def test_where_places_have_no_distance_there_is_no_curve():
    cross = [c for c in capture(build("t5"), inputs_for("t5")).calls if c.kind == "cross"]
    vision = capture(build("vit"), inputs_for("vit")).calls
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    alone = turned_by_quarters(query=None, key=None, key_unrotated=None, observed_weights=weights)
    two_texts = turned_by_quarters(kind="cross")
    for call in (cross[0], vision[0], alone, two_texts):
        assert distance_curves(call, 0, 1, 2) == ()
    fewer = turned_by_quarters(query=turned_by_quarters().query[:, :, :2])
    assert distance_curves(fewer, 0, 1, 2) == ()
