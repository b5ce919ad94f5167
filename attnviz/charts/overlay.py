"""One query's weights over the picture that a model looked at: one square for each patch."""

from __future__ import annotations

import base64
import io
from typing import Any

import altair as alt
import pandas as pd
from PIL import Image, ImageOps

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

OPACITY = 0.6  # of a patch's colour; the picture shows through


@in_turn
def patch_overlay(
    picture: Image.Image,
    patches: pd.DataFrame,
    grid: tuple[int, int],
    query: tuple[int, int] | None,
) -> alt.LayerChart | alt.FacetChart:
    """The `patch_weights` of one query over the picture in grey.

    The patch of the query itself is outlined; `query` is None where it has no place.
    """
    layers = [_ground(picture, grid), _heat(patches, grid)]
    if query is not None:
        layers.append(_outline(*query))
    return alt.layer(*layers).properties(autosize="pad").add_params(*_sides(grid))


def _ground(picture: Image.Image, grid: tuple[int, int]) -> alt.Chart:
    rows, columns = grid
    whole = {"left": 0, "right": columns, "top": 0, "bottom": rows, "picture": _grey_url(picture)}
    return (
        alt.Chart(pd.DataFrame([whole]))
        .mark_image(aspect=False, aria=False)
        .encode(url="picture:N", **_corners(grid))
    )


def _heat(patches: pd.DataFrame, grid: tuple[int, int]) -> alt.Chart:
    top = max(float(patches["weight"].max()), 1e-12)
    colour = (
        alt.Color("weight:Q")
        .scale(scheme="viridis", domain=[0, top])
        .legend(
            orient="bottom",
            format=".2~g",
            values=[0, top],
            labelFontSize=theme.FONT_SIZE,
            titleFontSize=theme.FONT_SIZE,
        )
    )
    return (
        alt.Chart(_squares(patches))
        .mark_rect(opacity=OPACITY)
        .encode(
            color=colour,
            tooltip=["patch", alt.Tooltip("weight:Q", format=".3f")],
            **_corners(grid),
        )
    )


def _corners(grid: tuple[int, int]) -> dict[str, Any]:
    rows, columns = grid
    return {
        "x": alt.X("left:Q").axis(None).scale(domain=[0, columns], nice=False),
        "y": alt.Y("top:Q").axis(None).scale(domain=[rows, 0], nice=False),
        "x2": "right",
        "y2": "bottom",
    }


def _squares(patches: pd.DataFrame) -> pd.DataFrame:
    ends = {
        "left": patches["column"],
        "right": patches["column"] + 1,
        "top": patches["row"],
        "bottom": patches["row"] + 1,
    }
    return patches[["patch", "weight"]].assign(**ends)


def _grey_url(picture: Image.Image) -> str:
    """A data URL of the picture without its colours, which would mix with those of weights."""
    side = max(1, theme.MATRIX_SIDE // max(picture.size))
    grey = ImageOps.autocontrast(picture.convert("L")).resize(
        (picture.width * side, picture.height * side), Image.Resampling.NEAREST
    )
    buffer = io.BytesIO()
    grey.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _outline(row: int, column: int) -> alt.Chart:
    ends = {"left": column, "right": column + 1, "top": row, "bottom": row + 1}
    return (
        alt.Chart(pd.DataFrame([ends]))
        .mark_rect(filled=False, stroke=theme.REAL, strokeWidth=4, tooltip=None)
        .encode(x="left:Q", x2="right", y="top:Q", y2="bottom")
    )


def _sides(grid: tuple[int, int]) -> list[alt.Parameter]:
    """Width and height: patches are square, and the whole narrower on a narrow screen."""
    rows, columns = grid
    largest, window = theme.OVERLAY_SIDE, "windowSize()[0]"
    side = f"(isFinite({window}) ? clamp({window} - 120, 170, {largest}) : {largest})"
    return [
        alt.param(name="width", expr=f"{side} * {columns / max(grid):.4g}"),
        alt.param(name="height", expr=f"{side} * {rows / max(grid):.4g}"),
    ]
