"""The charts of the variance playground: histogram of scores, softmax rows."""

from __future__ import annotations

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

QUANTITY_COLOURS = {
    "q·k": theme.DIVISOR_COLOURS["1"],
    "q·k / √d_k": theme.DIVISOR_COLOURS["√d_k"],
}


@in_turn
def score_histogram(bins: pd.DataFrame, quantity: str) -> alt.LayerChart | alt.FacetChart:
    """Measured density (bars) and predicted normal density (line) of one quantity.

    The x axis reaches as far for every quantity, so that one sees which is narrower.
    """
    reach = float(bins["right"].max())
    shown = bins[bins["quantity"] == quantity]
    colour = QUANTITY_COLOURS[quantity]
    x = alt.X("left:Q").title(quantity).scale(domain=[-reach, reach], nice=False)
    x = x.axis(grid=False, tickCount=5)
    y = alt.Y("density:Q").title("density").axis(labels=False, ticks=False, grid=False)
    bars = (
        alt.Chart(shown)
        .mark_rect(color=colour, opacity=0.55)
        .encode(
            x=x,
            x2="right",
            y=y,
            tooltip=[
                alt.Tooltip("left:Q", format=".3~g", title="from"),
                alt.Tooltip("right:Q", format=".3~g", title="to"),
                alt.Tooltip("density:Q", format=".3~g", title="measured density"),
                alt.Tooltip("predicted:Q", format=".3~g", title="predicted density"),
            ],
        )
    )
    line = (
        alt.Chart(shown)
        .transform_calculate(middle="(datum.left + datum.right) / 2")
        .mark_line(color=colour, strokeWidth=theme.LINE_WIDTH)
        .encode(x="middle:Q", y="predicted:Q")
    )
    return alt.layer(bars, line).properties(height=theme.SMALL_HEIGHT)


@in_turn
def softmax_row(row: pd.DataFrame) -> alt.Chart:
    """The weights of one draw under one divisor, on a scale from 0 to 1."""
    return (
        alt.Chart(row)
        .mark_bar(color=theme.DIVISOR_COLOURS[row["divisor"].iloc[0]])
        .encode(
            x=alt.X("key:O").title("key").axis(labels=False, ticks=False),
            y=alt.Y("weight:Q").title("weight").scale(domain=[0, 1]).axis(values=[0, 0.5, 1]),
            tooltip=[alt.Tooltip("key:O"), alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(height=theme.SMALL_HEIGHT)
    )
