"""A text in its own order, each token shaded by how much one query looks at it.

Text and shades are two components: another query sends its row of weights and not the text again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import streamlit as st
from jaxtyping import Float, Int

from attnviz.charts import theme
from attnviz.charts.levels import levels
from attnviz.ui import choosing

if TYPE_CHECKING:
    import pandas as pd

MOST_TOKENS = 2000  # of a text that is shown as a whole; of a longer one
SHOWN_TOKENS = 1000  # are shown
LINE_BREAK = "⏎"  # in the label of a token that ends a line
HOW_TO = (
    "the text in reading order. Click or arrow keys choose the token that looks; each token is "
    "shaded and read out with its weight."
)
HTML = """
<div class="drawing">
  <div class="text" role="listbox" aria-multiselectable="false"></div>
  <div class="scale" aria-hidden="true">
    <span class="ends"
      ><span class="low"></span><span class="ramp"></span><span class="top"></span></span>
    <span class="looks"><span class="swatch outlined"></span>the token that looks</span>
    <span class="masked"><span class="swatch dotted"></span>hidden by the mask</span>
  </div>
</div>
"""
_drawing = choosing.drawing("reading_order", HTML)


def reading_order(
    row: pd.Series,
    keys: pd.DataFrame,
    query: int | None,
    *,
    label: str,
    key: str,
    on_choose: Callable[[int], None],
    quantity: str = "weight",
    top: float | None = None,
) -> None:
    """Shade the `keys` by the weights of one query's row, which are in their order.

    `query` is the position of the token that looks, None if it is not one of this text, as in
    cross-attention. When a visitor chooses another token, `on_choose` is called with its position
    before the script runs again. What is NaN is hidden. `quantity` is what the numbers are; the
    darkest shade is that of `top`, by default of the largest. Of more than 2,000 tokens the 1,000
    nearest to the query and to its strongest key are shown, and a sentence says so.
    """
    shown = near(row.to_numpy(dtype=float), choosing.place(query, keys))
    if len(shown) < len(keys):
        st.caption(
            f"{len(shown):,} of {len(keys):,} tokens: those nearest to the token that looks and to "
            "the token that it looks at most."
        )
    part = {"part": _part(shown)}
    weights = levels(row.to_numpy(dtype=np.float64)[None, shown])
    high = top or weights["high"]
    choice = {
        "chosen": None if query is None else int(query),
        "levels": weights,
        "top": high,
        "top_written": f"{high:.3g}",
        "quantity": quantity,
    }
    text = {
        "label": f"{label}: {HOW_TO}",
        "tokens": _tokens(keys.iloc[shown], shown),
        "look": {
            "real": theme.REAL,
            "font_size": theme.TEXT_SIZE,
            "small_font": theme.SMALLEST_FONT + 1,
        },
    }
    choosing.mount(
        _drawing,
        key,
        of=choosing.digest(keys),
        data=part | text,
        choice=part | choice,
        told=lambda state: told_token(state, keys),
        on_choose=on_choose,
    )


def near(row: Float[np.ndarray, " key"], place: int | None) -> Int[np.ndarray, " shown"]:
    """The places of a row that are shown: all, or those nearest to a place and to the largest."""
    places = np.arange(len(row))
    if len(row) <= MOST_TOKENS:
        return places
    strongest = int(np.nan_to_num(np.abs(row)).argmax())
    centres = np.array([strongest, strongest if place is None else place])
    distance = np.abs(places[:, None] - centres).min(axis=1)
    return np.sort(np.argsort(distance, kind="stable")[:SHOWN_TOKENS])


def told_token(state: object, keys: pd.DataFrame) -> tuple[int] | None:
    """The position that a browser has told of, None where there is no such token."""
    message = choosing.message(state)
    position = choosing.position(message.get("position"), keys)
    if position is None or message.get("of") != choosing.digest(keys):
        return None
    return (position,)


def _part(shown: Int[np.ndarray, " shown"]) -> str:
    """A name for the tokens shown: weights of others are not theirs."""
    return f"{crc32(shown.astype('<i8').tobytes()):08x}"


def _tokens(tokens: pd.DataFrame, places: Int[np.ndarray, " shown"]) -> dict[str, Any]:
    """The tokens shown; `breaks` have a new line after them, `gaps` others before them."""
    words = tokens["token"].tolist()
    return {
        "words": words,
        "positions": tokens["position"].tolist(),
        "special": tokens["special"].tolist(),
        "breaks": [at for at, word in enumerate(words) if LINE_BREAK in word],
        "gaps": [int(at) for at in np.flatnonzero(np.diff(places, prepend=-1) > 1)],
    }
