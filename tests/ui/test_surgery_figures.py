"""The section on the whole model as a visitor's session runs it, on a page of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import saved_models
from heads_reference import long_text
from streamlit.testing.v1 import AppTest
from surgery_page import TEXT
from test_outcome import masked_language_model
from test_pages import errors, said

from attnviz.outcome import outcome
from attnviz.surgery import Scaling
from attnviz.ui import surgery_figures
from attnviz.ui.readings import Asked, loaded, served

PAGE = Path(__file__).parent / "surgery_page.py"
WORDS = "the cat sat on the mat because it was tired"
FIGURES = {"factor": "against the factor", "next": "likeliest next", "tokens": "of each token"}


def page(**parameters: str) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=120)
    app.query_params.update(parameters)
    return app.run()


def shown(app: AppTest) -> AppTest:
    assert not app.exception
    assert not app.error
    return app


def charts(app: AppTest) -> set[str]:
    """Which of the figures are on the page."""
    told = [chart.proto.alt for chart in app.get("vega_lite_chart")]
    return {name for name, part in FIGURES.items() if any(part in words for words in told)}


def headline(app: AppTest) -> str:
    (found,) = app.subheader
    return found.value.replace("\\", "")


def saved(folder: Path, family: str) -> AppTest:
    sees = {"vit": {"text": "", "picture": "disc"}, "clip": {"picture": "disc"}}
    asked = {"model": saved_models.save(folder, family), "text": WORDS}
    return page(**(asked | sees.get(family, {})))


def test_undivided_is_shown_first_with_the_numbers_of_the_run():
    app = shown(page())
    asked = Asked("bundled", TEXT)
    model, inputs = loaded("bundled"), served(asked).inputs
    before = outcome(model, inputs).mean_loss
    after = outcome(model, inputs, [Scaling(32**0.5)]).mean_loss
    assert headline(app) == f"Undivided: {after:.2f} nats per token instead of {before:.2f}"
    assert charts(app) == {"factor", "next", "tokens"}
    words = said(app)
    assert "the model divides by √32, d_k = 32. Undivided, q·k is 5.66 times" in words
    assert "real · Bundled storyteller · all heads · n = 21 · d_k = 32" in words
    assert "never changed" in words


def test_a_factor_of_ones_own():
    app = page()
    assert app.select_slider(key="surgery_step").disabled
    app.radio(key="surgery_by").set_value(surgery_figures.FACTOR)
    shown(app.run())
    assert headline(app).endswith("as before")
    shown(app.select_slider(key="surgery_step").set_value(surgery_figures.NO_SCORES).run())
    assert headline(app).startswith("Times 0: ")
    (seen,) = [c for c in app.get("vega_lite_chart") if FIGURES["factor"] in c.proto.alt]
    assert json.loads(seen.proto.spec)["height"]


def test_a_layer_and_a_head():
    app = page(layer="1", head="2")
    whole = headline(app)
    for of, name in (("layer", "all heads of layer 1"), ("head", "layer 1, head 2")):
        shown(app.radio(key="surgery_of").set_value(of).run())
        assert f"Bundled storyteller · {name} · n = 21" in said(app)
        assert headline(app) != whole


def test_what_predicts_nothing_is_compared_by_its_vectors():
    app = shown(page(model="minilm", text="The cat sat on the mat."))
    assert "the output changes by" in headline(app)
    assert "predicts no tokens" in said(app)
    assert charts(app) == {"factor", "tokens"}
    assert "√d_k (its own): 0\u00a0%" in said(app)


def test_a_masked_language_model_says_its_masks(tmp_path: Path):
    model = masked_language_model()
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    app = shown(page(model=str(tmp_path), text="the cat sat on the mat, because it was tired."))
    assert "nats per token" in headline(app)
    assert "in 7 runs, each with about 15 % of the tokens masked, as drawn with seed 0" in said(app)
    assert "masks drawn with seed 0" in said(app)
    assert charts(app) == {"factor", "tokens"}


def test_a_model_that_does_not_divide_says_so(tmp_path: Path):
    app = shown(saved(tmp_path, "t5"))
    assert headline(app).endswith("as before")
    assert "the model does not divide, d_k = 11. So “÷ 1” changes nothing" in said(app)
    assert "tokens of the target after the first" in said(app)
    shown(app.radio(key="surgery_by").set_value("√d_k").run())
    assert "instead of" in headline(app)


def test_layers_without_attention_are_named(tmp_path: Path):
    app = shown(saved(tmp_path, "jamba"))
    assert "Layers 0, 2, 3 were not read, and stay as they are." in said(app)


@pytest.mark.parametrize("family", ["gpt_neox", "granite", "bloom", "gpt2_by_layer", "vit", "clip"])
def test_other_models(family: str, tmp_path: Path):
    app = shown(saved(tmp_path, family))
    assert headline(app)
    several = family in ("gpt2_by_layer", "clip")  # of CLIP, each tower has a d_k of its own
    assert ("geometric mean" in said(app)) == several


def test_what_has_no_attention_is_refused_in_a_sentence(tmp_path: Path):
    app = saved(tmp_path, "mamba")
    assert not app.exception
    assert [text for text in errors(app) if "no softmax attention" in text]


def test_what_cannot_be_changed_is_refused_in_a_sentence(tmp_path: Path):
    app = saved(tmp_path, "xlnet")
    app.radio(key="surgery_of").set_value("head").run()
    assert not app.exception
    assert [text for text in errors(app) if text.endswith("its heads cannot be told apart.")]


def test_one_token_alone(tmp_path: Path):
    app = shown(page(model=saved_models.save(tmp_path, "llama"), text="cat"))
    assert headline(app)


@pytest.mark.parametrize("least", [512, 2000])
def test_long_texts(least: int):
    text, n = long_text(least)
    app = shown(page(text=text))
    assert f"n = {n:,}" in said(app)
    assert "tokens in a row" in said(app)
    assert charts(app) == {"factor", "next", "tokens"}


def test_what_takes_long_waits_for_a_click(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(surgery_figures.surgery, "seconds", lambda *_: 10.0)
    app = shown(page())
    assert not app.subheader
    (button,) = app.button
    assert button.label == "Run the model with this change (about 20 seconds)"
    shown(button.click().run())
    assert charts(app) == {"next", "tokens"}
    (button,) = app.button
    assert button.label == "Work out the curve over all factors (about 2 minutes)"
    shown(button.click().run())
    assert charts(app) == {"factor", "next", "tokens"}
    assert not app.button
    shown(app.radio(key="surgery_of").set_value("layer").run())
    assert [button.label for button in app.button] == [button.label]


def test_what_takes_too_long_is_not_offered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(surgery_figures.surgery, "seconds", lambda *_: 60.0)
    app = shown(page())
    app.button[0].click().run()
    assert "This would take about 13 minutes on this machine" in said(app)
    assert not app.button


def test_pictures_to_take_home(monkeypatch: pytest.MonkeyPatch):
    """The files that are offered, made as a click makes them."""
    items = []
    monkeypatch.setattr(
        surgery_figures.downloads, "downloads", lambda given, key: items.extend(given)
    )
    shown(page())
    svg = next(item for item in items if item.label == "SVG")
    assert svg.file_name.startswith("attnviz_Bundled-storyteller_all-heads_scores-undivided_")
    words = svg.make()
    for part in ("÷ √d_k: its own", "probability of the next token", "loss, nats"):
        assert part in words
    assert "all heads · n = 21 · d_k = 32 · scores undivided" in words
