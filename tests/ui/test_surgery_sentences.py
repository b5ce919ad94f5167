"""Sentences about changed runs: each from its numbers, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from attnviz.outcome import Effect
from attnviz.surgery_frames import against_factor
from attnviz.ui import surgery_sentences as told
from attnviz.ui.heads import WhichHead

HEAD = WhichHead("Tiny", "decoder", True, 1, 3, 64, 0.125, (7, 7), "float32", 1e-7, 0.0)
NOTHING = Effect("not", None, None, None, None, None, ())
NEXT = ((5, 0.5, 0.125), (3, 0.25, 0.375))


def with_losses(before: float, after: float) -> Effect:
    return replace(NOTHING, predicted="from before", mean_losses=(before, after))


@pytest.mark.parametrize(
    ("effect", "sentence"),
    [
        (with_losses(2.52, 5.8), "Undivided: 5.80 nats per token instead of 2.52"),
        (with_losses(2.52, 2.521), "Undivided: 2.52 nats per token, as before to a hundredth"),
        (with_losses(2.52, 2.52), "Undivided: 2.52 nats per token, as before"),
        (
            replace(NOTHING, change=0.4321),
            "Undivided: the output changes by 43\u00a0% of its length",
        ),
        (
            replace(NOTHING, change=12.3),
            "Undivided: the output changes by 1,230\u00a0% of its length",
        ),
        (replace(NOTHING, change=0.0), "Undivided: the output stays as it is"),
        (NOTHING, "Undivided: nothing to compare"),
    ],
)
def test_headline(effect: Effect, sentence: str):
    assert told.headline(effect, "undivided") == sentence


def test_what_a_divisor_is_to_the_model():
    assert told.as_factor("undivided", 8.0, False) == ("Undivided, q·k is 8 times the model’s own.")
    assert "is on average about 2.35 times" in told.as_factor("as if divided by d_k", 2.3456, True)
    assert told.as_factor("undivided", 1.0, False) == ""


def test_what_was_done():
    assert told.done(1.0, "1") == "undivided"
    assert told.done(1.0, "d_k²") == "as if divided by d_k²"
    assert told.done(0.8409, None) == "times 0.84"
    assert told.done(0.0, None) == "times 0"


def test_what_comes_next():
    """e^1 ≈ 2.7 and e^2 ≈ 7.4 equally likely tokens."""
    effect = replace(NOTHING, entropies=(1.0, 2.0), next_tokens=NEXT)
    assert told.what_comes_next(effect, ["␣sea", "␣sun"]) == (
        "What comes next is as uncertain as 7.4 equally likely tokens instead of 2.7: an entropy "
        "of 2.00 nats instead of 1.00. The likeliest is “sun” (0.38) instead of “sea” (0.50)."
    )
    same = replace(effect, next_tokens=(NEXT[0],))
    assert "“sea” stays the likeliest, 0.50 before and 0.12 after." in told.what_comes_next(
        same, ["␣sea"]
    )
    nothing = replace(effect, entropies=(1.0, 1.0), next_tokens=((5, 0.5, 0.5),))
    assert told.what_comes_next(nothing, ["␣sea"]) == (
        "What comes next is as uncertain as before, as 2.7 equally likely tokens; the likeliest is "
        "“sea” (0.50)."
    )
    assert told.what_comes_next(NOTHING, []) == ""


def points(**losses: float) -> pd.DataFrame:
    """Losses by factor, the own one 2.5; `x0_5` is the factor 0.5."""
    given = [(float(name[1:].replace("_", ".")), "", loss) for name, loss in losses.items()]
    return against_factor([*given, (1.0, "√d_k", 2.5)], 2.5)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (points(x0_2=4.0, x2=3.0), "lowest at the model’s own scale: 2.50 nats."),
        (
            points(x0_2=4.0, x0_84=2.48, x2=3.0),
            "lowest near the model’s own scale, at 0.84 times it: 2.48 nats; from 0.84 to 1 it is "
            "less than 0.05 nats more.",
        ),
        (
            points(x0_2=2.0, x2=3.0),
            "lowest at 0.2 times the model’s own scale: 2.00 nats, against 2.50 at its own.",
        ),
        (points(x0=2.0), "lowest without any scores, at the factor 0: 2.00 nats, against 2.50"),
        (points(x0=2.52, x2=2.51), "All 3 points differ by less than 0.05 nats"),
    ],
)
def test_where_the_loss_is_lowest(table: pd.DataFrame, sentence: str):
    assert sentence in told.lowest(table)


def test_each_divisor_is_told_from_the_strongest_attention_on():
    table = against_factor([(8.0, "1", 3.0), (1.0, "√d_k", 2.5), (0.125, "d_k", 4.25)], 2.5)
    assert told.by_divisor(table) == (
        "Loss in nats per token, divided by 1: 3.00, √d_k (its own): 2.50, d_k: 4.25."
    )
    changes = against_factor([(8.0, "1", 0.923), (1.0, "√d_k", 0.0)])
    assert told.by_divisor(changes) == (
        "By how much the output changes, divided by 1: 92\u00a0%, √d_k (its own): 0\u00a0%."
    )


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [
        (0.125, "Its own scale: the model divides by √64, d_k = 64."),
        (1.0, "So “÷ 1” changes nothing, and “÷ √d_k” is a change as the others are."),
        (1 / 64, "So “÷ d_k” changes nothing"),
        (0.1, "That is as a divisor of 10, and “÷ √d_k” is a change as the others are."),
    ],
)
def test_own_divisor(scale: float, sentence: str):
    assert sentence in told.own_divisor(replace(HEAD, scale=scale), False)
    assert "geometric mean" in told.own_divisor(HEAD, True)
    assert told.own_divisor(replace(HEAD, d_k=None, scale=None), False) == ""


def test_layers_that_are_not_changed():
    def unread(*layers: tuple[str, int]) -> list[SimpleNamespace]:
        return [SimpleNamespace(tower=tower, layer=layer) for tower, layer in layers]

    assert told.not_changed([]) == ""
    assert told.not_changed(unread(("decoder", 3))) == ("Layer 3 was not read, and stays as it is.")
    several = unread(("decoder", 0), ("decoder", 1), ("decoder", 2), ("decoder", 5))
    assert told.not_changed(several) == ("Layers 0 to 2, 5 were not read, and stay as they are.")
    towers = unread(("text", 1), ("vision", 0), ("vision", 2))
    assert told.not_changed(towers) == (
        "Layer 1 (text), layers 0, 2 (vision) were not read, and stay as they are."
    )


def test_whose_scores():
    assert told.of_whom("all", HEAD) == "all heads"
    assert told.of_whom("layer", HEAD) == "all heads of layer 1"
    assert told.of_whom("head", HEAD) == "layer 1, head 3"
    assert told.of_whom("layer", replace(HEAD, only_part=False)) == (
        "all heads of layer 1 (decoder)"
    )


def test_times():
    assert told.takes(0.2) == "about 1 second"
    assert told.takes(12.4) == "about 12 seconds"
    assert told.takes(170.0) == "about 3 minutes"
    assert told.too_long(600.0, 180.0).startswith(
        "This would take about 10 minutes on this machine"
    )
