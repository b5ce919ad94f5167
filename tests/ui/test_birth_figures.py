"""The section on the training log as a visitor's session runs it, and what it says."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from attnviz import training_log
from attnviz.ui import birth_figures as figures
from attnviz.ui import birth_sentences as told
from scripts import train_bundled_model as training

PAGE = Path(__file__).parents[1] / "birth_page.py"


def page(**state) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    text = "\n".join(element.value for element in (*app.markdown, *app.caption))
    return text.replace("\\", "")


def test_section_tells_when_and_how_much():
    app = page()
    assert len(app.get("vega_lite_chart")) == 2
    for sentence in (
        "takes 250 of 8,000 steps, from 1,025 to 1,275.",
        "The induction score goes from 0.11 to 0.86, and the loss on repeats from 7.46 to 0.44",
        "The previous-token score goes from 0.19 to 0.60",
        "The loss on stories goes from 4.95 to 4.94 nats",
        "nobody assigned them",
        "real · bundled model · its own training log",
    ):
        assert sentence in said(app), sentence


def test_all_steps_can_be_shown():
    app = page()
    app.button_group(key="birth_steps").set_value(8000).run()
    assert not app.exception
    spec = app.get("vega_lite_chart")[0].proto.spec
    assert '"domain": [0, 8000]' in spec.replace("[0,8000]", "[0, 8000]").replace(":[", ": [")


def test_close_view_holds_the_phase_change():
    log = training_log.log()
    assert training_log.phase_change(log).end < figures.CLOSE < int(log["step"].max())


def test_caption_agrees_with_the_recipe():
    model = training.new_model().config
    caption = told.caption(sum(stage.steps for stage in training.STAGES))
    for part in (
        f"best of {model.num_hidden_layers} layers × {model.num_attention_heads} heads",
        f"n = {training.repeats(told.REPEATED, 1).shape[1]}",
        f"d_k = {model.hidden_size // model.num_attention_heads}",
        "8,000 steps of AdamW",
        f"seed {training.SEED}",
    ):
        assert part in caption, part


def test_table_and_code_open():
    app = page(numbers_birth=True, fold_code_birth=True)
    (table,) = app.dataframe
    assert len(table.value) == len(training_log.log())
    assert any("def phase_change" in code.value for code in app.code)
