"""One head's numbers as a picture in which a cell is chosen by pointer, finger or arrow keys.

Picture and choice are two components, see `choosing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnviz.charts import matrix as picture
from attnviz.charts import theme
from attnviz.charts.levels import levels
from attnviz.ui import choosing

if TYPE_CHECKING:
    import pandas as pd

HOW_TO = (
    "queries down, keys across. Arrow keys choose another cell, Home and End the first and the "
    "last key."
)
HTML = """
<div class="drawing picker">
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
    <span class="ends"><span class="low"></span><canvas></canvas><span class="top"></span></span>
    <span class="hidden"><span class="swatch"></span><span class="why"></span></span>
    <span class="merged">each dot: the largest of its cells</span>
  </div>
  <div id="told" aria-live="polite"></div>
</div>
"""
_drawing = choosing.drawing("cell_picker", HTML)


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
    quantity: str = "weight",
    hidden: str = "hidden by the mask",
    downsampled: bool = False,
    top: float | None = None,
) -> None:
    """Draw a `weight_matrix` and frame the chosen cell, a query's and a key's position.

    Where a row or a column stands for several tokens, its frame has the position of the first
    and a column `last`; where the picture is `downsampled`, it says that its numbers are the
    largest of their cells. `quantity` is what the numbers are; where some are negative, zero is in
    the middle of the colours. `top` is where colours end, by default at the largest number, and
    `hidden` why there are none in some cells.

    When a visitor chooses another cell, `on_change` is called with its two positions before the
    script runs again, as callbacks of widgets are. `label` says which head it is. `side` is the
    largest length of the picture in pixels; it is smaller where there is less room. Cells that
    `visible` hides, or that are no number, are drawn as such, and can be chosen like others.
    """
    of_queries, of_keys = picture.axis_titles(cross)
    data = _drawn(matrix, visible, quantity, top) | {
        "hidden": hidden,
        "downsampled": downsampled,
        "quantity": quantity,
        "queries": _axis(queries, of_queries),
        "keys": _axis(keys, of_keys),
        "label": f"{label}: {HOW_TO}",
        "look": _look(side),
    }
    choosing.mount(
        _drawing,
        key,
        of=choosing.digest(queries, keys),
        data=data,
        choice={"chosen": [int(position) for position in chosen]},
        told=lambda state: told(state, queries, keys),
        on_choose=on_change,
    )


def told(state: object, queries: pd.DataFrame, keys: pd.DataFrame) -> tuple[int, int] | None:
    """The cell that a browser has told of, None where that is no cell of this picture."""
    message = choosing.message(state)
    query = choosing.position(message.get("query"), queries)
    key = choosing.position(message.get("key"), keys)
    if query is None or key is None or message.get("of") != choosing.digest(queries, keys):
        return None
    return query, key


def _drawn(
    matrix: pd.DataFrame, visible: pd.DataFrame | None, quantity: str, top: float | None
) -> dict[str, Any]:
    """What the picture shows, whichever cell is chosen."""
    numbers = matrix.to_numpy(dtype=float)
    hidden = None if visible is None else ~visible.to_numpy() & (numbers == 0)
    sent = levels(numbers, hidden)
    high = top or sent["high"]
    return {
        "levels": {**sent},
        "top": high,
        "low_written": f"{quantity} {f'−{high:.3g}' if sent['low'] < 0 else 0}",
        "top_written": f"{high:.3g}",
        "palette": picture.palette(signed=sent["low"] < 0),
    }


def _axis(tokens: pd.DataFrame, title: str) -> dict[str, Any]:
    positions = tokens["position"].tolist()
    return {
        "title": title,
        "words": tokens["token"].tolist(),
        "positions": positions,
        "last": tokens["last"].tolist() if "last" in tokens else positions,
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
