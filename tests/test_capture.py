"""Capturing itself: padding, windows, what is refused, and that nothing else is changed.

That every family is read as it computes is tested in `test_families`.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from inspect import signature

import pytest
import tiny_models
import torch
import transformers as hf
from eager_reference import eager_reference
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from attnviz import attention
from attnviz.capture import UnreadableModel, capture, recording_difference

CACHE = "cache" if "cache" in signature(hf.LlamaModel.forward).parameters else "past_key_values"
EXACT = {"atol": 1e-5, "rtol": 0}


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
                getattr(call, name)[:, :, rows], getattr(real, name)[:, :, rows], **EXACT
            )
        for head in range(call.heads):
            weights = attention.weights(call, head)
            torch.testing.assert_close(weights[rows], real.weights[0, head][rows], **EXACT)
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


@pytest.mark.parametrize("family", [*tiny_models.FAMILIES, *tiny_models.OWN_ATTENTION])
def test_recording_changes_nothing(family: str):
    model = tiny_models.build(family, "eager" if family in tiny_models.EAGER_ONLY else "sdpa")
    before = model.config.to_dict()
    assert recording_difference(model, tiny_models.inputs_for(family)) == 0
    assert model.config.to_dict() == before


def test_capture_is_frozen():
    read = capture(tiny_models.build("gpt2"), tiny_models.inputs_for("gpt2"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.calls[0].scale = 1.0


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


def test_rows_read_as_hidden_are_not_confirmed_by_being_left_out(monkeypatch: pytest.MonkeyPatch):
    """Only rows of padding may see no key: here the model attends, whatever its mask says."""

    def unmasked(module, query, key, value, mask, scaling, **others):
        weights = (query @ key.mT * scaling).softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    monkeypatch.setattr(hf.models.gpt2.modeling_gpt2, "eager_attention_forward", unmasked)
    hidden = torch.full((1, 1, 13, 13), torch.finfo(torch.float32).min)
    inputs = tiny_models.inputs_for("gpt2") | {"attention_mask": hidden}
    with pytest.raises(UnreadableModel):
        capture(tiny_models.build("gpt2", "eager"), inputs)


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


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_eight_threads_share_one_model(family: str):
    model = tiny_models.build(family)
    lengths = [5, 7, 11, 13, 17, 19, 23, 29]
    expected = {n: capture(model, tiny_models.inputs_for(family, n)) for n in lengths}
    wrong: list[int] = []

    def read(length: int) -> None:
        for _ in range(13):
            calls = capture(model, tiny_models.inputs_for(family, length)).calls
            same = len(calls) == 3 and all(
                torch.allclose(a.query, b.query, atol=1e-5) and a.max_error < 1e-5
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


def test_nothing_of_a_run_outlives_it():
    model = tiny_models.build("llama")
    gone = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        capture(model, tiny_models.inputs_for("llama"))
        recording_difference(model, tiny_models.inputs_for("llama"))
        del model
        assert gone() is None
    finally:
        gc.enable()


class Written(hf.PreTrainedModel):
    """A model whose one layer computes attention in the way that a test writes down."""

    main_input_name = "input_ids"

    def __init__(self, attend):
        super().__init__(hf.PretrainedConfig())
        self.attention, self.attend = nn.Identity(), attend
        self.embed = nn.Embedding(tiny_models.VOCABULARY, 3 * 4 * 11)
        nn.init.normal_(self.embed.weight)  # wide enough for sharp weights
        self.eval()

    def forward(self, input_ids):
        q, k, v = self.embed(input_ids).unflatten(-1, (3, 4, 11)).permute(2, 0, 3, 1, 4)
        return BaseModelOutput(last_hidden_state=self.attend(q, k, v))


def read_as_written(attend):
    return capture(Written(attend), {"input_ids": torch.randint(3, 50, (2, 13))})


def usual(q, k, v):
    return (q @ k.mT * 0.3).softmax(-1) @ v


def overwrites_weights(q, k, v):
    weights = (q @ k.mT * torch.rand(13)).softmax(-1)
    output = weights @ v
    weights.mul_(0.5)
    return output


def overwrites_queries(q, k, v):
    output = usual(q, k, v)
    return output + q.zero_().sum()


@pytest.mark.parametrize("attend", [overwrites_weights, overwrites_queries])
def test_what_was_overwritten_after_use_is_not_shown(attend):
    with pytest.raises(UnreadableModel, match="overwrites"):
        read_as_written(attend)


def changes_a_row_unseen(q, k, v):
    scores = q @ k.mT * 0.3
    scores[:, :, 5, :3] = -1e9
    return scores.softmax(-1) @ v


def test_every_row_of_a_model_with_its_own_attention_is_compared():
    call = read_as_written(changes_a_row_unseen).calls[0]
    assert call.query is None
    assert float(attention.weights(call, 0)[5, :3].max()) == 0


def test_weights_that_run_over_the_queries_are_not_shown():
    with pytest.raises(UnreadableModel, match="do not share 1"):
        read_as_written(lambda q, k, v: (q @ k.mT * 30).softmax(2) @ v)


def test_part_of_a_sum_may_be_multiplied():
    bias = torch.randn(13, 13)
    read = read_as_written(
        lambda q, k, v: torch.add(q @ k.mT * 0.3, bias, alpha=0.5).softmax(-1) @ v
    )
    torch.testing.assert_close(read.calls[0].bias[0, 0], 0.5 * bias)


def test_a_model_that_a_hook_runs_is_not_taken_for_this_one():
    model, other = tiny_models.build("llama"), tiny_models.build("bloom", "eager")
    inputs = tiny_models.inputs_for("llama")
    hook = model.model.layers[1].mlp.register_forward_hook(
        lambda *_: capture(other, inputs) and None
    )
    try:
        read = capture(model, inputs)
    finally:
        hook.remove()
    assert [call.module for call in read.calls] == [f"model.layers.{n}.self_attn" for n in range(3)]
    assert read.unread == ()


def test_a_cache_that_is_given_stays_as_it_is():
    model = tiny_models.build("llama")
    ids = tiny_models.inputs_for("llama")["input_ids"]
    cache = hf.DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids[:, :6], **{CACHE: cache})
    for _ in range(2):
        call = capture(model, {"input_ids": ids[:, 6:], CACHE: cache}).calls[0]
        assert call.n == (7, 13)
        assert call.key_unrotated is None  # those in the cache are not at hand
    assert cache.get_seq_length() == 6


def test_generated_states_of_an_encoder_are_not_padding_of_the_decoder():
    inputs = tiny_models.inputs_for("bart", length=7)
    inputs["attention_mask"][:, 4:] = 0
    del inputs["decoder_input_ids"]
    for call in capture(tiny_models.build("bart"), inputs).calls:
        assert (call.query_padding is not None) == (call.tower == "encoder")
        assert (call.key_padding is not None) == (call.tower == "encoder" or call.kind == "cross")


@pytest.mark.parametrize(
    "inputs",
    [
        {"input_ids": torch.tensor([[3, 4, 5]]), "attention_mask": {"full": None}},
        {"logits_to_keep": torch.tensor(1), "input_ids": torch.tensor([[3, 4, 5]])},
        {"input_ids": torch.tensor([[3, 4, 5]]), "use_cache": True},
        {"input_ids": None, "inputs_embeds": torch.randn(1, 3, 42)},
    ],
)
def test_odd_inputs_are_read_or_refused_in_a_sentence(inputs):
    try:
        read = capture(tiny_models.build("llama"), inputs)
    except UnreadableModel as refusal:
        assert str(refusal).endswith(".")  # noqa: PT017 - either may happen
    else:
        assert len(read.calls) == 3


def test_one_token_is_read_by_a_decoder():
    for family in ("bloom", "mpt", "gpt2"):
        inputs = tiny_models.inputs_for(family, length=1)
        assert {c.tower for c in capture(tiny_models.build(family, "eager"), inputs).calls} == {
            "decoder"
        }
