"""Rows of cells that share their columns: one column a dimension, whatever is drawn in it.

The names of the rows stand at the left where the plot is wide, else above them, and all of it
inside the plot, so that one horizontal scale serves every row. Vertical places are px.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import altair as alt
import numpy as np
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.layers import Spec, calculated, expr, layer, number, word

GAP = 2  # px between rows, on either side
NAME_HEIGHT = 17  # px of a name that stands above its row
PLACE = "floor(datum.value)"
FAR = 999  # columns
APART, LEAST = 10, 2  # px between the numbers of dimensions, and of strong ones at least
LETTER, DIGIT = 0.55, 0.5  # width of one in a font of 1 px; a point is narrower,
SPARE = 0.3  # so that this is left free beside a number
EDGE = expr("cell > 5 ? 1 : 0")  # px round a pale bar, where it leaves any of it pale


def layout(names: Collection[str], columns: int, characters: int = 1) -> Spec:
    """Where columns begin (`left`), and rows below the top of their slots (`above`).

    `cell` is how wide a column is, `number_size` the font in which a number of so many
    characters fits into it.
    """
    room = math.ceil(LETTER * theme.FONT_SIZE * max(map(len, names))) + 14
    wide = f"width >= {theme.NAMES_LEFT_FROM} && {room} <= {theme.NAMES_WIDTH}"
    return {
        "left": expr(f"{wide} ? {room} : 0"),
        "above": expr(f"left > 0 ? 0 : {NAME_HEIGHT}"),
        "cell": expr(f"(width - left) / {columns}"),
        "number_size": expr(f"cell / {DIGIT * (characters + SPARE):.2f}"),
    }


def x(field: str, columns: int, axis: Spec) -> Spec:
    """The horizontal scale in columns: they fill what the names leave. One layer states it."""
    scale = {"domain": [0, columns], "range": [expr("left"), expr("width")], "nice": False}
    return number(field, scale=scale, axis=axis)


def y(field: str, height: int) -> Spec:
    """The vertical scale in px from the top of the plot. One layer states it."""
    scale = {"domain": [0, height], "range": [0, height], "nice": False}
    return number(field, scale=scale, axis=None)


def axis_in_order(count: int, title: str = "dimension") -> Spec:
    """The numbers of the dimensions above their columns, thinned where there is no room."""
    shown = f"{_thinned(count)} == 0"
    return _dimension_axis(count, _step(count), f"{shown} ? {PLACE} : ''", title)


def axis_of(count: int) -> Spec:
    """The same for columns in any order, whose `strong_columns` are among the parameters.

    The numbers of strong dimensions are bold, and keep their place before others.
    """
    gap = f"gaps[{PLACE}]"
    alone = f"-{gap} >= {_room(count)} && {_thinned(count)} == 0"
    label = f"({gap} > 0 ? {gap} >= {_room(count, LEAST)} : {alone}) ? dimensions[{PLACE}] : ''"
    bold = {"condition": {"test": f"{gap} > 0", "value": "bold"}, "value": "normal"}
    return _dimension_axis(count, 1, label, "dimension") | {"labelFontWeight": bold}


def strong_columns(dimensions: Sequence[int], strong: Sequence[bool]) -> Spec:
    """The dimension in each column, and how far it is from a strong one.

    A strong column has its distance to the strong one before it, others have minus the distance
    to the nearest.
    """
    places = [place for place, is_strong in enumerate(strong) if is_strong]
    gaps = []
    for place, is_strong in enumerate(strong):
        to_others = [abs(place - other) for other in places if not is_strong or other < place]
        gaps.append(min([FAR, *to_others]) * (1 if is_strong else -1))
    return {"dimensions": list(dimensions), "gaps": gaps}


def _dimension_axis(count: int, step: int, label: str, title: str) -> Spec:
    return {
        "orient": "top",
        "values": expr(f"sequence(0.5, {count}, {step})"),
        "tickCount": -(-count // step),  # Vega thins even given values to its own count
        "labelExpr": label,
        "labelOverlap": False,
        "labelFontSize": theme.SMALL_FONT,
        "labelPadding": 2,
        "title": title,
        "titleFontSize": theme.SMALL_FONT,
        "titleAnchor": "start",
        "titlePadding": 2,
        "grid": False,
        "ticks": False,
        "domain": False,
    }


def _thinned(count: int) -> str:
    """0 at the columns that keep their number where not all do."""
    step = _step(count)
    return f"{PLACE} % ({step} * ceil({_room(count)} / {step}))"


def _room(count: int, apart: int = APART) -> str:
    """The columns that the number of a dimension takes, so many px from the next."""
    return f"ceil({7 * len(str(count - 1)) + apart} / cell)"


def _step(count: int) -> int:
    """1, or the next of 2, 4, 8, 16, …: what dimensions come in."""
    return 2 ** max(0, math.ceil(math.log2(count / theme.WRITTEN_CELLS)))


def row_names(names: Collection[str], tops: Sequence[int], heights: Sequence[int]) -> alt.Chart:
    """The names of rows: in the middle of their height at the left, or as a line above them."""
    rows = pd.DataFrame({"name": [*names], "top": tops, "height": heights})
    at = f"datum.top + (left > 0 ? datum.height / 2 : {NAME_HEIGHT / 2})"
    return layer(
        "text",
        {"y": number("at"), "text": word("name")},
        calculated(at=at),
        rows,
        x=0,
        align="left",
        baseline="middle",
        fontSize=theme.FONT_SIZE,
        tooltip=None,
    )


def outline(count: int) -> Spec:
    """A fine line round each cell, where they are few: a cell of 0 has no colour."""
    few = count <= 2 * theme.WRITTEN_CELLS
    return {"stroke": theme.WORDS, "strokeWidth": 0.5, "strokeOpacity": 0.3 if few else 0}


def colour(field: str, reach: float, legend: bool = True) -> Spec:
    """Blue below zero, orange above, the page itself at zero; its ends written in the legend."""
    ends = [(theme.NEGATIVE, theme.STRONGEST), (theme.NEGATIVE, 0.0)]
    ends += [(theme.POSITIVE, 0.0), (theme.POSITIVE, theme.STRONGEST)]
    scale = {"domain": [-reach, 0, 0, reach], "range": [_rgba(*end) for end in ends]}
    return number(field, scale=scale, legend=_legend(reach) if legend else None)


def _rgba(colour: str, opacity: float) -> str:
    return f"rgba({','.join(map(str, channels(colour)))},{opacity:g})"


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour of the theme."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def _legend(reach: float) -> Spec:
    return {
        "orient": "bottom",
        "direction": "horizontal",
        "title": None,
        "values": [-reach, 0, reach],
        "format": ".3~g",
        "gradientLength": 160,
        "gradientThickness": 10,
        "labelFontSize": theme.SMALL_FONT,
        "offset": 4,
        "padding": 0,
    }


def furthest_from_zero(numbers: pd.DataFrame | pd.Series) -> float:
    """Where a scale of colours ends; 1 where all numbers are 0."""
    return float(np.abs(numbers.to_numpy()).max(initial=0.0)) or 1.0


def written(reach: float) -> tuple[str, int]:
    """The format of numbers that are up to so large, written in cells, and its characters."""
    digits = 0 if reach >= 999.5 else 1 if reach >= 0.95 else 2 if reach >= 0.095 else 3
    return f".{digits}f", len(f"{-reach:.{digits}f}")


def number_look() -> Spec:
    """How a number stands in its cell: as large as fits, and not at all if that is too small."""
    smallest, largest = theme.SMALLEST_FONT, theme.FONT_SIZE
    return {
        "fontSize": expr(f"clamp(number_size, {smallest}, {largest})"),
        "opacity": expr(f"number_size >= {smallest} ? 1 : 0"),
        "baseline": "middle",
    }
