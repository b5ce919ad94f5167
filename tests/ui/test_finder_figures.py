"""The finder on a page of its own: all kinds, for models of every sort; a row opens its head."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import saved_models
import streamlit as st
from streamlit.testing.v1 import AppTest

from attnviz import finder as scoring
from attnviz.ui import finder as finding
from attnviz.ui import finder_figures
from attnviz.ui.readings import Asked, served

TEXT = "the cat sat on the mat because the cat was tired ."


def page(model: str, text: str, picture: str, part: str) -> None:
    from attnviz.ui.finder_figures import finder
    from attnviz.ui.readings import Asked, served

    asked = Asked(model, text, picture=picture)
    finder(asked, served(asked), part, lambda layer, head: None)


def opened(model: str, part: str, text: str = TEXT, picture: str = "") -> AppTest:
    arguments = {"model": model, "text": text, "picture": picture, "part": part}
    app = AppTest.from_function(page, default_timeout=60, kwargs=arguments).run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    words = " ".join(element.value for element in [*app.markdown, *app.caption])
    return words.replace("\\", "")


def test_every_kind_of_the_bundled_model_is_told():
    app = opened("bundled", "decoder")
    for kind in [option.split(":")[0] for option in app.selectbox[0].options]:
        app.selectbox[0].set_value(kind).run()
        assert not app.exception
        assert len(app.dataframe[0].value) == 8
        assert "nan" not in said(app)


def test_the_table_begins_with_the_best_head():
    app = opened("bundled", "decoder")
    app.selectbox[0].set_value("induction").run()
    table = app.dataframe[0].value
    assert table["on this text"].is_monotonic_decreasing
    assert table["on random tokens"].nlargest(3).min() > 0.6
    assert set(table["layer"][table["on random tokens"] > 0.6]) == {1}
    assert "5 draws of 50 tokens" in said(app)


@pytest.mark.parametrize(
    ("family", "part", "picture", "kinds"),
    [
        ("bert", "encoder", "", 10),
        ("t5", "decoder", "", 10),
        ("t5", "cross", "", 4),
        ("vit", "vision", "ball", 3),
        ("clip", "text", "ball", 10),
        ("clip", "vision", "ball", 3),
        ("jamba", "decoder", "", 10),
        ("bloom", "decoder", "", 10),
    ],
)
def test_models_of_every_sort(tmp_path: Path, family: str, part: str, picture: str, kinds: int):
    from attnviz.ui.drawings import DRAWINGS

    model = saved_models.save(tmp_path / family, family, text=family != "vit")
    drawing = next(iter(DRAWINGS)) if picture else ""
    app = opened(model, part, picture=drawing, text="" if family == "vit" else TEXT)
    assert len(app.selectbox[0].options) == kinds
    for kind in [option.split(":")[0] for option in app.selectbox[0].options]:
        app.selectbox[0].set_value(kind).run()
        assert not app.exception
        assert "nan" not in said(app)
    assert ("on random tokens" in app.dataframe[0].value) == (part != "vision")


def test_a_text_in_which_nothing_comes_twice_says_so():
    app = opened("bundled", "decoder", text="The cat sat there.")
    app.selectbox[0].set_value("duplicate token").run()
    assert "No token comes twice." in said(app)
    assert app.dataframe[0].value["on this text"].isna().all()


def test_a_chosen_row_opens_its_head(monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[int, int]] = []
    state = {"heads": SimpleNamespace(selection=SimpleNamespace(rows=[1]))}
    monkeypatch.setattr(st, "session_state", state)
    finder_figures._open("heads", [(0, 2), (1, 3)], lambda *place: told.append(place))
    assert told == [(1, 3)]
    state["heads"].selection.rows = []  # the row is no longer chosen
    finder_figures._open("heads", [(0, 2), (1, 3)], lambda *place: told.append(place))
    assert told == [(1, 3)]


def test_what_was_scored_is_kept_when_a_visitor_leaves(monkeypatch: pytest.MonkeyPatch):
    asked = Asked("bundled", "The king gave the key to the king.")
    reading, scored = served(asked), []
    of_layer = scoring.of_layer

    def counted(reading, part, layer):
        scored.append(layer)
        return of_layer(reading, part, layer)

    monkeypatch.setattr(scoring, "of_layer", counted)
    finding._layer.clear()
    finding._repeats.clear()
    finding._together.clear()

    class LeftError(Exception):
        pass

    def leave(share: float, doing: str) -> None:
        if share > 0.5:
            raise LeftError

    with pytest.raises(LeftError):
        finding.found(asked, reading, "decoder", leave)
    before = len(scored)
    assert before >= 2
    shares: list[float] = []
    found = finding.found(asked, reading, "decoder", lambda share, doing: shares.append(share))
    assert len(scored) == 2 * 6  # two layers, on the text and on five draws: nothing twice
    assert len(scored) > before
    assert shares == pytest.approx([step / 7 for step in range(7)])
    assert (found.draws, found.repeated) == (5, 50)
    again = Asked("bundled", "The queen gave the key to the queen.")
    finding.found(again, served(again), "decoder", lambda share, doing: None)
    assert len(scored) == 2 * 6 + 2  # random tokens are the same, whatever the text
