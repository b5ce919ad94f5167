"""The page “One cell” as a visitor's session runs it, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import saved_models
import torch
from streamlit.testing.v1 import AppTest
from test_pages import BUNDLED, errors, field, opened, said, served, warnings_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnviz.ui.cell_sentences import STEPS

PAGE = "pages/one_cell.py"
TEXT = "The king gave the key to the king."


def page(**parameters: str) -> AppTest:
    """The page, reached from Start."""
    return opened(**parameters).switch_page(PAGE).run()


def boxes(app: AppTest) -> dict[str, str]:
    return {metric.label.replace("\\", ""): metric.value.replace("\\", "") for metric in app.metric}


def badge(app: AppTest) -> str:
    return next(m.value.replace("\\", "") for m in app.markdown if "recomputed here" in m.value)


def titles(app: AppTest) -> list[str]:
    return [s.value for s in app.subheader if re.match(r"\d ", s.value)]


@pytest.fixture(scope="module")
def eager() -> torch.Tensor:
    """The bundled model's weights (layer, head, query, key), from transformers itself."""
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, attn_implementation="eager", dtype=torch.float32
    )
    inputs = AutoTokenizer.from_pretrained(BUNDLED)(TEXT, return_tensors="pt")
    with torch.no_grad():
        return torch.cat(model(**inputs, output_attentions=True).attentions)


def test_the_weight_is_the_models_own(eager):
    app = served(page(layer="1", head="3", text=TEXT, query="7", key="4"))
    weight = float(eager[1, 3, 7, 4])
    told = re.findall(r"0\.\d{7}", badge(app))
    assert [float(number) for number in told] == pytest.approx([weight, weight], abs=2e-7)
    assert float(boxes(app)["weight"]) == pytest.approx(weight, abs=6e-4)
    assert "✓" in badge(app)


def test_it_opens_on_the_key_that_the_query_looks_at_most(eager):
    app = served(page(layer="0", head="1", text=TEXT, query="5"))
    assert app.selectbox(key="key").value == int(eager[0, 1, 5].argmax())
    assert app.query_params["key"] == str(int(eager[0, 1, 5].argmax()))


def test_a_cell_is_chosen_from_the_lists_and_kept_in_the_link(eager):
    app = served(page(layer="1", head="0", text=TEXT))
    field(app.selectbox, "Query: the token that looks").set_value(6)
    served(app.run())
    field(app.selectbox, "Key: the token looked at").set_value(2)
    served(app.run())
    assert (app.query_params["query"], app.query_params["key"]) == ("6", "2")
    assert f"{float(eager[1, 0, 6, 2]):.7f}"[:8] in badge(app)


def test_the_key_stays_when_the_head_changes():
    app = served(page(text=TEXT, query="6", key="2"))
    field(app.number_input, "Head").set_value(1)
    served(app.run())
    assert (app.query_params["query"], app.query_params["key"]) == ("6", "2")


def test_another_text_opens_on_a_cell_of_its_own():
    app = served(page(text=TEXT, query="8", key="8"))
    app.text_area[0].set_value("A wolf.")
    served(app.run())
    assert int(app.query_params["key"]) < 5


def test_steps_are_revealed_one_by_one_and_kept_in_the_link():
    app = served(page())
    assert titles(app) == ["1 Three roles"]
    for number, name in enumerate(STEPS[1:], start=2):
        field(app.button, "Next").click()
        served(app.run())
        assert titles(app) == [f"{number} {name}"]
        assert app.query_params["step"] == str(number)
    assert field(app.button, "Next").disabled
    field(app.button, "Back").click()
    assert titles(served(app.run())) == ["6 Retrieve"]


def test_all_steps_at_once():
    app = served(page())
    field(app.button, "All at once").click()
    served(app.run())
    assert [title.split(" ", 1)[1] for title in titles(app)] == list(STEPS)
    assert app.query_params["step"] == "0"


def test_a_link_restores_cell_and_step():
    app = served(page(text=TEXT, layer="1", head="2", query="7", key="3", step="5"))
    assert titles(app) == ["5 Softmax"]
    assert (app.selectbox(key="query").value, app.selectbox(key="key").value) == (7, 3)


def test_nonsense_in_a_link_is_told_kindly():
    app = served(page(text=TEXT, query="7", key="300", step="9"))
    told = " ".join(warnings_of(app))
    assert "There is no token 300 that is looked at here: they are 0 to" in told
    app = opened(step="9", key="x")
    assert "step = '9', which is not a whole number from 0 to 7" in " ".join(warnings_of(app))


def test_a_hidden_key_is_told_and_has_weight_0():
    app = served(page(text=TEXT, query="3", key="7", step="4"))
    assert boxes(app)["mask"] == "hidden"
    assert float(boxes(app)["weight"]) == 0
    assert "0.0000000" in badge(app)


def test_dimensions_are_listed_by_size_or_by_number():
    app = served(page(text=TEXT, step="3"))
    app.session_state["numbers_match"] = True
    by_size = served(app.run()).dataframe[0].value
    sizes = by_size["q·k"].abs()
    assert sizes.is_monotonic_decreasing
    assert by_size["running sum"].iloc[-1] == pytest.approx(
        float(boxes(app)["score q·k"]), abs=1e-3
    )
    field(app.toggle, "In the order of the dimensions").set_value(True)
    app.session_state["numbers_match"] = True
    assert list(served(app.run()).dataframe[0].value["dimension"]) == list(range(32))
    assert app.query_params["by_place"] == "1"


def test_numbers_for_the_blackboard_and_code_are_there_to_copy():
    app = served(page(text=TEXT))
    assert not app.code
    app.session_state["by_hand"] = True
    app.session_state["as_code"] = True
    served(app.run())
    plain, latex, code = [block.value for block in app.code]
    assert "exp" in plain
    assert latex.startswith(r"\begin{align*}")
    assert "attention.weights(" in code


def test_the_limits_of_the_claim_stand_on_the_page():
    words = said(served(page()))
    assert "Only two products of the matrices matter" in words
    assert "A weight is not an importance" in words


MODELS = (
    *("gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart", "deepseek_v3", "vit", "bloom", "xlnet"),
    *("qwen3_next", "diffllama", "deberta_v2", "gptj", "swin", "clip", "dinov2_registers"),
)


@pytest.mark.parametrize("family", MODELS)
def test_every_kind_of_model_is_worked_out_to_the_end(family: str, tmp_path: Path):
    path = saved_models.save(tmp_path / family, family, text=family not in ("vit", "swin"))
    app = served(page(model=path, step="0"))
    assert len(titles(app)) == len(STEPS)
    assert re.search(r"largest difference in this head \S+|cannot be had", badge(app))


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_cross_attention_asks_one_text_and_answers_from_the_other(family: str, tmp_path: Path):
    path = saved_models.save(tmp_path / family, family)
    app = served(
        page(model=path, part="cross", text="the cat sat on the mat", target="king gave key")
    )
    words = said(app)
    assert re.search(r"How much does “\w+”.* of the target look at “.+” .*of the source", words)
    queries = field(app.selectbox, "Query: the token that looks").options
    keys = field(app.selectbox, "Key: the token looked at").options
    assert len(queries) != len(keys)


def test_what_cannot_be_read_is_told(tmp_path: Path):
    path = saved_models.save(tmp_path / "mamba", "mamba")
    app = page(model=path)
    assert not app.exception
    assert errors(app)
    assert not titles(app)
