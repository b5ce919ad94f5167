"""How sharp rows of weights are for each d_k and number of keys, one map for each divisor.

The maps stand in one row where there is room, else in two; Vega cannot wrap by itself,
so that all of them share one plot whose places the browser computes from its width.
"""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn
from attnviz.charts.layers import Spec, calculated, chart, expr, layer, number, only, word

Edges = Float[np.ndarray, " edge"]  # octaves between cells

QUANTITIES = {
    "largest_weight": ["mean largest weight", "1: one key has it all"],
    "entropy": ["mean entropy, relative to even weights", "0: one key has it all · 1: even"],
}
LEFT, GAP = 44, 14  # px left of all maps, for numbers of keys, and between two
ABOVE, BELOW = 22, 36  # px of a map, for its name and for numbers of d_k
POINTS, FEWEST = 200, 10  # of a line, and of what is seen of it
TIGHT = 185  # px of a map; in a narrower one every other number of d_k is left out
FROZEN = "line: where rows freeze"
ACROSS = f"{LEFT} + (datum.map % columns) * (map_width + {GAP}) + map_width * datum."
DOWN = f"floor(datum.map / columns) * slot + {ABOVE} + (slot - {ABOVE + BELOW}) * datum."


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
    divisors = {name: at for at, name in enumerate(cells["divisor"].unique())}
    across, down = _edges(cells["d_k"]), _edges(cells["n"])
    layers = [_cells(quantity), *_frozen(_within(lines, divisors, across, down))]
    inside = place is not None and _is_inside(place[0], across) and _is_inside(place[1], down)
    if place is not None and inside:
        layers.append(_diamonds(place, divisors, across, down))
    words = [_names(divisors), *_numbers(cells, divisors, across, down)]
    return chart(
        [*layers, *words],
        _placed(cells, divisors, across, down),
        _layout(len(divisors)),
        theme.MAPS_HEIGHT,
        _corners("left", "right", "top", "bottom"),
        _title(not lines.empty, place, inside),
    )


def _title(frozen: bool, place: tuple[int, int] | None, inside: bool) -> list[str]:
    head = f"◆ this head: d_k {place[0]:,}, n {place[1]:,}" if place else ""
    if place and not inside:
        head = f"this head (d_k {place[0]:,}, n {place[1]:,}) lies beyond"
    return [line for line in (FROZEN if frozen else "", head) if line]


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


def _edges(values: pd.Series) -> Edges:
    """Where cells begin and end, in octaves: half way to their neighbours."""
    octaves = np.log2(np.unique(values))
    if len(octaves) == 1:
        return octaves[0] + np.array([-0.5, 0.5])
    middles = (octaves[1:] + octaves[:-1]) / 2
    first, last = 2 * octaves[0] - middles[0], 2 * octaves[-1] - middles[-1]
    return np.array([first, *middles, last])


def _share(
    octaves: pd.Series | Float[np.ndarray, "*place"] | float, edges: Edges
) -> Float[np.ndarray, "*place"]:
    """How far along a map so many octaves are, from 0 to 1."""
    return (np.asarray(octaves) - edges[0]) / (edges[-1] - edges[0])


def _is_inside(value: int, edges: Edges) -> bool:
    return value > 0 and bool(edges[0] <= np.log2(value) <= edges[-1])


def _placed(
    cells: pd.DataFrame, divisors: dict[str, int], across: Edges, down: Edges
) -> pd.DataFrame:
    """The cells with their corners as shares of a map, few keys below."""
    columns = np.searchsorted(across, np.log2(cells["d_k"])) - 1
    rows = np.searchsorted(down, np.log2(cells["n"])) - 1
    return cells.assign(
        map=cells["divisor"].map(divisors),
        left=_share(across[columns], across),
        right=_share(across[columns + 1], across),
        top=1 - _share(down[rows + 1], down),
        bottom=1 - _share(down[rows], down),
    )


def _corners(*names: str) -> list[Spec]:
    """Turn shares of a map into px; whole ones, so that no seams show between cells."""
    ways = {"left": ACROSS, "right": ACROSS, "top": DOWN, "bottom": DOWN}
    return calculated(**{f"{name}_px": f"round({ways[name]}{name})" for name in names})


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


def _within(
    lines: pd.DataFrame, divisors: dict[str, int], across: Edges, down: Edges
) -> pd.DataFrame:
    """The parts of the freezing lines that lie on the maps, in shares of a map."""
    parts = [pd.DataFrame({"map": [], "left": [], "top": []})]
    for name, line in lines.groupby("divisor", sort=False):
        n, d_k = np.log2(line.sort_values("n")[["n", "d_k"]].to_numpy()).T
        rising = np.linspace(n[0], n[-1], POINTS)
        left, top = _share(np.interp(rising, n, d_k), across), 1 - _share(rising, down)
        seen = (left >= 0) & (left <= 1) & (top >= 0) & (top <= 1)
        if seen.sum() < FEWEST:  # a speck at the edge of the map
            continue
        parts.append(pd.DataFrame({"map": divisors[name], "left": left, "top": top})[seen])
    return pd.concat(parts, ignore_index=True)


def _frozen(line: pd.DataFrame) -> list[alt.Chart]:
    """Black in white, to be seen on dark cells and on light ones."""
    encoding = {"x": _x(), "y": _y(), "order": number("top"), "detail": word("map")}
    corners = _corners("left", "top")
    return [
        layer("line", encoding, corners, line, color=colour, strokeWidth=width, tooltip=None)
        for colour, width in (("white", 5), ("black", 2))
    ]


def _diamonds(
    place: tuple[int, int], divisors: dict[str, int], across: Edges, down: Edges
) -> alt.Chart:
    left, top = _share(np.log2(place[0]), across), 1 - _share(np.log2(place[1]), down)
    at = pd.DataFrame({"map": [*divisors.values()], "left": float(left), "top": float(top)})
    looks = {"shape": "diamond", "size": 190, "fill": theme.REAL, "stroke": "white"}
    encoding = {"x": _x(), "y": _y()}
    return layer("point", encoding, _corners("left", "top"), at, strokeWidth=2, opacity=1, **looks)


def _names(divisors: dict[str, int]) -> alt.Chart:
    names = pd.DataFrame({"map": [*divisors.values()], "left": 0.0, "top": 0.0})
    names["name"] = [f"÷ {name}" for name in divisors]
    encoding = {"x": _x(), "y": _y(), "text": word("name")}
    looks: Spec = {"align": "left", "baseline": "bottom", "dy": -4, "tooltip": None}
    return layer(
        "text", encoding, _corners("left", "top"), names, fontSize=theme.FONT_SIZE, **looks
    )


def _numbers(
    cells: pd.DataFrame, divisors: dict[str, int], across: Edges, down: Edges
) -> list[alt.Chart]:
    """d_k below each map, numbers of keys left of the first ones."""
    maps = pd.DataFrame({"map": [*divisors.values()]})
    d_k = _sparse(cells["d_k"]).merge(maps, how="cross")
    d_k = d_k.assign(left=_share(np.log2(d_k["value"]), across), top=1.0)
    n = _sparse(cells["n"]).merge(maps, how="cross")
    n = n.assign(left=0.0, top=1 - _share(np.log2(n["value"]), down))
    titles = pd.DataFrame({"map": [*divisors.values()], "left": 0.5, "top": 1.0, "said": "d_k"})
    keys = pd.DataFrame({"map": [*divisors.values()], "left": 0.0, "top": 0.5, "said": "n, keys"})
    left_only = [only("datum.map % columns == 0")]
    spaced = [only(f"map_width > {TIGHT} || datum.rank % 2 == 0")]
    turned: Spec = {"align": "center", "baseline": "top", "angle": 270, "dy": -LEFT}
    under: Spec = {"baseline": "top", "align": "center"}
    beside: Spec = {"baseline": "middle", "align": "right", "dx": -5}
    return [
        _said(d_k, theme.SMALL_FONT, spaced, dy=4, **under),
        _said(titles, theme.SMALL_FONT, dy=18, **under),
        _said(n, theme.SMALL_FONT, left_only, **beside),
        _said(keys, theme.SMALL_FONT, left_only, **turned),
    ]


def _sparse(values: pd.Series) -> pd.DataFrame:
    """Every other value or fewer: there is room for six."""
    distinct = np.unique(values)
    chosen = distinct[:: -(-len(distinct) // 6)]
    said = [f"{value:,}" for value in chosen]
    return pd.DataFrame({"value": chosen, "rank": range(len(chosen)), "said": said})


def _said(
    frame: pd.DataFrame, size: int, also: list[Spec] | None = None, **looks: int | str
) -> alt.Chart:
    encoding = {"x": _x(), "y": _y(), "text": word("said")}
    transform = [*(also or []), *_corners("left", "top")]
    return layer("text", encoding, transform, frame, fontSize=size, tooltip=None, **looks)
