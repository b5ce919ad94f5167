"""A head with its projections: by hand, by loops over numpy arrays, and who shares what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import projections
from attnviz.projections import VARIANTS, Variant, Widths

REPLICAS, LOOKUPS, ITEMS = 2, 3, 5
WIDTHS = Widths(x=7, d_k=11, d_v=11, answer=13)
DIVISOR = 1.7


def drawn(variant: Variant) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(1)
    matrices = {
        name: torch.randn(REPLICAS, *shape, generator=dice)
        for name, shape in projections.shapes(variant, WIDTHS).items()
    }
    matrices["b"] = torch.randn(REPLICAS, 1, WIDTHS.answer, generator=dice)
    query = torch.randn(REPLICAS, LOOKUPS, 1, WIDTHS.x, generator=dice)
    items = torch.randn(REPLICAS, LOOKUPS, ITEMS, WIDTHS.x, generator=dice)
    return matrices, query, items


def by_loops(variant: Variant, matrices, query, items) -> tuple[np.ndarray, np.ndarray]:
    """One lookup after the other, vector by vector."""
    answers, weights = [], []
    for r in range(REPLICAS):
        own = {name: matrix[r].double().numpy() for name, matrix in matrices.items()}
        for x_q, x_s in zip(
            query[r, :, 0].double().numpy(), items[r].double().numpy(), strict=True
        ):
            q = x_q @ own[variant.query]
            keys = [x @ own[variant.key] if variant.key else x for x in x_s]
            powers = np.exp([q @ k / DIVISOR for k in keys])
            p = powers / powers.sum()
            o = sum(w * (x @ own[variant.value]) for w, x in zip(p, x_s, strict=True))
            if variant.fourth == "linear":
                o = o @ own["W_4"]
            if variant.fourth == "gate":
                o = o / (1 + np.exp(-(x_q @ own["W_G"])))
            answers.append(o @ own["W_O"] + own["b"][0])
            weights.append(p)
    return np.array(answers), np.array(weights)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_against_loops(name):
    variant = VARIANTS[name]
    matrices, query, items = drawn(variant)
    found = projections.attended(matrices, variant, DIVISOR, query, items)
    answers, weights = by_loops(variant, matrices, query, items)
    assert found.answers.flatten(0, 1).numpy() == pytest.approx(answers, rel=1e-4, abs=1e-4)
    assert found.weights.flatten(0, 1).numpy() == pytest.approx(weights, abs=1e-5)


def test_two_items_by_hand():
    """q = 2, keys ln 3 / 2 and 0, values 4 and 8: weights ¾ and ¼, output 5, answer 5 · 2 + 1."""
    one = torch.ones(1, 1, 1)
    matrices = {"W_Q": 2 * one, "W_K": one, "W_V": one, "W_O": 2 * one, "b": one}
    items = torch.tensor([np.log(3) / 2, 0.0]).float().reshape(1, 1, 2, 1)
    query = torch.ones(1, 1, 1, 1)
    found = projections.attended(matrices, VARIANTS["Q K V"], 1.0, query, items)
    assert found.weights[0, 0].tolist() == pytest.approx([0.75, 0.25])
    answer = 2 * 0.75 * np.log(3) / 2 + 1
    assert float(found.answers) == pytest.approx(answer)


def test_where_q_is_k_scores_are_symmetric():
    variant = VARIANTS["Q = K"]
    matrices, _, items = drawn(variant)
    one_by_one = [
        projections.attended(matrices, variant, 97.0, items[:, :, i : i + 1], items).weights
        for i in range(ITEMS)
    ]
    logs = torch.stack(one_by_one, dim=2).log()  # scores but for a constant of each row
    shifted = logs - logs.diagonal(dim1=2, dim2=3)[..., None]
    # s_ij − s_ii against s_ji − s_jj: they differ by s_jj − s_ii alone, which adds up to 0.
    asymmetry = shifted - shifted.mT
    around = asymmetry[:, :, 0, 1] + asymmetry[:, :, 1, 2] + asymmetry[:, :, 2, 0]
    assert around.abs().max() < 1e-3


def test_a_fourth_linear_map_is_part_of_the_others():
    matrices, query, items = drawn(VARIANTS["+ linear fourth"])
    found = projections.attended(matrices, VARIANTS["+ linear fourth"], DIVISOR, query, items)
    folded = matrices | {"W_O": matrices["W_4"] @ matrices["W_O"]}
    three = projections.attended(folded, VARIANTS["Q K V"], DIVISOR, query, items)
    assert torch.allclose(found.answers, three.answers, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "x", "d", "weights"),
    [
        ("Q K V", 64, 4, 832),
        ("K = V", 64, 6, 864),
        ("Q K V", 32, 16, 1792),
        ("K = V", 32, 24, 1920),
    ],
)
def test_numbers_of_weights(name, x, d, weights):
    assert projections.weights_of(VARIANTS[name], Widths(x, d, d, 16)) == weights


@pytest.mark.parametrize(("name", "d", "kept"), [("Q K V", 4, 8), ("K = V", 8, 8), ("Q = K", 4, 8)])
def test_numbers_of_a_cache(name, d, kept):
    assert projections.numbers_kept(VARIANTS[name], Widths(64, d, d, 16)) == kept
