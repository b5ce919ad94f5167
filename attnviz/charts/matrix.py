"""One head's numbers as a picture: queries down, keys across.

A picture of many cells is one image, not as many marks. The weights themselves travel with it in
a string, each rounded as it will be written, so that the reading under the pointer is a number
of the head and not a colour read back.
"""

from __future__ import annotations

import base64
import io
from math import ceil
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8
from PIL import Image

from attnviz.charts import theme
from attnviz.charts.columns import channels
from attnviz.charts.in_turn import in_turn
from attnviz.charts.levels import decimals_of

LABEL_LIMIT = 110  # px of a token's label
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
BORROWED = 254  # the shade of what is hidden


@in_turn
def weight_picture(
    matrix: pd.DataFrame,
    queries: pd.DataFrame,
    keys: pd.DataFrame,
    query: int,
    *,
    cross: bool = False,
    top: float | None = None,
) -> alt.LayerChart | alt.FacetChart:
    """The picture of a `weight_matrix`, with the row of one query, given by its position, outlined.

    Colours end at `top`, by default the largest number; where some are negative, zero is in the
    middle of them. What is NaN is hidden.

    Above it stands the cell under the pointer: query, key and weight, at rest the largest of
    the outlined row. In cross-attention the axes say which is the target, which the source.
    """
    weights = matrix.to_numpy(dtype=float)
    size = (len(queries), len(keys))
    row = int(matrix.index.get_loc(query))
    of_queries, of_keys = axis_titles(cross)
    picture = (
        alt.Chart(pd.DataFrame([_corners(size) | {"picture": _png_url(weights, top)}]))
        .mark_image(aspect=False, aria=False)  # or its whole data URL would be read aloud
        .encode(
            x=alt.X("left:Q")
            .title(of_keys)
            .scale(domain=[0, size[1]], nice=False)
            .axis(orient="top", labelAngle=-45, **_token_labels(size[1], "key", "width")),
            y=alt.Y("top:Q")
            .title(of_queries)
            .scale(domain=[size[0], 0], nice=False)
            .axis(labelAngle=0, **_token_labels(size[0], "query", "height")),
            x2="right",
            y2="bottom",
            url="picture:N",
        )
        .add_params(_pointer())
    )
    return (
        alt.layer(picture, _row_under_pointer(), _column_under_pointer(), _chosen_row(row, size))
        .add_params(*_sides(size), *_words(queries, keys), *_reading(weights, row))
        .properties(title=_title(), autosize="pad")
    )


@in_turn
def weight_scale(top: float, quantity: str = "weight", signed: bool = False) -> alt.Chart:
    """The colour scale of a picture, to its largest number, written at both ends."""
    low = -top if signed else 0
    ramp = {"left": low, "right": top, "picture": _png_url(np.linspace(low, top, 256)[None], top)}
    return (
        alt.Chart(pd.DataFrame([ramp]))
        .mark_image(aspect=False, aria=False)
        .encode(
            x=alt.X("left:Q")
            .title(quantity)
            .axis(
                values=[low, top],
                format=".2~g",
                grid=False,
                labelFontSize=theme.FONT_SIZE,
                titleFontSize=theme.FONT_SIZE,
            )
            .scale(domain=[low, top], nice=False),
            x2="right",
            url="picture:N",
        )
        .properties(height=12, width=theme.MATRIX_SIDE // 2, autosize="pad")
    )


def axis_titles(cross: bool) -> tuple[str, str]:
    """What the axes of queries and of keys are called."""
    of_target, of_source = (" (target)", " (source)") if cross else ("", "")
    return f"query: the token that looks{of_target}", f"key: the token looked at{of_source}"


def palette(signed: bool = False) -> str:
    """The 256 colours from the least number to the largest, each as red, green, blue, opacity.

    Eight hexadecimal digits each. Signed numbers have the page itself in the middle.
    """
    return (_blue_orange() if signed else _opaque(_viridis())).tobytes().hex()


def _opaque(colours: UInt8[np.ndarray, "shade 3"]) -> UInt8[np.ndarray, "shade 4"]:
    return np.pad(colours, ((0, 0), (0, 1)), constant_values=255)


def _blue_orange() -> UInt8[np.ndarray, "256 4"]:
    """Blue below zero, orange above, the more opaque the further from it."""
    away = np.linspace(-1, 1, 256)
    colours = np.where(away[:, None] < 0, channels(theme.NEGATIVE), channels(theme.POSITIVE))
    opacity = np.abs(away)[:, None] * theme.STRONGEST * 255
    return np.concatenate([colours, opacity], axis=1).round().astype(np.uint8)


def _corners(size: tuple[int, int]) -> dict[str, int]:
    return {"left": 0, "right": size[1], "top": 0, "bottom": size[0]}


def _png_url(numbers: Float[np.ndarray, "query key"], top: float | None = None) -> str:
    """A data URL of the matrix, viridis from 0, or blue and orange about it; enlarged cells.

    What is NaN is transparent; it borrows the last shade but one.
    """
    signed = bool((numbers < 0).any())
    high = top or float(np.nan_to_num(np.abs(numbers)).max(initial=0.0)) or 1.0
    shares = (numbers + high) / (2 * high) if signed else numbers / high
    shades = (np.nan_to_num(shares).clip(0, 1) * 255).round().astype(np.uint8)
    colours, hidden = _blue_orange() if signed else _opaque(_viridis()), np.isnan(numbers)
    if hidden.any():
        shades[shades == BORROWED] = BORROWED + 1
        shades[hidden] = BORROWED
        colours[BORROWED] = 0
    enlarge = max(1, 2 * theme.MATRIX_SIDE // max(numbers.shape))
    image = Image.fromarray(shades.repeat(enlarge, 0).repeat(enlarge, 1), mode="P")
    image.putpalette(colours[:, :3].tobytes())
    buffer = io.BytesIO()
    opacity = {} if (colours[:, 3] == 255).all() else {"transparency": colours[:, 3].tobytes()}
    image.save(buffer, "PNG", compress_level=1, **opacity)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _viridis() -> UInt8[np.ndarray, "256 3"]:
    """The viridis scale (Smith and van der Walt 2015), between sixteen of its steps."""
    anchors = np.array([[int(h[i : i + 2], 16) for i in (0, 2, 4)] for h in VIRIDIS.split()])
    at = np.linspace(0, len(anchors) - 1, 256)
    return np.stack(
        [np.interp(at, range(len(anchors)), anchors[:, c]) for c in range(3)], axis=1
    ).astype(np.uint8)


VIRIDIS = (
    "440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e "
    "1f988b 22a884 35b779 54c568 7ad151 a5db36 d2e21b fde725"
)


def _token_labels(count: int, axis: str, side: str) -> dict[str, Any]:
    """A token axis: places are the scale, words its labels, thinned where there is no room.

    The label at the place under the pointer is always there, and bold.
    """
    step = -(-count // theme.LABELLED_TOKENS)
    shown = [place + 0.5 for place in range(count)]
    place, room = "floor(datum.value)", f"{theme.LABEL_ROOM} * {count} / {side}"
    thinned = f"{place} % max({step}, ceil({room})) && {place} != {axis}_at"
    return {
        "values": shown,
        "tickCount": len(shown),  # Vega thins even given values to its own count
        "labelExpr": f"{thinned} ? '' : {axis}_words[{place}]",
        "labelOverlap": False,
        "labelLimit": LABEL_LIMIT,
        "labelFontSize": alt.ExprRef(f"clamp(0.8 * {side} / {count}, 9, {theme.FONT_SIZE})"),
        "labelFontWeight": {
            "condition": {"test": f"{place} == {axis}_at", "value": "bold"},
            "value": "normal",
        },
        "titleFontSize": theme.FONT_SIZE,
        "grid": False,
        "ticks": False,
        "domain": False,
    }


def _pointer() -> alt.Parameter:
    """A selection whose ends are both where the pointer, or the finger, is: it covers nothing."""
    return alt.selection_interval(
        name="pointer",
        on="[pointermove, pointerout] > pointerdown, [pointerdown, pointerup] > pointermove",
        translate=False,
        zoom=False,
        clear=False,
    )


def _sides(size: tuple[int, int]) -> list[alt.Parameter]:
    """Width and height of the plot: cells are square, if that leaves it wide and high enough.

    It is narrower on a narrow screen.
    """
    largest, window = theme.MATRIX_SIDE, "windowSize()[0]"
    room = f"{window} > {theme.STACKED_BELOW} ? {window} / 2 - 260 : {window} - 170"
    wide, high = (max(count / max(size), theme.FLATTEST) for count in (size[1], size[0]))
    side = f"(isFinite({window}) ? clamp({room}, 170, {largest}) : {largest})"
    return [
        alt.param(name="width", expr=f"{side} * {wide:.4g}"),
        alt.param(name="height", expr=f"width * {high / wide:.4g}"),
    ]


def _words(queries: pd.DataFrame, keys: pd.DataFrame) -> list[alt.Parameter]:
    """The words at the places of both axes, and the positions that tell equal ones apart."""
    return [
        alt.param(name=f"{axis}_{name}", value=tokens[column].tolist())
        for axis, tokens in (("query", queries), ("key", keys))
        for name, column in (("words", "token"), ("positions", "position"))
    ]


def _reading(numbers: Float[np.ndarray, "query key"], row: int) -> list[alt.Parameter]:
    """The cell under the pointer and its number as it is written, at rest the largest of a row."""
    queries, keys = numbers.shape
    cells, low, decimals = encode_cells(numbers)
    largest = int(np.nan_to_num(np.abs(numbers[row]), nan=-1.0).argmax())

    def under(axis: str, count: int, otherwise: int) -> str:
        at = f"clamp(floor(invert('{axis}', pointer_{axis}[0])), 0, {count - 1})"
        return f"isNumber(pointer_{axis}[0]) ? {at} : {otherwise}"

    each = len(cells) // numbers.size
    first = f"{each} * ({keys} * query_at + key_at)"
    digits = [
        f"{36 ** (each - 1 - at)} * indexof('{DIGITS}', substring(cells, cell + {at}, cell + "
        f"{at + 1}))"
        for at in range(each)
    ]
    written = f"format(level / {10**decimals} + {low}, '.{decimals}f')"
    return [
        alt.param(name="cells", value=cells),
        alt.param(name="query_at", expr=under("y", queries, row)),
        alt.param(name="key_at", expr=under("x", keys, largest)),
        alt.param(name="cell", expr=first),
        alt.param(name="level", expr=" + ".join(digits)),
        alt.param(name="written", expr=f"level < 0 ? 'hidden' : {written}"),
    ]


def encode_cells(numbers: Float[np.ndarray, "query key"]) -> tuple[str, float, int]:
    """Each number as a level of base-36 digits, row after row; hyphens for what is NaN.

    Up to 1,000 levels take two digits, those of signed numbers, up to 2,000, three.

    Also returns what level 0 is, and of how many decimals a level is one.
    """
    reach = float(np.nan_to_num(np.abs(numbers)).max(initial=0.0)) or 1.0
    decimals = decimals_of(reach)
    low = -ceil(reach * 10.0**decimals) if (numbers < 0).any() else 0
    levels = np.rint(np.nan_to_num(numbers) * 10.0**decimals).astype(int) - low
    digits = np.frombuffer(DIGITS.encode(), np.uint8)
    places = 36 ** np.arange(2 if low else 1, -1, -1)
    spelt = digits[levels[..., None] // places % 36]
    spelt[np.isnan(numbers)] = ord("-")
    return spelt.tobytes().decode(), low / 10.0**decimals, decimals


def _title() -> alt.TitleParams:
    query, key = (
        f"'{axis} ' + {axis}_positions[{axis}_at] + ' ' + {axis}_words[{axis}_at]"
        for axis in ("query", "key")
    )
    return alt.TitleParams(
        text=alt.ExprRef(f"{query} + '  →  ' + {key} + ':  ' + written"),
        anchor="start",
        fontSize=theme.TITLE_SIZE,
        limit=alt.ExprRef(f"width + {LABEL_LIMIT}"),
        offset=8,
    )


def _row_under_pointer() -> alt.Chart:
    return _frame(
        x=0,
        x2=alt.ExprRef("width"),
        y=alt.ExprRef("scale('y', query_at)"),
        y2=alt.ExprRef("scale('y', query_at + 1)"),
    )


def _column_under_pointer() -> alt.Chart:
    return _frame(
        x=alt.ExprRef("scale('x', key_at)"),
        x2=alt.ExprRef("scale('x', key_at + 1)"),
        y=0,
        y2=alt.ExprRef("height"),
    )


def _frame(**ends: Any) -> alt.Chart:
    """A thin frame whose ends are pixels."""
    frame = alt.Chart(pd.DataFrame([{}], index=[0]))
    return frame.mark_rect(filled=False, stroke="white", strokeWidth=1.5, tooltip=None, **ends)


def _chosen_row(row: int, size: tuple[int, int]) -> alt.Chart:
    """The frame round the chosen query's row, in the colour of what is real."""
    ends = pd.DataFrame([_corners(size) | {"top": row, "bottom": row + 1}])
    return (
        alt.Chart(ends)
        .mark_rect(filled=False, stroke=theme.REAL, strokeWidth=3, tooltip=None)
        .encode(
            x=alt.X("left:Q").scale(domain=[0, size[1]], nice=False),
            x2="right",
            y=alt.Y("top:Q").scale(domain=[size[0], 0], nice=False),
            y2="bottom",
        )
    )
