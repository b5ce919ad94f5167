"""What was captured against what each family's own eager function was given and returned.

The reference is independent of the recorder: the same model with eager attention, whose
module-level function is replaced, for the test, by one that notes and calls it.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Mapping

import pytest
import tiny_models
import torch
import transformers as hf
from torch import Tensor

from attnviz import attention
from attnviz.capture import AttentionCall, UnreadableModel, capture, recording_difference

EXACT = {"atol": 1e-5, "rtol": 0}


def eager_reference(model: hf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[dict]:
    """Arguments and results of the model's eager attention, call by call."""
    module = sys.modules[type(model).__module__]
    original, noted = module.eager_attention_forward, []

    def noting(part, query, key, value, mask, **others):
        output, weights = original(part, query, key, value, mask, **others)
        noted.append(
            {"query": query, "key": key, "value": value, "output": output, "weights": weights}
        )
        return output, weights

    module.eager_attention_forward = noting
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        module.eager_attention_forward = original
    return noted


def assert_reads_as(call: AttentionCall, real: dict, rows: slice = slice(None)) -> None:
    """q, k, v, weights and outputs of every head and batch equal the model's own."""
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(call, name), real[name], **EXACT)
    for batch in range(call.query.shape[0]):
        for head in range(call.heads):
            weights = attention.weights(call, head, batch)
            torch.testing.assert_close(
                weights[rows], real["weights"][batch, head][rows].float(), **EXACT
            )
            output = attention.output(call, head, batch)
            torch.testing.assert_close(
                output[rows], real["output"][batch, :, head][rows].float(), **EXACT
            )


@pytest.mark.parametrize("attention_name", ["sdpa", "eager"])
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_family_reads_as_its_eager_reference(family: str, attention_name: str):
    if family in tiny_models.EAGER_ONLY and attention_name == "sdpa":
        pytest.skip("its soft cap exists under eager attention only")
    inputs = tiny_models.inputs_for(family, batch=2)
    read = capture(tiny_models.build(family, attention_name), inputs)
    reference = eager_reference(tiny_models.build(family, "eager"), inputs)
    assert len(read.calls) == len(reference) > 0
    for call, real in zip(read.calls, reference, strict=True):
        assert_reads_as(call, real)
        assert call.max_error < 1e-5


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_weights_of_the_reference_tell_heads_apart(family: str):
    """The guard of the tests above: nearly uniform weights would hide every mistake."""
    inputs = tiny_models.inputs_for(family)
    calls = eager_reference(tiny_models.build(family, "eager"), inputs)
    assert max(float(real["weights"].max()) for real in calls) > 0.5
    for real in calls:
        assert float((real["weights"][:, 0] - real["weights"][:, 1]).abs().max()) > 0.05


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", tiny_models.DECODERS + tiny_models.ENCODERS)
def test_padded_text_reads_as_its_eager_reference(family: str, side: str):
    inputs = tiny_models.padded(tiny_models.inputs_for(family), pads=4, side=side)
    rows = slice(4, None) if side == "left" else slice(0, 13)
    read = capture(tiny_models.build(family), inputs)
    reference = eager_reference(tiny_models.build(family, "eager"), inputs)
    for call, real in zip(read.calls, reference, strict=True):
        # Rows of padding differ between implementations: real rows only.
        for name in ("query", "key", "value"):
            torch.testing.assert_close(
                getattr(call, name)[:, :, rows], real[name][:, :, rows], **EXACT
            )
        for head in range(call.heads):
            weights = attention.weights(call, head)
            torch.testing.assert_close(weights[rows], real["weights"][0, head][rows], **EXACT)
            assert not weights.isnan().any()


@pytest.mark.parametrize("family", tiny_models.ENCODERS + tiny_models.DECODERS)
def test_right_padding_changes_no_real_row(family: str):
    inputs = tiny_models.inputs_for(family)
    model = tiny_models.build(family)
    plain = capture(model, inputs)
    padded = capture(model, tiny_models.padded(inputs, pads=5, side="right"))
    for call, longer in zip(plain.calls, padded.calls, strict=True):
        for head in range(call.heads):
            weights = attention.weights(longer, head)
            torch.testing.assert_close(weights[:13, :13], attention.weights(call, head), **EXACT)
            assert float(weights[:13, 13:].abs().max()) == 0


def test_left_padding_with_rotary_positions_changes_no_real_row():
    inputs = tiny_models.inputs_for("llama")
    model = tiny_models.build("llama")
    plain = capture(model, inputs)
    padded = capture(model, tiny_models.padded(inputs, pads=5, side="left"))
    for call, longer in zip(plain.calls, padded.calls, strict=True):
        for head in range(call.heads):
            weights = attention.weights(longer, head)
            torch.testing.assert_close(weights[5:, 5:], attention.weights(call, head), **EXACT)
            assert float(weights[:5].abs().max()) <= 1
            assert float(weights[5:, :5].abs().max()) == 0


def test_sliding_window_hides_distant_keys():
    call = capture(tiny_models.build("mistral"), tiny_models.inputs_for("mistral")).calls[0]
    weights = attention.weights(call, 0)
    distance = torch.arange(13)[:, None] - torch.arange(13)
    assert torch.equal(weights > 0, (distance >= 0) & (distance < 5))


def test_what_belongs_to_the_call():
    t5 = capture(tiny_models.build("t5"), tiny_models.inputs_for("t5")).calls
    seen = [(call.tower, call.kind, call.layer, call.scale) for call in t5]
    assert seen == [
        ("encoder", "self", 0, 1.0),
        ("encoder", "self", 1, 1.0),
        ("encoder", "self", 2, 1.0),
        ("decoder", "self", 0, 1.0),
        ("decoder", "cross", 0, 1.0),
        ("decoder", "self", 1, 1.0),
        ("decoder", "cross", 1, 1.0),
    ]
    assert t5[0].bias is not None
    assert t5[4].query.shape == (1, 5, 7, 11)
    assert t5[4].key.shape == (1, 5, 13, 11)

    gemma = capture(tiny_models.build("gemma2", "eager"), tiny_models.inputs_for("gemma2")).calls
    assert {(call.softcap, call.scale) for call in gemma} == {(5.0, 0.25)}

    llama = capture(tiny_models.build("llama"), tiny_models.inputs_for("llama")).calls
    assert {(call.heads, call.kv_heads, call.d_k) for call in llama} == {(6, 2, 14)}
    assert [call.kv_head(head) for head in range(6) for call in llama[:1]] == [0, 0, 0, 1, 1, 1]

    vit = capture(tiny_models.build("vit"), tiny_models.inputs_for("vit")).calls
    assert {(call.tower, call.mask) for call in vit} == {("vision", None)}


def test_one_module_run_many_times_gives_one_layer_each():
    config = hf.AlbertConfig(
        vocab_size=tiny_models.VOCABULARY,
        embedding_size=19,
        hidden_size=55,
        intermediate_size=31,
        num_hidden_layers=3,
        num_attention_heads=5,
    )
    model = tiny_models.spread(hf.AlbertModel(config))
    calls = capture(model, tiny_models.inputs_for("bert")).calls
    assert [call.layer for call in calls] == [0, 1, 2]
    assert len({call.module for call in calls}) == 1


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_recording_changes_nothing(family: str):
    model = tiny_models.build(family, "eager" if family in tiny_models.EAGER_ONLY else "sdpa")
    before = model.config.to_dict()
    assert recording_difference(model, tiny_models.inputs_for(family)) == 0
    assert model.config.to_dict() == before


def test_capture_is_frozen():
    read = capture(tiny_models.build("gpt2"), tiny_models.inputs_for("gpt2"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.calls[0].scale = 1.0


def test_family_off_the_interface_is_refused_in_a_sentence():
    config = hf.BloomConfig(vocab_size=53, hidden_size=20, n_layer=2, n_head=5)
    model = tiny_models.spread(hf.BloomForCausalLM(config))
    with pytest.raises(UnreadableModel, match="attention interface") as refusal:
        capture(model, tiny_models.inputs_for("gpt2"))
    assert str(refusal.value).endswith(".")


def test_training_mode_is_refused():
    with pytest.raises(UnreadableModel, match="eval"):
        capture(tiny_models.build("gpt2").train(), tiny_models.inputs_for("gpt2"))


def test_input_that_does_not_fit_is_refused_in_a_sentence():
    with pytest.raises(UnreadableModel, match="cannot run on this input"):
        capture(tiny_models.build("bert"), {"input_ids": torch.full((1, 3), 999)})


def test_a_model_that_stumbles_in_its_own_way_is_refused_in_a_sentence():
    model = tiny_models.build("llama")
    model.config.return_dict = False
    model.model.config.return_dict = False
    with pytest.raises(UnreadableModel, match="cannot run on this input"):
        capture(model, tiny_models.inputs_for("llama"))


def test_attention_that_is_not_the_equation_is_refused(monkeypatch: pytest.MonkeyPatch):
    def twice_as_sharp(module, query, key, value, mask, scaling, **others):
        weights = (query @ key.mT * scaling * 2 + mask).softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    monkeypatch.setattr(hf.models.gpt2.modeling_gpt2, "eager_attention_forward", twice_as_sharp)
    with pytest.raises(UnreadableModel, match="differs from the model's own output"):
        capture(tiny_models.build("gpt2", "eager"), tiny_models.inputs_for("gpt2"))


def test_small_outputs_are_verified_by_their_own_size(monkeypatch: pytest.MonkeyPatch):
    def uniform(module, query, key, value, mask, scaling, **others):
        weights = (query @ key.mT * 0 + mask).softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    model = tiny_models.build("gpt2", "eager")
    for block in model.transformer.h:
        block.attn.c_attn.weight.data[:, 110:] *= 1e-5
        block.attn.c_attn.bias.data[110:] *= 1e-5
    monkeypatch.setattr(hf.models.gpt2.modeling_gpt2, "eager_attention_forward", uniform)
    with pytest.raises(UnreadableModel, match="differs from the model's own output"):
        capture(model, tiny_models.inputs_for("gpt2"))


def test_float64_models_are_read():
    model = tiny_models.build("llama").double()
    assert len(capture(model, tiny_models.inputs_for("llama")).calls) == 3


def test_eight_threads_share_one_model():
    model = tiny_models.build("llama")
    lengths = [5, 7, 11, 13, 17, 19, 23, 29]
    expected = {n: capture(model, tiny_models.inputs_for("llama", n)) for n in lengths}
    wrong: list[int] = []

    def read(length: int) -> None:
        for _ in range(13):
            calls = capture(model, tiny_models.inputs_for("llama", length)).calls
            same = len(calls) == 3 and all(
                torch.allclose(a.query, b.query, atol=1e-5)
                for a, b in zip(calls, expected[length].calls, strict=True)
            )
            if not same:
                wrong.append(length)

    threads = [threading.Thread(target=read, args=(n,)) for n in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
