"""What the chosen model's layers do with the scale and the projections, in words, cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import card_sentences as sentences
from attnviz.ui import cards, cells
from attnviz.ui.readings import Asked, NotServed, loaded, served

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnviz.anatomy import Heads, LayerAnatomy
    from attnviz.attention_call import AttentionCall
    from attnviz.surroundings import Origin, Projection, Wiring

BRIEF = 100  # characters: every model reads so short a text, whatever its tokens
UNTOLD = "not told by the capture"
UNIT = 1e-4  # how far from 1 the lengths of keys may be that were brought to 1


@dataclass(frozen=True)
class Own:
    """What layers of the chosen model do, layers that do the same together.

    `facts` are names and values, `names` the rows of `published` that these layers belong to,
    `remark` says what is unusual in them, "" where nothing is.
    """

    facts: tuple[tuple[str, str], ...]
    names: tuple[str, ...] = ()
    remark: str = ""
    layers: str = ""


def scales(asked: Asked, part: str) -> tuple[Own, ...]:
    """The scale of every layer of a part; raises `NotServed` where the model cannot be read."""
    return _scales(_readable(asked), part)


def projections(asked: Asked, part: str) -> tuple[Own, ...]:
    """What makes q, k and v in every layer of a part; raises `NotServed` like `scales`."""
    return _projections(_readable(asked), part)


def caption(asked: Asked, part: str) -> str:
    """The line under what was read of a part."""
    from attnviz.anatomy import LayerGroup

    asked = _readable(asked)
    card, layers = cards.card(asked), _layers(asked, part)
    numbers = f"{len(layers)} layers" if len(layers) > 1 else "1 layer"
    return " · ".join(
        ["real", card.title, part, numbers, sentences.badge(card, LayerGroup(layers))]
    )


def _readable(asked: Asked) -> Asked:
    """The same question, or one with the beginning of its texts where they are too long.

    How a model's attention is built does not depend on what it reads.
    """
    try:
        served(asked)
    except NotServed:
        texts = {name: getattr(asked, name)[:BRIEF] for name in ("text", "target", "pair")}
        return replace(asked, **texts)
    return asked


def _layers(asked: Asked, part: str) -> tuple[LayerAnatomy, ...]:
    """The layers of a part, those that were not read included."""
    calls = served(asked).calls(part).values()
    places = {(call.tower, call.kind) for call in calls}
    return tuple(x for x in cards.card(asked).layers if (x.tower, x.kind) in places)


def _together(
    layers: Iterable[LayerAnatomy], told: Callable[[LayerAnatomy], Own]
) -> tuple[Own, ...]:
    """Layers of which the same is told, in the order of the first of each."""
    groups: dict[Own, list[LayerAnatomy]] = {}
    for layer in layers:
        groups.setdefault(told(layer), []).append(layer)
    return tuple(replace(own, layers=_named(group)) for own, group in groups.items())


def _unread(layer: LayerAnatomy, facts: Iterable[str]) -> Own:
    return Own(tuple((name, UNTOLD) for name in facts), remark=f"not read. {layer.unread}")


def _named(layers: Sequence[LayerAnatomy]) -> str:
    several = "layers" if len(layers) > 1 else "layer"
    return f"{several} {sentences.numbers([layer.layer for layer in layers])}"


def _module(asked: Asked, layer: LayerAnatomy) -> nn.Module:
    return loaded(asked.model).model.get_submodule(layer.module)


# --- the scale

SCALE_FACTS = (
    "d_k",
    "q·k is multiplied by",
    "as a multiple of 1/√d_k",
    "norm of q and k",
    "soft cap",
    "learned sink",
)


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _scales(asked: Asked, part: str) -> tuple[Own, ...]:
    calls = served(asked).calls(part)

    def told(layer: LayerAnatomy) -> Own:
        if layer.heads is None:
            return _unread(layer, SCALE_FACTS)
        return _scale(layer, layer.heads, _module(asked, layer), calls[layer.layer])

    return _together(_layers(asked, part), told)


def _scale(layer: LayerAnatomy, heads: Heads, module: nn.Module, call: AttentionCall) -> Own:
    from attnviz.anatomy import LayerGroup
    from attnviz.published import scale_names

    lengths = _query_lengths(call)
    values = (
        UNTOLD if heads.d_k is None else str(heads.d_k),
        _factor(heads, lengths),
        _multiple(heads) if lengths is None else "none: d_k plays no part",
        _norms(heads, module) if lengths is None else "to length 1",
        "none" if heads.softcap is None else f"{heads.softcap:g}",
        "one logit a head" if heads.sinks else "none",
    )
    remarks = sentences.remarks(LayerGroup((layer,))) if lengths is None else []
    return Own(
        tuple(zip(SCALE_FACTS, values, strict=True)),
        tuple(scale_names(heads, cosine=lengths is not None)),
        " ".join(remarks),
    )


def _factor(heads: Heads, lengths: Tensor | None) -> str:
    if lengths is not None:
        least, most = float(lengths.min()), float(lengths.max())
        return f"{least:.3g} to {most:.3g}, learned head by head: q·k is a cosine"
    return UNTOLD if heads.d_k is None else sentences.scale(heads)


def _multiple(heads: Heads) -> str:
    if heads.scale.rule == "1/(√d_k · (layer + 1))":
        return "1/(layer + 1)"
    if heads.scale.value is None or heads.d_k is None:
        return UNTOLD
    return f"{heads.scale.value * heads.d_k**0.5:.3g}"


def _query_lengths(call: AttentionCall) -> Tensor | None:
    """The lengths of the queries where all keys have length 1, None where they do not."""
    if call.query is None or call.key is None:
        return None
    off = (call.key.float().norm(dim=-1) - 1).abs().max()
    return call.query.float().norm(dim=-1) if float(off) <= UNIT else None


def _norms(heads: Heads, module: nn.Module) -> str:
    """The norms that queries and keys pass, by the names of the model's own parts."""
    from attnviz.families import norms_of_queries_and_keys

    norms = norms_of_queries_and_keys(module)
    if not norms:
        return UNTOLD if heads.d_k is None else "none"
    learned = any(list(norm.parameters()) for norm in norms.values())
    return f"{sentences.listed(list(norms))}, {'with' if learned else 'without'} a learned gain"


# --- the projections

PROJECTION_FACTS = ("heads", "q is made by", "k is made by", "v is made by", "W_O", "which is")


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _projections(asked: Asked, part: str) -> tuple[Own, ...]:
    known: dict[object, Own] = {}

    def told(layer: LayerAnatomy) -> Own:
        if layer.heads is None:
            return _unread(layer, PROJECTION_FACTS)
        built = _build(layer, layer.heads, _module(asked, layer))
        if built not in known:  # the model runs once more for each kind of layer, not for each
            known[built] = _projection(layer, layer.heads, cells.wiring(asked, part, layer.layer))
        return known[built]

    return _together(_layers(asked, part), told)


def _build(layer: LayerAnatomy, heads: Heads, module: nn.Module) -> object:
    """What layers have in common that are built alike."""
    parts = tuple(
        (name, tuple(weight.shape))
        for name, weight in module.named_parameters()
        if weight.dim() > 1
    )
    return heads.heads, heads.kv_heads, heads.d_k, heads.d_v, layer.twice, parts


def _projection(layer: LayerAnatomy, heads: Heads, wires: Wiring) -> Own:
    from attnviz.published import projection_names

    names = tuple(projection_names(layer, wires))
    out = wires.output.projection if wires.output else None
    values = (
        sentences.who_reads_whom(heads),
        *(_made_by(x, layer.module) for x in (wires.query, wires.key, wires.value)),
        UNTOLD if out is None else _matrix(out, layer.module),
        "; ".join(name for name in names if not name.startswith("W_O")) or UNTOLD,
    )
    return Own(tuple(zip(PROJECTION_FACTS, values, strict=True)), names)


def _made_by(origin: Origin | None, module: str) -> str:
    """The matrices whose products a role's vectors are."""
    if origin is None:
        return UNTOLD
    used = [int(which) for which in origin.which.unique()]
    told = [_matrix(origin.projections[which], module) for which in used if which >= 0]
    return sentences.listed([*told, UNTOLD] if -1 in used else told)


def _matrix(projection: Projection, module: str) -> str:
    """A matrix by its name within its layer, with its widths."""
    into, out = projection.weight.shape[1], projection.weight.shape[0]
    told = f"{_within(projection.name, module)} ({into} → {out})"
    inner = projection.inner
    return told if inner is None else f"{told} after {_matrix(inner, module)}"


def _within(name: str, module: str) -> str:
    """What is left of a matrix's path without what it has in common with its attention's."""
    steps, place = name.removesuffix(".weight").split("."), module.split(".")
    same = next(
        (
            index
            for index, (one, other) in enumerate(zip(steps, place, strict=False))
            if one != other
        ),
        min(len(steps) - 1, len(place)),
    )
    return ".".join(steps[same:])
