"""How the variance of q·k / divisor grows with d_k, and how far q·k is from normal.

Measured numbers are points with their standard error, closed forms are lines.
"""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float, Num

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, either, expr, layer, number, only, word

SIGNS = {"scores": "◆", "logits": "◇"}  # of a head's numbers
LAYERS_NAMED = "● ○ each layer’s, side by side; line: its heads"
NAME_ROOM, LONG_NAME_ROOM = 60, 92  # px right of the lines: their names stand there
NAME_APART = 17  # px between the names of two lines
AXES_HEIGHT, TITLE_LINE = 48, 20  # px of a curve that are not its plot
SIDEWAYS = 0.7  # octaves that layers of one d_k spread to either side
POWER_STEP = 3  # decades between the numbers at the axis
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
KURTOSES = (-2, -1, 0, 1, 3, 10, 30, 100, 300, 1000)  # numbers at the axis
STRAIGHT = 0.5  # excess kurtosis up to which the axis is about linear


@in_turn
def curve(
    curve: pd.DataFrame,
    head: pd.DataFrame | None = None,
    layers: pd.DataFrame | None = None,
    height: int = theme.CURVE_HEIGHT,
) -> alt.LayerChart | alt.FacetChart:
    """Variance of the logits against d_k, log–log, for each divisor of a `variance_curve`.

    `head` puts a real head on it as diamonds, its scores and its logits; `layers`, a
    `layer_variances`, all layers as dots at their own d_k, beside each other where they share
    it. What is 0 or NaN has no place on a log axis and is left out.
    """
    reach = _spanned(curve, head, layers)
    title = _title(head, layers)
    real = [*([] if layers is None else _layers(layers)), *([] if head is None else [_head(head)])]
    room = height - AXES_HEIGHT - TITLE_LINE * len(title)
    return alt.LayerChart(
        data=_drawn(curve),
        layer=[*_lines(curve, reach), *real, _names(curve, reach, room), *_nothing(curve)],
        height=height,
        title=_above(title) if title else alt.Undefined,
    )


def _title(head: pd.DataFrame | None, layers: pd.DataFrame | None) -> list[str]:
    """What real points are: words among the lines would stand on some of them."""
    layers_named = [] if layers is None else [LAYERS_NAMED]
    if head is None:
        return layers_named
    variances = zip(head["quantity"], head["variance"], strict=True)
    named = [f"{SIGNS[of]} this head’s {of}: {_said(variance)}" for of, variance in variances]
    return [*named, *layers_named]


def _said(variance: float) -> str:
    return f"{variance:,.0f}" if variance >= 99.5 else f"{variance:.2g}"


def _above(lines: list[str]) -> Spec:
    title: Spec = {"fontSize": theme.FONT_SIZE, "fontWeight": "normal", "offset": 6}
    below: Spec = {"subtitleFontSize": theme.FONT_SIZE, "subtitleLineHeight": TITLE_LINE}
    place: Spec = {"anchor": "start", "frame": "bounds", "subtitlePadding": 7}
    return {"text": lines[0], "subtitle": lines[1:], **title, **below, **place}


def _nothing(curve: pd.DataFrame) -> list[alt.Chart]:
    """Where all scores are equal, that there is nothing to draw."""
    if (curve["predicted"] > 0).any() or (curve["variance"] > 0).any():
        return []
    looks = {"x": expr("width / 2"), "y": expr("height / 2 - 24"), "fontSize": theme.FONT_SIZE}
    said = {"text": {"value": "no variance: all scores are equal"}}
    return [layer("text", said, (), pd.DataFrame({"at": [0]}), **looks)]


def _drawn(curve: pd.DataFrame) -> pd.DataFrame:
    """Where the error bars end; the lower end stays on the axis."""
    least = curve["variance"] - curve["standard_error"]
    lower = least.where(least > 0, curve["variance"] / 2)
    return curve.assign(lower=lower, upper=curve["variance"] + curve["standard_error"])


def _spanned(
    curve: pd.DataFrame, head: pd.DataFrame | None, layers: pd.DataFrame | None
) -> tuple[Spec, Spec]:
    """The scales of d_k and of the variance: the usual ones, wider where points need it."""
    frames = [frame for frame in (curve, head, layers) if frame is not None]
    d_ks = np.concatenate([frame["d_k"] for frame in frames])
    if layers is not None:
        d_ks = np.append(d_ks, layers["d_k"] * 2**SIDEWAYS)
    named = ["variance", "predicted", "low", "high"]
    values = np.concatenate([frame.filter(items=named).to_numpy().ravel() for frame in frames])
    values = values[(values > 0) & np.isfinite(values)]
    low, high = theme.DRAWN_VARIANCES
    powers = [
        math.floor(math.log10(min(low, values.min(initial=low)) * 1.001)),
        math.ceil(math.log10(max(high, values.max(initial=high)) / 1.001)),
    ]
    known = curve["divisor"].isin(theme.DIVISOR_COLOURS.keys()).all()
    names = NAME_ROOM if known else LONG_NAME_ROOM
    return _octaves(d_ks, names), {
        "type": "log",
        "domain": [10.0**power for power in powers],
        "nice": False,
    }


def _octaves(d_ks: Num[np.ndarray, " point"], right: int) -> Spec:
    """The scale of d_k, with so many px free at the right."""
    domain = [0.8, 1.25 * max(2.0, float(d_ks.max(initial=2)))]
    scale = {"type": "log", "base": 2, "nice": False, "domain": domain}
    return scale | {"range": [0, expr(f"max(10, width - {right})")]}


def _d_k(scale: Spec) -> Spec:
    last = scale["domain"][1]
    step = 4 if last > 200 else 2
    values = [step**power for power in range(20) if step**power <= last]
    return number("d_k", title="d_k", scale=scale, axis={"values": values, "grid": False})


def _variance(field: str, scale: Spec) -> Spec:
    low, high = (round(math.log10(end)) for end in scale["domain"])
    every = POWER_STEP * -(-(high - low) // 24)
    powers = [power for power in range(low, high + 1) if power % every == 0]
    said = [_power(power) for power in powers]
    at = f"round((log(datum.value) / log(10) - {powers[0]}) / {every})"
    axis = {"values": [10.0**power for power in powers], "labelExpr": f"{said}[{at}]"}
    return number(field, title="variance", scale=scale, axis=axis)


def _power(power: int) -> str:
    return "1" if power == 0 else "10" + str(power).translate(SUPERSCRIPTS)


def _look(channel: int, names: pd.Series) -> Spec:
    """Colour (0) or dash (1) of each divisor, named at the lines and not in a legend."""
    names = [*theme.DIVISOR_COLOURS, *names[~names.isin(theme.DIVISOR_COLOURS.keys())].unique()]
    looks = [theme.divisor_look(name)[channel] for name in names]
    return word("divisor") | {"scale": {"domain": names, "range": looks}, "legend": None}


def _lines(curve: pd.DataFrame, reach: tuple[Spec, Spec]) -> list[alt.Chart]:
    across, up = reach
    colour, dash = (_look(channel, curve["divisor"]) for channel in (0, 1))
    ends = {"y": number("lower"), "y2": {"field": "upper"}}
    tooltip = [
        number("d_k"),
        word("divisor"),
        number("variance", format=".3~g", title="measured"),
        number("standard_error", format=".1~g", title="± standard error"),
        number("predicted", format=".3~g", title="closed form"),
    ]
    line = {"x": _d_k(across), "y": _variance("predicted", up), "strokeDash": dash}
    point = {"x": number("d_k"), "y": number("variance"), "tooltip": tooltip}
    positive = [only("datum.variance > 0")]
    return [
        layer(
            "line",
            line | {"color": colour},
            [only("datum.predicted > 0")],
            strokeWidth=theme.LINE_WIDTH,
        ),
        layer("rule", {"x": number("d_k"), **ends, "color": colour}, positive, strokeWidth=2),
        layer("point", point | {"color": colour}, positive, filled=True, size=55, opacity=1),
    ]


def _names(curve: pd.DataFrame, reach: tuple[Spec, Spec], room: int) -> alt.Chart:
    """The divisors at the ends of their lines, moved apart where those are close."""
    last = curve[(curve["d_k"] == curve["d_k"].max()) & (curve["predicted"] > 0)]
    last = last.sort_values("predicted", ascending=False)
    low, high = np.log10(reach[1]["domain"])
    least = NAME_APART * (high - low) / max(1, room)
    places = _apart(np.log10(last["predicted"].to_numpy()), least)
    names = pd.DataFrame(
        {
            "d_k": last["d_k"],
            "place": 10**places,
            "divisor": last["divisor"],
            "label": "÷ " + last["divisor"],
        }
    )
    encoding = {"x": number("d_k"), "y": number("place"), "text": word("label")}
    encoding["color"] = _look(0, curve["divisor"])
    looks = {"align": "left", "dx": 8, "fontSize": theme.FONT_SIZE, "tooltip": None}
    return layer("text", encoding, (), names, **looks)


def _apart(falling: Float[np.ndarray, " name"], least: float) -> Float[np.ndarray, " name"]:
    """Falling places moved so that each is at least so far below the one before it.

    Each run of places that are too close is spread about its middle.
    """
    runs: list[list[float]] = []
    for place in falling:
        runs.append([place])
        while len(runs) > 1 and _end(runs[-2], least, -1) - _end(runs[-1], least, 1) < least:
            close = runs.pop()
            runs[-1] += close
    places = [_end(run, least, 1) - least * step for run in runs for step in range(len(run))]
    return np.array(places, dtype=float)


def _end(run: list[float], least: float, side: int) -> float:
    """The upper (1) or lower (−1) end of a run that is spread about its middle."""
    return sum(run) / len(run) + side * least * (len(run) - 1) / 2


def _head(marks: pd.DataFrame) -> alt.Chart:
    """Diamonds for the real head, filled for its scores."""
    encoding = {
        "x": number("d_k"),
        "y": number("variance"),
        "fill": either("datum.quantity == 'scores'", theme.REAL, "white"),
        "tooltip": [
            word("quantity") | {"title": "this head's"},
            number("d_k"),
            number("variance", format=".3~g", title="variance within a row"),
        ],
    }
    looks = {"shape": "diamond", "size": 170, "stroke": theme.REAL, "strokeWidth": 3, "opacity": 1}
    return layer("point", encoding, [only("datum.variance > 0")], marks, **looks)


def _layers(found: pd.DataFrame) -> list[alt.Chart]:
    """Dots for the layers, filled for their scores, those of one d_k beside each other."""
    place = found["layer"].rank(method="dense") - 1
    rank = place.groupby([found["d_k"], found["quantity"]]).rank() - 1
    count = place.groupby([found["d_k"], found["quantity"]]).transform("count")
    sideways = SIDEWAYS * (2 * rank / (count - 1).clip(lower=1) - (count > 1))
    dots = found.assign(at=found["d_k"] * 2**sideways)
    dots["low"] = dots["low"].where(dots["low"] > 0, dots["variance"] / 10)
    tooltip = [
        number("layer"),
        word("quantity"),
        number("d_k"),
        number("variance", format=".3~g", title="variance within a row, mean of its heads"),
        number("low", format=".3~g", title="least head"),
        number("high", format=".3~g", title="largest head"),
        number("pooled", format=".3~g", title="pooled variance"),
    ]
    positive = [only("datum.variance > 0")]
    range_ = {"x": number("at"), "y": number("low"), "y2": {"field": "high"}}
    dot = {
        "x": number("at"),
        "y": number("variance"),
        "fill": either("datum.quantity == 'scores'", theme.REAL, "white"),
        "tooltip": tooltip,
    }
    return [
        layer("rule", range_, positive, dots, color=theme.REAL, opacity=theme.PALE, strokeWidth=1),
        layer("point", dot, positive, dots, stroke=theme.REAL, strokeWidth=1.5, size=22, opacity=1),
    ]


@in_turn
def kurtosis(curve: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Excess kurtosis of q·k against d_k, which no divisor changes; 0 is a normal distribution."""
    points = curve.drop_duplicates("d_k").dropna(subset=["kurtosis"])
    points = points.assign(
        lower=points["kurtosis"] - points["kurtosis_error"],
        upper=points["kurtosis"] + points["kurtosis_error"],
    )
    across = _octaves(curve["d_k"].to_numpy(), 0)
    line = {"x": _d_k(across), "y": _kurtosis(points)}
    ends = {"x": number("d_k"), "y": number("lower"), "y2": {"field": "upper"}}
    point = {"x": number("d_k"), "y": number("kurtosis"), "tooltip": _kurtosis_told()}
    zero = pd.DataFrame({"zero": [0]})
    colour: Spec = {"color": theme.SYNTHETIC}
    return alt.LayerChart(
        data=points,
        layer=[
            layer("line", line, strokeWidth=theme.LINE_WIDTH, **colour),
            layer("rule", {"y": number("zero")}, (), zero, color=theme.WORDS, opacity=theme.PALE),
            layer("rule", ends, strokeWidth=2, **colour),
            layer("point", point, filled=True, size=55, opacity=1, **colour),
            *_nothing(curve),
        ],
        height=theme.KURTOSIS_HEIGHT,
    )


def _kurtosis(points: pd.DataFrame) -> Spec:
    """The axis of excess kurtosis: about linear near 0, by powers beyond; normal is named."""
    values = points[["lower", "upper", "predicted_kurtosis"]].to_numpy()
    low, high = min(-1.0, np.nanmin(values, initial=0)), max(1.0, np.nanmax(values, initial=0))
    scale = {
        "type": "symlog",
        "constant": STRAIGHT,
        "nice": False,
        "domain": [low * 1.1, high * 1.1],
    }
    values = [value for value in KURTOSES if low <= value <= high]
    axis = {
        "values": values,
        "tickCount": len(values),  # Vega thins even given values to its own count
        "labelExpr": "datum.value == 0 ? 'normal 0' : format(datum.value, '~g')",
        "labelOverlap": False,
        "grid": False,
    }
    return number("predicted_kurtosis", title="excess kurtosis", scale=scale, axis=axis)


def _kurtosis_told() -> list[Spec]:
    return [
        number("d_k"),
        number("kurtosis", format=".3~g", title="measured"),
        number("kurtosis_error", format=".1~g", title="± standard error"),
        number("predicted_kurtosis", format=".3~g", title="closed form"),
    ]
