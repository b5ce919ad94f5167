"""Whether two projections are enough, and whether four are more: trained anew, five seeds each.

The reference values are those of an independent program; each of the two means has its own error.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from attnviz import training
from attnviz.training import Record


def trained(task: str, variant: str, width: int) -> Record:
    recipe = training.of_projections(task, variant, width)
    *_, record = training.train(replace(recipe, looks=()))
    return record


# Accuracy after 800 steps, and how far a mean of five may be from it
CELLS = {
    ("same", "Q K V", 4): (0.985, 0.03),
    ("same", "K = V", 4): (0.204, 0.03),
    ("partner", "Q = K", 16): (0.542, 0.04),
    ("readout by the query", "+ linear fourth", 16): (0.511, 0.06),
    ("readout by the query", "+ query gate", 16): (1.0, 0.01),
    ("copy a vector", "K = V", 16): (0.732, 0.05),
}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell):
    expected, tolerance = CELLS[cell]
    assert float(trained(*cell).accuracy.mean()) == pytest.approx(expected, abs=tolerance)


def test_no_one_to_one_map_of_pairs_where_q_is_k():
    """With one matrix for queries and keys, s(a, a') > s(a, a) and s(a', a) > s(a', a') would
    give −‖u_a − u_a'‖² > 0: in each pair at most one of the two finds its partner."""
    recipe = replace(training.of_projections("partner", "Q = K", 16), steps=100, looks=())
    *_, record = training.train(recipe)
    assert (record.accuracy < 0.65).all()


def test_a_run_is_reproducible():
    recipe = replace(training.of_projections("same", "K = V", 8), steps=20, looks=(0, 10))
    for one, other in zip(training.train(recipe), training.train(recipe), strict=True):
        assert torch.equal(one.loss, other.loss)
        assert torch.equal(one.attention, other.attention)


@pytest.mark.parametrize("variant", ["Q K V", "K = V", "x as key"])
def test_divisor_is_the_root_of_the_width_that_is_matched(variant):
    recipe = training.of_projections("same", variant, 4)
    assert recipe.divisor == (8.0 if variant == "x as key" else 2.0)
