"""Folders of tiny models as visitors have them: weights, tokenizer, image processor."""

from __future__ import annotations

import json
from pathlib import Path

import tiny_models
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXT = (
    "the cat sat on mat because it was tired dog and king queen gave key to alice thanked "
    "once upon a time there lived in wood fire gold night hand stone seven wolf door , ."
)
WORDS = TEXT.split()


def small_vocabulary() -> PreTrainedTokenizerBase:
    """A tokenizer of whole words for the tiny models: 0 pads, 2 ends, 3 is unknown."""
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    assert len(vocabulary) <= tiny_models.VOCABULARY
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


def save(
    folder: Path, model: PreTrainedModel | str, *, text: bool = True, processor: dict | None = None
) -> str:
    """Save a model, or the tiny one of a family, and give the path to type."""
    if isinstance(model, str):
        model = tiny_models.build(model, "eager")
    model.save_pretrained(folder)
    if text:
        small_vocabulary().save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder)
