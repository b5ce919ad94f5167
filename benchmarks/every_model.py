"""Read every model class of transformers that a tiny configuration can build.

    python -m benchmarks.every_model [--workers 2] [--only bert t5] [--one-per-type]

Each class that transformers exports gets its default configuration, shrunk by rules on the
names of its attributes, random weights spread wide enough for mistakes to show, and inputs
from the signature of its forward. A class that cannot be built, or run without `capture`, is
"not built". Writes every_model.md beside this file.

Whether a class executes softmax attention is judged without attnviz, from the operators that a
plain run dispatches (see `Judge`): a fused scaled-dot-product operator, or a softmax over
logits that descend from a matrix product of two activations, and whose result enters a matrix
product with another activation. Routers, gates, dynamic convolutions and read-outs of binned
distributions have a softmax too, but no such pair of products: they do not count. Kernelised,
banded and low-rank variants do, where they contain the pair.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import itertools
import json
import multiprocessing
import os
import re
import resource
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeGuard

import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MODELS = Path(hf.__file__).parent / "models"
TABLE = Path(__file__).with_suffix(".md")

PARAMETERS_AT_MOST = 30_000_000
ADDRESS_SPACE = 12 * 2**30  # bytes that a worker may map
SECONDS_AT_MOST = 60.0
TRIES_PER_TYPE = 3  # classes, where one of a type is enough
EAGER_TOLERANCE = 2e-3  # another implementation rounds otherwise, layer upon layer
ROUNDINGS = 8  # of the largest logit, where logits are large

TEXT, DECODER_TEXT, PADS, BATCH = 13, 7, 3, 2
VOCABULARY, FIRST_WORD, END = 160, 110, 2  # special tokens have the ids below the first word
WIDTH, HEADS, KV_HEADS, LAYERS = 96, 4, 2, 2
HEAD_WIDTH = WIDTH // HEADS
IMAGE, PATCH = 64, 16
AUDIO_FRAMES, AUDIO_SAMPLES = 64, 8000

Config = hf.PreTrainedConfig
Inputs = dict[str, Any]


# --- the classes ---------------------------------------------------------------------------


def module_names() -> list[str]:
    """Every modelling module of transformers."""
    files = sorted(MODELS.glob("*/modeling_*.py"))
    return [f"transformers.models.{file.parent.name}.{file.stem}" for file in files]


def model_classes() -> dict[str, type[hf.PreTrainedModel]]:
    """Every exported model class with a configuration, by name, without the abstract bases."""
    classes = {}
    for name in module_names():
        try:
            module = importlib.import_module(name)
        except ImportError:  # it wants a package that is not installed
            continue
        for exported in getattr(module, "__all__", ()):
            candidate = getattr(module, exported, None)
            if _is_model(candidate) and candidate.__module__ == name:
                classes[exported] = candidate
    return classes


def config_class_of(model_class: type[hf.PreTrainedModel]) -> type[Config]:
    """The configuration class that belongs to a model class."""
    found = model_class.config_class
    assert isinstance(found, type)
    return found


def type_of(model_class: type[hf.PreTrainedModel]) -> str:
    """The model type, or the name of a configuration that gives none."""
    config_class = config_class_of(model_class)
    return config_class.model_type or config_class.__name__


def _is_model(candidate: object) -> TypeGuard[type[hf.PreTrainedModel]]:
    return (
        isinstance(candidate, type)
        and issubclass(candidate, hf.PreTrainedModel)
        and isinstance(candidate.config_class, type)
        and not re.search("PreTrained|Pretrained", candidate.__name__)
    )


# --- tiny configurations -------------------------------------------------------------------

# The first pattern that an attribute's name matches gives its largest value; smaller ones stay.
SIZES: tuple[tuple[str, int], ...] = (
    (r".*vocab_size(_per_layer_input)?|vocabulary_size|.*num_embeddings", VOCABULARY),
    (r"num_key_value_heads|num_kv_heads|.*num_key_value_heads", KV_HEADS),
    (r"linear_num_value_heads|linear_num_key_heads", KV_HEADS),
    (r"mamba_num_heads|mamba_n_heads", 2 * HEADS),
    (r"(.*_)?(num|n)(_\w+)?_heads|(.*_)?attention_heads|(.*_)?n_?heads?", HEADS),
    (r"qk_head_dim", 2 * HEAD_WIDTH),
    (r"rotary_dim", 16),
    (r"(.*_)?head_dim|(.*_)?dim_head|d_kv|d_head|head_width|(.*_)?head_size", HEAD_WIDTH),
    (r"kv_lora_rank|q_lora_rank|.*lora_rank|.*_rank", 24),
    (r"(.*_)?(num|n)(_\w+)?_layers|(.*_)?layers|n_layer|(.*_)?depth|num_blocks", LAYERS),
    (r"num_hidden_groups", 1),
    (r"(.*_)?(num|n)_experts_per_tok(en)?|moe_k|moe_top_?k|top_k|.*_top_k|topk", 2),
    (r"topk_group", 1),
    (r"n_group", 2),
    (r"(.*_)?num(_\w+)?_experts|n_routed_experts|moe_num_experts|num_experts", HEADS),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|inner_dim|mlp_dim|d_ff|n_inner)", 48),
    (r"(.*_)?max_(source|target)_positions|n_ctx|n_positions|max_seq(uence)?_len(gth)?", 64),
    (r"max_position_embeddings|max_text_len|context_length_for_positions", 64),
    (r"sliding_window(_size)?|local_attention|attention_window|attention_chunk_size", 6),
    (r"window_size|.*window_size", 2),
    (r"context_size", 32),
    (r"(.*_)?image_size|(.*_)?img_size|crop_size", IMAGE),
    (r"(.*_)?num_queries|num_query_tokens|num_latents|num_object_queries", 9),
    (r"num_frames", 4),
    (r"mm_tokens_per_image", 4),
    (r"num_pos_feats", WIDTH // 2),
    (r"num_conv_pos_embeddings", 16),
    (r"conv_dim|tdnn_dim|.*num_mel_bins|feature_size|mel_dim|.*input_feat_per_channel", 32),
    (r"output_channels|upsample_groups", WIDTH),
    (r".*channels|num_filters|.*conv_channels|decoder_channels", 64),
    (r"codebook_size|.*codebook_dim|codevector_dim|num_codevectors_per_group", 32),
    (r"mamba_d_head", HEAD_WIDTH),
    (r"mamba_d_state|state_size|ssm_state_size", 16),
    (r"attn_layer_period|expert_layer_period", 2),
    (r"attn_layer_offset|expert_layer_offset", 1),
    (r"coordinate_size", 20),  # four of them and
    (r"shape_size", 8),  # two of these make the width
    (r"d_latents", WIDTH),
    (r"embed_dim|.*embed_dim|.*embedding_size|.*embedding_dim|n_embd|d_embed|d_model", WIDTH),
    (r".*hidden_sizes?|.*hidden_dim|dim|width|.*_width|.*_dim|emb_dim|.*projection_size", WIDTH),
    (r".*output_size|classifier_proj_size|.*_units|.*hidden_channels", WIDTH),
)
PER_STAGE_WIDTH = 32
FILLED = {  # what some classes leave open, and then need
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "head_dim": HEAD_WIDTH,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
KEEP = r"patch_embed_hidden_size|(num|in|audio|out|input)_channels|in_chans"
TOKENS = r".*token_(id|index)|.*_tokens?_ids?|vocab_offset"


def tiny_config(config_class: type[Config]) -> Config:
    """The default configuration of a class with everything in it made small."""
    _special_tokens.clear()
    if config_class is hf.EncoderDecoderConfig:  # it has no default halves
        half = shrunk(hf.BertConfig())
        return hf.EncoderDecoderConfig.from_encoder_decoder_configs(half, half)
    return shrunk(config_class())


def shrunk(config: Config) -> Config:
    """A configuration of the same class with its sizes made small, sub-configurations too."""
    if config.model_type == "timm_backbone":
        return _residual_backbone(config)
    overrides = _overrides_by_layer(config)
    kept = _layers_kept(config)
    fields = {field.name for field in dataclasses.fields(config) if field.init}
    given = _given(config)
    smaller: dict[str, Any] = {}
    for name in sorted(fields - {"id2label", "label2id", "_out_features", "_out_indices"}):
        value = getattr(config, name, None)
        made = FILLED.get(name) if value is None else _shrunk_value(name, value, config, kept)
        if made is not value or name in given:
            smaller[name] = made
    if "mrope_section" in getattr(config, "ignore_keys_at_rope_validation", ()):
        rope = smaller.get("rope_parameters") or getattr(config, "rope_parameters", None) or {}
        smaller["rope_parameters"] = _with_sections(rope)
    if getattr(config, "out_indices", None):
        smaller["out_indices"] = _stages_given_out(config, len(kept))
    if overrides:
        smaller["per_layer_config"] = {
            new: {name: _shrunk_number(name, value, config) for name, value in changes.items()}
            for new, old in enumerate(kept)
            if (changes := overrides.get(old))
        }
    smaller |= EXCEPTIONS.get(config.model_type, {})
    return type(config)(**smaller)


def _given(config: Config) -> set[str]:
    """Attributes that whoever made the configuration set otherwise than its class does."""
    usual = vars(type(config)())
    return {
        name
        for name, value in vars(config).items()
        if not isinstance(value, Config) and usual.get(name) != value
    }


def _stages_given_out(config: Config, layers: int) -> list[int]:
    if _stages(config):
        return list(config.out_indices)
    return _indices_kept(config.out_indices, layers + 1)  # the stem is a stage too


def _overrides_by_layer(config: Config) -> dict[int, dict[str, Any]]:
    """What a configuration says of single layers; it may be read as a whole afterwards."""
    if not getattr(config, "is_heterogeneous", False):
        return {}
    config.allow_global_per_layer_attribute_access = True
    return config._heterogeneity_spec.per_layer_overrides


def _shrunk_value(name: str, value: Any, config: Config, kept: list[int]) -> Any:
    if isinstance(value, Config):
        return shrunk(value)
    if isinstance(value, bool) or value is None or re.fullmatch(KEEP, name):
        return value
    if name.startswith("rope_") and isinstance(value, dict):
        return _shrunk_rope(value, config)
    if re.fullmatch(TOKENS, name):
        return _token(name, value)
    if isinstance(value, (list, tuple)):
        return _shrunk_list(name, value, config, kept)
    if isinstance(value, int):
        return _shrunk_number(name, value, config)
    return value


def _shrunk_number(name: str, value: Any, config: Config) -> Any:
    if type(value) is not int or value <= 0:
        return value
    if name == "window_size" and value > IMAGE:
        return IMAGE  # of pixels
    if name.endswith("patch_size"):
        return PATCH if value >= 12 else min(value, 4)
    if name in LAYER_COUNTS:
        return value if _stages(config) else min(value, len(_layers_kept(config)))
    if re.search("key_value_heads|kv_heads", name) and value >= _heads(config):
        return min(value, HEADS)
    for pattern, largest in SIZES:
        if re.fullmatch(pattern, name):
            return min(value, largest)
    return value


LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth")


def _stages(config: Config) -> bool:
    """Whether the sizes of a model are lists of one entry for each stage."""
    names = ("depths", "hidden_sizes", "embed_dims", "blocks_per_stage", "stage_num_blocks")
    return any(isinstance(getattr(config, name, None), (list, tuple)) for name in names)


def _heads(config: Config) -> int:
    heads = getattr(config, "num_attention_heads", 0)
    return heads if isinstance(heads, int) else 0


def _shrunk_list(name: str, values: Any, config: Config, kept: list[int]) -> Any:
    """A value per layer is taken for the layers kept; one per stage is scaled with the first."""
    kind = type(values)
    if not values:
        return values
    if not _stages(config) and len(kept) < len(values) == _layer_count(config):
        return kind(values[index] for index in kept)
    if not all(type(value) is int for value in values):
        return values
    if re.fullmatch(r".*(depths|blocks_per_stage|num_blocks|numb_of_layers)", name):
        return kind(min(value, 2) for value in values)
    if re.search(r"ind(ic)?es|index|feature_layer|layers$", name) and not _stages(config):
        return kind(_indices_kept(values, len(kept)))
    if "image_size" in name:
        return kind(min(value, IMAGE) for value in values)
    if re.search(r"heads|num_groups", name):
        return kind(max(1, value * 2 // max(values[0], 2)) for value in values)
    if re.fullmatch(r".*(sizes|dims?|dim_per_stage)", name) and min(values) > PER_STAGE_WIDTH:
        return kind(value * PER_STAGE_WIDTH // min(values) // 8 * 8 for value in values)
    return values


def _indices_kept(values: Any, layers: int) -> list[int]:
    """As many different indices as there are layers for, the last ones."""
    inside = [value for value in values if -layers <= value < layers]
    if len(inside) == len(values):
        return list(values)
    return list(range(layers - min(len(values), layers), layers))


def _layer_count(config: Config) -> int:
    counts = (getattr(config, name, None) for name in LAYER_COUNTS)
    return next((count for count in counts if isinstance(count, int)), 0)


def _layers_kept(config: Config) -> list[int]:
    """The first layer of each kind that the configuration names, and at least `LAYERS`."""
    count = _layer_count(config)
    least = max(LAYERS, len(getattr(config, "out_indices", None) or ()))
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != count:
        return list(range(min(count, least)))
    firsts = [list(kinds).index(kind) for kind in dict.fromkeys(kinds)]
    others = [index for index in range(count) if index not in firsts]
    return sorted(firsts + others[: max(0, least - len(firsts))])


def _shrunk_rope(rope: dict[str, Any], config: Config) -> dict[str, Any]:
    """Sections and factors that split a head's width are made to fit the smaller head."""
    made = dict(rope)
    for name, value in rope.items():
        if isinstance(value, dict):
            made[name] = _shrunk_rope(value, config)
        elif name.endswith("section") and isinstance(value, (list, tuple)):
            made[name] = _sections(len(value), rope)
        elif name in ("short_factor", "long_factor"):
            made[name] = value[: HEAD_WIDTH // 2]
    return made


def _with_sections(rope: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(value, dict) for value in rope.values()):
        return {kind: _with_sections(value) for kind, value in rope.items()}
    return {"mrope_section": _sections(3, rope)} | rope


def _sections(count: int, rope: dict[str, Any]) -> list[int]:
    """The rotated pairs of a head, shared out among the axes of a picture."""
    pairs = int(HEAD_WIDTH // 2 * rope.get("partial_rotary_factor", 1.0))
    return [pairs - (count - 1) * (pairs // count), *[pairs // count] * (count - 1)]


_special_tokens: dict[str, int] = {}  # of the configuration that is being made


def _token(name: str, value: Any) -> Any:
    """A small id of its own for each special token, the same in every sub-configuration."""
    if not isinstance(value, int) or value < 0:
        return value if isinstance(value, int) else [_token(f"{name}_list", 0)]
    known = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": END}
    stem = name.replace("_index", "_id")
    return known.get(stem) or _special_tokens.setdefault(stem, 3 + len(_special_tokens))


def _residual_backbone(config: Config) -> Config:
    """A tiny ResNet in the place of a backbone that another package would bring."""
    wanted = getattr(config, "out_indices", None) or [-1]
    sizes: dict[str, Any] = {
        "embedding_size": 32,
        "hidden_sizes": [32, 64, 128, 256],
        "depths": [1, 1, 1, 1],
        "out_indices": [index if index < 0 else min(index, 4) for index in wanted],
    }
    return hf.ResNetConfig(**sizes)


# What no rule can guess, by model type.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "autoformer": {"prediction_length": 4, "context_length": 8},
    "bit": {"num_groups": 8},
    "bros": {"hidden_size": 64},
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "d_fine": {"decoder_in_channels": [WIDTH] * 3},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48},
    "dots3_note_text": {"num_key_value_heads": HEADS},
    "efficientloftr": {"hidden_size": 256},
    "emu3": {"vocabulary_map": {"<image>": 5}},
    "esm": {"mask_token_id": 5},
    "esmc": {"num_key_value_heads": HEADS},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "glm5_next_text": {"num_key_value_heads": HEADS},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hgnet_v2": {"hidden_sizes": [128, 512, 1024, 2048]},
    "informer": {"prediction_length": 4, "context_length": 8},
    "kosmos-2": {"latent_query_num": 3},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "llama4_vision_model": {"intermediate_size": 4 * WIDTH},
    "mllama_text_model": {"cross_attention_layers": [1]},
    "mamba2": {"num_heads": 8, "head_dim": HEAD_WIDTH},
    "paddleocr_vl_text": {"rope_parameters": {"mrope_section": [4, 4, 4], "rope_type": "default"}},
    "reformer": {"axial_pos_embds_dim": [32, 64], "axial_pos_shape": [4, 16]},
    "rt_detr": {"encoder_in_channels": [64, 128, 256], "decoder_in_channels": [WIDTH] * 3},
    "rt_detr_v2": {"encoder_in_channels": [64, 128, 256], "decoder_in_channels": [WIDTH] * 3},
    "sam2_hiera_det_model": {"hidden_size": 32, "window_size_per_stage": [4, 4, 2, 2]},
    "time_series_transformer": {"prediction_length": 4, "context_length": 8},
    "xclip_vision_model": {"num_frames": BATCH},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 6,
        "layers_block_type": ["mamba", "mamba", "hybrid"] * 2,
        "attention_hidden_size": 2 * WIDTH,
        "attention_head_dim": 2 * HEAD_WIDTH,
    },
}


# --- models and inputs ---------------------------------------------------------------------


class NotBuilt(Exception):  # noqa: N818 - a finding, not an error
    """A class that no tiny configuration builds and runs; the message says why."""


def built(model_class: type[hf.PreTrainedModel], attention: str = "") -> hf.PreTrainedModel:
    """A tiny model of the class with spread weights, always the same."""
    config = tiny_config(config_class_of(model_class))
    count = _parameters_on_meta(model_class, config)
    if count > PARAMETERS_AT_MOST:
        raise NotBuilt(f"{count / 1e6:.0f} M parameters, more than the sweep allows.")
    torch.manual_seed(0)
    chosen = {"attn_implementation": attention} if attention else {}
    return spread(model_class._from_config(config, **chosen))


def _parameters_on_meta(model_class: type[hf.PreTrainedModel], config: Config) -> int:
    """Number of parameters, without allocating them; 0 where that cannot be told."""
    try:
        with torch.device("meta"):
            model = model_class._from_config(config)
    except Exception:  # some constructors compute with their weights
        return 0
    return sum(weight.numel() for weight in model.parameters())


def spread(model: hf.PreTrainedModel) -> hf.PreTrainedModel:
    """Draw weights from N(0, 1.3²/fan_in), biases from N(0, 0.5²), norms near 1."""
    dice = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if not weight.is_floating_point():
            continue
        noise = torch.randn(weight.shape, generator=dice)
        if re.search(r"norm|ln_|\.bn|layer_?scale|gamma", name.lower()):
            noise = 0.1 * noise + (0.0 if name.endswith("bias") else 1.0)
        elif weight.dim() > 1 and "bias_table" not in name and "attention_bias" not in name:
            noise = noise * 1.3 / max(1, weight.numel() // max(1, len(weight))) ** 0.5
        else:
            noise = 0.5 * noise
        if name.endswith("Attention.q.weight"):
            noise = noise / model.config.d_kv**0.5  # T5 divides here, never the scores
        weight.data.copy_(noise)
    return model.eval()


def _words(config: Config, length: int, *more: int) -> Tensor:
    sizes = [getattr(part, "vocab_size", None) for part in _parts(config)]
    words = min([size for size in sizes if type(size) is int and size > 9], default=VOCABULARY)
    first = FIRST_WORD if words > FIRST_WORD else words // 2
    return torch.randint(first, words, (BATCH, length, *more), generator=_dice())


def _text(config: Config) -> Tensor:
    """Words and an end, which some classifiers look for."""
    words = _words(config, TEXT)
    words[:, -1] = END
    return words


def _choices(config: Config) -> Tensor:
    return _text(config)[:, None].repeat(1, 3, 1)


def _dice() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=_dice())


def _find(config: Config, *names: str, default: int) -> int:
    """The first such attribute anywhere in a configuration."""
    for name in names:
        for part in _parts(config):
            value = getattr(part, name, None)
            if isinstance(value, (list, tuple)) and value and type(value[0]) is int:
                value = value[0]
            if type(value) is int and value > 0:
                return value
    return default


def _parts(config: Config) -> Iterator[Config]:
    yield config
    for value in vars(config).values():
        if isinstance(value, Config):
            yield from _parts(value)


def _pictures(config: Config) -> Tensor:
    channels = _find(config, "num_channels", "in_channels", "in_chans", default=3)
    size = _find(config, "image_size", "img_size", default=IMAGE)
    return _noise(BATCH, channels, size, size)


def _videos(config: Config) -> Tensor:
    pictures = _pictures(config)
    frames = _find(config, "num_frames", "frames_per_clip", default=4)
    return pictures[:, None].repeat(1, frames, 1, 1, 1)


def _patch_rows(config: Config) -> Tensor:
    """Pictures as rows of flattened patches, a grid of 4 × 4 for each."""
    patch = _find(config, "patch_size", default=PATCH)
    depth = _find(config, "temporal_patch_size", default=1)
    channels = _find(config, "num_channels", "in_channels", "in_chans", default=3)
    return _noise(BATCH * 16, channels * depth * patch * patch)


def _patch_places() -> Tensor:
    rows = torch.arange(4).repeat_interleave(4)
    places = torch.stack([rows, torch.arange(4).repeat(4)], dim=-1).float() + 1
    return places.repeat(BATCH, 1, 1)


def _patch_rows_of(config: Config) -> Tensor:
    return _patch_rows(config).unflatten(0, (BATCH, -1))


def _patch_squares(config: Config) -> Tensor:
    patch = _find(config, "patch_size", default=PATCH)
    return _patch_rows(config).reshape(BATCH * 16, -1, patch, patch)


def _sounds(config: Config) -> Tensor:
    """Spectra, (batch, band, frame)."""
    names = ("feature_projection_input_dim", "num_mel_bins", "mel_dim", "feature_size")
    bands = _find(config, *names, "input_dim", default=32)
    positions = _find(config, "max_source_positions", default=AUDIO_FRAMES // 2)
    return _noise(BATCH, bands, 2 * positions)


def _spectrum_picture(config: Config) -> Tensor:
    frames = _find(config, "max_length", "spec_size", default=AUDIO_FRAMES)
    return _noise(BATCH, frames, _find(config, "num_mel_bins", default=32))


def _boxes(config: Config) -> Tensor:
    corner = torch.randint(1, 20, (BATCH, TEXT, 2), generator=_dice())
    return torch.cat([corner, corner + 9], dim=-1)


def _series(config: Config) -> Tensor:
    length = _find(config, "context_length", default=64)
    return _noise(BATCH, length, _find(config, "num_input_channels", default=1))


def _history(config: Config, *more: int) -> Tensor:
    lags = max(getattr(config, "lags_sequence", None) or [0])
    return _noise(BATCH, _find(config, "context_length", default=64) + lags, *more)


def _code_rows(config: Config) -> Tensor | None:
    """Tokens of several codebooks, a row for each."""
    books = _find(config, "num_codebooks", default=0)
    return _words(config, TEXT).repeat(books, 1) if books else None


def _code_columns(config: Config) -> Tensor | None:
    """Tokens of several codebooks, side by side."""
    books = _find(config, "num_codebooks", default=0)
    return _words(config, TEXT, books) if books else None


def _tiles(config: Config) -> Tensor:
    pictures = _pictures(config)
    count = _find(config, "max_num_tiles", default=1)
    return pictures[:, None, None].repeat(1, 1, count, 1, 1, 1)


# What each argument of a forward gets, where several shapes are usual one after the other.
Maker = Callable[[Config], Any]
GRID = torch.tensor([[1, 4, 4]] * BATCH)
ARGUMENTS: dict[str, tuple[Maker, ...]] = {
    "input_ids": (_text, _choices, _code_columns, _code_rows),
    "attention_mask": (lambda c: torch.ones(BATCH, TEXT).long(),),
    "decoder_input_ids": (lambda c: _words(c, DECODER_TEXT),),
    "qformer_input_ids": (lambda c: _words(c, DECODER_TEXT),),
    "bbox": (_boxes,),
    "visual_feats": (lambda c: _noise(BATCH, 9, _find(c, "visual_feat_dim", default=WIDTH)),),
    "visual_pos": (lambda c: _noise(BATCH, 9, 4),),
    "pixel_values": (
        _pictures,
        _patch_rows,
        _videos,
        lambda c: _pictures(c)[:, None],
        _patch_rows_of,
        _patch_squares,
        lambda c: _patch_squares(c)[None],
        lambda c: _videos(c)[:, :2],
        _tiles,
    ),
    "pixel_values_videos": (_videos, _patch_rows),
    "pixel_attention_mask": (lambda c: torch.ones(BATCH, 16).long(),),
    "spatial_shapes": (lambda c: torch.tensor([[4, 4]] * BATCH),),
    "flattened_patches": (lambda c: torch.cat([_patch_places(), _patch_rows_of(c)], dim=-1),),
    "aspect_ratio_ids": (lambda c: torch.ones(BATCH, 1).long(),),
    "aspect_ratio_mask": (
        lambda c: torch.ones(BATCH, 1, _find(c, "max_num_tiles", default=1)).long(),
    ),
    "image_attention_mask": (lambda c: torch.ones(BATCH, TEXT, 1).long(),),
    "image_grid_thw": (lambda c: GRID,),
    "grid_thw": (lambda c: GRID,),
    "image_embeds_position_mask": (lambda c: torch.arange(TEXT).repeat(BATCH, 1).lt(3).long(),),
    "encoder_hidden_states": (lambda c: _noise(BATCH, 9, WIDTH),),
    "input_features": (
        _sounds,
        lambda c: _sounds(c).transpose(1, 2),
        lambda c: _sounds(c).transpose(1, 2)[:, None],
    ),
    "feature_attention_mask": (lambda c: torch.ones(BATCH, _sounds(c).shape[-1]).long(),),
    "input_features_mask": (lambda c: torch.ones(BATCH, _sounds(c).shape[-1]).long(),),
    "input_values": (
        lambda c: _noise(BATCH, AUDIO_SAMPLES),
        lambda c: _noise(BATCH, 1, AUDIO_SAMPLES),
        _spectrum_picture,
    ),
    "past_values": (lambda c: _noise(BATCH, 64), _history, _series),
    "past_time_features": (lambda c: _history(c, c.num_time_features),),
    "past_observed_mask": (lambda c: torch.ones_like(_history(c)),),
    "hidden_states": (_patch_rows, lambda c: _noise(BATCH, TEXT, WIDTH)),
    "inputs_embeds": (lambda c: _noise(BATCH, TEXT, WIDTH),),
    "inputs": (lambda c: _noise(BATCH, TEXT, _find(c, "d_model", default=WIDTH)),),
    "query_embeds": (lambda c: _noise(BATCH, TEXT, WIDTH),),
}
ONLY_WHERE_REQUIRED = {
    "hidden_states",
    "inputs_embeds",
    "inputs",
    "attention_mask",
    "pixel_values_videos",
    "past_observed_mask",
    "encoder_hidden_states",
    "pixel_attention_mask",
    "spatial_shapes",
}
TEXTUAL = {"input_ids", "decoder_input_ids"}


def candidate_inputs(model: hf.PreTrainedModel) -> Iterator[Inputs]:
    """Inputs to try, the fullest first, then text alone, then what cannot be left out."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    missing = [name for name in required if name not in ARGUMENTS and name != "kwargs"]
    if missing:
        raise NotBuilt(f"Its forward needs {missing[0]}, which the sweep cannot make.")
    known = [p.name for p in parameters if p.name in ARGUMENTS]
    if "input_values" in known:
        known = [name for name in known if name != "inputs"]
    if {"input_values", "input_features"} <= set(known):
        known.remove("input_features")
    needed = {*required, model.main_input_name} & set(known)
    fullest = [name for name in known if name in needed or name not in ONLY_WHERE_REQUIRED]
    textual = [name for name in known if name in needed | TEXTUAL]
    needed_only = [name for name in known if name in needed]
    seen = []
    crossed = [name for name in known if name in {*needed, "encoder_hidden_states"}]
    for names in (fullest, textual, needed_only, crossed):
        if names and names not in seen:
            seen.append(names)
            yield from _made(names, model)


def _made(names: list[str], model: hf.PreTrainedModel) -> Iterator[Inputs]:
    for makers in itertools.product(*(ARGUMENTS[name] for name in names)):
        inputs = {name: make(model.config) for name, make in zip(names, makers, strict=True)}
        if all(value is not None for value in inputs.values()):
            yield _completed(inputs, model, pads=PADS)
            if "input_ids" in inputs:
                yield _completed(inputs, model)


def _completed(inputs: Inputs, model: hf.PreTrainedModel, pads: int = 0) -> Inputs:
    """With what follows from the tokens: their mask, padding in the last row, their modalities."""
    parameters = inspect.signature(model.forward).parameters
    if "input_ids" not in inputs:
        return inputs
    ids, inputs = inputs["input_ids"], dict(inputs)
    if "attention_mask" in parameters and ids.dim() == 2:
        inputs["attention_mask"] = torch.ones_like(ids)
        inputs["attention_mask"][-1, ids.shape[1] - pads :] = 0
    if "mm_token_type_ids" in parameters:
        types = [_placeholder(model.config, word) for word in ("image", "video", "audio")]
        inputs["mm_token_type_ids"] = sum(
            (ids == token).long() * (number + 1) for number, token in enumerate(types)
        )
    return inputs


def _placeholder(config: Config, modality: str) -> int:
    names = (f"{modality}_token_id", f"{modality}_token_index", f"{modality}_soft_token_id")
    return _find(config, *names, default=-1)


def runnable_inputs(model: hf.PreTrainedModel) -> Inputs:
    """The first candidate on which the model runs plainly."""
    complaints = []
    for inputs in candidate_inputs(model):
        for _ in range(3):
            try:
                run(model, inputs)
            except Exception as error:
                complaints.append(_first_line(error))
                repaired = _with_placeholders(inputs, str(error), model)
                if repaired is None:
                    break
                inputs = repaired
            else:
                return inputs
    raise NotBuilt((complaints or ["Its forward takes nothing that the sweep can make."])[0])


def _with_placeholders(inputs: Inputs, complaint: str, model: hf.PreTrainedModel) -> Inputs | None:
    """The same inputs with as many placeholder tokens as the model says it has features."""
    found = re.search(r"(Image|Video|Audio|Multimodal) features and .*features:? (\d+)", complaint)
    if not found or "input_ids" not in inputs:
        return None
    modality, count = found[1].lower().replace("multimodal", "image"), int(found[2]) // BATCH
    token = _placeholder(model.config, modality)
    count = count // WIDTH if count > 256 else count  # some count numbers, not vectors
    ids = inputs["input_ids"]
    if token < 0 or count > 256 or bool((ids == token).any()):
        return None
    middle = torch.full((BATCH, count), token)
    ids = torch.cat([ids[:, :3], middle, ids[:, 3:]], dim=1)
    hidden = inputs.get("attention_mask", torch.ones(1)) == 0
    return _completed({**inputs, "input_ids": ids}, model, pads=int(hidden.sum()))


def run(model: hf.PreTrainedModel, inputs: Inputs, seed: int = 2) -> Any:
    """Run plainly, in the way that `capture` does: no cache, no gradients, the same dice."""
    cached = "use_cache" in inspect.signature(model.forward).parameters
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(**inputs, **({"use_cache": False} if cached else {}))


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    said = lines[1 if len(lines) > 1 and "validation error" in lines[0] else 0] if lines else "-"
    return f"{type(error).__name__}: {said.strip()}"


# --- the judgement -------------------------------------------------------------------------


class Judge(TorchDispatchMode):
    """Counts the softmax attentions of a run, from its operators alone.

    Tensors have a role: "logits" after a matrix product of two activations, through anything
    that is neither a product nor a convolution; "weights" after a softmax of logits. An
    attention is a softmax whose weights enter a product with an activation, or a fused one.
    """

    FUSED = re.compile(r"scaled_dot_product|_native_multi_head|_transformer_encoder_layer_fwd")
    PRODUCTS = frozenset({"aten::bmm", "aten::mm", "aten::baddbmm", "aten::addmm", "aten::mv"})
    SOFTMAX = frozenset({"aten::_softmax", "aten::_safe_softmax"})
    ENDS = frozenset({"aten::convolution", "aten::native_layer_norm", "aten::embedding"})

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.fixed = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.roles: dict[int, tuple[Tensor, str, int]] = {}  # the tensor is held: ids stay unique
        self.fused = 0
        self.weights: dict[int, Tensor] = {}  # of every softmax over logits
        self.attended: dict[int, Tensor] = {}  # of those that then met values

    @property
    def attentions(self) -> int:
        """How many softmax attentions have been executed."""
        return self.fused + len(self.attended)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and note what it does to the roles."""
        result = operator(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.note(operator._schema.name, given, tree_leaves(result))
        return result

    def note(self, name: str, given: list[Tensor], results: list[Any]) -> None:
        """Follow the roles through one operator."""
        if self.FUSED.search(name):
            self.fused += 1
        elif name in self.PRODUCTS:
            self.note_product(given[-2:], results)
        elif name in self.SOFTMAX:
            if self.role(given[0])[0] == "logits":
                number = len(self.weights) + 1
                self.weights[number] = results[0]
                self.give(results, "weights", number)
        elif name not in self.ENDS:
            role, number = next((r for t in given if (r := self.role(t))[0]), ("", 0))
            if role:
                self.give(results, role, number)

    def note_product(self, operands: list[Tensor], results: list[Any]) -> None:
        """A product of two activations makes logits, unless it is one with weights."""
        if any(self.is_fixed(operand) for operand in operands):
            return
        numbers = {self.role(operand)[1] for operand in operands} - {0}
        self.attended |= {number: self.weights[number] for number in numbers}
        if not numbers:
            self.give(results, "logits", 0)

    def is_fixed(self, tensor: Tensor) -> bool:
        """Whether this is a parameter of the model, or a view of one."""
        return tensor.untyped_storage().data_ptr() in self.fixed

    def role(self, tensor: Tensor) -> tuple[str, int]:
        """The role of a tensor and the number of its softmax; empty if it has none."""
        return self.roles.get(id(tensor), (tensor, "", 0))[1:]

    def give(self, results: list[Any], role: str, number: int) -> None:
        """Note the role of floating results."""
        for result in results:
            if isinstance(result, Tensor) and result.is_floating_point():
                self.roles[id(result)] = (result, role, number)


def judged(model: hf.PreTrainedModel, inputs: Inputs) -> Judge:
    """The judge of a plain run."""
    judge = Judge(model)
    with judge:
        run(model, inputs)
    return judge


# --- one class -----------------------------------------------------------------------------


@dataclasses.dataclass
class Finding:
    """What became of one class."""

    name: str
    model_type: str
    status: str = "not built"  # not built, read, refused or raised
    reason: str = ""
    arguments: str = ""
    attentions: int = 0
    calls: int = 0
    compared: int = 0  # calls whose weights were compared with the eager model's own
    unread: list[str] = dataclasses.field(default_factory=list)
    layers: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0  # of CPU time

    @property
    def built(self) -> bool:
        """Whether it ran without `capture`."""
        return self.status != "not built"


def examined(name: str, model_class: type[hf.PreTrainedModel]) -> Finding:
    """Build a class, run it, judge it, read it and check what was read."""
    finding = Finding(name, type_of(model_class))
    try:
        model = built(model_class)
        inputs = runnable_inputs(model)
        finding.attentions = judged(model, inputs).attentions
    except Exception as error:
        finding.reason = str(error) if isinstance(error, NotBuilt) else _first_line(error)
        return finding
    finding.arguments = " ".join(inputs)
    _read(finding, model, inputs)
    return finding


def _read(finding: Finding, model: hf.PreTrainedModel, inputs: Inputs) -> None:
    from attnviz.capture import UnreadableModel, capture

    torch.manual_seed(2)
    try:
        read = capture(model, inputs)
    except UnreadableModel as refusal:
        # It does run: what stopped it then lies in the reading.
        disguised = "cannot run on this input" in str(refusal)
        finding.status, finding.reason = "raised" if disguised else "refused", str(refusal)
        return
    except Exception as error:
        finding.status, finding.reason = "raised", _where(error)
        return
    finding.status, finding.calls = "read", len(read.calls)
    finding.unread = [f"{layer.tower} {layer.layer}: {layer.reason}" for layer in read.unread]
    finding.layers = [f"{c.tower} {c.kind} {c.layer} {c.module}" for c in read.calls]
    try:
        finding.problems = list(_problems(finding, model, inputs, read.calls))
    except Exception as error:
        finding.problems = [f"checking raised {_where(error)}"]


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if "attnviz" in f.filename), frames[-1])
    return f"{_first_line(error)} ({Path(last.filename).name}:{last.lineno} {last.name})"


def _problems(
    finding: Finding, model: hf.PreTrainedModel, inputs: Inputs, calls: Sequence[Any]
) -> Iterator[str]:
    from attnviz.capture import recording_difference

    if finding.calls > finding.attentions:
        yield f"{finding.calls} calls, but {finding.attentions} attentions were executed"
    silent = re.compile("no part|no softmax attention")
    named = [layer for layer in finding.unread if not silent.search(layer)]
    if finding.calls < finding.attentions and not named:
        yield f"{finding.attentions - finding.calls} attentions are neither read nor named"
    for call in calls:
        for head in {0, call.heads - 1}:
            yield from (f"{call.module} head {head}: {what}" for what in _faults(call, head))
    if _deterministic(model, inputs):
        torch.manual_seed(2)
        difference = recording_difference(model, inputs)
        if difference != 0:
            yield f"recording changed the output by {difference:.2g}"
        finding.compared, worst = _against_eager(model, inputs, calls)
        if worst > EAGER_TOLERANCE:
            yield f"weights differ from the model's own under eager attention by {worst:.2g}"


def _alike(one: Any, other: Any) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, 1e-4, 2e-5, True) for a, b in pairs)


def _against_eager(
    model: hf.PreTrainedModel, inputs: Inputs, calls: Sequence[Any]
) -> tuple[int, float]:
    """How many calls could be compared with the softmax of the eager model, and the worst.

    None if the model computes something else under eager attention, as some do with their masks,
    or does not execute the same calls.
    """
    try:
        eager = built(type(model), attention="eager")
        judge = Judge(eager)
        with judge:
            outcome = run(eager, inputs)
    except Exception:  # some have no eager attention
        return 0, 0.0
    if judge.fused or len(judge.attended) != len(calls) or not _alike(run(model, inputs), outcome):
        return 0, 0.0
    pairs = list(zip(calls, judge.attended.values(), strict=True))
    differences = [gap for call, real in pairs if (gap := _gap(call, real)) is not None]
    return len(differences), max(differences, default=0.0)


def _gap(call: Any, real: Tensor) -> float | None:
    """Largest difference of all weights of a call, None where the model arranges them otherwise."""
    from attnviz import attention

    batches = call.value.shape[0]
    read = torch.stack(
        [
            torch.stack([attention.weights(call, head, batch) for head in range(call.heads)])
            for batch in range(batches)
        ]
    )
    if real.shape[-1] == read.shape[-1] + 1:  # a sink has a column of its own
        real = real[..., :-1]
    elif call.sinks is not None:  # or shrinks the output after the softmax
        read = read / read.sum(-1, keepdim=True).clamp(min=1e-30)
    if real.numel() != read.numel() or real.shape[-2:] != read.shape[-2:]:
        return None
    shown = read.any(-1, keepdim=True)  # rows of padding are hidden on purpose
    gap = float(((real.reshape(read.shape) - read).abs() * shown).max())
    return max(0.0, gap - ROUNDINGS * torch.finfo(torch.float32).eps * _largest_logit(call))


def _largest_logit(call: Any) -> float:
    """What rounding is measured by: a softmax is as wrong as its logits, which may be large."""
    from attnviz import attention

    if call.query is None:
        return 0.0
    logits = [attention.logits(call, head) for head in range(call.heads)]
    return max(float(each.nan_to_num(0.0, 0.0, 0.0).abs().max()) for each in logits)


def _faults(call: Any, head: int) -> Iterator[str]:
    """What is wrong with the weights of one head."""
    from attnviz import attention
    from attnviz.capture import TOLERANCE

    weights = attention.weights(call, head, call.value.shape[0] - 1)
    if not bool(weights.isfinite().all()) or bool((weights < 0).any()):
        yield "weights are not finite and positive"
        return
    sums = weights.sum(-1)
    blind = (weights == 0).all(-1)
    if call.sinks is None and bool(((sums - 1).abs() > 1e-4)[~blind].any()):
        yield "a row of weights does not sum to 1"
    if bool((sums > 1 + 1e-4).any()):
        yield "a row of weights sums to more than 1"
    if bool(blind.any()) and call.mask is None and call.key_padding is None:
        yield "a row sees nothing though nothing is masked"
    # An output is a mean of values, so it is no larger than they are.
    allowed = TOLERANCE[call.value.dtype] * max(float(call.value.abs().max()), 1e-6)
    if not call.max_error <= allowed:
        yield f"max_error {call.max_error:.2g} is above {allowed:.2g}"


def _deterministic(model: hf.PreTrainedModel, inputs: Inputs) -> bool:
    """Whether plain runs with two seeds give the same."""
    one, other = (_tensors(run(model, inputs, seed)) for seed in (2, 3))
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _tensors(output: Any) -> list[Tensor]:
    parts = tuple(output.values()) if isinstance(output, Mapping) else output
    return [leaf for leaf in tree_leaves(parts) if isinstance(leaf, Tensor)]


# --- many classes, in workers of their own ---------------------------------------------------


def worker(connection: Any) -> None:
    """Examine the classes whose names come in, until none comes."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as it lives
    warnings.simplefilter("ignore")
    hf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    classes = model_classes()
    while (name := connection.recv()) is not None:
        started = time.process_time()
        finding = examined(name, classes[name])
        finding.seconds = time.process_time() - started
        connection.send(dataclasses.asdict(finding))


class Worker:
    """A process that examines one class at a time, replaced when it hangs or dies."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(module_names())
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.connection, theirs = self.context.Pipe()
        self.process = self.context.Process(target=worker, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    def examine(self, name: str, model_type: str) -> Finding:
        """The finding on one class."""
        reason = f"It did not finish within {SECONDS_AT_MOST:.0f} s."
        try:
            self.connection.send(name)
            if self.connection.poll(SECONDS_AT_MOST):
                return Finding(**self.connection.recv())
        except (EOFError, OSError):
            reason = "Its process died."
        self.stop()
        self.start()
        return Finding(name, model_type, reason=reason)


def sweep(workers: int, only: Iterable[str] = (), *, one_per_type: bool = False) -> list[Finding]:
    """Examine the classes of every model type, or of some, or one built class of each."""
    queue: SimpleQueue[list[tuple[str, str]]] = SimpleQueue()
    for model_type, names in classes_by_type().items():
        if not only or model_type in only:
            queue.put([(name, model_type) for name in names])

    def work() -> list[Finding]:
        process, findings = Worker(), []
        try:
            while True:
                names = queue.get_nowait()
                for name, model_type in names[:TRIES_PER_TYPE] if one_per_type else names:
                    findings.append(process.examine(name, model_type))
                    if one_per_type and findings[-1].built:
                        break
        except Empty:
            return findings
        finally:
            process.stop()

    with ThreadPoolExecutor(workers) as pool:
        done = [pool.submit(work) for _ in range(workers)]
    findings = [finding for each in done for finding in each.result()]
    return sorted(findings, key=lambda finding: (finding.model_type, finding.name))


def classes_by_type() -> dict[str, list[str]]:
    """Names of the classes of each model type, its base class first."""
    by_type: dict[str, list[str]] = defaultdict(list)
    for name, model_class in model_classes().items():
        by_type[type_of(model_class)].append(name)
    for names in by_type.values():
        names.sort(key=lambda name: (not name.endswith("Model"), "For" in name, len(name)))
    return dict(sorted(by_type.items()))


# --- the table -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of some classes together, of one type or of all."""

    findings: tuple[Finding, ...]

    def having(self, condition: Callable[[Finding], bool]) -> int:
        """How many findings are so."""
        return sum(map(condition, self.findings))

    @property
    def counts(self) -> dict[str, int]:
        """Classes by what became of them."""
        attending = [finding for finding in self.findings if finding.attentions]
        read = [finding for finding in attending if finding.status == "read"]
        return {
            "classes": len(self.findings),
            "built": self.having(lambda finding: finding.built),
            "attend": len(attending),
            "read": len(read),
            "in part": sum(finding.calls < finding.attentions for finding in read),
            "refused": sum(finding.status == "refused" for finding in attending),
            "raised": self.having(lambda finding: finding.status == "raised"),
            "not built": self.having(lambda finding: not finding.built),
        }


def by_type(findings: Iterable[Finding]) -> dict[str, Verdict]:
    """The findings of each model type."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.model_type].append(finding)
    return {name: Verdict(tuple(group)) for name, group in sorted(groups.items())}


def table(findings: Sequence[Finding]) -> str:
    """The whole report as Markdown."""
    return "\n".join([INTRODUCTION, *_totals(findings), *_reasons(findings), *_types(findings), ""])


INTRODUCTION = f"""# Every model class of transformers {hf.__version__}

Written by `python -m benchmarks.every_model`, which says how classes are built, run and judged.
"Attend" are those that execute softmax attention, as their own operators tell without attnviz;
"in part" are those read classes of which fewer attentions were read than executed, the others
being named as unread with their reason. Checked on every call read: weights of the first and
last head are finite, rows sum to 1 (to at most 1 with a sink), the recomputed output is within
the tolerance; on every read model that is deterministic: outputs with and without recording are
equal, and where its eager attention can be matched call by call, all weights equal its own
softmax to {EAGER_TOLERANCE:g}.
"""


def _totals(findings: Sequence[Finding]) -> list[str]:
    types = by_type(findings)
    counts = Verdict(tuple(findings)).counts
    rows = ["| | classes | model types |", "|---|---|---|"]
    for name, count in counts.items():
        label = {"classes": "all", "attend": "execute softmax attention"}.get(name, name)
        if name == "not built":
            of_types = sum(not verdict.counts["built"] for verdict in types.values())
        elif name == "refused":
            of_types = sum(
                bool(verdict.counts["refused"] and not verdict.counts["read"])
                for verdict in types.values()
            )
        else:
            of_types = sum(bool(verdict.counts[name]) for verdict in types.values())
        rows.append(f"| {label} | {count:,} | {of_types:,} |")
    share = counts["read"] / max(1, counts["attend"])
    calls = sum(finding.calls for finding in findings)
    compared = sum(finding.compared for finding in findings)
    return [
        *rows,
        "",
        f"Read: {share:.1%} of the classes that execute softmax attention. {calls:,} calls were "
        f"read and verified; the weights of {compared:,} of them were compared with the eager "
        "model's own.",
        "",
    ]


def _reasons(findings: Sequence[Finding]) -> list[str]:
    """Everything that did not go well, grouped by reason."""
    attending = [finding for finding in findings if finding.attentions]
    still = [f for f in findings if f.status == "refused" and not f.attentions]
    sections = {
        "Problems": _grouped((f.problems, f) for f in findings),
        "Raised": _grouped(([f.reason], f) for f in findings if f.status == "raised"),
        "Refused, though they execute softmax attention": _grouped(
            ([_clause(f)], f) for f in attending if f.status == "refused"
        ),
        "Layers unread in read classes": _grouped(
            (sorted({unread.split(": ", 1)[1] for unread in f.unread}), f)
            for f in findings
            if f.status == "read"
        ),
        "Refused, and execute none": _grouped(([_clause(f)], f) for f in still),
        "Not built": _grouped(([_without_numbers(f.reason)], f) for f in findings if not f.built),
    }
    lines = []
    for title, reasons in sections.items():
        lines += [f"## {title}", "", *(reasons or ["None."]), ""]
    return lines


def _clause(finding: Finding) -> str:
    return finding.reason.replace(finding.name, "", 1).strip()


def _without_numbers(reason: str) -> str:
    return re.sub(r"(?<![\w.])\d+(\.\d+)?", "N", reason)


def _grouped(pairs: Iterable[tuple[Iterable[str], Finding]]) -> list[str]:
    """One line per reason, the most frequent first, with its model types."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for reasons, finding in pairs:
        for reason in reasons:
            groups[reason].append(finding)
    lines = []
    for reason, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        types = sorted({finding.model_type for finding in found})
        named = ", ".join(types[:8]) + (f" and {len(types) - 8} more" if len(types) > 8 else "")
        lines.append(f"- {len(found)}: {_plain(reason)} ({named})")
    return lines


def _plain(reason: str) -> str:
    """A message that Markdown shows as it is, not too long."""
    cut = reason if len(reason) <= 160 else f"{reason[:157]} …"
    return re.sub(r"([|<>*_`\[\]])", r"\\\1", cut)


def _types(findings: Sequence[Finding]) -> list[str]:
    names = ("classes", "built", "attend", "read", "in part", "refused", "raised")
    rows = [f"| model type | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for model_type, verdict in by_type(findings).items():
        counts = verdict.counts
        figures = " | ".join(str(counts[name] or "") for name in names)
        rows.append(f"| {model_type} | {figures} |")
    return ["## By model type", "", *rows]


def main() -> None:
    """Sweep and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=(), metavar="TYPE")
    parser.add_argument("--one-per-type", action="store_true")
    parser.add_argument("--findings", type=Path, help="also write every finding as JSON here")
    options = parser.parse_args()
    findings = sweep(options.workers, options.only, one_per_type=options.one_per_type)
    if options.findings:
        rows = [dataclasses.asdict(finding) for finding in findings]
        options.findings.write_text(json.dumps(rows, indent=1))
    if not options.only and not options.one_per_type:
        TABLE.write_text(table(findings))


if __name__ == "__main__":
    main()
