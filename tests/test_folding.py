"""Words, tokens taken out and pairs of sentences, against numbers worked by hand and loops."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from torch import Tensor

from attnviz.folding import fold_words, labels, leave_out, of_tokens, segment
from attnviz.tokens import tokenize

NAN = math.nan
QUERIES, KEYS = 7, 11


def same(found: Tensor, expected: list | Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, torch.as_tensor(expected), atol=1e-6, rtol=1e-5, equal_nan=True
    )


def rows_of_weights(hidden: Tensor | None = None) -> Tensor:
    logits = torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(1))
    if hidden is None:
        return logits.softmax(-1)
    weights = logits.masked_fill(hidden, -math.inf).softmax(-1)
    return weights.masked_fill(hidden, NAN)


CAUSAL = ~torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(KEYS - QUERIES)


def test_tokens_keep_their_places():
    blocks = of_tokens(torch.zeros(2, 3), first_query=5, first_key=7)
    assert blocks.queries == ((5,), (6,))
    assert blocks.keys == ((7,), (8,), (9,))


# --- words


def test_two_pieces_of_a_word_by_hand():
    """A sum over a key's pieces, a mean over a query's."""
    whole = of_tokens(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]))
    found = fold_words(whole, (0, 0, 1), (0, 0, 1))
    same(found.values, [[0.75, 0.25], [0.25, 0.75]])
    assert found.queries == found.keys == ((0, 1), (2,))


def test_a_word_of_a_causal_head_by_hand():
    """The first piece sees itself alone, and what it does not see counts as 0."""
    weights = torch.tensor([[1.0, NAN, NAN], [0.5, 0.5, NAN], [0.25, 0.25, 0.5]])
    found = fold_words(of_tokens(weights), (None, 0, 0), (None, 0, 0))
    same(found.values, [[1.0, NAN], [0.375, 0.625]])


def test_a_piece_that_sees_nothing_is_left_out_of_the_mean():
    weights = torch.tensor([[NAN, NAN, NAN], [0.25, 0.25, 0.5], [NAN, NAN, NAN]])
    found = fold_words(of_tokens(weights), (0, 0, 1), (0, 0, 1))
    same(found.values, [[0.5, 0.5], [NAN, NAN]])


QUERY_WORDS = (None, 0, 0, 0, 1, 2, 2)
KEY_WORDS = (None, 0, 1, 1, 1, 1, 1, None, None, 2, 2)
QUERY_SPANS = ((0,), (1, 2, 3), (4,), (5, 6))
KEY_SPANS = ((0,), (1,), (2, 3, 4, 5, 6), (7,), (8,), (9, 10))


@pytest.mark.parametrize("hidden", [None, CAUSAL])
def test_words_by_loops(hidden: Tensor | None):
    weights = rows_of_weights(hidden)
    found = fold_words(of_tokens(weights), QUERY_WORDS, KEY_WORDS)
    assert (found.queries, found.keys) == (QUERY_SPANS, KEY_SPANS)
    for row, queries in enumerate(QUERY_SPANS):
        for column, keys in enumerate(KEY_SPANS):
            seen = [[weights[q, k].item() for k in keys] for q in queries]
            total = sum(w for one in seen for w in one if not math.isnan(w))
            all_hidden = all(math.isnan(w) for one in seen for w in one)
            expected = NAN if all_hidden else total / len(queries)
            assert found.values[row, column].item() == pytest.approx(expected, nan_ok=True)
    same(found.values.nansum(1), torch.ones(len(QUERY_SPANS)))


def test_equal_words_stay_apart():
    words = (0, 1, 2, 3)  # "the the the the"
    found = fold_words(of_tokens(torch.eye(4)), words, words)
    same(found.values, torch.eye(4))


def test_words_in_a_window_have_the_positions_of_the_text():
    found = fold_words(of_tokens(torch.ones(2, 3), 5, 4), QUERY_WORDS, KEY_WORDS)
    assert found.queries == ((5, 6),)
    assert found.keys == ((4, 5, 6),)


def test_words_after_special_tokens_were_left_out():
    weights = rows_of_weights()
    rest = leave_out(of_tokens(weights), {0, 7}, {0})
    found = fold_words(rest, QUERY_WORDS, KEY_WORDS)
    assert found.queries == QUERY_SPANS[1:]
    assert found.keys == tuple(span for span in KEY_SPANS if span not in ((0,), (7,)))
    same(found.values.sum(1), torch.ones(3))


# --- names of words


def test_pieces_make_one_name():
    spans = ((0,), (1, 2, 3), (4, 5, 6), (7,), (8, 9))
    names = ("[CLS]", "token", "…iz", "…er", "␣na", "ï", "ve", "…", "wait", "…")
    assert labels(spans, names) == ("[CLS]", "tokenizer", "␣naïve", "…", "wait…")


def test_a_character_of_several_tokens_is_whole_in_its_word():
    names = ("␣po", "‹💩 1/3›", "‹💩 2/3›", "‹💩 3/3›", "‹💩 1/3›", "‹💩 2/3›", "‹💩 3/3›!")
    assert labels((tuple(range(7)), (1, 2), (4,)), names) == (
        "␣po💩💩!",
        "‹💩 1/3›‹💩 2/3›",
        "‹💩 1/3›",
    )


# --- tokens taken out


def test_a_key_taken_out_by_hand():
    weights = torch.tensor([[0.5, 0.375, 0.125], [1.0, 0.0, 0.0], [0.5, NAN, 0.5]])
    found = leave_out(of_tokens(weights), [0])
    same(found.values, [[0.75, 0.25], [NAN, NAN], [NAN, 1.0]])
    assert found.queries == ((0,), (1,), (2,))
    assert found.keys == ((1,), (2,))
    square = leave_out(of_tokens(weights), [0], [0])
    same(square.values, [[NAN, NAN], [NAN, 1.0]])
    assert square.queries == ((1,), (2,))
    same(leave_out(of_tokens(weights), [0], divide=False).values, weights[:, 1:])


def test_what_a_sink_takes_is_given_back():
    same(leave_out(of_tokens(torch.tensor([[0.25, 0.25, 0.25]])), [1]).values, [[0.5, 0.5]])


def test_nothing_left_is_empty():
    found = leave_out(of_tokens(torch.ones(2, 2)), [0, 1])
    assert found.values.shape == (2, 0)
    assert found.keys == ()


@pytest.mark.parametrize("hidden", [None, CAUSAL])
def test_rows_are_divided_and_columns_are_not(hidden: Tensor | None):
    weights = rows_of_weights(hidden)
    found = leave_out(of_tokens(weights), {2, 5})
    kept = [key for key in range(KEYS) if key not in (2, 5)]
    for query in range(QUERIES):
        left = sum(w for w in weights[query, kept].tolist() if not math.isnan(w))
        same(found.values[query], weights[query, kept] / left)


def test_negative_numbers_are_not_shared_out():
    scores = of_tokens(torch.tensor([[1.0, -2.0, 4.0]]))
    with pytest.raises(ValueError, match="negative"):
        leave_out(scores, [2])
    same(leave_out(scores, [2], divide=False).values, [[1.0, -2.0]])


def test_a_word_goes_with_any_of_its_tokens():
    words = fold_words(of_tokens(torch.full((3, 3), 1 / 3)), (0, 0, 1), (0, 0, 1))
    found = leave_out(words, [1])
    same(found.values, [[1.0], [1.0]])
    assert found.keys == ((2,),)


# --- pairs of sentences

SEGMENTS = (None, 0, 0, 0, None, 1, 1)
PLACES = {"A": [1, 2, 3], "B": [5, 6]}


@pytest.mark.parametrize("pair", ["AA", "AB", "BA", "BB"])
def test_a_pair_is_the_rows_of_one_and_the_columns_of_the_other(pair: str):
    matrix = torch.arange(49.0).reshape(7, 7)
    found = segment(of_tokens(matrix), SEGMENTS, SEGMENTS, pair)
    rows, columns = PLACES[pair[0]], PLACES[pair[1]]
    same(found.values, [[7.0 * q + k for k in columns] for q in rows])
    assert found.queries == tuple((q,) for q in rows)
    assert found.keys == tuple((k,) for k in columns)


def test_pairs_and_special_tokens_are_all_of_a_row():
    weights = rows_of_weights()[:, :7].softmax(-1)
    whole = of_tokens(weights)
    to_a, to_b = (segment(whole, SEGMENTS, SEGMENTS, pair).values.sum(1) for pair in ("AA", "AB"))
    same(to_a + to_b + weights[1:4][:, [0, 4]].sum(1), torch.ones(3))


def test_words_of_a_pair():
    words = (None, 0, 0, 1, None, 2, 2)
    folded = fold_words(of_tokens(torch.full((7, 7), 1 / 7)), words, words)
    found = segment(folded, SEGMENTS, SEGMENTS, "BA")
    same(found.values, [[2 / 7, 1 / 7]])
    assert (found.queries, found.keys) == (((5, 6),), ((1, 2), (3,)))


TEXTS = [
    "Tokenizers cut words, the cat",
    "na\u00efve caf\u00e9s \u8fd9\u662f\u4e00\u53e5",
    "po(\U0001f4a9) \U0001f4a9\U0001f4a9 the",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "byte_level_by_characters", "metaspace"])
def test_names_of_words_are_the_text(kind: str, text: str):
    tokens = tokenize(getattr(tiny, kind)(), text)
    whole = of_tokens(torch.zeros(len(tokens), len(tokens)))
    words = fold_words(whole, tokens.words, tokens.words)
    shown = [
        name
        for span, name in zip(words.keys, labels(words.keys, tokens.labels), strict=True)
        if not tokens.special[span[0]]
    ]
    assert "".join(shown).replace("␣", " ").strip() == text


def test_names_of_wordpiece_words_are_its_words():
    tokens = tokenize(tiny.wordpiece(), "the hated dogs, daughter")
    assert any(label.startswith("…") for label in tokens.labels)
    whole = of_tokens(torch.zeros(len(tokens), len(tokens)))
    words = fold_words(whole, tokens.words, tokens.words)
    names = labels(words.keys, tokens.labels)
    assert names == ("[CLS]", "the", "hated", "dogs", ",", "daughter", "[SEP]")
