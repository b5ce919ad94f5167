"""Frames hold the numbers that went in, under the names that charts use."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import frames, synthetic
from attnviz.anatomy import Heads, LayerAnatomy, Scale

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


def test_row_table_has_the_most_weight_first_and_no_hidden_key():
    keys = frames.token_axis(["a", "b", "a"])
    matrix = frames.weight_matrix(WEIGHTS)
    visible = frames.visible_matrix(torch.ones(3, 3).tril().bool())
    terms = {"score": torch.tensor([3.0, -1.0, 2.0]), "logit": torch.tensor([1.5, -0.5, 1.0])}
    table = frames.row_table(terms, matrix.loc[2], visible.loc[2], keys)
    assert list(table.columns) == ["key", "token", "weight", "logit", "score"]
    assert table["key"].tolist() == [0, 2, 1]
    assert table["token"].tolist() == ["a", "a", "b"]
    assert table["weight"].tolist() == pytest.approx([0.5, 0.4, 0.1])
    assert table["score"].tolist() == [3.0, 2.0, -1.0]
    assert len(frames.row_table(terms, matrix.loc[1], visible.loc[1], keys)) == 2


def test_terms_stay_with_their_keys_when_the_first_is_hidden():
    keys = frames.token_axis(["a", "b", "c"]).iloc[1:]
    rest = frames.without_first_key(frames.weight_matrix(WEIGHTS))
    visible = frames.visible_matrix(torch.ones(3, 3, dtype=torch.bool)).iloc[:, 1:]
    terms = {"score": torch.tensor([3.0, -1.0, 2.0])}
    table = frames.row_table(terms, rest.loc[2], visible.loc[2], keys)
    assert table[["key", "token", "score"]].to_numpy().tolist() == [[2, "c", 2.0], [1, "b", -1.0]]
    assert table["weight"].tolist() == pytest.approx([0.8, 0.2])


def test_without_the_first_key_rows_are_divided_by_what_is_left():
    rest = frames.without_first_key(frames.weight_matrix(WEIGHTS))
    assert rest.loc[2].to_dict() == pytest.approx({1: 0.2, 2: 0.8})
    assert rest.loc[1].to_dict() == pytest.approx({1: 1.0, 2: 0.0})
    assert rest.loc[0].tolist() == [0.0, 0.0]  # nothing was left


def test_patch_weights_leave_special_tokens_out():
    keys = frames.token_axis(["[CLS]", "[REG0]", *"abcdef"], [True, True, *[False] * 6])
    weights = frames.weight_matrix(torch.arange(8.0)[None] / 28).loc[0]
    patches = frames.patch_weights(weights, keys, (2, 3))
    assert patches["patch"].tolist() == list("abcdef")
    assert patches[["row", "column"]].iloc[4].tolist() == [1, 1]
    assert patches["weight"].iloc[4] == pytest.approx(6 / 28)


def test_distances_are_told_of_a_text_only():
    weights, visible = torch.full((2, 3), 1 / 3), torch.ones(2, 3, dtype=torch.bool)
    across = frames.head_statistics(weights, visible, of_a_text=False).set_index("statistic")
    assert across["mean over queries"].to_dict() == pytest.approx(
        {"entropy, relative to uniform": 1.0, "effective number of keys": 3.0}
    )


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


def layer(number: int, *, tower: str = "decoder", kind: str = "self", **changes) -> LayerAnatomy:
    heads = Heads(
        heads=6,
        kv_heads=2,
        d_k=16,
        d_v=8,
        scale=Scale("1/√d_k", 0.25),
        causal=True,
        position="rotary",
        softcap=None,
        sinks=False,
        norm=True,
        projections="split",
        dtype="bfloat16",
    )
    fields = {
        "module": f"layers.{number}",
        "reach": "global",
        "window": None,
        "n": (13, 13),
        "heads": heads,
        "max_error": 2e-7,
        "unread": None,
    }
    return LayerAnatomy(number, tower, kind, **(fields | changes))


UNREAD = {"heads": None, "max_error": None, "unread": "It has none.", "reach": "linear"}


def test_layer_marks_have_a_strip_for_each_tower_and_are_lower_behind_a_window():
    layers = [
        layer(0, reach="local", window=5),
        layer(1),
        layer(2, **UNREAD),
        layer(0, kind="cross"),
    ]
    marks = frames.layer_marks(layers, chosen=layers[1:2])
    assert marks["strip"].tolist() == [0, 0, 0, 1]
    assert marks["layer"].tolist() == [0, 1, 2, 0]
    assert marks["height"].tolist() == [0.5, 1.0, 1.0, 1.0]
    assert marks["state"].tolist() == ["read", "read", "not read", "read"]
    assert marks["chosen"].tolist() == [False, True, False, False]
    assert marks["name"].tolist() == ["decoder"] * 3 + ["decoder, cross-attention"]
    assert marks["told"].tolist()[1:3] == ["verified to 2e-07", "It has none."]


def test_family_tree_puts_each_key_and_value_head_under_the_middle_of_its_heads():
    tree = frames.family_tree(6, 2)
    assert tree["kv_head"].tolist() == [0, 0, 0, 1, 1, 1]
    for _, family in tree.groupby("kv_head"):
        assert set(family["below"]) == {family["above"].mean()}
    alone = frames.family_tree(5, 5)
    assert alone["above"].tolist() == alone["below"].tolist()


def test_layer_table_has_every_layer_with_its_numbers_or_its_reason():
    table = frames.layer_table([layer(3), layer(4, **UNREAD)])
    read, unread = table.iloc[0], table.iloc[1]
    names = ["layer", "heads", "kv_heads", "d_k", "d_v"]
    assert read[names].tolist() == [3, 6, 2, 16, 8]
    assert (read["scale"], read["verified to"], read["dtype"]) == (0.25, 2e-7, "bfloat16")
    assert (unread["not read because"], unread["sees"]) == ("It has none.", "linear")
    assert np.isnan(unread["heads"])


@pytest.mark.parametrize("first", [{}, UNREAD])
def test_what_is_long_comes_last_whichever_layer_is_first(first: dict[str, object]):
    table = frames.layer_table([layer(0, **first), layer(1)])
    assert list(table.columns[:2]) == ["tower", "layer"]
    assert list(table.columns[-2:]) == ["not read because", "module"]
    assert table["module"].tolist() == ["layers.0", "layers.1"]


def test_of_an_unread_layer_the_reason_below_tells_what_it_sees():
    marks = frames.layer_marks([layer(0, **(UNREAD | {"reach": None}))], chosen=())
    assert marks["sees"].tolist() == ["told below"]
