"""Bars of a row: the strongest keys by name and number, the rest added up."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import vl_convert
from rendered import Rendered

from attnviz.charts import theme
from attnviz.charts.ranking import ranking


def row(count: int) -> pd.DataFrame:
    """Seeded softmax weights of so many keys, which all but the first are the same word."""
    exponentials = np.exp(np.random.default_rng(count).normal(0, 2, count))
    tokens = ["[CLS]", *["␣the"] * (count - 1)]
    return pd.DataFrame(
        {"key": range(count), "token": tokens, "weight": exponentials / exponentials.sum()}
    )


def test_bars_stand_in_order_and_are_as_long_as_their_weights():
    frame = row(7)
    rendered = Rendered(ranking(frame).to_dict(), theme.RANKING_WIDTH)
    expected = frame.sort_values("weight", ascending=False)
    bars = rendered.rects(0)
    assert [bar.width for bar in bars] == pytest.approx(
        (expected["weight"] / expected["weight"].max() * theme.RANKING_WIDTH).tolist(), abs=0.01
    )
    assert np.diff([bar.top for bar in bars]).min() > 20
    labels = rendered.labels()
    assert [x.words for x in labels] == [f"{r.key} {r.token}" for r in expected.itertuples()]
    numbers = rendered.texts(1)
    assert [float(x.words) for x in numbers] == pytest.approx(expected["weight"].tolist(), rel=5e-3)
    for bar, label, number in zip(bars, labels, numbers, strict=True):
        assert abs(bar.middle_y - label.y) < 6
        assert number.x > bar.left + bar.width
    assert {bar.looks["fill"] for bar in bars} == {theme.REAL}


@pytest.mark.parametrize(("count", "bars"), [(1, 1), (20, 20), (21, 20), (131, 20)])
def test_at_most_twenty_bars_and_they_are_all_of_the_row(count: int, bars: int):
    spec = ranking(row(count)).to_dict()
    (drawn,) = spec["datasets"].values()
    assert len(drawn) == bars
    assert sum(bar["value"] for bar in drawn) == pytest.approx(1)
    others = [bar for bar in drawn if bar["others"]]
    assert len(others) == (count > 20)
    if others:
        assert drawn[-1] is others[0]
        assert others[0]["label"] == f"{count - 19} others"
        rest = row(count)["weight"].sort_values(ascending=False).iloc[19:]
        assert others[0]["value"] == pytest.approx(rest.sum())
        pale = [bar.looks.get("opacity") for bar in Rendered(spec, theme.RANKING_WIDTH).rects(0)]
        assert [float(x or 1) for x in pale] == [1.0] * 19 + [theme.PALE]


def test_two_hundred_equal_words_stay_apart():
    labels = Rendered(ranking(row(200)).to_dict(), theme.RANKING_WIDTH).labels()
    assert len({label.words for label in labels}) == len({label.y for label in labels}) == 20


def test_a_hidden_key_has_no_bar_and_signed_numbers_have_their_sign():
    frame = pd.DataFrame({"key": [0, 1, 2], "token": ["a", "b", "c"], "score": [-2.5, np.nan, 4.0]})
    rendered = Rendered(ranking(frame, "score").to_dict(), theme.RANKING_WIDTH)
    assert [label.words for label in rendered.labels()] == ["2 c", "0 a"]
    assert [text.words for text in rendered.texts(1)] == ["4", "−2.5"]
    right, left = rendered.rects(0)
    assert right.left == pytest.approx(left.left + abs(left.width), abs=0.01) or left.width < 0
    assert "score" in rendered.words()


def test_nothing_to_rank_is_drawn_as_nothing():
    assert Rendered(ranking(row(3).iloc[:0]).to_dict(), theme.RANKING_WIDTH).rects(0) == []


def test_words_that_look_like_code_are_only_words():
    frame = row(3).assign(token=["<b>it</b>", "'];alert(1)", "شيء"])
    labels = {x.words for x in Rendered(ranking(frame).to_dict(), theme.RANKING_WIDTH).labels()}
    assert labels == {"0 <b>it</b>", "1 '];alert(1)", "2 شيء"}


def test_it_is_a_picture_of_its_own():
    assert len(vl_convert.vegalite_to_png(ranking(row(23)).to_dict())) > 5000
