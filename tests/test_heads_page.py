"""The page “Heads” as a visitor's session runs it, without a browser."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import heads_reference as reference
import numpy as np
import pandas as pd
import pytest
import saved_models
import tiny_models
from heads_reference import HEAD, LAYER, PAIR, TEXT, Array, bundled, long_text, minilm
from safetensors.torch import load
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest
from test_pages import APP, errors, field, said, served, warnings_of

from attnviz.ui import look, readings, view_figures, views
from attnviz.ui.downloads import Item
from attnviz.ui.readings import Asked

KING = "The king gave the key to the king."
FORMS = ("matrix", "lines", "text", "ranking")


def page(**parameters: str) -> AppTest:
    """The page, as a link opens it."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params.update(parameters)
    return app.switch_page("pages/heads.py").run()


def of_minilm(**parameters: str) -> AppTest:
    """The head whose numbers `heads_reference` has, on two texts."""
    minilm()
    usual = {"model": "minilm", "text": TEXT, "pair": PAIR, "layer": str(LAYER), "head": str(HEAD)}
    return page(**(usual | parameters))


# --- what is sent to the browser, and what comes back


def keys_of(app: AppTest) -> set[str]:
    return {element.proto.id.rpartition("-")[2] for element in app.get("bidi_component")}


def sent(app: AppTest, key: str) -> dict[str, Any]:
    """What a component was given."""
    found = [one for one in app.get("bidi_component") if one.proto.id.endswith(f"-{key}")]
    assert len(found) == 1, keys_of(app)
    return json.loads(found[0].proto.json, parse_constant=no_json)


def no_json(constant: str) -> None:
    """A browser reads no NaN and no Infinity."""
    raise AssertionError(f"{constant} was sent")


def tell(app: AppTest, component: str, /, **chosen: Any) -> AppTest:
    """Let a component tell Python what a visitor chose in it."""
    found = next(one for one in app.get("bidi_component") if one.proto.id.endswith(f"-{component}"))
    message = chosen | {"of": sent(app, component)["of"], "number": 1}
    return heard(app, found.proto.id, json_value=json.dumps({"choice": message}))


def heard(app: AppTest, element: str, **value: str) -> AppTest:
    """Run again with what a browser would send of an element that AppTest has no hands for."""
    states: WidgetStates = app._tree.get_widget_states()
    states.widgets.add(id=element, **value)
    return served(app._run(states))


def read(levels: Mapping[str, Any], columns: int = 0) -> Array:
    """The numbers that a browser reads, NaN where one is hidden."""
    steps = np.frombuffer(base64.b64decode(levels["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    return (levels["low"] + steps / 10 ** levels["decimals"]).reshape(-1, columns or len(steps))


def picture(app: AppTest, at: int = 0) -> Array:
    data = sent(app, f"matrix_{at}")
    return read(data["levels"], len(data["keys"]["words"]))


def lines(app: AppTest, at: int = 0) -> list[Array]:
    data = sent(app, f"lines_{at}")
    return [read(head["levels"], len(data["key"]["words"])) for head in data["heads"]]


def shades(app: AppTest, at: int = 0) -> Array:
    return read(sent(app, f"text_{at}_choice")["levels"])[0]


def table(app: AppTest, at: int = 0) -> pd.DataFrame:
    return app.dataframe[at].value


def close(found: Array, expected: Array) -> None:
    """Equal as far as the digits go that a browser is sent."""
    largest = float(np.nanmax(np.abs(expected)))
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=5.1e-4 * (10 * largest if largest > 1 else 1)
    )


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Item]:
    """The files that are offered below the last picture."""
    found: dict[str, Item] = {}

    def offer(items: list[Item], key: str) -> None:
        if key == "head_downloads":
            found.clear()
            found.update({item.label: item for item in items})

    monkeypatch.setattr(view_figures.downloads, "downloads", offer)
    return found


def as_bytes(item: Item) -> bytes:
    made = item.make()
    return made.encode() if isinstance(made, str) else made


# --- the numbers of each form

SHOWN = [
    {},
    {"weighed": "norms", "words": True, "without": "first"},
    {"weighed": "scores"},
    {"weighed": "logits", "without": "special", "pairing": "BA"},
    {"over": "mean_heads", "without": "special"},
    {"over": "max_layers", "words": True},
    {"over": "rollout", "without": "special", "words": True},
    {"pairing": "AB"},
]


@pytest.fixture(scope="module")
def two_texts() -> AppTest:
    """One visitor, who goes from one choice to the next."""
    return served(of_minilm(query="5", key="3"))


@pytest.mark.parametrize("how", SHOWN, ids=lambda how: " ".join(map(str, how.values())) or "bare")
def test_every_form_shows_the_numbers_that_are_asked_for(two_texts: AppTest, how: dict):
    app = two_texts
    expected, rows, columns = minilm(PAIR).shown(**how)
    choose(app, how)
    for form in FORMS:
        app.button_group(key="view").set_value(form)
        served(app.run())
        query = int(app.query_params["query"])
        row = expected[rows.index(query)]
        signed = how.get("weighed") in ("scores", "logits")
        if form == "matrix":
            close(picture(app), expected)
            data = sent(app, "matrix_0")
            assert (data["queries"]["positions"], data["keys"]["positions"]) == (rows, columns)
            assert data["levels"]["low"] < 0 or not signed
        elif form == "ranking":
            found = table(app)
            quantity = found.columns[2]
            assert found["key"].tolist()[0] == columns[int(row.argmax())]
            close(found.set_index("key")[quantity].loc[columns].to_numpy(), row)
            assert found[quantity].is_monotonic_decreasing
        elif signed:
            assert not {"lines_0", "text_0"} & keys_of(app)
            assert "may be negative" in app.info[0].value
        elif form == "lines":
            close(lines(app)[0], expected)
            data = sent(app, "lines_0")
            assert (data["query"]["positions"], data["key"]["positions"]) == (rows, columns)
        else:
            close(shades(app), row)
            assert sent(app, "text_0")["tokens"]["positions"] == columns


def choose(app: AppTest, how: dict) -> None:
    """Set all fields that say what is shown, each once it is there."""
    usual = {"over": "head", "weighed": "weights", "without": "nothing", "pairing": "all"}
    for name, value in usual.items():
        wanted = how.get(name, value)
        if app.selectbox(key=name).value != wanted:
            app.selectbox(key=name).set_value(wanted)
            served(app.run())
    for toggle in app.toggle:
        if not toggle.disabled and toggle.value != how.get("words", False):
            toggle.set_value(how.get("words", False))
            served(app.run())


def test_the_headline_is_the_largest_of_the_row():
    app = served(of_minilm(query="5", without="special"))
    expected, rows, columns = minilm(PAIR).shown(without="special")
    row = expected[rows.index(5)]
    (headline,) = [one.value.replace("\\", "") for one in app.subheader]
    assert headline.endswith(f": {row.max():.2f} of its attention")
    token = field(app.selectbox, "Key: the token looked at").options[int(row.argmax())]
    assert token.split(" ", 1)[0] == str(columns[int(row.argmax())])
    assert f"“{token.split(' ', 1)[1].strip('␣')}”" in headline


def test_hidden_keys_have_no_number():
    app = served(page(text=KING, layer="1", head="3"))
    weights = bundled(KING)[1, 3]
    hidden = np.triu(np.ones_like(weights, dtype=bool), 1)
    close(picture(app), np.where(hidden, np.nan, weights))
    ranked = table(served(page(text=KING, layer="1", head="3", query="4", view="ranking")))
    assert sorted(ranked["key"]) == [0, 1, 2, 3, 4]


def test_a_row_with_nothing_left_is_empty(tmp_path: Path):
    """Some token gives all its weight to the first, which is left out."""
    model = tiny_models.build("gpt2", "eager")
    model.transformer.h[0].attn.c_attn.weight.data *= 1e4
    path = saved_models.save(tmp_path / "sharp", model)
    text = "the cat sat on the mat because it was tired"
    app = page(model=path, text=text, layer="0", head="0", without="first")
    while not np.isnan(picture(served(app))).all(1).any():
        field(app.number_input, "Head").increment()
        app.run()
    empty = 1 + int(np.isnan(picture(app)).all(1).argmax())
    app.selectbox(key="query").set_value(empty)
    for form in FORMS:
        app.button_group(key="view").set_value(form)
        served(app.run())
        assert "looks at nothing here" in said(app)
    assert table(app).empty


# --- what is offered


def test_of_several_heads_weights_only_are_offered():
    app = served(of_minilm(over="mean_heads", weighed="scores"))
    assert app.selectbox(key="weighed").options == ["weights"]
    assert field(app.selectbox, "Of").value == "mean_heads"


@pytest.mark.parametrize("weighed", ["scores", "logits"])
def test_words_have_no_scores(weighed: str):
    app = served(of_minilm(weighed=weighed, words="1"))
    assert app.toggle(key="words").disabled
    close(picture(app), minilm(PAIR).shown(weighed=weighed)[0])


def test_one_text_has_no_pairs():
    app = served(of_minilm(pair="", pairing="AB"))
    assert "From and to" not in [box.label for box in app.selectbox]
    close(picture(app), minilm().shown()[0])
    assert "From and to" in [box.label for box in of_minilm().selectbox]
    assert "Second text" not in [box.label for box in page(text=KING).text_input]


def test_one_layer_has_no_layers_to_pool(tmp_path: Path):
    model = tiny_models.build("gpt2", "eager")
    model.transformer.h = model.transformer.h[:1]
    model.config.n_layer = 1
    path = saved_models.save(tmp_path / "one", model)
    app = served(page(model=path, text="the cat sat on the mat", over="rollout"))
    offered = field(app.selectbox, "Of").options
    assert offered == ["this head", "mean over the layer's heads", "maximum over the layer's heads"]
    assert field(app.selectbox, "Of").value == "head"
    assert any("rollout" in told for told in warnings_of(app)), warnings_of(app)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"over": "mean_heads"}, "two heads that each look at one token look like one head"),
        ({"over": "max_layers"}, "heads are averaged within each layer first"),
        ({"over": "rollout"}, "as if it were all that happens"),
        ({"weighed": "norms"}, "Kobayashi"),
        ({"without": "special"}, "Special tokens are left out and each row divided"),
        ({"words": "1"}, "weights on a key's pieces are added"),
        ({"pairing": "BA"}, "from the second text to the first"),
    ],
)
def test_what_was_made_of_the_weights_is_said(how: dict, told: str):
    assert told in said(served(of_minilm(**how)))


def test_rollout_to_another_text_is_not_offered(tmp_path: Path):
    path = saved_models.save(tmp_path / "t5", "t5")
    app = page(model=path, text="the cat sat", target="king gave key", part="cross", over="rollout")
    served(app)
    assert "“attention rollout” cannot be had under “Of”" in warnings_of(app)[0]
    assert "attention rollout" not in app.selectbox(key="over").options
    assert "matrix_0" in keys_of(app)


def test_a_pinned_head_that_cannot_be_shown_so_leaves_the_open_one(tmp_path: Path):
    path = saved_models.save(tmp_path / "t5", "t5")
    wanted = {"pin": "encoder.0.0", "pin_model": path, "pin_text": "king gave key " * 200}
    app = served(page(model="minilm", text=KING, weighed="norms", **wanted))
    assert "Layer 0, head 0 cannot stand beside it: Lengths of values" in warnings_of(app)[0]
    assert "matrix_0" in keys_of(app)
    assert "matrix_1" not in keys_of(app)


# --- the link


def test_every_choice_is_kept_in_the_link_and_comes_back():
    app = served(of_minilm())
    wanted = {
        "query": "7",
        "key": "4",
        "view": "lines",
        "weighed": "norms",
        "without": "special",
        "words": "1",
        "pairing": "AA",
        "colour": "largest_weight",
        "order": "value",
        "beside": "0.3 2.11",
    }
    app.session_state["fold_compare"] = True
    served(app.run())
    app.multiselect(key="beside_heads").set_value(["0.3", "2.11"])
    for name in ("weighed", "without", "pairing", "query", "key", "colour"):
        fields = {f.key: f for f in app.selectbox}
        fields[name].set_value(int(wanted[name]) if name in ("query", "key") else wanted[name])
    app.toggle(key="words").set_value(True)
    app.button_group(key="view").set_value("lines")
    served(app.run())
    app.selectbox(key="order").set_value("value")
    served(app.run())
    link = dict(app.query_params)
    piece = wanted.pop("query"), wanted.pop("key")
    assert {name: link.get(name) for name in wanted} == wanted
    again = served(page(**link))
    assert dict(again.query_params) == link
    for name in ("weighed", "without", "pairing", "colour", "order"):
        assert again.selectbox(key=name).value == wanted[name]
    assert again.toggle(key="words").value
    assert again.button_group(key="view").value == "lines"
    assert again.multiselect(key="beside_heads").value == ["0.3", "2.11"]
    assert sent(again, "lines_0") == sent(app, "lines_0")
    assert [int(link[axis]) <= int(at) for axis, at in zip(("query", "key"), piece, strict=True)]


NONSENSE = [
    ("view", "hologram"),
    ("weighed", "gold"),
    ("over", "median"),
    ("without", "vowels"),
    ("words", "7"),
    ("pairing", "AC"),
    ("zoom", "-3"),
    ("colour", "nonsense"),
    ("colour", "<b>"),
    ("order", "size"),
    ("beside", "1.2.3"),
    ("pin", "decoder.1"),
    ("layer", "99"),
    ("head", "abc"),
    ("query", "4000"),
    ("key", "4000"),
    ("part", "cross"),
]


@pytest.mark.parametrize(("name", "value"), NONSENSE)
def test_nonsense_in_a_link_gets_a_sentence_and_the_usual_value(name: str, value: str):
    app = served(page(text=KING, **{name: value}))
    told = warnings_of(app)
    assert told, "nothing is said"
    assert all(sentence.endswith(".") for sentence in told)
    assert dict(app.query_params).get(name) != value
    usual = served(page(text=KING))
    np.testing.assert_array_equal(picture(app), picture(usual))
    assert sent(app, "mosaic") == sent(usual, "mosaic")


@pytest.mark.parametrize("name", ["beside", "pin"])
@pytest.mark.parametrize("value", ["0.99", "decoder.0.99", "vision.0.0"])
def test_heads_that_are_not_there_are_told_and_not_drawn(name: str, value: str):
    if name == "beside" and value != "0.99":
        return
    app = page(text=KING, **{name: value})
    assert not app.exception
    told = errors(app) + warnings_of(app)
    assert told or name == "beside"
    assert all(sentence.endswith(".") for sentence in told)
    assert "matrix_0" in keys_of(app)
    assert "matrix_1" not in keys_of(app)


# --- one selection, wherever a token or a head is chosen


def test_a_click_in_the_mosaic_opens_that_head():
    app = served(page(text=KING, layer="0", head="1", query="5", key="2"))
    tell(app, "mosaic", part="decoder", layer=1, head=2)
    assert sent(app, "mosaic_choice")["chosen"] == ["decoder", 1, 2]
    assert app.query_params["layer"], app.query_params["head"] == ("1", "2")
    assert (app.query_params["query"], app.query_params["key"]) == ("5", "2")
    assert field(app.selectbox, "Layer").value == 1
    assert field(app.number_input, "Head").value == 2
    weights = bundled(KING)[1, 2]
    close(np.nan_to_num(picture(app)), np.tril(weights))


def test_a_click_in_the_mosaic_opens_a_head_of_another_part(tmp_path: Path):
    path = saved_models.save(tmp_path / "t5", "t5")
    asked = {"model": path, "text": "the cat sat on the mat", "target": "king gave key"}
    app = served(page(**asked, query="5", key="3"))
    parts = sent(app, "mosaic")["parts"]
    assert [part["part"] for part in parts] == ["encoder", "decoder", "cross"]
    tell(app, "mosaic", part="cross", layer=1, head=2)
    assert app.radio[0].value == "cross"
    assert app.query_params["part"] == "cross"
    assert field(app.selectbox, "Layer").value == 1
    data = sent(app, "matrix_0")
    assert data["queries"]["words"] != data["keys"]["words"]
    tell(app, "mosaic", part="encoder", layer=0, head=3)
    assert app.radio[0].value == "encoder"
    assert field(app.number_input, "Head").value == 3


def test_a_tick_in_the_finder_opens_that_head():
    app = served(page(text=KING, layer="0", head="1"))
    assert not app.dataframe
    app.session_state["fold_finder"] = True
    served(app.run())
    found = app.dataframe[0].value
    layer, head = int(found["layer"][3]), int(found["head"][3])
    chosen = {"selection": {"rows": [3], "columns": [], "cells": []}}
    heard(app, app.dataframe[0].proto.id, string_value=json.dumps(chosen))
    assert sent(app, "mosaic_choice")["chosen"] == ["decoder", layer, head]
    assert field(app.number_input, "Head").value == head


@pytest.mark.parametrize(
    ("form", "key", "message", "expected"),
    [
        ("matrix", "matrix_0", {"query": 6, "key": 2}, ("6", "2")),
        ("lines", "lines_0", {"axis": "query", "position": 6}, ("6", "1")),
        ("lines", "lines_0", {"axis": "key", "position": 3}, ("5", "3")),
        ("text", "text_0", {"position": 6}, ("6", "1")),
    ],
)
def test_a_token_chosen_anywhere_is_chosen_everywhere(
    form: str, key: str, message: dict, expected: tuple[str, str]
):
    app = served(page(text=KING, layer="1", head="2", query="5", key="1", view=form))
    tell(app, key, **message)
    assert (app.query_params["query"], app.query_params["key"]) == expected
    query, at = (int(place) for place in expected)
    assert field(app.selectbox, "Query: the token that looks").value == query
    assert field(app.selectbox, "Key: the token looked at").value == at
    served(app.button_group(key="view").set_value("matrix").run())
    assert sent(app, "matrix_0_choice")["chosen"] == [query, at]
    served(app.button_group(key="view").set_value("lines").run())
    assert sent(app, "lines_0_choice")["chosen"] == {"query": query, "key": at}
    served(app.button_group(key="view").set_value("text").run())
    assert sent(app, "text_0_choice")["chosen"] == query
    close(shades(app)[: query + 1], bundled(KING)[1, 2, query, : query + 1])
    served(app.button_group(key="view").set_value("ranking").run())
    assert sorted(table(app)["key"]) == list(range(query + 1))
    there = served(app.switch_page("pages/one_cell.py").run())
    assert field(there.selectbox, "Query: the token that looks").value == query
    assert field(there.selectbox, "Key: the token looked at").value == at


def test_a_chosen_word_is_the_same_word_without_its_pieces():
    app = served(of_minilm(words="1", query="5", key="5"))
    first = int(app.query_params["query"])
    assert first < 5
    app.toggle(key="words").set_value(False)
    served(app.run())
    assert field(app.selectbox, "Query: the token that looks").value == first


# --- near and far


@pytest.fixture(scope="module")
def far() -> AppTest:
    text, _ = long_text(600)
    return page(text=text, layer="1", head="2", query="401", key="13")


def test_a_long_text_is_shown_here_and_refused_elsewhere(far: AppTest):
    served(far)
    text, n = long_text(600)
    assert f"{n} tokens" in said(far)
    there = page(text=text)
    there = there.switch_page("pages/one_cell.py").run()
    assert not there.exception
    assert f"This text has {n} tokens; this page shows at most 512" in errors(there)[0]
    assert "“Heads”" in errors(there)[0]


def test_a_large_picture_is_the_largest_of_blocks_and_says_so(far: AppTest):
    _, n = long_text(600)
    step = -(-n // views.CELLS)
    data = sent(far, "matrix_0")
    assert data["downsampled"]
    assert data["queries"]["positions"] == list(range(0, n, step))
    assert data["queries"]["last"][-1] == n - 1
    weights = np.tril(bundled(long_text(600)[0])[1, 2])
    expected = np.array(
        [
            [
                weights[row : row + step, column : column + step].max()
                for column in range(0, n, step)
            ]
            for row in range(0, n, step)
        ]
    )
    close(np.nan_to_num(picture(far)), expected)
    assert "largest of its block" in said(far)


def test_a_click_on_a_block_takes_its_largest_weight(far: AppTest):
    text, n = long_text(600)
    app = page(text=text, layer="1", head="2", query="401", key="13")
    step = -(-n // views.CELLS)
    query, key = (place // step * step for place in (590, 100))
    tell(app, "matrix_0", query=query, key=key)
    block = bundled(text)[1, 2, query : query + step, key : key + step]
    down, across = np.unravel_index(block.argmax(), block.shape)
    assert app.query_params["query"] == str(query + down)
    assert app.query_params["key"] == str(key + across)


def test_zoom_shows_windows_and_all_again():
    text, n = long_text(600)
    app = served(page(text=text, layer="1", head="2", query="401", key="13"))
    assert field(app.button, "Zoom out").disabled
    weights = np.tril(bundled(text)[1, 2])
    seen = []
    while not field(app.button, "Zoom in").disabled:
        field(app.button, "Zoom in").click()
        served(app.run())
        data = sent(app, "matrix_0")
        seen.append(len(data["queries"]["words"]) if not data["downsampled"] else n)
        rows, columns = data["queries"]["positions"], data["keys"]["positions"]
        assert app.query_params["zoom"]
        if not data["downsampled"]:
            assert 401 in rows
            assert 13 in columns
            close(np.nan_to_num(picture(app)), weights[np.ix_(rows, columns)])
        assert len(seen) < 12
    assert seen[-1] == 10
    assert seen == sorted(seen, reverse=True)
    field(app.button, "Zoom out").click()
    served(app.run())
    assert len(sent(app, "matrix_0")["queries"]["words"]) > 10
    field(app.button, "All").click()
    served(app.run())
    assert "zoom" not in app.query_params
    assert sent(app, "matrix_0")["queries"]["positions"][0] == 0


@pytest.mark.parametrize("weighed", ["weights", "logits"])
def test_a_window_in_which_all_is_hidden_is_shown_as_such(taken: dict[str, Item], weighed: str):
    text, _ = long_text(600)
    app = served(page(text=text, query="10", key="500", zoom="10", weighed=weighed))
    assert np.isnan(picture(app)).all()
    assert sent(app, "matrix_0")["top"] == 1
    assert as_bytes(taken["SVG"]).startswith(b"<svg")
    served(app.button_group(key="view").set_value("lines").run())


def test_lines_of_a_long_text_are_those_about_the_chosen_tokens():
    text, n = long_text(600)
    app = served(page(text=text, layer="1", head="2", query="401", key="380", view="lines"))
    data = sent(app, "lines_0")
    rows, columns = data["query"]["positions"], data["key"]["positions"]
    assert len(rows) == len(columns) == view_figures.LINED
    assert 401 in rows
    assert 380 in columns
    close(np.nan_to_num(lines(app)[0]), np.tril(bundled(text)[1, 2])[np.ix_(rows, columns)])
    assert f"{view_figures.LINED} tokens about the chosen ones, of {n}" in said(app)


@pytest.mark.parametrize("form", ["text", "ranking"])
def test_text_and_ranking_of_a_long_text_have_the_whole_row(form: str):
    text, n = long_text(600)
    app = served(page(text=text, layer="1", head="2", query="401", view=form))
    row = bundled(text)[1, 2, 401]
    if form == "text":
        close(np.nan_to_num(shades(app)), np.where(np.arange(n) <= 401, row, 0))
    else:
        found = table(app)
        assert len(found) == min(402, view_figures.RANKED)
        close(found["weight"].to_numpy(), row[found["key"]])
        assert found["key"][0] == int(row[:402].argmax())


# --- heads beside


def test_heads_beside_are_drawn_on_the_same_scale():
    app = served(page(text=KING, layer="1", head="2", beside="0.1 1.3"))
    weights = bundled(KING)
    tops = set()
    for at, (layer, head) in enumerate(((1, 2), (0, 1), (1, 3))):
        close(np.nan_to_num(picture(app, at)), np.tril(weights[layer, head]))
        data = sent(app, f"matrix_{at}")
        tops.add(data["top"])
        assert f"layer {layer}, head {head}" in data["label"]
    assert len(tops) == 1
    assert tops.pop() == pytest.approx(
        max(weights[1, 2].max(), weights[0, 1].max(), weights[1, 3].max())
    )
    served(app.button_group(key="view").set_value("lines").run())
    assert [head["name"] for head in sent(app, "lines_0")["heads"]] == [
        f"layer {layer}, head {head}" for layer, head in ((1, 2), (0, 1), (1, 3))
    ]
    close(np.nan_to_num(lines(app)[1]), np.tril(weights[0, 1]))
    for form in ("text", "ranking"):
        served(app.button_group(key="view").set_value(form).run())
        assert "layer 0, head 1" in said(app)
    assert len(app.dataframe) == 3


def test_a_pinned_head_stays_while_another_text_is_read():
    other = "Once upon a time the old wolf was tired."
    app = served(page(text=KING, layer="1", head="2"))
    app.session_state["fold_compare"] = True
    served(app.run())
    field(app.button, "Pin this head").click()
    served(app.run())
    assert app.query_params["pin"] == "decoder.1.2"
    app.text_area[0].set_value(other)
    served(app.run())
    close(np.nan_to_num(picture(app, 0)), np.tril(bundled(other)[1, 2]))
    close(np.nan_to_num(picture(app, 1)), np.tril(bundled(KING)[1, 2]))
    assert sent(app, "matrix_0")["top"] == sent(app, "matrix_1")["top"]
    assert f"on “{KING}”" in said(app)
    served(app.button_group(key="view").set_value("lines").run())
    assert {"lines_0", "lines_1"} <= keys_of(app)
    again = served(page(**dict(app.query_params) | {"view": "matrix"}))
    close(np.nan_to_num(picture(again, 1)), np.tril(bundled(KING)[1, 2]))
    field(again.button, "Let the pinned head go").click()
    served(again.run())
    assert "matrix_1" not in keys_of(again)
    assert not {"pin", "pin_text", "pin_model"} & set(again.query_params)


def test_a_pinned_head_of_another_model_is_named():
    app = served(of_minilm(pair="", pin="decoder.1.2", pin_model="bundled", pin_text=TEXT))
    close(picture(app, 0), minilm().shown()[0])
    close(np.nan_to_num(picture(app, 1)), np.tril(bundled(TEXT)[1, 2]))
    assert "Bundled" in said(app)
    assert sent(app, "matrix_0")["top"] == sent(app, "matrix_1")["top"]
    for form in FORMS[1:]:
        served(app.button_group(key="view").set_value(form).run())


PINS = [
    {"pin": "decoder.7.0"},
    {"pin": "cross.0.0"},
    {"pin": "decoder.0.2", "pin_model": "no/such model"},
    {"pin": "encoder.0.2", "pin_model": "minilm", "pin_text": "word " * 600},
]


@pytest.mark.parametrize("pin", PINS, ids=["layer", "part", "model", "text"])
def test_a_pinned_head_that_is_not_there_gets_a_sentence_and_can_be_let_go(pin: dict):
    app = page(text=KING, **pin)
    assert not app.exception
    (told,) = errors(app)
    assert told.endswith(".")
    close(np.nan_to_num(picture(app)), np.tril(bundled(KING)[0, 2]))
    field(app.button, "Let the pinned head go").click()
    served(app.run())
    assert "pin" not in app.query_params


def test_a_click_in_a_pinned_picture_chooses_as_far_as_there_are_tokens():
    other = f"{KING} {KING}"
    app = served(page(text=KING, query="5", key="2", pin="decoder.1.2", pin_text=other))
    tell(app, "matrix_1", query=8, key=1)
    assert (app.query_params["query"], app.query_params["key"]) == ("8", "1")
    tell(app, "matrix_1", query=15, key=3)
    assert int(app.query_params["query"]) < 10
    assert sent(app, "matrix_0_choice")["chosen"][0] < 10


# --- files


@pytest.mark.parametrize("form", ["matrix", "lines", "ranking"])
def test_every_form_can_be_taken_home(form: str, taken: dict[str, Item]):
    served(of_minilm(view=form, query="5"))
    assert list(taken) == ["PNG", "SVG", "HTML", "CSV", "NPY", "Q, K, V"]
    png, svg, html = (taken[kind].make() for kind in ("PNG", "SVG", "HTML"))
    assert isinstance(png, bytes)
    assert png.startswith(b"\x89PNG")
    for picture_file in (svg, html):
        text = picture_file if isinstance(picture_file, str) else picture_file.decode()
        assert f"L{LAYER}H{HEAD}" in text
        assert "http://" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"weighed": "scores"},
        {"over": "rollout", "without": "special", "words": "1"},
        {"pairing": "AB"},
    ],
    ids=lambda how: "_".join(how) or "bare",
)
def test_numbers_taken_home_are_those_on_screen(how: dict, taken: dict[str, Item]):
    app = served(of_minilm(**how))
    on_screen = picture(app)
    array = np.load(io.BytesIO(as_bytes(taken["NPY"])))
    close(array, on_screen)
    csv = io.BytesIO(as_bytes(taken["CSV"]))
    found = pd.read_csv(csv, comment="#", index_col="query")
    np.testing.assert_allclose(found.to_numpy(float), array, rtol=1e-3, atol=1e-6)
    data = sent(app, "matrix_0")
    for names, axis in ((found.index, data["queries"]), (found.columns, data["keys"])):
        expected = [
            f"{at} {word}" for at, word in zip(axis["positions"], axis["words"], strict=True)
        ]
        assert list(names) == expected


def test_of_a_window_the_whole_head_is_taken_home(taken: dict[str, Item]):
    twice = f"{KING} {KING}"
    app = served(page(text=twice, layer="1", head="2", zoom="10"))
    weights = bundled(twice)[1, 2]
    assert len(weights) > 10
    assert picture(app).shape == (10, 10)
    found = np.load(io.BytesIO(as_bytes(taken["NPY"])))
    np.testing.assert_allclose(np.nan_to_num(found), np.tril(weights), atol=2e-6)


def test_vectors_taken_home_give_the_weights(taken: dict[str, Item]):
    served(page(text=KING, layer="1", head="2"))
    vectors = load(as_bytes(taken["Q, K, V"]))
    logits = (vectors["query"] @ vectors["key"].mT).numpy() / 32**0.5
    logits[np.triu(np.ones_like(logits, dtype=bool), 1)] = -np.inf
    exponentials = np.exp(logits)
    weights = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(weights, bundled(KING)[1, 2], atol=1e-5)


def test_names_of_files_tell_what_was_made_of_the_weights(taken: dict[str, Item]):
    served(page(text=KING))
    bare = taken["CSV"].file_name
    names = {bare}
    for how in ({"weighed": "scores"}, {"over": "rollout"}, {"without": "first"}, {"words": "1"}):
        served(page(text=KING, **how))
        names.add(taken["CSV"].file_name)
    assert len(names) == 5


# --- texts of every kind

TEXTS = {
    "accents and a line break": "Seán\n  done",
    "Greek and Chinese": "Γεια, 这是一句中文",
    "emoji": "po(💩) 👩‍👩‍👧",
    "equal words": "the cat the dog the",
    "tabs": "a\tb\n\n\tc",
    "from right to left": "שלום עולם مرحبا بالعالم",
    "signs of Markdown and HTML": "<b>it</b> $x$ :) `code` [a](b) *c*",
    "two hundred equal words": "the " * 199 + "the",
}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *(("bundled", text) for text in TEXTS.values()),
        *(("minilm", TEXTS[name]) for name in ("emoji", "tabs", "two hundred equal words")),
    ],
    ids=[*TEXTS, "emoji for WordPiece", "tabs for WordPiece", "many for WordPiece"],
)
def test_labels_are_those_of_the_tokens_in_each_form(model: str, text: str):
    if model == "minilm":
        minilm()
    reading = readings.served(Asked(model, text), None)
    call = reading.capture.calls[0]
    labels = list(reading.queries(call).labels)
    assert "\ufffd" not in "".join(labels)
    places = list(range(len(labels)))
    app = served(page(model=model, text=text))
    data = sent(app, "matrix_0")
    assert data["queries"]["words"] == data["keys"]["words"] == labels
    assert data["queries"]["positions"] == data["keys"]["positions"] == places
    served(app.button_group(key="view").set_value("lines").run())
    data = sent(app, "lines_0")
    shown = len(data["key"]["words"])
    assert shown == min(len(labels), view_figures.LINED)
    at = data["key"]["positions"]
    assert data["key"]["words"] == [labels[place] for place in at]
    served(app.button_group(key="view").set_value("text").run())
    tokens = sent(app, "text_0")["tokens"]
    assert (tokens["words"], tokens["positions"]) == (labels, places)
    served(app.button_group(key="view").set_value("ranking").run())
    found = table(app)
    assert found["token"].tolist() == [labels[key] for key in found["key"]]
    assert found["key"].is_unique


def test_words_of_equal_words_stay_apart():
    app = served(of_minilm(text="the cat the dog the", pair="", words="1"))
    assert sent(app, "matrix_0")["keys"]["words"] == [
        *("[CLS]", "the", "cat", "the", "dog", "the", "[SEP]")
    ]


# --- the overview


def test_the_overview_is_coloured_and_ordered_as_asked():
    app = served(page(text=KING))
    for option in app.selectbox(key="colour").options[1:]:
        app.selectbox(key="colour").select(option)
        served(app.run())
        assert app.query_params["colour"]
        app.selectbox(key="order").set_value("value")
        served(app.run())
        order = sent(app, "mosaic")["parts"][0]["order"]
        assert sorted(order) == list(range(8))
    app.selectbox(key="colour").set_value("pattern")
    served(app.run())
    assert "order" not in app.query_params
    assert sent(app, "mosaic")["parts"][0]["order"] is None


@pytest.mark.parametrize("query", [431, 433])
def test_forms_of_a_row_are_of_the_chosen_query_where_the_matrix_is_in_blocks(query: int):
    text, n = long_text(440)
    assert 300 < n <= 512
    weights = bundled(text)[1, 2, query]
    asked = {"text": text, "layer": "1", "head": "2", "query": str(query)}
    ranked = table(served(page(view="ranking", **asked)))
    assert ranked["key"][0] == int(weights.argmax())
    assert ranked["weight"][0] == pytest.approx(float(weights.max()), abs=1e-5)
    app = served(page(view="text", **asked))
    assert sent(app, "text_0_choice")["chosen"] == query
    close(np.nan_to_num(shades(app)), weights)


def test_positions_are_whole_numbers():
    columns = look.columns(pd.DataFrame({"key": [3371], "weight": [0.12345], "token": ["a"]}))
    assert columns["key"]["type_config"]["format"] == "%d"
    assert columns["weight"]["type_config"]["format"] == "%.3g"


def test_the_caption_of_what_is_pooled_names_no_head():
    app = served(page(text=KING, over="rollout"))
    assert "attention rollout over all layers" in captions(app)
    assert "head 2" not in next(line for line in captions(app).splitlines() if "rollout" in line)


def test_heads_of_a_link_that_are_not_there_are_told():
    app = served(page(text=KING, layer="0", head="2", beside="0.0 1.3 7.7 0.0"))
    assert "no head 7.7" in warnings_of(app)[0]
    assert app.multiselect(key="beside_heads").value == ["0.0", "1.3"]
    assert {"matrix_0", "matrix_1", "matrix_2"} <= keys_of(app)
    assert "matrix_3" not in keys_of(app)


def captions(app: AppTest) -> str:
    return "\n".join(one.value.replace("\\", "") for one in app.caption)


def test_all_heads_of_a_long_text_are_worked_out_when_asked_for(far: AppTest):
    assert "mosaic" not in keys_of(far)
    far.session_state["fold_long_overview"] = True
    served(far.run())
    assert "mosaic" in keys_of(far)
    assert reference.SENTENCE.strip() in far.text_area[0].value


def test_a_model_that_cannot_be_read_is_a_sentence(tmp_path: Path):
    app = page(model=saved_models.save(tmp_path / "mamba", "mamba"))
    assert not app.exception
    assert errors(app)
    assert not keys_of(app)
