"""What the places of two tokens do to their score: a number over the distance between them."""

from __future__ import annotations

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, layer, number, only, told

TITLES = {
    "rotation": "score, were the key at that distance",
    "bias": "bias added to the logit",
    "measured": "mean of scale · score at that distance in this text",
}
AXIS_TITLE = "distance, in tokens: query place − key place"
HEADROOM = 0.16  # of the height, for the number of the chosen point
FEW = 64  # distances whose points are as large as can be hit
PLACES = {"x": number("distance"), "y": number("value")}


@in_turn
def curve(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `curve`, the distance of the cell as a strong point with its number."""
    tooltip = [number("distance"), told("value", "value")]
    line = layer(
        "line",
        {"x": _x(frame), "y": _y(frame)},
        color=theme.REAL,
        strokeWidth=theme.LINE_WIDTH,
        tooltip=None,
    )
    points = layer(
        "point",
        PLACES | {"tooltip": tooltip},
        color=theme.REAL,
        filled=True,
        opacity=1,
        size=45 if len(frame) <= FEW else 12,
    )
    return chart(
        [line, _zero(frame), *_chosen(frame), points],
        frame[["distance", "value"]],
        {"chosen": [*frame.loc[frame["chosen"], "distance"], None][0]},
        theme.DISTANCE_HEIGHT,
        title=TITLES[frame["kind"].iloc[0]],
    )


def _x(frame: pd.DataFrame) -> Spec:
    ends = [int(frame["distance"].min()) - 0.5, int(frame["distance"].max()) + 0.5]
    axis = {
        "title": AXIS_TITLE,
        "titleFontSize": theme.FONT_SIZE,
        "titlePadding": 4,
        "labelFontSize": theme.FONT_SIZE,
        "labelPadding": 4,
        "tickMinStep": 1,
        "format": "d",
        "grid": False,
    }
    return number("distance", scale={"domain": ends, "nice": False}, axis=axis)


def _y(frame: pd.DataFrame) -> Spec:
    """From the lowest number to the highest, 0 among them, with room above."""
    low, high = min(0.0, float(frame["value"].min())), max(0.0, float(frame["value"].max()))
    reach = (high - low) or 1.0
    ends = [low - 0.04 * reach, high + HEADROOM * reach]
    axis = {"title": None, "tickCount": 5, "labelFontSize": theme.SMALL_FONT, "grid": False}
    return number("value", scale={"domain": ends, "nice": False}, axis=axis)


def _zero(frame: pd.DataFrame) -> alt.Chart:
    first = [only(f"datum.distance == {frame['distance'].min()}"), *calculated(zero="0")]
    looks = {"color": theme.WORDS, "opacity": theme.PALE, "tooltip": None}
    return layer("rule", {"y": number("zero")}, first, **looks)


def _chosen(frame: pd.DataFrame) -> tuple[alt.Chart, alt.Chart, alt.Chart]:
    """The point of the cell, and a line up to its number."""
    chosen = [only("datum.distance == chosen")]
    middle = float(frame["distance"].min() + frame["distance"].max()) / 2
    right_half = bool((frame.loc[frame["chosen"], "distance"] > middle).any())
    return (
        layer("rule", PLACES, chosen, color=theme.WORDS, opacity=theme.PALE, y2=0, tooltip=None),
        layer(
            "text",
            {"x": number("distance"), "text": number("value", format=".5~g")},
            chosen,
            y=2,
            dx=-6 if right_half else 6,
            align="right" if right_half else "left",
            baseline="top",
            fontSize=theme.FONT_SIZE,
            fontWeight="bold",
            tooltip=None,
        ),
        layer(
            "point",
            PLACES,
            chosen,
            color=theme.REAL,
            filled=True,
            size=190,
            opacity=1,
            stroke=theme.WORDS,
            strokeWidth=2.5,
            tooltip=None,
        ),
    )
