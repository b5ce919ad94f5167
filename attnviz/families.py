"""What a module's place in a model says: its tower, its kind of attention, its layer.

The one place that knows how model families name their parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

Tower = Literal["decoder", "encoder", "text", "vision", "audio"]
Kind = Literal["self", "cross"]

CROSS = re.compile(
    r"cross|encoder_attn|encdecattention|encoder_decoder_att|x_attn|(?<!dif)fusion|bimultihead"
    r"|x_layers\.\d+\.visual_attention",
    re.IGNORECASE,
)
# What the parts of a path say of the tower, the first that fits; else what the model takes in.
TOWERS: dict[str, Tower] = {
    r"vision|visual|image": "vision",
    r"decoder": "decoder",
    r"^text": "text",
    r"audio|speech|acoustic": "audio",
}
MAIN_INPUTS: dict[str, Tower] = {
    "pixel_values": "vision",
    "pixel_values_videos": "vision",
    "flattened_patches": "vision",
    "input_features": "audio",
    "input_values": "audio",
}


def kind_of(path: str, module: nn.Module) -> Kind:
    """Whether the keys come from another sequence than the queries."""
    cross = CROSS.search(path) or CROSS.search(type(module).__name__)
    return "cross" if cross or getattr(module, "is_cross_attention", False) else "self"


def tower_of(model: PreTrainedModel, path: str, module: nn.Module) -> Tower:
    """The part of the model that the attention module at this path belongs to."""
    parts = path.lower().split(".")
    for pattern, tower in TOWERS.items():
        if any(re.search(pattern, part) for part in parts):
            return tower
    is_causal = bool(getattr(module, "is_causal", False))
    if any(part.startswith("language") for part in parts):
        return "decoder" if is_causal else "text"
    if model.main_input_name in MAIN_INPUTS:
        return MAIN_INPUTS[model.main_input_name]
    if any("encoder" in part for part in parts):
        return "decoder" if getattr(model.config, "is_decoder", False) else "encoder"
    return "decoder" if is_causal else "encoder"


def layer_of(path: str, module: nn.Module) -> int | None:
    """The layer that the module names itself, else the first number in its path."""
    stated = stated_layer(module)
    return next(iter(numbers_in(path)), None) if stated is None else stated


def stated_layer(module: nn.Module) -> int | None:
    """The number that a module has of its layer; one that many layers share says -1."""
    layer = getattr(module, "layer_idx", None)
    return layer if isinstance(layer, int) and layer >= 0 else None


def numbers_in(path: str) -> tuple[int, ...]:
    """The places in lists of modules that a path goes through."""
    return tuple(int(part) for part in path.split(".") if part.isdecimal())


Reach = Literal["global", "local", "chunked", "sparse", "linear", "none"]
Projections = Literal["split", "fused", "partly fused", "latent"]
Positions = Literal["learned", "fixed", "convolution"]

# What configurations call the kinds of their layers, under `layer_types` and its older names.
REACHES: dict[str, Reach] = {
    "full_attention": "global",
    "attention": "global",
    "global": "global",
    "sliding_attention": "local",
    "local": "local",
    "chunked_attention": "chunked",
    "indexed_attention": "sparse",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "sparse",
    "linear_attention": "linear",
    "mamba": "none",
    "conv": "none",
    "recurrent": "none",
}
LAYER_KINDS = ("layers_block_type", "attention_layers", "layer_types")  # the more exact ones first
WINDOWS: dict[Reach, tuple[str, ...]] = {
    "local": ("sliding_window", "window_size", "attention_window_size"),
    "chunked": ("attention_chunk_size",),
}
QUERY_OR_KEY_NORM = re.compile(r"(q|k|qk|query|key)_(layer_?)?norms?|norm_(q|k|query|key)")
FUSED = re.compile(
    r"c_attn|w?qkv(_(proj|linear))?|query_key_value|in_proj(_qkv)?|att_proj|w_pack|kqv(_proj)?",
    re.IGNORECASE,
)
KEY_AND_VALUE = re.compile(r"(to_)?kv(_proj)?|key_value|qk_proj")
QUERY_ALONE = re.compile(r"wq|(to_|linear_)?q(uery)?(_(b_)?(proj(ection)?|lin(ear)?|attn))?")
LATENT = re.compile(r"(q|kv)_a_proj(_with_mqa)?|kv_down_proj")
POSITION_TABLE = re.compile(
    r"wpe|(embed_)?positions?(_embed(ding)?s?)?|pos(ition|itional)?_embed(ding)?s?"
)
ROTARY = re.compile(r"rotary|rope", re.IGNORECASE)
# Their query projection starts out smaller by √d_k, so that the scores need no division then.
STARTS_DIVIDED = re.compile(r"(m|um|long)?t5|switch_transformers|pix2struct.*|pop2piano|udop")
# Entries of a configuration that may give the scale: as its power.
SCALE_SETTINGS = {"query_pre_attn_scalar": -0.5, "attention_multiplier": 1.0}


def reach_of(module: nn.Module, config: PretrainedConfig, layer: int) -> tuple[Reach, int] | None:
    """Which keys the configuration lets a layer see, and its window; None if it says nothing.

    The window is 0 where there is none.
    """
    for part in module.children():
        if isinstance(area := getattr(part, "window_area", None), int):
            return "local", area  # Swin: patches are attended to window by window
    config = getattr(module, "config", config)
    for name in LAYER_KINDS:
        kinds = getattr(config, name, None)
        if isinstance(kinds, list | tuple) and layer < len(kinds) and kinds[layer] in REACHES:
            reach = REACHES[kinds[layer]]
            if reach == "linear" and "mamba" in config.model_type:
                reach = "none"
            sizes = [getattr(config, size, None) for size in WINDOWS.get(reach, ())]
            return reach, next((size for size in sizes if isinstance(size, int)), 0)
    return None


def normalises_query_or_key(module: nn.Module) -> bool:
    """Whether queries or keys pass a norm of their own inside the attention module."""
    return bool(norms_of_queries_and_keys(module))


def norms_of_queries_and_keys(module: nn.Module) -> dict[str, nn.Module]:
    """The norms that an attention module has for its queries and keys (QK-norm), by name."""
    return {
        name: child
        for name, child in module.named_children()
        if QUERY_OR_KEY_NORM.fullmatch(name) and not isinstance(child, nn.Identity)
    }


def projections_of(module: nn.Module) -> Projections | None:
    """Whether one matrix makes queries, keys and values; None where no name tells."""
    names = [name for name, _ in module.named_children()]
    if any(LATENT.fullmatch(name) for name in names):
        return "latent"
    apart = any(QUERY_ALONE.fullmatch(name) for name in names)
    if any(KEY_AND_VALUE.fullmatch(name) for name in names):
        return "partly fused"
    if any(FUSED.fullmatch(name) for name in names):
        return "partly fused" if apart else "fused"
    return "split" if apart else None


def input_positions(model: PreTrainedModel, path: str) -> Positions | None:
    """How positions are added to what the module at this path works on, None if they are not."""
    for name, table in _position_tables(model, path):
        if name.endswith("pos_conv_embed"):
            return "convolution"
        return "learned" if _is_learned(table) else "fixed"
    return None


def position_tables(model: PreTrainedModel, path: str) -> dict[str, Tensor]:
    """The tables of vectors, by name, that are added to tokens for their places."""
    return {
        name if isinstance(table, Tensor) else f"{name}.weight": tensor
        for name, table in _position_tables(model, path)
        if isinstance(tensor := getattr(table, "weight", table), Tensor)
    }


def _position_tables(model: PreTrainedModel, path: str) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """What stands for positions beside the layers that it serves, or in the embeddings there."""
    tables = {
        **{name: child for name, child in model.named_modules() if name},
        **dict(model.named_parameters()),
        **dict(model.named_buffers()),
    }
    for name, table in tables.items():
        owner, _, leaf = name.rpartition(".")
        owner = re.sub(r"(^|\.)[a-z_]*embeddings?$", "", owner)
        beside = f"{path}.".startswith(f"{owner}." if owner else "")
        if beside and (leaf == "pos_conv_embed" or POSITION_TABLE.fullmatch(leaf)):
            yield name, table


def _is_learned(table: nn.Module | Tensor) -> bool:
    if isinstance(table, Tensor):
        return table.requires_grad
    return any(weight.requires_grad for weight in table.parameters())


def has_rotation(model: PreTrainedModel) -> bool:
    """Whether the model has a part that rotates queries and keys by their position."""
    return any(ROTARY.search(name.rpartition(".")[2]) for name, _ in model.named_modules())


def scale_setting(
    module: nn.Module, config: PretrainedConfig, scale: float
) -> tuple[str, float] | None:
    """The entry of the configuration that gives just this scale, and its value."""
    config = getattr(module, "config", config)
    for name, power in SCALE_SETTINGS.items():
        value = getattr(config, name, None)
        if isinstance(value, int | float) and value > 0 and abs(value**power / scale - 1) < 1e-4:
            return name, float(value)
    return None


def starts_divided(config: PretrainedConfig) -> bool:
    """Whether the family divides the start values of its query projection, never the scores."""
    return STARTS_DIVIDED.fullmatch(config.model_type) is not None


# What computes no softmax over all keys, by a part of its class name.
OTHER_ATTENTION = {
    r"Longformer\w*SelfAttention|LEDEncoderSelfAttention": (
        "its attention runs in a band: each query's softmax covers a window of keys, not all"
    ),
    r"LongT5(Local|TransientGlobal)Attention|PegasusX\w*LocalAttention": (
        "its attention runs in blocks: each query's softmax covers the keys of its "
        "neighbourhood, not all"
    ),
    r"BigBird\w*BlockSparseAttention": (
        "its sparse attention runs in blocks, some of them chosen at random; load it with "
        "attention_type “original_full” to see whole rows"
    ),
    r"LSHSelfAttention|ReformerAttention": (
        "it sorts queries by a hash and attends within buckets, so no row over all keys exists"
    ),
    r"NystromformerSelfAttention": (
        "it approximates attention by a few landmarks (low rank), so no row over all keys exists"
    ),
    r"Mamba|Rwkv|\bxLSTM|SSM|RecurrentBlock|RgLru|GatedDelta|KimiDelta|Linear\w*Attention": (
        "it carries a recurrent state and has no softmax attention"
    ),
    r"FNet\w*Fourier|FNetFourierTransform": (
        "it mixes tokens by a Fourier transform and has no softmax attention"
    ),
    r"ShortConv": "it mixes neighbouring tokens by a convolution and has no softmax attention",
}


def other_attention(module: nn.Module) -> str | None:
    """What a part of this module does instead of softmax attention, None if nothing known."""
    for part in module.modules():
        for pattern, reason in OTHER_ATTENTION.items():
            if re.search(pattern, type(part).__name__):
                return reason
    return None


def has_attention(module: nn.Module) -> bool:
    """Whether any part of this module calls itself attention."""
    return any("Attention" in type(part).__name__ for part in module.modules())


def layer_stacks(model: nn.Module, known: Collection[str] = ()) -> list[tuple[str, nn.ModuleList]]:
    """The outermost lists of layers, by their paths.

    Those that hold attention, or what stands in its place, or a module at a known path.
    """
    stacks: list[tuple[str, nn.ModuleList]] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{stack}.") for stack, _ in stacks)
        if inside or not isinstance(module, nn.ModuleList):
            continue
        if any_below(path, known) or other_attention(module) or has_attention(module):
            stacks.append((path, module))
    return stacks


def any_below(path: str, known: Iterable[str]) -> bool:
    """Whether any of the known paths is this one, or lies below it."""
    return any(module.startswith(f"{path}.") or module == path for module in known)


def writes_alone(model: PreTrainedModel) -> bool:
    """Whether a model writes text without an encoder: its one stack is a decoder's."""
    return model.can_generate() and not model.config.is_encoder_decoder


def why_no_attention(layer: nn.Module, ran: bool = True) -> str:
    """Why a layer shows nothing, in a clause."""
    if known := other_attention(layer):
        return known
    if not has_attention(layer):
        return "it has no softmax attention that attnviz can see"
    if not ran:
        return "it takes no part in what the model computes on this input"
    return "its attention is computed in steps that attnviz cannot follow"
