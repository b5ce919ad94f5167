"""What the finder says: every figure is one of the scores, and nothing is claimed below chance."""

from __future__ import annotations

import math

import pytest
import torch

from attnviz import patterns
from attnviz.finder import Scores
from attnviz.head_frames import found_heads, heads_of_kind
from attnviz.patterns import BROAD, DELIMITER, INDUCTION, NEXT, OFFSET, PREVIOUS, Kind
from attnviz.ui import finder_sentences as sentences
from attnviz.ui.finder import Found


def scores(of: tuple[float, ...], even: float, moved: float, offset=None) -> Scores:
    places = None if offset is None else torch.tensor(offset)
    return Scores(torch.tensor(of), even, torch.full((20,), moved), 7, places)


def told(
    kind: Kind,
    on_text: tuple[float, ...],
    *on_repeats: tuple[float, ...],
    even: float = 0.083,
    moved: float = 0.15,
    moved_on_repeats: float = 0.04,
    offset: list[int] | None = None,
) -> dict[str, str]:
    """All that is said of one layer, number 5, with these scores."""
    found = {5: {kind.name: scores(on_text, even, moved, offset)}}
    drawn = [{5: {kind.name: scores(draw, 0.01, moved_on_repeats, offset)}} for draw in on_repeats]
    everything = Found(
        kinds=(kind,),
        table=found_heads(found, drawn),
        chance={kind.name: moved},
        chance_on_repeats={kind.name: moved_on_repeats} if drawn else {},
        repeated=50 if drawn else 0,
        draws=len(drawn),
    )
    table = heads_of_kind(everything.table, kind.name)
    return {
        "best": " ".join(sentences.best(everything, kind, table)),
        "repeats": sentences.on_repeats(everything, kind, table),
        "compared": sentences.compared(everything, kind, table),
    }


def test_the_best_heads_beside_even_weights_and_chance():
    said = told(PREVIOUS, (0.3, 0.1, 0.99), (0.25, 0.1, 0.97), (0.25, 0.1, 0.99))
    assert said["best"] == (
        "Layer 5, head 2 looks at the token before, 0.99 of the time; even weights would give "
        "0.08, and by chance the best of 3 heads would reach 0.15. Next: layer 5, head 0, 0.30."
    )
    assert said["repeats"] == (
        "On random tokens, read twice, layer 5, head 2 does so too, 0.98 ± 0.01."
    )
    assert said["compared"] == (
        "To compare with: on this text even weights give 0.08 and the best head by chance 0.15; "
        "on random tokens the best head by chance 0.04 (2 draws of 50 tokens, read twice)."
    )


def test_three_heads_are_told_at_most():
    assert told(PREVIOUS, (0.5, 0.6, 0.7, 0.8))["best"].count("head ") == 3


def test_nothing_is_claimed_below_chance():
    said = told(INDUCTION, (0.1, 0.14), (0.01, 0.03))
    assert said["best"] == (
        "No head does this more than chance allows: the best, layer 5, head 1, has 0.14; by "
        "chance the best of 2 heads would reach 0.15."
    )
    assert said["repeats"] == (
        "On random tokens, read twice, no head does this more than chance allows: the best, layer "
        "5, head 1, has 0.03, by chance 0.04."
    )


def test_nothing_is_claimed_below_even_weights():
    said = told(patterns.LOCAL, (0.4,), even=0.45, moved=0.3)
    assert said["best"].startswith("No head")


def test_a_text_without_repeats_says_so_and_random_tokens_speak():
    said = told(INDUCTION, (math.nan, math.nan), (0.1, 0.9), even=math.nan, moved=math.nan)
    assert said["best"] == (
        "No token comes twice with another after it. So there is nothing to score here."
    )
    assert said["repeats"] == (
        "On random tokens, read twice, layer 5, head 1 looks at what followed the same token "
        "elsewhere, 0.90."
    )
    assert said["compared"].startswith("To compare with: on random tokens the best head by chance")
    assert "nan" not in " ".join(said.values())


def test_what_nothing_can_tell_is_not_compared():
    nothing = (math.nan, math.nan)
    said = told(NEXT, nothing, nothing, even=math.nan, moved=math.nan, moved_on_repeats=math.nan)
    assert said["best"].startswith("No token sees one that comes after it.")
    assert said["repeats"] == said["compared"] == ""


def test_text_and_random_tokens_may_disagree():
    only_here = told(PREVIOUS, (0.9, 0.1), (0.02, 0.01))
    assert only_here["repeats"].startswith("On random tokens, read twice, no head does this more")
    other = told(PREVIOUS, (0.9, 0.1), (0.02, 0.7))
    assert other["repeats"] == (
        "On random tokens, read twice, layer 5, head 0 does so no more than chance allows, 0.02, "
        "by chance 0.04: what it does here rests on these words. First there is layer 5, head 1, "
        "0.70; on this text it has 0.10."
    )
    less = told(PREVIOUS, (0.9, 0.1), (0.4, 0.1))
    assert less["repeats"].endswith("layer 5, head 0 does so too, but less, 0.40.")


def test_no_delimiter_among_random_tokens():
    said = told(DELIMITER, (0.5, 0.2), (math.nan, math.nan), moved_on_repeats=math.nan)
    assert said["repeats"] == "Random tokens tell nothing here."
    assert "random" not in said["compared"]


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (-1, "looks 1 token back"),
        (-7, "looks 7 tokens back"),
        (1, "looks 1 token ahead"),
        (2, "looks 2 tokens ahead"),
        (0, "looks at the token itself"),
    ],
)
def test_a_fixed_offset_is_named(offset: int, words: str):
    said = told(OFFSET, (0.9, 0.3), offset=[offset, -3])
    assert said["best"].startswith(f"Layer 5, head 0 {words}, 0.90 of the time;")
    assert said["best"].endswith("Next: layer 5, head 1 looks 3 tokens back, 0.30.")


def test_a_broad_head_is_told_by_its_entropy():
    said = told(BROAD, (0.5, 0.93), (0.4, 0.911), (0.4, 0.909), even=1.0, moved=math.nan)
    assert said["best"] == (
        "Layer 5, head 1 spreads its weights most: the entropy of its rows is 0.93 of what even "
        "weights have."
    )
    assert said["repeats"] == "On random tokens, read twice, it has 0.910 ± 0.001."
    assert said["compared"].startswith("Even weights have 1;")


def test_a_model_that_reads_no_text_has_no_random_tokens():
    said = told(PREVIOUS, (0.9,))
    assert said["repeats"] == ""
    assert "the best of 1 head would" in said["best"]
