"""One model at a time: all that is known of it and of its layers, cached, and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.readings import Asked, NotServed, loaded, served, warning

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.anatomy import LayerAnatomy, LayerGroup
    from attnviz.models import LoadedModel


@dataclass(frozen=True)
class Card:
    """A model, and what was read of its layers on one input.

    Of a model that could not be read the layers are what its configuration says of them, and
    `recording_difference` is None. `tolerance` is the difference, relative to the largest of the
    values that a layer mixes, beyond which it is not shown.
    """

    title: str
    warning: str | None
    model_type: str
    parameters: int
    d_model: int | None
    d_models: Mapping[str, int]
    dtype: str
    stored_dtype: str
    placement: str
    layers: tuple[LayerAnatomy, ...]
    groups: tuple[LayerGroup, ...]
    table: pd.DataFrame
    recording_difference: float | None
    tolerance: float
    rows_checked: int

    @property
    def was_read(self) -> bool:
        """Whether the model ran and was watched."""
        return self.recording_difference is not None


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def card(asked: Asked) -> Card:
    """The card of a model that was read; raises `NotServed` where it cannot be."""
    from attnviz.anatomy import anatomy

    reading, model = served(asked), loaded(asked.model)
    layers = anatomy(model.model, reading.capture)
    return _card(model, layers, reading.recording_difference)


def unread_card(name: str, problem: NotServed) -> Card | None:
    """What is known of a model that cannot be read, None where that is not why it is not."""
    from attnviz.capture import UnreadableModel
    from attnviz.inputs import UnusableModel

    if not isinstance(problem.__cause__, (UnreadableModel, UnusableModel)):
        return None
    return _outlined(name, str(problem))


@st.cache_resource(max_entries=8, show_spinner=False)
def _outlined(name: str, problem: str) -> Card:
    from attnviz.anatomy import outline

    model = loaded(name)
    return _card(model, outline(model.model, problem), None)


def _card(
    model: LoadedModel,
    layers: tuple[LayerAnatomy, ...],
    difference: float | None,
) -> Card:
    from attnviz import frames
    from attnviz.anatomy import grouped
    from attnviz.verification import ROWS_CHECKED, TOLERANCE

    return Card(
        title=model.card.title,
        warning=warning(model),
        model_type=model.card.model_type,
        parameters=model.card.parameters,
        d_model=model.card.d_model,
        d_models=model.card.d_models,
        dtype=model.card.dtype,
        stored_dtype=model.card.stored_dtype,
        placement=model.card.placement,
        layers=layers,
        groups=grouped(layers),
        table=frames.layer_table(layers),
        recording_difference=difference,
        tolerance=TOLERANCE[model.model.dtype],
        rows_checked=ROWS_CHECKED,
    )


def marks(card: Card, group: int) -> pd.DataFrame:
    """The layers as they are drawn, those of one group chosen."""
    from attnviz import frames

    several = len(card.groups) > 1
    return frames.layer_marks(card.layers, card.groups[group].layers if several else ())


def family_tree(card: Card, group: int) -> pd.DataFrame | None:
    """Which key and value head each query head of a group reads, None where it was not read."""
    from attnviz import frames

    heads = card.groups[group].first.heads
    return frames.family_tree(heads.heads, heads.kv_heads) if heads else None
