"""What a module's place in a model says: its tower, its kind of attention, its layer.

The one place that knows how model families name their parts.
"""

from __future__ import annotations

import re
from typing import Literal

from torch import nn
from transformers import PreTrainedModel

Tower = Literal["decoder", "encoder", "text", "vision", "audio"]
Kind = Literal["self", "cross"]

CROSS = re.compile(r"cross|encoder_attn|encdecattention", re.IGNORECASE)
AUDIO_INPUTS = {"input_features", "input_values"}


def kind_of(path: str, module: nn.Module) -> Kind:
    """Whether the keys come from another sequence than the queries."""
    cross = CROSS.search(path) or getattr(module, "is_cross_attention", False)
    return "cross" if cross else "self"


def tower_of(model: PreTrainedModel, path: str, module: nn.Module) -> Tower:
    """The part of the model that the attention module at this path belongs to."""
    parts = path.lower().split(".")
    if any("vision" in part for part in parts) or model.main_input_name == "pixel_values":
        return "vision"
    if any(part.startswith("text") for part in parts):
        return "text"
    if any("decoder" in part for part in parts):
        return "decoder"
    if any("audio" in part for part in parts) or model.main_input_name in AUDIO_INPUTS:
        return "audio"
    if any("encoder" in part for part in parts):
        return "decoder" if getattr(model.config, "is_decoder", False) else "encoder"
    return "decoder" if getattr(module, "is_causal", False) else "encoder"


def layer_of(path: str, module: nn.Module) -> int | None:
    """The layer that the module names itself, else the first number in its path."""
    layer = getattr(module, "layer_idx", None)
    if isinstance(layer, int):
        return layer
    numbers = re.findall(r"(?<=\.)\d+(?=\.|$)", f".{path}")
    return int(numbers[0]) if numbers else None
