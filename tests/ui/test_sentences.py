"""Sentences are made from the numbers that they speak of."""

from __future__ import annotations

import math
from dataclasses import replace

import cells_by_hand
import numpy as np
import pandas as pd
import pytest
import torch
from cells_by_hand import axis
from PIL import Image

from attnviz.capture import UnreadLayer
from attnviz.inputs import Inputs
from attnviz.pictures import Picture
from attnviz.ui import sentences
from attnviz.ui.draws import Draw
from attnviz.ui.heads import Head, without_first
from attnviz.ui.look import plain


def head(**changes) -> Head:
    matrix = pd.DataFrame([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.2, 0.7, 0.1]])
    tokens = axis("<|bos|>", "␣cat", "␣it")
    fields = {
        "n": (3, 3),
        "matrix": matrix,
        "visible": matrix.notna() & np.tri(3, dtype=bool),
        "queries": tokens,
        "keys": tokens,
    }
    return cells_by_hand.head(**(fields | changes))


def test_headline_names_query_key_and_weight():
    assert sentences.headline(head(), 2) == "“it” looks most at “cat”: 0.70 of its attention"


def test_equal_words_are_told_apart_by_position():
    twice = axis("the", "␣cat", "␣the")
    told = sentences.headline(head(queries=twice, keys=twice), 1)
    assert told.startswith("“cat” looks most at “cat”: 0.60")
    matrix = head().matrix.iloc[:, [1, 0, 2]].set_axis(range(3), axis=1)
    told = sentences.headline(head(queries=twice, keys=twice, matrix=matrix), 2)
    assert told.startswith("“the” (position 2) looks most at “the” (position 0): 0.70")


def test_the_first_tokens_own_row_is_left_out_of_its_column():
    """As in the share of a sink: that row sees nothing else."""
    matrix = pd.DataFrame([[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.6, 0.3, 0.1]])
    told = sentences.against_the_column(head(matrix=matrix), 2)
    assert "“<|bos|>” gets 0.70 on average over all later tokens that can see it (2)" in told


def test_a_column_of_one_row_is_no_measure():
    matrix = pd.DataFrame([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.2, 0.1, 0.7]])
    assert sentences.against_the_column(head(matrix=matrix), 2) == ""
    assert sentences.against_the_column(head(), 2) != ""


def even(last: tuple[float, ...] = (1 / 3, 1 / 3, 1 / 3)) -> Head:
    return head(matrix=pd.DataFrame([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], list(last)]))


def test_a_head_that_looks_everywhere_alike_prefers_nothing():
    assert sentences.headline(even(), 2) == (
        "“it” looks everywhere alike: no token has more than 0.33 of its attention"
    )
    assert sentences.against_the_column(even(), 2) == ""
    (told,) = sentences.about(even(), 2)
    assert "the entropy of its rows is 1.000 of what uniform weights have" in told
    assert "untrained or unused" in told


def test_evenness_is_the_mean_entropy_of_rows_that_see_several():
    two = -(0.4 * math.log(0.4) + 0.6 * math.log(0.6)) / math.log(2)
    three = -(0.2 * math.log(0.2) + 0.7 * math.log(0.7) + 0.1 * math.log(0.1)) / math.log(3)
    assert head().evenness == pytest.approx((two + three) / 2)
    assert sentences.about(head(), 2) == []
    alone = head(matrix=head().matrix.iloc[:1, :1], visible=head().visible.iloc[:1, :1])
    assert not alone.alike()


def test_a_row_with_a_preference_keeps_its_headline_in_an_even_head():
    tokens = axis(*"abcdefghijklmnopqrstuvwxyz")
    matrix = pd.DataFrame(np.full((26, 26), 1 / 26))
    matrix.loc[25] = [0.5, *[0.02] * 25]
    seen = head(
        queries=tokens, keys=tokens, matrix=matrix, visible=matrix.notna(), n=(26, 26), cross=True
    )
    assert seen.alike()
    assert "looks most at “a”: 0.50" in sentences.headline(seen, 25)
    assert "looks everywhere alike" in sentences.headline(seen, 24)


def test_column_is_averaged_over_those_that_see_it():
    told = sentences.against_the_column(head(), 2)
    assert "“cat” gets 0.65 on average over all tokens that can see it (2)" in told


def test_a_key_that_is_seen_but_gets_nothing_counts():
    matrix = head().matrix.copy()
    matrix.loc[1, 1] = 0.0
    told = sentences.against_the_column(head(matrix=matrix), 2)
    assert "gets 0.35 on average over all tokens that can see it (2)" in told


def test_small_weights_keep_two_digits():
    assert [sentences.weight(w) for w in (0.7123, 0.01, 0.00234, 0.0)] == [
        "0.71",
        "0.01",
        "0.0023",
        "0.00",
    ]


def test_no_difference_is_called_exact():
    assert "equals the model exactly," in sentences.badge(head(max_error=0.0))
    assert "equals the model to 2e-07," in sentences.badge(head())
    assert "equal exactly," in sentences.badge(head(max_error=0.0, precision="float16"))
    assert "recomputed exactly," in sentences.badge(head(max_error=0.0, recording_difference=1.0))


def test_no_tick_where_recording_changes_the_model():
    assert sentences.badge(head()).startswith("✓")
    for difference in (1e-3, math.nan):
        assert sentences.badge(head(recording_difference=difference)).startswith("✗ not verified")


@pytest.mark.parametrize(
    ("scale", "words"),
    [(32**-0.5, "divides by √32"), (1.0, "does not divide"), (1 / 32, "multiplies by 0.03125")],
)
def test_scale_is_named_as_it_is(scale: float, words: str):
    assert words in sentences.scale(head(scale=scale))


def test_caption_has_its_parts_in_order():
    caption = sentences.head_caption(head())
    parts = ["real", "Tiny", "layer 1, head 2", "n = 3", "d_k = 32", "√32", "2e-07"]
    places = [caption.index(part) for part in parts]
    assert places == sorted(places)


def test_variance_is_compared_with_d_k():
    apart = sentences.why_not_d_k(head())
    assert "variance 86 within a row, not d_k = 32" in apart
    assert "neither independent" in apart
    near = sentences.why_not_d_k(head(score_variance=31.0))
    assert "close to d_k = 32" in near
    assert "neither" not in near
    assert not any("trained" in told for told in (apart, near))
    assert "no variance" in sentences.why_not_d_k(head(score_variance=math.nan))


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (31.67, 0.71, "31.67 ± 0.71"),
        (1.0113, 0.0234, "1.011 ± 0.023"),
        (1030.17, 23.0, "1,030 ± 23"),
        (0.5, 0.0, "0.50 ± 0.00"),
    ],
)
def test_digits_follow_the_error(value: float, error: float, said: str):
    assert sentences.with_error(value, error) == said


def test_measured_says_what_was_predicted():
    frame = pd.DataFrame()
    draw = Draw(16, 4, 7, frame, frame, before=(15.9, 0.38), after=(0.994, 0.024))
    before, after = sentences.measured(draw)
    assert "15.90 ± 0.38" in before
    assert "predicted 16" in before
    assert "q·k / √16" in after
    assert "predicted 1" in after


@pytest.mark.parametrize(
    ("name", "said"), [("1", "÷ 1"), ("√d_k", "÷ √32"), ("d_k", "÷ 32"), ("d_k²", "÷ 1,024")]
)
def test_divisor_is_filled_in(name: str, said: str):
    assert sentences.divisor_value(name, 32) == said


def test_markdown_shows_any_token_as_it_is():
    assert plain("$x$ :) *a* <b> [l](u)") == r"\$x\$ \:\) \*a\* \<b\> \[l\]\(u\)"
    for text in ("http://a.example", "www.a.example", "a -> b", "a --> b"):
        assert plain(text).replace("\\", "").replace("\u2060", "") == text
        assert "\u2060" in plain(text)


def test_figures_near_a_hundred_have_no_exponent():
    assert [sentences.figure(x) for x in (99.4, 99.5, 1234.0, 2.71)] == [
        "99",
        "100",
        "1,234",
        "2.7",
    ]


# --- parts, layers, positions


def layer(number: int, reason: str, tower: str = "decoder") -> UnreadLayer:
    return UnreadLayer(number, tower, f"layers.{number}", reason)


def test_layers_that_show_nothing_are_told_by_their_reason():
    state = "It carries a recurrent state and has no softmax attention."
    unread = [layer(n, state) for n in (5, 0, 1, 2, 4, 6)]
    unread.append(layer(7, "Its output differs by 0.2."))
    assert sentences.unread(unread) == [
        "Layers 0 to 2, 4 to 6 have nothing to show. Each carries a recurrent state and has no "
        "softmax attention.",
        "Layer 7 has nothing to show. Its output differs by 0.2.",
    ]


def test_layers_of_two_towers_are_told_apart():
    told = sentences.unread([layer(0, "It is odd.", "text"), layer(0, "It is odd.", "vision")])
    assert told == [
        "Text layer 0 has nothing to show. It is odd.",
        "Vision layer 0 has nothing to show. It is odd.",
    ]
    assert sentences.unread([]) == []


def test_a_tower_is_named_where_another_was_read():
    blocks = [layer(number, "Its attention runs in blocks.", "encoder") for number in range(3)]
    told = "ayers 0 to 2 have nothing to show. Their attention runs in blocks."
    assert sentences.unread(blocks, ["decoder"]) == [f"Encoder l{told}"]
    assert sentences.unread(blocks, ["encoder"]) == [f"L{told}"]


def picture_of(rows: int, columns: int) -> Inputs:
    pixels = torch.zeros(1, 3, 7 * rows, 7 * columns)
    seen = Image.new("RGB", (7 * columns, 7 * rows))
    return Inputs({}, None, picture=Picture(pixels, seen, (7, 7), own_processor=True))


def test_the_patch_that_is_named_is_there():
    inputs = picture_of(3, 4)
    told = sentences.prepared(inputs, ["[CLS]", "r0c0", "r2c3"], windows=False)
    assert "28 × 21 pixels" in told
    assert "3 × 4 patches, of which r2c3 is the one in row 2, column 3" in told


def test_tokens_without_names_are_said_to_be_numbered():
    told = sentences.prepared(picture_of(3, 4), ["0", "1"], windows=True)
    assert told.endswith("3 × 4 patches. Its tokens are those of the first window, numbered.")
    told = sentences.prepared(picture_of(3, 4), ["0", "1"], windows=False)
    assert told.endswith("3 × 4 patches. Its tokens are numbered.")


def test_a_token_that_does_not_look_is_told():
    assert sentences.no_such_token("query", head().queries, 99_999, 2) == (
        "There is no token 99,999 that looks here: they are 0 to 2. Here is token 2, “it”."
    )


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([3], "Layer 3"), ([1, 0], "Layers 0, 1"), ([9, 2, 3, 4, 7, 8], "Layers 2 to 4, 7 to 9")],
)
def test_ranges_of_layers(numbers: list[int], said: str):
    assert sentences.layer_ranges(numbers) == said


def test_a_head_of_several_parts_names_its_own():
    assert sentences.place(head()) == "layer 1, head 2"
    assert sentences.place(head(only_part=False, part="cross")) == "layer 1, head 2 (cross)"


def test_cross_attention_counts_queries_and_keys():
    assert "n = 5 × 9 ·" in sentences.head_caption(head(n=(5, 9), cross=True))
    assert "n = 3 ·" in sentences.head_caption(head())


def test_cross_attention_quotes_queries_from_the_target_and_keys_from_the_source():
    across = head(
        queries=axis("<s>", "the"),
        keys=axis("le", "roi", "dort"),
        matrix=pd.DataFrame([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]]),
        visible=pd.DataFrame(np.ones((2, 3), dtype=bool)),
        cross=True,
    )
    assert sentences.headline(across, 1) == "“the” looks most at “roi”: 0.80 of its attention"
    assert "“roi” gets 0.55 on average" in sentences.against_the_column(across, 1)
    first = replace(across, matrix=pd.DataFrame([[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]]))
    told = sentences.against_the_column(first, 1)
    assert "“le” gets 0.65 on average over all tokens that can see it (2)" in told


def test_half_precision_is_told_in_the_badge():
    told = sentences.badge(head(precision="bfloat16", max_error=3e-3))
    assert "computed in bfloat16, recomputed in float32, equal to 3e-03" in told
    assert "float32" not in sentences.badge(head())


def test_weights_without_q_and_k_have_no_scale_and_no_variance():
    alone = head(d_k=None, scale=None, score_variance=None, logit_variance=None)
    caption = sentences.head_caption(alone)
    assert "which offers no q and k as such" in caption
    assert "d_k =" not in caption
    assert "offers no q and k" in sentences.why_not_d_k(alone)
    assert "real" not in sentences.curve_caption(4000, 7, alone)


def test_rotation_and_bias_are_two_things_each_told_where_it_is():
    assert sentences.position(head()) == ""
    assert "before rotation" in sentences.position(head(rotary=True))
    biased = sentences.position(head(biased=True))
    assert "the bias" in biased
    assert "does not divide" not in biased
    assert "Tiny does not divide by √32" in sentences.position(head(biased=True, scale=1.0))


def test_a_sink_is_explained_with_its_share():
    told = sentences.sink(head(first_share=0.41, first_even=0.19))
    assert "“<|bos|>”, the first token, takes 0.41" in told
    assert "on average over all later tokens" in told
    assert "would give it 0.19" in told
    assert "Xiao et al. 2023" in told


def test_a_hidden_first_token_changes_headline_and_caption():
    hidden = without_first(head())
    assert sentences.headline(hidden, 2) == (
        "“it” looks most at “cat”: 0.88 of what is left of its attention"
    )
    assert "first token hidden, rows renormalised" in sentences.head_caption(hidden)
    assert sentences.against_the_column(hidden, 2) == ""  # one later token is left


@pytest.mark.parametrize(
    ("share", "even", "sink"),
    [(0.41, 0.19, True), (0.41, 0.21, False), (0.29, 0.01, False), (0.42, 0.417, False)],
)
def test_a_sink_takes_much_and_twice_what_even_weights_give(share: float, even: float, sink: bool):
    assert head(first_share=share, first_even=even).sink is sink


def test_a_learned_sink_takes_what_is_missing_of_the_row():
    part = head(matrix=head().matrix * 0.75)
    assert "takes 0.25 of this row" in sentences.learned_sink(part, 2)


def test_what_lies_outside_the_picture_is_told():
    keys = axis("[CLS]", "[REG0]", "r0c0", "r0c1").assign(special=[True, True, False, False])
    seen = head(keys=keys, queries=keys, matrix=pd.DataFrame([[0.5, 0.25, 0.05, 0.2]] * 4))
    told = sentences.overlay(seen, 2)
    assert "Where “r0c0” looks in the picture: its patches have 0.25 of the row" in told
    assert "[CLS] 0.50, [REG0] 0.25" in told
