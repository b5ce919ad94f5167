"""Frames of many heads, against scores written down by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch

from attnviz.finder import Scores
from attnviz.head_frames import found_heads, heads_of_kind


def scores(*score: float, even: float = 0.1, moved: float = 0.2, offset=None) -> Scores:
    places = None if offset is None else torch.tensor(offset)
    return Scores(torch.tensor(score), even, torch.full((20,), moved), 7, places)


def layers(*of_previous: tuple[float, ...], even: float = 0.1) -> dict[int, dict[str, Scores]]:
    """Layers 1, 3, … of two heads each."""
    return {
        2 * place + 1: {
            "previous token": scores(*of, even=even + place / 10),
            "fixed offset": scores(*of, even=0.5, offset=[-1, 2]),
        }
        for place, of in enumerate(of_previous)
    }


@pytest.fixture
def table() -> pd.DataFrame:
    on_text = layers((0.1, 0.9), (0.6, 0.25))
    drawn = [layers((0.2, 0.8), (0.4, 0.1)), layers((0.4, 0.6), (0.4, 0.1))]
    return found_heads(on_text, drawn)


def test_one_row_for_each_head_with_all_that_is_known_of_it(table: pd.DataFrame):
    assert list(table["layer"]) == [1, 1, 3, 3]
    assert list(table["head"]) == [0, 1, 0, 1]
    assert list(table["previous token, text"]) == pytest.approx([0.1, 0.9, 0.6, 0.25])
    assert list(table["previous token, even"]) == pytest.approx([0.1, 0.1, 0.2, 0.2])
    assert list(table["previous token, repeats"]) == pytest.approx([0.3, 0.7, 0.4, 0.1])
    spread = math.sqrt(2 * 0.1**2 / 1)  # of two draws, 0.1 from their mean each
    expected = [spread, spread, 0, 0]
    assert list(table["previous token, spread"]) == pytest.approx(expected, abs=1e-7)
    assert list(table["fixed offset, offset"]) == [-1, 2, -1, 2]


def test_heads_are_called_by_what_stands_out(table: pd.DataFrame):
    assert list(table["kind"]) == ["", *["previous token"] * 3]
    assert table["score"][1:].to_list() == pytest.approx([0.9, 0.6, 0.25])
    assert math.isnan(table["score"][0])


def test_the_best_come_first(table: pd.DataFrame):
    best = heads_of_kind(table, "previous token")
    assert best[["layer", "head"]].to_numpy().tolist() == [[1, 1], [3, 0], [3, 1], [1, 0]]
    assert list(best.columns) == [
        "layer",
        "head",
        "on this text",
        "on random tokens",
        "± over draws",
        "even weights",
        "stands out as",
    ]
    assert "distance" in heads_of_kind(table, "fixed offset")


def test_where_the_text_tells_nothing_repeats_decide():
    nothing = {1: {"induction": scores(math.nan, math.nan, even=math.nan, moved=math.nan)}}
    table = found_heads(nothing, [{1: {"induction": scores(0.3, 0.8)}}])
    best = heads_of_kind(table, "induction")
    assert list(best["head"]) == [1, 0]
    assert best["on this text"].isna().all()
    assert best["± over draws"].isna().all()  # of one draw


def test_without_repeats_there_are_no_columns_for_them():
    best = heads_of_kind(found_heads(layers((0.1, 0.9)), []), "previous token")
    assert list(best.columns) == ["layer", "head", "on this text", "even weights", "stands out as"]
