"""What is believed of what a browser says, and how a component's parts are put together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from attnviz import frames
from attnviz.ui import choosing

TOKENS = frames.token_axis(["[CLS]", "the", "<b>it</b>", "the", "[SEP]"])
UI = Path(choosing.__file__).parent
DRAWINGS = ("cell_picker", "lines", "mosaic", "reading_order")
FILES = [
    *("levels.js", "choosing.js", "drawing.js", "drawing.css"),
    *(f"{name}.{suffix}" for name in DRAWINGS for suffix in ("js", "css")),
]


@pytest.mark.parametrize("state", [None, "choice", 3, [], {}, {"choice": None}, {"choice": [2]}])
def test_what_is_no_message_says_nothing(state: object):
    assert choosing.message(state) == {}
    assert choosing.answered(state) == 0


@pytest.mark.parametrize("bad", ["4", None, True, 4.0, float("nan"), -4, 10**400])
def test_a_number_that_is_none_counts_as_nothing_heard(bad: object):
    assert choosing.answered({"choice": {"number": bad}}) == 0
    assert choosing.answered({"choice": {"number": 4}}) == 4


@pytest.mark.parametrize(
    "bad", ["2", "", None, [2], True, False, 2.0, 1.5, float("nan"), -1, 5, 10**400], ids=repr
)
def test_only_a_position_of_the_tokens_is_one(bad: object):
    assert choosing.position(bad, TOKENS) is None
    assert choosing.position(4, TOKENS) == 4
    assert choosing.position(0, TOKENS.iloc[1:]) is None


def test_other_tokens_have_another_name():
    axes = [frames.token_axis(list(words)) for words in ("ab", "ba", "ac", "猫b")]
    names = {choosing.digest(axis) for axis in (*axes, axes[0].iloc[1:])}
    names |= {choosing.digest(axes[0], axes[1]), choosing.digest(axes[1], axes[0])}
    assert len(names) == 7


def test_a_position_has_its_row():
    later = TOKENS.iloc[1:]
    assert [choosing.place(position, later) for position in (4, 1, 0, None)] == [3, 0, None, None]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_what_it_shares_and_one_entry(name: str, monkeypatch: pytest.MonkeyPatch):
    given: dict[str, str] = {}

    def component(called: str, **parts: str) -> Callable[..., None]:
        given.update(called=called, **parts)
        return lambda **kw: None

    monkeypatch.setattr(st.components.v2, "component", component)
    choosing.drawing(name, "<div></div>")
    assert given["called"] == f"attnviz_{name}"
    assert given["js"].count("export default") == 1
    shared = ("function decoded(", "class Choosing", "class Drawing", " extends Drawing ")
    places = [given["js"].index(part) for part in shared]
    assert places == sorted(places)  # a class stands before those made of it
    own = (UI / f"{name}.css").read_text(encoding="utf-8")
    assert given["css"].endswith(own)
    assert "#told {" in given["css"].removesuffix(own)


def test_no_name_of_a_script_is_one_that_it_shares():
    """Two functions of one name in a module are an error that only a browser tells."""
    names = {part: declared(f"{part}.js") for part in ("levels", "choosing", "drawing", *DRAWINGS)}
    for name in DRAWINGS:
        together = [*names["levels"], *names["choosing"], *names["drawing"], *names[name]]
        assert len(together) == len(set(together))


def declared(file: str) -> list[str]:
    text = (UI / file).read_text(encoding="utf-8")
    return re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)


def test_what_is_told_is_chosen_and_its_number_comes_back(monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}
    chosen: list[int] = []
    monkeypatch.setattr(choosing, "mount_choice", lambda **kw: given.update(choice=kw))
    monkeypatch.setattr(st, "session_state", {"a": {"choice": {"number": 4, "row": 7}}})

    def told(state: object) -> tuple[int, ...] | None:
        row = choosing.message(state)["row"]
        return (row, row + 1) if row == 7 else None

    choosing.mount(
        lambda **kw: given.update(drawing=kw),
        "a",
        of="rows",
        data={"words": ["x"]},
        choice={"chosen": 3},
        told=told,
        on_choose=lambda *parts: chosen.extend(parts),
    )
    names = {"picker": "a", "of": "rows"}
    assert given["choice"] == {"key": "a_choice", "data": names | {"chosen": 3, "answered": 4}}
    assert given["drawing"]["data"] == names | {"words": ["x"]}
    given["drawing"]["on_choice_change"]()
    st.session_state["a"] = {"choice": {"row": 8}}
    given["drawing"]["on_choice_change"]()
    assert chosen == [7, 8]


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_fetched_and_no_html_is_made_of_tokens(file: str):
    text = (UI / file).read_text(encoding="utf-8")
    for word in ("http", "import ", "fetch", "url(", "innerHTML", "insertAdjacent", "outerHTML"):
        assert word not in text
