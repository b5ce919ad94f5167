"""The page “What was read” as a visitor's session runs it, without a browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import saved_models
from streamlit.testing.v1 import AppTest
from test_pages import errors, opened, said, served

PAGE = "pages/what_was_read.py"


def card(**parameters: str) -> AppTest:
    """The page, reached from Start."""
    return opened(**parameters).switch_page(PAGE).run()


def saved(folder: Path, family: str) -> str:
    """The path of a tiny model of a family."""
    return saved_models.save(folder / family, family)


def facts(app: AppTest) -> dict[str, str]:
    """The table of the group that is described."""
    table = next(m.value for m in app.markdown if "in these layers" in m.value)
    lines = [line.replace("\\", "").split(" | ") for line in table.splitlines()[2:]]
    return {name.strip("| "): value.strip("| ") for name, value in lines}


def figures(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def test_the_bundled_model_has_its_sizes_and_its_heads():
    app = served(card())
    words = said(app)
    assert "What was read" in words
    assert "A decoder of the family llama" in words
    assert figures(app) | {"d_model": "128", "layers read": "2 of 2"} == figures(app)
    told = facts(app)
    assert told["heads"] == "4, each with keys and values of its own"
    assert told["d_k, d_v"] == "32, 32"
    assert told["scale"].startswith("1/√32")
    assert told["position"].startswith("rotary")
    assert "real · Bundled storyteller · decoder, layers 0 and 1 · n = 13" in words
    assert "recording changes its output by 0" in words


def test_model_and_text_stay_from_page_to_page():
    start = served(opened(model="bundled", layer="1", head="3"))
    start.text_area[0].set_value("The king had a key.")
    app = served(served(start.run()).switch_page(PAGE).run())
    assert app.text_area[0].value == "The king had a key."
    assert app.query_params["text"] == "The king had a key."
    assert app.query_params["head"] == "3"
    app.text_area[0].set_value("A wolf came to the door.")
    back = served(served(app.run()).switch_page("pages/start.py").run())
    assert back.text_area[0].value == "A wolf came to the door."
    assert "layer 1, head 3" in said(back)


def test_the_model_of_this_page_is_the_model_of_the_next(tmp_path: Path):
    folder = saved(tmp_path, "gemma3")
    app = served(card(model=folder))
    assert "real · gemma3" in said(app)
    back = served(app.switch_page("pages/start.py").run())
    assert back.selectbox(key="model").value == folder
    assert "real · gemma3" in said(back)


def test_local_and_global_layers_stand_in_groups(tmp_path: Path):
    app = served(card(model=saved(tmp_path, "gemma3")))
    assert facts(app)["each token sees"] == "a window of 5: itself and 4 before it"
    assert "query_pre_attn_scalar" in said(app)
    app.selectbox(key="layer_group").set_value(1)
    served(app.run())
    assert facts(app)["each token sees"] == "itself and all before it"
    assert "decoder, layer 1 · n =" in said(app)


def test_a_group_that_another_model_has_not_gives_way(tmp_path: Path):
    app = served(card(model=saved(tmp_path, "gemma3")))
    app.selectbox(key="layer_group").set_value(1)
    app.selectbox(key="model").set_value("bundled")
    served(app.run())
    assert "layers 0 and 1" in said(app)


def test_an_encoder_decoder_has_three_strips_and_does_not_divide(tmp_path: Path):
    app = served(card(model=saved(tmp_path, "t5")))
    words = said(app)
    assert figures(app)["layers read"] == "7 of 7"
    assert "does not divide by √11" in words
    for part in ("encoder, layers 0 to 2", "decoder, layers 0 and 1", "decoder, cross-attention"):
        assert part in words


def test_layers_without_attention_have_their_reason(tmp_path: Path):
    app = served(card(model=saved(tmp_path, "qwen3_next")))
    assert figures(app)["layers read"] == "2 of 5"
    assert "layers 0, 2 and 3 (linear attention)" in said(app)
    assert any("no softmax attention" in caption.value for caption in app.caption)


def test_of_a_model_that_cannot_be_read_the_rest_is_told(tmp_path: Path):
    app = card(model=saved(tmp_path, "mamba"))
    assert not app.exception
    (problem,) = errors(app)
    assert "no softmax attention" in problem
    assert figures(app)["layers read"] == "0 of 3"
    assert "equals the model to" not in figures(app)
    assert "verified" not in said(app)


@pytest.mark.parametrize(
    "parameters", [{"model": "no-such-owner/no-such-model"}, {"text": " "}, {"layer": "abc"}]
)
def test_what_cannot_be_served_gets_a_sentence(parameters: dict[str, str]):
    app = card(**parameters)
    assert not app.exception
    for problem in errors(app):
        assert problem.endswith(".")
    assert len(app.error) == (0 if "layer" in parameters else 1)
    assert bool(app.metric) == ("layer" in parameters)


def test_every_layer_is_in_the_folded_table(tmp_path: Path):
    app = served(card(model=saved(tmp_path, "qwen3_next")))
    app.session_state["numbers_layers"] = True
    served(app.run())
    (table,) = app.dataframe
    assert table.value["layer"].tolist() == [0, 1, 2, 3, 4]
    assert table.value["heads"].notna().tolist() == [False, True, False, False, True]
    columns = json.loads(table.proto.columns)
    assert [name for name, column in columns.items() if column.get("pinned")] == ["tower", "layer"]
    assert columns["verified to"]["type_config"]["format"] == "%.3g"
    first = [columns[name]["width"] for name in ("tower", "layer", "sees")]
    assert sum(first) < 316  # what a telephone of 390 px has room for


def test_of_a_model_of_sound_both_towers_are_told(tmp_path: Path):
    app = card(model=saved(tmp_path, "whisper"))
    words = said(app)
    assert "An encoder of sound and a decoder of the family whisper" in words
    assert "None of its 5 layers was read here." in words
    assert figures(app)["layers read"] == "0 of 5"


def test_a_model_of_tiles_tells_of_them(tmp_path: Path):
    path = saved_models.save(tmp_path / "swin", "swin", text=False)
    assert facts(served(card(model=path)))["each token sees"] == "the 9 patches of its own tile"


def test_each_part_of_clip_has_its_width(tmp_path: Path):
    told = figures(served(card(model=saved(tmp_path, "clip"))))
    assert told["d_model"] == "42 vision, 55 text"


def test_the_bundled_model_is_stored_in_half_precision():
    shown = served(card())
    assert figures(shown)["run in"] == "float32"
    assert any("stored in float16" in part.value for part in shown.markdown)
