"""The lookup drawn: rows in line, bars as long as their numbers, and every number written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rendered import Rendered

from attnviz import roles_frames as frames
from attnviz.charts import roles as charts
from attnviz.charts import theme
from attnviz.roles import VARIANTS, lookup

WIDE, NARROW = 640, 320
B, E = 1, 4


def matched(name: str, asked: int = B, sharpness: float = 1.0) -> dict:
    found = lookup(VARIANTS[name], sharpness)
    return charts.matched(frames.matched(found, asked), found.d_k).to_dict()


def returned(name: str, asked: int = B) -> dict:
    found = lookup(VARIANTS[name])
    output = frames.output(found, VARIANTS[name], asked)
    return charts.returned(frames.returned(found, asked), output).to_dict()


def read(name: str, asked: int = B) -> dict:
    return charts.read(frames.read(lookup(VARIANTS[name]), asked)).to_dict()


def layers(spec: dict, mark: str) -> list[int]:
    return [place for place, layer in enumerate(spec["layer"]) if layer["mark"]["type"] == mark]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", VARIANTS)
def test_bars_are_as_long_as_weights(name, width):
    drawn = Rendered(spec := matched(name, sharpness=0.1), width)
    bars = layers(spec, "rect")[1]
    weights = lookup(VARIANTS[name], 0.1).weights[B].tolist()
    widths = [rect.width for rect in drawn.rects(bars)]
    assert len(widths) == 6
    assert min(widths) >= 0
    whole = widths[B] / weights[B]
    assert widths == pytest.approx([whole * weight for weight in weights], abs=0.1)
    assert whole >= 40


@pytest.mark.parametrize("draw", [matched, returned, read])
def test_the_row_asked_for_is_shaded_in_every_chart(draw):
    drawn = Rendered(spec := draw("Q, K, V", E), WIDE)
    (shade,) = drawn.rects(layers(spec, "rect")[0])
    assert shade.top == charts.HEAD + charts.ROW * E
    assert shade.height == charts.ROW
    assert shade.width == WIDE


def test_scores_are_spelt_where_there_is_room():
    wide = Rendered(matched("Q, K, V"), WIDE).words()
    assert "3·3 + 4·4 = 25" in wide
    assert "3·(−5) + 4·0 = −15" in wide
    narrow = Rendered(matched("Q, K, V"), NARROW).words()
    assert "3·3" not in narrow
    for written in ("(3,\u00a04)", "25", "17.68", "0.999", "÷ √2", "key", "score"):
        assert written in narrow
    assert "÷ √4" in Rendered(matched("K = V: side by side"), NARROW).words()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", VARIANTS)
def test_words_keep_apart(name, width):
    """In each row of each chart no word begins before the one at its left ends."""
    for spec in (matched(name, E), returned(name, E), read(name, E)):
        drawn = Rendered(spec, width)
        texts = [t for at in layers(spec, "text") for t in drawn.texts(at) if t.words]
        for row in {text.y for text in texts}:
            spans = sorted(map(span, [text for text in texts if text.y == row]))
            for (_, end), (begin, _) in pairwise(spans):
                assert begin > end, (name, width, row)
            assert spans[0][0] >= 0
            assert spans[-1][1] <= width + 0.5


def span(text) -> tuple[float, float]:
    """Where a text begins and ends, about."""
    size = float(text.looks["font-size"].removesuffix("px"))
    room = charts.SPELT * size * len(text.words)
    begin = {"start": 0.0, "middle": room / 2, "end": room}
    left = text.x - begin[text.looks.get("text-anchor", "start")]
    return left, left + room


@pytest.mark.parametrize("name", VARIANTS)
def test_every_number_that_is_brought_is_in_its_cell(name):
    found = lookup(VARIANTS[name])
    drawn = Rendered(spec := returned(name, E), WIDE)
    cells, numbers = layers(spec, "rect")[1], layers(spec, "text")[2]
    expected = [*frames.returned(found, E)["value"], *found.output[E].tolist()]
    written = [float(text.words.replace("−", "-")) for text in drawn.texts(numbers)]
    assert written == pytest.approx(expected, abs=5e-4)
    rects, texts = drawn.rects(cells), drawn.texts(numbers)
    for rect, text in zip(rects, texts, strict=True):
        assert text.x == pytest.approx(rect.middle, abs=0.1)
        assert text.y == pytest.approx(rect.middle_y, abs=5)  # a baseline


def test_what_is_dropped_of_the_output_is_pale():
    drawn = Rendered(spec := returned("K = V: side by side"), WIDE)
    last = drawn.rects(layers(spec, "rect")[1])[-4:]
    opacities = [float(rect.looks.get("opacity", 1)) for rect in last]
    assert opacities == [theme.PALE, theme.PALE, 1, 1]
    assert "key content" in drawn.words().replace("  ", " ")


def test_largest_product_is_strong_wherever_it_stands():
    drawn = Rendered(spec := read("K = V: sum"), WIDE)
    bars = drawn.rects(layers(spec, "rect")[1])
    opacities = [float(rect.looks.get("fill-opacity", 1)) for rect in bars]
    assert opacities == [theme.PALE, theme.PALE, theme.PALE, 1, theme.PALE, theme.PALE]
    assert [rect.width for rect in bars] == pytest.approx(
        [bars[3].width * size / 14 for size in (14, 10, 10, 14, 10, 10)], abs=0.2
    )
    assert bars[0].left + bars[0].width == pytest.approx(bars[3].left, abs=0.2)
