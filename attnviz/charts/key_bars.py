"""A number for each key of a row as upright bars, and a number for each head of a layer.

Key places are the horizontal scale, words its labels, so that equal words stay apart. What stands
left of a plot is as wide everywhere: charts of one row are in line one below the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from attnviz.charts import columns, theme
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

ROOM = 17  # px along the axis that a label at 45° needs
HEADROOM = 1.15  # of the highest bar: the number above the chosen one has its place
SCORE_LINE = 20  # px above the strip of scores, for the chosen key's
MARGIN = 0.08  # of a key's width, on either side of its bar
PLACE = "floor(datum.value)"
CHOSEN, SINK = "datum.key == chosen", "datum.key == sink"
NOWHERE = -1
LENGTH = {"length": "length"}
TERMS = {"score": "score", "logit": "logit", "exponential": "exp", "weight": "weight"}
SHARES = {"brought": "share brought", "weight": "bare weight"}
STRIP: Spec = {"y": SCORE_LINE, "y2": theme.KEY_STRIP_HEIGHT}


@in_turn
def weights(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw the weights of a `keys`, that of the chosen key strong, that of a sink an outline."""
    terms = {name: title for name, title in TERMS.items() if frame[name].notna().any()}
    bars = _bars(frame, ["weight"], _key_axis(frame), _of_key(terms))
    sink = [_sink(frame, terms)] if frame["sink"].any() else []
    layers = [bars, *sink, _number("weight")]
    return _over_keys(layers, frame, terms, "weight", theme.KEY_BARS_HEIGHT)


@in_turn
def brought(
    frame: pd.DataFrame, what: str = "‖weight · value · W_O‖"
) -> alt.LayerChart | alt.FacetChart:
    """Draw what each key of a `keys` brings, as a share of all, beside its bare weight."""
    ends = {"x": number("left"), "x2": {"field": "right"}, "y": number("weight")}
    weight = layer("rule", ends, color=theme.WORDS, strokeWidth=2, tooltip=None)
    bars = _bars(frame, [*SHARES], _key_axis(frame), _of_key(SHARES))
    title = [f"bar: share of {what}", "line: bare weight"]
    layers = [bars, weight, _number("brought")]
    return _over_keys(layers, frame, SHARES, title, theme.KEY_BARS_HEIGHT)


@in_turn
def scores(frame: pd.DataFrame, *, legend: bool = True) -> alt.LayerChart | alt.FacetChart:
    """Draw the scores of a `keys` as one strip of cells, the chosen one framed.

    Keys that the query cannot see have no colour but a line.
    """
    return _strip(frame, "score", "score with each key", legend)


@in_turn
def logits(frame: pd.DataFrame, *, legend: bool = True) -> alt.LayerChart | alt.FacetChart:
    """Draw the logits of a `keys` as `scores` does its scores."""
    return _strip(frame, "logit", "logit with each key", legend)


def _strip(frame: pd.DataFrame, field: str, title: str, legend: bool) -> alt.LayerChart:
    frame = frame[~frame["sink"]]
    layers = [_cells(frame, field, legend), _hidden_keys(frame), *_chosen_cell(field)]
    return _over_keys(layers, frame, {field: field}, title, theme.KEY_STRIP_HEIGHT)


@in_turn
def heads(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `heads`: how long each head's part of the stream is, the present head's strong."""
    bars = frame.assign(key=frame["head"], sink=False)
    step = -(-len(bars) // theme.LABELLED_TOKENS)
    label = f"{PLACE} % {step} && {PLACE} != chosen ? '' : {PLACE}"
    axis = _axis(len(bars), label) | {"title": "head", "labelAngle": 0}
    tooltip = [number("key", title="head"), told("length", "length")]
    return chart(
        [_bars(bars, ["length"], axis, tooltip), _number("length")],
        bars[["key", "length"]],
        _places(bars),
        theme.HEADS_HEIGHT,
        _corners(),
        "length of each head’s part of the stream",
    )


def _over_keys(
    layers: Sequence[alt.Chart],
    frame: pd.DataFrame,
    fields: Mapping[str, str],
    title: str | list[str],
    height: int,
) -> alt.LayerChart:
    """Layers over the keys that can be seen and the chosen one, with the words of all below."""
    drawn = frame.loc[frame["visible"] | frame["chosen"], ["key", *fields]]
    words = {"words": frame["token"].tolist()}
    transform = _corners() + calculated(token="words[datum.key]")
    return chart(layers, drawn, _places(frame) | words, height, transform, title)


def _corners() -> list[Spec]:
    left, right = f"datum.key + {MARGIN}", f"datum.key + {1 - MARGIN}"
    return calculated(
        left=left, right=right, middle="datum.key + 0.5", next="datum.key + 1", zero="0"
    )


def _places(frame: pd.DataFrame) -> Spec:
    """The chosen place and that of a sink, and how many px a place is wide."""
    chosen, sink = (
        int(frame.loc[frame[mark], "key"].max()) if frame[mark].any() else NOWHERE
        for mark in ("chosen", "sink")
    )
    return {"chosen": chosen, "sink": sink, "cell": expr(f"width / {len(frame)}")}


def _axis(count: int, label: str) -> Spec:
    bold = {"condition": {"test": f"{PLACE} == chosen", "value": "bold"}, "value": "normal"}
    return {
        "values": expr(f"sequence(0.5, {count})"),
        "tickCount": count,  # Vega thins even given values to its own count
        "labelExpr": label,
        "labelOverlap": False,
        "labelPadding": 4,
        "labelFontSize": expr(f"cell < 20 ? {theme.SMALL_FONT} : {theme.FONT_SIZE}"),
        "labelFontWeight": bold,
        "titleFontSize": theme.FONT_SIZE,
        "titlePadding": 4,
        "grid": False,
        "ticks": False,
        "domain": False,
    }


def _key_axis(frame: pd.DataFrame) -> Spec:
    """The words of the keys, thinned where there is no room, but never the chosen one's."""
    step = -(-len(frame) // theme.LABELLED_TOKENS)
    room = f"ceil({ROOM} / cell)"
    marked = f"{PLACE} == chosen || {PLACE} == sink"
    near = f"abs({PLACE} - chosen) < {room} || sink >= 0 && abs({PLACE} - sink) < {room}"
    thinned = f"{near} || {PLACE} % max({step}, {room})"
    label = f"!({marked}) && ({thinned}) ? '' : words[{PLACE}]"
    height = theme.KEY_LABEL_HEIGHT
    return _axis(len(frame), label) | {
        "title": None,
        "labelAngle": -45,
        "labelLimit": theme.KEY_LABEL,
        "minExtent": height,
        "maxExtent": height,
    }


def _x(field: str, count: int, axis: Spec) -> Spec:
    return number(field, scale={"domain": [0, count], "nice": False}, axis=axis)


def _of_key(fields: Mapping[str, str]) -> list[Spec]:
    """What a tooltip tells of a key."""
    return [word("token"), number("key"), *(told(*field) for field in fields.items())]


def _bars(
    frame: pd.DataFrame, fields: Sequence[str], axis: Spec, tooltip: Sequence[Spec]
) -> alt.Chart:
    """Bars of the first field from 0, the chosen one strong; their scale serves all the fields."""
    top = HEADROOM * (float(frame[[*fields]].max().max()) or 1.0)
    scale = {"domain": [0, top], "nice": False}
    encoding = {
        "x": _x("left", len(frame), axis),
        "x2": {"field": "right"},
        "y": number(fields[0], scale=scale, axis=_left_of_plot()),
        "y2": {"field": "zero"},
        "fillOpacity": either(CHOSEN, 1, theme.PALE),
        "tooltip": [*tooltip],
    }
    looks = {"fill": theme.REAL, "stroke": theme.REAL, "strokeWidth": columns.EDGE}
    return layer("rect", encoding, [only(f"!({SINK})")], **looks)


def _sink(frame: pd.DataFrame, terms: Mapping[str, str]) -> alt.Chart:
    """The weight that no key gets: an outline, told apart without colour."""
    known = frame.loc[frame["sink"]].notna().any()
    tooltip = [told(name, title) for name, title in terms.items() if known[name]]
    encoding = {
        "x": number("left"),
        "x2": {"field": "right"},
        "y": number("weight"),
        "y2": {"field": "zero"},
        "tooltip": [word("token"), *tooltip],
    }
    looks = {"fill": "transparent", "stroke": theme.REAL, "strokeWidth": 2, "strokeDash": [4, 3]}
    return layer("rect", encoding, [only(SINK)], **looks)


def _left_of_plot() -> Spec:
    width = theme.KEY_AXIS_WIDTH
    looks = {"title": None, "tickCount": 4, "labelFontSize": theme.SMALL_FONT}
    lines = {"grid": False, "domain": False, "ticks": False}
    return looks | lines | {"minExtent": width, "maxExtent": width}


def _number(field: str) -> alt.Chart:
    """The chosen bar's number, above it."""
    encoding = {"x": number("middle"), "y": number(field), "text": number(field, format=".3~g")}
    return layer("text", encoding, [only(CHOSEN)], dy=-2, **_above_the_chosen())


def _above_the_chosen() -> Spec:
    """A strong word above the middle of the chosen place, or left of it at the very right."""
    return {
        "baseline": "bottom",
        "align": expr("width - chosen * cell < 30 ? 'right' : 'center'"),
        "fontSize": theme.FONT_SIZE,
        "fontWeight": "bold",
        "tooltip": None,
    }


def _cells(frame: pd.DataFrame, field: str, legend: bool) -> alt.Chart:
    reach = columns.furthest_from_zero(frame.loc[frame["visible"], field])
    encoding = {
        "x": _x("key", len(frame), _key_axis(frame)),
        "x2": {"field": "next"},
        "color": columns.colour(field, reach, legend),
        "tooltip": _of_key({field: field}),
    }
    hidden = frame.loc[~frame["visible"] & frame["chosen"], "key"].tolist()
    seen = [only(f"datum.key != {key}") for key in hidden]
    return layer("rect", encoding, seen, **STRIP, **columns.outline(len(frame)))


def _hidden_keys(frame: pd.DataFrame) -> alt.Chart:
    """A line through the places of each run of keys that the query cannot see."""
    hidden = ~frame["visible"].to_numpy()
    edges = np.flatnonzero(np.diff(np.pad(hidden.astype(int), 1)))
    runs = pd.DataFrame(edges.reshape(-1, 2), columns=["from", "to"])
    middle = (SCORE_LINE + theme.KEY_STRIP_HEIGHT) // 2
    looks = {"stroke": theme.UNREAD, "strokeDash": [2, 4], "tooltip": None}
    return layer("rule", {"x": number("from"), "x2": {"field": "to"}}, [], runs, y=middle, **looks)


def _chosen_cell(field: str) -> tuple[alt.Chart, alt.Chart]:
    """A frame round the chosen key's cell, and its number above."""
    ends = {"x": number("key"), "x2": {"field": "next"}}
    round_it = {"xOffset": -1, "x2Offset": 1, "yOffset": -1, "y2Offset": 1, "filled": False}
    looks = round_it | {"stroke": theme.WORDS, "strokeWidth": 2, "tooltip": None}
    text = {"x": number("middle"), "text": number(field, format=".5~g")}
    return (
        layer("rect", ends, [only(CHOSEN)], **STRIP, **looks),
        layer("text", text, [only(CHOSEN)], y=SCORE_LINE - 3, **_above_the_chosen()),
    )
