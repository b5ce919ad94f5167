"""The page “Why three” as a visitor's session runs it, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import saved_models
from streamlit.testing.v1 import AppTest
from test_pages import APP, errors, field, said, served, warnings_of

from attnviz.ui.selection import THREE

SECTIONS = (
    "Roles",
    "The experiment",
    "Width",
    "Surgery",
    "Symmetry",
    "Two products",
    "Real models",
    "Birth of a head",
)
CHARTS = (3, 0, 1, 5, 4, 2, 0, 2)
OF_THE_MODEL = (4, 5, 6, 7)
WORDS = "the cat sat on the mat because it was tired"
OF_A_HEAD = "n = 13 · d_k = 32 · the model divides by √32"


def page(**parameters: str) -> AppTest:
    """The page, as a link opens it."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params.update(parameters)
    return app.switch_page("pages/why_three.py").run()


def titles(app: AppTest) -> list[str]:
    return [header.value for header in app.header]


def title(number: int) -> str:
    return f"{number} {SECTIONS[number - 1]}"


def charts(app: AppTest) -> int:
    return len(app.get("vega_lite_chart"))


def press(app: AppTest, label: str) -> AppTest:
    field(app.button, label).click()
    return served(app.run())


def infos(app: AppTest) -> str:
    return " ".join(info.value for info in app.info).replace("\\", "")


def headline(app: AppTest) -> str:
    (told,) = app.subheader
    return told.value.replace("\\", "")


# --- sections


@pytest.mark.parametrize("number", range(1, THREE + 1))
def test_every_section_opens_by_its_link(number: int):
    app = served(page(three=str(number)))
    assert [one.value for one in app.title] == ["Why three projections?"]
    assert titles(app) == [title(number)]
    assert charts(app) == CHARTS[number - 1]
    assert field(app.button, title(number)).proto.type == "primary"


def test_sections_follow_each_other():
    app = served(page())
    assert titles(app) == [title(1)]
    for number in range(2, THREE + 1):
        press(app, "Next")
        assert titles(app) == [title(number)]
        assert app.query_params["three"] == str(number)
    assert field(app.button, "Next").disabled
    press(app, "Back")
    assert titles(app) == [title(THREE - 1)]


def test_all_sections_at_once():
    app = served(page(three="0"))
    assert titles(app) == [title(number) for number in range(1, THREE + 1)]
    assert charts(app) == sum(CHARTS)


def test_each_section_says_what_it_shows():
    words = said(served(page(three="0")))
    for told in (
        "synthetic · written by hand",
        "synthetic · toy, one head",
        "before and after K := V in all heads",
        f"{OF_A_HEAD} · scores before the mask",
        f"{OF_A_HEAD} · measured on all 13 tokens",
    ):
        assert told in words, told


# --- other models


@pytest.mark.parametrize("number", range(THREE + 1))
def test_a_model_that_cannot_be_read_leaves_the_toys(tmp_path: Path, number: int):
    app = page(model=str(tmp_path / "nowhere"), three=str(number))
    assert not app.exception
    of_the_model = number in (0, *OF_THE_MODEL)
    assert len(errors(app)) == of_the_model
    left = [number] if number else [n for n in range(1, THREE + 1) if n not in OF_THE_MODEL]
    assert [name for name in titles(app) if int(name[0]) not in OF_THE_MODEL] == [
        title(n) for n in left if n not in OF_THE_MODEL
    ]
    assert charts(app) == sum(CHARTS[n - 1] for n in left if n not in OF_THE_MODEL)


@pytest.mark.parametrize(
    ("family", "more", "shown"),
    [
        ("llama", {"layer": "1", "head": "3"}, {4: 5, 5: 4, 6: 2}),
        ("t5", {"part": "cross", "target": "the king"}, {4: 5, 5: 0, 6: 2}),
        ("deepseek_v3", {}, {4: 0, 5: 4, 6: 0}),
    ],
)
def test_other_families(tmp_path: Path, family: str, more: dict[str, str], shown: dict[int, int]):
    model = saved_models.save(tmp_path, family)
    for number in OF_THE_MODEL:
        app = served(page(model=model, text=WORDS, three=str(number), **more))
        assert titles(app) == [title(number)]
        if number in shown:
            assert (charts(app), bool(infos(app))) == (shown[number], shown[number] == 0)
        else:
            assert "this model" in said(app)


# --- links


def test_nonsense_in_the_link_ends_in_sentences():
    nonsense = {
        "three": "9",
        "role_variant": "Q",
        "role_asked": "<b>",
        "role_sharpness": "3",
        "tying_way": "K = V",
        "tying_of": "none",
        "tying_seed": "-1",
        "symmetry_start": "abc",
        "products_distance": "64",
        "birth_steps": "77",
    }
    app = served(page(**nonsense))
    told = warnings_of(app)
    assert len(told) == len(nonsense)
    for name, sentence in zip(sorted(nonsense), sorted(told), strict=True):
        assert sentence.startswith(f"The link asks for {name} = ")
        assert sentence.endswith("; the usual value stands instead.")
    assert titles(app) == [title(1)]


def test_what_the_link_asks_beyond_the_text_is_brought_within():
    app = served(page(three="0", symmetry_start="9999", products_distance="63", text="The king."))
    assert charts(app) == sum(CHARTS)


def test_fields_come_back_from_their_link():
    link = {
        "three": "0",
        "role_variant": "K = V: side by side",
        "role_asked": "E",
        "role_sharpness": "0.5",
        "tying_way": "values shuffled",
        "tying_of": "layer",
        "tying_seed": "5",
        "products_distance": "3",
        "birth_steps": "8000",
        "layer": "1",
        "head": "3",
    }
    app = served(page(**link))
    assert {name: app.query_params[name] for name in link} == link
    words = said(app).replace("\u00a0", " ")
    assert "Matched: the query (−1.5, −2, 0, 0) with keys beside contents" in words
    assert "query times 0.5" in words
    assert "before and after values shuffled in all heads of layer 1 · order drawn with seed 5" in (
        words
    )
    assert "At a distance of 3 tokens" in words
    assert app.session_state["birth_steps"] == 8000


def test_fields_are_kept_while_other_sections_are_shown():
    app = served(page(three="4"))
    app.radio(key="tying_way").set_value("Q := K")
    app.radio(key="tying_of").set_value("head")
    served(app.run())
    assert app.query_params["tying_way"] == "Q := K"
    before = headline(app)
    assert re.match(r"Q := K in layer 0, head 2: \d\.\d\d nats per token", before)
    for label in (title(1), title(8), title(4)):
        press(app, label)
    assert headline(app) == before
