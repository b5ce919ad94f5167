"""Saturation maps: every cell at its d_k and n, in as many columns as there is room for."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from rendered import Rendered

from attnviz import lab_frames
from attnviz.charts import saturation, theme
from attnviz.moments import Vectors

NAMES = ("1", "√d_k", "d_k", "d_k²")
D_KS, NS = (1, 2, 4, 8, 16), (4, 8, 16)
QUANTITIES = [*saturation.QUANTITIES]


def cells_of(names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    """Largest weights that grow with d_k, entropies that fall with it."""
    rows = [
        (name, d_k, n, 1.0, at / 5 + j / 50 + 0.01, 1 - at / 5 - j / 50)
        for name in names
        for at, d_k in enumerate(D_KS)
        for j, n in enumerate(NS)
    ]
    columns = ["divisor", "d_k", "n", "std", "largest_weight", "entropy"]
    return pd.DataFrame(rows, columns=columns)


LINES = pd.DataFrame({"divisor": "1", "n": [4.0, 16.0], "d_k": [2.0, 8.0]})
NO_LINES = LINES.iloc[:0]


def corners(rendered: Rendered, count: int) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of each map."""
    rects = rendered.rects(0)
    each = len(rects) // count
    maps = [rects[at * each : (at + 1) * each] for at in range(count)]
    return [
        (
            min(rect.left for rect in cells),
            max(rect.left + rect.width for rect in cells),
            min(rect.top for rect in cells),
            max(rect.bottom for rect in cells),
        )
        for cells in maps
    ]


def maps(names: tuple[str, ...] = NAMES, width: int = 900, **more) -> Rendered:
    cells, quantity = cells_of(names), more.pop("quantity", "largest_weight")
    lines = more.pop("lines", LINES)
    return Rendered(saturation.maps(cells, lines, quantity, **more).to_dict(), width)


@pytest.mark.parametrize(
    ("names", "width", "columns"),
    [
        (NAMES, 900, 4),
        (NAMES, 600, 2),
        (NAMES, 330, 2),
        ((*NAMES, "d_k^0.75"), 900, 5),
        ((*NAMES, "d_k^0.75"), 330, 3),
        (NAMES[:1], 330, 1),
        (NAMES[:2], 330, 1),
        (NAMES[:2], 900, 2),
    ],
)
def test_maps_stand_side_by_side_where_there_is_room(
    names: tuple[str, ...], width: int, columns: int
):
    found = corners(maps(names, width), len(names))
    lefts = {left for left, *_ in found}
    assert len(lefts) == columns
    assert len({top for _, _, top, _ in found}) == math.ceil(len(names) / columns)
    assert min(lefts) >= saturation.LEFT
    assert max(right for _, right, *_ in found) <= width
    assert max(bottom for *_, bottom in found) <= theme.MAPS_HEIGHT
    for one, other in pairwise(found):
        assert other[0] > one[1] or other[2] > one[3]


@pytest.mark.parametrize("width", [330, 900])
def test_cells_fill_their_map_without_gaps_few_keys_below(width: int):
    rects = maps(width=width).rects(0)[: len(D_KS) * len(NS)]
    for column in range(len(D_KS)):
        cells = rects[column * len(NS) : (column + 1) * len(NS)]
        for lower, upper in pairwise(cells):
            assert upper.bottom == lower.top
            assert upper.left == lower.left
    first, second = rects[0], rects[len(NS)]
    assert first.left + first.width == second.left


def test_the_freezing_line_is_where_d_k_and_n_are():
    spec = saturation.maps(cells_of(), LINES, "largest_weight").to_dict()
    rendered = Rendered(spec, 900)
    rects = rendered.rects(0)
    at = {(d_k, n): rects[i * len(NS) + j] for i, d_k in enumerate(D_KS) for j, n in enumerate(NS)}
    for layer in (1, 2):
        line = rendered.line(layer)
        (bottom, top) = (max(line, key=lambda p: p[1]), min(line, key=lambda p: p[1]))
        assert bottom == pytest.approx((at[2, 4].middle, at[2, 4].middle_y), abs=2)
        assert top == pytest.approx((at[8, 16].middle, at[8, 16].middle_y), abs=2)
    colours = [layer["mark"]["color"] for layer in spec["layer"][1:3]]
    assert colours == ["white", "black"]
    widths = [layer["mark"]["strokeWidth"] for layer in spec["layer"][1:3]]
    assert widths[0] > widths[1]


def test_a_line_is_cut_where_it_leaves_its_map():
    beyond = LINES.assign(d_k=[8.0, 128.0])
    rendered = maps(lines=beyond)
    ((_, right, top, _), *_) = corners(rendered, 4)
    assert max(x for x, _ in rendered.line(1)) <= right + 1
    assert min(y for _, y in rendered.line(1)) > top


def test_without_a_line_none_is_named():
    assert saturation.FROZEN in maps().words()
    assert saturation.FROZEN not in maps(lines=NO_LINES).words()
    assert saturation.FROZEN not in maps(lines=LINES.assign(d_k=[900.0, 901.0])).words()


def test_a_real_head_is_a_diamond_in_every_map():
    spec = saturation.maps(cells_of(), LINES, "entropy", (4, 8)).to_dict()
    (layer,) = (n for n, x in enumerate(spec["layer"]) if x["mark"].get("shape") == "diamond")
    mark = spec["layer"][layer]["mark"]
    assert (mark["fill"], mark["stroke"]) == (theme.REAL, "white")
    rendered = Rendered(spec, 600)
    own = [rendered.rects(0)[each * 15 + 2 * len(NS) + 1] for each in range(4)]
    expected = [(cell.middle, cell.middle_y) for cell in own]
    for found, place in zip(rendered.points(layer), expected, strict=True):
        assert found == pytest.approx(place, abs=1.5)
    assert "this head: d_k 4, n 8" in rendered.words()


@pytest.mark.parametrize("place", [(4, 9000), (128, 8), (1, 1)])
def test_a_head_beyond_the_maps_is_said_to_be_so(place: tuple[int, int]):
    spec = saturation.maps(cells_of(), LINES, "entropy", place).to_dict()
    assert all(x["mark"].get("shape") != "diamond" for x in spec["layer"])
    assert "lies beyond" in Rendered(spec).words()


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_one_sequential_scale_serves_all_maps(quantity: str):
    cells = cells_of()
    spec = saturation.maps(cells, LINES, quantity).to_dict()
    colour = spec["layer"][0]["encoding"]["color"]
    assert colour["field"] == quantity
    assert colour["scale"] == {"scheme": "viridis", "domain": [0, 1]}
    rendered = Rendered(spec)
    assert rendered.legend() == ["0", "0.5", "1"]
    fills = [rect.looks["fill"] for rect in rendered.rects(0)]
    assert len(set(fills)) == len(D_KS) * len(NS)
    rows = next(rows for rows in spec["datasets"].values() if len(rows) == len(cells))
    assert [row[quantity] for row in rows] == cells[quantity].tolist()
    told = [x["field"] for x in spec["layer"][0]["encoding"]["tooltip"]]
    assert told == ["divisor", "d_k", "n", "std", "largest_weight", "entropy"]


@pytest.mark.parametrize("width", [330, 600, 900])
def test_maps_and_axes_are_named_without_overlap(width: int):
    cells = pd.concat(
        [
            lab_frames.saturation_map(
                Vectors(), (1, 4, 16, 64, 256, 1024), (4, 64), p, 20, 1
            ).assign(divisor=name)
            for name, p in (("1", 0.0), ("√d_k", 0.5), ("d_k", 1.0), ("d_k²", 2.0))
        ]
    )
    spec = saturation.maps(cells, NO_LINES, "entropy").to_dict()
    rendered = Rendered(spec, width)
    texts = [
        text
        for layer in range(len(spec["layer"]) - 5, len(spec["layer"]))
        for text in rendered.texts(layer)
    ]
    words = [text.words for text in texts]
    for word in (*(f"÷ {name}" for name in NAMES), "d_k", "n, keys", "64", "256"):
        assert word in words
    numbers = sorted((round(t.y), t.x, len(t.words)) for t in texts if t.words[0].isdigit())
    for (y, x, length), (other_y, other_x, other_length) in pairwise(numbers):
        if y == other_y:
            assert other_x - x > (length + other_length) / 2 * 6


def test_a_single_cell_is_a_map():
    cells = cells_of(("1",)).iloc[:1]
    (rect,) = Rendered(saturation.maps(cells, NO_LINES, "entropy").to_dict(), 400).rects(0)
    assert min(rect.width, rect.height) > 100


def test_equal_input_gives_equal_charts():
    one, other = (saturation.maps(cells_of(), LINES, "entropy").to_dict() for _ in range(2))
    assert one == other


def test_edges_are_half_way_to_the_neighbours():
    assert saturation._edges(pd.Series([4, 1, 2, 2])) == pytest.approx([-0.5, 0.5, 1.5, 2.5])
    assert saturation._edges(pd.Series([8])) == pytest.approx([2.5, 3.5])
    assert np.all(np.diff(saturation._edges(pd.Series([3, 7, 100]))) > 0)
