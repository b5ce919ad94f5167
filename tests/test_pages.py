"""The pages as a visitor's session runs them, without a browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import tiny
import torch
from streamlit.testing.v1 import AppTest
from transformers import AutoModelForCausalLM, AutoTokenizer

APP = Path(__file__).parent.parent / "app.py"
BUNDLED = APP.parent / "attnviz" / "bundled"


def opened(**parameters: str) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params.update(parameters)
    return app.run()


def said(app: AppTest) -> str:
    """All words on the page, without the signs that keep Markdown from reading them."""
    parts = [*app.title, *app.subheader, *app.markdown, *app.caption]
    return "\n".join(part.value for part in parts).replace("\\", "")


def errors(app: AppTest) -> list[str]:
    return [error.value.replace("\\", "") for error in app.error]


def served(app: AppTest) -> AppTest:
    assert not app.exception
    assert not app.error
    return app


def test_start_shows_the_weight_that_the_model_computed():
    app = served(opened(layer="1", head="1", text="The king gave the key to the king."))
    model = AutoModelForCausalLM.from_pretrained(BUNDLED, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    inputs = tokenizer("The king gave the key to the king.", return_tensors="pt")
    with torch.no_grad():
        weights = model.float()(**inputs, output_attentions=True).attentions[1][0, 1]
    query = app.selectbox(key="query").value
    assert f": {float(weights[query].max()):.2f} of its attention" in said(app)
    assert f"n = {weights.shape[0]}" in said(app)


def test_captions_say_real_and_synthetic():
    words = said(served(opened()))
    assert "real · Bundled" in words
    assert "synthetic · independent Gaussian entries" in words
    assert "equals the model to" in words
    assert "recording changes its output by 0" in words


def test_playground_starts_at_the_heads_d_k():
    app = served(opened())
    d_k = 32
    assert app.select_slider(key="d_k").value == d_k
    assert f"d_k = {d_k}" in said(app)


def test_change_of_d_k_changes_the_prediction_and_the_link():
    app = served(opened())
    served(app.select_slider(key="d_k").set_value(256).run())
    assert "predicted 256" in said(app)
    assert app.query_params["d_k"] == "256"


def test_change_of_head_changes_the_caption_and_the_link():
    app = served(opened())
    served(app.number_input(key="head").set_value(3).run())
    assert "head 3" in said(app)
    assert app.query_params["head"] == "3"


def test_new_draw_changes_the_seed():
    app = served(opened())
    before = app.number_input(key="seed").value
    next(b for b in app.button if b.label == "New draw").click()
    served(app.run())
    assert app.number_input(key="seed").value == before + 1
    assert f"seed {before + 1}" in said(app)


def test_example_fills_in_its_text():
    app = served(opened())
    app.selectbox(key="example").set_value("A list that repeats")
    served(app.run())
    assert app.text_area(key="text").value.startswith("seven wolf door")
    assert "“door”" in said(app)
    assert "What to look for" in said(app)


def test_a_link_restores_the_view():
    app = served(opened(text="Once upon a time", layer="1", head="2", d_k="64", n="4", seed="11"))
    assert app.text_area(key="text").value == "Once upon a time"
    assert app.number_input(key="layer").value == 1
    assert app.number_input(key="head").value == 2
    assert app.select_slider(key="d_k").value == 64
    assert "seed 11" in said(app)


@pytest.mark.parametrize(
    "parameters",
    [
        {"layer": "99"},
        {"head": "77"},
        {"layer": "abc", "head": "<b>", "seed": "-4"},
        {"query": "5000"},
        {"d_k": "1025"},
    ],
)
def test_nonsense_in_a_link_ends_in_a_view(parameters: dict[str, str]):
    app = served(opened(**parameters))
    assert "real · Bundled" in said(app)
    if set(parameters) != {"query"}:
        assert app.warning


def test_unknown_model_gets_a_sentence_and_the_playground_goes_on():
    app = opened(model="no-such-owner/no-such-model", text="My own words")
    assert not app.exception
    (problem,) = errors(app)
    assert problem.endswith(".")
    assert "no-such-model" in problem
    assert "synthetic · independent Gaussian entries" in said(app)
    assert app.text_area(key="text").value == "My own words"


@pytest.mark.parametrize("text", ["", "   \n ", "word " * 40_000])
def test_text_that_cannot_be_read_gets_a_sentence_at_once(text: str):
    app = served(opened())
    started = time.monotonic()
    app.text_area(key="text").set_value(text).run()
    assert time.monotonic() - started < 1.5
    assert not app.exception
    (problem,) = errors(app)
    assert problem.endswith(".")
    served(app.text_area(key="text").set_value("The cat sat.").run())


@pytest.mark.parametrize(
    "text",
    [
        "Seán\n  done",
        "Γεια 这是一句中文 👩‍👩‍👧",
        "$x$ :smile: **b** <script>alert(1)</script>",
        "a",
    ],
)
def test_any_text_is_served(text: str):
    served(opened(text=text))


def test_second_visitor_sees_nothing_of_the_first():
    first, second = served(opened()), served(opened())
    served(first.text_area(key="text").set_value("Only mine").run())
    served(second.run())
    assert second.text_area(key="text").value != "Only mine"


@pytest.mark.parametrize("name", ["query", "d_k"])
def test_a_stale_label_in_a_widget_is_not_taken_for_a_number(name: str):
    """While options change, a browser may send the words of an option that is gone."""
    app = served(opened())
    app.session_state[name] = "9 ␣it"
    served(app.run())
    assert "real · Bundled" in said(app)


def test_text_typed_and_slider_moved_at_once_are_both_kept():
    app = served(opened())
    app.text_area(key="text").set_value("Hello there, dear king.")
    app.select_slider(key="d_k").set_value(128)
    served(app.run())
    assert app.query_params["text"] == "Hello there, dear king."
    assert app.query_params["d_k"] == "128"


def test_playground_follows_the_head_again_after_a_text_that_cannot_be_read():
    app = served(opened(model="bundled"))
    app.text_area(key="text").set_value("").run()
    assert app.select_slider(key="d_k").value == 32
    served(app.text_area(key="text").set_value("A king.").run())
    assert "d_k" not in app.query_params


def test_a_tokenizer_that_does_not_know_words_is_told(tmp_path):
    tiny.save(tmp_path / "unknown", tiny.llama(), tiny.word_level())
    app = served(opened(model=str(tmp_path / "unknown"), text="Strange words indeed"))
    assert any("cannot be told apart" in w.value.replace("\\", "") for w in app.warning)
