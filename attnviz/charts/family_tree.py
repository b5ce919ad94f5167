"""Which key and value head each query head reads: query heads above, theirs below."""

from __future__ import annotations

from typing import Literal

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

FEWEST = 8  # heads that the width has room for at least
HEIGHT = 300  # px, axes included
LARGEST, SMALLEST = 260, 30  # px² of one mark


@in_turn
def family_tree(tree: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `family_tree`: circles for query heads, squares for key and value heads."""
    placed = tree.assign(top=1, bottom=0)
    base = alt.Chart(placed)
    size = max(SMALLEST, min(LARGEST, 4000 // len(tree)))
    tooltip = [
        alt.Tooltip("head:Q", title="query head"),
        alt.Tooltip("kv_head:Q", title="reads key and value head"),
    ]
    lines = base.mark_rule(stroke=theme.REAL, strokeWidth=1.5).encode(
        x=_axis(tree, "above", "head", "query heads", "top"),
        x2="below",
        y=_row("top"),
        y2="bottom",
        tooltip=tooltip,
    )
    heads = base.mark_point(
        shape="circle", size=size, filled=True, opacity=1, color=theme.REAL
    ).encode(x=alt.X("above:Q").axis(None), y=_row("top"), tooltip=tooltip)
    kv_heads = (
        alt.Chart(placed.drop_duplicates("kv_head"))
        .mark_point(shape="square", size=size, filled=True, opacity=1, color=theme.REAL)
        .encode(
            x=_axis(tree, "below", "kv_head", "key and value heads", "bottom"),
            y=_row("bottom"),
            tooltip=alt.Tooltip("kv_head:Q", title="key and value head"),
        )
    )
    return alt.layer(lines, heads, kv_heads).resolve_axis(x="independent").properties(height=HEIGHT)


def _axis(
    tree: pd.DataFrame, field: str, number: str, title: str, orient: Literal["top", "bottom"]
) -> alt.X:
    places = tree.drop_duplicates(number)
    room = max(FEWEST, len(tree))
    first = (len(tree) - room) / 2
    step = float(len(tree) / len(places))
    return (
        alt.X(f"{field}:Q")
        .title(title)
        .scale(domain=[first, first + room], nice=False)
        .axis(
            orient=orient,
            values=places[field].tolist(),
            tickCount=len(places),
            labelExpr=f"floor(datum.value / {step})",
            labelOverlap="greedy",
            labelFontSize=theme.FONT_SIZE,
            titleFontSize=theme.FONT_SIZE,
            grid=False,
            ticks=False,
            domain=False,
        )
    )


def _row(field: str) -> alt.Y:
    return alt.Y(f"{field}:Q").scale(domain=[-0.15, 1.15], nice=False).axis(None)
