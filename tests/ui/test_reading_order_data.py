"""What a text in reading order sends to a browser, and what it believes of what comes back."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from attnviz import frames
from attnviz.ui import choosing, reading_order

WORDS = ["<s>", "␣the", "␣cat⏎", "␣the", "␣end"]
KEYS = frames.token_axis(WORDS, [True, False, False, False, False])
ROW = pd.Series([0.1, 0.25, 0.6, 0.05, np.nan])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last text gave to its two components, and what stood above it."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(choosing, "mount_choice", lambda **kw: given.update(choice=kw))
    monkeypatch.setattr(reading_order, "_drawing", lambda **kw: given.update(text=kw))
    monkeypatch.setattr(st, "caption", lambda told: given.update(told=told))
    return given


def show(row: pd.Series = ROW, keys: pd.DataFrame = KEYS, query: int | None = 3, **more: Any):
    given: dict[str, Any] = {"label": "Layer 0, head 1", "key": "text", "on_choose": print} | more
    reading_order.reading_order(row, keys, query, **given)


def weights(sent: dict[str, Any]) -> list[float]:
    levels = sent["choice"]["data"]["levels"]
    steps = np.frombuffer(base64.b64decode(levels["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    return (levels["low"] + steps / 10 ** levels["decimals"]).tolist()


def test_text_and_row_are_sent_apart(sent: dict[str, Any]):
    show()
    text = sent["text"]["data"]
    assert text["tokens"] == {
        "words": WORDS,
        "positions": [0, 1, 2, 3, 4],
        "special": [True, False, False, False, False],
        "breaks": [2],
        "gaps": [],
    }
    assert weights(sent) == pytest.approx(ROW.tolist(), abs=6e-4, nan_ok=True)
    assert sent["choice"]["data"]["chosen"] == 3
    assert sent["choice"]["data"]["top_written"] == "0.6"
    assert "told" not in sent
    assert json.loads(json.dumps(text)) == text
    show(ROW[::-1], query=None)
    assert sent["text"]["data"] == text
    assert sent["choice"]["data"]["chosen"] is None
    for name in ("picker", "of", "part"):
        assert sent["choice"]["data"][name] == text[name]


def test_two_texts_may_share_a_scale(sent: dict[str, Any]):
    show(top=0.75, quantity="length")
    choice = sent["choice"]["data"]
    assert (choice["top"], choice["top_written"], choice["quantity"]) == (0.75, "0.75", "length")
    show()
    assert sent["choice"]["data"]["top"] == pytest.approx(0.6)


def seeded_row(count: int) -> pd.Series:
    """Small weights, and a large one at a tenth of the way."""
    row = np.random.default_rng(count).random(count) * 1e-5
    row[count // 10] = 0.9
    return pd.Series(row)


def test_of_a_long_text_what_is_near_the_query_and_its_strongest_key_is_shown(
    sent: dict[str, Any],
):
    keys = frames.token_axis([f"w{at}" for at in range(16_001)])
    show(seeded_row(16_001), keys, 9000)
    tokens = sent["text"]["data"]["tokens"]
    positions = tokens["positions"]
    assert len(positions) == 1000
    expected = [*range(1350, 1850), *range(8750, 9250)]
    assert set(positions) <= {*range(1349, 1852), *range(8749, 9252)}
    assert len(set(positions) & set(expected)) >= 998
    assert tokens["gaps"] == [0, positions.index(next(at for at in positions if at > 5000))]
    assert sent["told"].startswith("1,000 of 16,001 tokens: ")
    row = np.array(weights(sent))
    assert row[positions.index(1600)] == pytest.approx(0.9)
    assert len(json.dumps(sent["text"]["data"])) + len(json.dumps(sent["choice"])) < 40_000
    before = sent["text"]["data"]
    show(seeded_row(16_001), keys, 12_000)
    assert sent["text"]["data"]["part"] != before["part"]
    assert sent["text"]["data"]["of"] == before["of"]  # so that the choice is the same text's


@pytest.mark.parametrize("place", [None, 300, 700, 0, 2999])
def test_what_is_shown_is_nearer_than_what_is_not(place: int | None):
    row = np.random.default_rng(5).random(3000) / 2
    row[700] = 0.8
    shown = reading_order.near(row, place)
    assert len(shown) == 1000
    assert (np.diff(shown) > 0).all()
    centres = {700} if place is None else {700, place}
    assert centres <= set(shown.tolist())
    distance = [min(abs(at - centre) for centre in centres) for at in range(3000)]
    hidden = set(range(3000)) - set(shown.tolist())
    assert max(distance[at] for at in shown) <= min(distance[at] for at in hidden)


def test_a_text_of_2000_tokens_is_shown_whole():
    assert reading_order.near(np.zeros(2000), 5).tolist() == list(range(2000))
    assert len(reading_order.near(np.full(2001, np.nan), None)) == 1000


def message(**parts: Any) -> dict[str, Any]:
    return {"choice": {"of": choosing.digest(KEYS), "position": 2, "number": 7} | parts}


def test_only_a_token_of_the_text_is_believed(
    sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    for bad in ({"of": "another"}, {"position": 5}, {"position": True}, {"position": "2"}):
        assert reading_order.told_token(message(**bad), KEYS) is None
    told: list[int] = []
    monkeypatch.setattr(st, "session_state", {"text": message()})
    show(on_choose=told.append)
    assert sent["choice"]["data"]["answered"] == 7
    sent["text"]["on_choice_change"]()
    assert told == [2]


def mounted() -> None:
    import pandas as pd

    from attnviz import frames
    from attnviz.ui.reading_order import reading_order

    tokens = frames.token_axis(list("abc"))
    reading_order(pd.Series([0.1, 0.2, 0.7]), tokens, 1, label="A", key="a", on_choose=print)


def test_a_script_mounts_it_under_its_key():
    app = AppTest.from_function(mounted).run()
    assert not app.exception
    choice, text = app.get("bidi_component")
    assert json.loads(choice.proto.json)["chosen"] == 1
    assert json.loads(text.proto.json)["tokens"]["words"] == ["a", "b", "c"]
