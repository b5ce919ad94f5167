"""What a head's matrices multiply to: Sᵀ beside S, how symmetric scores are, singular values."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, layer, number, only, told, word
from attnviz.charts.matrix import axis_titles, weight_picture
from attnviz.circuits_frames import OTHERS, RANDOM, THIS

ROW = 34  # px, heads of one kind as points side by side
NAME_ROOM = 125  # px left of them
SPECTRUM_HEIGHT = 210  # px without axes
TICK = 18  # px
BEYOND = 1.6  # times the rank's bound: so far the axis goes, to show that nothing follows
LOOKS: dict[str, Spec] = {
    THIS: {"shape": "diamond", "color": theme.REAL, "size": 190, "opacity": 1, "filled": True},
    OTHERS: {
        "shape": "circle",
        "color": theme.REAL,
        "size": 60,
        "opacity": theme.PALE,
        "filled": True,
    },
    RANDOM: {"color": theme.SYNTHETIC, "thickness": 2, "size": TICK, "opacity": theme.PALE},
}
MARKS = {0.0: "0", 0.5: "½: nothing shared", 1.0: "1: Q = K"}


@in_turn
def scores(
    scores: pd.DataFrame,
    tokens: pd.DataFrame,
    pair: tuple[int, int],
    top: float,
    turned: bool = False,
) -> alt.LayerChart | alt.FacetChart:
    """Draw scores S of some tokens among themselves, or Sᵀ, with queries across and keys down.

    Framed are the cells of a pair of tokens, both ways round; the first is told at rest: of S
    the query's score of the key, of Sᵀ the key's of the query. Colours end at `top` in both.
    """
    drawn = weight_picture(scores.T if turned else scores, tokens, tokens, pair[0], top=top)
    places = tuple(int(tokens.index.get_loc(position)) for position in pair)
    drawn.layer[-1] = _framed(places, len(tokens))  # in the place of the frame round a row
    params: Any = drawn.params
    at_rest = next(parameter for parameter in params if parameter.name == "key_at")
    at_rest.expr = f"{at_rest.expr.rpartition(':')[0]}: {places[1]}"
    if turned:
        _turn(drawn)
    return drawn


def _turn(drawn: alt.LayerChart | alt.FacetChart) -> None:
    """Call what runs across queries, and what runs down keys."""
    of_queries, of_keys = axis_titles(cross=False)
    encoding = drawn.layer[0].encoding
    encoding.x, encoding.y = encoding.x.title(of_queries), encoding.y.title(of_keys)
    looks, looked_at = (
        f"{axis}_positions[{axis}_at] + ' ' + {axis}_words[{axis}_at]" for axis in ("key", "query")
    )
    drawn.title.text = alt.ExprRef(
        f"'query ' + {looks} + '  →  key ' + {looked_at} + ':  ' + written"
    )


def _framed(places: tuple[int, ...], size: int) -> alt.Chart:
    """Frames round the cell of a pair and the one across the diagonal."""
    cells = [*dict.fromkeys((places, places[::-1]))]
    ends = pd.DataFrame(cells, columns=["top", "left"])
    ends = ends.assign(bottom=ends["top"] + 1, right=ends["left"] + 1)
    return (
        alt.Chart(ends)
        .mark_rect(filled=False, stroke=theme.REAL, strokeWidth=3, tooltip=None)
        .encode(
            x=alt.X("left:Q").scale(domain=[0, size], nice=False),
            x2="right",
            y=alt.Y("top:Q").scale(domain=[size, 0], nice=False),
            y2="bottom",
        )
    )


@in_turn
def shares(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a `shares`: this head, others, and random vectors, each at its symmetric share."""
    rows = [name for name in LOOKS if (frame["of"] == name).any()]
    x = number(
        "share",
        scale={"domain": [0, 1]},
        axis=_axis("symmetric share of the scores") | {"format": ".1~f", "tickCount": 5},
    )
    y = word("of") | {
        "scale": {"domain": rows},
        "axis": _axis(None)
        | {
            "ticks": False,
            "domain": False,
            "labelLimit": NAME_ROOM,
            "labelFontSize": theme.FONT_SIZE,
        },
    }
    tooltip = [word("of"), number("layer"), number("head"), told("share", "symmetric share")]
    tooltip.append(told("centred", "less the means"))
    at = {"x": x, "y": y, "tooltip": tooltip}
    marks = pd.DataFrame({"share": [*MARKS], "name": [*MARKS.values()]})
    marks["align"] = ["left", "center", "right"]
    layers = [
        layer("rule", {"x": x}, (), marks, color=theme.WORDS, opacity=theme.PALE, strokeDash=[4, 4])
    ]
    layers += [
        layer("text", {"x": x, "text": word("name")}, [only(f"datum.align == '{align}'")], marks,
              align=align, y=-8, baseline="bottom", fontSize=theme.FONT_SIZE, color=theme.WORDS)
        for align in marks["align"]
    ]  # fmt: skip
    layers += [
        layer(
            "tick" if name == RANDOM else "point",
            at,
            [only(f"datum.of == '{name}'")],
            **LOOKS[name],
        )
        for name in rows
    ]
    return chart(layers, frame, {}, ROW * len(rows))


@in_turn
def spectrum(
    frame: pd.DataFrame, width: int, d_model: int, name: str = ""
) -> alt.LayerChart | alt.FacetChart:
    """Draw the singular values of one product in a `spectra`; those beyond the rank are 0.

    `width` is the bound of the rank, d_k or d_v. `name` stands above.
    """
    last = min(float(d_model), BEYOND * width)
    scale = {"domain": [0, last + 1], "nice": False}
    x = number("index", scale=scale, axis=_axis("singular value, by size"))
    y = number("value", scale={"zero": True, "nice": True}, axis=_axis("size") | {"tickCount": 4})
    tooltip = [number("index", title="number"), told("value", "singular value")]
    tooltip.append(told("relative", "of the largest"))
    at = {"x": x, "y": y, "tooltip": tooltip}
    bound = pd.DataFrame({"index": [width + 0.5], "name": [f"rank at most {width}"]})
    rest = pd.DataFrame({"index": [width + 1.0], "end": [last + 1], "value": [0.0]})
    layers = [
        layer("point", at, color=theme.REAL, filled=True, opacity=1, size=45),
        layer("rule", {"x": x}, (), bound, color=theme.WORDS, opacity=theme.PALE),
        layer("text", {"x": x, "text": word("name")}, (), bound, **_beside()),
    ]
    if width < d_model:
        ends = {"x": x, "x2": {"field": "end"}, "y": y}
        layers.append(layer("rule", ends, (), rest, color=theme.REAL, strokeWidth=3))
        zeros = calculated(name=f"'0, up to number {d_model}'")
        low = {"x": number("end"), "y": y, "text": word("name")}
        layers.append(layer("text", low, zeros, rest, **_above_line()))
    return chart(layers, frame, {}, SPECTRUM_HEIGHT, title=name or None)


def _axis(title: str | None) -> Spec:
    size = {"titleFontSize": theme.FONT_SIZE, "labelFontSize": theme.SMALL_FONT}
    return {"title": title, "grid": False, "titleFontWeight": "normal", **size}


def _beside() -> Spec:
    looks: Spec = {"fontSize": theme.FONT_SIZE, "color": theme.WORDS, "tooltip": None}
    return looks | {"align": "left", "baseline": "top", "dx": 6, "y": 2}


def _above_line() -> Spec:
    looks: Spec = {"fontSize": theme.SMALL_FONT, "color": theme.WORDS, "tooltip": None}
    return looks | {"align": "right", "baseline": "bottom", "dx": -2, "dy": -6}
