"""The family tree of heads: who reads whom, at the right place and with the right number."""

from __future__ import annotations

import re

import pytest
import vl_convert

from attnviz import frames
from attnviz.charts import family_tree

LABEL = re.compile(r'<text[^>]* transform="translate\(([-\d.]+),([-\d.]+)\)[^>]*>(\d+)</text>')


def drawn(heads: int, kv_heads: int) -> dict:
    return family_tree.family_tree(frames.family_tree(heads, kv_heads)).to_dict()


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (5, 5), (7, 1)])
def test_one_line_from_each_query_head_to_the_head_that_it_reads(heads: int, kv_heads: int):
    spec = drawn(heads, kv_heads)
    lines, above, below = spec["layer"]
    encoding = lines["encoding"]
    assert (encoding["x"]["field"], encoding["x2"]["field"]) == ("above", "below")
    data = spec["datasets"][lines["data"]["name"]]
    assert [row["head"] for row in data] == list(range(heads))
    assert [row["kv_head"] for row in data] == [h // (heads // kv_heads) for h in range(heads)]
    assert (above["mark"]["shape"], below["mark"]["shape"]) == ("circle", "square")
    assert len(spec["datasets"][below["data"]["name"]]) == kv_heads


def test_numbers_stand_over_their_heads():
    found = LABEL.findall(vl_convert.vegalite_to_svg(drawn(6, 2)))
    heights = sorted({float(y) for _, y, _ in found})
    top = sorted((float(x), int(word)) for x, y, word in found if float(y) == heights[0])
    bottom = sorted((float(x), int(word)) for x, y, word in found if float(y) == heights[-1])
    assert [word for _, word in top] == [0, 1, 2, 3, 4, 5]
    assert [word for _, word in bottom] == [0, 1]
    places = [x for x, _ in top]
    assert [x for x, _ in bottom] == pytest.approx([places[1], places[4]], abs=1)


def test_few_heads_stand_in_the_middle():
    axis = drawn(4, 2)["layer"][0]["encoding"]["x"]
    assert axis["scale"]["domain"] == [-2, 6]
    assert drawn(64, 8)["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 64]


def test_both_rows_share_their_axis():
    spec = drawn(6, 3)
    lines, _, below = spec["layer"]
    assert lines["encoding"]["x"]["scale"] == below["encoding"]["x"]["scale"]
    assert lines["encoding"]["x"]["axis"]["orient"] == "top"
    assert below["encoding"]["x"]["axis"]["orient"] == "bottom"


def test_equal_input_gives_equal_charts():
    assert drawn(8, 2) == drawn(8, 2)
