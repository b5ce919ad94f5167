"""A lookup worked out row by row: how each item is matched, what it brings, what is then read.

Each item keeps its row in all three charts, and that of the item asked for is shaded. What is
written stands in columns whose places are px, and bars and cells fill what these leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import pandas as pd

from attnviz.charts import columns, theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import (
    Spec,
    calculated,
    chart,
    either,
    expr,
    layer,
    number,
    only,
    told,
    word,
)

ROW, HEAD = 32, 22  # px, an item, and the line that says what the columns are
INSET = 4  # px above and below a bar
LETTER, SPELT = 0.65, 0.46  # width of one in a font of 1 px: in bold words, in sums and vectors
GAP = 14  # px between columns
NUMBER, SCORE = 50, 28  # px of a number, and of a whole one
LEAST_BAR = 70  # px of the longest bar
SHADED = 0.16  # opacity behind the item that is asked for
DIGITS = ".3f"  # of weights, and of what they make
NUMBER_CHARACTERS = 7  # −9.999, and some space


@in_turn
def matched(frame: pd.DataFrame, d_k: int) -> alt.LayerChart | alt.FacetChart:
    """Draw a `roles_frames.matched`: key, score, logit, and the weight as a bar.

    Where there is room the score is spelt out as a sum of products, else the key stands there.
    """
    first = _room(frame["symbol"], LETTER)
    sums, keys = _room(frame["product"] + " = −25"), _room(frame["vector"])
    params = {
        "spelt": expr(f"width >= {first + sums + 2 * NUMBER + 2 * GAP + LEAST_BAR}"),
        "second": expr(f"{first} + (spelt ? {sums} : {keys + SCORE})"),
        "third": expr(f"second + {NUMBER}"),
        "left": expr(f"third + {GAP - 4}"),
        "right": expr(f"width - {NUMBER}"),
    }
    shown = "spelt ? datum.product + ' = ' + format(datum.score, '.4~g') : datum.vector"
    tooltip = [word("symbol"), *(told(name, name) for name in ("score", "logit", "weight"))]
    layers = [
        _shade(len(frame)),
        _words("symbol", 0, fontWeight="bold"),
        _words("shown", first),
        _number("score", expr("second"), ".4~g", [only("!spelt")]),
        _number("logit", expr("third"), ".2f"),
        _bars("weight", (0.0, 1.0), "datum.weight > 0.5", tooltip),
        _number("weight", expr("width"), DIGITS, fontWeight="bold"),
        _heading("spelt ? 'query · key = score' : 'key'", first),
        _heading("spelt ? '' : 'score'", expr("second"), "right"),
        _heading(f"'÷ √{d_k}'", expr("third"), "right"),
        _heading("'weight'", expr("width"), "right"),
    ]
    return _rows(layers, frame, params, len(frame), calculated(shown=shown))


@in_turn
def returned(frame: pd.DataFrame, output: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `roles_frames.returned`: weight times vector, number by number, above their sum.

    What W_O drops of the sum is pale. `output` is a `roles_frames.output`.
    """
    items, width = frame["item"].nunique(), len(output)
    sums = output.assign(item=items, symbol="output", asked=False)
    numbers = pd.concat([frame.assign(kept=True), sums], ignore_index=True)
    reach = columns.furthest_from_zero(numbers["value"])
    first, vectors = _room(frame["symbol"], LETTER), _room(frame["vector"])
    factors = _room(["0.999 × "]) - GAP
    params = {
        "spelt": expr(f"width >= {first + factors + vectors + width * NUMBER}"),
        "left": expr(f"{first + vectors} + (spelt ? {factors} : 0)"),
        "right": expr("width"),
        "cell": expr(f"(right - left) / {width}"),
        "number_size": expr(f"cell / {columns.DIGIT * (NUMBER_CHARACTERS + columns.SPARE):.2f}"),
    }
    shown = f"(spelt ? format(datum.weight, '{DIGITS}') + ' × ' : '') + datum.vector"
    one = [only("datum.dimension == 0")]
    layers = [
        _shade(items),
        _words("symbol", 0, one, fontWeight="bold"),
        _words("shown", first, [*one, only(f"datum.item < {items}"), *calculated(shown=shown)]),
        *_cells(width, reach),
        *(
            _holding(str(holds), dimensions, width)
            for holds, dimensions in output.groupby("holds", sort=False)["dimension"]
        ),
        _heading("spelt ? 'weight × returned' : 'returned'", first),
    ]
    return _rows(layers, numbers, params, items + 1)


@in_turn
def read(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `roles_frames.read`: the output's product with each content, the largest strong."""
    first, sums = _room(frame["content"], LETTER), _room(frame["product"])
    reach = columns.furthest_from_zero(frame["value"])
    params = {
        "spelt": expr(f"width >= {first + sums + NUMBER + 2 * LEAST_BAR}"),
        "left": expr(f"{first} + (spelt ? {sums} : 0)"),
        "right": expr(f"width - {NUMBER}"),
    }
    layers = [
        _shade(len(frame)),
        _words("content", 0, fontWeight="bold"),
        _words("product", first, [only("spelt")]),
        _bars(
            "value", (-reach, reach), "datum.answer", [word("content"), told("value", "product")]
        ),
        _number("value", expr("width"), ".2f", fontWeight="bold"),
        _heading("spelt ? 'content · output' : ''", first),
        _heading("spelt ? 'sum' : 'content · output'", expr("width"), "right"),
    ]
    return _rows(layers, frame, params, len(frame))


# --- what the charts have in common


def _rows(
    layers: list[alt.Chart],
    frame: pd.DataFrame,
    params: dict[str, Any],
    rows: int,
    transform: list[Spec] | None = None,
) -> alt.LayerChart:
    """Rows below a line of headings; `top` and `middle` are px."""
    top = f"{HEAD} + {ROW} * datum.item"
    places = calculated(
        top=f"{top} + {INSET}", bottom=f"{top} + {ROW - INSET}", middle=f"{top} + {ROW // 2}"
    )
    return chart(layers, frame, params, HEAD + ROW * rows, [*places, *(transform or [])])


def _room(words: Iterable[str], character: float = SPELT) -> int:
    """The px that the longest of these takes, with the gap after it."""
    return math.ceil(character * theme.FONT_SIZE * max(map(len, words))) + GAP


def _y(field: str) -> Spec:
    """A vertical place in px from the top, which every layer has alike."""
    top_down: Spec = {"domain": [0, 1], "range": [0, 1], "nice": False, "zero": False}
    return number(field, scale=top_down, axis=None)


def _x(field: str, domain: tuple[float, float]) -> Spec:
    scale = {"domain": [*domain], "range": [expr("left"), expr("right")], "nice": False}
    return number(field, scale=scale, axis=None)


def _shade(rows: int) -> alt.Chart:
    """Behind the row of the item that is asked for."""
    ends = {"y": _y("row"), "y2": {"field": "end"}}
    row = calculated(row=f"datum.top - {INSET}", end=f"datum.bottom + {INSET}")
    looks: Spec = {"color": theme.SYNTHETIC, "opacity": SHADED, "tooltip": None}
    first = [only(f"datum.asked && datum.item < {rows}"), only("!datum.dimension"), *row]
    return layer("rect", ends, first, x=0, x2=expr("width"), **looks)


def _words(field: str, x: Any, transform: list[Spec] | None = None, **looks: Any) -> alt.Chart:
    encoding = {"y": _y("middle"), "text": word(field)}
    return layer("text", encoding, transform or (), x=x, align="left", **_written() | looks)


def _number(
    field: str, x: Any, digits: str, transform: list[Spec] | None = None, **looks: Any
) -> alt.Chart:
    encoding = {"y": _y("middle"), "text": number(field, format=digits)}
    return layer("text", encoding, transform or (), x=x, align="right", **_written() | looks)


def _written() -> Spec:
    return {"baseline": "middle", "fontSize": theme.FONT_SIZE, "tooltip": None}


def _heading(said: str, x: Any, align: str = "left") -> alt.Chart:
    """What a column is, by an expression that knows how wide the plot is."""
    encoding = {"text": word("said")}
    looks = _written() | {"fontSize": theme.SMALL_FONT, "opacity": 0.8, "align": align}
    return layer("text", encoding, calculated(said=said), _alone(), x=x, y=HEAD // 2, **looks)


def _holding(holds: str, dimensions: pd.Series, width: int) -> alt.Chart:
    """What some of the numbers hold, above the middle of their cells."""
    middle = expr(f"left + (right - left) * {(dimensions.mean() + 0.5) / width}")
    return _heading(f"'{holds}'", middle, "center")


def _alone() -> pd.DataFrame:
    return pd.DataFrame({"item": [0]})


def _bars(field: str, domain: tuple[float, float], strong: str, tooltip: list[Spec]) -> alt.Chart:
    encoding = {
        "x": _x("zero", domain),
        "x2": {"field": field},
        "y": _y("top"),
        "y2": {"field": "bottom"},
        "fillOpacity": either(strong, 1, theme.PALE),
        "tooltip": tooltip,
    }
    return layer("rect", encoding, calculated(zero="0"), fill=theme.SYNTHETIC)


def _cells(width: int, reach: float) -> list[alt.Chart]:
    """A cell for each number, blue below zero and orange above, with the number in it."""
    opacity = either("datum.kept", 1, theme.PALE)
    ends = calculated(start="datum.dimension + 0.03", end="datum.dimension + 0.97")
    encoding = {
        "x": _x("start", (0.0, float(width))),
        "x2": {"field": "end"},
        "y": _y("top"),
        "y2": {"field": "bottom"},
        "color": columns.colour("value", reach, legend=False),
        "opacity": opacity,
        "tooltip": [word("symbol"), number("dimension"), told("value", "value")],
    }
    text = number("value", format=DIGITS)
    written = {"x": number("centre"), "y": _y("middle"), "text": text, "opacity": opacity}
    centre = calculated(centre="datum.dimension + 0.5")
    looks = columns.number_look() | {"tooltip": None}
    looks.pop("opacity")
    return [
        layer("rect", encoding, ends, **columns.outline(width)),
        layer("text", written, centre, **looks),
    ]
