"""Curves of a toy in training: a number over the steps, for each divisor or way to project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, expr, layer, number, only, word

BAND = 0.18  # opacity, of what lies between the least and the largest seed
LABEL_LIMIT = 200  # px of a name in a legend
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # where seeds diverged
NARROW, WIDE = 330, 640  # px of a plot; a legend has the fewer columns the narrower it is

By = Literal["divisor", "variant"]


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
    "target_weight": Axis("weight on the item that holds the answer", LINEAR),
    "jacobian_median": Axis("‖J‖ of the median row", {"domain": [0, 0.5], "nice": False}),
    "jacobian_mean": Axis("mean ‖J‖ of the rows", {"domain": [0, 0.5], "nice": False}),
    "query_gradient": Axis(
        "‖dL/dW_Q‖",
        {"type": "log", "domain": [1e-5, 100], "nice": False},
        values=(1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0),
    ),
}
# Where contents are vectors
OF_VECTORS = QUANTITIES | {
    "accuracy": Axis("R²", {"domain": [-0.2, 1], "nice": False}),
    "loss": Axis(
        "squared error",
        {"type": "log", "domain": [1e-5, 10], "nice": False},
        values=(1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0),
    ),
}
COLOURS: Mapping[By, Mapping[str, str]] = {
    "divisor": theme.DIVISOR_COLOURS,
    "variant": theme.VARIANT_COLOURS,
}
DASHES: Mapping[By, Mapping[str, list[int]]] = {
    "divisor": theme.DIVISOR_DASHES,
    "variant": theme.VARIANT_DASHES,
}


@in_turn
def curves(
    curves: pd.DataFrame,
    quantity: str,
    steps: int,
    lost: pd.DataFrame,
    references: pd.DataFrame,
    by: By = "divisor",
    axes: Mapping[str, Axis] = QUANTITIES,
) -> alt.LayerChart | alt.FacetChart:
    """Median over the seeds (line) between the least and the largest (band), to step `steps`.

    `curves`, `lost` and `references` are those of `training_frames`, `by` the column that tells
    curves apart, `axes` one of `QUANTITIES` and `OF_VECTORS`. A cross below marks a step at which
    seeds diverged; what leaves an axis is cut off.
    """
    shown = curves[curves["quantity"] == quantity]
    several = bool((shown["seeds"] > 1).any())
    names = _names(by, shown)
    x = _step(steps)
    colour = {"color": told_apart(by, COLOURS[by], names)}
    dash = {"strokeDash": told_apart(by, DASHES[by], names)}
    return alt.LayerChart(
        data=shown,
        layer=[
            *compared(references[references["quantity"] == quantity]),
            *([_band(colour, x, quantity, axes)] if several else []),
            _line(colour | dash, x, axes[quantity]),
            _points(by, colour, x, axes[quantity]),
            *([_lost(by, colour, x, lost)] if len(lost) else []),
        ],
        height=theme.CURVE_HEIGHT,
    )


def _names(by: By, shown: pd.DataFrame) -> list[str]:
    """What the legend names: the four divisors always, of the many ways to project those shown."""
    if by == "divisor":
        return [*theme.DIVISOR_COLOURS]
    return list(shown[by].unique())


def told_apart(by: By, looks: Mapping[str, Any], names: Sequence[str]) -> Spec:
    """What tells curves apart, named in a legend: curves that learn all end in one place."""
    scale = {"domain": list(names), "range": [looks[name] for name in names]}
    said = "'÷ ' + datum.label" if by == "divisor" else "datum.label"
    words = {"labelFontSize": theme.FONT_SIZE, "labelExpr": said, "title": None}
    words |= {"labelLimit": LABEL_LIMIT}
    legend = {"orient": "top", "symbolType": "stroke", "symbolSize": 500, "symbolOpacity": 1}
    legend |= {"columnPadding": 12, "columns": _columns(by)}
    return word(by) | {"scale": scale, "legend": legend | words}


def _columns(by: By) -> Spec:
    """Names of ways to project are longer."""
    wide = f"width < {WIDE} ? 3 : 4" if by == "variant" else "4"
    return expr(f"width < {NARROW} ? 2 : {wide}")


def _step(steps: int) -> Spec:
    scale = {"domain": [0, steps], "nice": False}
    return number("step", title="step", scale=scale, axis={"grid": False, "tickCount": 6})


def value(field: str, axis: Axis) -> Spec:
    """The axis of a quantity."""
    looks = {"format": axis.format, "tickCount": 6}
    if axis.values:
        looks |= {"values": axis.values, "tickCount": len(axis.values)}
    return number(field, title=axis.title, scale=axis.scale, axis=looks)


def _line(looks: Spec, x: Spec, axis: Axis) -> alt.Chart:
    encoding = {"x": x, "y": value("median", axis), **looks}
    return layer("line", encoding, strokeWidth=theme.LINE_WIDTH, clip=True)


def _points(by: By, colour: Spec, x: Spec, axis: Axis) -> alt.Chart:
    """Where it was measured, to point at."""
    tooltip = [
        word(by),
        number("step"),
        number("median", format=".3~g", title=f"{axis.title}, median"),
        number("low", format=".3~g", title="least"),
        number("high", format=".3~g", title="largest"),
        number("seeds"),
    ]
    encoding: Spec = {"x": x, "y": value("median", axis), "tooltip": tooltip, **colour}
    return layer("point", encoding, filled=True, size=30, opacity=1, clip=True)


def _band(colour: Spec, x: Spec, quantity: str, axes: Mapping[str, Axis]) -> alt.Chart:
    encoding = {"x": x, "y": value("low", axes[quantity]), "y2": {"field": "high"}, **colour}
    return layer("area", encoding, [only("datum.seeds > 1")], opacity=BAND, clip=True)


def compared(references: pd.DataFrame) -> list[alt.Chart]:
    """Level lines with their names, which stand at the right, above them."""
    level = {"y": number("value")}
    named = level | {"text": word("name"), "x": {"value": expr("width - 4")}}
    looks = {"align": "right", "dy": -7, "fontSize": theme.SMALL_FONT, "color": theme.WORDS}
    return [
        layer("rule", level, (), references, color=theme.WORDS, opacity=theme.PALE),
        layer("text", named, (), references, opacity=0.8, **looks),
    ]


def _lost(by: By, colour: Spec, x: Spec, lost: pd.DataFrame) -> alt.Chart:
    encoding: Spec = {
        "x": x,
        "y": {"value": expr("height - 10")},
        "tooltip": [word(by), number("step"), number("seeds", title="seeds that diverged")],
        **colour,
    }
    looks = {"shape": CROSS, "size": 40, "filled": False, "strokeWidth": 2, "opacity": 1}
    return layer("point", encoding, (), lost, **looks)


@in_turn
def probe(weights: pd.DataFrame, name: str = "") -> alt.Chart:
    """What each query gives each item; a toy that has learnt looks down the diagonal."""
    places = {"axis": {"labels": False, "ticks": False}, "type": "ordinal"}
    encoding = {
        "x": {"field": "item", "title": "item", **places},
        "y": {"field": "query", "title": "query", **places},
        "color": number("weight", scale={"scheme": "viridis", "domain": [0, 1]}, legend=None),
        "tooltip": [number("query"), number("item"), number("weight", format=".3f")],
    }
    looks: Spec = {"width": theme.PROBE_SIDE, "height": theme.PROBE_SIDE, "autosize": "pad"}
    if name:
        looks["title"] = {"text": name, "fontSize": theme.FONT_SIZE, "anchor": "middle"}
    return layer("rect", encoding, (), weights).properties(**looks)
