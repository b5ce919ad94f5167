"""One score worked out: q and k as rows of cells, their products as bars, and the running sum."""

from __future__ import annotations

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

SLOT = theme.STRIP_HEIGHT
PRODUCTS = 2 * SLOT  # px from the top of the plot
RUNNING = PRODUCTS + theme.PRODUCTS_HEIGHT
HEIGHT = RUNNING + theme.RUNNING_HEIGHT
LINE = 16  # px of a line of small words or numbers
NAMES = ("product", "running sum")
DECIDES = "datum.decides"


@in_turn
def match(
    frame: pd.DataFrame, names: tuple[str, str] = ("q", "k"), *, legend: bool = True
) -> alt.LayerChart | alt.FacetChart:
    """Draw a `match`, one column a dimension, in the order of the frame.

    The dimensions that decide have a frame round their cells, a bold number, and bars that are
    not pale. `names` are those of the query and the key.
    """
    count = len(frame)
    reach = columns.furthest_from_zero(frame[["query", "key"]])
    number_format, characters = columns.written(reach)
    written = [_numbers(number_format), _product_numbers(frame)]
    layers = [
        _cells(count, reach, legend),
        *(written if count <= theme.WRITTEN_CELLS else []),
        _bars(frame),
        *_running(frame),
        columns.row_names(
            [*names, *NAMES],
            [0, SLOT, PRODUCTS, RUNNING],
            [SLOT, SLOT, theme.PRODUCTS_HEIGHT, theme.RUNNING_HEIGHT],
        ),
    ]
    strong = columns.strong_columns(frame["dimension"].tolist(), frame["decides"].tolist())
    params = columns.layout([*names, *NAMES], count, characters) | strong
    places = calculated(middle="datum.place + 0.5", right="datum.place + 1")
    return chart(layers, frame, params, HEIGHT, places)


def _tooltip() -> list[Spec]:
    fields = {"query": "q", "key": "k", "product": "q·k", "running": "sum so far"}
    return [number("dimension"), *(told(field, title) for field, title in fields.items())]


def _folded() -> list[Spec]:
    """A cell for each number of the query and of the key."""
    slot = f"(datum.role == 'query' ? 0 : {SLOT})"
    places = calculated(
        top=f"{slot} + above + {columns.GAP}",
        bottom=f"{slot} + {SLOT - columns.GAP}",
        centre=f"{slot} + (above + {SLOT}) / 2",
    )
    return [{"fold": ["query", "key"], "as": ["role", "value"]}, *places]


def _cells(count: int, reach: float, legend: bool) -> alt.Chart:
    fine = columns.outline(count)
    strong = expr("clamp(cell / 8, 0.8, 2)")
    encoding = {
        "x": columns.x("place", count, columns.axis_of(count)),
        "x2": {"field": "right"},
        "y": columns.y("top", HEIGHT),
        "y2": {"field": "bottom"},
        "color": columns.colour("value", reach, legend),
        "strokeWidth": either(DECIDES, strong, fine["strokeWidth"]),
        "strokeOpacity": either(DECIDES, 1, fine["strokeOpacity"]),
        "tooltip": _tooltip(),
    }
    return layer("rect", encoding, _folded(), stroke=fine["stroke"])


def _numbers(number_format: str) -> alt.Chart:
    text = number("value", format=number_format)
    encoding = {"x": number("middle"), "y": number("centre"), "text": text, "tooltip": _tooltip()}
    return layer("text", encoding, _folded(), **columns.number_look())


def _px(frame: pd.DataFrame, field: str, top: str, bottom: int) -> tuple[str, str]:
    """Where a number of a field stands, and 0: its range fills the height from top to bottom."""
    low, high = min(0.0, float(frame[field].min())), max(0.0, float(frame[field].max()))
    part = f"({bottom} - {top}) / {(high - low) or 1.0}"
    return f"{bottom} - (datum.{field} - {low}) * {part}", f"{bottom} + {low} * {part}"


def _product_px(frame: pd.DataFrame) -> tuple[str, str]:
    written = LINE if len(frame) <= theme.WRITTEN_CELLS else columns.GAP
    return _px(frame, "product", f"({PRODUCTS + 4} + above)", RUNNING - written)


def _bars(frame: pd.DataFrame) -> alt.Chart:
    at, zero = _product_px(frame)
    colour = either("datum.product > 0", theme.POSITIVE, theme.NEGATIVE)
    encoding = {
        "x": number("from"),
        "x2": {"field": "to"},
        "y": number("at"),
        "y2": {"field": "zero"},
        "fill": colour,
        "stroke": colour,
        "fillOpacity": either(DECIDES, 1, theme.PALE),
        "tooltip": _tooltip(),
    }
    ends = {"from": "datum.place + 0.06", "to": "datum.place + 0.94"}
    transform = calculated(at=at, zero=zero, **ends)
    return layer("rect", encoding, transform, strokeWidth=columns.EDGE)


def _product_numbers(frame: pd.DataFrame) -> alt.Chart:
    number_format, _ = columns.written(columns.furthest_from_zero(frame["product"]))
    text = number("product", format=number_format)
    encoding = {"x": number("middle"), "text": text, "tooltip": _tooltip()}
    return layer("text", encoding, **columns.number_look(), y=RUNNING - LINE // 2)


def _running(frame: pd.DataFrame) -> list[alt.Chart]:
    """The line of the sums, both lines at 0, and the last sum, which is the score."""
    at, zero = _px(frame, "running", str(RUNNING + LINE + 4), HEIGHT - 6)
    encoding = {"x": number("middle"), "y": number("at")}
    last = [only(f"datum.place == {len(frame) - 1}")]
    score = calculated(label="'score ' + format(datum.running, '.5~g')")
    place = {"x": expr("width"), "y": RUNNING + LINE // 2 + 1}
    return [
        _zero(_product_px(frame)[1]),
        _zero(zero),
        layer(
            "line",
            encoding,
            calculated(at=at),
            color=theme.WORDS,
            strokeWidth=theme.LINE_WIDTH,
            tooltip=None,
        ),
        layer(
            "point",
            encoding,
            last + calculated(at=at),
            color=theme.REAL,
            filled=True,
            size=90,
            opacity=1,
            tooltip=None,
        ),
        layer("text", {"text": word("label")}, last + score, **place, **_strong_word()),
    ]


def _strong_word() -> Spec:
    looks = {"align": "right", "baseline": "middle", "fontWeight": "bold", "tooltip": None}
    return looks | {"fontSize": theme.FONT_SIZE}


def _zero(at: str) -> alt.Chart:
    """A fine line at 0, across all columns."""
    first = [only("datum.place == 0"), *calculated(zero=at)]
    looks = {"color": theme.WORDS, "opacity": theme.PALE, "tooltip": None}
    ends = {"x": expr("left"), "x2": expr("width")}
    return layer("rule", {"y": number("zero")}, first, **ends, **looks)
