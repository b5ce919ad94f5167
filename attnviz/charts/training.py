"""Curves of a toy in training: a number over the steps, for each divisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, expr, layer, number, only, word

BAND = 0.18  # opacity, of what lies between the least and the largest seed
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # where seeds diverged
NARROW = 330  # px of a plot; there the legend takes two rows


@dataclass(frozen=True)
class Axis:
    """How a quantity is drawn: its name, its scale, and how its numbers are written."""

    title: str
    scale: Spec
    format: str = "~g"
    values: tuple[float, ...] | None = None  # numbers at the axis


LINEAR = {"domain": [0, 1], "nice": False}
QUANTITIES = {
    "accuracy": Axis("right answers", LINEAR, "%"),
    "loss": Axis(
        "loss (nats)",
        {"type": "log", "domain": [1e-4, 10], "nice": False},
        values=(1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0),
    ),
    "entropy": Axis("entropy, relative to even weights", LINEAR),
    "jacobian_median": Axis("‖J‖ of the median row", {"domain": [0, 0.5], "nice": False}),
    "jacobian_mean": Axis("mean ‖J‖ of the rows", {"domain": [0, 0.5], "nice": False}),
    "query_gradient": Axis(
        "‖dL/dW_Q‖",
        {"type": "log", "domain": [1e-5, 100], "nice": False},
        values=(1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0),
    ),
}


@in_turn
def curves(
    curves: pd.DataFrame,
    quantity: str,
    steps: int,
    lost: pd.DataFrame,
    references: pd.DataFrame,
) -> alt.LayerChart | alt.FacetChart:
    """Median over the seeds (line) between the least and the largest (band), to step `steps`.

    `curves`, `lost` and `references` are those of `training_frames`. A cross below marks a step
    at which seeds diverged; what leaves a log axis is cut off.
    """
    shown = curves[curves["quantity"] == quantity]
    several = bool((shown["seeds"] > 1).any())
    return alt.LayerChart(
        data=shown,
        layer=[
            *_compared(references[references["quantity"] == quantity]),
            *([_band(quantity, steps)] if several else []),
            _line(quantity, steps),
            _points(quantity, steps),
            *([_lost(lost, steps)] if len(lost) else []),
        ],
        height=theme.CURVE_HEIGHT,
    )


def _step(steps: int) -> Spec:
    scale = {"domain": [0, steps], "nice": False}
    return number("step", title="step", scale=scale, axis={"grid": False, "tickCount": 6})


def _value(field: str, quantity: str) -> Spec:
    axis = QUANTITIES[quantity]
    looks = {"format": axis.format, "tickCount": 6}
    if axis.values:
        looks |= {"values": axis.values, "tickCount": len(axis.values)}
    return number(field, title=axis.title, scale=axis.scale, axis=looks)


def _colour() -> Spec:
    return _look(theme.DIVISOR_COLOURS)


def _look(looks: Mapping[str, Any]) -> Spec:
    """What tells divisors apart, named in a legend: curves that learn all end in one place."""
    scale = {"domain": [*looks], "range": [*looks.values()]}
    words = {"labelFontSize": theme.FONT_SIZE, "labelExpr": "'÷ ' + datum.label", "title": None}
    legend = {"orient": "top", "symbolType": "stroke", "symbolSize": 500, "symbolOpacity": 1}
    legend |= {"columnPadding": 12, "columns": expr(f"width < {NARROW} ? 2 : 4")}
    return word("divisor") | {"scale": scale, "legend": legend | words}


def _line(quantity: str, steps: int) -> alt.Chart:
    encoding = {"x": _step(steps), "y": _value("median", quantity)}
    encoding |= {"color": _colour(), "strokeDash": _look(theme.DIVISOR_DASHES)}
    return layer("line", encoding, strokeWidth=theme.LINE_WIDTH, clip=True)


def _points(quantity: str, steps: int) -> alt.Chart:
    """Where it was measured, to point at."""
    tooltip = [
        word("divisor"),
        number("step"),
        number("median", format=".3~g", title=f"{QUANTITIES[quantity].title}, median"),
        number("low", format=".3~g", title="least"),
        number("high", format=".3~g", title="largest"),
        number("seeds"),
    ]
    encoding = {"x": _step(steps), "y": _value("median", quantity), "color": _colour()}
    encoding["tooltip"] = tooltip  # type: ignore[assignment] # a channel of several
    return layer("point", encoding, filled=True, size=30, opacity=1, clip=True)


def _band(quantity: str, steps: int) -> alt.Chart:
    encoding = {"x": _step(steps), "y": _value("low", quantity), "y2": {"field": "high"}}
    encoding["color"] = _colour()
    return layer("area", encoding, [only("datum.seeds > 1")], opacity=BAND, clip=True)


def _compared(references: pd.DataFrame) -> list[alt.Chart]:
    """Level lines with their names, which stand at the right, above them."""
    value = {"y": number("value")}
    named = value | {"text": word("name"), "x": {"value": expr("width - 4")}}
    looks = {"align": "right", "dy": -7, "fontSize": theme.SMALL_FONT, "color": theme.WORDS}
    return [
        layer("rule", value, (), references, color=theme.WORDS, opacity=theme.PALE),
        layer("text", named, (), references, opacity=0.8, **looks),
    ]


def _lost(lost: pd.DataFrame, steps: int) -> alt.Chart:
    encoding = {
        "x": _step(steps),
        "y": {"value": expr("height - 10")},
        "color": _colour(),
        "tooltip": [word("divisor"), number("step"), number("seeds", title="seeds that diverged")],
    }
    looks = {"shape": CROSS, "size": 40, "filled": False, "strokeWidth": 2, "opacity": 1}
    return layer("point", encoding, (), lost, **looks)


@in_turn
def probe(weights: pd.DataFrame) -> alt.Chart:
    """What each query gives each item; a toy that has learnt looks down the diagonal."""
    places = {"axis": {"labels": False, "ticks": False}, "type": "ordinal"}
    encoding = {
        "x": {"field": "item", "title": "item", **places},
        "y": {"field": "query", "title": "query", **places},
        "color": number("weight", scale={"scheme": "viridis", "domain": [0, 1]}, legend=None),
        "tooltip": [number("query"), number("item"), number("weight", format=".3f")],
    }
    looks = {"width": theme.PROBE_SIDE, "height": theme.PROBE_SIDE}
    return layer("rect", encoding, (), weights).properties(**looks)
