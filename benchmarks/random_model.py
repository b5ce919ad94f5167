"""A model of GPT-2-small's shape with seeded random weights, for which each word is one token."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

WORDS = ["".join(letters) for letters in product("bdfgklmn", "aeio", "prst")]
LAYERS, HEADS, WIDTH, SPREAD = 12, 12, 768, 1.3


def text(tokens: int, seed: int = 0) -> str:
    """So many words in random order, each as often as the others."""
    dice, words = random.Random(seed), [*WORDS] * (tokens // len(WORDS) + 1)
    words = words[:tokens]
    dice.shuffle(words)
    return " ".join(words)


def save_model(folder: Path, places: int = 2 * len(WORDS)) -> None:
    """Save a model whose heads look unevenly, and its tokenizer; it takes so many tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=len(WORDS), n_positions=places, bos_token_id=0, eos_token_id=0)
    assert (config.n_layer, config.n_head, config.n_embd) == (LAYERS, HEADS, WIDTH)
    dice = torch.Generator().manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                spread = SPREAD / weight[0].numel() ** 0.5
                weight.copy_(spread * torch.randn(weight.shape, generator=dice))
    model.save_pretrained(folder)
    save_tokenizer(folder)


def save_tokenizer(folder: Path) -> None:
    """Save a tokenizer for which each word is one token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=WORDS[0]).save_pretrained(folder)
