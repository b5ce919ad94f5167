"""Vectors as rows of coloured cells, one column a dimension: what a query or a key is made of."""

from __future__ import annotations

import base64
import io

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8
from PIL import Image

from attnviz.charts import columns, theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, layer, number, told, word

SLOT = theme.STRIP_HEIGHT
ZERO = 127  # the shade of 0 in an image; twice that is the largest number


@in_turn
def strips(
    frame: pd.DataFrame, *, reach: float | None = None, legend: bool = True
) -> alt.LayerChart | alt.FacetChart:
    """Draw a `strips`: each row a vector, blue below zero and orange above.

    `reach` is where the colours end, on both sides, so that several charts can share it; else
    the largest number. Very wide vectors are drawn as images, in which each cell has the number
    furthest from zero among its neighbours.
    """
    rows = frame.pivot(index="row", columns="dimension", values="value")
    rows = rows.loc[frame["row"].unique()]
    reach = reach or columns.furthest_from_zero(rows)
    drawn = _cells if rows.shape[1] <= theme.DRAWN_CELLS else _images
    return drawn(rows, reach, legend)


def _cells(rows: pd.DataFrame, reach: float, legend: bool) -> alt.LayerChart:
    count = rows.shape[1]
    number_format, characters = columns.written(columns.furthest_from_zero(rows))
    numbers = [_numbers(number_format)] if count <= theme.WRITTEN_CELLS else []
    return chart(
        [_coloured(rows, reach, legend), *numbers, _names(rows)],
        rows.T.set_axis(_short(rows), axis=1).reset_index(),
        columns.layout(rows.index, count, characters) | {"names": [*rows.index]},
        SLOT * len(rows),
        _folded(rows),
    )


def _coloured(rows: pd.DataFrame, reach: float, legend: bool) -> alt.Chart:
    count = rows.shape[1]
    encoding = {
        "x": columns.x("dimension", count, columns.axis_in_order(count)),
        "x2": {"field": "right"},
        "y": columns.y("top", SLOT * len(rows)),
        "y2": {"field": "bottom"},
        "color": columns.colour("value", reach, legend),
        "tooltip": _tooltip(),
    }
    return layer("rect", encoding, **columns.outline(count))


def _numbers(number_format: str) -> alt.Chart:
    text = number("value", format=number_format)
    encoding = {"x": number("middle"), "y": number("centre"), "text": text, "tooltip": _tooltip()}
    return layer("text", encoding, **columns.number_look())


def _tooltip() -> list[Spec]:
    return [word("vector"), number("dimension"), told("value", "value")]


def _short(rows: pd.DataFrame) -> list[str]:
    return [str(row) for row in range(len(rows))]


def _folded(rows: pd.DataFrame) -> list[Spec]:
    """A mark for each cell, from one record a dimension: a third of what tidy ones would take."""
    slot = f"{SLOT} * datum.row"
    places = calculated(
        right="datum.dimension + 1",
        middle="datum.dimension + 0.5",
        top=f"{slot} + above + {columns.GAP}",
        bottom=f"{slot} + {SLOT - columns.GAP}",
        centre=f"{slot} + (above + {SLOT}) / 2",
        vector="names[datum.row]",
    )
    return [{"fold": _short(rows), "as": ["row", "value"]}, *places]


def _names(rows: pd.DataFrame) -> alt.Chart:
    tops = [SLOT * row for row in range(len(rows))]
    return columns.row_names(rows.index, tops, [SLOT] * len(rows))


def _images(rows: pd.DataFrame, reach: float, legend: bool) -> alt.LayerChart:
    block = -(-rows.shape[1] // theme.IMAGE_CELLS)
    return chart(
        [_images_alone(rows, block), _frames(reach, legend), _names(rows)],
        _pictures(rows, reach, block),
        columns.layout(rows.index, rows.shape[1]),
        SLOT * len(rows),
        calculated(top=f"datum.slot + above + {columns.GAP}"),
    )


def _images_alone(rows: pd.DataFrame, block: int) -> alt.Chart:
    count = rows.shape[1]
    title = "dimension" + (f"; each cell: of {block} the furthest from 0" if block > 1 else "")
    encoding = {
        "x": columns.x("start", count, columns.axis_in_order(count, title)),
        "x2": {"field": "end"},
        "y": columns.y("top", SLOT * len(rows)),
        "y2": {"field": "bottom"},
        "url": word("picture"),
    }
    return layer("image", encoding, aspect=False)


def _frames(reach: float, legend: bool) -> alt.Chart:
    """What images cannot have: an outline, the scale, and what a pointer is told."""
    largest = [told("largest", "furthest from 0"), number("at", title="in dimension")]
    encoding = {
        "x": number("start"),
        "x2": {"field": "end"},
        "y": number("top"),
        "y2": {"field": "bottom"},
        "color": columns.colour("largest", reach, legend),
        "tooltip": [word("vector"), *largest],
    }
    return layer("rect", encoding, **columns.outline(1) | {"fillOpacity": 0})


def _pictures(rows: pd.DataFrame, reach: float, block: int) -> pd.DataFrame:
    numbers = rows.to_numpy()
    at = np.abs(numbers).argmax(axis=1)
    slots = SLOT * np.arange(len(rows))
    return pd.DataFrame(
        {
            "vector": rows.index,
            "slot": slots,
            "bottom": slots + SLOT - columns.GAP,
            "start": 0,
            "end": rows.shape[1],
            "largest": numbers[range(len(rows)), at],
            "at": at,
            "picture": [png_url(furthest(row, block), reach) for row in numbers],
        }
    )


def furthest(numbers: Float[np.ndarray, " dimension"], block: int) -> Float[np.ndarray, " cell"]:
    """Of each block of neighbours the number furthest from zero."""
    blocks = np.pad(numbers, (0, -len(numbers) % block)).reshape(-1, block)
    return blocks[range(len(blocks)), np.abs(blocks).argmax(axis=1)]


def png_url(numbers: Float[np.ndarray, " cell"], reach: float) -> str:
    """A data URL of one row of cells in the colours of `columns.colour`."""
    shades = np.clip((numbers / reach + 1) * ZERO, 0, 2 * ZERO).round().astype(np.uint8)
    enlarge = max(1, theme.IMAGE_CELLS // len(shades))
    image = Image.fromarray(shades.repeat(enlarge)[None], mode="P")
    opaque = np.abs(np.arange(2 * ZERO + 1) - ZERO) / ZERO
    image.putpalette(_palette().tobytes())
    buffer = io.BytesIO()
    opacities = (opaque * theme.STRONGEST * 255).round().astype(np.uint8)
    image.save(buffer, "PNG", transparency=opacities.tobytes(), optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _palette() -> UInt8[np.ndarray, "shade 3"]:
    """Blue below zero, orange above; how strong it is, is said by the opacity."""
    blue, orange = (columns.channels(colour) for colour in (theme.NEGATIVE, theme.POSITIVE))
    return np.array([blue] * ZERO + [orange] * (ZERO + 1), dtype=np.uint8)
