"""Queries and keys before rotation, from the projections and norms of each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import transformers as hf
from seen_modules import Part, seen_by_hooks
from torch import Tensor

Pair = tuple[Tensor, Tensor]
ATTENTION = ("self_attn", "attention", "attn")  # what the attention module of a layer is called


def by_head(tensor: Tensor, tokens: int) -> Tensor:
    """(batch, head, token, d) of a tensor that may have token before head."""
    return tensor if tensor.shape[2] == tokens else tensor.transpose(1, 2)


def projections(part: Part) -> Pair:
    """What two projections gave, or the norms of each head behind them."""
    width = part.module.head_dim
    seen = (part.seen.outputs[f"{part.path}.{name}_proj"] for name in "qk")
    query, key = (tensor.unflatten(-1, (-1, width)).transpose(1, 2) for tensor in seen)
    return query, key


def norms_of_heads(part: Part) -> Pair:
    tokens = part.seen.inputs[f"{part.path}.k_proj"].shape[1]
    query, key = (by_head(part.seen.outputs[f"{part.path}.{name}_norm"], tokens) for name in "qk")
    return query, key


def norms_of_all_heads(part: Part) -> Pair:
    return part.heads("q_norm", 6), part.heads("k_norm", 3)


def norms_after_rotation(part: Part) -> Pair:
    """Llama 4 divides by the root mean square, which a rotation leaves as it is."""
    query, key = (x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() for x in projections(part))
    return query, key


def phi3(part: Part) -> Pair:
    query, key, _ = part.seen.outputs[f"{part.path}.qkv_proj"].split([84, 42, 42], dim=-1)
    return query.unflatten(-1, (6, 14)).transpose(1, 2), key.unflatten(-1, (3, 14)).transpose(1, 2)


def gpt_neox(part: Part) -> Pair:
    query, key, _ = part.fused("query_key_value", 5, 3, 14).permute(3, 0, 2, 1, 4)
    return query, key


def modernbert(part: Part) -> Pair:
    query, key, _ = part.fused("Wqkv", 3, 5, 14).permute(2, 0, 3, 1, 4)
    return query, key


def deepseek_v3(part: Part) -> Pair:
    """Each head has seven dimensions that are not rotated; six that are, one key for all."""
    shared = part.seen.outputs[f"{part.path}.kv_a_proj_with_mqa"][..., 19:]
    own = part.fused("kv_b_proj", 5, 7 + 11)[:, 0, ..., :7].transpose(1, 2)
    key = torch.cat([own, shared[:, None].expand(-1, 5, -1, -1)], dim=-1)
    return part.heads("q_b_proj", 5), key


READERS: dict[str, Callable[[Part], Pair]] = {
    **dict.fromkeys(("qwen3", "qwen3_moe", "gemma3_text", "qwen3_next"), norms_of_heads),
    "olmo2": norms_of_all_heads,
    "llama4_text": norms_after_rotation,
    "phi3": phi3,
    "gpt_neox": gpt_neox,
    "modernbert": modernbert,
    "deepseek_v3": deepseek_v3,
}


def unrotated_reference(model: hf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[Pair]:
    """Query and key before rotation of each layer that has softmax attention, in order."""
    read = READERS.get(model.config.model_type, projections)
    with seen_by_hooks(model) as seen, torch.no_grad():
        model(**inputs)
    return [
        read(Part(module, path, seen))
        for path, module in model.named_modules()
        if path.rpartition(".")[2] in ATTENTION
    ]
