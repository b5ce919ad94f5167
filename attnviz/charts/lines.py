"""Where each token looks, as lines between two columns of tokens, for one head or several.

Tokens are told apart by their place, never by their word. A line is as strong as its weight
against the largest on the chart. Only the strongest keys of each query are drawn, and the title
says how much of the attention they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.matrix import axis_titles

MOST_TOKENS = 320  # in one column
STRONGEST_KEYS = 8  # of each query,
MOST_LINES = 5000  # or as many as Altair sends without being asked twice
LABEL_LIMIT = 150  # px of a token's label
APART = 0.14  # of a row, between the lines of several heads

Heads = Sequence[tuple[str, pd.DataFrame]]


@in_turn
def token_lines(
    heads: Heads, queries: pd.DataFrame, keys: pd.DataFrame, *, cross: bool = False
) -> alt.LayerChart | alt.FacetChart:
    """Draw the `weight_matrix` of one or more heads, each with a name of its own.

    Queries stand at the left, keys at the right. What is NaN is hidden and has no line. In
    cross-attention the titles say which is the target, which the source.

    Raises ValueError, with a sentence, for more than 320 tokens on either side.
    """
    if told := too_many(queries, keys):
        raise ValueError(told)
    strongest = max(1, min(STRONGEST_KEYS, MOST_LINES // (len(heads) * len(queries))))
    lines = _lines(heads, strongest)
    of_queries, of_keys = axis_titles(cross)
    rows = max(len(queries), len(keys))
    layers = [
        _rules(lines, [name for name, _ in heads], queries, keys),
        *_column(queries, of_queries, "right", 0, -8),
        *_column(keys, of_keys, "left", theme.LINES_WIDTH, 8),
    ]
    return alt.layer(*layers).properties(
        width=theme.LINES_WIDTH,
        height=theme.TOKEN_ROW * rows,
        title=_title(covered(heads, lines), strongest),
        autosize="pad",
        view=alt.ViewConfig(stroke=None),
    )


def too_many(queries: pd.DataFrame, keys: pd.DataFrame) -> str | None:
    """A sentence if a column of tokens is too long for lines."""
    longest = max(len(queries), len(keys))
    if longest <= MOST_TOKENS:
        return None
    return (
        f"Lines are drawn for up to {MOST_TOKENS} tokens on either side; here are {longest:,}. "
        "Choose a part of them."
    )


def looks(count: int) -> list[tuple[str, tuple[int, ...]]]:
    """Colour and dash of each of several heads; one head alone is in the colour of what is real."""
    if count == 1:
        return [(theme.REAL, theme.HEAD_DASHES[0])]
    colours, dashes = theme.HEAD_COLOURS, theme.HEAD_DASHES
    return [(colours[at % len(colours)], dashes[at % len(dashes)]) for at in range(count)]


def covered(heads: Heads, lines: pd.DataFrame) -> float:
    """The share of all attention that has a line; 1 where there is none to show."""
    whole = sum(float(np.nansum(np.abs(_values(matrix)))) for _, matrix in heads)
    return float(lines["strength"].sum()) / whole if whole else 1.0


def _lines(heads: Heads, strongest: int) -> pd.DataFrame:
    """The strongest keys of each query, weak ones first so that strong ones lie above them."""
    parts = [
        _of_head(name, _values(matrix), strongest, APART * (at - (len(heads) - 1) / 2))
        for at, (name, matrix) in enumerate(heads)
    ]
    return pd.concat(parts).sort_values("strength", ignore_index=True)


def _values(matrix: pd.DataFrame) -> Float[np.ndarray, "query key"]:
    return matrix.to_numpy(dtype=float)


def _of_head(
    name: str, values: Float[np.ndarray, "query key"], strongest: int, offset: float
) -> pd.DataFrame:
    strength = np.nan_to_num(np.abs(values))
    key = np.argsort(-strength, axis=1, kind="stable")[:, :strongest]
    query = np.broadcast_to(np.arange(len(values))[:, None], key.shape)
    drawn = strength[query, key] > 0
    query, key = query[drawn], key[drawn]
    return pd.DataFrame(
        {
            "head": name,
            "query": query,
            "key": key,
            "weight": values[query, key],
            "strength": strength[query, key],
            "from": query + 0.5 + offset,
            "to": key + 0.5 + offset,
        }
    )


def _rules(
    lines: pd.DataFrame, names: list[str], queries: pd.DataFrame, keys: pd.DataFrame
) -> alt.Chart:
    colours, dashes = zip(*looks(len(names)), strict=True)
    legend = alt.Legend(orient="top", symbolType="stroke")
    drawn = lines.assign(
        query=(_named(queries)[lines["query"]]), key=(_named(keys)[lines["key"]])
    ).drop(columns=[] if len(names) > 1 else "head")
    rules = alt.Chart(drawn).mark_rule(strokeWidth=theme.LINE_WIDTH, aria=False)
    encoded = rules.encode(
        x=alt.value(0),
        x2=alt.value(theme.LINES_WIDTH),
        y=alt.Y("from:Q").axis(None).scale(domain=[max(len(queries), len(keys)), 0], nice=False),
        y2="to",
        opacity=alt.Opacity("strength:Q")
        .scale(domain=[0, float(lines["strength"].max()) if len(lines) else 1.0], range=[0, 1])
        .legend(None),
        tooltip=["query:N", "key:N", alt.Tooltip("weight:Q", format=".4~g")],
    )
    if len(names) == 1:
        return encoded.encode(color=alt.value(colours[0]))
    return encoded.encode(
        color=alt.Color("head:N").scale(domain=names, range=[*colours]).legend(legend),
        strokeDash=alt.StrokeDash("head:N")
        .scale(domain=names, range=[list(dash) for dash in dashes])
        .legend(legend),
    )


def _named(tokens: pd.DataFrame) -> np.ndarray:
    """Each token by position and word."""
    pairs = zip(tokens["position"], tokens["token"], strict=True)
    return np.array([f"{position} {token}" for position, token in pairs], dtype=object)


def _column(
    tokens: pd.DataFrame, title: str, align: str, x: int, dx: int
) -> tuple[alt.Chart, alt.Chart]:
    """The words of one column, one row each, under its title."""
    words = pd.DataFrame({"token": tokens["token"].tolist()})
    words["place"] = np.arange(len(words)) + 0.5
    text: dict[str, Any] = {
        "align": align,
        "dx": dx,
        "fontSize": theme.FONT_SIZE,
        "tooltip": None,
        "aria": False,
    }
    return (
        alt.Chart(words)
        .mark_text(baseline="middle", limit=LABEL_LIMIT, **text)
        .encode(x=alt.value(x), y="place:Q", text="token:N"),
        alt.Chart(pd.DataFrame({"title": [title]}))
        .mark_text(baseline="bottom", fontWeight="bold", **text)
        .encode(x=alt.value(x), y=alt.value(-6), text="title:N"),
    )


def _title(share: float, strongest: int) -> alt.TitleParams:
    percent = floor(100 * share + 1e-6)
    told = (
        "Lines: all of the attention"
        if share > 1 - 1e-9
        else f"Lines: up to {strongest} keys of each query, {percent} % of the attention"
    )
    return alt.TitleParams(told, anchor="start", fontSize=theme.FONT_SIZE, offset=10)
