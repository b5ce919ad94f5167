"""Kinds of head: which keys each query aims at, and which tokens are left out."""

from __future__ import annotations

import pytest
import torch
from tiny import wordpiece

from attnviz import patterns
from attnviz.patterns import Axes, Kind, axes, is_punctuation, kinds
from attnviz.tokens import Tokens, from_ids, named

#          [CLS] a  b  .  a  b  c  [SEP]
IDS = (100, 7, 8, 5, 7, 8, 9, 101)
SPECIAL = (True, *[False] * 6, True)
WHOLE = slice(0, len(IDS))


def of_text(**changes) -> Axes:
    fields = {
        "query_ids": torch.tensor(IDS),
        "key_ids": torch.tensor(IDS),
        "query_special": torch.tensor(SPECIAL),
        "key_special": torch.tensor(SPECIAL),
        "punctuation": torch.tensor([i == 5 for i in IDS]),
    }
    return Axes(**(fields | changes))


def aimed(kind: Kind, tokens: Axes, queries: slice = WHOLE, keys: slice = WHOLE) -> set:
    assert kind.targets is not None
    targets = kind.targets(tokens, queries, keys)
    assert targets.shape == (queries.stop - queries.start, keys.stop - keys.start)
    pairs = targets.nonzero() + torch.tensor([queries.start, keys.start])
    return {tuple(pair) for pair in pairs.tolist()}


BY_HAND = {
    "previous token": {(2, 1), (3, 2), (4, 3), (5, 4), (6, 5)},
    "next token": {(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)},
    "first token": {(query, 0) for query in range(1, 8)},
    "self": {(place, place) for place in range(1, 8)},
    "duplicate token": {(1, 4), (4, 1), (2, 5), (5, 2)},
    # after a stand b and b, after b stand . and c; what stands right after a query is no memory
    "induction": {(1, 5), (4, 2), (2, 6), (5, 3)},
    "delimiter": {(query, key) for query in range(8) for key in (3, 7)},
    "local": {(q, k) for q in range(1, 7) for k in range(1, 7) if abs(q - k) <= 4},
    "fixed offset": {(q, k) for q in range(1, 7) for k in range(1, 7)},
}


def of_name(name: str) -> Kind:
    tokens = from_ids(wordpiece(), [10, 11])
    found = {kind.name: kind for kind in kinds(tokens, tokens)}
    return found[name]


@pytest.mark.parametrize("name", BY_HAND)
def test_targets_by_hand(name: str):
    assert aimed(of_name(name), of_text()) == BY_HAND[name]


@pytest.mark.parametrize("name", BY_HAND)
def test_a_block_of_the_targets_is_that_part_of_them(name: str):
    queries, keys = slice(2, 7), slice(1, 4)
    expected = {(q, k) for q, k in BY_HAND[name] if 2 <= q < 7 and 1 <= k < 4}
    assert aimed(of_name(name), of_text(), queries, keys) == expected


def test_a_token_that_comes_twice_in_a_row_is_followed_by_itself():
    tokens = of_text(
        query_ids=torch.tensor([3, 3, 3]),
        key_ids=torch.tensor([3, 3, 3]),
        query_special=torch.zeros(3, dtype=torch.bool),
        key_special=torch.zeros(3, dtype=torch.bool),
        punctuation=torch.zeros(3, dtype=torch.bool),
    )
    # TransformerLens counts j = i too: the token before i is the same, and i follows it
    expected = {(0, 2), (1, 1), (2, 1), (2, 2)}
    assert aimed(patterns.INDUCTION, tokens, slice(0, 3), slice(0, 3)) == expected


def test_a_word_does_not_follow_a_special_token_of_its_number():
    tokens = of_text(key_ids=torch.tensor([7, *IDS[1:]]))
    assert aimed(patterns.INDUCTION, tokens) == BY_HAND["induction"]


def test_the_first_token_need_not_stand_first():
    assert aimed(patterns.FIRST, of_text(first=2)) == {(query, 2) for query in range(3, 8)}
    assert aimed(patterns.SELF, of_text(first=2)) == {(place, place) for place in range(3, 8)}
    assert (1, 0) in aimed(patterns.DELIMITER, of_text(first=2))


def test_between_two_texts():
    source = of_text(
        query_ids=torch.tensor([2, 9, 7, 6, 5]),
        query_special=torch.tensor([True, False, False, False, False]),
        cross=True,
    )
    queries = slice(0, 5)
    assert aimed(patterns.FIRST, source, queries) == {(query, 0) for query in range(5)}
    assert aimed(patterns.SAME, source, queries) == {(1, 6), (2, 1), (2, 4), (4, 3)}
    expected = {(query, key) for query in range(5) for key in (3, 7)}
    assert aimed(patterns.DELIMITER, source, queries) == expected


def names(queries: Tokens, keys: Tokens, *, cross: bool = False) -> list[str]:
    return [kind.name for kind in kinds(queries, keys, cross=cross)]


def test_kinds_that_make_sense():
    text, patches = from_ids(wordpiece(), [2, 10, 11, 3]), named(["r0c0", "r0c1"])
    assert names(text, text) == [*list(BY_HAND)[:6], "fixed offset", "delimiter", "local", "broad"]
    assert names(text, text, cross=True) == ["first token", "same token", "delimiter", "broad"]
    assert names(patches, patches) == ["first token", "self", "broad"]
    assert names(text, patches, cross=True) == ["first token", "broad"]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        *((sign, True) for sign in (".", "␣,", "…", "␣“", "…;", "。", "!?")),
        *((sign, False) for sign in ("a.", "␣", "⏎", "+", "…ing", "[SEP]", "‹0xE2›", "7", "")),
    ],
)
def test_punctuation_is_what_shows_nothing_else(label: str, expected: bool):
    assert is_punctuation(label) is expected


def test_axes_of_a_text():
    tokens = from_ids(wordpiece(), [2, 10, 11, 3])
    made = axes(tokens, tokens)
    assert made.query_ids.tolist() == made.key_ids.tolist() == [2, 10, 11, 3]
    assert made.query_special.tolist() == made.key_special.tolist() == [True, False, False, True]
    assert made.punctuation.tolist() == [is_punctuation(label) for label in tokens.labels]


def test_every_kind_is_told_in_words_and_signs():
    text = from_ids(wordpiece(), [2, 10, 11, 3])
    told = {kind.name: kind for kind in (*kinds(text, text), *kinds(text, text, cross=True))}
    assert len(told) == 11
    for kind in told.values():
        assert kind.definition.endswith(".")
        assert kind.nothing.endswith(".")
        assert kind.formula.count("{") == kind.formula.count("}")
        assert (kind.targets is None) == (kind.name == "broad")
