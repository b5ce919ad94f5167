"""Strips: each number has its cell, in its colour, and words on it can be read."""

from __future__ import annotations

import base64
import io
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rendered import Rendered

from attnviz import cell_frames
from attnviz.charts import strips, theme

CONFIG = Path(__file__).parents[2] / ".streamlit" / "config.toml"
SLOT = theme.STRIP_HEIGHT
COLOUR = re.compile(r"rgba?\((\d+), (\d+), (\d+)(?:, ([\d.e-]+))?\)")


def vectors(rows: int, width: int, seed: int = 1) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(seed)
    return cell_frames.strips(
        {f"row {row}": torch.randn(width, generator=generator) for row in range(rows)}
    )


def drawn(frame: pd.DataFrame, **options) -> dict:
    return strips.strips(frame, **options).to_dict()


def colour(fill: str) -> tuple[tuple[int, ...], float]:
    """Red, green and blue of a cell, and how opaque it is."""
    match = COLOUR.match(fill)
    assert match
    return tuple(int(x) for x in match.groups()[:3]), float(match[4] or 1)


def rgb(name: str) -> tuple[int, ...]:
    return tuple(int(name[i : i + 2], 16) for i in (1, 3, 5))


@pytest.mark.parametrize("width", [1000, 330])
def test_each_number_has_its_cell_in_its_row_and_column(width: int):
    frame = vectors(3, 7)
    cells = Rendered(drawn(frame), width).rects(0)
    assert len(cells) == 21
    values = frame.pivot(index="dimension", columns="row", values="value").to_numpy()
    reach = np.abs(values).max()
    lefts = sorted({round(cell.left, 3) for cell in cells})
    assert len(lefts) == 7
    for cell in cells:
        row, dimension = int(cell.middle_y // SLOT), lefts.index(round(cell.left, 3))
        value = values[dimension, row]
        hue, opacity = colour(cell.looks["fill"])
        assert hue == rgb(theme.POSITIVE if value > 0 else theme.NEGATIVE)
        assert opacity == pytest.approx(abs(value) / reach * theme.STRONGEST, abs=1e-3)
        assert row * SLOT <= cell.top < cell.bottom <= (row + 1) * SLOT


def test_columns_fill_the_width_that_names_leave():
    wide, narrow = (Rendered(drawn(vectors(2, 7)), width) for width in (1000, 330))
    for rendered in (wide, narrow):
        cells = rendered.rects(0)
        widths = {round(cell.width, 3) for cell in cells}
        assert len(widths) == 1
        end = max(cell.left + cell.width for cell in cells)
        assert end == pytest.approx(1000 if rendered is wide else 330, abs=12)
    assert min(cell.left for cell in wide.rects(0)) > 50
    assert min(cell.left for cell in narrow.rects(0)) == 0


def test_names_stand_left_of_their_rows_or_above_them():
    wide, narrow = (Rendered(drawn(vectors(2, 7)), width) for width in (1000, 330))
    for rendered in (wide, narrow):
        names = rendered.texts(2)
        assert [name.words for name in names] == ["row 0", "row 1"]
        assert [int(name.y // SLOT) for name in names] == [0, 1]
    first = next(cell for cell in narrow.rects(0) if cell.top < SLOT)
    assert narrow.texts(2)[0].y + 5 < first.top
    first = next(cell for cell in wide.rects(0) if cell.top < SLOT)
    assert first.top < wide.texts(2)[0].y < first.bottom


def test_a_very_long_name_stands_above_even_where_there_is_room():
    frame = cell_frames.strips({"x of “incomprehensibilities” (position 17)": torch.ones(5)})
    assert min(cell.left for cell in Rendered(drawn(frame)).rects(0)) == 0


def test_numbers_are_written_where_they_have_room():
    frame = cell_frames.strips({"q": torch.tensor([0.04, -1.26, 12.0, -0.02])})
    wide, narrow = (Rendered(drawn(frame), width) for width in (1000, 60))
    assert [text.words for text in wide.texts(1)] == ["0.0", "−1.3", "12.0", "0.0"]
    assert {text.looks.get("opacity") for text in wide.texts(1)} != {"0"}
    assert {text.looks.get("opacity") for text in narrow.texts(1)} == {"0"}


@pytest.mark.parametrize(
    ("largest", "words"),
    [(1234.0, "1234"), (12.34, "12.3"), (0.97, "1.0"), (0.5, "0.50"), (0.05, "0.050")],
)
def test_small_numbers_have_more_decimals(largest: float, words: str):
    frame = cell_frames.strips({"q": torch.tensor([largest, 0.0])})
    assert Rendered(drawn(frame)).texts(1)[0].words == words


def test_forty_dimensions_have_numbers_on_a_projector_and_more_have_none():
    forty = Rendered(drawn(vectors(1, 40)), 1100)
    sizes = [float(text.looks["font-size"].removesuffix("px")) for text in forty.texts(1)]
    assert len(sizes) == 40
    assert min(sizes) >= theme.SMALLEST_FONT
    assert not any(text.looks.get("opacity") == "0" for text in forty.texts(1))
    assert len(drawn(vectors(1, 41))["layer"]) == 2  # cells and names


def test_the_scale_is_symmetric_and_written_at_both_ends():
    frame = cell_frames.strips({"q": torch.tensor([1.0, -2.5, 0.3])})
    spec = drawn(frame)
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-2.5, 0, 0, 2.5]
    assert Rendered(spec).legend() == ["−2.5", "0", "2.5"]


def test_two_charts_can_share_their_scale():
    frame = cell_frames.strips({"q": torch.tensor([1.0, -2.5, 0.3])})
    cells = Rendered(drawn(frame, reach=5.0, legend=False)).rects(0)
    assert colour(cells[1].looks["fill"])[1] == pytest.approx(theme.STRONGEST / 2, abs=1e-3)
    assert Rendered(drawn(frame, reach=5.0, legend=False)).legend() == []


def test_zeros_have_no_colour_and_divide_nothing():
    rendered = Rendered(drawn(cell_frames.strips({"q": torch.zeros(3)})))
    assert {colour(cell.looks["fill"])[1] for cell in rendered.rects(0)} == {0.0}
    assert rendered.legend() == ["−1", "0", "1"]


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", [theme.POSITIVE, theme.NEGATIVE])
def test_words_can_be_read_on_every_cell(mode: str, name: str):
    look = tomllib.loads(CONFIG.read_text())["theme"][mode]
    ground, words = (np.array(rgb(look[f"{part}Color"])) for part in ("background", "text"))
    for opacity in np.linspace(0, theme.STRONGEST, 18):
        assert contrast(opacity * np.array(rgb(name)) + (1 - opacity) * ground, words) >= 4.5
    strongest = theme.STRONGEST * np.array(rgb(name)) + (1 - theme.STRONGEST) * ground
    assert contrast(strongest, ground) >= 3


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    def luminance(channels: np.ndarray) -> float:
        part = channels / 255
        linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_both_signs_keep_apart_for_a_colour_blind_viewer():
    from test_theme import COLOUR_BLINDNESS, linear

    for matrix in COLOUR_BLINDNESS.values():
        one, other = (
            np.clip(np.array(matrix) @ linear(name), 0, 1) ** (1 / 2.2)
            for name in (theme.POSITIVE, theme.NEGATIVE)
        )
        assert float(np.linalg.norm(one - other)) > 0.3


def picture(spec: dict, row: int) -> np.ndarray:
    """The cells of an image as red, green, blue and opacity."""
    url = next(iter(spec["datasets"].values()))[row]["picture"]
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))[0]


def test_a_wide_vector_is_an_image_of_its_numbers():
    frame = vectors(2, 307)
    spec = drawn(frame)
    values = frame.loc[frame["row"] == "row 1", "value"].to_numpy()
    cells = picture(spec, 1).reshape(307, -1, 4)
    assert (cells == cells[:, :1]).all()
    expected = np.abs(values) / frame["value"].abs().max() * theme.STRONGEST * 255
    assert np.abs(cells[:, 0, 3] - expected).max() <= 2
    strong = np.abs(values) > 0.1
    for sign, name in ((values > 0, theme.POSITIVE), (values < 0, theme.NEGATIVE)):
        assert (cells[sign & strong, 0, :3] == rgb(name)).all()


def test_of_a_very_wide_vector_no_large_number_is_lost():
    numbers = torch.zeros(5003)
    numbers[2041], numbers[2042] = -8.0, 4.0  # in one block of five
    numbers[5002] = 2.0
    spec = drawn(cell_frames.strips({"x": numbers}))
    cells = picture(spec, 0)
    assert len(cells) == 1001
    assert set(np.flatnonzero(cells[:, 3] > 2)) == {2041 // 5, 5002 // 5}
    assert tuple(cells[2041 // 5, :3]) == rgb(theme.NEGATIVE)
    assert "each cell: of 5 the furthest from 0" in Rendered(spec).words()
    record = next(iter(spec["datasets"].values()))[0]
    assert (record["largest"], record["at"]) == (-8.0, 2041)


def test_wide_vectors_have_their_scale_and_are_cheap():
    spec = drawn(vectors(2, 8192))
    assert len(Rendered(spec).legend()) == 3
    assert len(json.dumps(spec)) < 12_000
    assert len(json.dumps(drawn(vectors(2, 128)))) < 12_000


@pytest.mark.parametrize(("count", "width"), [(8, 1000), (64, 1000), (64, 330), (4096, 330)])
def test_dimensions_are_numbered_and_their_numbers_keep_apart(count: int, width: int):
    spec = drawn(vectors(1, count))
    labels = Rendered(spec, width).labels()
    left = 0 if width == 330 else min(cell.left for cell in Rendered(spec, width).rects(0))
    cell = (width - left) / count
    assert labels[0].words == "0"
    assert len(labels) >= min(count, 5)
    for label in labels:
        assert label.x == pytest.approx(left + (int(label.words) + 0.5) * cell, abs=12)
    gaps = np.diff([label.x for label in labels])
    assert gaps.min() > 6 * len(str(count - 1))


def test_tooltips_tell_the_vector_the_dimension_and_the_number():
    spec = drawn(vectors(1, 3))
    for layer in spec["layer"][:2]:
        assert [channel["field"] for channel in layer["encoding"]["tooltip"]] == [
            *("vector", "dimension", "value"),
        ]


def test_equal_input_gives_equal_charts():
    assert drawn(vectors(2, 5)) == drawn(vectors(2, 5))
    assert drawn(vectors(2, 300)) == drawn(vectors(2, 300))
