"""Files to take home: read back, they hold the head's own numbers and say what they are."""

from __future__ import annotations

import hashlib
import io
import json
import re
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.torch
import tiny_models
import torch
from PIL import Image

from attnviz import attention, equation, export, frames
from attnviz.capture import Capture, capture
from attnviz.charts import matrix, theme
from attnviz.export import Shown
from attnviz.inputs import Inputs
from attnviz.pictures import prepare
from attnviz.reading import Reading
from attnviz.tokens import named

QUERIES = frames.token_axis(["the", "#", 'a "b", c', "=1+1", "the"])
KEYS = frames.token_axis(["the", "##s", "</script>", "⏎", "the", "猫", ","])
SHOWN = Shown("org/My model", "L1H4", "cross", (5, 7), 16, "1a2b3c4d" + "0" * 56)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def weights() -> pd.DataFrame:
    return frames.weight_matrix(torch.rand(5, 7, generator=torch.Generator().manual_seed(2)))


@pytest.fixture(scope="module")
def captured() -> Capture:
    """A decoder whose heads share key heads, with rotation."""
    return capture(tiny_models.build("llama"), tiny_models.inputs_for("llama", length=11))


def picture(weights: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    return matrix.weight_picture(weights, QUERIES, KEYS, 3)


def one_hot(query: int, key: int) -> pd.DataFrame:
    weights = torch.zeros(5, 7)
    weights[query, key] = 1.0
    return frames.weight_matrix(weights)


def inputs(text: str, target: str | None = None) -> Inputs:
    source, aim = (None if words is None else named([words]) for words in (text, target))
    assert source is not None
    object.__setattr__(source, "text", text)
    if aim is not None:
        object.__setattr__(aim, "text", target)
    return Inputs({}, source, aim)


def bounds(where: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is true."""
    rows, columns = np.flatnonzero(where.any(1)), np.flatnonzero(where.any(0))
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


def near(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (np.abs(pixels.astype(int) - colour) <= 2).all(-1)


def test_a_caption_says_what_is_shown():
    assert SHOWN.caption == (
        "real · org/My model · L1H4 (cross) · n = 5 × 7 · d_k = 16 · weights · text 1a2b3c4d"
    )
    overview = Shown("MiniLM-L6", "overview", None, (13, 13), None, "ab" * 32, "entropy")
    assert overview.caption == "real · MiniLM-L6 · overview · n = 13 · entropy · text abababab"


def test_a_caption_is_cut_between_its_facts():
    assert export.in_lines("real · Tiny · n = 5", 11) == ["real · Tiny", "n = 5"]
    assert export.in_lines("real · a model of many words · d", 13) == [
        "real",
        "a model of",
        "many words",
        "d",
    ]
    assert export.in_lines("", 13) == []


def test_file_names_are_plain_and_tell_figures_apart():
    assert SHOWN.file_name("png") == "attnviz_org-My-model_cross_L1H4_1a2b3c4d.png"
    plain = Shown("MiniLM-L6", "L5H11", None, (3, 3), 32, "c" * 64)
    assert plain.file_name("csv") == "attnviz_MiniLM-L6_L5H11_cccccccc.csv"
    strange = Shown("../../猫\n", "L0H0", None, (3, 3), 2, "c" * 64, "weights × ‖v·W_O‖")
    assert strange.file_name("svg") == "attnviz_unnamed_L0H0_weights-v-W-O_cccccccc.svg"


def test_the_hash_is_that_of_the_text_and_its_target():
    assert export.sha256_of(inputs("a 猫")) == hashlib.sha256("a 猫".encode()).hexdigest()
    both = hashlib.sha256(b"a cat\nune chatte").hexdigest()
    assert export.sha256_of(inputs("a cat", "une chatte")) == both


def test_two_pictures_have_two_hashes():
    config = tiny_models.build("vit").config
    seen = [Image.new("RGB", (30, 30), colour) for colour in ("red", "blue", "red")]
    hashes = [
        export.sha256_of(Inputs({}, None, picture=prepare(image, config, None))) for image in seen
    ]
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_head_of_a_reading_is_named_by_its_true_layer(captured: Capture):
    reading = Reading("Tiny", None, inputs("a cat"), captured, 0.0)
    call = captured.calls[1]
    shown = export.head_shown(reading, call, 5)
    assert (shown.place, shown.part, shown.n, shown.d_k) == ("L1H5", None, (11, 11), call.d_k)
    overview = export.many_shown(reading, "decoder", "overview", "entropy")
    assert (overview.place, overview.d_k, overview.weighed) == ("overview", call.d_k, "entropy")


def test_what_only_a_page_knows_is_replaced(weights: pd.DataFrame):
    words = alt.Chart(weights.head(1)).mark_text(color=theme.WORDS)
    for chart in (picture(weights), words):
        spec = export.on_paper(chart)
        assert not re.search("currentColor|windowSize", json.dumps(spec))
        assert spec["background"] == "white"
    assert export.on_paper(words)["mark"]["color"] == export.INK
    assert export.on_paper(words)["width"] == export.WIDTH
    assert export.on_paper(words.properties(width="container"))["width"] == export.WIDTH
    assert export.on_paper(words.properties(width=89))["width"] == 89


@pytest.mark.parametrize(("query", "key"), [(1, 4), (4, 0)])
def test_a_cell_is_drawn_at_its_query_and_key_under_axes(query: int, key: int):
    png = export.png([picture(one_hot(query, key))], SHOWN.caption)
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    cell, rest = near(pixels, (0xFD, 0xE7, 0x25)), near(pixels, (0x44, 0x01, 0x54))
    left, top, right, bottom = bounds(cell | rest)
    assert right - left == pytest.approx(2 * theme.MATRIX_SIDE, abs=8)  # its frame may cover some
    across, down = (right - left) / 7, (bottom - top) / 5
    expected = (left + key * across, top + query * down)
    expected += (expected[0] + across, expected[1] + down)
    assert bounds(cell) == pytest.approx(expected, abs=10)
    assert (pixels[0, 0] == 255).all()
    words = (pixels[bottom + 10 :] < 90).all(-1)
    assert words.any(1).sum() > 10
    assert not words[-4:].any()


def test_an_svg_is_charts_and_words_and_asks_nobody(weights: pd.DataFrame):
    svg = export.svg([picture(weights), matrix.weight_scale(0.7)], "a < b " * 40)
    root = ElementTree.fromstring(svg)
    upper, lower = root.findall(f"{SVG}svg")
    heights = [float(part.get("height", 0)) for part in (upper, lower)]
    assert float(lower.get("y", 0)) == pytest.approx(heights[0])
    lines = root.findall(f"{SVG}text/{SVG}tspan")
    assert " ".join(line.text or "" for line in lines).split() == ("a < b " * 40).split()
    places = [float(line.get("y", 0)) for line in lines]
    assert len(places) > 1
    assert sum(heights) < places[0] < places[-1] < float(root.get("height", 0))
    assert len(upper.findall(f".//{SVG}image")) == len(lower.findall(f".//{SVG}image")) == 1
    addresses = set(re.findall(r'(?:href|src)="(?!data:)([^"]*)"|url\((?!#)([^)]*)', svg))
    assert addresses == set()


def test_charts_of_one_figure_keep_their_own_clips(weights: pd.DataFrame):
    svg = export.svg([picture(weights), picture(weights)], "")
    names = re.findall(r'\bid="([^"]+)"', svg)
    assert len(names) > 1
    assert len(names) == len(set(names))
    assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= set(names)


def test_a_page_holds_all_that_it_needs_and_tokens_end_no_script(weights: pd.DataFrame):
    page = export.page([picture(weights)], "<b>text</b>")
    assert "</script>" in KEYS["token"].to_list()
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    assert "&lt;b&gt;text&lt;/b&gt;" in page
    assert "<b>" not in page[page.rindex("<script>") :] + page[: page.index("<script>")]
    assert "default-src 'none'" in page


def test_a_table_is_read_back_exactly(weights: pd.DataFrame):
    weights.iloc[2, 3] = np.nan
    text = export.table(weights, QUERIES, KEYS, "two\nlines")
    assert text.startswith("# two lines\n")
    read = pd.read_csv(io.StringIO(text), comment="#", index_col="query")
    assert list(read.index) == ["0 the", "1 #", '2 a "b", c', "3 =1+1", "4 the"]
    assert list(read.columns)[1:5] == ["1 ##s", "2 </script>", "3 ⏎", "4 the"]
    np.testing.assert_array_equal(read.to_numpy(np.float32), weights.to_numpy())


def test_positions_in_a_table_are_those_of_a_window(weights: pd.DataFrame):
    text = export.table(weights.iloc[2:, 4:], QUERIES[2:], KEYS[4:], "")
    read = pd.read_csv(io.StringIO(text), comment="#", index_col="query")
    assert (read.index[0], read.columns[0]) == ('2 a "b", c', "4 the")


def test_a_long_text_is_refused_as_a_table():
    many = frames.token_axis(["a"] * 1009)
    weights = frames.weight_matrix(torch.zeros(2, 1009))
    with pytest.raises(ValueError, match=r"^1,009 tokens .* at most 1,000 .*\.npy file\.$"):
        export.table(weights, many[:2], many, "")


def test_an_array_is_read_back_as_float32(weights: pd.DataFrame):
    values = weights.to_numpy(np.float64)
    read = np.load(io.BytesIO(export.array(values)))
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, values.astype(np.float32))


@pytest.mark.parametrize("head", [1, 3, 4])
def test_vectors_give_the_weights_and_the_output_again(captured: Capture, head: int):
    call = captured.calls[1]
    assert 1 < call.kv_heads < call.heads
    file = export.vectors(call, head, SHOWN)
    read = safetensors.torch.load(file)
    assert set(read) == {"query", "key", "value", "query_unrotated", "key_unrotated"}
    causal = torch.ones(11, 11, dtype=torch.bool).tril()
    logits = equation.logits(equation.scores(read["query"], read["key"]), call.scale, mask=causal)
    torch.testing.assert_close(equation.weights(logits), attention.weights(call, head))
    unrotated = equation.scores(read["query_unrotated"], read["key_unrotated"])
    torch.testing.assert_close(unrotated, attention.scores_unrotated(call, head))
    output = equation.weights(logits) @ read["value"]
    torch.testing.assert_close(output, attention.output(call, head))


def test_vectors_say_whose_they_are(captured: Capture, tmp_path):
    call = captured.calls[1]
    file = tmp_path / "vectors.safetensors"
    file.write_bytes(export.vectors(call, 5, SHOWN))
    with safetensors.safe_open(file, "pt") as opened:
        said = opened.metadata()
    assert said == {
        "model": "org/My model",
        "part": "cross",
        "layer": "1",
        "head": "5",
        "kv_head": str(5 // (call.heads // call.kv_heads)),
        "scale": repr(call.scale),
        "n": "11 × 11",
        "text_sha256": SHOWN.text_sha256,
    }
