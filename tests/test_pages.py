"""The pages as a visitor's session runs them, without a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import saved_models
import streamlit as st
import tiny
import tiny_models
import torch
from streamlit.testing.v1 import AppTest
from transformers import AutoModelForCausalLM, AutoTokenizer, ViTConfig, ViTModel
from transformers.modeling_utils import AttentionInterface

from attnviz import interface

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


def text_field(app: AppTest):
    """The text's field; its key changes each time the text is set from elsewhere."""
    return next(field for field in app.text_area if field.label == "Text")


def field(fields, label: str):
    """The field with this label, of those of one kind."""
    return next(found for found in fields if found.label == label)


def errors(app: AppTest) -> list[str]:
    return [error.value.replace("\\", "") for error in app.error]


def warnings_of(app: AppTest) -> list[str]:
    return [warning.value.replace("\\", "") for warning in app.warning]


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


def test_start_leads_to_one_cell_of_the_head_on_screen():
    app = served(opened(layer="1", head="3"))
    link = app.get("page_link")[0].proto
    assert "one cell" in link.label
    assert link.page == "one_cell"
    query = app.selectbox(key="query").value
    there = served(app.switch_page("pages/one_cell.py").run())
    assert "layer 1, head 3" in said(there)
    assert there.selectbox(key="query").value == query


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
    field(app.selectbox, "Example").set_value("A list that repeats")
    served(app.run())
    assert text_field(app).value.startswith("seven wolf door")
    assert "“door”" in said(app)
    assert "What to look for" in said(app)


def test_a_link_restores_the_view():
    app = served(opened(text="Once upon a time", layer="1", head="2", d_k="64", n="4", seed="11"))
    assert app.text_area(key="text").value == "Once upon a time"
    assert app.selectbox(key="layer").value == 1
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
        {"query": "99999"},
        {"model": ""},
        {"hide_first": "maybe"},
        {"d_k": "1025"},
    ],
)
def test_nonsense_in_a_link_ends_in_a_view(parameters: dict[str, str]):
    app = served(opened(**parameters))
    assert "real · Bundled" in said(app)
    (told,) = warnings_of(app)[:1]
    assert told.endswith(".")


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"layer": "99", "head": "3"}, "There is no layer 99 in this model: it shows layers 0, 1."),
        ({"layer": "1", "head": "77"}, "There is no head 77 in layer 1: it has heads 0 to 3."),
        (
            {"layer": "99", "head": "77"},
            "There is no layer 99, head 77 in this model: it shows layers 0, 1, and heads 0 to 3.",
        ),
    ],
)
def test_only_what_is_not_there_is_said_not_to_be(link: dict[str, str], told: str):
    (warning,) = warnings_of(served(opened(**link)))
    assert warning == f"{told} Here is layer 0, head 2."


def test_a_query_that_is_not_there_is_told_once():
    app = served(opened(query="99999", text="The king."))
    (told,) = warnings_of(app)
    shown = app.selectbox(key="query")
    count = len(shown.options)
    assert told.startswith(f"There is no token 99,999 that looks here: they are 0 to {count - 1}.")
    assert f"Here is token {shown.value}, “" in told
    assert not served(app.run()).warning
    assert not served(opened(query="2", text="The king.")).warning


def test_a_target_too_long_is_called_by_its_name(tmp_path):
    app = opened_model(tmp_path, "bart", target="king " * 3000)
    (problem,) = errors(app)
    assert problem.startswith("This target text has 3,001 tokens")
    assert "A target text of more than 2,000 characters is not kept in the link." in said(app)


def test_a_new_model_looks_everywhere_alike(tmp_path):
    fresh = tiny_models.build("gpt2")
    for layer in fresh.transformer.h:
        torch.nn.init.zeros_(layer.attn.c_attn.weight)
        torch.nn.init.zeros_(layer.attn.c_attn.bias)
    words = said(served(opened(model=saved_models.save(tmp_path / "new", fresh), text="the cat")))
    assert "looks everywhere alike: no token has more than 0.50 of its attention" in words
    assert "the entropy of its rows is 1.000 of what uniform weights have" in words
    assert "looks most" not in words
    assert "sink" not in words


def test_windows_of_a_picture_have_numbered_tokens(tmp_path):
    path = saved_models.save(tmp_path / "swin", "swin", text=False)
    words = said(served(opened(model=path)))
    assert "12 × 12 patches. Its tokens are those of the first window, numbered." in words
    assert "is the one in row" not in words


def test_the_encoder_is_named_where_only_the_decoder_was_read(tmp_path):
    words = said(served(opened_model(tmp_path, "led", target="the king")))
    assert "Encoder layers 0 to 2 have nothing to show. Their attention" in words


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


# --- models of every kind


TEXT = "the cat sat on the mat because it was tired"


def opened_model(folder: Path, family: str, **parameters: str) -> AppTest:
    path = saved_models.save(folder / family, family)
    return opened(**({"model": path, "text": TEXT} | parameters))


def row(app: AppTest, name: str):
    """A table under the figures, opened."""
    app.session_state[f"numbers_{name}"] = True
    served(app.run())
    return app.dataframe[0].value


def test_a_translation_has_three_parts(tmp_path):
    app = served(opened_model(tmp_path, "bart", target="the king was tired"))
    part = app.radio(key="part")
    assert part.value == "encoder"
    assert len(part.options) == 3
    assert "n = 11 ·" in said(app)
    part.set_value("cross")
    served(app.run())
    assert "n = 5 × 11 ·" in said(app)
    assert "(cross)" in said(app)
    assert app.query_params["part"] == "cross"
    spec = json.dumps([json.loads(c.proto.spec) for c in app.get("vega_lite_chart")])
    assert "query: the token that looks (target)" in spec
    assert "key: the token looked at (source)" in spec


def test_cross_attention_on_screen_is_the_models_own(tmp_path):
    link = {"part": "cross", "layer": "1", "head": "0", "query": "2", "target": "a king was tired"}
    app = served(opened_model(tmp_path, "bart", **link))
    model = tiny_models.build("bart", "eager")
    tokenizer = saved_models.small_vocabulary()
    given = tokenizer(TEXT, return_tensors="pt")
    labels = tokenizer("a king was tired", return_tensors="pt").input_ids
    with torch.no_grad():
        own = model(
            input_ids=given.input_ids,
            attention_mask=given.attention_mask,
            labels=labels,
            output_attentions=True,
        ).cross_attentions[1][0, 0, 2]
    words = [*TEXT.split(), "</s>"]
    key = int(own.argmax())
    place = f" (position {key})" if words.count(words[key]) > 1 else ""
    told = f"“king” looks most at “{words[key]}”{place}: {float(own.max()):.2f}"
    assert told in said(app)


def test_without_a_target_the_models_own_output_is_shown(tmp_path):
    app = served(opened_model(tmp_path, "t5", part="cross"))
    assert "The model's own output" in said(app)
    app.text_input(key="target").set_value("the king")
    served(app.run())
    assert "n = 3 × 11 ·" in said(app)
    assert app.query_params["target"] == "the king"


def test_t5_shows_its_bias_and_does_not_divide(tmp_path):
    app = served(opened_model(tmp_path, "t5"))
    assert "t5 does not divide by √11" in said(app)
    table = row(app, "row")
    assert {"score", "scale", "bias", "logit", "weight"} <= set(table.columns)


def test_a_rotary_model_shows_the_product_before_and_after(tmp_path):
    app = served(opened_model(tmp_path, "llama"))
    assert "before rotation" in said(app)
    table = row(app, "row")
    assert not np.allclose(table["score before rotation"], table["score"])


def test_a_hybrid_offers_its_attention_layers_by_true_number(tmp_path):
    app = served(opened_model(tmp_path, "jamba"))
    assert app.selectbox(key="layer").options == ["1", "4"]
    assert app.selectbox(key="layer").value == 1
    assert "Layers 0, 2, 3 have nothing to show. Each carries a recurrent state" in said(app)
    app.selectbox(key="layer").set_value(4)
    served(app.run())
    assert "jamba · layer 4, head 0" in said(app)
    assert app.query_params["layer"] == "4"


def test_an_unread_layer_in_a_link_gets_its_reason(tmp_path):
    app = served(opened_model(tmp_path, "jamba", layer="2"))
    (told,) = [w.value.replace("\\", "") for w in app.warning]
    assert told.startswith("Layer 2 has nothing to show. It carries a recurrent state")
    assert told.endswith("Here is layer 1, head 0.")


def test_layer_and_head_of_another_part_raise_no_alarm(tmp_path):
    app = served(opened_model(tmp_path, "bart", layer="2", target="the king"))
    app.radio(key="part").set_value("decoder")
    served(app.run())  # its decoder has two layers
    assert not app.warning
    assert "layer 0, head 0 (decoder)" in said(app)


def test_a_part_that_a_model_has_not_is_told(tmp_path):
    app = served(opened_model(tmp_path, "gpt2", part="cross"))
    assert any("Nothing was read in a part “cross”" in w.value for w in app.warning)
    assert not app.radio


@pytest.mark.parametrize("family", ["vit", "dinov2_registers"])
def test_a_vision_model_needs_no_text(tmp_path, family: str):
    path = saved_models.save(tmp_path / family, family, text=False)
    app = served(opened(model=path))
    assert "reads no text" in said(app)
    assert "“[CLS]” looks most at “r" in said(app)
    assert "by its configuration alone" in said(app)
    assert "4 × 4 patches, of which r3c3 is the one in row 3, column 3," in said(app)
    assert "no place in it: [CLS]" in said(app)
    assert ("[REG2]" in said(app)) == (family == "dinov2_registers")
    before = said(app)
    app.selectbox(key="picture").set_value("shapes")
    served(app.run())
    assert app.query_params["picture"] == "shapes"
    assert said(app) != before


@pytest.mark.parametrize(("patch", "served_at_all"), [(8, True), (4, False)])
def test_a_matrix_too_large_to_draw(tmp_path, patch: int, served_at_all: bool):
    """28 × 28 patches are shown by the row of one query; 56 × 56 are too many."""
    sizes = {"hidden_size": 55, "intermediate_size": 31, "num_hidden_layers": 1}
    config = ViTConfig(num_attention_heads=5, image_size=224, patch_size=patch, **sizes)
    model = tiny_models.spread(ViTModel(config))
    app = opened(model=saved_models.save(tmp_path / "vit", model, text=False), query="300")
    assert not app.exception
    if served_at_all:
        assert "The matrix of 785 tokens is too large to draw here" in said(app)
        assert "Where “r10c19” looks in the picture" in said(app)
    else:
        assert errors(app)[0].startswith("This model cuts its picture into 56 × 56 patches")


def test_a_models_own_image_processor_is_used(tmp_path):
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 28, "width": 28}}
    path = saved_models.save(tmp_path / "vit", "vit", text=False, processor=settings)
    assert "by the model's own image processor" in said(served(opened(model=path)))


def test_clip_shows_both_towers(tmp_path):
    app = served(opened_model(tmp_path, "clip", part="vision"))
    assert "n = 17 ·" in said(app)
    assert "looks in the picture" in said(app)
    app.radio(key="part").set_value("text")
    served(app.run())
    assert "n = 11 ·" in said(app)
    assert "looks in the picture" not in said(app)


def test_sound_is_told_in_a_sentence(tmp_path):
    app = opened_model(tmp_path, "whisper")
    assert not app.exception
    assert errors(app)[0].startswith("This model takes sound.")


@pytest.mark.parametrize("family", ["mamba", "longformer"])
def test_no_softmax_over_all_keys_is_told_in_a_sentence(tmp_path, family: str):
    app = opened_model(tmp_path, family)
    assert not app.exception
    (problem,) = errors(app)
    assert problem.endswith(".")
    assert "cannot be shown" in problem
    assert "synthetic · independent Gaussian entries" in said(app)


# --- the first token


def test_a_sink_is_explained_and_can_be_hidden():
    app = served(opened(layer="1", head="1"))
    assert "An attention sink: “<|bos|>”" in said(app)
    assert "“it” looks most at “<|bos|>”" in said(app)
    before = row(app, "row")
    app.toggle(key="hide_first").set_value(True)
    served(app.run())
    assert app.query_params["hide_first"] == "1"
    assert "of what is left of its attention" in said(app)
    assert "first token hidden, rows renormalised" in said(app)
    assert "not the model's own" in said(app)
    rest = before[before["key"] != 0]
    after = app.dataframe[0].value
    assert after["key"].tolist() == rest["key"].tolist()
    np.testing.assert_allclose(after["weight"], rest["weight"] / rest["weight"].sum(), rtol=1e-4)


def test_no_sink_is_spoken_of_where_there_is_none():
    app = served(opened(layer="0", head="2"))
    assert "sink" not in said(app)
    assert not app.toggle


def test_the_query_that_is_hidden_gives_way_to_another():
    app = served(opened(layer="1", head="1", query="0", hide_first="1"))
    assert app.selectbox(key="query").value > 0


# --- what a browser still sends


def test_an_example_is_not_undone_by_what_the_browser_still_shows():
    """An action right after the choice of an example brings the fields as they were before it."""
    app = served(opened(text="My own words", head="3", layer="1"))
    field(app.selectbox, "Example").set_value("A list that repeats")
    served(app.run())
    stale = {"text": "My own words", "layer": 1, "head": 3, "query": 2}
    for name, value in stale.items():
        app.session_state[name] = value
    field(app.button, "New draw").click()
    served(app.run())
    assert text_field(app).value.startswith("seven wolf door")
    assert app.query_params["text"].startswith("seven wolf door")
    assert "layer 1, head 0" in said(app)
    assert "“door” (position 11) looks most at “gold” (position 4)" in said(app)


def hiding(self, attn_implementation: str, default):
    """As though another version of transformers went another way."""
    return self.get(attn_implementation, default)


def test_trouble_with_transformers_is_told_on_every_page(monkeypatch: pytest.MonkeyPatch):
    hiding.observable = True
    monkeypatch.setattr(AttentionInterface, "get_interface", hiding)
    st.cache_resource.clear()
    try:
        app = served(opened())
        for page in (app, served(app.switch_page("pages/what_was_read.py").run())):
            assert [w.value.replace("\\", "") for w in page.warning if "own operations" in w.value]
    finally:
        st.cache_resource.clear()
        interface._usable.set()
