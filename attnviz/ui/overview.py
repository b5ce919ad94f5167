"""All heads of a model on one input: small pictures and numbers, layer by layer, cached.

A layer that was worked out stays so when a visitor leaves before the last one is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.charts.mosaic import PartOfHeads
from attnviz.ui.readings import Asked, Reading, served
from attnviz.ui.sentences import PART_NAMES

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from attnviz.capture import AttentionCall

PATIENCE = 0.4  # seconds from which on a bar tells how far the work is


@dataclass(frozen=True)
class Statistic:
    """One number per head: its field in `CallStatistics`, and what a high one means.

    `of_a_text` is True where it says something only if queries and keys are the same words.
    """

    field: str
    high: str
    of_a_text: bool = False


STATISTICS = {
    "entropy, relative to uniform": Statistic(
        "relative_entropy", "1: every visible key has the same weight; 0: one key has it all"
    ),
    "effective number of keys": Statistic(
        "effective_keys", "high: a token looks at many keys; 1: at a single one"
    ),
    "largest weight": Statistic(
        "largest_weight", "high: most of each token's weight lies on one key"
    ),
    "weight on the previous token": Statistic(
        "previous_token", "high: each token looks at the one before it", of_a_text=True
    ),
    "weight on the first token": Statistic(
        "first_token", "high: all later tokens look at the first one, an attention sink", True
    ),
    "weight on itself": Statistic("diagonal", "high: each token looks at itself", of_a_text=True),
    "mean distance, in tokens": Statistic("distance", "high: tokens look far away", of_a_text=True),
    "share of the learned sink": Statistic(
        "sink", "high: most of the weight goes to a learned number and to no token"
    ),
}


def overview(asked: Asked) -> tuple[PartOfHeads, ...]:
    """All heads of every part, with a bar while it takes long.

    Raises `NotServed` as `served` does. Each layer is kept, and so little is lost when the
    visitor leaves.
    """
    reading = served(asked, None)
    todo = [(part, layer) for part in reading.parts for layer in reading.calls(part)]
    place, start = st.empty(), time.monotonic()
    done = {}
    for at, (part, layer) in enumerate(todo):
        if time.monotonic() - start > PATIENCE:
            place.progress(at / len(todo), f"Layer {layer}, {PART_NAMES[part]}")
        done[part, layer] = _layer(asked, part, layer, reading)
    place.empty()
    return tuple(_part(reading, part, done) for part in reading.parts)


def statistics(parts: tuple[PartOfHeads, ...]) -> dict[str, str]:
    """The statistics that some head of these has, each with what a high one means."""
    return {
        name: one.high
        for name, one in STATISTICS.items()
        if any(part.table[name].notna().any() for part in parts)
    }


@dataclass(frozen=True)
class _Layer:
    """Thumbnails (head, down, across) and a row a head."""

    thumbnails: np.ndarray
    table: pd.DataFrame


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _layer(asked: Asked, part: str, layer: int, _reading: Reading) -> _Layer:
    from attnviz.thumbnails import side_for, thumbnails

    call = _reading.calls(part)[layer]
    heads = sum(one.heads for one in _reading.capture.calls)
    return _Layer(thumbnails(call, side_for(heads)).numpy(), _table(_reading, call))


def _table(reading: Reading, call: AttentionCall) -> pd.DataFrame:
    import pandas as pd

    from attnviz.call_statistics import of_all_heads

    found, of_a_text = of_all_heads(call), reading.of_a_text(call)
    heads = range(call.heads)
    columns: dict[str, list[float]] = {
        "layer": [call.layer] * call.heads,
        "head": list(heads),
        "kv_head": [call.kv_head(head) for head in heads],
    }
    for name, statistic in STATISTICS.items():
        values = getattr(found, statistic.field)
        told = values is not None and (of_a_text or not statistic.of_a_text)
        columns[name] = values.tolist() if told else [float("nan")] * call.heads
    return pd.DataFrame(columns)


def _part(reading: Reading, part: str, done: dict[tuple[str, int], _Layer]) -> PartOfHeads:
    import pandas as pd

    layers = {layer: one for (of, layer), one in done.items() if of == part}
    return PartOfHeads(
        part=part,
        title=PART_NAMES[part],
        thumbnails={layer: one.thumbnails for layer, one in layers.items()},
        table=pd.concat([one.table for one in layers.values()], ignore_index=True),
        unread=tuple(reading.unread(part)),
    )
