"""From scores to saturation under one divisor: histogram, one row of weights, what they come to.

The same charts show what was drawn and what a real head has; the colour is the divisor's.
"""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import (
    Spec,
    calculated,
    chart,
    either,
    expr,
    layer,
    number,
    only,
    told,
    word,
)

THINNEST = 1.5  # px of a bar: what is narrower than a pixel is seen all the same
LABEL_ROOM = 17  # px along the axis that a word at 45° needs
MARGIN = 0.08  # of a key's width, on either side of its bar
FINEST = 4  # digits behind the point of a mean, and of a larger mean in all
BAR, MEDIAN = 0.3, 0.42  # of a row's height, from its middle
MARKS = "bar: mean ± error, line: median"
ENDS = {
    "largest weight": "1: one key has it all · {even:.2g}: even",
    "entropy, relative to even weights": "0: one key has it all · 1: even",
    "effective number of keys": "1: one key has it all · {even:,.3g}: even",
}


@in_turn
def histogram(
    bins: pd.DataFrame,
    curve: pd.DataFrame,
    quantity: str,
    divisor: str,
    reach: tuple[float, float],
) -> alt.LayerChart | alt.FacetChart:
    """Measured density (bars of a `histogram`) and predicted one (line of a `normal_curve`).

    `reach` is where the axis of the quantity begins and ends, whatever the bins: so several
    divisors can be compared. What lies beyond is cut.
    """
    colour, dash = theme.divisor_look(divisor)
    scale = {"domain": list(reach), "nice": False}
    axis = {"grid": False, "tickCount": 5, "labelFlush": True, "titlePadding": 4}
    bare = {"labels": False, "ticks": False, "grid": False}
    bars = {
        "x": number("left", title=quantity, scale=scale, axis=axis),
        "x2": {"field": "right"},
        "y": number("density", title="density", axis=bare),
        "tooltip": [
            number("left", format=".3~g", title="from"),
            number("right", format=".3~g", title="to"),
            number("density", format=".3~g", title="measured density"),
            number("predicted", format=".3~g", title="predicted density"),
        ],
    }
    bin_width = float((bins["right"] - bins["left"]).max()) / (reach[1] - reach[0])
    thin = expr(f"width * {bin_width} < {THINNEST} ? {THINNEST} : 0")
    looks = {"color": colour, "stroke": colour, "strokeWidth": thin, "opacity": 0.55, "clip": True}
    drawn = [layer("rect", bars, [only("datum.density > 0")], **looks)]
    if len(curve):
        line = {"x": number("x"), "y": number("predicted")}
        looks = {"color": colour, "strokeWidth": theme.LINE_WIDTH, "strokeDash": dash, "clip": True}
        drawn.append(layer("line", line, (), curve, tooltip=None, **looks))
    return alt.LayerChart(data=bins, layer=drawn, height=theme.HISTOGRAM_HEIGHT)


@in_turn
def cosines(shares: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Share of a real head's pairs in each bin of `cosines`, from −1 to 1; the rule is at 0."""
    axis = {"grid": False, "values": [-1, -0.5, 0, 0.5, 1], "format": "~g", "titlePadding": 4}
    scale = {"domain": [-1, 1], "nice": False}
    bars = {
        "x": number("left", title="cosine of q and k", scale=scale, axis=axis),
        "x2": {"field": "right"},
        "y": number("share", title="share", axis={"format": "~%", "tickCount": 3}),
        "y2": {"datum": 0},
        "tooltip": [
            number("left", format=".3~g", title="from"),
            number("right", format=".3~g", title="to"),
            number("share", format=".2~%", title="share of pairs"),
        ],
    }
    zero = pd.DataFrame({"left": [0]})
    looks: Spec = {"color": theme.WORDS, "opacity": theme.PALE, "tooltip": None}
    drawn = [
        layer("rect", bars, color=theme.REAL),
        layer("rule", {"x": number("left")}, (), zero, **looks),
    ]
    return alt.LayerChart(data=shares, layer=drawn, height=theme.HISTOGRAM_HEIGHT)


@in_turn
def weights(row: pd.DataFrame, divisor: str) -> alt.LayerChart | alt.FacetChart:
    """The weights of a `row` under one divisor, from 0 to 1, each at its key's own place.

    Where there is a column `token` and there are few keys, words name them; else their numbers.
    """
    keys = row["key"].tolist() or [0]  # a query may see none
    first, last = min(keys), max(keys)
    named = "token" in row and len(row) and last - first < theme.LABELLED_TOKENS
    scale = {"domain": [first, last + 1], "nice": False}
    bars = {
        "x": number("left", scale=scale, axis=_words(row) if named else _numbers(first, last)),
        "x2": {"field": "right"},
        "y": number(
            "weight", scale={"domain": [0, 1]}, axis={"values": [0, 0.5, 1], "format": "~g"}
        ),
        "y2": {"datum": 0},
        "tooltip": [
            *([word("token")] if "token" in row else []),
            number("key"),
            *(told(name, name) for name in ("score", "logit", "weight")),
        ],
    }
    colour = theme.divisor_look(divisor)[0]
    seen = f"datum.weight * {theme.KEY_BARS_HEIGHT} > 1 && cell < 2 * {THINNEST}"
    bars["strokeWidth"] = either(seen, THINNEST, 0)
    edges = calculated(left=f"datum.key + {MARGIN}", right=f"datum.key + {1 - MARGIN}")
    return chart(
        [layer("rect", bars, color=colour, stroke=colour)],
        row[[*(["token"] if "token" in row else []), "key", "score", "logit", "weight"]],
        {"cell": expr(f"width / {last - first + 1}")},
        theme.KEY_BARS_HEIGHT,
        edges,
    )


def _words(row: pd.DataFrame) -> Spec:
    """The words of the keys at their places, thinned where there is no room."""
    first = int(row["key"].min())
    words = dict(zip((row["key"] - first).tolist(), row["token"].tolist(), strict=True))
    count = max(words) + 1
    place = f"(floor(datum.value) - {first})"
    said = [str(words.get(at, "")) for at in range(count)]
    return _key_axis(first, count, 1) | {
        "labelExpr": f"{place} % ceil({LABEL_ROOM} / cell) ? '' : {_listed(said)}[{place}]",
        "labelAngle": -45,
        "labelLimit": theme.KEY_LABEL,
        "minExtent": theme.KEY_LABEL_HEIGHT,
        "maxExtent": theme.KEY_LABEL_HEIGHT,
        "title": None,
    }


def _numbers(first: int, last: int) -> Spec:
    """Numbers of keys, a power of two apart."""
    step = 2 ** max(0, math.ceil(math.log2((last - first + 1) / 9)))
    return _key_axis(first, last - first + 1, step) | {"title": "key"}


def _key_axis(first: int, count: int, step: int) -> Spec:
    places = [first + 0.5 + at for at in range(0, count, step)]
    looks: Spec = {"grid": False, "ticks": False, "domain": False, "labelOverlap": False}
    return looks | {
        "values": places,
        "tickCount": len(places),  # Vega thins even given values to its own count
        "labelExpr": "floor(datum.value)",
        "labelFontSize": theme.SMALL_FONT,
        "labelAngle": 0,
        "titlePadding": 4,
    }


def _listed(words: list[str]) -> str:
    """A list of words as an expression, whatever they hold."""
    return pd.Series(words).to_json(orient="values", force_ascii=False)


@in_turn
def saturation(
    chain: pd.DataFrame, quantity: str, even: float, n: int
) -> alt.LayerChart | alt.FacetChart:
    """One quantity of the stage "saturation" of a `chain`, a bar for each divisor.

    The bar is the mean, with its standard error; the tick is the median. The effective number
    of keys has a log axis from 1 to `n`, the others one from 0 to 1. `even` is what the mean
    would be if all weights were even.
    """
    rows = chain[(chain["stage"] == "saturation") & (chain["quantity"] == quantity)]
    counted = quantity == "effective number of keys"
    colours = [theme.divisor_look(name)[0] for name in rows["divisor"]]
    drawn = rows[["divisor", "mean", "median", "standard_error"]].assign(
        row=range(len(rows)),
        name="÷ " + rows["divisor"],
        start=1.0 if counted else 0.0,
        said=list(map(written, rows["mean"], rows["standard_error"])),
        lower=(rows["mean"] - rows["standard_error"]).clip(lower=1.0 if counted else 0.0),
        upper=rows["mean"] + rows["standard_error"],
    )
    across = {
        "scale": _from_one(n) if counted else {"domain": [0, 1], "nice": False},
        "axis": _ends(quantity, even, n),
    }
    across["scale"]["range"] = [0, expr(f"max(40, width - {theme.NUMBER_WIDTH})")]
    return chart(
        _bars(drawn, across, quantity, colours),
        drawn,
        {},
        theme.SATURATION_ROW * len(drawn),
        calculated(
            top=f"datum.row + 0.5 - {BAR}",
            bottom=f"datum.row + 0.5 + {BAR}",
            above=f"datum.row + 0.5 - {MEDIAN}",
            below=f"datum.row + 0.5 + {MEDIAN}",
            middle="datum.row + 0.5",
        ),
    )


def _from_one(n: int) -> Spec:
    return {"type": "log", "domain": [1, max(2, n)], "nice": False}


def _ends(quantity: str, even: float, n: int) -> Spec:
    """The axis, with what its ends are said below."""
    ends = ENDS[quantity].format(even=even)
    values = [0, 0.5, 1]
    if quantity == "effective number of keys":
        step = 4 if n <= 300 else 10
        values = [step**power for power in range(10) if step**power < max(2, n) / 2] + [max(2, n)]
    return {
        "title": [quantity, ends, MARKS],
        "titleAnchor": "start",
        "titleFontSize": theme.SMALL_FONT,
        "titlePadding": 4,
        "values": values,
        "format": ",~g",
        "grid": False,
        "labelFlush": True,
    }


def _bars(drawn: pd.DataFrame, across: Spec, quantity: str, colours: list[str]) -> list[alt.Chart]:
    names = [*drawn["name"]]
    row = {"domain": [0, len(drawn)], "range": [0, theme.SATURATION_ROW * len(drawn)]}
    axis = {
        "values": [place + 0.5 for place in range(len(drawn))],
        "tickCount": len(drawn),
        "labelExpr": f"{_listed(names)}[floor(datum.value)]",
        "labelFontSize": theme.FONT_SIZE,
        "labelOverlap": False,
        "title": None,
        "grid": False,
        "ticks": False,
        "domain": False,
    }
    colour = {"scale": {"domain": [*drawn["divisor"]], "range": colours}, "legend": None}
    bar = {
        "x": number("start", **across),
        "x2": {"field": "mean"},
        "y": number("top", scale=row | {"nice": False}, axis=axis),
        "y2": {"field": "bottom"},
        "color": word("divisor") | colour,
        "tooltip": [
            word("divisor"),
            told("mean", f"{quantity}, mean"),
            number("standard_error", format=".1~g", title="± standard error"),
            told("median", "median"),
        ],
    }
    error = {"x": number("lower"), "x2": {"field": "upper"}, "y": number("middle")}
    median = {"x": number("median"), "y": number("above"), "y2": {"field": "below"}}
    said = {"y": number("middle"), "text": word("said")}
    mark: Spec = {"color": theme.WORDS, "strokeWidth": 2, "tooltip": None}
    return [
        layer("rect", bar),
        layer("rule", error, **mark),
        layer("rule", median, **mark),
        layer(
            "text",
            said,
            x=expr("width"),
            align="right",
            baseline="middle",
            fontSize=theme.FONT_SIZE,
            tooltip=None,
        ),
    ]


def written(mean: float, error: float) -> str:
    """A mean with the digits that its error leaves it, and the error if it can be told.

    >>> written(0.79112, 0.0014), written(39.96, 1.2), written(63.99998, 1e-7)
    ('0.791 ± 0.001', '40 ± 1', '64.00')
    """
    if not math.isfinite(error) or error <= 0:
        return f"{mean:.3g}"
    whole = max(0, math.floor(math.log10(mean)) + 1) if mean > 0 else 0
    digits = max(0, min(FINEST - whole, -math.floor(math.log10(error))))
    if error < 0.5 * 10.0**-digits:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
