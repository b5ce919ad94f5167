"""Frames of changes against the effects that they were made of."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from attnviz import surgery_frames as frames
from attnviz.outcome import Effect

NOTHING = Effect("not", None, None, None, None, None, ())


def losses(count: int) -> Effect:
    """The first token has none; before it is the place, after twice as much."""
    before = torch.arange(count, dtype=torch.float32)
    before[0] = math.nan
    return replace(NOTHING, predicted="from before", losses=(before, 2 * before))


def test_points_stand_by_factor_with_what_they_cost():
    points = [(5.5, "1", 4.0), (1.0, "√d_k", 2.5), (0.0, "", 7.0)]
    table = frames.against_factor(points, 2.5)
    assert table["factor"].tolist() == [0.0, 1.0, 5.5]
    assert table["divisor"].tolist() == ["", "√d_k", "1"]
    assert table["difference"].tolist() == [4.5, 0.0, 1.5]
    assert "difference" not in frames.against_factor(points)


def test_each_token_has_its_loss():
    table = frames.of_tokens(losses(5), list("abcde"))
    assert table["token"].tolist() == list("abcde")
    assert table["place"].tolist() == table["last"].tolist() == [0, 1, 2, 3, 4]
    assert table["before"].tolist() == pytest.approx([math.nan, 1, 2, 3, 4], nan_ok=True)
    assert table["after"].tolist() == pytest.approx([math.nan, 2, 4, 6, 8], nan_ok=True)


def test_of_a_long_text_neighbours_stand_together():
    """307 tokens in threes; the first three are 1 and 2, since 0 has none, the last one alone."""
    table = frames.of_tokens(losses(307), [str(at) for at in range(307)])
    assert len(table) == 103
    assert table.iloc[0].tolist() == [0, 2, "0 …", 1.5, 3.0]
    assert table.iloc[1].tolist() == [3, 5, "3 …", 4.0, 8.0]
    assert table.iloc[-1].tolist() == [306, 306, "306 …", 306.0, 612.0]


def test_vectors_have_only_how_far_they_went():
    moved = replace(NOTHING, moved=torch.tensor([0.5, 0.25]), change=0.4)
    table = frames.of_tokens(moved, ["a", "b"])
    assert table["after"].tolist() == [0.5, 0.25]
    assert "before" not in table
    assert frames.of_tokens(NOTHING, []) is None


def test_next_tokens_keep_their_order():
    given = ((7, 0.5, 0.1), (3, 0.2, 0.3))
    table = frames.next_tokens(replace(NOTHING, next_tokens=given), ["sea", "sun"])
    expected = {"row": [0, 1], "id": [7, 3], "token": ["sea", "sun"]}
    numbers = {"before": [0.5, 0.2], "after": [0.1, 0.3]}
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected | numbers))
    assert frames.next_tokens(NOTHING, []).empty
