"""What a model is given, and which token stands at which place of its attention.

A decoder or an encoder takes a text; an encoder–decoder a target text as well, which it may
write itself; a vision model a picture; CLIP and its kin a text and a picture.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from attnviz import limits
from attnviz.families import MAIN_INPUTS
from attnviz.pictures import Picture, patch_tokens, prepare
from attnviz.tokens import (
    Tokens,
    UnusableText,
    from_ids,
    joins_pairs,
    model_inputs,
    named,
    tokenize,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.models import LoadedModel

WRITTEN_TOKENS = 24  # how much a model writes itself where no target is given
# A model's own settings may ask for more; what greedy writing leaves aside would be warned of.
GREEDY: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "early_stopping": False,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 50,
    "max_length": None,
}
SOUNDS = [name for name, tower in MAIN_INPUTS.items() if tower == "audio"]
PICTURE_IN_TEXT = ("image_token_id", "image_token_index")


class UnusableModel(Exception):  # noqa: N818 - what a person is told, not a mistake
    """A model takes what cannot be given here; the message says what."""


@dataclass(frozen=True)
class Needs:
    """What a model must be given to run; where `pair` is True, it may have a second text."""

    text: bool
    target: bool
    picture: bool
    pair: bool = False


@dataclass(frozen=True)
class Inputs:
    """Everything that one run is given, and what its tokens are called.

    `target` is what the decoder of an encoder–decoder reads, its start token first, None for
    other models; `target_by` says where it comes from.
    """

    tensors: dict[str, Tensor]
    source: Tokens | None
    target: Tokens | None = None
    target_by: str = ""
    picture: Picture | None = None
    registers: int = 0

    def queries(self, tower: str, count: int) -> Tokens:
        """The tokens that look, in one tower; numbered where they stand for nothing here."""
        tokens = self._picture(count) if self._sees(tower) else self._text(tower)
        return tokens if tokens and len(tokens) == count else _numbered(count)

    def keys(self, tower: str, kind: str, count: int) -> Tokens:
        """The tokens looked at: in cross-attention those of the source, a text or a picture."""
        if kind == "self":
            return self.queries(tower, count)
        from_text = self.picture is None or (self.target is not None and self.source is not None)
        tokens = self.source if from_text else self._picture(count)
        return tokens if tokens and len(tokens) == count else _numbered(count)

    def _sees(self, tower: str) -> bool:
        return tower == "vision" or (self.source is None and tower != "decoder")

    def _text(self, tower: str) -> Tokens | None:
        return self.target if self.target and tower == "decoder" else self.source

    def _picture(self, count: int) -> Tokens | None:
        return patch_tokens(self.picture, count, self.registers) if self.picture else None


def needs(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> Needs:
    """What this model must be given; raises `UnusableModel` if it is sound.

    Pairs of texts are for encoders whose tokenizer puts a separator between the two.
    """
    takes = inspect.signature(model.forward).parameters
    text = "input_ids" in takes
    writes_text = text and model.can_generate()
    # Where a text holds places for pictures, it can be read without any.
    optional = any(hasattr(model.config, name) for name in PICTURE_IN_TEXT)
    if any(name in takes for name in SOUNDS) and not writes_text:
        raise UnusableModel(
            "This model takes sound. The pages of attnviz read text and pictures so far; from "
            "Python, attnviz.capture.capture reads it."
        )
    target = bool(model.config.is_encoder_decoder) and "decoder_input_ids" in takes
    picture = "pixel_values" in takes and not optional
    alone = text and not (target or picture or writes_text)
    pair = alone and tokenizer is not None and joins_pairs(tokenizer)
    return Needs(text, target, picture, pair)


def lengths(loaded: LoadedModel, text: str, target: str = "", pair: str = "") -> dict[str, int]:
    """How many tokens each text that a person typed has, by what it is called.

    Raises `UnusableModel` or `UnusableText`.
    """
    wants, found = needs(loaded.model, loaded.tokenizer), {}
    if wants.text:
        joined = pair if wants.pair else ""
        called = "pair of texts" if joined.strip() else "text"
        found[called] = len(tokenize(_tokenizer(loaded), text, pair=joined))
    if wants.target and target.strip():
        found["target text"] = len(tokenize(_tokenizer(loaded), target, as_target=True))
    return found


def inputs_for(
    loaded: LoadedModel,
    text: str,
    target: str = "",
    image: Image.Image | None = None,
    max_tokens: int | None = None,
    *,
    pair: str = "",
) -> Inputs:
    """Prepare what the model needs; the rest is left aside.

    Nothing is run on a text that is beyond `max_tokens` or the limits of this machine (`limits`).
    Raises `UnusableModel`, `UnusableText` or `UnusablePicture`.
    """
    model, wants = loaded.model, needs(loaded.model, loaded.tokenizer)
    source, picture = None, None
    tensors: dict[str, Tensor] = {}
    if wants.text:
        joined = pair if wants.pair else ""
        source = tokenize(_tokenizer(loaded), text, max_tokens, pair=joined)
        _check_cost(model, source, "pair of texts" if source.paired else "text")
        tensors |= _taken(model, model_inputs(source))
    if wants.picture and image is not None:
        picture = prepare(image, model.config, loaded.image_processor)
        tensors["pixel_values"] = picture.pixels
    decoded, by = (
        _target(loaded, target, tensors, source, max_tokens) if wants.target else (None, "")
    )
    if decoded is not None:
        tensors["decoder_input_ids"] = torch.tensor([decoded.ids])
    return Inputs(tensors, source, decoded, by, picture, _registers(model))


def _check_cost(model: PreTrainedModel, tokens: Tokens, called: str) -> None:
    refused = limits.refusal(model, len(tokens), called)
    if refused is not None:
        raise UnusableText(refused)


def _taken(model: PreTrainedModel, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the numbers of a pair's texts where the model has no vectors for them."""
    kinds = getattr(model.config, "type_vocab_size", None) or 0
    takes = "token_type_ids" in inspect.signature(model.forward).parameters
    types = tensors.get("token_type_ids")
    if types is None or (takes and int(types.max()) < kinds):
        return tensors
    return {name: tensor for name, tensor in tensors.items() if name != "token_type_ids"}


def _tokenizer(loaded: LoadedModel) -> PreTrainedTokenizerBase:
    if loaded.tokenizer is None:
        raise UnusableModel("This model reads text, and no tokenizer lies in its folder.")
    return loaded.tokenizer


def _target(
    loaded: LoadedModel,
    target: str,
    tensors: dict[str, Tensor],
    source: Tokens | None,
    max_tokens: int | None,
) -> tuple[Tokens, str]:
    """What the decoder reads, and who wrote it."""
    model, tokenizer = loaded.model, _tokenizer(loaded)
    if target.strip():
        labels = tokenize(tokenizer, target, max_tokens, as_target=True)
        _check_cost(model, labels, "target text")
        return from_ids(tokenizer, _shifted(model, tokenizer, labels.ids)), "visitor"
    if model.can_generate():
        return from_ids(tokenizer, _written(model, tensors, max_tokens)), "model"
    if source is None:
        raise UnusableModel("This model cannot write by itself; type a target text.")
    return from_ids(tokenizer, _shifted(model, tokenizer, source.ids)), "source"


def _shifted(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, labels: Sequence[int]
) -> list[int]:
    """What a decoder reads to predict these labels: its start token, then all but the last."""
    with suppress(AttributeError, TypeError, ValueError):  # not there, or without a start token
        shift: Any = model.prepare_decoder_input_ids_from_labels
        shifted = shift(labels=torch.tensor([labels]))
        return shifted[0].tolist()
    starts = [getattr(model.config, "decoder_start_token_id", None), model.config.bos_token_id]
    starts += [tokenizer.cls_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id, 0]
    return [next(i for i in starts if i is not None), *labels[:-1]]


def _written(
    model: PreTrainedModel, tensors: dict[str, Tensor], max_tokens: int | None
) -> list[int]:
    """What the model writes itself, taking its likeliest token each time."""
    room = min(WRITTEN_TOKENS, (max_tokens or WRITTEN_TOKENS + 1) - 1)
    try:
        with torch.no_grad():
            written: Tensor = model.generate(**tensors, max_new_tokens=room, **GREEDY)  # type: ignore
    except ValueError as problem:  # what it needs to begin with may be missing in its folder
        raise UnusableModel(
            "This model cannot write a target text by itself, as its configuration does not say "
            "how to begin. Type the text for its decoder under “Target text”."
        ) from problem
    ids: list[int] = written[0].tolist()
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list) else [end]
    return ids[:-1] if len(ids) > 1 and ids[-1] in ends else ids


def _registers(model: PreTrainedModel) -> int:
    config: Any = getattr(model.config, "vision_config", None) or model.config
    return int(getattr(config, "num_register_tokens", 0) or 0)


def _numbered(count: int) -> Tokens:
    return named([str(position) for position in range(count)])
