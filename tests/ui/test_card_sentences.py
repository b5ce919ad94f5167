"""What the card says follows from what was read, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from attnviz.anatomy import Heads, LayerAnatomy, LayerGroup, Scale, grouped
from attnviz.ui import card_sentences as sentences
from attnviz.ui.cards import Card


def heads(**changes) -> Heads:
    fields = {
        "heads": 8,
        "kv_heads": 2,
        "d_k": 64,
        "d_v": 48,
        "scale": Scale("1/√d_k", 0.125),
        "causal": True,
        "position": "rotary",
        "softcap": None,
        "sinks": False,
        "norm": False,
        "projections": "split",
        "dtype": "bfloat16",
    }
    return Heads(**(fields | changes))


def layer(number: int = 0, tower: str = "decoder", kind: str = "self", **changes) -> LayerAnatomy:
    fields = {
        "module": f"layers.{number}",
        "reach": "global",
        "window": None,
        "n": (13, 13),
        "heads": heads(),
        "max_error": 3e-7,
        "unread": None,
    }
    return LayerAnatomy(number, tower, kind, **(fields | changes))


def unread(number: int, reach: str | None = "linear") -> LayerAnatomy:
    changes = {"heads": None, "max_error": None, "n": None, "reach": reach}
    return layer(number, unread="it has none.", **changes)


def group(*layers: LayerAnatomy) -> LayerGroup:
    return LayerGroup(layers or (layer(),))


def card(*layers: LayerAnatomy, **changes) -> Card:
    fields = {
        "title": "Tiny",
        "warning": None,
        "model_type": "llama",
        "parameters": 124_439_808,
        "d_model": 768,
        "d_models": {},
        "dtype": "bfloat16",
        "stored_dtype": "bfloat16",
        "placement": "memory",
        "layers": layers,
        "groups": grouped(layers),
        "table": pd.DataFrame(),
        "recording_difference": 0.0,
        "tolerance": 3e-2,
        "rows_checked": 8,
    }
    return Card(**(fields | changes))


# --- the model


def test_the_model_in_a_sentence():
    told = sentences.what_it_is(card(layer(0), layer(1)))
    assert told == (
        "A decoder of the family llama with 124 million parameters. "
        "All of its 2 layers were read and verified."
    )
    assert "2 of its 3 layers were read" in sentences.what_it_is(
        card(layer(0), layer(1), unread(2))
    )
    assert "1 of its 2 layers was read" in sentences.what_it_is(card(layer(0), unread(1)))
    assert "None of its 2 layers was read here." in sentences.what_it_is(card(unread(0), unread(1)))
    assert "An encoder and a decoder" in sentences.what_it_is(card(layer(tower="encoder"), layer()))
    assert "in 2 GPUs and disk." in sentences.what_it_is(card(layer(), placement="2 GPUs and disk"))


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (947, "947"),
        (60_100, "60.1 thousand"),
        (820_864, "821 thousand"),
        (999_900, "1.00 million"),
        (22_713_216, "22.7 million"),
        (6_738_415_616, "6.74 billion"),
    ],
)
def test_large_numbers_have_three_digits(number: int, told: str):
    assert sentences.count(number) == told


def test_the_worst_layer_stands_for_the_model():
    figures = dict(sentences.key_figures(card(layer(0), layer(1, max_error=5e-6), unread(2))))
    assert figures["equals the model to"] == "5e-06"
    assert figures["layers read"] == "2 of 3"
    assert "equals the model to" not in dict(sentences.key_figures(card(unread(0))))


def test_no_difference_at_all_is_called_0():
    exact = card(layer(max_error=0.0))
    assert dict(sentences.key_figures(exact))["equals the model to"] == "0"
    assert "equals the model to 0," in sentences.badge(exact, exact.groups[0])
    assert sentences.group_row(exact.groups[0])[-1] == "0"


def test_nothing_is_called_verified_where_watching_changes_the_model():
    disturbed = card(layer(), recording_difference=1e-3)
    assert "not verified" in sentences.what_it_is(disturbed)
    assert "nothing here is verified" in sentences.verification(disturbed)
    assert sentences.badge(disturbed, group()).startswith("✗")
    assert "not verified" in sentences.legend(disturbed)
    assert sentences.badge(card(layer()), group()).startswith("✓")


def test_verification_tells_its_rows_its_tolerance_and_both_precisions():
    told = sentences.verification(card(layer()))
    for part in ("8 rows", "float32", "bfloat16", "3e-02", "the difference is 0"):
        assert part in told


def test_the_legend_explains_the_marks_that_are_there_and_no_others():
    assert sentences.legend(card(layer())) == "filled: read and verified"
    mixed = sentences.legend(card(layer(0), layer(1, reach="local", window=5), unread(2)))
    for part in ("filled", "line across: not read", "half as high", "underlined"):
        assert part in mixed


# --- a group


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([3], "3"),
        ([0, 1], "0 and 1"),
        ([0, 1, 2, 3], "0 to 3"),
        ([0, 1, 2, 5], "0 to 2 and 5"),
        ([0, 1, 2, 4, 6, 7, 8], "0 to 2, 4 and 6 to 8"),
        ([1, 3, 5, 7, 9], "1, 3, … 9"),
        ([1, 3, 5], "1, 3 and 5"),
    ],
)
def test_numbers_of_layers_in_brief(layers: list[int], told: str):
    assert sentences.numbers(layers) == told


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (layer(4), "decoder, layer 4"),
        (layer(4, reach="local", window=512), "decoder, layer 4 (a window of 512)"),
        (layer(4, "vision", reach="local", window=9, tiled=True), "vision, layer 4 (tiles of 9)"),
        (layer(4, reach="chunked", window=64), "decoder, layer 4 (a chunk of 64)"),
        (layer(4, kind="cross"), "decoder, cross-attention, layer 4"),
        (unread(4), "decoder, layer 4 (linear attention)"),
        (unread(4, None), "decoder, layer 4 (not read)"),
    ],
)
def test_the_name_of_a_group(one: LayerAnatomy, told: str):
    assert sentences.group_name(group(one)) == told


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (layer(), "itself and all before it"),
        (layer(heads=heads(causal=False)), "all tokens"),
        (layer(kind="cross"), "all tokens of the source"),
        (layer(reach="local", window=5), "a window of 5: itself and 4 before it"),
        (layer(reach="local", window=5, heads=heads(causal=False)), "a window of 5 around it"),
        (layer(reach="chunked", window=64), "itself and the earlier tokens of its chunk of 64"),
        (layer(reach="local", window=9, tiled=True), "the 9 patches of its own tile"),
    ],
)
def test_what_a_token_sees(one: LayerAnatomy, told: str):
    assert sentences.sees(one, one.heads) == told


def test_who_reads_whom():
    assert sentences.who_reads_whom(heads()) == (
        "8 query heads, 4 on each of 2 key and value heads"
    )
    assert "all on one" in sentences.who_reads_whom(heads(kv_heads=1))
    assert "of its own" in sentences.who_reads_whom(heads(kv_heads=8))
    assert sentences.tree_caption(heads()).startswith(
        "Query heads 0 to 3 read key and value head 0"
    )


def test_facts_are_those_of_the_group():
    told = dict(sentences.facts(group(layer(0), layer(1, max_error=4e-6))))
    assert told["d_k, d_v"] == "64, 48"
    assert told["scale"] == "1/√64 = 0.125"
    assert told["soft cap"] == "none"
    assert told["computed in"] == "bfloat16"
    assert told["equals the model to"] == "4e-06, the largest of 2 layers"
    assert dict(sentences.facts(group(unread(2)))) == {"not read because": "it has none."}


def test_the_usual_scale_needs_no_remark():
    assert sentences.remarks(group()) == []


@pytest.mark.parametrize(
    ("scale", "parts"),
    [
        (Scale("1", 1.0, "start values"), ("does not divide by √64", "T5", "start values", "Adam")),
        (Scale("1", 1.0, "norm"), ("does not divide", "norm", "gain")),
        (Scale("1", 1.0), ("does not divide", "full size")),
        (Scale("1/√d_k", 0.125, "query"), ("divides the query by √64", "before the product")),
        (
            Scale("1/d_k", 1 / 64, "setting", ("attention_multiplier", 1 / 64)),
            ("divides by d_k = 64, not by √64 = 8", "attention_multiplier"),
        ),
        (
            Scale("another", 1 / 16, "setting", ("query_pre_attn_scalar", 256.0)),
            ("divides by √256", "query_pre_attn_scalar", "√64 = 8"),
        ),
        (
            Scale("another", 0.25, "setting", ("attention_multiplier", 0.25)),
            ("multiplies by 0.25", "divides by 4", "8"),
        ),
        (Scale("another", 0.25), ("0.25", "2 times the usual 1/√64")),
        (Scale("1/√(3 · d_k)", 192**-0.5), ("3 products", "√(3 · 64)")),
        (Scale("1/(√d_k · (layer + 1))", None), ("√64", "3 · √64")),
    ],
)
def test_an_unusual_scale_is_told_with_its_reason(scale: Scale, parts: tuple[str, ...]):
    (told,) = sentences.remarks(group(layer(heads=heads(scale=scale))))
    for part in parts:
        assert part in told


def test_no_scale_is_told_where_there_is_no_product():
    bare = heads(d_k=None, scale=Scale("not known", None))
    (told,) = sentences.remarks(group(layer(heads=bare)))
    assert "model's own" in told
    assert dict(sentences.facts(group(layer(heads=bare))))["scale"] == "not known"


def test_cap_sinks_and_norm_are_remarked():
    told = sentences.remarks(group(layer(heads=heads(softcap=50.0, sinks=True, norm=True))))
    assert "50 · tanh(z / 50)" in told[0]
    assert "less than 1" in told[1]
    assert "QK-norm" in told[2]


def test_attending_twice_is_remarked():
    (told,) = sentences.remarks(group(layer(twice=True)))
    assert "twice with the same weights" in told


def test_a_scale_beside_the_usual_one_is_shown_with_it():
    assert sentences.scale(heads(scale=Scale("1", 1.0))) == "1, not 1/√64 = 0.125"
    assert (
        sentences.scale(heads(scale=Scale("1/d_k", 1 / 64))) == "1/64 = 0.01562, not 1/√64 = 0.125"
    )


def test_the_caption_has_its_parts_in_order():
    cross = layer(2, kind="cross", n=(7, 13))
    told = sentences.group_caption(card(cross), group(cross))
    parts = ["real", "Tiny", "layer 2", "n = 7 queries, 13 keys", "d_k = 64", "✓", "3e-07"]
    places = [told.index(part) for part in parts]
    assert places == sorted(places)


def test_each_group_that_was_not_read_has_its_reason():
    told = sentences.unread_groups(card(layer(0), unread(1), unread(2)))
    assert told == ["decoder, layers 1 and 2 (linear attention). Each has none."]
    whole = card(unread(0), recording_difference=None)
    assert sentences.unread_groups(whole) == []


@pytest.mark.parametrize(
    ("reason", "of_one", "of_several"),
    [
        ("It carries a state.", "It carries a state.", "Each carries a state."),
        ("its attention runs.", "Its attention runs.", "The attention of each runs."),
        ("Attention differs.", "Attention differs.", "Attention differs."),
    ],
)
def test_what_is_said_of_one_layer_is_said_of_each(reason: str, of_one: str, of_several: str):
    for count, told in ((1, of_one), (2, of_several)):
        layers = [replace(unread(number), unread=reason) for number in range(1, count + 1)]
        (shown,) = sentences.unread_groups(card(layer(0), *layers))
        assert shown.endswith(f"(linear attention). {told}")


def test_of_an_unread_layer_the_reason_tells_what_it_sees():
    assert sentences.group_row(group(unread(2, None)))[1] == "told below"


@pytest.mark.parametrize(
    ("towers", "told"),
    [
        (["vision", "text"], "An encoder of pictures and an encoder of text of"),
        (["vision", "decoder"], "An encoder of pictures and a decoder of"),
        (["audio", "decoder"], "An encoder of sound and a decoder of"),
        (["audio", "vision", "decoder"],
         "An encoder of sound, an encoder of pictures and a decoder of"),
    ],
)  # fmt: skip
def test_every_tower_is_named(towers: list[str], told: str):
    layers = [layer(0, tower) for tower in towers]
    assert sentences.what_it_is(card(*layers)).startswith(told)


def test_parts_of_different_width_have_each_their_own():
    clip = card(layer(), d_model=55, d_models={"vision": 42, "text": 55})
    assert dict(sentences.key_figures(clip))["d_model"] == "42 vision, 55 text"
    alike = card(layer(), d_model=55, d_models={"encoder": 55, "decoder": 55})
    assert dict(sentences.key_figures(alike))["d_model"] == "55"


def test_the_precision_of_the_file_is_told_where_it_is_another():
    widened = card(layer(), dtype="float32", stored_dtype="bfloat16")
    assert dict(sentences.key_figures(widened))["run in"] == "float32"
    told = "Its weights are stored in bfloat16 and run in float32."
    assert sentences.what_it_is(widened).endswith(told)
    assert "stored" not in sentences.what_it_is(card(layer()))


@pytest.mark.parametrize(
    ("rotated", "told"),
    [(5, "rotary: 5 of the 64"), (64, "rotary: queries"), (None, "rotary: queries")],
)
def test_dimensions_that_do_not_turn_are_told(rotated: int | None, told: str):
    assert sentences.position(heads(rotated=rotated)).startswith(told)


def test_the_rows_of_the_groups_fit_their_columns():
    shown = card(layer(0), layer(1, reach="local", window=5), unread(2))
    rows = [sentences.group_row(one) for one in shown.groups]
    assert {len(row) for row in rows} == {len(sentences.GROUP_COLUMNS)}
    assert rows[0] == ("decoder, layer 0", "itself and all before it", "8 on 2", "3e-07")
    assert rows[2] == ("decoder, layer 2", "linear attention", "", "not read")


def test_the_picture_is_described_with_what_was_not_read():
    told = sentences.layers_described(card(layer(0), unread(1)))
    assert "decoder, layer 0: read" in told
    assert "decoder, layer 1 (linear attention): not read" in told


def test_every_word_of_the_maths_has_a_word_here():
    """A new kind of position or projection must not end the page."""
    from typing import get_args

    from attnviz import families
    from attnviz.anatomy import Position

    assert set(sentences.POSITIONS) == set(get_args(Position))
    assert set(sentences.PROJECTIONS) == {*get_args(families.Projections), None}
    assert set(sentences.UNREAD_KINDS) == set(get_args(families.Reach)) - {"global"}


def test_a_layer_alone_is_told_as_one():
    alone = replace(card(layer()), layers=(layer(),))
    assert "Its one layer was read" in sentences.what_it_is(alone)
