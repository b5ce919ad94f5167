"""How long gradients are under each divisor: whole distributions, with their mean and median.

Where a few rows carry all, the mean alone says nothing of a typical row.
"""

from __future__ import annotations

import json

import altair as alt
import numpy as np
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, either, expr, layer, number, word

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BELOW_BARS = 12  # px of a row under its bars: the median points up from there
EVERY = 2  # decades between the numbers at the axis
NARROW = 420  # px of a plot; in a narrower one words are smaller
HEIGHTS = "bars: share of queries, each histogram to its highest"
APART = "\N{NO-BREAK SPACE}" * 3
MEAN, MEDIAN = "●", "△"


@in_turn
def distribution(
    gradients: pd.DataFrame, marks: pd.DataFrame, quantity: str
) -> alt.LayerChart | alt.FacetChart:
    """Draw one quantity of `gradients`: a histogram for each divisor over one log axis.

    A disc on a line through the bars is the mean, a triangle under them the median, of the
    `gradient_marks`; their numbers stand above. The first bin, which holds all shorter ones as
    well, is an outline. Marks beyond the axis stand at its end, with their number.
    """
    bins = gradients[gradients["quantity"] == quantity]
    divisors = [*bins["divisor"].unique()]
    ends = float(bins["left"].min()), float(bins["right"].max())
    places = {name: place for place, name in enumerate(divisors)}
    bars = _bars(bins, places)
    points = _points(marks[marks["quantity"] == quantity], places, ends)
    height = theme.GRADIENT_ROW * len(divisors)
    layers = [_histograms(quantity, ends, height, divisors), *_marked(points), _named(points)]
    return chart(layers, bars, {"narrow": expr(f"width < {NARROW}")}, height)


def _baseline(rows: pd.Series) -> pd.Series:
    return theme.GRADIENT_ROW * (rows + 1) - BELOW_BARS


def _bars(bins: pd.DataFrame, places: dict[str, int]) -> pd.DataFrame:
    """Each row's bars in px, the highest as high as the row."""
    highest = bins.groupby("divisor")["share"].transform("max").replace(0, 1)
    tallest = theme.GRADIENT_ROW - theme.GRADIENT_NAME - BELOW_BARS
    bottom = _baseline(bins["divisor"].map(places))
    drawn = bins.assign(bottom=bottom, top=bottom - tallest * bins["share"] / highest)
    return drawn.loc[bins["share"] > 0].drop(columns="quantity")


def _points(marks: pd.DataFrame, places: dict[str, int], ends: tuple[float, float]) -> pd.DataFrame:
    """Where means and medians stand, at the ends of the axis if they lie beyond."""
    rows = marks["divisor"].map(places)
    bottom = _baseline(rows)
    return pd.DataFrame(
        {
            "divisor": marks["divisor"],
            "mean": marks["mean"],
            "median": marks["median"],
            "mean_at": marks["mean"].clip(*ends),
            "median_at": marks["median"].clip(*ends),
            "bottom": bottom,
            "top": theme.GRADIENT_ROW * rows + theme.GRADIENT_NAME,
            "below": bottom + BELOW_BARS / 2,
            "name_at": theme.GRADIENT_ROW * rows + theme.GRADIENT_NAME / 2,
            "name": "÷ " + marks["divisor"],
            "said": list(map(_said, marks["mean"], marks["median"])),
        }
    )


def _said(mean: float, median: float) -> str:
    return f"{MEAN} mean {_short(mean)}{APART}{MEDIAN} median {_short(median)}"


def _short(length: float) -> str:
    """Three digits, very small numbers as powers of ten."""
    if length == 0 or not length < 1e-3:
        return f"{length:#.3g}".rstrip(".") if length else "0"
    digits, power = f"{length:.1e}".split("e")
    return f"{digits}·10{str(int(power)).translate(SUPERSCRIPTS)}"


def _histograms(
    quantity: str, ends: tuple[float, float], height: int, divisors: list[str]
) -> alt.Chart:
    colours = [theme.divisor_look(name)[0] for name in divisors]
    look = word("divisor") | {"scale": {"domain": divisors, "range": colours}, "legend": None}
    scale = {"type": "log", "domain": list(ends), "nice": False}
    encoding = {
        "x": number("left", title=None, scale=scale, axis=_axis(quantity, ends)),
        "x2": {"field": "right"},
        "y": number(
            "top", scale={"domain": [0, height], "range": [0, height], "nice": False}, axis=None
        ),
        "y2": {"field": "bottom"},
        "color": look,
        "stroke": look,
        "fillOpacity": either("datum.least", 0, 0.9),
        "strokeWidth": either("datum.least", 2.5, 0.5),
        "tooltip": [
            word("divisor"),
            number("left", format=".2~g", title="from"),
            number("right", format=".2~g", title="to"),
            number("share", format=".1~%", title="share of rows"),
            word("least") | {"title": "holds all shorter ones"},
        ],
    }
    return layer("rect", encoding)


def _axis(quantity: str, ends: tuple[float, float]) -> Spec:
    low, high = (round(float(np.log10(end))) for end in ends)
    powers = [power for power in range(low, high + 1) if (power - low) % EVERY == 0]
    said = ["1" if p == 0 else "10" + str(p).translate(SUPERSCRIPTS) for p in powers]
    said[0] = f"≤ {said[0]}"
    listed = json.dumps(said, ensure_ascii=False)
    return {
        "title": [quantity, HEIGHTS],
        "titleAnchor": "start",
        "titleFontSize": theme.SMALL_FONT,
        "titlePadding": 4,
        "values": [10.0**power for power in powers],
        "tickCount": len(powers),
        "labelExpr": f"{listed}[round((log(datum.value) / LN10 - {low}) / {EVERY})]",
        "labelFontSize": theme.SMALL_FONT,
        "labelFlush": True,
        "grid": True,
    }


def _marked(points: pd.DataFrame) -> list[alt.Chart]:
    """Mean and median: a disc on a whole line, a triangle below a dashed one."""
    mark: Spec = {"color": theme.WORDS, "tooltip": None}
    top_to_bottom = {"y": number("top"), "y2": {"field": "bottom"}}
    mean = {"x": number("mean_at"), **top_to_bottom}
    median = {"x": number("median_at"), **top_to_bottom}
    disc = {"x": number("mean_at"), "y": number("top")}
    triangle = {"x": number("median_at"), "y": number("below")}
    open_ = {"filled": False, "strokeWidth": 2, "opacity": 1, "shape": "triangle-up"}
    return [
        layer("rule", mean, (), points, strokeWidth=2, **mark),
        layer("rule", median, (), points, strokeWidth=2, strokeDash=[3, 3], **mark),
        layer("point", disc, (), points, filled=True, size=90, opacity=1, **mark),
        layer("point", triangle, (), points, size=70, **open_, **mark),
    ]


def _named(points: pd.DataFrame) -> alt.Chart:
    """What divides a row, with its mean and median."""
    size = expr(f"narrow ? {theme.SMALL_FONT} : {theme.FONT_SIZE}")
    label = calculated(label=f"datum.name + '{APART}' + datum.said")
    encoding = {"y": number("name_at"), "text": word("label")}
    looks = {"x": 0, "align": "left", "baseline": "middle", "fontSize": size, "tooltip": None}
    return layer("text", encoding, label, points, **looks)
