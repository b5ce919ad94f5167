"""The page “Why √d_k” as a visitor's session runs it, without a browser."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import saved_models
from streamlit.testing.v1 import AppTest
from test_pages import APP, errors, field, said, served, warnings_of

from attnviz import equation, synthetic
from attnviz.moments import Vectors
from attnviz.ui.lab_sentences import HIDDEN, SECTIONS


def page(**parameters: str) -> AppTest:
    """The page, as a link opens it."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params.update(parameters)
    return app.switch_page("pages/why_sqrt_d_k.py").run()


def titles(app: AppTest) -> list[str]:
    return [header.value for header in app.header]


def press(app: AppTest, label: str) -> AppTest:
    field(app.button, label).click()
    return served(app.run())


def drawings(app: AppTest) -> list[str]:
    """The charts, as they are sent to a browser."""
    return [element.proto.spec for element in app.get("vega_lite_chart")]


def divide_by(app: AppTest, name: str) -> AppTest:
    app.segmented_control(key="divisor").set_value(name)
    return served(app.run())


def variance_of(app: AppTest) -> float:
    found = re.search(r"q·k has variance ([\d.]+) ±", said(app))
    assert found
    return float(found[1])


# --- the chain


def test_the_chain_has_five_stages_on_two_sides():
    app = served(page())
    assert titles(app) == ["1 The chain"]
    assert len(drawings(app)) == 10
    assert len(app.subheader) == 5
    words = said(app)
    assert "synthetic · Gaussian entries, mean 0, variance 1, independent · 2,000 queries" in words
    assert "real · Bundled storyteller · layer 0, head 2 · n = 13 · d_k = 32" in words
    assert "shown ÷ √32 = 5.657" in words


def test_numbers_are_those_of_the_draw():
    app = served(page(d_k="64", n="16", seed="41"))
    scores = synthetic.draw(Vectors(), 64, 16, 2000, seed=41).scores.numpy()
    assert variance_of(app) == pytest.approx(scores.var(), abs=0.005)
    logits = scores[0] / 8
    weights = np.exp(logits - logits.max())
    largest = (weights / weights.sum()).max()
    assert f"The largest of 16 weights is {largest:.2f}" in said(app)


def test_one_draw_is_kept_while_the_divisor_changes():
    app = served(page(d_k="64"))
    before = variance_of(app)
    largest = []
    for name in ("1", "√d_k", "d_k", "d_k²"):
        divide_by(app, name)
        assert variance_of(app) == before
        found = re.search(r"The largest of 12 weights is ([\d.]+)", said(app))
        assert found
        largest.append(float(found[1]))
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > 5 * largest[-1]
    press(app, "New draw")
    assert variance_of(app) != before


def test_any_power_of_d_k_divides():
    app = served(page(d_k="16"))
    app.select_slider(key="power").set_value(75)
    served(app.run())
    assert "÷ 16^0.75 = 8: variance" in said(app)
    assert app.segmented_control(key="divisor").value is None
    assert app.query_params["power"] == "75"
    assert any("d_k^0.75" in drawing for drawing in drawings(app))
    divide_by(app, "d_k")
    assert "÷ 16: variance" in said(app)


def test_the_real_head_is_shown_under_every_divisor():
    app = served(page(model="minilm"))
    assert "This is the model's own divisor, √32 = 5.657" in said(app)
    divide_by(app, "1")
    assert "Here its scores are multiplied by 5.66 first" in said(app)
    assert "The model's own divisor is √32 = 5.657" in said(app)


def test_why_the_variance_of_a_head_is_not_d_k():
    app = served(page(model="minilm"))
    app.session_state["fold_why_not_d_k"] = True
    words = said(served(app.run()))
    for told in (
        "Lengths: q is",
        "Learned norms: ",
        "Means: the mean query",
        "Pooled or within a row",
        "Dependence:",
    ):
        assert told in words
    assert len(drawings(app)) == 11


def test_vectors_move_the_closed_forms():
    app = served(page(d_k="16", query_std="200", key_std="50", key_mean="100"))
    assert "σ_q 2, σ_k 0.5, μ_q 0, μ_k 1, ρ 0" in said(app)
    assert "predicted 80" in said(app)  # 16 (4 · ¼ + 4 · 1)
    assert "predicted 16" in said(app)  # within a row: 16 · ¼ · 4


def test_vectors_are_set_by_their_fields():
    app = served(page(d_k="16"))
    app.session_state["fold_vectors"] = True
    served(app.run())
    field(app.slider, "σ_q: standard deviation of q").set_value(3.0)
    field(app.selectbox, "Entries").set_value("Rademacher")
    served(app.run())
    assert "Rademacher entries, σ_q 3" in said(app)
    assert "predicted 144" in said(app)
    press(app, "As in the paper: mean 0, variance 1, independent")
    assert "predicted 16" in said(app)
    assert field(app.slider, "σ_q: standard deviation of q").value == 1.0


# --- predict, then reveal


def test_the_answer_waits_until_it_is_revealed():
    app = served(page(ask="1", d_k="128"))
    assert HIDDEN in said(app)
    assert "q and k have d_k = 128 entries" in said(app)
    assert not drawings(app)
    press(app, "Reveal")
    assert len(drawings(app)) == 10
    assert HIDDEN not in said(app)
    divide_by(app, "d_k")
    assert not drawings(app)
    assert "of q·k ÷ 128?" in said(app)


def test_a_link_may_come_with_its_answer():
    app = served(page(ask="1", revealed="1"))
    assert len(drawings(app)) == 10


def test_asking_anew_hides_the_answer():
    app = served(page(ask="1", revealed="1"))
    app.toggle(key="ask").set_value(False)
    served(app.run())
    assert len(drawings(app)) == 10
    app.toggle(key="ask").set_value(True)
    served(app.run())
    assert not drawings(app)


# --- sections


@pytest.mark.parametrize("number", range(1, len(SECTIONS) + 1))
def test_every_section_opens_by_its_link(number: int):
    app = served(page(section=str(number)))
    assert titles(app) == [f"{number} {SECTIONS[number - 1]}"]
    assert drawings(app) or app.dataframe or app.markdown


def test_sections_follow_each_other():
    app = served(page())
    for number in range(2, 5):
        press(app, "Next")
        assert titles(app) == [f"{number} {SECTIONS[number - 1]}"]


def test_variance_has_the_layers_of_the_model():
    app = served(page(section="2", model="minilm"))
    assert "dots for all layers of MiniLM" in said(app)
    charts = app.get("vega_lite_chart")
    frames = [pa.ipc.open_stream(data.data.data).read_pandas() for data in charts[0].proto.datasets]
    (layers,) = [frame for frame in frames if "layer" in frame]
    assert set(layers["layer"]) == set(range(6))


def test_the_freezing_line_is_told():
    assert "for n = 64 keys 8.32" in said(served(page(section="3", n="64")))


def test_the_gradient_is_told_with_mean_and_median():
    words = said(served(page(section="4", d_k="64", n="64")))
    found = re.search(r"typical \(median\) query gets ([\d.]+), the mean is ([\d.]+)", words)
    assert found
    assert float(found[1]) == pytest.approx(0.814, rel=0.1)
    assert float(found[2]) == pytest.approx(1.409, rel=0.1)
    assert "√(2/π) M_n = 1.87 for 64 keys" in words


def test_the_code_is_the_very_function():
    app = served(page())
    app.session_state["fold_code_chain"] = True
    served(app.run())
    assert inspect.getsource(equation.weights) in [code.value + "\n" for code in app.code] + [
        code.value for code in app.code
    ]


CODE = {1: "chain", 2: "variance", 3: "maps", 4: "gradient", 5: "surgery", 6: "training"}


@pytest.mark.parametrize(("number", "name"), [*CODE.items(), (7, "scales")])
def test_every_section_shows_its_code(number: int, name: str):
    app = served(page(section=str(number)))
    app.session_state[f"fold_code_{name}"] = True
    shown = served(app.run()).code
    assert shown
    for code in shown:
        assert re.match(r"(@.*\n)*(def|class) ", code.value)


# --- what cannot be shown


def test_a_model_that_cannot_be_read_leaves_the_synthetic_side(tmp_path: Path):
    app = page(model=str(tmp_path / "nowhere"))
    assert not app.exception
    assert len(errors(app)) == 1
    assert len(drawings(app)) == 5


@pytest.mark.parametrize("family", ["t5", "gemma2", "vit", "jamba"])
@pytest.mark.parametrize("section", [1, 2, 3, 4])
def test_other_families(tmp_path: Path, family: str, section: int):
    model = saved_models.save(tmp_path / family, family)
    app = served(page(model=model, section=str(section)))
    assert drawings(app)


def test_nonsense_in_the_link_ends_in_sentences():
    app = served(page(section="9", power="-1", entries="Cauchy", correlation="101", d_k="0"))
    told = " ".join(warnings_of(app))
    for name in ("section", "power", "entries", "correlation", "d_k"):
        assert f"{name} = " in told
    assert titles(app) == ["1 The chain"]


def test_extremes_of_what_can_be_set_are_drawn():
    for extreme in (
        {"d_k": "1", "n": "2"},
        {"d_k": "1024", "n": "512"},
        {"query_std": "0"},
        {"key_std": "0", "key_mean": "0"},
        {"correlation": "100", "entries": "Rademacher"},
        {"correlation": "-100", "query_mean": "-200", "key_mean": "200", "d_k": "1024"},
        {"entries": "Laplace", "d_k": "1024", "n": "512"},
    ):
        for section in "1234":
            served(page(section=section, power="200", **extreme))
