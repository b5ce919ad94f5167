"""What multiplying scores does to a model: its loss against the factor, and before beside after.

Before is a disc, after a diamond: colour is never alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, expr, layer, number, only, told, word

PLOT_HEIGHT = 230  # px without axes
ROW = 24  # px from one token that may come next to the following
ROOM = 30  # px beside the outermost points, for what is written at them
LEAST_SPAN = 0.1  # of the vertical axis: nats, or a share
LABEL_ROW = 18  # px; names of divisors stand on two rows, and so apart
DISC, DIAMOND = 80, 130
LABEL_LIMIT = 150  # px of a token's name beside its row
SIGNS = {"before": "●", "after": "◆"}
ENDS = {"y": number("before"), "y2": {"field": "after"}}
THIN: Spec = {"color": theme.WORDS, "opacity": theme.PALE, "tooltip": None}


@in_turn
def against_factor(
    frame: pd.DataFrame, quantity: str, chosen: tuple[float, float] | None = None
) -> alt.LayerChart | alt.FacetChart:
    """Draw an `against_factor`: the factor on a log axis, the four divisors marked.

    The factor 0 has no place on that axis: it is a dashed line across. `chosen` is the factor and
    the value of the change that is looked at.
    """
    divisor = {"color": _divisor_looks(theme.DIVISOR_COLOURS)}
    dashed = divisor | {"strokeDash": _divisor_looks(theme.DIVISOR_DASHES)}
    above, some = only("datum.factor > 0"), only("datum.divisor != ''")
    x, y = _factor_axis(), _value_axis(frame["value"], quantity)
    at = {"x": x, "y": y}
    tooltip = [told("factor", "factor"), word("divisor"), told("value", quantity)]
    tooltip += [told("difference", "more than untouched")] if "difference" in frame else []
    own = "(datum.factor == 1 ? ': its own' : '')"
    names = calculated(
        name=f"'÷ ' + datum.divisor + {own}", up="indexof(divisors, datum.divisor) % 2"
    )
    layers = [
        layer("rule", {"x": x, **dashed}, [above, some], strokeWidth=1.5, tooltip=None),
        *_no_scores(frame),
        layer("line", at, [above], color=theme.REAL, strokeWidth=theme.LINE_WIDTH, tooltip=None),
        layer("point", at | {"tooltip": tooltip}, [above], color=theme.REAL, filled=True, size=45),
        layer(
            "point",
            at | divisor | {"tooltip": tooltip},
            [above, some],
            filled=True,
            opacity=1,
            size=DIAMOND,
        ),
        *(_divisor_name(names, row) for row in (0, 1)),
        *_own(frame),
        *_chosen(chosen),
    ]
    params = {"divisors": [*theme.DIVISOR_COLOURS]}
    return chart(layers, frame, params, PLOT_HEIGHT)


@in_turn
def of_tokens(
    frame: pd.DataFrame, quantity: str, after: str, divisor: str = ""
) -> alt.LayerChart | alt.FacetChart:
    """Draw an `of_tokens`: each token's number before and after, `after` saying after what."""
    y = number("after", axis=_axis(quantity), scale={"zero": True, "nice": True})
    x = number("middle", **_token_scale(frame), axis=_token_axis(frame))
    tooltip = [word("token"), number("place"), *_told(frame)]
    diamonds = layer("point", {"x": x, "y": y, "tooltip": tooltip}, **_diamond(divisor))
    layers = [diamonds]
    if "before" in frame:
        discs = {"x": x, "y": number("before"), "tooltip": tooltip}
        layers = [layer("rule", {"x": x, **ENDS}, **THIN), layer("point", discs, **_disc())]
        layers.append(diamonds)
    drawn = frame.drop(columns="token")
    params = {"words": frame["token"].tolist(), "cell": expr(f"width / {len(frame)}")}
    step = int(frame["last"].iloc[0] - frame["place"].iloc[0]) + 1
    places = calculated(
        middle=f"datum.place / {step} + 0.5", token=f"words[floor(datum.place / {step})]"
    )
    return chart(layers, drawn, params, PLOT_HEIGHT, places, _title(frame, quantity, after))


@in_turn
def next_tokens(
    frame: pd.DataFrame, after: str, divisor: str = ""
) -> alt.LayerChart | alt.FacetChart:
    """Draw a `next_tokens`: the probability of each before and after, the likeliest above."""
    axis = _axis("probability of the next token") | {"format": ".2~g", "tickCount": 4}
    x = number("after", axis=axis, scale={"zero": True, "nice": True})
    y = number("middle", axis=_row_axis(frame), scale=_rows(len(frame)))
    tooltip = [word("token"), *_told(frame)]
    at = {"y": y, "tooltip": tooltip}
    ends = {"y": y, "x": number("before"), "x2": {"field": "after"}}
    layers = [
        layer("rule", ends, **THIN),
        layer("point", at | {"x": number("before")}, **_disc()),
        layer("point", at | {"x": x}, **_diamond(divisor)),
    ]
    params = {"words": [*frame["token"]]}
    places = calculated(middle="datum.row + 0.5", token="words[datum.row]")
    drawn = frame[["row", "before", "after"]]
    title = _title(frame, "probability", after)
    return chart(layers, drawn, params, ROW * max(1, len(frame)), places, title)


# --- against the factor


def _factor_axis() -> Spec:
    scale = {"type": "log", "nice": False, "padding": ROOM}
    axis = _axis("factor on every score") | {"format": ".2~g", "tickCount": 5}
    return number("factor", scale=scale, axis=axis)


def _value_axis(values: pd.Series, quantity: str) -> Spec:
    """From the least value to the largest, but so far that noise does not look like a finding."""
    low, high = float(values.min()), float(values.max())
    beyond = max(0.0, LEAST_SPAN - (high - low)) / 2
    low = max(0.0, low - beyond)
    ends = [low, max(high + beyond, low + LEAST_SPAN)]
    scale = {"domain": ends, "zero": False, "nice": True, "padding": 8}
    return number("value", scale=scale, axis=_axis(quantity))


def _divisor_looks(looks: dict) -> Spec:
    scale = {"domain": [*looks], "range": [*looks.values()]}
    return word("divisor") | {"scale": scale, "legend": None}


def _divisor_name(names: Sequence[Spec], row: int) -> alt.Chart:
    transform = [
        only("datum.factor > 0 && datum.divisor != ''"),
        *names,
        only(f"datum.up == {row}"),
    ]
    return layer(
        "text",
        {"x": number("factor"), "text": word("name")},
        transform,
        y=-6 - LABEL_ROW * row,
        baseline="bottom",
        fontSize=theme.FONT_SIZE,
        color=theme.WORDS,
        tooltip=None,
    )


def _no_scores(frame: pd.DataFrame) -> list[alt.Chart]:
    """What comes of even weights, where that is among the points; its name where no line is."""
    zero, others = frame[frame["factor"] == 0], frame[frame["factor"] > 0].iloc[:2]
    if zero.empty:
        return []
    value = float(zero["value"].iloc[0])
    middle = others["factor"].prod() ** 0.5
    name = pd.DataFrame({"factor": [middle], "value": [value], "name": ["× 0: without q·k"]})
    aside = 10 if others["value"].mean() > value else -8  # px, away from the curve
    at = {"y": number("value")}
    text = at | {"x": number("factor"), "text": word("name")}
    looks: Spec = {"fontSize": theme.SMALL_FONT, "color": theme.WORDS, "tooltip": None}
    return [
        layer("rule", at, [only("datum.factor == 0")], strokeDash=[2, 4], **THIN),
        layer("text", text, data=name, dy=aside, **looks),
    ]


def _own(frame: pd.DataFrame) -> list[alt.Chart]:
    """Where the model is as it was trained, if that is none of the divisors."""
    if (frame.loc[frame["divisor"] != "", "factor"] == 1).any():
        return []
    own = pd.DataFrame({"factor": [1.0], "name": ["its own"]})
    looks: Spec = {"fontSize": theme.FONT_SIZE, "color": theme.WORDS, "tooltip": None}
    text = {"x": number("factor"), "text": word("name")}
    above: Spec = {"y": -6 - LABEL_ROW * 2, "baseline": "bottom"}
    return [
        layer("rule", {"x": number("factor")}, data=own, **THIN),
        layer("text", text, data=own, **above, **looks),
    ]


def _chosen(chosen: tuple[float, float] | None) -> list[alt.Chart]:
    """A ring about the change that is looked at."""
    if chosen is None or chosen[0] <= 0:
        return []
    point = pd.DataFrame([chosen], columns=["factor", "value"])
    at = {"x": number("factor"), "y": number("value")}
    looks: Spec = {"filled": False, "stroke": theme.WORDS, "strokeWidth": 2.5, "opacity": 1}
    return [layer("point", at, data=point, size=330, tooltip=None, **looks)]


# --- before and after


def _disc() -> Spec:
    return {"shape": "circle", "color": theme.REAL, "filled": True, "size": DISC, "opacity": 1}


def _diamond(divisor: str) -> Spec:
    """After a change: in the divisor's colour where there is one, else an outline."""
    looks: Spec = {"shape": "diamond", "size": DIAMOND, "opacity": 1}
    if divisor:
        return looks | {"color": theme.DIVISOR_COLOURS[divisor], "filled": True}
    return looks | {"color": theme.WORDS, "filled": False, "strokeWidth": 2}


def _title(frame: pd.DataFrame, quantity: str, after: str) -> list[str]:
    before = [f"{SIGNS['before']} before: untouched"] if "before" in frame else []
    return [*before, f"{SIGNS['after']} after: {after}"]


def _told(frame: pd.DataFrame) -> list[Spec]:
    return [told(name, name) for name in ("before", "after") if name in frame]


def _axis(title: str) -> Spec:
    size = {"titleFontSize": theme.FONT_SIZE, "labelFontSize": theme.SMALL_FONT}
    return {"title": title, "grid": False, "titleFontWeight": "normal", **size}


def _token_scale(frame: pd.DataFrame) -> Spec:
    return {"scale": {"domain": [0, len(frame)], "nice": False, "zero": False}}


def _token_axis(frame: pd.DataFrame) -> Spec:
    """Tokens at 45°, as many as have room."""
    step = -(-len(frame) // theme.LABELLED_TOKENS)
    room = f"max({step}, ceil({theme.LABEL_ROOM + 6} / cell))"
    return {
        "title": None,
        "values": expr(f"sequence(0.5, {len(frame)})"),
        "tickCount": len(frame),  # Vega thins even given values to its own count
        "labelExpr": f"floor(datum.value) % {room} ? '' : words[floor(datum.value)]",
        "labelAngle": -45,
        "labelAlign": "right",
        "labelOverlap": False,
        "labelLimit": theme.KEY_LABEL,
        "labelFontSize": theme.SMALL_FONT,
        "ticks": False,
        "grid": False,
    }


def _row_axis(frame: pd.DataFrame) -> Spec:
    return {
        "title": None,
        "values": [row + 0.5 for row in range(len(frame))],
        "tickCount": len(frame),
        "labelExpr": "words[floor(datum.value)]",
        "labelLimit": LABEL_LIMIT,
        "labelFontSize": theme.FONT_SIZE,
        "labelOverlap": False,
        "ticks": False,
        "domain": False,
        "grid": False,
    }


def _rows(count: int) -> Spec:
    return {"domain": [count, 0], "nice": False, "zero": False}
