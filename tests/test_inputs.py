"""What models are given, and which token stands at which place of their attention."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import saved_models
import tiny_models
import torch
from PIL import Image
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ViTConfig

from attnviz.capture import capture
from attnviz.inputs import Inputs, Needs, UnusableModel, inputs_for, lengths, needs
from attnviz.pictures import prepare
from attnviz.tokens import tokenize


@dataclass
class Loaded:
    """What `load` would give."""

    model: PreTrainedModel
    tokenizer: Any = dataclasses.field(default_factory=saved_models.small_vocabulary)
    image_processor: Any = None


TEXT = "The cat sat on the mat because it was tired."
IMAGE = Image.new("RGB", (40, 30), "red")


@pytest.mark.parametrize(
    ("family", "text", "target", "picture"),
    [
        ("llama", True, False, False),
        ("bert", True, False, False),
        ("bart", True, True, False),
        ("t5", True, True, False),
        ("tied_encoder_decoder", True, True, False),
        ("vit", False, False, True),
        ("dinov2_registers", False, False, True),
        ("clip", True, False, True),
    ],
)
def test_needs(family: str, text: bool, target: bool, picture: bool):
    assert needs(tiny_models.build(family)) == Needs(text, target, picture)


@pytest.mark.parametrize("family", ["whisper", "wav2vec2"])
def test_sound_is_told(family: str):
    with pytest.raises(UnusableModel, match="takes sound"):
        needs(tiny_models.build(family))


@pytest.mark.parametrize("family", ["bart", "t5", "marian"])
def test_a_target_is_shifted_as_the_model_shifts_its_labels(family: str):
    """Teacher forcing is the oracle: the loss on labels is that on our shifted target."""
    model = tiny_models.build(family)
    given = inputs_for(Loaded(model), TEXT, target="the king was tired")
    labels = saved_models.small_vocabulary()("the king was tired", return_tensors="pt").input_ids
    text = {name: given.tensors[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = model(**text, labels=labels).logits
        ours = model(**given.tensors).logits
    torch.testing.assert_close(ours, expected)
    assert given.target is not None
    start = saved_models.small_vocabulary().convert_ids_to_tokens(
        model.config.decoder_start_token_id
    )
    assert given.target.labels == (start, "the", "king", "was", "tired")
    assert given.target.special == (True, False, False, False, False)
    assert given.target_by == "visitor"


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_without_a_target_the_model_writes_its_likeliest_tokens(family: str):
    model = tiny_models.build(family)
    given = inputs_for(Loaded(model), TEXT)
    source = {name: given.tensors[name] for name in ("input_ids", "attention_mask")}
    written = [model.config.decoder_start_token_id]
    while len(written) < 25:
        with torch.no_grad():
            logits = model(**source, decoder_input_ids=torch.tensor([written])).logits
        following = int(logits[0, -1].argmax())
        if following == model.config.eos_token_id:
            break
        written.append(following)
    assert given.target is not None
    assert list(given.target.ids) == written
    assert given.target_by == "model"


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """What transformers writes into the log."""
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logger, ear = logging.getLogger("transformers"), Ear(logging.WARNING)
    logger.addHandler(ear)
    yield told
    logger.removeHandler(ear)


def test_settings_for_writing_otherwise_change_nothing_and_are_not_warned_of(
    warned: list[str],
):
    plain = tiny_models.build("bart")
    set_otherwise = tiny_models.build("bart")
    for name, value in {"num_beams": 4, "max_length": 62, "early_stopping": True, "top_p": 0.9,
                        "length_penalty": 2.0, "no_repeat_ngram_size": 2,
                        "temperature": 0.6, "do_sample": True}.items():  # fmt: skip
        setattr(set_otherwise.generation_config, name, value)
    assert inputs_for(Loaded(set_otherwise), TEXT).target == inputs_for(Loaded(plain), TEXT).target
    assert warned == []


def test_a_model_that_cannot_write_reads_its_text_again():
    model = tiny_models.build("bart").model  # without its language-model head
    given = inputs_for(Loaded(model), "the cat sat")
    assert given.target is not None
    assert given.target_by == "source"
    assert given.target.labels[1:] == ("the", "cat", "sat")


def test_cross_attention_goes_from_target_to_source():
    given = inputs_for(Loaded(tiny_models.build("bart")), "the cat sat on the mat", "a king")
    (call, *_) = [c for c in capture(tiny_models.build("bart"), given.tensors).calls
                  if c.kind == "cross"]  # fmt: skip
    assert call.n == (3, 7)
    assert given.queries(call.tower, 3) == given.target
    assert given.keys(call.tower, call.kind, 7) == given.source
    assert given.keys("decoder", "self", 3) == given.target
    assert given.queries("encoder", 7) == given.source


@pytest.mark.parametrize(
    ("family", "first", "count"),
    [("vit", ["[CLS]", "r0c0"], 17), ("dinov2_registers", ["[CLS]", "[REG0]"], 20)],
)
def test_tokens_of_a_picture(family: str, first: list[str], count: int):
    model = tiny_models.build(family)
    given = inputs_for(Loaded(model, tokenizer=None), "", image=IMAGE)
    call = capture(model, given.tensors).calls[0]
    assert call.n == (count, count)
    tokens = given.queries(call.tower, count)
    assert list(tokens.labels[:2]) == first
    assert tokens.labels[-1] == "r3c3"
    assert given.keys(call.tower, call.kind, count) == tokens


def test_clip_reads_a_text_and_a_picture():
    model = tiny_models.build("clip")
    given = inputs_for(Loaded(model), "the cat sat", image=IMAGE)
    calls = {call.tower: call for call in capture(model, given.tensors).calls}
    assert calls.keys() == {"text", "vision"}
    assert given.queries("text", calls["text"].n[0]).labels == ("the", "cat", "sat", "</s>")
    assert given.queries("vision", calls["vision"].n[0]).labels[:2] == ("[CLS]", "r0c0")


def test_a_text_that_looks_at_a_picture_has_patches_for_keys():
    """BLIP: its decoder reads the text and looks across at the picture."""
    picture = prepare(IMAGE, ViTConfig(image_size=14, patch_size=7))
    source = tokenize(saved_models.small_vocabulary(), "the cat sat")
    given = Inputs({}, source, picture=picture)
    assert given.keys("decoder", "cross", 5).labels == ("[CLS]", "r0c0", "r0c1", "r1c0", "r1c1")
    assert given.queries("decoder", 4) == source


def test_positions_that_stand_for_nothing_known_are_numbered():
    given = inputs_for(Loaded(tiny_models.build("swin"), None), "", image=IMAGE)
    assert given.queries("vision", 9).labels == tuple("012345678")


def test_a_text_model_without_a_tokenizer_is_told():
    with pytest.raises(UnusableModel, match="no tokenizer"):
        inputs_for(Loaded(tiny_models.build("llama"), tokenizer=None), TEXT)


@pytest.mark.parametrize("family", ["bert", "electra", "deberta_v3", "roberta"])
def test_encoders_with_a_separator_read_pairs(family: str):
    model = tiny_models.build(family)
    assert needs(model, pairing()).pair
    given = inputs_for(Loaded(model, pairing()), "the cat sat", pair="a king")
    types = given.tensors.get("token_type_ids")
    kinds = model.config.type_vocab_size
    assert (types is not None) == (kinds > 1)
    if types is not None:
        assert types.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert capture(model, given.tensors).calls[0].n == (7, 7)


def test_types_reach_the_model():
    """The oracle: transformers' own inputs for the pair."""
    model, tokenizer = tiny_models.build("bert"), pairing()
    ours = inputs_for(Loaded(model, tokenizer), "the cat sat", pair="a king").tensors
    own = tokenizer("the cat sat", "a king", return_tensors="pt", return_token_type_ids=True)
    with torch.no_grad():
        expected, found = model(**own).last_hidden_state, model(**ours).last_hidden_state
        without = model(ours["input_ids"]).last_hidden_state
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, without)


@pytest.mark.parametrize("family", ["llama", "bart", "t5", "clip", "bert_decoder"])
def test_other_models_read_one_text(family: str):
    assert not needs(tiny_models.build(family), pairing()).pair


def test_a_tokenizer_that_only_appends_joins_no_pairs():
    assert not needs(tiny_models.build("bert"), saved_models.small_vocabulary()).pair


def test_lengths_are_known_before_anything_runs():
    bart = Loaded(tiny_models.build("bart"))
    assert lengths(bart, "the cat sat", "a king") == {"text": 4, "target text": 3}
    assert lengths(bart, "the cat sat") == {"text": 4}
    bert = Loaded(tiny_models.build("bert"), pairing())
    assert lengths(bert, "the cat sat", pair="a king") == {"pair of texts": 7}
    assert lengths(Loaded(tiny_models.build("vit"), None), "") == {}


def pairing() -> PreTrainedTokenizerBase:
    """The small vocabulary, where a separator ends each of two texts."""
    tokenizer = saved_models.small_vocabulary()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 2)]
    )
    tokenizer.sep_token = "</s>"
    return tokenizer
