"""What is believed of what a browser says, and how a component's parts are put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnviz import frames
from attnviz.ui import choosing

TOKENS = frames.token_axis(["[CLS]", "the", "<b>it</b>", "the", "[SEP]"])
UI = Path(choosing.__file__).parent
FILES = ["choosing.js", "lines.js", "lines.css", "reading_order.js", "reading_order.css"]


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


@pytest.mark.parametrize("name", ["lines", "reading_order"])
def test_a_script_has_what_it_shares_and_one_entry(name: str):
    script = choosing.script(name)
    assert script.count("export default") == 1
    assert "function decoded(" in script
    assert "class Choosing" in script


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_fetched_and_no_html_is_made_of_tokens(file: str):
    text = (UI / file).read_text(encoding="utf-8")
    for word in ("http", "import ", "fetch", "url(", "innerHTML", "insertAdjacent", "outerHTML"):
        assert word not in text
