"""Every way to show a head: its numbers against what transformers itself computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import saved_models
import tiny_models
import torch
from heads_reference import (
    HEAD,
    LAYER,
    PAIR,
    TEXT,
    Array,
    bundled,
    groups,
    kept,
    long_text,
    minilm,
    rolled_out,
)

from attnviz.ui import controls, views
from attnviz.ui.readings import Asked, NotServed, served
from attnviz.ui.views import How, Place, View

NEVER = -1  # no token stands there: the chosen one is the first

PLACE = Place(Asked("minilm", TEXT), "encoder", LAYER, HEAD)
OF_TWO = replace(PLACE, asked=Asked("minilm", TEXT, pair=PAIR))


def shown(place: Place = PLACE, zoom: int = 0, query: int = 0, key: int = 0, **how: object) -> View:
    return views.view(place, How(**how), zoom, query, key)  # type: ignore[arg-type]


def check(view: View, expected: Array, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(view.numbers.to_numpy(float), expected, atol=atol)
    assert view.numbers.index.tolist() == view.queries["position"].tolist()
    assert view.numbers.columns.tolist() == view.keys["position"].tolist()


# --- what is weighed


def test_bare_weights_are_those_of_the_model():
    view = shown()
    check(view, minilm().weights[LAYER, HEAD])
    assert not view.downsampled
    assert not view.windowed
    assert view.heads == 12
    assert (view.head.layer, view.head.head) == (LAYER, HEAD)


def test_scores_are_queries_times_keys_and_logits_divide_by_the_root_of_32():
    scores = minilm().scores[LAYER, HEAD]
    assert scores.min() < 0
    check(shown(weighed="scores"), scores, 2e-4)
    check(shown(weighed="logits"), scores / 32**0.5, 2e-4)


def test_norms_are_the_lengths_of_what_is_added_to_the_stream():
    check(shown(weighed="norms"), minilm().norms[HEAD], 1e-5)


# --- over which heads


@pytest.mark.parametrize(
    ("over", "pool"),
    [
        ("mean_heads", lambda weights: weights[LAYER].mean(0)),
        ("max_heads", lambda weights: weights[LAYER].max(0)),
        ("mean_layers", lambda weights: weights.mean((0, 1))),
        ("max_layers", lambda weights: weights.mean(1).max(0)),
        ("rollout", rolled_out),
    ],
)
def test_several_heads_and_layers_in_one(over: str, pool: Callable[[Array], Array]):
    view = shown(over=over)
    check(view, pool(minilm().weights))
    if not over.startswith("max"):
        np.testing.assert_allclose(view.numbers.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("over", ["mean_heads", "mean_layers", "rollout"])
@pytest.mark.parametrize("without", ["nothing", "first", "special"])
@pytest.mark.parametrize("words", [False, True])
def test_rows_of_a_mean_sum_to_1_whatever_is_left_out(over: str, without: str, words: bool):
    for place in (PLACE, Place(Asked("bundled", TEXT), "decoder", 1, 3)):
        sums = shown(place, over=over, without=without, words=words).numbers.sum(axis=1)
        np.testing.assert_allclose(sums, 1, atol=1e-5)


# --- which tokens


@pytest.mark.parametrize("over", ["head", "mean_heads", "rollout"])
def test_what_is_left_is_divided_by_its_sum(over: str):
    reference, n = minilm(), len(minilm().words)
    matrix = {
        "head": reference.weights[LAYER, HEAD],
        "mean_heads": reference.weights[LAYER].mean(0),
        "rollout": rolled_out(reference.weights),
    }[over]
    after_first = range(1, n)
    check(shown(over=over, without="first"), kept(matrix, after_first, after_first))
    assert reference.special == [0, n - 1]
    between = range(1, n - 1)
    view = shown(over=over, without="special")
    check(view, kept(matrix, between, between))
    assert view.queries["position"].tolist() == list(between)
    assert not view.keys["special"].any()


@pytest.mark.parametrize("weighed", ["norms", "scores", "logits"])
def test_only_weights_are_divided(weighed: str):
    whole = shown(weighed=weighed).numbers
    left = shown(weighed=weighed, without="special").numbers
    np.testing.assert_array_equal(left, whole.iloc[1:-1, 1:-1])


def test_pieces_of_a_word_are_summed_over_keys_and_averaged_over_queries():
    reference, n = minilm(), len(minilm().words)
    view = shown(words=True)
    check(view, reference.shown(words=True)[0])
    np.testing.assert_allclose(view.numbers.sum(axis=1), 1, atol=1e-5)
    assert len(view.queries) < n - 5, "no word of the text has pieces"
    assert view.keys["token"].tolist() == [
        *("[CLS]", "the", "unquestionably", "tokenized", "storyteller", "embarrassed", "alice"),
        *(".", "[SEP]"),
    ]
    spans = [group for group in groups(reference.words, range(n)) if len(group) > 1]
    assert {(span[0], span[-1]) for span in spans} <= set(
        zip(view.keys["position"], view.keys["last"], strict=True)
    )


# --- two texts


@pytest.mark.parametrize("pairing", ["AA", "AB", "BA", "BB"])
@pytest.mark.parametrize("weighed", ["weights", "scores"])
def test_from_one_text_to_one_text(pairing: str, weighed: str):
    reference = minilm(PAIR)
    matrix = getattr(reference, weighed)[LAYER, HEAD]
    rows, columns = (
        [at for at, of in enumerate(reference.segments) if of == "AB".index(letter)]
        for letter in pairing
    )
    assert len(rows) > 7
    assert len(columns) > 7
    view = shown(OF_TWO, pairing=pairing, weighed=weighed)
    check(view, matrix[np.ix_(rows, columns)], 2e-4 if weighed == "scores" else 2e-6)
    assert view.queries["position"].tolist() == rows
    assert view.keys["position"].tolist() == columns


# --- everything with everything

WEIGHED = [("weights", over) for over in ("head", "mean_heads", "max_heads", "mean_layers")]
WEIGHED += [("weights", "max_layers"), ("weights", "rollout")]
WEIGHED += [(weighed, "head") for weighed in ("norms", "scores", "logits")]


@pytest.mark.parametrize(("weighed", "over"), WEIGHED)
@pytest.mark.parametrize("without", ["nothing", "first", "special"])
def test_every_choice_goes_with_every_other(weighed: str, over: str, without: str):
    """Words of scores and logits are not offered: they are no sums of their pieces'."""
    folds = (False, True) if weighed in ("weights", "norms") else (False,)
    for words, pairing in product(folds, ("all", "AA", "AB", "BA", "BB")):
        how = {"weighed": weighed, "over": over, "without": without}
        how |= {"words": words, "pairing": pairing}
        expected, rows, columns = minilm(PAIR).shown(**how)
        view = shown(OF_TWO, **how)
        check(view, expected, 2e-4 if weighed in ("scores", "logits") else 1e-5)
        assert view.queries["position"].tolist() == rows
        assert view.keys["position"].tolist() == columns


# --- rows and cells of it


@pytest.mark.parametrize(
    "how",
    [
        How(),
        How(over="max_heads", without="first"),
        How("norms", words=True),
        How("scores", without="special"),
        How(over="rollout", words=True),
    ],
)
def test_a_row_is_that_of_the_matrix(how: How):
    view = views.view(PLACE, how, 0, NEVER, NEVER)
    for query in view.queries["position"]:
        row = views.row(PLACE, how, query)
        assert row.index.tolist() == view.keys["position"].tolist()
        np.testing.assert_allclose(row, view.numbers.loc[query])
        assert views.opening_key(PLACE, how, query) == row.abs().idxmax()


def test_a_token_lies_in_its_word():
    keys = views.axes(PLACE, How(words=True)).keys
    piece = next(span for span in zip(keys["position"], keys["last"], strict=True) if span[1] == 5)
    assert piece[0] < 5
    assert [controls.holding(keys, at) for at in piece] == [piece[0]] * 2
    assert controls.holding(keys, 0) == 0
    assert controls.holding(views.axes(PLACE, How(without="first")).keys, 0) is None
    assert controls.holding(keys, 99) is None


def test_a_chosen_piece_chooses_its_word_in_the_picture():
    view = shown(query=5, key=5, words=True)
    first = controls.holding(view.queries, 5)
    assert (view.query, view.key) == (first, first)
    assert first != 5


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A head whose rows lie on one key, as exactly as numbers can say."""
    model = tiny_models.build("gpt2", "eager")
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight *= 1e4
    path = saved_models.save(tmp_path_factory.mktemp("models") / "sharp", model)
    return Place(Asked(path, "the cat sat on the mat because it was tired"), "decoder", 0, 0)


def test_a_row_with_nothing_left_is_empty(sharp: Place):
    calls = served(sharp.asked).calls("decoder")
    emptied = 0
    for head in range(calls[0].heads):
        place = replace(sharp, head=head)
        whole = shown(place).numbers.to_numpy()
        found = shown(place, without="first").numbers.to_numpy()
        nothing = np.nansum(whole[1:, 1:], axis=1) == 0
        emptied += int(nothing.sum())
        assert np.isnan(found[nothing]).all()
        np.testing.assert_allclose(np.nansum(found[~nothing], axis=1), 1, atol=1e-5)
        for row in np.flatnonzero(nothing):
            first = views.opening_key(place, How(without="first"), int(row) + 1)
            assert first == 1, "of an empty row the first key is chosen"
    assert emptied > 0


def test_nothing_left_at_all_is_a_sentence():
    place = Place(Asked("bundled", TEXT), "decoder", 0, 0)
    with pytest.raises(NotServed, match="Nothing is left of these tokens"):
        shown(place, pairing="BB")


# --- long texts


@pytest.fixture(scope="module")
def six_hundred() -> tuple[Place, Array]:
    text, _ = long_text(600)
    return Place(Asked("bundled", text), "decoder", 1, 2), bundled(text)


@pytest.mark.parametrize("zoom", [10, 37, 300])
@pytest.mark.parametrize("chosen", [(0, 0), (401, 13), (250, 249), (10_000, 10_000)])
def test_a_window_has_the_weights_of_its_tokens(
    six_hundred: tuple[Place, Array], zoom: int, chosen: tuple[int, int]
):
    place, weights = six_hundred
    n = weights.shape[-1]
    view = shown(place, zoom, *chosen)
    rows, columns = view.queries["position"].tolist(), view.keys["position"].tolist()
    assert rows == list(range(rows[0], rows[0] + zoom))
    assert columns == list(range(columns[0], columns[0] + zoom))
    at = [min(token, n - 1) for token in chosen]
    assert (view.query, view.key) == tuple(at)
    for token, shown_tokens in zip(at, (rows, columns), strict=True):
        assert token in shown_tokens
        if shown_tokens[0] > 0 and shown_tokens[-1] < n - 1:
            assert shown_tokens.index(token) == zoom // 2
    expected = weights[1, 2][np.ix_(rows, columns)]
    expected[np.subtract.outer(rows, columns) < 0] = np.nan
    check(view, expected)
    assert view.windowed
    assert not view.downsampled


def test_a_large_picture_has_the_largest_of_each_block(six_hundred: tuple[Place, Array]):
    place, weights = six_hundred
    n = weights.shape[-1]
    step = -(-n // views.CELLS)
    assert step > 1
    view = shown(place, query=401, key=13)
    assert view.downsampled
    assert not view.windowed
    assert max(view.numbers.shape) <= views.CELLS
    check_blocks(view, weights[1, 2])
    firsts = range(0, n, step)
    assert view.queries["position"].tolist() == list(firsts)
    assert view.queries["last"].tolist() == [min(at + step, n) - 1 for at in firsts]
    assert (view.query, view.key) == (401 // step * step, 13 // step * step)


def check_blocks(view: View, matrix: Array) -> None:
    """Some of the cells against the largest weight that its query can see in the block."""
    spans = [
        list(zip(tokens["position"], tokens["last"], strict=True))
        for tokens in (view.queries, view.keys)
    ]
    for row, (query, last_query) in list(enumerate(spans[0]))[::7]:
        for column, (key, last_key) in list(enumerate(spans[1]))[::5]:
            found = view.numbers.iloc[row, column]
            if key > last_query:
                assert np.isnan(found), "all of the block is hidden"
            else:
                block = matrix[query : last_query + 1, key : last_key + 1]
                assert found == pytest.approx(block.max(), abs=2e-6)


def test_a_large_window_is_blocks_of_its_own_tokens(six_hundred: tuple[Place, Array]):
    place, weights = six_hundred
    zoom = views.CELLS + 101
    view = shown(place, zoom, 600, 400)
    assert view.windowed
    assert view.downsampled
    top, left = (int(tokens["position"].iloc[0]) for tokens in (view.queries, view.keys))
    assert (top, left) == (weights.shape[-1] - zoom, 400 - zoom // 2)
    check_blocks(view, weights[1, 2])
    assert view.queries["last"].iloc[-1] == weights.shape[-1] - 1
    assert view.keys["last"].iloc[-1] == left + zoom - 1


def test_a_cell_of_a_large_picture_stands_for_its_largest(six_hundred: tuple[Place, Array]):
    place, weights = six_hundred
    view = shown(place)
    for row, column in ((100, 3), (64, 64), (len(view.queries) - 1, 0)):
        spans = [
            slice(int(tokens["position"].iloc[at]), int(tokens["last"].iloc[at]) + 1)
            for tokens, at in ((view.queries, row), (view.keys, column))
        ]
        block = weights[1, 2][tuple(spans)]
        down, across = np.unravel_index(block.argmax(), block.shape)
        largest = (spans[0].start + down, spans[1].start + across)
        assert views.strongest(place, view, spans[0].start, spans[1].start) == largest
    small = shown(place, 37, 401, 13)
    assert views.strongest(place, small, 400, 13) == (400, 13)


def test_blocks_of_signed_numbers_have_the_one_farthest_from_0(six_hundred: tuple[Place, Array]):
    place, weights = six_hundred
    view = shown(place, weighed="scores")
    step = -(-weights.shape[-1] // views.CELLS)
    query = int(view.queries["position"].iloc[-9])
    rows = [views.row(place, How("scores"), query + down) for down in range(step)]
    signs = set()
    for key in view.keys["position"].iloc[:-20]:
        block = np.concatenate([row.loc[key : key + step - 1] for row in rows])
        expected = block[np.nanargmax(np.abs(block))]
        signs.add(np.sign(expected))
        assert view.numbers.loc[query, key] == pytest.approx(expected, abs=1e-5)
    assert signs == {-1, 1}


@pytest.fixture(scope="module")
def beyond() -> tuple[Place, Array]:
    """A text of which no whole matrix is held."""
    text, n = long_text(views.WHOLE + 1)
    assert n > views.WHOLE
    return Place(Asked("bundled", text), "decoder", 0, 3), bundled(text)


def test_of_a_very_long_text_only_what_is_seen_is_worked_out(
    beyond: tuple[Place, Array], monkeypatch: pytest.MonkeyPatch
):
    place, weights = beyond
    monkeypatch.setattr(views, "_whole", lambda *given: pytest.fail("the whole matrix"))
    view = shown(place, 40, 1999, 1990)
    rows = view.queries["position"].tolist()
    columns = view.keys["position"].tolist()
    expected = weights[0, 3][np.ix_(rows, columns)]
    check(view, np.where(np.subtract.outer(rows, columns) < 0, np.nan, expected))
    mean = shown(place, 40, 1999, 1990, over="mean_heads")
    expected = weights[0].mean(0)[np.ix_(rows, columns)]
    check(mean, np.where(np.subtract.outer(rows, columns) < 0, np.nan, expected))
    row = views.row(place, How(), 1999)
    np.testing.assert_allclose(row.iloc[:2000], weights[0, 3, 1999, :2000], atol=2e-6)
    assert row.iloc[2000:].isna().all()
    picture = shown(place)
    assert max(picture.numbers.shape) <= views.CELLS
    step = int(picture.queries["last"].iloc[0]) + 1
    last = weights[0, 3, -(weights.shape[-1] % step or step) :, :step].max()
    assert picture.numbers.iloc[-1, 0] == pytest.approx(last, abs=2e-6)


@pytest.mark.parametrize(
    "how",
    [How(over="mean_layers"), How(over="rollout"), How(without="first"), How(words=True)],
)
def test_what_a_very_long_text_is_not_made_into_is_told(beyond: tuple[Place, Array], how: How):
    with pytest.raises(NotServed, match=r"more than 2,048 tokens, single heads .* shorter text\.$"):
        views.view(beyond[0], how, 0, 0, 0)


def test_lengths_and_rollout_of_a_long_text_are_told(six_hundred: tuple[Place, Array]):
    with pytest.raises(NotServed, match=r"at most 512 tokens.* Choose bare weights"):
        shown(six_hundred[0], weighed="norms")
    with pytest.raises(NotServed, match=r"Attention rollout .* at most 512 tokens"):
        shown(six_hundred[0], over="rollout")


# --- models of other kinds


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Cross-attention of an encoder with a decoder."""
    path = saved_models.save(tmp_path_factory.mktemp("models") / "t5", "t5")
    asked = Asked(path, "the king was tired of the cat", target="the queen was")
    return Place(asked, "cross", 1, 2)


def test_cross_attention_keeps_its_queries_where_keys_are_left_out(translated: Place):
    whole = shown(translated)
    assert whole.cross
    assert whole.numbers.shape[0] != whole.numbers.shape[1]
    view = shown(translated, without="first")
    matrix = whole.numbers.to_numpy(float)
    check(view, kept(matrix, range(len(matrix)), range(1, matrix.shape[1])), 1e-6)


def test_rollout_to_another_text_is_told(translated: Place):
    with pytest.raises(NotServed, match=r"queries and keys that are the same tokens.*\.$"):
        shown(translated, over="rollout")


def test_scores_of_a_model_with_weights_only_are_told(monkeypatch: pytest.MonkeyPatch):
    reading = served(Asked("bundled", "The king gave the key."))
    weights = torch.tensor(bundled("The king gave the key."), dtype=torch.float32)
    calls = tuple(
        replace(call, query=None, key=None, mask=None, observed_weights=weights[at][None])
        for at, call in enumerate(reading.capture.calls)
    )
    reading = replace(reading, capture=replace(reading.capture, calls=calls))
    monkeypatch.setattr(views, "served", lambda asked, limit: reading)
    place = Place(Asked("bundled", "weights only"), "decoder", 1, 3)
    for weighed in ("scores", "logits"):
        with pytest.raises(NotServed, match="offers its weights only"):
            shown(place, weighed=weighed)
    np.testing.assert_allclose(shown(place).numbers.fillna(0), weights[1, 3], atol=1e-6)


@pytest.mark.parametrize(
    ("part", "layer", "head"), [("cross", 0, 0), ("decoder", 7, 0), ("decoder", 0, 4)]
)
def test_a_pinned_head_that_is_not_there_is_told(part: str, layer: int, head: int):
    place = Place(Asked("bundled", "The king."), part, layer, head)
    with pytest.raises(NotServed, match=rf"no layer {layer}, head {head} \({part}\).*Let it go"):
        views.checked(place)


def test_a_pinned_head_that_is_there_is_the_same():
    place = Place(Asked("bundled", "The king."), "decoder", 1, 3)
    assert views.checked(place) is place
