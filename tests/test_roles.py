"""The lookup on the blackboard, against sums done by hand."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from math import exp, sqrt

import pytest
import torch

from attnviz import equation, roles
from attnviz.roles import TABLE, VARIANTS, Item, lookup

A, B, C, D, E, F = range(6)
EVERY = range(6)


def test_a_key_fits_itself_best_and_so_does_a_content():
    for part in ("key", "content"):
        vectors = roles.vectors(part)
        products = vectors @ vectors.mT
        assert products.argmax(-1).tolist() == [*EVERY]
        assert len(set(products.diag().tolist())) == 1  # all of one length


def test_no_vector_is_that_of_another():
    assert len({item.key for item in TABLE} | {item.value for item in TABLE}) == 12
    assert len({item.symbol for item in TABLE} | {item.content for item in TABLE}) == 12


def test_query_for_b_by_hand():
    """q = (3, 4), keys (5, 0), (3, 4), (−3, 4), (−5, 0), (−3, −4), (3, −4)."""
    found = lookup(VARIANTS["Q, K, V"])
    scores = [
        *(3 * 5 + 4 * 0, 3 * 3 + 4 * 4, 3 * -3 + 4 * 4),
        *(3 * -5 + 4 * 0, 3 * -3 + 4 * -4, 3 * 3 + 4 * -4),
    ]
    assert scores == [15, 25, 7, -15, -25, -7]
    assert found.scores[B].tolist() == scores
    powers = [exp(score / sqrt(2)) for score in scores]
    weights = [power / sum(powers) for power in powers]
    assert found.weights[B].tolist() == pytest.approx(weights, rel=1e-12)
    assert weights[B] == pytest.approx(0.999148, abs=1e-6)
    values = [(-1, -2), (-1, 2), (-2, -1), (1, 2), (1, -2), (2, 1)]
    output = [sum(w * v[i] for w, v in zip(weights, values, strict=True)) for i in range(2)]
    assert found.output[B].tolist() == pytest.approx(output, rel=1e-12)
    rain = -1 * output[0] + 2 * output[1]
    assert float(found.readings[B, B]) == pytest.approx(rain, rel=1e-12)
    assert found.found(B) == found.answer(B) == B


def test_contents_in_the_place_of_keys_by_hand():
    """(3, 4) with the contents: −3−8, −3+8, −6−4, 3+8, 3−8, 6+4; D fits best and is returned."""
    found = lookup(VARIANTS["K = V: content"], 5.0)
    assert found.scores[B].tolist() == [5 * score for score in (-11, 5, -10, 11, -5, 10)]
    assert found.found(B) == found.answer(B) == D
    even = exp(-5 / sqrt(2))  # against F, whose score is 5 less
    assert float(found.weights[B, D]) == pytest.approx(1 / (1 + even), abs=1e-6)


def test_keys_in_the_place_of_values_return_the_question():
    found = lookup(VARIANTS["K = V: key"], 5.0)
    assert torch.allclose(found.output, roles.vectors("key"), atol=1e-12)
    assert [found.found(asked) for asked in EVERY] == [*EVERY]
    # (3, 4) with the contents is largest, 11, with that of D.
    assert found.answer(B) == D


def test_exchanged_matches_contents_and_returns_keys():
    exchanged, tied = lookup(VARIANTS["K and V exchanged"]), lookup(VARIANTS["K = V: content"])
    assert torch.equal(exchanged.weights, tied.weights)
    assert torch.equal(exchanged.value, roles.vectors("key"))


def test_sum_by_hand():
    """Sums (4, −2), (2, 6), (−5, 3), (−4, 2), (−2, −6), (5, −3); the query for B is (3, 4)."""
    found = lookup(VARIANTS["K = V: sum"])
    assert found.scores[B].tolist() == [4, 30, -3, -4, -30, 3]
    # B is found, but (2, 6) reads as D: 2 + 12 = 14, against −2 + 12 = 10 for B's own content.
    assert found.readings[B].round(decimals=3).tolist() == [-14, 10, -10, 14, -10, 10]
    assert (found.found(B), found.answer(B)) == (B, D)


def test_no_weighing_of_the_sum_answers_more_than_two():
    """What the page says of key + a · content in the place of both, for every a.

    What fits best, or is read, changes only where two products are equal: one a between each two
    of those stands for all.
    """
    keys, contents = roles.vectors("key"), roles.vectors("content")
    ties = [
        -float(looks @ (keys[i] - keys[j])) / float(looks @ (contents[i] - contents[j]))
        for looks, i, j in product(keys, EVERY, EVERY)
        if looks @ (contents[i] - contents[j])
    ]
    ties += [
        -float(keys[i] @ difference) / float(contents[i] @ difference)
        for i, (one, other) in product(EVERY, permutations(contents, 2))
        if contents[i] @ (difference := one - other)
    ]
    ends = [min(ties) - 1, *sorted(set(ties)), max(ties) + 1]
    most = 0
    for weighing in (sum(pair) / 2 for pair in pairwise(ends)):
        both = keys + weighing * contents
        for sharpness in (0.1, 1.0, 5.0, 1000.0):
            output = equation.output(equation.weights(sharpness * keys @ both.mT), both)
            answers = (output @ contents.mT).argmax(-1)
            most = max(most, int((answers == torch.arange(6)).sum()))
    assert most == 2


def test_side_by_side_matches_the_keys_alone():
    """The same scores over √4, and contents that come out as with K and V apart."""
    apart, beside = lookup(VARIANTS["Q, K, V"]), lookup(VARIANTS["K = V: side by side"])
    assert torch.equal(beside.key, beside.value)
    assert torch.equal(beside.scores, apart.scores)
    assert torch.equal(beside.logits, apart.scores / 2)
    sharper = lookup(VARIANTS["K = V: side by side"], sqrt(2))  # what √4 for √2 takes away
    assert torch.allclose(sharper.weights, apart.weights, atol=1e-12)
    assert torch.allclose(sharper.read, apart.output, atol=1e-12)
    assert torch.equal(sharper.read, sharper.output[:, 2:])
    assert torch.allclose(sharper.output[:, :2], apart.weights @ apart.key, atol=1e-9)


@pytest.mark.parametrize("sharpness", [0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", ["Q, K, V", "K = V: side by side"])
def test_with_room_every_question_is_answered(name, sharpness):
    found = lookup(VARIANTS[name], sharpness)
    assert [found.found(asked) for asked in EVERY] == [*EVERY]
    if sharpness >= 0.2:
        assert [found.answer(asked) for asked in EVERY] == [*EVERY]


@pytest.mark.parametrize("name", VARIANTS)
def test_sharpness_never_changes_what_fits_best(name):
    sharp = [lookup(VARIANTS[name], sharpness) for sharpness in (0.1, 1.0, 5.0)]
    assert len({tuple(one.found(asked) for asked in EVERY) for one in sharp}) == 1


def test_narrow_variants_do_no_better_than_guessing_however_contents_are_given(monkeypatch):
    """Over all 720 ways to give the contents to the items the mean is one of six."""
    right: dict[str, int] = {"K = V: content": 0, "K = V: key": 0}
    contents = [(item.content, item.value) for item in TABLE]
    for order in permutations(contents):
        given = zip(TABLE, order, strict=True)
        table = tuple(Item(item.symbol, item.key, *content) for item, content in given)
        monkeypatch.setattr(roles, "TABLE", table)
        for name in right:
            found = lookup(VARIANTS[name])
            right[name] += sum(found.answer(asked) == asked for asked in EVERY)
    assert right == dict.fromkeys(right, 720)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_answer_is_a_tie(name):
    for sharpness in (0.1, 1.0, 5.0):
        found = lookup(VARIANTS[name], sharpness)
        for numbers in (found.scores, found.readings):
            best = numbers.topk(2, dim=-1).values
            assert float((best[:, 0] - best[:, 1]).min()) > 1e-3
