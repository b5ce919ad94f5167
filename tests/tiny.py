"""Tiny tokenizers and models: the real formats, built in milliseconds, always the same."""

import json
from pathlib import Path

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

SENTENCES = [
    "The cat sat on the mat because it was tired.",
    "the cat the dog the",
    "The dog chased the cat, and the cat chased the mouse.",
    "Once upon a time there was a king who had a daughter.",
] * 3


def byte_level() -> PreTrainedTokenizerBase:
    """GPT-2's kind: every byte has a token, <|bos|> comes first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=alphabet,
        special_tokens=["<|bos|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|bos|>")


def byte_level_by_characters() -> PreTrainedTokenizerBase:
    """GPT-2's kind where one token may hold a space and half an emoji."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    merges = [("Ġ", "ð"), ("Ġð", "Ł")]  # a space and the first two bytes of most emoji
    vocabulary |= {"".join(pair): len(alphabet) + n for n, pair in enumerate(merges)}
    tokenizer.model = models.BPE(vocabulary, merges)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def metaspace() -> PreTrainedTokenizerBase:
    """Llama 2's kind: ▁ for a space, the whole text one word, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.train_from_iterator(SENTENCES, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in learned["merges"]]
    again = Tokenizer(
        models.BPE(learned["vocab"], merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    again.normalizer = tokenizer.normalizer
    again.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    again.add_special_tokens(["<unk>", "<s>", "</s>"])
    again.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=again, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def wordpiece() -> PreTrainedTokenizerBase:
    """BERT's kind: lower case, ## for what goes on, [UNK] for what has no token."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **dict(zip(names, special, strict=True))
    )


def word_level() -> PreTrainedTokenizerBase:
    """A tokenizer that says nothing about its kind, and knows four words."""
    vocabulary = {"[UNK]": 0, "the": 1, "cat": 2, "dog": 3, "mat": 4}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def llama(**changes: object) -> PreTrainedModel:
    """A Llama of two layers, 4 heads and 2 kv_heads, with the weights of seed 0."""
    settings = {
        "vocab_size": 300,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()


def save(
    folder: Path,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Path:
    """Save a model, a Llama if none is given, and its tokenizer as a Hugging Face folder."""
    (model or llama()).save_pretrained(folder)
    (tokenizer or byte_level()).save_pretrained(folder)
    return folder
