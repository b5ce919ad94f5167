"""All heads of a reading: the same numbers as call by call, layers kept, a bar that goes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import saved_models
from streamlit.delta_generator import DeltaGenerator
from streamlit.testing.v1 import AppTest

from attnviz import call_statistics, thumbnails
from attnviz.ui import overview
from attnviz.ui.readings import Asked, served

TEXT = "The cat sat on the mat because it was tired"


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """An encoder with a decoder: three parts."""
    return Asked(saved_models.save(tmp_path / "t5", "t5"), TEXT, target="the king was tired")


def test_every_field_of_the_statistics_has_a_name():
    named = {one.field for one in overview.STATISTICS.values()}
    assert named == {field.name for field in fields(call_statistics.CallStatistics)}


def test_heads_are_those_of_each_call(asked: Asked):
    reading = served(asked)
    parts = overview.overview(asked)
    assert tuple(part.part for part in parts) == reading.parts == ("encoder", "decoder", "cross")
    side = thumbnails.side_for(sum(call.heads for call in reading.capture.calls))
    for part in parts:
        calls = reading.calls(part.part)
        assert list(part.thumbnails) == list(calls) == part.layers
        for layer, call in calls.items():
            own = thumbnails.thumbnails(call, side).numpy()
            np.testing.assert_array_equal(part.thumbnails[layer], own)
            rows = part.table[part.table["layer"] == layer]
            assert rows["head"].tolist() == list(range(call.heads))
            assert rows["kv_head"].tolist() == [call.kv_head(h) for h in range(call.heads)]
            found = call_statistics.of_all_heads(call)
            told = rows["effective number of keys"].to_numpy()
            np.testing.assert_allclose(told, found.effective_keys.numpy(), rtol=1e-6)


def test_neighbours_are_told_only_of_one_text(asked: Asked):
    encoder, _, cross = overview.overview(asked)
    assert encoder.table["weight on the previous token"].notna().all()
    assert cross.table["weight on the previous token"].isna().all()
    assert cross.table["entropy, relative to uniform"].notna().all()
    assert "weight on itself" in overview.statistics((encoder, cross))
    assert "weight on itself" not in overview.statistics((cross,))
    assert "share of the learned sink" not in overview.statistics((encoder, cross))


def test_a_layer_is_worked_out_once(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    overview.overview(asked)
    monkeypatch.setattr(thumbnails, "thumbnails", lambda call, side: pytest.fail("again"))
    overview.overview(asked)


def test_a_layer_that_was_worked_out_stays(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    """Leaving halfway: the layers before are there when the visitor comes back."""
    of_call, seen = thumbnails.thumbnails, []

    def until_left(call, side):
        seen.append(call)
        if len(seen) == 3:
            raise InterruptedError
        return of_call(call, side)

    monkeypatch.setattr(thumbnails, "thumbnails", until_left)
    with pytest.raises(InterruptedError):
        overview.overview(asked)
    overview.overview(asked)
    assert len(seen) == 1 + len(served(asked).capture.calls)


def _page() -> None:
    import streamlit as st

    from attnviz.ui import overview
    from attnviz.ui.readings import Asked

    overview.overview(Asked("bundled", st.session_state["text"]))


@pytest.mark.parametrize("patience", [-1.0, 99.0])
def test_the_bar_is_gone_at_the_end(patience: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overview, "PATIENCE", patience)
    bars, progress = [], DeltaGenerator.progress

    def drawn(place: DeltaGenerator, share: float, text: str) -> DeltaGenerator:
        bars.append((share, text))
        return progress(place, share, text)

    monkeypatch.setattr(DeltaGenerator, "progress", drawn)
    app = AppTest.from_function(_page)
    app.session_state["text"] = f"Once upon a time {patience}"
    app.run()
    assert not app.exception
    assert [element.type for element in app.main] == ["main", "empty"]
    assert bool(bars) == (patience < 0)
    if bars:
        shares = [share for share, _ in bars]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] < 1
        assert bars[0][1] == "Layer 0, decoder: tokens among themselves"
