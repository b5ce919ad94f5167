"""What models with attention of their own compute: an independent reference by forward hooks.

Queries, keys and values come from the module's own projections, split and rotated here in plain
torch; the output of every head is what enters the output projection. The weights are those that
the model returns, and the logits their logarithms: each row up to a constant. Falcon alone
returns other weights than it uses, so its logits are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from unittest import mock

import torch
import transformers as hf
from eager_reference import Reference
from seen_modules import Part, seen_by_hooks, split_heads
from torch import Tensor, nn


@dataclass(frozen=True)
class Projected:
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    unrotated: tuple[Tensor, Tensor] | None = None


def rotated(tensor: Tensor, *, interleaved: bool) -> Tensor:
    """Each pair of dimensions turned by position · 10000^(−2i/d), as complex numbers."""
    tokens, width = tensor.shape[-2:]
    angles = torch.arange(tokens)[:, None] * 1e4 ** (-torch.arange(0, width, 2) / width)
    if interleaved:
        turned = torch.view_as_complex(tensor.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(turned * torch.polar(torch.ones(()), angles)).flatten(-2)
    one, other = tensor.chunk(2, dim=-1)
    turned = torch.complex(one, other) * torch.polar(torch.ones(()), angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def bloom(part: Part) -> Projected:
    query, key, value = part.fused("query_key_value", 5, 3, 11).permute(3, 0, 2, 1, 4)
    return Projected(query, key, value, 11**-0.5)


def mpt(part: Part) -> Projected:
    query, key, value = part.fused("Wqkv", 3, 6, 11).permute(2, 0, 3, 1, 4)
    return Projected(query, key, value, 11**-0.5)


def falcon(part: Part) -> Projected:
    """One key head for all, one for each group of two, or one for each head."""
    config = part.module.config
    if config.alibi:
        query, key, value = part.fused("query_key_value", 5, 3, 12).permute(3, 0, 2, 1, 4)
        return Projected(query, key, value, 12**-0.5)
    if config.new_decoder_architecture:
        groups = part.fused("query_key_value", 3, 4, 10).transpose(1, 2)
        query = groups[:, :, :, :2].transpose(2, 3).flatten(1, 2)
        key, value = groups[:, :, :, 2], groups[:, :, :, 3]
    else:
        every = part.fused("query_key_value", 7, 12).transpose(1, 2)
        query, key, value = every[:, :5], every[:, 5:6], every[:, 6:]
    turned = (rotated(query, interleaved=False), rotated(key, interleaved=False))
    return Projected(*turned, value, query.shape[-1] ** -0.5, unrotated=(query, key))


def gpt_neo(part: Part) -> Projected:
    query, key, value = (part.heads(name, 5) for name in ("q_proj", "k_proj", "v_proj"))
    return Projected(query, key, value, 1.0)


def deberta(part: Part) -> Projected:
    terms = 1 + len(part.module.pos_att_type)  # content, and each kind of position term
    query, key, value = part.fused("in_proj", 5, 3, 11).permute(3, 0, 2, 1, 4)
    query = query + part.module.q_bias.reshape(5, 1, 11)
    value = value + part.module.v_bias.reshape(5, 1, 11)
    return Projected(query, key, value, (11 * terms) ** -0.5)


def deberta_v2(part: Part) -> Projected:
    terms = 1 + len(part.module.pos_att_type)
    names = ("query_proj", "key_proj", "value_proj")
    return Projected(*(part.heads(name, 5) for name in names), (11 * terms) ** -0.5)


def mpnet(part: Part) -> Projected:
    return Projected(*(part.heads(name, 5) for name in "qkv"), 11**-0.5)


def roformer(part: Part) -> Projected:
    query, key, value = (part.heads(name, 5) for name in ("query", "key", "value"))
    turned = (rotated(query, interleaved=True), rotated(key, interleaved=True))
    if part.module.rotary_value:
        value = rotated(value, interleaved=True)
    return Projected(*turned, value, 14**-0.5, unrotated=(query, key))


def bert(part: Part) -> Projected:
    query, key, value = (part.heads(name, 5) for name in ("query", "key", "value"))
    return Projected(query, key, value, 11**-0.5)


def convbert(part: Part) -> Projected:
    query, key, value = (part.heads(name, 3) for name in ("query", "key", "value"))
    return Projected(query, key, value, 11**-0.5)


def funnel(part: Part) -> Projected:
    query, key, value = (part.heads(f"{name}_head", 5) for name in "qkv")
    return Projected(query + part.module.r_w_bias.reshape(5, 1, 11), key, value, 11**-0.5)


# The class of the attention modules, what their projections say, and where the output of the
# heads enters its projection, seen from the module.
READERS: dict[str, tuple[str, Callable[[Part], Projected], str]] = {
    "bloom": ("BloomAttention", bloom, ".dense"),
    "mpt": ("MptAttention", mpt, ".out_proj"),
    "falcon": ("FalconAttention", falcon, ".dense"),
    "gpt_neo": ("GPTNeoSelfAttention", gpt_neo, ".out_proj"),
    "deberta": ("DisentangledSelfAttention", deberta, "/output.dense"),
    "deberta-v2": ("DisentangledSelfAttention", deberta_v2, "/output.dense"),
    "mpnet": ("MPNetSelfAttention", mpnet, ".o"),
    "roformer": ("RoFormerSelfAttention", roformer, "/output.dense"),
    "convbert": ("ConvBertSelfAttention", convbert, "/output.dense"),
    "big_bird": ("BigBirdSelfAttention", bert, "/output.dense"),
    "funnel": ("FunnelRelMultiheadAttention", funnel, ".post_proj"),
}


@dataclass(frozen=True)
class OwnReference(Reference):
    scale: float
    unrotated: tuple[Tensor, Tensor] | None = None


def own_reference(model: hf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[OwnReference]:
    """Every attention call of one run, in order."""
    if model.config.model_type == "xlnet":
        return _xlnet(model, inputs)
    truthful = {} if model.config.model_type == "falcon" else {"output_attentions": True}
    with seen_by_hooks(model) as seen, torch.no_grad():
        result = model(**inputs, **truthful)
        class_name, read, place = READERS[model.config.model_type]
        parts = [
            Part(module, path, seen)
            for path, module in model.named_modules()
            if type(module).__name__ == class_name
        ]
        projected = [read(part) for part in parts]
    if truthful:
        weights = result.attentions
    else:
        weights = [
            falcon_logits(part.module, each).softmax(-1)
            for part, each in zip(parts, projected, strict=True)
        ]
    return [
        OwnReference(
            part.module,
            each.query,
            each.key,
            each.value,
            rows.log(),
            rows,
            _output(part, place, rows.shape[1]),
            each.scale,
            each.unrotated,
        )
        for part, each, rows in zip(parts, projected, weights, strict=True)
    ]


def _output(part: Part, place: str, heads: int) -> Tensor:
    """The output of every head; ConvBERT's convolutions follow those of its attention."""
    path = part.path + place if place[0] == "." else part.path.rpartition(".")[0] + "." + place[1:]
    entered = part.seen.inputs[path]
    if type(part.module).__name__ == "ConvBertSelfAttention":
        return split_heads(entered, 2 * heads)[:, :heads]
    return split_heads(entered, heads)


def falcon_logits(module: nn.Module, projected: Projected) -> Tensor:
    """Causal scores over √d_k, with ALiBi divided too: once under sdpa, twice under eager."""
    heads, tokens = projected.query.shape[1:3]
    key = projected.key.repeat_interleave(heads // projected.key.shape[1], dim=1)
    logits = projected.query @ key.mT
    if module.config.alibi:
        times = 2 if module.config._attn_implementation == "eager" else 1
        logits = logits + times * alibi_slopes(heads).reshape(-1, 1, 1) * torch.arange(tokens)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return (logits * projected.scale).masked_fill(later, -torch.inf)


def alibi_slopes(heads: int) -> Tensor:
    """Press et al. 2022: 2^(−8i/n); for five heads those of four, and the first of eight."""
    assert heads == 5
    return torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2])


def _xlnet(model: hf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[OwnReference]:
    """Its core function is given queries, keys and values; it knows one output projection less."""
    attention = hf.models.xlnet.modeling_xlnet.XLNetRelativeAttention
    core, noted = attention.rel_attn_core, []

    def noting(part, query, key, value, *others, **named):
        output, weights = core(part, query, key, value, *others, **named)
        heads_first = (x.permute(1, 2, 0, 3) for x in (query + part.r_w_bias, key, value))
        rows = weights.permute(2, 3, 0, 1)
        noted.append(
            OwnReference(part, *heads_first, rows.log(), rows, output.permute(1, 2, 0, 3), 14**-0.5)
        )
        return output, weights

    with mock.patch.object(attention, "rel_attn_core", noting), torch.no_grad():
        model(**inputs, output_attentions=True)
    return noted
