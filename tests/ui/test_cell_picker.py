"""What the picker sends to a browser, and what it believes of what comes back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
import torch
from streamlit.testing.v1 import AppTest

from attnviz import frames
from attnviz.charts import matrix as picture
from attnviz.charts import theme
from attnviz.ui import cell_picker, choosing

QUERIES = frames.token_axis(["[CLS]", "the", "<b>it</b>", "the", "[SEP]"])
KEYS = frames.token_axis(["a", "cat", "␣", "sat", "on", "猫", "."])


def rows(largest: float = 0.9, shape: tuple[int, int] = (5, 7)) -> torch.Tensor:
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(3))
    return weights / weights.max() * largest


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last picker gave to its two components."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(choosing, "mount_choice", lambda **kw: given.update(choice=kw))
    monkeypatch.setattr(cell_picker, "_drawing", lambda **kw: given.update(picture=kw))
    return given


def pick(weights: torch.Tensor, **changes: Any) -> None:
    usual: dict[str, Any] = {
        "matrix": frames.weight_matrix(weights),
        "queries": QUERIES,
        "keys": KEYS,
        "chosen": (3, 5),
        "label": "Weights of layer 5, head 11",
        "key": "picker",
        "on_change": lambda query, key: None,
    }
    cell_picker.cell_picker(**(usual | changes))


def read(data: Mapping[str, Any]) -> np.ndarray:
    """The weights that a browser reads, NaN where one is hidden."""
    sent = data["levels"]
    steps = np.frombuffer(base64.b64decode(sent["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    values = sent["low"] + steps / 10 ** sent["decimals"]
    return values.reshape(-1, len(data["keys"]["words"]))


def test_the_picture_is_the_frame(sent: dict[str, Any]):
    weights = rows()
    pick(weights)
    data = sent["picture"]["data"]
    np.testing.assert_allclose(read(data), weights.numpy(), atol=5.001e-4)
    assert data["queries"]["words"] == ["[CLS]", "the", "<b>it</b>", "the", "[SEP]"]
    assert data["keys"]["words"] == ["a", "cat", "␣", "sat", "on", "猫", "."]
    assert data["keys"]["positions"] == [0, 1, 2, 3, 4, 5, 6]
    assert data["keys"]["last"] == data["keys"]["positions"]
    assert data["levels"]["high"] == pytest.approx(0.9)
    assert (data["low_written"], data["top_written"]) == ("weight 0", "0.9")
    assert data["label"].startswith("Weights of layer 5, head 11: ")
    assert json.loads(json.dumps(data)) == data


def test_another_choice_leaves_the_picture_as_it_is(sent: dict[str, Any]):
    pick(rows())
    before = dict(sent)
    pick(rows(), chosen=(0, 2))
    assert sent["picture"]["data"] == before["picture"]["data"]
    assert sent["picture"]["key"] == before["picture"]["key"] == "picker"
    assert before["choice"]["data"]["chosen"] == [3, 5]
    assert sent["choice"]["data"]["chosen"] == [0, 2]
    assert sent["choice"]["data"]["picker"] == sent["picture"]["data"]["picker"] == "picker"
    assert len(json.dumps(sent["choice"]["data"])) < 100


def test_other_tokens_have_another_name(sent: dict[str, Any]):
    names = set()
    for tokens in (["a", "b"], ["ab", ""], ["a", "c"], ["b", "a"], ["猫", "a"]):
        axis = frames.token_axis(tokens)
        pick(rows(shape=(2, 7)), queries=axis)
        assert sent["choice"]["data"]["of"] == sent["picture"]["data"]["of"]
        names.add(sent["choice"]["data"]["of"])
    pick(rows())
    pick(rows(0.5))
    names.add(sent["choice"]["data"]["of"])
    assert len(names) == 6


@pytest.mark.parametrize(
    ("largest", "decimals"),
    [(1.0, 3), (0.2, 3), (0.0999, 4), (0.0313, 4), (0.0078, 5), (1.4, 2), (58.0, 1), (1e-9, 7)],
)
def test_small_weights_have_more_decimals(sent: dict[str, Any], largest: float, decimals: int):
    weights = rows(largest)
    pick(weights)
    assert sent["picture"]["data"]["levels"]["decimals"] == decimals
    np.testing.assert_allclose(
        read(sent["picture"]["data"]), weights.numpy(), atol=0.5 * 10**-decimals
    )


def test_a_head_without_any_weight_is_drawn(sent: dict[str, Any]):
    pick(torch.zeros(5, 7))
    assert (read(sent["picture"]["data"]) == 0).all()
    assert sent["picture"]["data"]["levels"]["decimals"] == 3


def test_only_what_is_hidden_and_has_no_weight_is_sent_as_hidden(sent: dict[str, Any]):
    weights, visible = rows(), np.ones((5, 7), bool)
    visible[0, 1] = visible[2, 3] = visible[4, 6] = False
    weights[0, 1] = weights[4, 6] = weights[1, 1] = 0.0  # [2, 3] has a weight, [1, 1] can be seen
    pick(weights, visible=pd.DataFrame(visible))
    hidden = np.isnan(read(sent["picture"]["data"]))
    assert np.argwhere(hidden).tolist() == [[0, 1], [4, 6]]
    expected = np.where(hidden, np.nan, weights.numpy())
    np.testing.assert_allclose(read(sent["picture"]["data"]), expected, atol=5.001e-4)


def test_positions_do_not_begin_at_nought_where_the_first_token_is_hidden(sent: dict[str, Any]):
    weights = rows()
    matrix = frames.weight_matrix(weights).iloc[1:, 1:]
    pick(weights, matrix=matrix, queries=QUERIES.iloc[1:], keys=KEYS.iloc[1:], chosen=(1, 6))
    data = sent["picture"]["data"]
    np.testing.assert_allclose(read(data), weights.numpy()[1:, 1:], atol=5.001e-4)
    assert data["queries"]["positions"] == [1, 2, 3, 4]
    assert data["queries"]["words"][0] == "the"
    assert sent["choice"]["data"]["chosen"] == [1, 6]


def test_colours_sizes_and_titles_come_from_the_charts(sent: dict[str, Any]):
    pick(rows(), cross=True, side=400)
    data = sent["picture"]["data"]
    palette = np.frombuffer(bytes.fromhex(data["palette"]), np.uint8).reshape(256, 4)
    assert palette[:, :3].tolist() == picture._viridis().tolist()
    assert (palette[:, 3] == 255).all()
    assert data["look"]["real"] == theme.REAL
    assert data["look"]["side"] == 400
    assert data["queries"]["title"] == "query: the token that looks (target)"
    assert data["keys"]["title"] == "key: the token looked at (source)"


def test_signed_numbers_have_zero_in_the_middle(sent: dict[str, Any]):
    scores = 60 * (rows() - 0.3)
    pick(scores, quantity="score")
    data = sent["picture"]["data"]
    reach = scores.abs().max().item()
    np.testing.assert_allclose(read(data), scores.numpy(), atol=0.0501)
    assert data["low_written"] == f"score −{reach:.3g}"
    palette = np.frombuffer(bytes.fromhex(data["palette"]), np.uint8).reshape(256, 4)
    assert palette[0, :3].tolist() == [0x2C, 0x7B, 0xB6]
    assert palette[-1, :3].tolist() == [0xCC, 0x55, 0x00]
    assert palette[127, 3] == palette[128, 3] == 1
    assert palette[0, 3] == palette[-1, 3] == 217


def test_a_cell_may_stand_for_several_tokens(sent: dict[str, Any]):
    queries = QUERIES.iloc[[0, 2, 4]].assign(last=[1, 3, 4])
    pick(rows()[[0, 2, 4]], matrix=frames.weight_matrix(rows()).iloc[[0, 2, 4]], queries=queries)
    data = sent["picture"]["data"]
    assert (data["queries"]["positions"], data["queries"]["last"]) == ([0, 2, 4], [1, 3, 4])


def test_two_pictures_may_share_a_scale(sent: dict[str, Any]):
    pick(rows(0.5), top=0.75)
    data = sent["picture"]["data"]
    assert (data["top"], data["top_written"]) == (0.75, "0.75")
    assert data["levels"]["high"] == pytest.approx(0.5)


def test_128_tokens_take_less_than_52_kilobytes(sent: dict[str, Any]):
    tokens = frames.token_axis([f"token{at}" for at in range(128)])
    pick(rows(shape=(128, 128)), queries=tokens, keys=tokens)
    assert len(json.dumps(sent["picture"]["data"])) < 52_000


# --- what a browser says


OF = choosing.digest(QUERIES, KEYS)


def message(**parts: Any) -> dict[str, Any]:
    return {"choice": {"of": OF, "query": 2, "key": 6, "number": 4} | parts}


def test_a_cell_of_the_picture_is_believed():
    assert cell_picker.told(message(), QUERIES, KEYS) == (2, 6)
    assert cell_picker.told(message(query=0, key=0), QUERIES, KEYS) == (0, 0)
    assert choosing.answered(message()) == 4


BAD_POSITIONS = (
    *("2", "", None, [2], {"query": 2}, True, False, 2.0, 1.5),
    *(float("nan"), float("inf"), -1, 7, 10**400, -(10**400)),
)


@pytest.mark.parametrize("bad", BAD_POSITIONS, ids=lambda bad: repr(bad)[:12])
@pytest.mark.parametrize("axis", ["query", "key"])
def test_what_is_no_position_is_not_believed(axis: str, bad: object):
    assert cell_picker.told(message(**{axis: bad}), QUERIES, KEYS) is None


def test_a_hidden_first_token_cannot_be_chosen():
    shown = (QUERIES.iloc[1:], KEYS.iloc[1:])
    of = choosing.digest(*shown)
    assert cell_picker.told(message(of=of, query=1, key=1), *shown) == (1, 1)
    assert cell_picker.told(message(of=of, query=0, key=1), *shown) is None
    assert cell_picker.told(message(of=of, query=1, key=0), *shown) is None


@pytest.mark.parametrize("of", [None, "", 0, [OF], OF.upper() + "0"])
def test_a_choice_among_other_tokens_is_not_believed_but_was_heard(of: object):
    assert cell_picker.told(message(of=of), QUERIES, KEYS) is None
    assert choosing.answered(message(of=of)) == 4


@pytest.mark.parametrize(
    "state",
    [None, "choice", 3, [], {}, *({"choice": said} for said in (None, "2, 6", [2, 6], {}))],
    ids=repr,
)
def test_what_is_no_message_is_not_believed(state: object):
    assert cell_picker.told(state, QUERIES, KEYS) is None


@pytest.mark.parametrize(
    ("said", "heard", "answer"),
    [
        ({"of": OF, "query": 4, "key": 0, "number": 8}, [(4, 0)], 8),
        ({"of": OF, "query": 5, "key": 0, "number": 8}, [], 8),  # no such query; but it was heard
        ("anything", [], 0),
    ],
)
def test_what_is_told_reaches_the_page_once_and_its_number_comes_back(
    sent: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    said: object,
    heard: list[tuple[int, int]],
    answer: int,
):
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(st, "session_state", {"picker": {"choice": said}})
    pick(rows(), on_change=lambda query, key: told.append((query, key)))
    assert sent["choice"]["data"]["answered"] == answer
    sent["picture"]["on_choice_change"]()
    assert told == heard


def mounted() -> None:
    import torch

    from attnviz import frames
    from attnviz.ui.cell_picker import cell_picker

    tokens = frames.token_axis(list("abc"))
    weights = frames.weight_matrix(torch.eye(3))
    cell_picker(weights, tokens, tokens, (1, 1), label="Eye", key="eye", on_change=print)


def test_a_script_mounts_it_under_its_key():
    app = AppTest.from_function(mounted).run()
    assert not app.exception
    choice, drawn = app.get("bidi_component")
    assert json.loads(choice.proto.json)["chosen"] == [1, 1]
    assert json.loads(drawn.proto.json)["picker"] == "eye"
    assert "eye" in drawn.proto.id
    assert "export default mounted(Picker)" in drawn.proto.js_content
    assert ".key-labels" in drawn.proto.css_content
    assert 'class="drawing picker"' in drawn.proto.html_content
