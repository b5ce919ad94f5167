"""All heads of a model side by side: their patterns, or one number of each, as one image a part.

Patterns have one scale from 0 to 1 for all heads, so that they can be compared, and a
square-root one, so that faint ones are seen.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, sqrt
from typing import Literal

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, UInt8
from PIL import Image

from attnviz.charts import matrix, theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, number

SHADES = 128  # seven bits of colour: an image of any heads stays below 300 kB
HIDDEN, GUTTER = 254, 255  # in the place of a shade
TICKS = (0.0, 0.1, 0.25, 0.5, 1.0)
LABEL_HEIGHT = 16  # px of screen under a head that has its name there
FEWEST_PX = 10  # of the image across a head: gutters are at least one wide


@dataclass(frozen=True)
class PartOfHeads:
    """The heads of one part of a model.

    `thumbnails` are by layer, NaN where all is hidden. `table` has a row a head: "layer",
    "head", "kv_head", and then a column a statistic. `unread` are layers that show nothing.
    """

    part: str
    title: str
    thumbnails: Mapping[int, Float[np.ndarray, "head down across"]]
    table: pd.DataFrame
    unread: tuple[int, ...] = ()

    @property
    def layers(self) -> list[int]:
        """All layers, read or not, from the first on."""
        return sorted({*self.thumbnails, *self.unread})


@dataclass(frozen=True)
class Shading:
    """Which number has which shade; `root` is True for a square-root scale."""

    title: str
    low: float
    high: float
    root: bool = False

    def shades(self, values: Float[np.ndarray, "*place"]) -> UInt8[np.ndarray, "*place"]:
        """The shade of each number, 0 for the lowest; of NaN that of what is hidden."""
        steps = np.rint(self._place(np.nan_to_num(values)) * (SHADES - 1))
        return np.where(np.isnan(values), HIDDEN, steps).astype(np.uint8)

    @property
    def ticks(self) -> dict[float, str]:
        """What is written at the scale, by its place from 0 to 1."""
        if self.root:
            return {sqrt(value): f"{value:g}" for value in TICKS}
        return {0.0: f"{self.low:.3g}", 1.0: f"{self.high:.3g}"}

    def _place(self, values: Float[np.ndarray, "*place"]) -> Float[np.ndarray, "*place"]:
        places = np.clip((values - self.low) / ((self.high - self.low) or 1.0), 0, 1)
        return np.sqrt(places) if self.root else places


def shading(parts: Sequence[PartOfHeads], statistic: str | None = None) -> Shading:
    """The scale of the patterns, or that of one statistic over all heads."""
    if statistic is None:
        return Shading("largest weight in each cell, square-root scale", 0.0, 1.0, root=True)
    values = np.concatenate([part.table[statistic].to_numpy(float) for part in parts])
    known = values[np.isfinite(values)]
    if not len(known):
        return Shading(statistic, 0.0, 1.0)
    return Shading(statistic, float(known.min()), float(known.max()))


def shaded(
    part: PartOfHeads, shading: Shading, statistic: str | None = None
) -> dict[int, UInt8[np.ndarray, "head down across"]]:
    """The shades of each layer's heads: a cell a block of tokens, or one for the statistic."""
    if statistic is None:
        return {layer: shading.shades(cells) for layer, cells in part.thumbnails.items()}
    return {
        int(layer): shading.shades(heads[statistic].to_numpy(float))[:, None, None]
        for layer, heads in part.table.groupby("layer")
    }


def ranked(part: PartOfHeads, statistic: str) -> Int[np.ndarray, " head"]:
    """Rows of the table from the highest value to the lowest, those without one at the end."""
    return np.argsort(-part.table[statistic].to_numpy(float), kind="stable")


def palette() -> UInt8[np.ndarray, "shade 4"]:
    """The colours of the shades: viridis, each as red, green, blue, opacity."""
    every = np.frombuffer(bytes.fromhex(matrix.palette()), np.uint8).reshape(256, 4)
    return every[np.linspace(0, 255, SHADES).round().astype(int)]


@in_turn
def mosaic(
    parts: Sequence[PartOfHeads], *, colour: str | None = None, order: str | None = None
) -> alt.VConcatChart:
    """Draw all heads: layers down and heads across, or in falling order of a statistic.

    `colour` and `order` are names of statistics; None is for patterns, and for layers. Heads
    that read the same key and value head stand close together. Each part has its own image.
    """
    scale = shading(parts, colour)
    pictures = [
        _grid(part, shaded(part, scale, colour))
        if order is None
        else _row_by_row(part, shaded(part, scale, colour), order)
        for part in parts
    ]
    return (
        alt.vconcat(*pictures, _legend(scale))
        .resolve_scale(x="independent", y="independent")
        .configure_view(stroke=None)
    )


# --- layers down, heads across


def _grid(
    part: PartOfHeads, shades: Mapping[int, UInt8[np.ndarray, "_ _ _"]]
) -> alt.LayerChart | alt.FacetChart:
    high, wide, zoom = _tile(shades, len(gaps(part)))
    gutters = accumulate(ceil(gap / zoom) for gap in gaps(part))
    lefts = [wide * at + gutter for at, gutter in enumerate(gutters)]
    tops = [(high + ceil(theme.MOSAIC_GAP / zoom)) * at for at in range(len(part.layers))]
    image = np.full((tops[-1] + high, lefts[-1] + wide), GUTTER, np.uint8)
    for layer, top in zip(part.layers, tops, strict=True):
        if layer in part.unread:
            image[top : top + high] = _hatched(high, image.shape[1])
        for left, cells in zip(lefts, shades.get(layer, ()), strict=False):
            image[top : top + high, left : left + wide] = _enlarged(cells, (high, wide))
    across = {left + wide / 2: str(at) for at, left in enumerate(lefts)}
    down = {top + high / 2: str(at) for at, top in zip(part.layers, tops, strict=True)}
    picture = _picture(image, zoom, part.title).encode(
        x=_axis("left", image.shape[1], "head", across, "top"),
        y=_axis("top", image.shape[0], "layer", down, "left"),
    )
    middles = [y for y, layer in down.items() if int(layer) in part.unread]
    unread = pd.DataFrame({"left": image.shape[1] / 2, "top": middles, "word": "not read"})
    return alt.layer(picture, _written(alt.Chart(unread), image.shape, "middle"))


def gaps(part: PartOfHeads) -> list[int]:
    """The gutter left of each head in px: wider where another key and value head begins.

    Where every head has its own, all are alike; where layers differ, the first one counts.
    """
    layer = part.table[part.table["layer"] == part.table["layer"].min()]
    shared = dict(zip(layer["head"], layer["kv_head"], strict=True))
    grouped = len(set(shared.values())) < len(shared)
    apart = [
        theme.MOSAIC_FAMILY_GAP
        if grouped and shared.get(head) != shared.get(head - 1)
        else theme.MOSAIC_GAP
        for head in range(1, int(part.table["head"].max()) + 1)
    ]
    return [0, *apart]


# --- one after the other


def _row_by_row(
    part: PartOfHeads, shades: Mapping[int, UInt8[np.ndarray, "_ _ _"]], order: str
) -> alt.LayerChart | alt.FacetChart:
    count = len(part.table)
    columns = min(ceil(sqrt(2 * count)), theme.MOSAIC_WIDTH // theme.MOSAIC_TILE)
    high, wide, zoom = _tile(shades, columns)
    down, across = (ceil((high * zoom + LABEL_HEIGHT) / zoom), wide + ceil(theme.MOSAIC_GAP / zoom))
    image = np.full((ceil(count / columns) * down, columns * across), GUTTER, np.uint8)
    names = []
    for at, row in enumerate(ranked(part, order)):
        layer, head = (int(part.table.iloc[row][name]) for name in ("layer", "head"))
        top, left = at // columns * down, at % columns * across
        image[top : top + high, left : left + wide] = _enlarged(shades[layer][head], (high, wide))
        names.append(f"{layer}.{head}")
    title = f"{part.title}, by {order}, the highest first"
    picture = _picture(image, zoom, title).encode(
        x=_axis("left", image.shape[1], None, {}, "top"),
        y=_axis("top", image.shape[0], None, {}, "left"),
    )
    place = "(datum.place - 1)"
    named = (
        alt.Chart(pd.DataFrame({"word": names}))
        .transform_window(place="row_number()")
        .transform_calculate(
            left=f"{place} % {columns} * {across} + {wide / 2}",
            top=f"floor({place} / {columns}) * {down} + {high + 1 / zoom}",
        )
    )
    return alt.layer(picture, _written(named, image.shape, "top"))


# --- what both share


def _tile(shades: Mapping[int, UInt8[np.ndarray, "_ _ _"]], columns: int) -> tuple[int, int, int]:
    """Height and width of a head in the image, and how many px of screen one of its px takes.

    One px a cell of the largest, if that leaves gutters narrow: the image is enlarged on screen.
    """
    down, across = (max(cells.shape[axis] for cells in shades.values()) for axis in (1, 2))
    longest = max(down, across)
    enlarge, flattest = ceil(FEWEST_PX / longest), ceil(theme.FLATTEST * longest)
    high, wide = (enlarge * max(count, flattest) for count in (down, across))
    room = min(theme.MOSAIC_TILE, theme.MOSAIC_WIDTH // columns)
    return high, wide, max(1, room // max(high, wide))


def _enlarged(
    cells: UInt8[np.ndarray, "_ _"], size: tuple[int, int]
) -> UInt8[np.ndarray, "high wide"]:
    """The cells of one head over so many px down and across."""
    down, across = (
        np.arange(px) * count // px for px, count in zip(size, cells.shape, strict=True)
    )
    return cells[down[:, None], across]


def _hatched(high: int, wide: int) -> UInt8[np.ndarray, "high wide"]:
    diagonal = np.add.outer(np.arange(high), np.arange(wide)) // 2 % 3
    return np.where(diagonal == 0, HIDDEN, GUTTER).astype(np.uint8)


def _picture(image: UInt8[np.ndarray, "high wide"], zoom: int, title: str) -> alt.Chart:
    high, wide = image.shape
    corners = {"left": 0, "right": wide, "top": 0, "bottom": high, "picture": _png_url(image)}
    return (
        alt.Chart(pd.DataFrame([corners]))
        # Or its whole data URL would be read aloud.
        .mark_image(aspect=False, smooth=False, aria=False)
        .encode(x2="right", y2="bottom", url="picture:N")
        .properties(
            width=wide * zoom,
            height=high * zoom,
            title=alt.TitleParams(title, anchor="start", fontSize=theme.TITLE_SIZE),
        )
    )


def _png_url(image: UInt8[np.ndarray, "high wide"]) -> str:
    """A data URL of an image of shades; the page shows through its gutters."""
    colours = np.zeros((256, 4), np.uint8)
    colours[:SHADES] = palette()
    colours[HIDDEN] = theme.COVERED
    picture = Image.fromarray(image, mode="P")
    picture.putpalette(colours[:, :3].tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1, transparency=colours[:, 3].tobytes())
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _axis(
    field: str, length: int, title: str | None, names: Mapping[float, str], orient: str
) -> Spec:
    """An axis in px with names at some of its places."""
    said = ", ".join(f"'{place:g}': '{name}'" for place, name in names.items())
    axis = {
        "title": title,
        "orient": orient,
        "values": [float(f"{place:g}") for place in names],
        "tickCount": len(names),
        "labelExpr": f"({{{said}}})[datum.value]",
        "labelOverlap": "greedy" if orient != "bottom" else False,
        "labelAngle": 0,
        "labelFontSize": theme.FONT_SIZE,
        "titleFontSize": theme.FONT_SIZE,
        "titleAnchor": "start" if orient == "bottom" else "middle",
        "grid": False,
        "ticks": False,
        "domain": False,
    }
    domain = [length, 0] if orient == "left" else [0, length]
    return number(field, scale={"domain": domain, "nice": False}, axis=axis if names else None)


def _written(
    words: alt.Chart, shape: tuple[int, ...], baseline: Literal["top", "middle"]
) -> alt.Chart:
    """Words at places in px of an image of this shape."""
    return words.mark_text(fontSize=theme.SMALLEST_FONT, baseline=baseline, tooltip=None).encode(
        x=number("left", scale={"domain": [0, shape[1]], "nice": False}),
        y=number("top", scale={"domain": [shape[0], 0], "nice": False}),
        text="word:N",
    )


def _legend(scale: Shading) -> alt.Chart:
    ramp = np.arange(SHADES, dtype=np.uint8)[None]
    return (
        alt.Chart(pd.DataFrame([{"left": 0, "right": 1, "picture": _png_url(ramp)}]))
        .mark_image(aspect=False, aria=False)
        .encode(
            x=_axis("left", 1, scale.title, scale.ticks, "bottom"),
            x2="right",
            url="picture:N",
        )
        .properties(height=12, width=theme.MATRIX_SIDE // 2)
    )
