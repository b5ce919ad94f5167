"""The controls of the page of heads: what they offer, and what they leave in the link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import saved_models
from streamlit.testing.v1 import AppTest

from attnviz.ui import head_controls, overview
from attnviz.ui.readings import Asked
from attnviz.ui.selection import NAMES, SPELT, Selection
from attnviz.ui.views import Place

TEXT = "The king gave the key to the king."


def test_the_options_are_those_of_a_link():
    assert tuple(head_controls.WEIGHED) == NAMES["weighed"]
    assert tuple(head_controls.OVER) == NAMES["over"]
    assert tuple(head_controls.WITHOUT) == NAMES["without"]
    assert tuple(head_controls.PAIRINGS) == NAMES["pairing"]
    assert tuple(head_controls.VIEWS) == NAMES["view"]


def test_the_first_option_is_the_usual_one():
    usual = Selection()
    for name, options in (
        ("weighed", head_controls.WEIGHED),
        ("over", head_controls.OVER),
        ("without", head_controls.WITHOUT),
        ("pairing", head_controls.PAIRINGS),
        ("view", head_controls.VIEWS),
    ):
        assert getattr(usual, name) == next(iter(options))


def test_every_statistic_has_a_name_of_its_own_in_a_link():
    slugs = [head_controls.slug(name) for name in overview.STATISTICS]
    assert len(set(slugs)) == len(slugs)
    for slug in slugs:
        assert re.fullmatch(SPELT["colour"][0], slug)
        assert Selection.parse({"colour": slug})[1] == ()


# --- how near


def zooming(most: int, now: int) -> None:
    import streamlit as st

    from attnviz.ui import head_controls, selection

    if "selection" not in st.session_state:
        selection.change(zoom=now)
    st.text(f"zoom {head_controls.zoom((most - 3, most))}")


def zoomed(most: int, now: int = 0) -> AppTest:
    app = AppTest.from_function(zooming, kwargs={"most": most, "now": now}).run()
    assert not app.exception
    return app


def now(app: AppTest) -> int:
    return int(app.text[0].value.removeprefix("zoom "))


def press(app: AppTest, label: str) -> int:
    (button,) = [button for button in app.button if button.label == label]
    assert not button.disabled
    button.click().run()
    assert not app.exception
    return now(app)


def is_disabled(app: AppTest, label: str) -> bool:
    return next(button.disabled for button in app.button if button.label == label)


def test_of_few_tokens_all_are_in_view():
    app = zoomed(2 * head_controls.NEAREST)
    assert not app.button
    assert now(app) == 0


@pytest.mark.parametrize("most", [21, 47, 301, 613, 4_099, 16_001])
def test_steps_lead_to_few_tokens_and_back_to_all(most: int):
    app = zoomed(most)
    assert is_disabled(app, "Zoom out")
    assert is_disabled(app, "All")
    seen = [most]
    while not is_disabled(app, "Zoom in"):
        seen.append(press(app, "Zoom in"))
        assert head_controls.NEAREST <= seen[-1] < seen[-2]
        assert len(seen) < 12
        assert f"{seen[-1]:,} of {most:,} tokens about the chosen cell" in app.caption[0].value
    assert seen[-1] == head_controls.NEAREST
    while not is_disabled(app, "Zoom out"):
        before, after = now(app), press(app, "Zoom out")
        assert after == 0 or before < after < most
    assert now(app) == 0
    assert app.caption[0].value == f"all {most:,} tokens"


def test_all_is_one_click_away():
    app = zoomed(613, now=10)
    assert press(app, "All") == 0
    assert "zoom" not in app.query_params


@pytest.mark.parametrize("asked", [613, 700, 99_999])
def test_a_window_as_large_as_the_text_is_all_of_it(asked: int):
    assert now(zoomed(613, now=asked)) == 0


# --- which heads


def opening(part: str, layer: int, head: int) -> None:
    import streamlit as st

    from attnviz.ui import head_controls, selection

    if "selection" not in st.session_state:
        selection.change(part="encoder", layer=0, head=1, query=5, key=3)
        head_controls.take_head(part, layer, head)
    held = selection.current()
    st.text(f"{held.part} {held.layer} {held.head} {held.query} {held.key}")


def test_tokens_stay_within_a_part_and_are_left_with_it():
    for part, tokens in (("encoder", "5 3"), ("cross", "None None")):
        given = {"part": part, "layer": 1, "head": 2}
        app = AppTest.from_function(opening, kwargs=given).run()
        assert app.text[0].value == f"{part} 1 2 {tokens}"
        assert app.query_params["part"] == part


def pinning(pin: str, model: str, text: str) -> None:
    import streamlit as st

    from attnviz.ui import head_controls, selection

    selection.change(text="here", pin=pin, pin_model=model, pin_text=text)
    st.text(repr(head_controls.pinned()))


@pytest.mark.parametrize(
    ("pin", "model", "text", "asked", "head"),
    [
        ("decoder.1.12", "", "", ("bundled", "here"), ("decoder", 1, 12)),
        ("cross.0.3", "minilm", "", ("minilm", "here"), ("cross", 0, 3)),
        ("encoder.5.0", "minilm", "there", ("minilm", "there"), ("encoder", 5, 0)),
    ],
)
def test_a_pinned_head_is_of_its_own_model_and_text(
    pin: str, model: str, text: str, asked: tuple[str, str], head: tuple[str, int, int]
):
    app = AppTest.from_function(pinning, kwargs={"pin": pin, "model": model, "text": text}).run()
    assert app.text[0].value == repr(Place(Asked(*asked), *head))


def test_without_a_pin_there_is_no_head():
    app = AppTest.from_function(pinning, kwargs={"pin": "", "model": "", "text": ""}).run()
    assert app.text[0].value == "None"


# --- what is offered for a reading


def offering(model: str, part: str, pair: str) -> None:
    from attnviz.ui import head_controls
    from attnviz.ui.readings import Asked, served

    reading = served(Asked(model, "the king was tired", target="the cat", pair=pair))
    head_controls.how(reading, part)


@pytest.mark.parametrize(
    ("family", "part"), [("gpt2", "decoder"), ("t5", "cross"), ("t5", "encoder")]
)
def test_one_text_has_three_choices(tmp_path: Path, family: str, part: str):
    path = saved_models.save(tmp_path / family, family)
    given = {"model": path, "part": part, "pair": ""}
    app = AppTest.from_function(offering, kwargs=given, default_timeout=60).run()
    assert not app.exception
    offered = {box.label: len(box.options) for box in app.selectbox}
    assert list(offered) == ["Of", "What is weighed", "Leave out"]
    assert offered["What is weighed"] == 4
    app.selectbox(key="over").set_value("max_heads")
    app.run()
    assert len(app.selectbox(key="weighed").options) == 1
