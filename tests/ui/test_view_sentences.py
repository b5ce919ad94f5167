"""What is said of a head's numbers: sentences from hand-made numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

from attnviz import frames
from attnviz.ui import view_sentences as told
from attnviz.ui.heads import WhichHead
from attnviz.ui.views import Axes, How, View

NAN = float("nan")
QUERIES = frames.token_axis(["<s>", "the", "*cat*"]).set_index("position", drop=False)
KEYS = frames.token_axis(["a", "␣dog", "a", "猫", "."]).set_index("position", drop=False)
AXES = Axes(QUERIES, KEYS)
ROW = pd.Series([0.1, 0.61, 0.2, NAN, 0.09])
HOWS = [
    How(weighed, over, without, words, pairing)  # type: ignore[arg-type]
    for weighed, over, without, words, pairing in product(
        ("weights", "norms", "scores", "logits"),
        ("head", "mean_heads", "max_heads", "mean_layers", "max_layers", "rollout"),
        ("nothing", "first", "special"),
        (False, True),
        ("all", "AA", "AB", "BA", "BB"),
    )
    if weighed == "weights" or over == "head"
]


# --- the headline


def test_the_headline_names_the_largest():
    said = told.headline(How(), 2, ROW, AXES)
    assert said == "“*cat*” looks most at “dog”: 0.61 of its attention"


def test_equal_words_are_told_apart_by_their_place():
    said = told.headline(How(), 1, pd.Series([0.1, 0.2, 0.5, 0.1, 0.1]), AXES)
    assert said == "“the” looks most at “a” (position 2): 0.50 of its attention"


@pytest.mark.parametrize("row", [[NAN] * 5, [0.0] * 5, [NAN, 0.0, NAN, 0.0, 0.0]])
def test_a_row_with_nothing_in_it_looks_at_nothing(row: list[float]):
    assert told.headline(How(), 2, pd.Series(row), AXES) == "“*cat*” looks at nothing here"


@pytest.mark.parametrize(
    ("weighed", "name"),
    [("scores", "score q·k"), ("logits", "logit"), ("norms", "‖weight · value · W_O‖")],
)
def test_other_numbers_are_no_share_of_attention(weighed: str, name: str):
    how = How(weighed)  # type: ignore[arg-type]
    said = told.headline(how, 2, pd.Series([-7.5, -1.2345, -30.0, NAN, -2.0]), AXES)
    assert said == f"“*cat*” has its largest {name} with “dog”: −1.23"


def test_rollout_mixes():
    said = told.headline(How(over="rollout"), 2, ROW, AXES)
    assert "“*cat*” is mixed most of all from “dog”: 0.61" in said
    assert "attention" not in said


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (-0.5, "−0.5"), (1234.5, "1.23e+03"), (12.345, "12.3"), (-1e-9, "−1e−09")],
)
def test_numbers_have_three_digits_and_a_true_minus(value: float, written: str):
    assert told.number(value) == written


# --- what was made of the weights


def test_of_the_heads_own_weights_there_is_nothing_to_say():
    assert told.about(How()) == []
    assert told.made(How()) == ""


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_every_change_is_told_in_whole_sentences(how: How):
    said, short = told.about(how), told.made(how)
    assert all(sentence[0].isupper() or sentence.startswith("q·k") for sentence in said)
    assert all(sentence.endswith(".") for sentence in said)
    assert len(set(said)) == len(said)
    assert bool(said) == (how != How())
    assert bool(short) == (replace(how, over="head") != How())
    joined = " ".join(said)
    divided = how.without != "nothing" and how.weighed == "weights"
    assert ("divided by what is left" in joined) == divided
    if how.words:
        assert "Pieces of a word are one" in joined
        assert ("lengths of a key's pieces" in joined) == (how.weighed == "norms")
    if how.over == "rollout":
        assert "as if it were all that happens" in joined
    if how.over.endswith("layers"):
        assert "heads are averaged within each layer first" in joined
    if how.over.startswith("mean"):
        assert "two heads that each look at one token" in joined
    if how.over.startswith("max"):
        assert "its rows are shares of nothing" in joined
    if how.over.endswith("layers") or how.over == "rollout":
        assert "the same whichever layer and head" in joined
    if how.pairing != "all":
        first, second = ({"A": "the first", "B": "the second"}[letter] for letter in how.pairing)
        assert f"from {first} text to {second}" in joined


def test_no_two_ways_have_the_same_caption():
    captions = [(told.place(replace(view(5, 7), how=how)), told.made(how)) for how in HOWS]
    assert len(set(captions)) == len(captions)
    assert told.made(How(over="mean_heads", words=True, pairing="AB")) == "whole words · A → B"


def test_what_learned_sinks_took_is_shared_out_too():
    divided = How(without="first")
    assert "learned sink" in " ".join(told.about(divided, sinks=True))
    assert "learned sink" not in " ".join(told.about(divided))
    assert "learned sink" not in " ".join(told.about(How("scores", without="first"), sinks=True))


@pytest.mark.parametrize(("over", "of"), [("max_heads", "head"), ("max_layers", "layer")])
def test_a_maximum_is_no_share_of_attention(over: str, of: str):
    said = told.headline(How(over=over), 2, ROW, AXES)  # type: ignore[arg-type]
    assert said == f"“*cat*” looks most at “dog”: 0.61 in one {of}"


# --- how much is in view

HEAD = WhichHead("MiniLM", "encoder", True, 3, 11, 32, 0.2, (613, 613), "float32", 1e-7, 0.0)


def view(rows: int, columns: int, downsampled: bool = False, windowed: bool = False) -> View:
    queries, keys = frames.token_axis(["a"] * rows), frames.token_axis(["b"] * columns)
    return View(
        head=HEAD,
        heads=12,
        how=How(),
        cross=False,
        sinks=False,
        numbers=pd.DataFrame(0.0, index=range(rows), columns=range(columns)),
        queries=queries,
        keys=keys,
        query=0,
        key=0,
        downsampled=downsampled,
        windowed=windowed,
    )


def test_all_of_a_matrix_needs_no_word():
    assert told.sampled(view(5, 7), (5, 7)) == ""


def test_blocks_are_said_to_be_the_largest_of_theirs():
    said = told.sampled(view(307, 303, downsampled=True), (1_227, 16_411))
    assert "1,227 × 16,411 " in said
    assert "307 × 303 cells" in said
    assert "largest of its block" in said


def test_a_window_says_how_large_it_is():
    said = told.sampled(view(41, 37, windowed=True), (613, 1_009))
    assert "41 × 37" in said
    assert "613 × 1,009" in said
    assert said.endswith(".")


def test_a_head_is_named_with_its_part_where_there_are_several():
    assert told.place(view(5, 7)) == "layer 3, head 11"
    several = replace(view(5, 7), head=replace(HEAD, part="cross", only_part=False))
    assert told.place(several) == "layer 3, head 11, cross"


@pytest.mark.parametrize(
    ("over", "place", "file"),
    [
        ("head", "layer 3, head 11", "L3H11"),
        ("mean_heads", "layer 3, mean over 12 heads", "L3 mean of heads"),
        ("max_heads", "layer 3, maximum over 12 heads", "L3 max of heads"),
        ("mean_layers", "mean over all layers", "mean layers"),
        ("rollout", "attention rollout over all layers", "rollout"),
    ],
)
def test_pooled_numbers_are_of_no_single_head(over: str, place: str, file: str):
    pooled = replace(view(5, 7), how=How(over=over))  # type: ignore[arg-type]
    assert told.place(pooled) == place
    assert told.file_place(pooled) == file


def test_lines_of_a_part_say_of_how_many():
    said = told.window_of_lines(120, 1_613)
    assert "120 tokens" in said
    assert "1,613" in said
    assert said.endswith(".")
