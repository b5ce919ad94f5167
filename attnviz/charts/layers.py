"""Charts of many layers, written as Vega-Lite says them.

The page of one cell builds several charts for each click; Altair's objects for scales, axes and
channels would take ten times as long as these plain values, which its schema knows as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
from altair.vegalite.v6.schema import core

from attnviz.charts import theme

Spec = dict[str, Any]


def layer(
    mark: str,
    encoding: Mapping[str, Any],
    transform: Sequence[Spec] = (),
    data: pd.DataFrame | None = None,
    **looks: Any,
) -> alt.Chart:
    """One layer; it draws the frame of the whole chart unless it has one of its own.

    Its marks are not read aloud, or their corners would be: the numbers stand in a table.
    """
    drawn: Any = {"type": mark, "aria": False, **looks}
    return alt.Chart(
        data=alt.Undefined if data is None else data,
        mark=drawn,
        encoding=alt.FacetedEncoding(**encoding),
        transform=[*transform] or alt.Undefined,
    )


def chart(
    layers: Sequence[alt.Chart],
    frame: pd.DataFrame,
    params: Mapping[str, Any],
    height: int,
    transform: Sequence[Spec] = (),
    title: str | list[str] | None = None,
) -> alt.LayerChart:
    """The layers over one frame: so many px high without axes, as wide as where it stands.

    `params` are values, or expressions where they are an `expr`.
    """
    return alt.LayerChart(
        data=frame,
        layer=layers,
        transform=[*transform] or alt.Undefined,
        params=[_parameter(name, value) for name, value in params.items()] or alt.Undefined,
        height=height,
        title=alt.Undefined if title is None else _title(title),
        autosize={"type": "fit-x", "contains": "padding"},
        padding={"bottom": theme.BELOW_CHART},  # Streamlit would leave 20 px
        view={"stroke": None},
    )


def expr(expression: str) -> Spec:
    """A value that the browser computes."""
    return {"expr": expression}


def number(field: str, **more: Any) -> Spec:
    """A channel that shows a number."""
    return {"field": field, "type": "quantitative", **more}


def word(field: str) -> Spec:
    """A channel that shows a word."""
    return {"field": field, "type": "nominal"}


def told(field: str, title: str) -> Spec:
    """A number in a tooltip, with the digits of a float32."""
    return number(field, title=title, format=".7~g")


def either(test: str, then: Any, otherwise: Any) -> Spec:
    """One of two values, by a test of the datum."""
    return {"condition": {"test": test, "value": then}, "value": otherwise}


def calculated(**fields: str) -> list[Spec]:
    """Fields that the browser computes from those sent."""
    return [{"calculate": expression, "as": field} for field, expression in fields.items()]


def only(test: str) -> Spec:
    """Leave out what does not pass a test."""
    return {"filter": test}


def _parameter(name: str, value: Any) -> core.VariableParameter:
    given = value if isinstance(value, dict) else {"value": value}
    return core.VariableParameter(name=name, **given)


def _title(text: str | list[str]) -> Spec:
    return {"text": text, "anchor": "start", "fontSize": theme.FONT_SIZE, "offset": 6}
