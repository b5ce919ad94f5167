"""Where each token looks, as lines between two columns of tokens that a visitor can point at.

Pointing at a token, or moving the focus to it, leaves only its own lines and writes their weights
at the other column; a click or Enter chooses it. One row a token: equal words stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from attnviz.charts import lines as picture
from attnviz.charts import theme
from attnviz.charts.levels import levels
from attnviz.charts.matrix import axis_titles
from attnviz.ui import choosing

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS = picture.MOST_TOKENS**2  # of all heads: 270 kB
SHOWN_ROWS = 40  # more are scrolled
HOW_TO = (
    "Up and Down move along a column, Left and Right to the other one, Enter chooses a token. "
    "The weights of the token in focus are read out."
)
HTML = """
<div class="drawing">
  <div class="legend"></div>
  <div class="reading" aria-hidden="true"></div>
  <div class="titles" aria-hidden="true"><span class="query"></span><span class="key"></span></div>
  <div class="scroll">
    <div class="column query" role="listbox"></div>
    <div class="between" aria-hidden="true">
      <canvas class="all"></canvas><canvas class="own"></canvas><div class="numbers"></div>
    </div>
    <div class="column key" role="listbox"></div>
  </div>
  <div class="scale" aria-hidden="true"></div>
  <div id="told" aria-live="polite"></div>
</div>
"""
_drawing = choosing.drawing("lines", HTML)


def token_lines(
    heads: Sequence[tuple[str, pd.DataFrame]],
    queries: pd.DataFrame,
    keys: pd.DataFrame,
    chosen: int | None,
    *,
    label: str,
    key: str,
    on_choose: Callable[[str, int], None],
    cross: bool = False,
    chosen_key: int | None = None,
    top: float | None = None,
) -> None:
    """Draw the `weight_matrix` of one or more heads, each with a name of its own.

    Positions are index and columns of the matrices; what is NaN is hidden and has no line. The
    lines of the `chosen` query stand out at rest. A line of the weight `top`, by default the
    largest, is the strongest. When a visitor chooses a token, `on_choose` is
    called with its axis, "query" or "key", and its position, before the script runs again.
    `label` says whose weights they are. More than 320 tokens on a side, or more than 102,400
    weights, are a sentence instead.
    """
    if told := too_large(len(heads), queries, keys):
        st.info(told)
        return
    places = {"query": choosing.place(chosen, queries), "key": choosing.place(chosen_key, keys)}
    choosing.mount(
        _drawing,
        key,
        of=choosing.digest(queries, keys),
        data=_drawn(heads, queries, keys, cross, top) | {"label": f"{label}. {HOW_TO}"},
        choice={"chosen": places},
        told=lambda state: told_token(state, queries, keys),
        on_choose=on_choose,
    )


def too_large(heads: int, queries: pd.DataFrame, keys: pd.DataFrame) -> str | None:
    """A sentence if there is more than a browser draws at once."""
    if told := picture.too_many(queries, keys):
        return told
    if heads * len(queries) * len(keys) <= MOST_CELLS:
        return None
    side = int((MOST_CELLS / heads) ** 0.5)
    return (
        f"Lines of {heads} heads together are drawn for up to {side} tokens; here are "
        f"{len(queries)} queries and {len(keys)} keys. Choose fewer heads or a part of the tokens."
    )


def told_token(state: object, queries: pd.DataFrame, keys: pd.DataFrame) -> tuple[str, int] | None:
    """The axis and position that a browser has told of, None where there is no such token."""
    message = choosing.message(state)
    axis = message.get("axis")
    if message.get("of") != choosing.digest(queries, keys) or axis not in ("query", "key"):
        return None
    position = choosing.position(message.get("position"), queries if axis == "query" else keys)
    return None if position is None else (axis, position)


def _drawn(
    heads: Sequence[tuple[str, pd.DataFrame]],
    queries: pd.DataFrame,
    keys: pd.DataFrame,
    cross: bool,
    top: float | None,
) -> dict[str, Any]:
    """What is drawn, whichever token is chosen."""
    of_queries, of_keys = axis_titles(cross)
    looks = picture.looks(len(heads))
    drawn = [
        {"name": name, "colour": colour, "dash": _dash(dash), "levels": _levels(matrix)}
        for (name, matrix), (colour, dash) in zip(heads, looks, strict=True)
    ]
    top = top or max(head["levels"]["high"] for head in drawn)
    return {
        "heads": drawn,
        "query": _column(queries, of_queries),
        "key": _column(keys, of_keys),
        "top": top,
        "top_written": f"{top:.3g}",
        "look": {
            "row": theme.TOKEN_ROW,
            "rows": SHOWN_ROWS,
            "line": theme.LINE_WIDTH,
            "font_size": theme.FONT_SIZE,
            "small_font": theme.SMALL_FONT,
            "title_size": theme.TITLE_SIZE,
            "real": theme.REAL,
        },
    }


def _dash(dash: tuple[int, ...]) -> list[int]:
    """What a canvas calls a dash; a whole line has none."""
    return [] if dash == (1, 0) else list(dash)


def _levels(matrix: pd.DataFrame) -> Any:
    return levels(matrix.to_numpy(dtype=np.float64))


def _column(tokens: pd.DataFrame, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "words": tokens["token"].tolist(),
        "positions": tokens["position"].tolist(),
        "special": tokens["special"].tolist(),
    }
