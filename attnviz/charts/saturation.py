"""How sharp rows of weights are for each d_k and number of keys, one map for each divisor.

The maps stand in one row where there is room, else in two; Vega cannot wrap by itself,
so that all of them share one plot whose places the browser computes from its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float, Num

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, expr, layer, number, only, word

QUANTITIES = {
    "largest_weight": ["mean largest weight", "1: one key has it all"],
    "entropy": ["mean entropy, relative to even weights", "0: one key has it all · 1: even"],
}
LEFT, GAP = 44, 14  # px left of all maps, for numbers of keys, and between two
ABOVE, BELOW = 22, 36  # px of a map, for its name and for numbers of d_k
POINTS, FEWEST = 60, 3  # of a line, and of what is seen of it
DIGITS = 4  # of a share of a map: less than a pixel
TIGHT = 185  # px of a map; in a narrower one every other number of d_k is left out
FROZEN = "line: where rows freeze"
ACROSS = f"{LEFT} + (datum.map % columns) * (map_width + {GAP}) + map_width * datum."
DOWN = f"floor(datum.map / columns) * slot + {ABOVE} + (slot - {ABOVE + BELOW}) * datum."


@dataclass(frozen=True)
class _Grid:
    """The number of each divisor's map, and where cells begin and end, in octaves."""

    divisors: dict[str, int]
    across: Float[np.ndarray, " d_k_edge"]
    down: Float[np.ndarray, " n_edge"]

    def places(self, d_k: Num[np.ndarray, " place"], n: Num[np.ndarray, " place"]) -> pd.DataFrame:
        """Shares of a map, from its left and from its top: few keys are below."""
        left, top = _share(np.log2(d_k), self.across), 1 - _share(np.log2(n), self.down)
        return pd.DataFrame({"left": left, "top": top})

    def on_each(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The same on every map."""
        return frame.merge(pd.DataFrame({"map": [*self.divisors.values()]}), how="cross")


@in_turn
def maps(
    cells: pd.DataFrame,
    lines: pd.DataFrame,
    quantity: str,
    place: tuple[int, int] | None = None,
) -> alt.LayerChart | alt.FacetChart:
    """Draw a `saturation_map` of each divisor, its `freezing_line` over it.

    `quantity` is "largest_weight" or "entropy"; `place` are d_k and n of a real head, a diamond
    in every map unless it lies beyond them.
    """
    numbers = {str(name): at for at, name in enumerate(cells["divisor"].unique())}
    grid = _Grid(numbers, _edges(cells["d_k"]), _edges(cells["n"]))
    frozen, head = _within(lines, grid), _head(place, grid)
    layers = [
        _cells(quantity),
        *([] if frozen.empty else _frozen(frozen)),
        *([] if head.empty else [_diamonds(head)]),
        _names(grid),
        *_numbers(cells, grid),
    ]
    return chart(
        layers,
        _placed(cells, grid),
        _layout(len(numbers)),
        theme.MAPS_HEIGHT,
        _corners("left", "right", "top", "bottom", whole=True),
        _title(not frozen.empty, place, not head.empty),
    )


def _title(frozen: bool, place: tuple[int, int] | None, inside: bool) -> list[str]:
    lines = [FROZEN] if frozen else []
    if place is None:
        return lines
    at = f"d_k {place[0]:,}, n {place[1]:,}"
    return [*lines, f"◆ this head: {at}" if inside else f"this head ({at}) lies beyond"]


def _layout(count: int) -> Spec:
    """How many maps stand side by side, and how large one is.

    Their height is that of the plot or half of it: it cannot follow the width.
    """
    one_row = f"width >= {LEFT} + {theme.MAP_WIDTH} * {count}"
    return {
        "columns": expr(f"{one_row} ? {count} : {-(-count // 2)}"),
        "map_width": expr(f"(width - {LEFT}) / columns - {GAP}"),
        "slot": expr(f"{theme.MAPS_HEIGHT} / ceil({count} / columns)"),
    }


def _edges(values: pd.Series) -> Float[np.ndarray, " edge"]:
    """Where cells begin and end, in octaves: half way to their neighbours."""
    octaves = np.log2(np.unique(values))
    if len(octaves) == 1:
        return octaves[0] + np.array([-0.5, 0.5])
    middles = (octaves[1:] + octaves[:-1]) / 2
    first, last = 2 * octaves[0] - middles[0], 2 * octaves[-1] - middles[-1]
    return np.array([first, *middles, last])


def _share(
    octaves: Float[np.ndarray, " place"], edges: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, " place"]:
    """How far along a map so many octaves are, from 0 to 1."""
    return (octaves - edges[0]) / (edges[-1] - edges[0])


def _inside(places: pd.DataFrame) -> pd.Series:
    return places["left"].between(0, 1) & places["top"].between(0, 1)


def _placed(cells: pd.DataFrame, grid: _Grid) -> pd.DataFrame:
    """The cells with their corners as shares of a map."""
    columns = np.searchsorted(grid.across, np.log2(cells["d_k"])) - 1
    rows = np.searchsorted(grid.down, np.log2(cells["n"])) - 1
    across = _share(grid.across, grid.across).round(DIGITS)
    down = (1 - _share(grid.down, grid.down)).round(DIGITS)
    return cells.assign(
        map=cells["divisor"].map(grid.divisors),
        left=across[columns],
        right=across[columns + 1],
        top=down[rows + 1],
        bottom=down[rows],
    )


def _corners(*names: str, whole: bool = False) -> list[Spec]:
    """Turn shares of a map into px; whole ones, where seams would show between cells."""
    ways = {"left": ACROSS, "right": ACROSS, "top": DOWN, "bottom": DOWN}
    turned = {f"{name}_px": ways[name] + name for name in names}
    rounded = {field: f"round({px})" for field, px in turned.items()}
    return calculated(**(rounded if whole else turned))


def _x(field: str = "left_px") -> Spec:
    return number(field, scale=None, axis=None)


def _y(field: str = "top_px") -> Spec:
    return number(field, scale=None, axis=None)


def _cells(quantity: str) -> alt.Chart:
    legend = {
        "orient": "bottom",
        "direction": "horizontal",
        "title": QUANTITIES[quantity],
        "titleLimit": 400,
        "titleFontSize": theme.SMALL_FONT,
        "values": [0, 0.5, 1],
        "format": "~g",
        "gradientLength": 200,
        "gradientThickness": 10,
        "labelFontSize": theme.SMALL_FONT,
        "offset": 4,
    }
    scale = {"scheme": "viridis", "domain": [0, 1]}
    encoding = {
        "x": _x(),
        "x2": {"field": "right_px"},
        "y": _y(),
        "y2": {"field": "bottom_px"},
        "color": number(quantity, scale=scale, legend=legend),
        "tooltip": [
            word("divisor"),
            number("d_k"),
            number("n", title="keys"),
            number("std", format=".3~g", title="standard deviation of logits"),
            number("largest_weight", format=".3f", title="largest weight"),
            number("entropy", format=".3f", title="relative entropy"),
        ],
    }
    return layer("rect", encoding)


def _within(lines: pd.DataFrame, grid: _Grid) -> pd.DataFrame:
    """The parts of the freezing lines that lie on the maps, in shares of a map."""
    parts = [pd.DataFrame({"map": [], "left": [], "top": []})]
    for name, line in lines.groupby("divisor", sort=False):
        n, d_k = np.log2(line.sort_values("n")[["n", "d_k"]].to_numpy(float)).T
        rising = np.linspace(n[0], n[-1], POINTS)
        places = grid.places(2 ** np.interp(rising, n, d_k), 2**rising).round(DIGITS)
        seen = places[_inside(places)]
        if len(seen) >= FEWEST:  # else a speck at the edge of the map
            parts.append(seen.assign(map=grid.divisors[str(name)]))
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def _frozen(line: pd.DataFrame) -> list[alt.Chart]:
    """Black in white, to be seen on dark cells and on light ones."""
    encoding = {"x": _x(), "y": _y(), "order": number("top"), "detail": word("map")}
    corners = _corners("left", "top")
    return [
        layer("line", encoding, corners, line, color=colour, strokeWidth=width, tooltip=None)
        for colour, width in (("white", 5), ("black", 2))
    ]


def _head(place: tuple[int, int] | None, grid: _Grid) -> pd.DataFrame:
    """Where a real head stands in each map; nothing if that is beyond them."""
    d_k, n = place or (0, 0)
    if min(d_k, n) < 1:
        return pd.DataFrame()
    places = grid.places(np.array([d_k]), np.array([n]))
    return grid.on_each(places[_inside(places)])


def _diamonds(head: pd.DataFrame) -> alt.Chart:
    looks: Spec = {"shape": "diamond", "size": 190, "fill": theme.REAL, "stroke": "white"}
    looks |= {"strokeWidth": 2, "opacity": 1}
    return layer("point", {"x": _x(), "y": _y()}, _corners("left", "top"), head, **looks)


def _names(grid: _Grid) -> alt.Chart:
    said = [f"÷ {name}" for name in grid.divisors]
    names = pd.DataFrame({"map": [*grid.divisors.values()], "said": said, "left": 0, "top": 0})
    return _said(names, theme.FONT_SIZE, align="left", baseline="bottom", dy=-4)


def _numbers(cells: pd.DataFrame, grid: _Grid) -> list[alt.Chart]:
    """d_k below each map, numbers of keys left of the first ones."""
    d_k, n = _sparse(cells["d_k"]), _sparse(cells["n"])
    d_k["left"] = grid.places(d_k["value"].to_numpy(), d_k["value"].to_numpy())["left"]
    n["top"] = grid.places(n["value"].to_numpy(), n["value"].to_numpy())["top"]
    titles = pd.DataFrame({"left": [0.5, 0], "top": [1, 0.5], "said": ["d_k", "n, keys"]})
    left_only = [only("datum.map % columns == 0")]
    spaced = [only(f"map_width > {TIGHT} || datum.rank % 2 == 0")]
    under: Spec = {"baseline": "top", "align": "center"}
    beside: Spec = {"baseline": "middle", "align": "right", "dx": -5}
    turned: Spec = under | {"angle": 270, "dy": -LEFT}
    size = theme.SMALL_FONT
    return [
        _said(grid.on_each(d_k.assign(top=1)), size, spaced, dy=4, **under),
        _said(grid.on_each(titles.iloc[:1]), size, dy=18, **under),
        _said(grid.on_each(n.assign(left=0)), size, left_only, **beside),
        _said(grid.on_each(titles.iloc[1:]), size, left_only, **turned),
    ]


def _sparse(values: pd.Series) -> pd.DataFrame:
    """Every other value or fewer: there is room for six."""
    distinct = np.unique(values)
    chosen = distinct[:: -(-len(distinct) // 6)]
    said = [f"{value:,}" for value in chosen]
    return pd.DataFrame({"value": chosen, "rank": range(len(chosen)), "said": said})


def _said(
    frame: pd.DataFrame, size: int, also: Sequence[Spec] = (), **looks: int | str
) -> alt.Chart:
    encoding = {"x": _x(), "y": _y(), "text": word("said")}
    transform = [*also, *_corners("left", "top")]
    return layer("text", encoding, transform, frame, fontSize=size, tooltip=None, **looks)
