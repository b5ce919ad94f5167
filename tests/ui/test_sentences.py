"""Sentences are made from the numbers that they speak of."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from attnviz.ui import sentences
from attnviz.ui.look import plain
from attnviz.ui.readings import Draw, Head


def head(**changes) -> Head:
    matrix = pd.DataFrame([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.2, 0.7, 0.1]])
    tokens = pd.DataFrame({"position": range(3), "token": ["<|bos|>", "␣cat", "␣it"]})
    fields = {
        "title": "Tiny",
        "layer": 1,
        "head": 2,
        "n": 3,
        "d_k": 32,
        "scale": 32**-0.5,
        "max_error": 2.4e-7,
        "recording_difference": 0.0,
        "matrix": matrix,
        "visible": matrix.notna() & np.tri(3, dtype=bool),
        "tokens": tokens,
        "statistics": pd.DataFrame(),
        "score_variance": 86.4,
        "logit_variance": 2.7,
    }
    return Head(**(fields | changes))


def test_headline_names_query_key_and_weight():
    assert sentences.headline(head(), 2) == "“it” looks most at “cat”: 0.70 of its attention"


def test_column_is_averaged_over_those_that_see_it():
    told = sentences.against_the_column(head(), 2)
    assert "“cat” gets 0.65 on average over all tokens that can see it (2)" in told


def test_a_key_that_is_seen_but_gets_nothing_counts():
    matrix = head().matrix.copy()
    matrix.loc[1, 1] = 0.0
    told = sentences.against_the_column(head(matrix=matrix), 2)
    assert "gets 0.35 on average over all tokens that can see it (2)" in told


def test_small_weights_keep_two_digits():
    assert [sentences.weight(w) for w in (0.7123, 0.01, 0.00234, 0.0)] == [
        "0.71",
        "0.01",
        "0.0023",
        "0.00",
    ]


def test_no_tick_where_recording_changes_the_model():
    assert sentences.badge(head()).startswith("✓")
    for difference in (1e-3, math.nan):
        assert sentences.badge(head(recording_difference=difference)).startswith("✗ not verified")


@pytest.mark.parametrize(
    ("scale", "words"),
    [(32**-0.5, "divides by √32"), (1.0, "does not divide"), (1 / 32, "multiplies by 0.03125")],
)
def test_scale_is_named_as_it_is(scale: float, words: str):
    assert words in sentences.scale(head(scale=scale))


def test_caption_has_its_parts_in_order():
    caption = sentences.head_caption(head())
    parts = ["real", "Tiny", "layer 1, head 2", "n = 3", "d_k = 32", "√32", "2e-07"]
    places = [caption.index(part) for part in parts]
    assert places == sorted(places)


def test_variance_is_compared_with_d_k():
    assert "variance 86 within a row, not d_k = 32" in sentences.why_not_d_k(head())
    assert "close to d_k = 32" in sentences.why_not_d_k(head(score_variance=31.0))
    assert "no variance" in sentences.why_not_d_k(head(score_variance=math.nan))


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (31.67, 0.71, "31.67 ± 0.71"),
        (1.0113, 0.0234, "1.011 ± 0.023"),
        (1030.17, 23.0, "1030 ± 23"),
        (0.5, 0.0, "0.50 ± 0.00"),
    ],
)
def test_digits_follow_the_error(value: float, error: float, said: str):
    assert sentences.with_error(value, error) == said


def test_measured_says_what_was_predicted():
    frame = pd.DataFrame()
    draw = Draw(16, 4, 7, frame, frame, before=(15.9, 0.38), after=(0.994, 0.024))
    before, after = sentences.measured(draw)
    assert "15.90 ± 0.38" in before
    assert "predicted 16" in before
    assert "q·k / √16" in after
    assert "predicted 1" in after


@pytest.mark.parametrize(
    ("name", "said"), [("1", "÷ 1"), ("√d_k", "÷ √32"), ("d_k", "÷ 32"), ("d_k²", "÷ 1,024")]
)
def test_divisor_is_filled_in(name: str, said: str):
    assert sentences.divisor_value(name, 32) == said


def test_markdown_shows_any_token_as_it_is():
    assert plain("$x$ :) *a* <b> [l](u)") == r"\$x\$ \:\) \*a\* \<b\> \[l\]\(u\)"
    for text in ("http://a.example", "www.a.example", "a -> b", "a --> b"):
        assert plain(text).replace("\\", "").replace("\u2060", "") == text
        assert "\u2060" in plain(text)


def test_figures_near_a_hundred_have_no_exponent():
    assert [sentences.figure(x) for x in (99.4, 99.5, 1234.0, 2.71)] == [
        "99",
        "100",
        "1,234",
        "2.7",
    ]
