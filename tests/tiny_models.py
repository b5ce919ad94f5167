"""Tiny models of many families, with random weights spread wide enough for bugs to show.

Freshly initialised models attend almost uniformly and have zero biases: every mistake passes
on them. Sizes are primes where the family allows it, so that a swapped axis cannot fit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import transformers as hf
from torch import Tensor

VOCABULARY = 53


def spread(model: hf.PreTrainedModel, seed: int = 0) -> hf.PreTrainedModel:
    """Draw every weight from N(0, 1.3²/fan_in), biases from N(0, 0.5²), norms near 1."""
    dice = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=dice)
        if "norm" in name.lower() or name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            noise = 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
        elif weight.dim() > 1 and "relative_attention_bias" not in name:
            noise = noise * 1.3 / weight[0].numel() ** 0.5
        else:
            noise = 0.5 * noise
        if name.endswith("Attention.q.weight"):
            noise = noise / model.config.d_kv**0.5  # T5 divides here, once, and never the scores
        weight.data.copy_(noise)
    return model.eval()


def build(family: str, attention: str = "sdpa") -> hf.PreTrainedModel:
    """The tiny model of a family, always with the same weights."""
    model_class, config = FAMILIES[family]
    model = model_class._from_config(config(), attn_implementation=attention)
    return spread(model)


def _llama_like(config_class, **extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 42,
        "intermediate_size": 29,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 14,
        "max_position_embeddings": 97,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return lambda: config_class(**(sizes | extra))


def _bert_like(config_class, **extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 55,
        "intermediate_size": 31,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "max_position_embeddings": 97,
        "pad_token_id": 0,
    }
    return lambda: config_class(**(sizes | extra))


FAMILIES = {
    "gpt2": (
        hf.GPT2LMHeadModel,
        lambda: hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=97,
            n_embd=55,
            n_layer=3,
            n_head=5,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "bert": (hf.BertModel, _bert_like(hf.BertConfig)),
    "distilbert": (
        hf.DistilBertModel,
        lambda: hf.DistilBertConfig(
            vocab_size=VOCABULARY, dim=55, hidden_dim=31, n_layers=3, n_heads=5
        ),
    ),
    "llama": (hf.LlamaForCausalLM, _llama_like(hf.LlamaConfig, attention_bias=True)),
    "mistral": (hf.MistralForCausalLM, _llama_like(hf.MistralConfig, sliding_window=5)),
    "qwen3": (hf.Qwen3ForCausalLM, _llama_like(hf.Qwen3Config)),
    "gpt_neox": (
        hf.GPTNeoXForCausalLM,
        lambda: hf.GPTNeoXConfig(
            vocab_size=VOCABULARY,
            hidden_size=70,
            intermediate_size=31,
            num_hidden_layers=3,
            num_attention_heads=5,
            max_position_embeddings=97,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "t5": (
        hf.T5ForConditionalGeneration,
        lambda: hf.T5Config(
            vocab_size=VOCABULARY,
            d_model=37,
            d_kv=11,
            d_ff=29,
            num_layers=3,
            num_decoder_layers=2,
            num_heads=5,
            pad_token_id=0,
            decoder_start_token_id=0,
            eos_token_id=2,
        ),
    ),
    "bart": (
        hf.BartForConditionalGeneration,
        lambda: hf.BartConfig(
            vocab_size=VOCABULARY,
            d_model=55,
            encoder_layers=3,
            decoder_layers=2,
            encoder_attention_heads=5,
            decoder_attention_heads=5,
            encoder_ffn_dim=31,
            decoder_ffn_dim=31,
            max_position_embeddings=97,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        ),
    ),
    "vit": (
        hf.ViTModel,
        lambda: hf.ViTConfig(
            hidden_size=55,
            intermediate_size=31,
            num_hidden_layers=3,
            num_attention_heads=5,
            image_size=28,
            patch_size=7,
        ),
    ),
    "gemma2": (
        hf.Gemma2ForCausalLM,
        _llama_like(
            hf.Gemma2Config,
            attn_logit_softcapping=5.0,
            query_pre_attn_scalar=16,
            sliding_window=5,
        ),
    ),
    "gpt_oss": (
        hf.GptOssForCausalLM,
        _llama_like(
            hf.GptOssConfig,
            hidden_size=44,  # its experts want whole groups of four
            intermediate_size=28,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=5,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
    ),
}
DECODERS = ("gpt2", "llama", "mistral", "qwen3", "gpt_neox")
ENCODERS = ("bert", "distilbert")
EAGER_ONLY = ("gemma2", "gpt_oss")


def inputs_for(family: str, length: int = 13, batch: int = 1, seed: int = 1) -> dict[str, Tensor]:
    """Unpadded inputs of a family; encoder–decoders get 7 decoder tokens."""
    dice = torch.Generator().manual_seed(seed)

    def ids(n: int) -> Tensor:
        return torch.randint(3, VOCABULARY, (batch, n), generator=dice)

    if family == "vit":
        return {"pixel_values": torch.randn(batch, 3, 28, 28, generator=dice)}
    inputs = {"input_ids": ids(length), "attention_mask": torch.ones(batch, length).long()}
    if family in ("t5", "bart"):
        inputs["decoder_input_ids"] = ids(7)
    return inputs


def padded(inputs: Mapping[str, Tensor], pads: int, side: str) -> dict[str, Tensor]:
    """The same inputs with padding tokens at one side, masked, positions kept."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    filler = torch.zeros(ids.shape[0], pads, dtype=torch.long)
    order = (lambda a, b: [b, a]) if side == "left" else (lambda a, b: [a, b])
    return {
        "input_ids": torch.cat(order(ids, filler), dim=1),
        "attention_mask": torch.cat(order(mask, filler), dim=1),
    }
