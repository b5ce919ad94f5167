"""What a toy comes to against the width of its head, or against what the head costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, layer, number, word
from attnviz.charts.training import Axis, compared, told_apart, value

Cost = Literal["d_k", "weights", "kept"]
COSTS: dict[Cost, str] = {
    "d_k": "head width (d_k = d_v)",
    "weights": "numbers in the matrices",
    "kept": "numbers kept for each item",
}
APART = 0.03  # octaves between variants of one width, which stand side by side
BESIDE = 0.35  # octaves left and right of all points
SIGN_SIZE = 120


@in_turn
def widths(
    cells: pd.DataFrame, cost: Cost, axis: Axis, references: pd.DataFrame
) -> alt.LayerChart | alt.FacetChart:
    """Mean of the seeds (sign) with the least and the largest (bar), for each variant.

    `cells` is a `training_frames.by_width` of one task, `cost` the column across, on a log axis;
    `references` are level lines. Only at equal widths, where signs would cover each other, do
    variants stand a little apart.
    """
    names = list(cells["variant"].unique())
    placed = cells.assign(at=_places(cells, cost, names))
    x = _across(placed, cost)
    dash = _signs(theme.VARIANT_DASHES, names)
    colour = {"color": _signs(theme.VARIANT_COLOURS, names)}
    return alt.LayerChart(
        data=placed,
        layer=[
            *compared(references[references["quantity"] == "accuracy"]),
            _spread(colour, x, axis),
            _line(colour | {"strokeDash": dash}, x, axis),
            _points(colour, x, axis, names),
        ],
        height=theme.WIDTHS_HEIGHT,
    )


def _places(cells: pd.DataFrame, cost: Cost, names: Sequence[str]) -> pd.Series:
    if cost != "d_k":
        return cells[cost].astype(float)
    middle = (len(names) - 1) / 2
    aside = cells["variant"].map({name: APART * (i - middle) for i, name in enumerate(names)})
    return cells[cost] * 2.0**aside


def _across(placed: pd.DataFrame, cost: Cost) -> Spec:
    """A log axis: at equal widths with each width, else with the powers of two."""
    least, most = float(placed[cost].min()), float(placed[cost].max())
    ends = np.log2([least, most])
    between = 2.0 ** np.arange(np.ceil(ends[0] - BESIDE), np.floor(ends[1] + BESIDE) + 1)
    values = sorted(placed[cost].unique()) if cost == "d_k" else between
    scale = {"type": "log", "base": 2, "nice": False}
    scale |= {"domain": [least * 2**-BESIDE, most * 2**BESIDE]}
    axis = {"values": [float(x) for x in values], "format": ",", "grid": False}
    return number("at", title=COSTS[cost], scale=scale, axis=axis)


def _signs(looks: Mapping[str, Any], names: Sequence[str]) -> Spec:
    """As for curves, but named beside the signs themselves."""
    channel = told_apart("variant", looks, names)
    legend = {name: v for name, v in channel["legend"].items() if name != "symbolType"}
    return channel | {"legend": legend | {"symbolSize": SIGN_SIZE, "symbolStrokeWidth": 0}}


def _line(looks: Spec, x: Spec, axis: Axis) -> alt.Chart:
    encoding = {"x": x, "y": value("accuracy", axis), **looks}
    return layer("line", encoding, strokeWidth=theme.LINE_WIDTH)


def _spread(colour: Spec, x: Spec, axis: Axis) -> alt.Chart:
    encoding = {"x": x, "y": value("low", axis), "y2": {"field": "high"}, **colour}
    return layer("rule", encoding, strokeWidth=theme.LINE_WIDTH)


def _points(colour: Spec, x: Spec, axis: Axis, names: Sequence[str]) -> alt.Chart:
    tooltip = [
        word("variant"),
        number("d_k", title="head width"),
        number("accuracy", format=".3~g", title=f"{axis.title}, mean"),
        number("low", format=".3~g", title="least"),
        number("high", format=".3~g", title="largest"),
        number("seeds"),
        number("weights", format=",", title=COSTS["weights"]),
        number("kept", title=COSTS["kept"]),
    ]
    encoding: Spec = {"x": x, "y": value("accuracy", axis), "tooltip": tooltip, **colour}
    encoding["shape"] = _signs(theme.VARIANT_SIGNS, names)
    return layer("point", encoding, filled=True, size=SIGN_SIZE, opacity=1)
