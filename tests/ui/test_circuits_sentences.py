"""What is said of symmetry and of the two products, from numbers that were put in."""

from __future__ import annotations

import pandas as pd
import torch

from attnviz.circuits import Spectrum
from attnviz.ui import circuits_sentences as told
from attnviz.ui.circuits import Pair, Product, Products, Symmetry

EMPTY = pd.DataFrame()
SYMMETRY = Symmetry(EMPTY, EMPTY, 0.768, 0.54, EMPTY, (0.498, 0.033), None, 1.0)


def product(width: int, d_model: int, error: float = 3.4e-7) -> Product:
    spectrum = Spectrum(torch.ones(width).double(), 2 * width * d_model, d_model**2)
    return Product(spectrum, error, ("q_proj.weight", "k_proj.weight"), (d_model, d_model))


def test_share_against_random_vectors():
    assert told.share(SYMMETRY).startswith("77\u00a0% of S is its symmetric part")
    said = told.compared(SYMMETRY, 21, 32, 64, 7)
    for part in ("is 0.768 over", "64 draws of 21", "d_k = 32 (seed 7) 0.498", "give 0.540."):
        assert part in said


def test_the_pair_in_words():
    said = told.pair(Pair(3, 1, 11.26, -10.8), ("“on”", "“the”"))
    assert said.startswith("“on” looking at “the” scores 11.3; “the” looking at “on” scores −10.8.")
    assert told.pair(None, ("", "")).startswith("In view, every pair of tokens has the same score")


def test_a_window_is_told_where_there_is_one():
    assert told.in_view(0, 21, 21) == ""
    assert told.in_view(1000, 64, 2003).startswith("In view are tokens 1,000 to 1,063 of 2,003;")


def test_errors_are_relative_to_the_largest():
    assert told.error(0.0) == "not at all"
    assert told.error(3.2e-7) == "by at most 4e-07 of the largest"
    assert told.error(9.7e-8) == "by at most 1e-07 of the largest"
    assert "differ from the model’s own by at most" in told.scores_from(product(3, 11), False)
    assert "scores before rotation" in told.scores_from(product(3, 11), True)
    assert "At a distance of 1 token, " in told.scores_at(product(3, 11), 1)
    assert "At a distance of 0 tokens, " in told.scores_at(product(3, 11), 0)


def test_what_the_factors_save():
    """2 · 32 · 384 = 24,576 numbers against 384² = 147,456: a sixth."""
    said = told.saving(product(32, 384), "d_k")
    assert said == (
        "384 × 384, and of rank at most d_k = 32. The two factors hold 24,576 numbers, the product "
        "147,456: a saving of 83\u00a0%."
    )
    assert "no saving, since the head is at least half as wide" in told.saving(
        product(7, 11), "d_v"
    )


def test_of_how_many_tokens_the_figures_are():
    found = Products("", "", rotated=False, tokens=64, cut=True)
    assert told.read_from(found) == "measured on the first 64 tokens"
    found = Products("", "", rotated=False, tokens=21, cut=False)
    assert told.read_from(found) == "measured on all 21 tokens"


def test_one_matrix_in_two_roles_is_named_once():
    one = Product(product(3, 11).spectrum, 0.0, ("qkv.weight", "qkv.weight"), (11, 11))
    assert told.made_of(one) == "Factors: qkv.weight"
    assert told.made_of(product(3, 11)) == "Factors: q_proj.weight and k_proj.weight"
