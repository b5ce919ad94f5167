"""What is said of shared projections, from numbers that were put in."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from attnviz.outcome import Effect
from attnviz.tying import WAYS
from attnviz.ui import tying_sentences as told
from attnviz.ui.selection import MAX_SEED
from attnviz.ui.tying import Pattern
from attnviz.ui.tying_figures import MAX_SEED as SEEDS

EMPTY = pd.DataFrame()
PATTERN = Pattern(EMPTY, EMPTY, EMPTY, EMPTY, moved=0.25, most=3, most_moved=0.5, top=1.0)
LOSS = Effect("from before", None, (2.0, 5.0), None, None, None, ())


def test_every_way_is_told():
    assert tuple(told.WAYS) == tuple(told.WITH_TRAINING) == WAYS
    assert SEEDS == MAX_SEED


def test_heads_that_change_together():
    assert told.also(()) == ""
    assert told.also((2,)).startswith("Head 2 reads the same")
    assert told.also((0, 2, 3)).startswith("Heads 0, 2 and 3 read the same")


def test_attention_that_moves():
    said = told.moved(PATTERN, "layer 1, head 2", "Q := K", "all", "“it”")
    assert said == (
        "In layer 1, head 2, 25\u00a0% of a query’s attention goes elsewhere on average, and "
        "50\u00a0% of that of “it”."
    )
    later = told.moved(PATTERN, "layer 1, head 2", "V := K", "all", "“it”")
    assert later.endswith("because earlier layers return something else.")


def test_attention_that_stays():
    still = replace(PATTERN, moved=0.0)
    assert told.moved(still, "layer 0, head 1", "V := K", "head", "“it”") == (
        "The pattern of layer 0, head 1 stays as it is, since no pattern is made of values."
    )
    assert told.moved(still, "layer 0, head 1", "Q := K", "head", "“it”").endswith("as it is.")


@pytest.mark.parametrize(
    ("effect", "begins"),
    [
        (LOSS, "So this trained model uses its projections in separate roles. It is no proof"),
        (replace(LOSS, mean_losses=(2.0, 1.5)), "On this text the model does even better"),
        (replace(LOSS, mean_losses=(2.0, 2.04)), "On this text that hardly matters"),
        (replace(LOSS, mean_losses=(2.0, 2.09)), "The loss rises by 4.5 %: too little to conclude"),
        (replace(LOSS, mean_losses=None, change=0.4), "That the output hangs on it is all"),
        (replace(LOSS, mean_losses=None, change=0.01), "On this text that hardly matters"),
    ],
)
def test_no_more_is_concluded_than_was_seen(effect: Effect, begins: str):
    assert told.shows(effect, "K := V").startswith(begins)


def test_nothing_is_concluded_from_nothing():
    assert told.shows(replace(LOSS, mean_losses=None), "K := V") == ""


def test_seeds_are_told_where_there_is_one():
    assert told.made("values shuffled", "all heads", 5).endswith("order drawn with seed 5")
    assert "seed" not in told.made("K := V", "all heads", 5)
