"""A model's layers as a row of marks: filled where read, crossed out where not."""

from __future__ import annotations

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

FEWEST = 12  # layers that the width has room for at least: two layers are no two walls
STRIP, AXIS = 80, 90  # px of height for one tower, its name included, and for the axis below
BAR = 0.52  # part of a strip that a full mark takes
GAP = 0.08  # part of a layer's width, on either side


@in_turn
def layer_strips(marks: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw `layer_marks`: towers one below the other, layers from left to right.

    A mark of half the height is a layer that sees a window only. A layer that was not read has
    no filling and a line across it. The chosen layers are underlined.
    """
    placed = _placed(marks)
    base = alt.Chart(placed).encode(
        x=_layer_axis(placed),
        x2="right",
        y=_strip_axis(placed),
        y2="bottom",
        tooltip=[
            alt.Tooltip("name:N", title="tower"),
            alt.Tooltip("layer:Q"),
            alt.Tooltip("sees:N"),
            alt.Tooltip("told:N", title="state"),
        ],
    )
    read = base.transform_filter(alt.datum.state == "read").mark_rect(color=theme.REAL)
    unread = base.transform_filter(alt.datum.state != "read")
    outline = unread.mark_rect(fill="transparent", stroke=theme.UNREAD, strokeWidth=1.5)
    line = unread.mark_rule(stroke=theme.UNREAD, strokeWidth=1.5)
    return alt.layer(read, outline, line, _underline(placed), _names(placed)).properties(
        height=STRIP * int(placed["strip"].max() + 1) + AXIS
    )


def _placed(marks: pd.DataFrame) -> pd.DataFrame:
    """Where each mark stands: in layers from the left, in strips from above."""
    bottom = marks["strip"] + 0.42 + BAR
    return marks.assign(
        left=marks["layer"] + GAP,
        right=marks["layer"] + 1 - GAP,
        top=bottom - BAR * marks["height"],
        bottom=bottom,
    )


def _layer_axis(placed: pd.DataFrame) -> alt.X:
    count = int(placed["layer"].max()) + 1
    return (
        alt.X("left:Q")
        .title("layer")
        .scale(domain=[0, max(count, FEWEST)], nice=False)
        .axis(
            values=[layer + 0.5 for layer in range(count)],
            tickCount=count,
            labelExpr="floor(datum.value)",
            labelOverlap="greedy",
            labelFontSize=theme.FONT_SIZE,
            titleFontSize=theme.FONT_SIZE,
            titleAnchor="start",
            grid=False,
            ticks=False,
            domain=False,
        )
    )


def _strip_axis(placed: pd.DataFrame) -> alt.Y:
    strips = int(placed["strip"].max()) + 1
    return alt.Y("top:Q").scale(domain=[strips + 0.12, 0], nice=False).axis(None)


def _underline(placed: pd.DataFrame) -> alt.Chart:
    chosen = placed[placed["chosen"]].assign(top=placed["bottom"] + 0.08)
    return (
        alt.Chart(chosen.assign(left=chosen["layer"], right=chosen["layer"] + 1))
        .mark_rule(stroke=theme.REAL, strokeWidth=4)
        .encode(x="left:Q", x2="right", y="top:Q")
    )


def _names(placed: pd.DataFrame) -> alt.Chart:
    """What each strip is, above its first mark."""
    first = placed.drop_duplicates("strip").assign(left=GAP, top=lambda rows: rows["strip"] + 0.2)
    return (
        alt.Chart(first)
        .mark_text(align="left", fontSize=theme.TITLE_SIZE, tooltip=None)
        .encode(x="left:Q", y="top:Q", text="name:N")
    )
