"""A training log as curves over the steps, with the phase change marked in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, expr, layer, number, only, word

TITLES = {"loss": "loss (nats per token)", "score": "score of the best head"}
SHADED = 0.15  # opacity of the stretch of the phase change
LINE = 16  # px of a line of small words
NARROW = 250  # px of a plot; there a broken line has no words
NAMED_AT = {"loss": f"{LINE // 2}", "score": f"height - {LINE}"}  # px down, where no curve runs
# One colour and dash each; copying is told by a score and by a loss, which look alike.
PLACES = {"induction": 0, "on repeats": 0, "previous token": 1, "on stories": 2}


@in_turn
def birth(
    curves: pd.DataFrame,
    quantity: str,
    steps: int,
    change: tuple[int, int],
    stages: pd.DataFrame,
) -> alt.LayerChart | alt.FacetChart:
    """The losses or the scores of a `training_log.curves`, to step `steps`.

    `change` are the ends of the phase change, which is shaded; `stages` those of `training_log`,
    a broken line for each that is in view.
    """
    shown = curves[(curves["quantity"] == quantity) & (curves["step"] <= steps)]
    later = stages[stages["step"] < steps]
    return alt.LayerChart(
        data=shown,
        layer=[
            *_change(change, quantity, steps),
            *([_stage(later, steps), _stage_words(later, quantity)] if len(later) else []),
            _line(shown, quantity, steps),
            _points(shown, quantity, steps),
        ],
        height=theme.CURVE_HEIGHT,
    )


def _step(field: str, steps: int) -> Spec:
    scale = {"domain": [0, steps], "nice": False}
    return number(field, title="step", scale=scale, axis={"grid": False, "tickCount": 6})


def _value(quantity: str) -> Spec:
    scale: Spec = {"domain": [0, 1], "nice": False} if quantity == "score" else {"zero": True}
    return number("value", title=TITLES[quantity], scale=scale, axis={"tickCount": 6})


def _look(shown: pd.DataFrame, looks: Sequence[Any]) -> Spec:
    """What tells the curves apart, named in a legend."""
    names = shown["name"].unique().tolist()
    words = {"labelFontSize": theme.FONT_SIZE, "title": None, "orient": "top"}
    signs = {"symbolType": "stroke", "symbolSize": 500, "symbolOpacity": 1}
    scale = {"domain": names, "range": [looks[PLACES[name]] for name in names]}
    return word("name") | {"scale": scale, "legend": words | signs}


def _colour(shown: pd.DataFrame) -> Spec:
    return _look(shown, theme.HEAD_COLOURS)


def _line(shown: pd.DataFrame, quantity: str, steps: int) -> alt.Chart:
    encoding = {"x": _step("step", steps), "y": _value(quantity), "color": _colour(shown)}
    encoding["strokeDash"] = _look(shown, [list(dash) for dash in theme.HEAD_DASHES])
    return layer("line", encoding, strokeWidth=theme.LINE_WIDTH, clip=True)


def _points(shown: pd.DataFrame, quantity: str, steps: int) -> alt.Chart:
    """Where it was measured, to point at; seen, they would fill the gaps of a broken line."""
    encoding: Spec = {"x": _step("step", steps), "y": _value(quantity), "color": _colour(shown)}
    encoding["tooltip"] = [word("name"), number("step"), number("value", format=".3~g")]
    return layer("point", encoding, filled=True, size=60, opacity=0, clip=True)


def _change(change: tuple[int, int], quantity: str, steps: int) -> list[alt.Chart]:
    """A shaded stretch, with its name beside it."""
    ends = pd.DataFrame({"begin": [change[0]], "end": [change[1]], "name": ["phase change"]})
    shade = {"x": _step("begin", steps), "x2": {"field": "end"}}
    named = {"x": number("end"), "text": word("name")}
    across: Spec = {"y": 0, "y2": expr("height"), "tooltip": None}
    return [
        layer("rect", shade, (), ends, color=theme.REAL, opacity=SHADED, **across),
        layer("text", named, (), ends, **_beside(quantity)),
    ]


def _stage(stages: pd.DataFrame, steps: int) -> alt.Chart:
    looks: Spec = {"color": theme.WORDS, "opacity": theme.PALE, "strokeDash": [4, 4]}
    across: Spec = {"y": 0, "y2": expr("height"), "tooltip": None}
    return layer("rule", {"x": _step("step", steps)}, (), stages, **looks, **across)


def _stage_words(stages: pd.DataFrame, quantity: str) -> alt.Chart:
    said = calculated(said="'contexts of ' + datum.context")
    encoding = {"x": number("step"), "text": word("said")}
    return layer("text", encoding, [*said, only(f"width >= {NARROW}")], stages, **_beside(quantity))


def _beside(quantity: str) -> Spec:
    """How words stand beside a mark that goes from top to bottom."""
    looks: Spec = {"align": "left", "dx": 6, "y": expr(NAMED_AT[quantity]), "tooltip": None}
    return looks | {"fontSize": theme.SMALL_FONT}
