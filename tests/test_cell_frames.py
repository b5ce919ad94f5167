"""The frames of a cell hold its numbers: sums, shares and marks checked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz import cell_frames
from attnviz.cell import Cell, IntoStream, Logit, Match, Retrieved, Role, Softmax
from attnviz.distance import DistanceCurve

QUERY = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.1])
KEY = torch.tensor([2.0, 1.5, -4.0, 1.0, 0.3])  # products 2, -3, -2, 3, 0.03
INFINITE = float("inf")
TOKENS = ("<s>", "a", "b")


@pytest.fixture
def cell() -> Cell:
    """The second of three tokens looks at the first; it cannot see the third."""
    exponentials = torch.tensor([3.0, 1.0, 0.0])
    return Cell(
        head=1,
        kv_head=0,
        query=Role(1, QUERY),
        key=Role(0, KEY),
        value=Role(0, torch.tensor([1.0, 2.0])),
        match=Match(QUERY * KEY, 0.03, torch.tensor([0.03, 7.0, -5.0])),
        logit=Logit(
            0.5, 0.015, None, None, None, True, 0.015, torch.tensor([0.1, -1.0, -INFINITE])
        ),
        softmax=Softmax(0.0, exponentials, None, 4.0),
        weights=exponentials / 4,
        sink_share=None,
        retrieved=Retrieved(
            torch.zeros(2), torch.zeros(2), torch.tensor([0.9, 0.1, 0.0]) * 7, True
        ),
        into_stream=None,
        model_weight=0.75,
        largest_difference=0.0,
    )


def test_strips_have_every_number_under_the_name_of_its_vector():
    frame = cell_frames.strips({"q of “it”": QUERY, "k of “it”": KEY})
    assert list(frame.columns) == ["row", "dimension", "value"]
    assert frame["row"].unique().tolist() == ["q of “it”", "k of “it”"]
    assert frame.loc[frame["row"] == "k of “it”", "dimension"].tolist() == [0, 1, 2, 3, 4]
    assert frame.loc[7].tolist() == ["k of “it”", 2, -4.0]


def test_numbers_are_written_with_the_digits_of_a_float32():
    values = cell_frames.strips({"x": torch.tensor([0.1, 1e-7, -3.3])})["value"]
    assert [str(value) for value in values] == ["0.1", "1e-07", "-3.3"]
    assert values.astype(np.float32).tolist() == torch.tensor([0.1, 1e-7, -3.3]).tolist()


def test_match_in_order_runs_to_the_score(cell: Cell):
    frame = cell_frames.match(cell)
    columns = ["place", "dimension", "query", "key", "product", "running", "decides"]
    assert list(frame.columns) == columns
    assert frame["dimension"].tolist() == frame["place"].tolist() == [0, 1, 2, 3, 4]
    assert frame["product"].tolist() == pytest.approx([2, -3, -2, 3, 0.03])
    assert frame["running"].tolist() == pytest.approx([2, -1, -3, 0, 0.03], abs=1e-6)
    assert (frame["query"] * frame["key"]).tolist() == pytest.approx(frame["product"].tolist())


def test_match_by_size_has_the_largest_first_and_equal_ones_in_order(cell: Cell):
    frame = cell_frames.match(cell, "size")
    assert frame["dimension"].tolist() == [1, 3, 0, 2, 4]
    assert frame["place"].tolist() == [0, 1, 2, 3, 4]
    assert frame["running"].tolist() == pytest.approx([-3, 0, 2, 0, 0.03], abs=1e-6)
    assert frame.loc[frame["decides"], "dimension"].tolist() == [3]  # 3 of 5.03


def test_match_of_a_head_without_queries_is_refused(cell: Cell):
    with pytest.raises(ValueError, match="weights only"):
        cell_frames.match(replace(cell, match=None, query=None, key=None))


@pytest.mark.parametrize(
    ("products", "score", "expected"),
    [
        ([1.0, 5.0, -9.0, 2.0, 4.0], 3.0, (1, 4)),  # 5 < 6, 5 + 4 ≥ 6
        ([1.0, 5.0, -9.0, 2.0, -4.0], -5.0, (2,)),  # the same sign as the score counts
        ([2.0, 1.0, 1.0], 4.0, (0,)),  # just half is enough
        ([1.0] * 20, 20.0, (0, 1, 2, 3, 4, 5)),  # ten would be half: six at most
        ([1.0, -1.0], 0.0, ()),
        ([0.0, 0.0], 1.0, ()),
    ],
)
def test_deciding_dimensions(products: list[float], score: float, expected: tuple[int, ...]):
    assert cell_frames.deciding(torch.tensor(products), score) == expected


def test_no_smaller_set_would_reach_half():
    generator = torch.Generator().manual_seed(5)
    for _ in range(200):
        products = torch.randn(11, generator=generator, dtype=torch.float64)
        score = float(products.sum())
        towards = (products * np.sign(score)).clamp(min=0)
        chosen = cell_frames.deciding(products, score)
        reached = float(towards[list(chosen)].sum())
        best_of_fewer = float(towards.topk(len(chosen) - 1).values.sum())
        assert best_of_fewer < float(towards.sum()) / 2
        assert reached >= float(towards.sum()) / 2 or len(chosen) == 6


def test_keys_have_every_term_of_every_key(cell: Cell):
    frame = cell_frames.keys(cell, TOKENS)
    assert frame["token"].tolist() == list(TOKENS)
    assert frame["visible"].tolist() == [True, True, False]
    assert frame["chosen"].tolist() == [True, False, False]
    assert frame["score"].tolist() == pytest.approx([0.03, 7.0, -5.0])
    assert frame["logit"].tolist() == pytest.approx([0.1, -1.0, -INFINITE])
    assert frame["exponential"].tolist() == [3.0, 1.0, 0.0]
    assert frame["weight"].tolist() == [0.75, 0.25, 0.0]
    assert frame["brought"].tolist() == pytest.approx([0.9, 0.1, 0.0])


def test_a_sink_is_a_row_only_where_it_is_asked_for_and_brings_nothing(cell: Cell):
    softmax = Softmax(2.0, torch.tensor([3.0, 1.0, 0.0]), 6.0, 10.0)
    with_sink = replace(cell, softmax=softmax, sink_share=0.6)
    assert not cell_frames.keys(with_sink, TOKENS)["sink"].any()
    assert len(cell_frames.keys(cell, TOKENS, with_sink=True)) == 3  # it has none
    row = cell_frames.keys(with_sink, TOKENS, with_sink=True).iloc[-1]
    assert (row["key"], row["token"], row["visible"], row["chosen"]) == (3, "learned sink", 1, 0)
    assert (row["weight"], row["exponential"], row["brought"]) == (0.6, 6.0, 0.0)
    assert row["logit"] == pytest.approx(np.log(6.0) + 2.0)


def test_a_head_without_queries_has_its_weights_and_no_terms(cell: Cell):
    frame = cell_frames.keys(replace(cell, match=None, logit=None, softmax=None), TOKENS)
    assert frame["visible"].tolist() == [True, True, False]
    assert frame[["score", "logit", "exponential"]].isna().all(axis=None)
    assert list(cell_frames.key_numbers(frame).columns) == [
        *("key", "token", "weight", "share brought"),
    ]


def test_nothing_brought_is_no_share(cell: Cell):
    nothing = replace(cell, retrieved=replace(cell.retrieved, brought=torch.zeros(3)))
    assert cell_frames.keys(nothing, TOKENS)["brought"].tolist() == [0.0, 0.0, 0.0]


def test_key_numbers_have_visible_keys_with_most_weight_first(cell: Cell):
    weights = torch.tensor([0.25, 0.75, 0.0])
    table = cell_frames.key_numbers(cell_frames.keys(replace(cell, weights=weights), TOKENS))
    assert table[["key", "token", "weight"]].to_numpy().tolist() == [
        [1, "a", 0.75],
        [0, "<s>", 0.25],
    ]
    assert table.columns[-1] == "share brought"


def test_heads_say_which_is_meant():
    into = IntoStream("W_O", torch.zeros(2), None, torch.tensor([0.5, 2.0, 1.5]))
    frame = cell_frames.heads(into, 1)
    assert frame.to_numpy().tolist() == [[0, 0.5, False], [1, 2.0, True], [2, 1.5, False]]


def test_curve_runs_from_near_to_far():
    curve = DistanceCurve("bias", torch.tensor([2, 1, 0, -1]), torch.tensor([0.2, 0.1, 0.0, -0.1]))
    frame = cell_frames.curve(curve, 1)
    assert frame["distance"].tolist() == [-1, 0, 1, 2]
    assert frame["value"].tolist() == [-0.1, 0.0, 0.1, 0.2]
    assert frame.loc[frame["chosen"], "distance"].tolist() == [1]
    assert set(frame["kind"]) == {"bias"}


def test_dimension_numbers_have_the_vectors_side_by_side_in_their_order():
    table = cell_frames.dimension_numbers(cell_frames.strips({"q": QUERY, "k": KEY}))
    assert list(table.columns) == ["dimension", "q", "k"]
    assert table.loc[3].tolist() == [3, 3.0, 1.0]


def test_match_numbers_are_in_drawn_order(cell: Cell):
    table = cell_frames.match_numbers(cell_frames.match(cell, "size"))
    assert table["dimension"].tolist() == [1, 3, 0, 2, 4]
    assert {"q", "k", "q·k", "running sum", "decides"} < set(table.columns)
