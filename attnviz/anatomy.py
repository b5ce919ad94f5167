"""What kind of attention each layer of a model has: the model's card, layer by layer.

What a call tells is taken from the call, never from a configuration: heads, widths, scale,
soft cap, sinks, window, rotation, bias. Only what no call can tell (norms, projections, tables
of positions, the kind of a layer whose window is wider than the text) comes from the module
that made it, by the names in `families`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from attnviz import families
from attnviz.capture import AttentionCall, Capture, UnreadLayer
from attnviz.families import Kind, Projections, Reach, Tower

Position = Literal[
    "rotary",
    "relative bias",
    "position terms",
    "ALiBi",
    "learned",
    "fixed",
    "convolution",
    "not known",
    "none",
]
ScaleRule = Literal[
    "1/√d_k",
    "1/d_k",
    "1",
    "1/√(2 · d_k)",
    "1/√(3 · d_k)",
    "1/(√d_k · (layer + 1))",
    "another",
    "not known",
]
ScaleReason = Literal["start values", "norm", "query", "setting"]

SAME_SCALE = 1e-3  # relative; scales may be rounded, no two rules are so near
DISTANCES = 3  # different distances that it takes to see that a bias is linear in them


@dataclass(frozen=True)
class Scale:
    """The factor on q·k, the rule that it follows, and where it departs from 1/√d_k, why.

    `value` is None where it differs from layer to layer, or is not known. `setting` is the
    entry of the configuration that gives just this value.
    """

    rule: ScaleRule
    value: float | None
    reason: ScaleReason | None = None
    setting: tuple[str, float] | None = None


@dataclass(frozen=True)
class Heads:
    """How the heads of a layer that was read work; widths are None where they were not seen.

    `rotated` is the number of the d_k dimensions that turn with the position, None where that
    cannot be told.
    """

    heads: int
    kv_heads: int
    d_k: int | None
    d_v: int
    scale: Scale
    causal: bool
    position: Position
    softcap: float | None
    sinks: bool
    norm: bool
    projections: Projections | None
    dtype: str
    rotated: int | None = None


@dataclass(frozen=True)
class LayerAnatomy:
    """One layer of a tower: what it can see, and its heads, or the reason why it shows none.

    `window` is the number of tokens that it sees, None where it sees all. `reach` is None where
    nothing tells what an unread layer does. `n` is the number of queries and of keys. `tiled`
    says that a picture was cut into tiles, whose patches see only one another,
    and `twice` that the same weights are used for two parts of the values.
    """

    layer: int
    tower: Tower
    kind: Kind
    module: str
    reach: Reach | None
    window: int | None
    n: tuple[int, int] | None
    heads: Heads | None
    max_error: float | None
    unread: str | None
    tiled: bool = False
    twice: bool = False


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one tower and kind that differ in nothing but their number and their error."""

    layers: tuple[LayerAnatomy, ...]

    @property
    def first(self) -> LayerAnatomy:
        """The layer that stands for all."""
        return self.layers[0]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the layers, in order."""
        return tuple(layer.layer for layer in self.layers)

    @property
    def max_error(self) -> float | None:
        """The largest error of all, None if they were not read."""
        errors = [layer.max_error for layer in self.layers if layer.max_error is not None]
        return max(errors, default=None)


def anatomy(model: PreTrainedModel, capture: Capture, batch: int = 1) -> tuple[LayerAnatomy, ...]:
    """Every layer of a captured run on so many inputs, tower by tower, the decoder last."""
    # Where nothing was seen to rotate although the model can, no layer is said to do without.
    blind = families.has_rotation(model) and not any(
        call.query_unrotated is not None for call in capture.calls
    )
    twice = _attending_twice(capture.calls)
    read = [_read(model, call, blind, batch) for call in capture.calls]
    read = [replace(layer, twice=layer.module in twice) for layer in read]
    layers = [*read, *(_unread(model, layer) for layer in capture.unread)]
    towers = list(dict.fromkeys((layer.tower, layer.kind) for layer in layers))
    towers.sort(key=lambda place: place[0] == "decoder")
    layers.sort(key=lambda layer: (towers.index((layer.tower, layer.kind)), layer.layer))
    return tuple(
        layer
        for _, tower in groupby(layers, key=lambda layer: (layer.tower, layer.kind))
        for layer in _as_a_tower(_once_each(tower))
    )


def outline(model: PreTrainedModel, reason: str) -> tuple[LayerAnatomy, ...]:
    """What is known of the layers of a model that cannot be read, for this reason."""
    layers = [
        _unread(model, UnreadLayer(number, _tower(model, path), f"{path}.{number}", reason))
        for path, stack in families.layer_stacks(model)
        for number in range(len(stack))
    ]
    return tuple(sorted(layers, key=lambda layer: layer.tower == "decoder"))


def _tower(model: PreTrainedModel, stack: str) -> Tower:
    """The tower of a stack of layers; one alone is a decoder where the model writes."""
    tower = families.tower_of(model, stack, model)
    return "decoder" if families.writes_alone(model) and tower == "encoder" else tower


def grouped(layers: Sequence[LayerAnatomy]) -> tuple[LayerGroup, ...]:
    """Like layers together, in the order of the first of each."""
    groups: dict[LayerAnatomy, list[LayerAnatomy]] = {}
    for layer in layers:
        alike = replace(layer, layer=0, module="", max_error=None)
        groups.setdefault(alike, []).append(layer)
    return tuple(LayerGroup(tuple(group)) for group in groups.values())


def _read(model: PreTrainedModel, call: AttentionCall, blind: bool, batch: int) -> LayerAnatomy:
    module = _module_at(model, call.module)
    tiled = _in_tiles(call, batch)
    reach, window = ("local", call.n[1]) if tiled else _reach(call, module, model.config)
    heads = _heads(model, call, module)
    if blind and heads.position == "none" and call.kind == "self":
        heads = replace(heads, position="not known")
    return LayerAnatomy(
        layer=call.layer,
        tower=call.tower,
        kind=call.kind,
        module=call.module,
        reach=reach,
        window=window,
        n=call.n,
        heads=heads,
        max_error=call.max_error,
        unread=None,
        tiled=tiled,
    )


def _in_tiles(call: AttentionCall, batch: int) -> bool:
    """Whether the tiles of a picture stand beside each other as if they were pictures."""
    return call.tower == "vision" and len(call.value) > batch


def _attending_twice(calls: Sequence[AttentionCall]) -> set[str]:
    """Modules that use one and the same queries and keys for several values."""
    first: dict[str, AttentionCall] = {}
    pairs = [(first.setdefault(call.module, call), call) for call in calls]
    return {call.module for before, call in pairs if before is not call and _alike(before, call)}


def _alike(one: AttentionCall, other: AttentionCall) -> bool:
    return all(
        a is not None and b is not None and torch.equal(a, b)
        for a, b in ((one.query, other.query), (one.key, other.key))
    )


def _unread(model: PreTrainedModel, layer: UnreadLayer) -> LayerAnatomy:
    module = _module_at(model, layer.module)
    named = families.reach_of(module, model.config.get_text_config(), layer.layer)
    reach, window = named or (None, 0)
    return LayerAnatomy(
        layer=layer.layer,
        tower=layer.tower,
        kind=families.kind_of(layer.module, module),
        module=layer.module,
        reach=reach,
        window=window or None,
        n=None,
        heads=None,
        max_error=None,
        unread=layer.reason,
    )


def _module_at(model: PreTrainedModel, path: str) -> nn.Module:
    """The module that made a call, the model where the path leads nowhere."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        return model


def _heads(model: PreTrainedModel, call: AttentionCall, module: nn.Module) -> Heads:
    norm = families.normalises_query_or_key(module)
    return Heads(
        heads=call.heads,
        kv_heads=call.kv_heads,
        d_k=call.d_k,
        d_v=call.d_v,
        scale=_scale(model, call, module, norm),
        causal=_hides_later_keys(call),
        position=_position(model, call),
        softcap=call.softcap,
        sinks=call.sinks is not None,
        norm=norm,
        projections=families.projections_of(module),
        dtype=str(call.value.dtype).removeprefix("torch."),
        rotated=_rotated(call),
    )


def _rotated(call: AttentionCall) -> int | None:
    """How many dimensions differ before and after rotation; half precision hides slow turns."""
    if call.query is None or call.query_unrotated is None or call.n[0] < 2:
        return None
    if call.query.dtype != torch.float32:
        return None
    return int((call.query != call.query_unrotated).flatten(0, 2).any(0).sum())


def _reach(
    call: AttentionCall, module: nn.Module, config: PretrainedConfig
) -> tuple[Reach, int | None]:
    """What a layer sees, by its call; by its name only where the text is too short to tell."""
    named, size = families.reach_of(module, config, call.layer) or ("global", 0)
    if call.window is not None:
        return ("chunked" if named == "chunked" else "local"), call.window
    if named == "sparse":
        return "sparse", None
    told = call.kind == "self" and max(call.n) <= size
    return (named, size) if told and named in ("local", "chunked") else ("global", None)


def _hides_later_keys(call: AttentionCall) -> bool:
    if call.kind == "cross" or call.mask is None or call.mask.shape[-1] < 2:
        return False
    return not bool(call.mask.triu(1).any())


def _scale(model: PreTrainedModel, call: AttentionCall, module: nn.Module, norm: bool) -> Scale:
    """The whole factor, the part that the model put into the query included."""
    if call.d_k is None:
        return Scale("not known", None)
    value = call.scale * call.query_factor
    rules: tuple[tuple[ScaleRule, float], ...]
    rules = (("1/√d_k", call.d_k**-0.5), ("1", 1.0), ("1/d_k", 1 / call.d_k))
    if call.bias is not None:  # the sum of two or three products has that many times the variance
        rules += (
            ("1/√(2 · d_k)", (2 * call.d_k) ** -0.5),
            ("1/√(3 · d_k)", (3 * call.d_k) ** -0.5),
        )
    near = [name for name, expected in rules if abs(value / expected - 1) < SAME_SCALE]
    rule = near[0] if near else "another"
    if rule == "1":
        return Scale(rule, value, _why_not_divided(model, norm))
    if abs(call.query_factor - 1) > SAME_SCALE:
        return Scale(rule, value, "query")
    setting = None if rule == "1/√d_k" else families.scale_setting(module, model.config, value)
    return Scale(rule, value, "setting" if setting else None, setting)


def _why_not_divided(model: PreTrainedModel, norm: bool) -> ScaleReason | None:
    if families.starts_divided(model.config):
        return "start values"
    return "norm" if norm else None


def _position(model: PreTrainedModel, call: AttentionCall) -> Position:
    if call.query_unrotated is not None:
        return "rotary"
    if call.bias is not None:
        return _kind_of_bias(call)
    if call.kind == "cross":
        return "none"
    if call.query is None:  # the terms of positions may be in the weights, unseen
        return "not known"
    return families.input_positions(model, call.module) or "none"


def _kind_of_bias(call: AttentionCall) -> Position:
    """How a bias depends on the places of query and key: evenly, by distance, or otherwise.

    In pictures a distance goes two ways; there it is not told from the numbers.
    """
    assert call.bias is not None
    if _linear_in_distance(call.bias, call.mask):
        return "ALiBi"
    by_distance = call.tower == "vision" or _same_along_diagonals(call.bias, call.mask)
    return "relative bias" if by_distance else "position terms"


def _same_along_diagonals(
    bias: Float[Tensor, "#batch #head query key"],
    mask: Bool[Tensor, "#batch #head query key"] | None,
) -> bool:
    changes = (bias[..., 1:, 1:] - bias[..., :-1, :-1]).abs()
    if mask is not None:
        changes = changes.masked_fill(~(mask[..., 1:, 1:] & mask[..., :-1, :-1]), 0.0)
    return bool((changes <= _rounding(bias)).all())


def _rounding(bias: Tensor) -> float:
    """How much two numbers of a bias may differ that were meant to be equal."""
    return max(1e-4, 4 * torch.finfo(bias.dtype).eps) * float(bias.abs().max())


def _linear_in_distance(
    bias: Float[Tensor, "#batch #head query key"],
    mask: Bool[Tensor, "#batch #head query key"] | None,
) -> bool:
    """Whether the bias of every head falls by the same amount per token of distance.

    A number added to a whole row changes no weight, so rows are compared by their differences
    from their own mean over the keys that they see.
    """
    queries, keys = bias.shape[-2:]
    apart = (torch.arange(queries)[:, None] - torch.arange(keys)).abs().double()
    visible = torch.ones(1, queries, keys, dtype=torch.bool)
    if mask is not None:
        visible = mask[0].expand(-1, queries, keys)
    if not _tells_distances(visible):
        return False
    added, apart = (_from_row_means(x, visible) for x in (bias[0].double(), apart[None]))
    slopes = (added * apart).sum((-2, -1), keepdim=True) / (apart**2).sum((-2, -1), keepdim=True)
    return bool(slopes.any() and (added - slopes * apart).abs().max() < _rounding(bias))


def _tells_distances(visible: Bool[Tensor, "head query key"]) -> bool:
    return int(visible.sum(-1).max()) >= DISTANCES


def _from_row_means(values: Tensor, visible: Tensor) -> Tensor:
    """Values less the mean of their row, 0 where a key is hidden."""
    values = values.masked_fill(~visible, 0.0)
    mean = values.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp(min=1)
    return (values - mean).masked_fill(~visible, 0.0)


def _once_each(layers: Iterable[LayerAnatomy]) -> list[LayerAnatomy]:
    """Calls of one layer as one, with the larger error: DiffLlama makes two a layer."""
    once: dict[int, LayerAnatomy] = {}
    for layer in layers:
        before = once.setdefault(layer.layer, layer)
        if layer.max_error is not None and before.max_error is not None:
            once[layer.layer] = replace(before, max_error=max(before.max_error, layer.max_error))
    return list(once.values())


def _as_a_tower(layers: list[LayerAnatomy]) -> list[LayerAnatomy]:
    """Recognise a scale that falls with the layer's number, which one layer cannot tell."""
    read = [layer for layer in layers if layer.heads]
    if len(read) < 2 or not all(map(_divides_by_its_number, read)):
        return layers
    scale = Scale("1/(√d_k · (layer + 1))", None)
    return [
        replace(layer, heads=replace(layer.heads, scale=scale)) if layer.heads else layer
        for layer in layers
    ]


def _divides_by_its_number(layer: LayerAnatomy) -> bool:
    heads = layer.heads
    if heads is None or heads.d_k is None or heads.scale.value is None:
        return False
    return abs(heads.scale.value * heads.d_k**0.5 * (layer.layer + 1) - 1) < SAME_SCALE
