"""What the lines send to a browser, and what they believe of what comes back."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from attnviz import frames
from attnviz.charts import theme
from attnviz.ui import choosing, lines

QUERIES = frames.token_axis(
    ["[CLS]", "the", "<b>it</b>", "the", "[SEP]"], [True, *[False] * 3, True]
)
KEYS = frames.token_axis(["a", "cat", "␣", "sat", "on", "猫", "."])
OF = choosing.digest(QUERIES, KEYS)


def matrix(queries: int = 5, keys: int = 7, seed: int = 3) -> pd.DataFrame:
    """Seeded softmax rows."""
    exponentials = np.exp(np.random.default_rng(seed).normal(0, 2, (queries, keys)))
    return pd.DataFrame(exponentials / exponentials.sum(1, keepdims=True))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last lines gave to their two components."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(choosing, "mount_choice", lambda **kw: given.update(choice=kw))
    monkeypatch.setattr(lines, "_drawing", lambda **kw: given.update(lines=kw))
    return given


def draw(*heads: pd.DataFrame, **changes: Any) -> None:
    usual: dict[str, Any] = {
        "heads": [(f"head {at}", head) for at, head in enumerate(heads or (matrix(),))],
        "queries": QUERIES,
        "keys": KEYS,
        "chosen": 3,
        "label": "Weights of layer 5, head 11",
        "key": "lines",
        "on_choose": lambda axis, position: None,
    }
    lines.token_lines(**(usual | changes))


def read(levels: Mapping[str, Any], columns: int) -> np.ndarray:
    """The weights that a browser reads, NaN where one is hidden."""
    steps = np.frombuffer(base64.b64decode(levels["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    return (levels["low"] + steps / 10 ** levels["decimals"]).reshape(-1, columns)


def test_the_weights_of_every_head_are_sent_with_its_name_and_look(sent: dict[str, Any]):
    first, second = matrix(seed=1), matrix(seed=2).where(np.tril(np.ones((5, 7), bool)))
    draw(first, second)
    data = sent["lines"]["data"]
    assert [head["name"] for head in data["heads"]] == ["head 0", "head 1"]
    assert [head["colour"] for head in data["heads"]] == [*theme.HEAD_COLOURS[:2]]
    assert [head["dash"] for head in data["heads"]] == [[], [8, 4]]
    for head, expected in zip(data["heads"], (first, second), strict=True):
        np.testing.assert_allclose(read(head["levels"], 7), expected, atol=6e-4)
    largest = np.nanmax([first, second])
    assert data["top"] == pytest.approx(largest)
    assert data["top_written"] == f"{largest:.3g}"
    assert json.loads(json.dumps(data)) == data


def test_two_drawings_may_share_a_scale(sent: dict[str, Any]):
    draw(matrix(seed=1), top=1.25)
    assert (sent["lines"]["data"]["top"], sent["lines"]["data"]["top_written"]) == (1.25, "1.25")


def test_one_head_has_the_colour_of_what_is_real_and_the_columns_their_titles(
    sent: dict[str, Any],
):
    draw(cross=True)
    data = sent["lines"]["data"]
    assert data["heads"][0]["colour"] == data["look"]["real"] == theme.REAL
    assert data["query"]["title"] == "query: the token that looks (target)"
    assert data["key"]["title"] == "key: the token looked at (source)"
    assert data["query"]["words"] == ["[CLS]", "the", "<b>it</b>", "the", "[SEP]"]
    assert data["query"]["special"] == [True, False, False, False, True]
    assert data["label"].startswith("Weights of layer 5, head 11. ")


def test_another_choice_leaves_the_lines_as_they_are(sent: dict[str, Any]):
    draw()
    before = dict(sent)
    draw(chosen=0, chosen_key=6)
    assert sent["lines"]["data"] == before["lines"]["data"]
    assert before["choice"]["data"]["chosen"] == {"query": 3, "key": None}
    assert sent["choice"]["data"]["chosen"] == {"query": 0, "key": 6}
    assert sent["choice"]["data"]["of"] == sent["lines"]["data"]["of"] == OF
    assert len(json.dumps(sent["choice"]["data"])) < 120


def test_positions_need_not_begin_at_nought(sent: dict[str, Any]):
    shown = {"queries": QUERIES.iloc[2:], "keys": KEYS.iloc[1:]}
    draw(matrix().iloc[2:, 1:], chosen=4, chosen_key=1, **shown)
    data = sent["lines"]["data"]
    assert data["query"]["positions"] == [2, 3, 4]
    assert sent["choice"]["data"]["chosen"] == {"query": 2, "key": 0}
    draw(matrix().iloc[2:, 1:], chosen=0, **shown)
    assert sent["choice"]["data"]["chosen"]["query"] is None


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "refused"),
    [
        (1, 320, 320, None),
        (1, 2, 321, r"up to 320 tokens on either side; here are 321\."),
        (3, 184, 184, None),
        (3, 185, 185, r"3 heads together are drawn for up to 184 tokens; here are 185 queries"),
    ],
)
def test_what_is_too_much_is_refused_with_its_figure(
    heads: int, queries: int, keys: int, refused: str | None
):
    axes = [frames.token_axis(["a"] * count) for count in (queries, keys)]
    told = lines.too_large(heads, *axes)
    if refused is None:
        assert told is None
    else:
        assert told is not None
        assert re.search(refused, told)


def test_the_largest_lines_are_less_than_300_kilobytes(sent: dict[str, Any]):
    tokens = frames.token_axis([f"token{at}" for at in range(320)])
    draw(matrix(320, 320), queries=tokens, keys=tokens)
    assert len(json.dumps(sent["lines"]["data"])) < 300_000


def message(**parts: Any) -> dict[str, Any]:
    return {"choice": {"of": OF, "axis": "key", "position": 6, "number": 4} | parts}


def test_a_token_of_its_column_is_believed():
    assert lines.told_token(message(), QUERIES, KEYS) == ("key", 6)
    assert lines.told_token(message(axis="query", position=0), QUERIES, KEYS) == ("query", 0)


@pytest.mark.parametrize(
    "parts",
    [
        *({"axis": "query"}, {"axis": None}, {"axis": "keys"}, {"axis": ["key"]}, {"of": None}),
        *({"position": bad} for bad in ("2", None, True, 2.0, -1, 7, [2], float("nan"))),
    ],
    ids=repr,
)
def test_what_is_no_token_is_not_believed(parts: dict[str, Any]):
    assert lines.told_token(message(**parts), QUERIES, KEYS) is None


def test_what_is_told_reaches_the_page_and_its_number_comes_back(
    sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(st, "session_state", {"lines": message()})
    draw(on_choose=lambda axis, position: told.append((axis, position)))
    assert sent["choice"]["data"]["answered"] == 4
    sent["lines"]["on_choice_change"]()
    assert told == [("key", 6)]


def mounted() -> None:
    import pandas as pd

    from attnviz import frames
    from attnviz.ui.lines import token_lines

    tokens, weights = frames.token_axis(list("abc")), pd.DataFrame([[1.0, 0.0, 0.0]] * 3)
    token_lines([("A", weights)], tokens, tokens, 1, label="A", key="a", on_choose=print)
    many = frames.token_axis(["a"] * 400)
    token_lines([("B", weights)], many, many, 1, label="B", key="b", on_choose=print)


def test_a_script_mounts_them_under_their_key_and_tells_what_is_too_large():
    app = AppTest.from_function(mounted).run()
    assert not app.exception
    choice, drawn = app.get("bidi_component")
    assert json.loads(choice.proto.json)["chosen"] == {"query": 1, "key": None}
    assert json.loads(drawn.proto.json)["picker"] == "a"
    (told,) = app.info
    assert "here are 400" in told.value
