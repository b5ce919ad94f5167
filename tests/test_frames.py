"""Frames hold the numbers that went in, under the names that charts use."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import frames, synthetic

WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.1, 0.4]])


def test_weight_matrix_has_queries_down_and_keys_across():
    matrix = frames.weight_matrix(WEIGHTS)
    assert (matrix.index.name, matrix.columns.name) == ("query", "key")
    assert matrix.loc[1, 0] == 0.25


def test_pairs_beyond_the_drawn_range_are_not_spread_over_it():
    scores = torch.tensor([0.5, -0.5, 0.5, 99.0], dtype=torch.float64)
    bins = frames.score_histogram(scores, 1)
    part = bins[bins["quantity"] == "q·k"]
    assert (part["density"] * (part["right"] - part["left"])).sum() == pytest.approx(0.75)


def test_equal_words_stay_apart():
    axis = frames.token_axis(["the", "cat", "the"])
    assert axis["position"].tolist() == [0, 1, 2]
    assert axis["token"].tolist() == ["the", "cat", "the"]


def test_weight_table_has_the_most_weight_first_and_no_hidden_key():
    tokens = frames.token_axis(["a", "b", "a"])
    table = frames.weight_table(frames.weight_matrix(WEIGHTS), 2, tokens)
    assert table["key"].tolist() == [0, 2, 1]
    assert table["token"].tolist() == ["a", "a", "b"]
    assert table["weight"].tolist() == pytest.approx([0.5, 0.4, 0.1])
    assert len(frames.weight_table(frames.weight_matrix(WEIGHTS), 1, tokens)) == 2


def test_score_histogram_is_a_density_beside_its_prediction():
    scores = synthetic.sample_scores(9, 1, 20_000, seed=2)[:, 0]
    bins = frames.score_histogram(scores, 9)
    for quantity, deviation in (("q·k", 3.0), ("q·k / √d_k", 1.0)):
        part = bins[bins["quantity"] == quantity]
        width = part["right"] - part["left"]
        assert (part["density"] * width).sum() == pytest.approx(1, abs=1e-3)  # few lie beyond
        middle = (part["right"] + part["left"]) / 2
        peak = part.loc[middle.abs().idxmin(), "predicted"]
        assert peak == pytest.approx(1 / (2 * np.pi) ** 0.5 / deviation, rel=0.01)
        assert part["right"].max() == pytest.approx(4 * deviation)


def test_variance_curve_has_each_d_k_and_divisor_once():
    curve = frames.variance_curve([1, 5, 32], pairs=2000, seed=3)
    assert len(curve) == 12
    row = curve[(curve["d_k"] == 5) & (curve["divisor"] == "d_k²")].iloc[0]
    assert row["predicted"] == pytest.approx(5 / 5**4)
    within = (curve["variance"] - curve["predicted"]).abs() / curve["standard_error"]
    assert within.max() < 4.5
    assert curve[curve["d_k"] == 1]["variance"].nunique() == 1


def test_softmax_rows_share_one_draw():
    scores = torch.tensor([4.0, 0.0, 0.0], dtype=torch.float64)
    rows = frames.softmax_rows(scores, d_k=4)
    largest = rows.groupby("divisor", sort=False)["largest"].first()
    expected = {name: np.exp(x) / (np.exp(x) + 2) for name, x in
                {"1": 4.0, "√d_k": 2.0, "d_k": 1.0, "d_k²": 0.25}.items()}  # fmt: skip
    assert largest.to_dict() == pytest.approx(expected)
    assert rows.groupby("divisor")["weight"].sum().tolist() == pytest.approx([1.0] * 4)


def test_head_statistics_of_a_text_too_short_are_nan_and_no_error():
    alone = frames.head_statistics(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))
    assert alone["mean over queries"].isna().any()


def test_head_marks_are_a_row_for_scores_and_one_for_logits():
    marks = frames.head_marks(32, 86.0, 2.7)
    assert marks.set_index("quantity")["variance"].to_dict() == {"scores": 86.0, "logits": 2.7}
    assert set(marks["d_k"]) == {32}
