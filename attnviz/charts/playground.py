"""The charts of the variance playground: histogram, variance against d_k, softmax rows."""

from __future__ import annotations

import json

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

POWERS = {1e-9: "10⁻⁹", 1e-6: "10⁻⁶", 1e-3: "10⁻³", 1: "1", 1e3: "10³"}
CORNER = {"scores": ("◆", 30), "logits": ("◇", 12)}  # sign, and px above the axis of d_k
POWER_AT = "round(log(datum.value) / log(1000)) + 3"
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
def variance_curve(
    curve: pd.DataFrame, marks: pd.DataFrame | None
) -> alt.LayerChart | alt.FacetChart:
    """Variance of the logits against d_k, log–log: points measured, lines predicted.

    `marks` puts a real head on it as diamonds: its scores and its logits.
    """
    base = alt.Chart(curve).encode(x=_d_k_axis(), color=_divisor_colour())
    lines = base.mark_line(strokeWidth=theme.LINE_WIDTH).encode(
        y=_variance_axis("predicted"), strokeDash=_divisor_dash()
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        y=_variance_axis("variance"),
        tooltip=[
            alt.Tooltip("d_k:Q"),
            alt.Tooltip("divisor:N"),
            alt.Tooltip("variance:Q", format=".3~g", title="measured"),
            alt.Tooltip("standard_error:Q", format=".1~g", title="± standard error"),
            alt.Tooltip("predicted:Q", format=".3~g"),
        ],
    )
    names = (
        alt.Chart(curve)
        .transform_filter(alt.datum.d_k == int(curve["d_k"].max()))
        .mark_text(align="left", dx=8, fontSize=theme.FONT_SIZE)
        .transform_calculate(label="'÷ ' + datum.divisor")
        .encode(x=_d_k_axis(), y=_variance_axis("predicted"), text="label:N")
    )
    heads = [] if marks is None else _head(marks)
    return alt.layer(lines, points, names, *heads).properties(height=theme.CURVE_HEIGHT)


def _d_k_axis() -> alt.X:
    return (
        alt.X("d_k:Q")
        .title("d_k")
        .scale(type="log", base=2, domain=[1, 8000], nice=False)
        .axis(values=[1, 4, 16, 64, 256, 1024], grid=False)
    )


def _variance_axis(field: str) -> alt.Y:
    return (
        alt.Y(f"{field}:Q")
        .title("variance")
        .scale(type="log", domain=list(theme.DRAWN_VARIANCES), nice=False)
        .axis(values=list(POWERS), labelExpr=f"{json.dumps(list(POWERS.values()))}[{POWER_AT}]")
    )


def _divisor_colour() -> alt.Color:
    """One colour for each divisor, named at the lines and not in a legend."""
    looks = theme.DIVISOR_COLOURS
    scale = alt.Scale(domain=list(looks), range=list(looks.values()))
    return alt.Color("divisor:N").scale(scale).legend(None)


def _divisor_dash() -> alt.StrokeDash:
    """One dash for each divisor: colour is never alone."""
    looks = theme.DIVISOR_DASHES
    scale = alt.Scale(domain=list(looks), range=list(looks.values()))
    return alt.StrokeDash("divisor:N").scale(scale).legend(None)


def _head(marks: pd.DataFrame) -> list[alt.Chart]:
    """Diamonds for the real head, filled for its scores; named where no line is."""
    base = alt.Chart(marks).encode(x=_d_k_axis(), y=_variance_axis("variance"))
    diamonds = base.mark_point(
        shape="diamond", size=190, stroke=theme.REAL, strokeWidth=3, opacity=1
    ).encode(
        fill=alt.when(alt.datum.quantity == "scores")
        .then(alt.value(theme.REAL))
        .otherwise(alt.value("white")),
        tooltip=[
            alt.Tooltip("quantity:N", title="this head's"),
            alt.Tooltip("d_k:Q"),
            alt.Tooltip("variance:Q", format=".3~g", title="variance within a row"),
        ],
    )
    return [diamonds, *(_named(marks, *line) for line in CORNER.items())]


def _named(marks: pd.DataFrame, quantity: str, place: tuple[str, int]) -> alt.Chart:
    """What one of the diamonds is, and its variance."""
    sign, above_the_axis = place
    number = "format(datum.variance, datum.variance < 99.5 ? '.2~g' : ',.0f')"
    label = f"'{sign} this head’s ' + datum.quantity + ': ' + {number}"
    return (
        alt.Chart(marks)
        .transform_filter(alt.datum.quantity == quantity)
        .transform_calculate(label=label)
        .mark_text(
            align="left", x=8, y=alt.expr(f"height - {above_the_axis}"), fontSize=theme.FONT_SIZE
        )
        .encode(text="label:N")
    )


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
