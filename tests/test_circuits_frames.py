"""Frames of a head's products against numbers that were put in."""

from __future__ import annotations

import pytest
import torch
from tiny import byte_level

from attnviz import circuits_frames as frames
from attnviz.circuits import Spectrum
from attnviz.tokens import tokenize

TOKENS = tokenize(byte_level(), "the cat the dog")
SPECTRA = {
    "W_QK": Spectrum(torch.tensor([4.0, 2.0, 1.0]).double(), 66, 121),
    "W_OV": Spectrum(torch.tensor([0.0, 0.0]).double(), 44, 121),
}


def alone(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((at,) for at in range(count))


def test_an_axis_has_each_token_at_its_position():
    table = frames.axis(TOKENS, alone(len(TOKENS))[2:4])
    assert table["position"].tolist() == table.index.tolist() == [2, 3]
    assert table["token"].tolist() == list(TOKENS.labels[2:4])
    assert table["last"].tolist() == [2, 3]


def test_of_many_in_a_row_the_first_is_named():
    table = frames.axis(TOKENS, ((0, 1, 2, 3), (4,)))
    assert table["token"].tolist() == [f"{TOKENS.labels[0]} …", f"{TOKENS.labels[4]} …"]
    assert table["last"].tolist() == [3, 4]
    assert table["special"].tolist() == [TOKENS.special[0], TOKENS.special[4]]


def test_a_matrix_is_read_by_positions():
    queries, keys = frames.axis(TOKENS, ((1,), (3,))), frames.axis(TOKENS, ((0,), (2,), (4,)))
    table = frames.matrix(torch.arange(6.0).view(2, 3), queries, keys)
    assert table.loc[3, 2] == 4.0
    assert table.shape == (2, 3)


def test_pairs_that_differ_most_come_first():
    """By hand: 1→0 and 0→1 are 5 and 1, 2→0 and 0→2 are 2 and 8, 2→1 and 1→2 alike."""
    tokens = frames.axis(TOKENS, alone(len(TOKENS))[1:4])
    scores = frames.matrix(torch.tensor([[9.0, 1, 8], [5, 9, 3], [2, 3, 9]]), tokens, tokens)
    table = frames.pairs(scores, tokens)
    assert table["difference"].tolist() == [-6, 4, 0]
    assert table["position"].tolist() == [3, 2, 3]
    assert table["other position"].tolist() == [1, 1, 2]
    assert table["score"].tolist() == [2, 5, 3]
    assert table["turned about"].tolist() == [8, 1, 3]
    assert table["token"][1] == TOKENS.labels[2]


def test_a_row_has_what_its_query_sees():
    queries, keys = frames.axis(TOKENS, ((1,), (3,))), frames.axis(TOKENS, ((0,), (2,), (4,)))
    before = frames.matrix(torch.tensor([[1.0, 0, 0], [0.25, 0.75, torch.nan]]), queries, keys)
    table = frames.row(before, before * 2, keys, 3)
    assert table["position"].tolist() == [0, 2]
    assert table["before"].tolist() == [0.25, 0.75]
    assert table["after"].tolist() == [0.5, 1.5]


def test_shares_tell_this_head_from_others_and_from_what_was_drawn():
    heads = {(0, 0): (0.5, 0.6), (0, 1): (0.7, 0.8), (2, 0): (0.9, 1.0)}
    table = frames.shares(heads, (0, 1), [(0.45, 0.55), (0.52, 0.51)])
    assert table["of"].value_counts().to_dict() == {"this head": 1, "other heads": 2} | {
        "random vectors": 2
    }
    this = table[table["of"] == "this head"].iloc[0]
    assert (this["layer"], this["head"], this["share"], this["centred"]) == (0, 1, 0.7, 0.8)
    assert table.loc[table["of"] == "random vectors", "layer"].isna().all()


def test_spectra_by_product():
    table = frames.spectra(SPECTRA)
    assert table["index"].tolist() == [1, 2, 3, 1, 2]
    assert table["relative"].tolist() == [1, 0.5, 0.25, 0, 0]
    assert table.groupby("product")["value"].sum().to_dict() == {"W_QK": 7.0, "W_OV": 0.0}


def test_products_hold_what_they_hold():
    table = frames.products(SPECTRA).set_index("product")
    assert table.loc["W_QK"].tolist() == [3, 66, 121]
    assert table.loc["W_OV", "rank at most"] == pytest.approx(2)
