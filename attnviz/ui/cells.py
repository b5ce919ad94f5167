"""One cell of one head: every number of it, cached, and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import streamlit as st

from attnviz.ui import heads
from attnviz.ui.readings import Asked, loaded, served

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.cell import Cell
    from attnviz.distance import DistanceCurve
    from attnviz.ui.heads import Head
    from attnviz.wiring import Wiring


@dataclass(frozen=True)
class AddedTo:
    """What a table of positions adds to the two tokens, d_model numbers each.

    None where its vectors are not one for each token.
    """

    name: str
    query: Tensor | None
    key: Tensor | None


@dataclass(frozen=True)
class Worked:
    """A worked-out cell and the head that it is in, with all that its page says.

    `query` and `key` are positions. `group` is how many query heads share the key and value
    head. `query_factor` is what the model multiplies the query by before the product (1 if
    nothing), a part of the scale that a paper means. `norm` says that queries or keys pass a norm
    of their own. `tower` is the part of the model that the layer is in. `added_positions` is None
    where no table of positions is added to the tokens.
    """

    head: Head
    cell: Cell
    query: int
    key: int
    kind: Literal["self", "cross"]
    tower: str
    group: int
    query_factor: float
    norm: bool
    curves: tuple[DistanceCurve, ...]
    added_positions: AddedTo | None = None


def worked(asked: Asked, head: Head, query: int, key: int) -> Worked:
    """Work out one cell of a head that is on screen."""
    return _worked(asked, head.part, head.layer, head.head, query, key)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _worked(asked: Asked, part: str, layer: int, index: int, query: int, key: int) -> Worked:
    from attnviz.cell import cell
    from attnviz.distance import distance_curves
    from attnviz.families import normalises_query_or_key

    call = served(asked).calls(part)[layer]
    wires = wiring(asked, part, layer)
    module = loaded(asked.model).model.get_submodule(call.module)
    return Worked(
        head=heads.head(asked, part, layer, index),
        cell=cell(call, wires, index, query, key),
        query=query,
        key=key,
        kind=call.kind,
        tower=call.tower,
        group=call.heads // call.kv_heads,
        query_factor=call.query_factor,
        norm=normalises_query_or_key(module),
        curves=distance_curves(call, index, query, key),
        added_positions=_added(wires, query, key),
    )


def _added(wires: Wiring, query: int, key: int) -> AddedTo | None:
    table = wires.positions
    if table is None:
        return None
    if table.vectors is None:
        return AddedTo(table.name, None, None)
    return AddedTo(table.name, table.vectors[query], table.vectors[key])


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def wiring(asked: Asked, part: str, layer: int) -> Wiring:
    """What surrounds a layer's attention: the model runs once more for it."""
    from attnviz.wiring import wiring

    reading = served(asked)
    call = reading.calls(part)[layer]
    return wiring(loaded(asked.model).model, reading.inputs.tensors, reading.capture, call)
