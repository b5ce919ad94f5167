"""One head's weights as a picture in which a cell is chosen by pointer, finger or arrow keys.

The choice is Python's: lists and links change it too. The browser shows its own newest choice at
once, numbers it and tells it; what Python sends says which number it has heard last, so that an
answer to an older choice does not move the frame back.

Picture and choice are two components: Streamlit sends what has not changed only once, and so a
choice does not send the picture again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import streamlit as st

from attnviz.charts import matrix as picture
from attnviz.charts import theme

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 36**2 - 1  # that two base-36 digits hold
USUAL_DECIMALS, MOST_DECIMALS = 3, 7
HOW_TO = (
    "queries down, keys across. Arrow keys choose another cell, Home and End the first and the "
    "last key."
)
HTML = """
<div class="picker">
  <div class="reading" aria-hidden="true">
    <span class="query"></span><span class="arrow">  →  </span><span class="key"></span
    ><span class="weight"></span>
  </div>
  <div class="figure">
    <div class="key-title" aria-hidden="true"></div>
    <div class="key-labels" aria-hidden="true"></div>
    <div class="query-title" aria-hidden="true"></div>
    <div class="query-labels" aria-hidden="true"></div>
    <div class="plot" tabindex="0" role="application" aria-describedby="told">
      <canvas></canvas>
      <div class="frame row"></div><div class="frame column"></div>
      <div class="frame pointed"></div><div class="frame chosen"></div>
    </div>
  </div>
  <div class="scale">
    <span class="ends"><span>weight 0</span><canvas></canvas><span class="top"></span></span>
    <span class="hidden"><span class="swatch"></span>hidden by the mask</span>
    <span class="merged">each dot: the largest of its cells</span>
  </div>
  <div id="told" aria-live="polite"></div>
</div>
"""
# Leaves the choice where the picture's script finds it, and says that it is there.
CHOICE = """
export default function ({ data }) {
  globalThis.attnvizChoices ??= new Map();
  globalThis.attnvizChoices.set(data.picker, data);
  document.dispatchEvent(new CustomEvent("attnviz-choice", { detail: data.picker }));
}
"""
_mount_choice = st.components.v2.component("attnviz_cell_choice", js=CHOICE)
_mount_picture = st.components.v2.component(
    "attnviz_cell_picker",
    html=HTML,
    css=Path(__file__).with_suffix(".css").read_text(encoding="utf-8"),
    js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
)


def cell_picker(
    matrix: pd.DataFrame,
    queries: pd.DataFrame,
    keys: pd.DataFrame,
    chosen: tuple[int, int],
    *,
    label: str,
    key: str,
    on_change: Callable[[int, int], None],
    visible: pd.DataFrame | None = None,
    cross: bool = False,
    side: int = theme.MATRIX_SIDE,
) -> None:
    """Draw a `weight_matrix` and frame the chosen cell, a query's and a key's position.

    When a visitor chooses another cell, `on_change` is called with its two positions before the
    script runs again, as callbacks of widgets are. `label` says which head it is. `side` is the
    largest length of the picture in pixels; it is smaller where there is less room. Cells that
    `visible` hides are drawn as such, and can be chosen like others.
    """

    def tell() -> None:
        cell = told(st.session_state.get(key), queries, keys)
        if cell is not None:
            on_change(*cell)

    choice = {
        "picker": key,
        "of": _digest(queries, keys),
        "chosen": [int(position) for position in chosen],
        "answered": answered(st.session_state.get(key)),
    }
    data = _drawn(matrix, queries, keys, visible, cross) | {
        "picker": key,
        "of": choice["of"],
        "label": f"{label}: {HOW_TO}",
        "look": _look(side),
    }
    with st.container(gap=None):
        _mount_choice(key=f"{key}_choice", data=choice)
        _mount_picture(key=key, data=data, on_cell_change=tell)


def told(state: object, queries: pd.DataFrame, keys: pd.DataFrame) -> tuple[int, int] | None:
    """The cell that a browser has told of, None where that is no cell of this picture."""
    message = _message(state)
    query = _position(message.get("query"), queries)
    key = _position(message.get("key"), keys)
    if query is None or key is None or message.get("of") != _digest(queries, keys):
        return None
    return query, key


def answered(state: object) -> int:
    """The number of the choice that was heard last; 0 before the first."""
    number = _message(state).get("number")
    return number if type(number) is int and 0 < number < 2**53 else 0


def _message(state: object) -> Mapping[str, Any]:
    """What a browser has sent, which may be anything."""
    cell = state.get("cell") if isinstance(state, Mapping) else None
    return cell if isinstance(cell, Mapping) else {}


def _position(said: object, tokens: pd.DataFrame) -> int | None:
    """What was said, if it is a token's position; True and 1.0 are none, though they equal 1."""
    return said if type(said) is int and said in set(tokens["position"]) else None


def _digest(queries: pd.DataFrame, keys: pd.DataFrame) -> str:
    """A name for the tokens: a choice among others says nothing of these."""
    columns = [
        tokens[name].tolist() for tokens in (queries, keys) for name in ("position", "token")
    ]
    return f"{crc32(repr(columns).encode()):08x}"


def _drawn(
    matrix: pd.DataFrame,
    queries: pd.DataFrame,
    keys: pd.DataFrame,
    visible: pd.DataFrame | None,
    cross: bool,
) -> dict[str, Any]:
    """What the picture shows, whichever cell is chosen."""
    top = float(matrix.to_numpy().max())
    decimals = _decimals(top)
    of_queries, of_keys = picture.axis_titles(cross)
    return {
        "cells": _cells(matrix, visible, decimals),
        "decimals": decimals,
        "top": top,
        "top_written": f"{top:.2g}",
        "palette": picture.palette(),
        "queries": _axis(queries, of_queries),
        "keys": _axis(keys, of_keys),
    }


def _decimals(top: float) -> int:
    """How many decimals two digits hold where `top` is the largest weight: small ones have more."""
    if top <= 0:
        return USUAL_DECIMALS
    return min(floor(log10(LARGEST / top)), MOST_DECIMALS)


def _cells(matrix: pd.DataFrame, visible: pd.DataFrame | None, decimals: int) -> str:
    weights = matrix.to_numpy(dtype=float)
    hidden = None if visible is None else ~visible.to_numpy() & (weights == 0)
    return picture.encode_cells(weights * 10.0 ** (decimals - USUAL_DECIMALS), hidden)


def _axis(tokens: pd.DataFrame, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "words": tokens["token"].tolist(),
        "positions": tokens["position"].tolist(),
    }


def _look(side: int) -> dict[str, Any]:
    return {
        "side": side,
        "flattest": theme.FLATTEST,
        "labelled": theme.LABELLED_TOKENS,
        "label_room": theme.LABEL_ROOM,
        "label_limit": picture.LABEL_LIMIT,
        "font_size": theme.FONT_SIZE,
        "title_size": theme.TITLE_SIZE,
        "real": theme.REAL,
    }
