"""The picture of a matrix: what is drawn in it is the head's weights, in the right place."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
import vl_convert
from PIL import Image

from attnviz import frames
from attnviz.charts import matrix

TOKENS = ("[CLS]", "the", "cat", "the", "[SEP]")
QUERY = 3


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).softmax(-1)


@pytest.fixture
def spec(weights: torch.Tensor) -> dict:
    return drawn(weights)


def drawn(weights: torch.Tensor, tokens: tuple[str, ...] = TOKENS) -> dict:
    frame, axis = frames.weight_matrix(weights), frames.token_axis(tokens)
    return matrix.weight_picture(frame, axis, axis, QUERY).to_dict()


def picture_of(spec: dict) -> np.ndarray:
    layer = spec["layer"][0]
    url = spec["datasets"][layer["data"]["name"]][0]["picture"]
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def parameters(spec: dict) -> dict:
    return {p["name"]: p.get("value", p.get("expr")) for p in spec["params"]}


def test_each_cell_has_the_colour_of_its_weight(spec: dict, weights: torch.Tensor):
    picture = picture_of(spec)
    side = picture.shape[0] // 5
    assert picture.shape == (5 * side, 5 * side, 3)
    assert side * 5 >= 440
    shades = (weights / weights.max() * 255).round().int()
    for query in range(5):
        for key in range(5):
            cell = picture[query * side : (query + 1) * side, key * side : (key + 1) * side]
            assert len(np.unique(cell.reshape(-1, 3), axis=0)) == 1
            assert cell[0, 0].tolist() == matrix._viridis()[shades[query, key]].tolist()


def test_viridis_ends_and_middle_are_the_published_ones():
    published = {0: (68, 1, 84), 127: (33, 145, 140), 255: (253, 231, 37)}
    for step, colour in published.items():
        assert np.abs(matrix._viridis()[step].astype(int) - colour).max() <= 3


def test_lightness_of_the_scale_only_rises():
    lightness = matrix._viridis().astype(float) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) >= -0.5).all()
    assert lightness[-1] > 5 * lightness[0]


def read_back(numbers: np.ndarray) -> np.ndarray:
    text, low, decimals = matrix.encode_cells(numbers)
    each = len(text) // numbers.size
    cells = [text[at : at + each] for at in range(0, len(text), each)]
    levels = np.array([np.nan if cell == "-" * each else int(cell, 36) for cell in cells])
    return (levels / 10**decimals + low).reshape(numbers.shape)


def test_cells_spell_what_will_be_written(weights: torch.Tensor):
    np.testing.assert_allclose(read_back(weights.numpy()), weights.numpy().round(3), atol=1e-9)
    assert matrix.encode_cells(np.array([[0.0, 1.0]])) == ("00rs", 0, 3)


def test_signed_and_hidden_cells_are_spelt_too():
    numbers = np.array([[-58.06, 0.0, np.nan], [12.34, 58.0, -0.04]])
    expected = [[-58.1, 0.0, np.nan], [12.3, 58.0, 0.0]]
    np.testing.assert_allclose(read_back(numbers), expected, atol=1e-9)


def test_the_reading_of_signed_numbers_and_of_hidden_ones():
    numbers = torch.tensor([[1.5, torch.nan], [-58.06, 12.0]])
    axis = frames.token_axis(["a", "b"])
    spec = matrix.weight_picture(frames.weight_matrix(numbers), axis, axis, 1).to_dict()
    assert ">query 1 b  →  key 0 a:  −58.1<" in vl_convert.vegalite_to_svg(spec)
    hidden = numbers.masked_fill(numbers < 0, torch.nan)[:1].expand(2, 2) * torch.nan
    spec = matrix.weight_picture(frames.weight_matrix(hidden), axis, axis, 0).to_dict()
    assert ":  hidden<" in vl_convert.vegalite_to_svg(spec)


def test_signed_numbers_are_blue_and_orange_and_hidden_ones_transparent():
    numbers = np.array([[-4.0, 2.0], [np.nan, 4.0]])
    url = matrix._png_url(numbers)
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    side = len(picture) // 2
    low, half, hidden, high = (picture[y, x] for y in (0, side) for x in (0, side))
    assert low.tolist() == [0x2C, 0x7B, 0xB6, 217]
    assert high.tolist() == [0xCC, 0x55, 0x00, 217]
    assert half[:3].tolist() == high[:3].tolist()
    assert abs(int(half[3]) - 108) <= 1
    assert hidden[3] == 0


def test_colours_may_end_beyond_the_largest_number():
    spec = matrix.weight_picture(
        frames.weight_matrix(torch.tensor([[0.5]])), *2 * [frames.token_axis(["a"])], 0, top=1.0
    ).to_dict()
    assert picture_of(spec)[0, 0].tolist() == matrix._viridis()[128].tolist()


def test_axes_say_which_is_which(spec: dict):
    encoding = spec["layer"][0]["encoding"]
    assert encoding["x"]["title"] == "key: the token looked at"
    assert encoding["y"]["title"] == "query: the token that looks"
    assert encoding["x"]["scale"]["domain"] == [0, 5]
    assert encoding["y"]["scale"]["domain"] == [5, 0]


LABEL = re.compile(r'<text[^>]* transform="translate\(([-\d.]+),([-\d.]+)\)[^>]*>([^<]+)</text>')


def written(spec: dict, words: set[str]) -> tuple[list[str], list[str]]:
    """Labels of the rendered chart: across from left to right, down from top to bottom."""
    found = LABEL.findall(vl_convert.vegalite_to_svg(spec))
    labels = [(float(x), float(y), word) for x, y, word in found if word in words]
    half = len(labels) // 2
    across, down = sorted(labels[:half]), sorted(labels[half:], key=lambda label: label[1])
    return [word for *_, word in across], [word for *_, word in down]


def test_every_token_has_a_label_at_its_own_position(spec: dict):
    assert written(spec, set(TOKENS)) == (list(TOKENS), list(TOKENS))
    for axis in (spec["layer"][0]["encoding"][channel]["axis"] for channel in "xy"):
        assert axis["values"] == [0.5, 1.5, 2.5, 3.5, 4.5]


def test_long_texts_label_every_kth_token():
    n = 97
    words = tuple(f"w{i}" for i in range(n))
    every_third = list(words[::3])  # w3, the chosen row, is one of them
    assert written(drawn(torch.eye(n), words), set(words)) == (every_third, every_third)


def test_the_chosen_row_is_always_labelled():
    n = 97
    words = tuple(f"w{i}" for i in range(n))
    frame, axis = frames.weight_matrix(torch.eye(n)), frames.token_axis(words)
    _, down = written(matrix.weight_picture(frame, axis, axis, query=50).to_dict(), set(words))
    assert "w50" in down


def test_reading_at_rest_is_the_largest_cell_of_the_chosen_row(spec: dict, weights: torch.Tensor):
    at_rest = parameters(spec)
    assert at_rest["query_at"].endswith(f": {QUERY}")
    assert at_rest["key_at"].endswith(f": {int(weights[QUERY].argmax())}")


def test_chosen_row_is_framed(spec: dict):
    frame = spec["layer"][-1]
    row = spec["datasets"][frame["data"]["name"]][0]
    assert (row["top"], row["bottom"], row["left"], row["right"]) == (QUERY, QUERY + 1, 0, 5)


def test_equal_input_gives_equal_charts(weights: torch.Tensor):
    assert drawn(weights) == drawn(weights)


def test_a_large_matrix_is_one_image_and_few_marks():
    n = 256
    spec = drawn(torch.eye(n), tuple("a" for _ in range(n)))
    assert sum(len(rows) for rows in spec["datasets"].values()) <= 5
    assert len(json.dumps(spec)) < 300_000


def test_scale_ends_at_the_largest_weight():
    axis = matrix.weight_scale(0.37).to_dict()["encoding"]["x"]["axis"]
    assert axis["values"] == [0, 0.37]


def test_words_of_a_text_cannot_break_out_of_the_chart():
    words = ("</script>", '"quoted"', "back\\slash", "'", "${x}")
    spec = drawn(torch.eye(5), words)
    svg = vl_convert.vegalite_to_svg(spec)
    assert "<script" not in svg
    assert parameters(spec)["key_words"] == list(words)


def test_renders_outside_a_browser(spec: dict):
    svg = vl_convert.vegalite_to_svg(spec)
    assert "query 3 the" in svg


SOURCE, TARGET = ("ein", "Hund", "lief", "weg", "[SEP]"), ("[CLS]", "a", "dog")


@pytest.fixture
def across(weights: torch.Tensor) -> dict:
    """Cross-attention: 3 target tokens look at 5 source tokens."""
    queries, keys = frames.token_axis(TARGET), frames.token_axis(SOURCE)
    frame = frames.weight_matrix(weights[:3])
    return matrix.weight_picture(frame, queries, keys, 2, cross=True).to_dict()


def test_cross_attention_is_as_wide_as_the_source_and_as_high_as_the_target(across: dict):
    picture = picture_of(across)
    side = picture.shape[1] // 5
    assert picture.shape == (3 * side, 5 * side, 3)
    encoding = across["layer"][0]["encoding"]
    assert encoding["x"]["scale"]["domain"] == [0, 5]
    assert encoding["y"]["scale"]["domain"] == [3, 0]
    assert encoding["x"]["title"] == "key: the token looked at (source)"
    assert encoding["y"]["title"] == "query: the token that looks (target)"
    assert parameters(across)["height"] == "width * 0.6"


def test_cross_attention_has_each_axis_its_own_words(across: dict):
    found = LABEL.findall(vl_convert.vegalite_to_svg(across))
    labels = [(float(x), float(y), word) for x, y, word in found]
    assert [w for *_, w in sorted(labels) if w in SOURCE] == list(SOURCE)
    down = sorted(labels, key=lambda label: label[1])
    assert [w for *_, w in down if w in TARGET] == list(TARGET)


def test_the_reading_of_a_picture_that_is_not_square(across: dict, weights: torch.Tensor):
    key = int(weights[2].argmax())
    svg = vl_convert.vegalite_to_svg(across)
    assert "query 2 dog" in svg
    assert f"key {key} {SOURCE[key]}" in svg
    assert f"{float(weights[2, key]):.3f}" in svg


def test_a_hidden_first_token_leaves_positions_as_they_were(weights: torch.Tensor):
    axis = frames.token_axis(TOKENS).iloc[1:]
    frame = frames.without_first_key(frames.weight_matrix(weights)).iloc[1:]
    svg = vl_convert.vegalite_to_svg(matrix.weight_picture(frame, axis, axis, 3).to_dict())
    key = int(weights[3, 1:].argmax()) + 1
    weight = float(weights[3, key] / weights[3, 1:].sum())
    assert "query 3 the" in svg
    assert f"key {key} {TOKENS[key]}" in svg
    assert f"{weight:.3f}" in svg
    assert "[CLS]" not in svg


@pytest.mark.parametrize(("queries", "keys", "height"), [(1, 100, 0.3), (100, 1, 3.333)])
def test_flat_pictures_keep_some_room(queries: int, keys: int, height: float):
    words = [frames.token_axis([f"w{i}" for i in range(n)]) for n in (queries, keys)]
    frame = frames.weight_matrix(torch.full((queries, keys), 1 / keys))
    spec = matrix.weight_picture(frame, *words, 0).to_dict()
    assert parameters(spec)["height"] == f"width * {height}"
