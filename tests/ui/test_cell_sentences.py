"""What is said of a cell is made from its numbers: they are read back and worked out again."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import saved_models
import torch
from cells_by_hand import D_MODEL, axis, head, worked

from attnviz.cell import IntoStream, Match, Retrieved, Role
from attnviz.distance import DistanceCurve
from attnviz.ui import cells, heads
from attnviz.ui.cell_chain import boxes, chain, divisor_of, number, three
from attnviz.ui.cell_equations import equation
from attnviz.ui.cell_sentences import STEPS, badge, caption, headline, limits, told
from attnviz.ui.cells import AddedTo, Worked
from attnviz.ui.readings import Asked, served

ROLES, POSITION, MATCH, SCALE, SOFTMAX, RETRIEVE, STREAM = range(7)
TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft cap": {"softcap": 5.0},
    "bias": {"bias": True},
    "sink": {"sink": 1.7},
    "not divided": {"scale": 1.0},
    "a number of its own": {"scale": 0.23},
    "large logits": {"size": 4.0, "lowered": True},
    "hidden": {"hidden": (1, 6), "bias": True},
    "causal": {"hidden": (5, 6)},
    "tiny numbers": {"size": 0.01},
    "weights only": {"weights_only": True},
}


def value(text: str) -> float:
    """The number that a text spells."""
    if text.lstrip("−") == "∞":
        return -math.inf if text.startswith("−") else math.inf
    return float(text.replace("−", "-").replace(",", ""))


def numbers(text: str) -> list[float]:
    return [value(x) for x in re.findall(r"−?(?:\d[\d,]*\.?\d*(?:e-\d+)?)(?<![,.])", text)]


def said(given: Worked, step: int) -> str:
    return " ".join(told(given, step))


# --- the cell as a whole


def test_the_headline_asks_for_the_two_tokens():
    assert headline(worked()) == "How much does “it” look at “cat”?"
    assert headline(worked(query=4, key=4)) == "How much does “it” look at itself?"
    assert headline(worked(query=6, key=3)) == (
        "How much does “the” (position 6) look at “the” (position 3)?"
    )
    across = worked(kind="cross", head=head(queries=axis(*"vwxyz")))
    assert headline(across) == "How much does “z” of the target look at “cat” of the source?"
    same = worked(query=1, key=1, kind="cross")
    assert headline(same) == "How much does “cat” of the target look at “cat” of the source?"


def verified(weight: float, own: float | None, largest: float | None, **changes: Any) -> str:
    weights = torch.zeros(7)
    weights[1] = weight
    cell = {"weights": weights, "model_weight": own, "largest_difference": largest}
    return badge(worked(head=head(**changes), cell=cell))


def test_the_badge_has_both_weights_and_their_largest_difference():
    assert verified(0.1342178, 0.1342179, 3.1e-7) == (
        "recomputed here 0.1342178 · the model 0.1342179 · ✓ largest difference in this head 3e-07"
    )
    assert verified(0.5, 0.5, 0.0).endswith("✓ largest difference in this head 0")
    assert verified(2.31e-9, 2.3e-9, 1e-9).startswith("recomputed here 2.3e-09 ·")
    assert verified(0.5, 0.5, None).endswith("· no row of this head can be compared")


def test_no_tick_where_the_weights_are_apart():
    assert "✗ largest difference in this head 2e-03" in verified(0.5, 0.502, 2e-3)


def test_no_tick_in_half_precision_or_where_recording_changes_the_model():
    half = verified(0.5, 0.502, 2e-3, precision="bfloat16")
    assert "computed in bfloat16, recomputed in float32, largest difference in this head" in half
    for difference in (0.25, math.nan):
        changed = verified(0.5, 0.5, 0.0, recording_difference=difference)
        assert changed.startswith("✗ not verified: recomputed here 0.5000000 · the model 0.5000000")
        assert "recording changes the model's output by" in changed
        assert "✓" not in half + changed


def test_the_badge_says_where_the_models_own_weights_cannot_be_had():
    assert verified(0.1342178, None, None, max_error=4.2e-7) == (
        "recomputed here 0.1342178; the model's own weights cannot be had, its output is "
        "confirmed to 4e-07"
    )
    alone = badge(worked(weights_only=True))
    assert alone.startswith("the model's own weight 0.")
    assert "not recomputed; its output is confirmed to 2e-07" in alone
    assert "recomputed here" not in alone


def test_the_caption_has_its_parts_in_order():
    line = caption(worked())
    parts = ["real", "Tiny", "layer 1, head 2", "“it” → “cat”", "n = 7", "d_k = 32", "d_v = 5"]
    places = [line.index(part) for part in [*parts, "divides by √32", "✓ equals the model to"]]
    assert places == sorted(places)
    assert "d_v" not in caption(worked(d_k=5))
    assert "d_k" not in caption(worked(weights_only=True))


def test_the_limits_are_three_sentences_with_their_sources():
    one, two, three_ = limits()
    assert "is a picture" in one
    assert "same vectors x" in one
    assert "W_QK = W_Qᵀ W_K and W_OV = W_O W_V (Elhage et al. 2021)" in two
    assert all(name in three_ for name in ("Kobayashi", "Jain and Wallace", "Wiegreffe"))
    assert all(told.count(". ") == told.count("al. 2") for told in limits())


def test_the_two_products_are_all_that_matters():
    """What the limits say about M, worked out."""
    dice = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    w_q, w_k, w_v, w_o, m = draw(5, 11), draw(5, 11), draw(5, 11), draw(11, 5), draw(5, 5)
    x, y = draw(11), draw(11)
    score = (m @ w_q @ x) @ (m.inverse().mT @ w_k @ y)
    torch.testing.assert_close(score, (w_q @ x) @ (w_k @ y))
    torch.testing.assert_close(x @ (w_q.mT @ w_k) @ y, (w_q @ x) @ (w_k @ y))
    torch.testing.assert_close((w_o @ m.inverse()) @ (m @ w_v @ y), w_o @ w_v @ y)


# --- numbers


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (27.195, "27.2"),
        (-3.2, "−3.20"),
        (0.01234, "0.0123"),
        (0.000456, "0.000456"),
        (0.0000456, "4.6e-05"),
        (-1e-9, "−1.0e-09"),
        (1234.56, "1,235"),
        (485_165_195.4, "485,165,195"),
        (9.999, "10.0"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent_where_it_can_be_helped(given, written):
    assert number(given) == written


def test_three_decimals_never_lose_all_digits():
    assert [three(x) for x in (27.1949, -0.0004, 0.0, 1e4, -0.99951)] == [
        "27.195",
        "−0.00040",
        "0",
        "10,000.000",
        "−1.000",
    ]


@pytest.mark.parametrize(
    ("scale", "width", "divisor"),
    [
        (32**-0.5, 32, ("root", 32)),
        (1.0, 32, ("whole", 1)),
        (1.0, 1, ("whole", 1)),
        (1 / 128, 128, ("whole", 128)),
        (0.125, 64, ("root", 64)),
        (19**-0.5, 14, ("root", 19)),
        (0.0078125, 64, ("whole", 128)),
        (float(torch.tensor(11**-0.5)), 11, ("root", 11)),
        (0.23, 14, None),
        (10.0, 32, None),
        (0.30152, 11, None),
    ],
)
def test_a_scale_is_named_only_where_it_is_that(scale: float, width: int, divisor):
    assert divisor_of(scale, width) == divisor


# --- the chain and the boxes


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_chain_multiplies_out(terms: str, seed: int):
    given = worked(seed, **TERMS[terms])
    if given.cell.match is None:
        assert [name for name, *_ in chain(given)] == ["weight"]
        return
    steps = {name: text for name, text, _ in chain(given)}
    q, k = given.cell.query.used.double(), given.cell.key.used.double()
    scale = TERMS[terms].get("scale", 32**-0.5)
    expected = {"score q·k": float(q @ k), "scaled": scale * float(q @ k)}
    logit = expected["scaled"]
    if cap := TERMS[terms].get("softcap"):
        logit = expected["soft cap 5"] = cap * math.tanh(logit / cap)
    if TERMS[terms].get("bias"):
        expected["+ position bias"] = given.cell.logit.bias
        logit += given.cell.logit.bias
    hidden = 1 in TERMS[terms].get("hidden", ())
    expected |= {"mask": "hidden" if hidden else "visible"}
    expected |= {"logit": -math.inf if hidden else logit}
    assert len(steps) == len(expected)
    for (name, text), (term, true) in zip(steps.items(), expected.items(), strict=True):
        assert name == term or (term == "scaled" and name.startswith("× "))
        if isinstance(true, str):
            assert text == true
        else:
            size = 0.0005 if abs(true) >= 0.001 else abs(true) / 10
            assert value(text.lstrip("+")) == pytest.approx(true, abs=size, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "name", "remark"),
    [
        ({}, "× 1/√32", "the model divides by √32 = 5.657"),
        ({"scale": 1.0}, "× 1", "the model does not divide; 1/√d_k would be 0.177"),
        ({"scale": 1 / 32}, "× 1/32", "the model divides by d_k = 32, not by √32 = 5.657"),
        ({"scale": 0.23}, "× 0.2300", "the model's own 0.230; 1/√d_k would be 0.177"),
        ({"scale": 0.0078125}, "× 1/128", "the model's own 0.00781; 1/√d_k would be 0.177"),
    ],
)
def test_the_scale_is_named(changes: dict[str, Any], name: str, remark: str):
    assert (name, remark) in [(step, why) for step, _, why in chain(worked(**changes))]


def test_the_factor_in_the_query_is_a_line_of_its_own():
    given = worked(scale=1.0, query_factor=32**-0.5)
    by_name = {name: (text, why) for name, text, why in chain(given)}
    text, why = by_name["query factor"]
    assert text == "1/√32 = 0.1768"
    (without,) = re.findall(r"would be (\S+)$", why)
    assert value(without) == pytest.approx(given.cell.match.score * 32**0.5, abs=0.0006)
    assert by_name["× 1"][1] == "q was multiplied before, by 1/√32 = 0.1768, so q·k is not"
    assert "query factor" not in [name for name, *_ in chain(worked())]


def test_the_boxes_are_six_and_a_seventh_for_a_soft_cap():
    given = worked(sink=0.4)
    labels = [label for label, _ in boxes(given)]
    assert labels == [
        "score q·k",
        "× 1/√32, the model's own scale",
        "+ position bias",
        "mask",
        "exp / row sum",
        "weight",
    ]
    shown = dict(boxes(given))
    assert (shown["+ position bias"], shown["mask"]) == ("none", "visible")
    own, total = (value(x) for x in shown["exp / row sum"].split(" / "))
    assert own / total == pytest.approx(given.cell.weight, rel=2e-3)
    assert value(shown["weight"]) == pytest.approx(given.cell.weight, rel=5e-3)
    capped = worked(softcap=5.0)
    assert [label for label, _ in boxes(capped)][2] == "soft cap 5"
    assert value(dict(boxes(capped))["soft cap 5"]) == pytest.approx(
        5 * math.tanh(capped.cell.logit.scaled / 5), abs=6e-4
    )
    assert [label for label, _ in boxes(worked(weights_only=True))] == ["weight"]


def test_a_hidden_key_has_no_part_of_the_row():
    shown = dict(boxes(worked(hidden=(1,))))
    assert shown["mask"] == "hidden"
    assert shown["exp / row sum"].startswith("0 / ")
    assert shown["weight"] == "0"


# --- 1 Three roles


def made(token: int, matrix: str | None, size: int = 32, **changes: Any) -> Role:
    """A role whose vector is W x as it is."""
    x = torch.linspace(-1, 1, D_MODEL)
    used = torch.linspace(-2, 1, size)
    known = {} if matrix is None else {"matrix": matrix, "x": x, "entering": x, "made": used}
    return Role(token, used, **(known | changes))


def of_roles(query: Role, key: Role, value: Role, **changes: Any) -> Worked:
    return worked(cell={"query": query, "key": key, "value": value}, **changes)


def split(**changes: Any) -> Worked:
    names = [f"layers.1.attn.{letter}_proj.weight" for letter in "qkv"]
    roles = [made(4, names[0]), made(1, names[1]), made(1, names[2], 5)]
    return of_roles(*roles, **changes)


def test_three_matrices_are_named_within_their_module():
    first, second = told(split(), ROLES)
    assert first.startswith("The vector of “it” makes the query q, the vector of “cat” makes")
    assert second == (
        "In layers.1.attn, W_Q is q_proj, W_K is k_proj and W_V is v_proj; x has 23 numbers; shown "
        "are the rows of head 2."
    )
    assert equation(split(), ROLES) == (
        r"\begin{aligned}q_i &= W_Q\,x_i \\ k_j &= W_K\,x_j \\ v_j &= W_V\,x_j\end{aligned}"
    )


def test_a_bias_is_in_the_equation_where_the_matrix_has_one():
    biased = made(4, "a.q.weight", bias=torch.ones(32))
    given = of_roles(biased, made(1, "a.k.weight"), made(1, "a.v.weight", 5))
    assert r"q_i &= W_Q\,x_i + b_Q \\ k_j &= W_K\,x_j \\" in equation(given, ROLES)


def test_a_fused_matrix_is_one():
    name = "h.1.attn.c_attn.weight"
    given = of_roles(made(4, name), made(1, name), made(1, name, 5))
    assert "In h.1.attn, W_Q, W_K and W_V are one matrix, c_attn;" in said(given, ROLES)
    name = "attn.kv.weight"
    given = of_roles(made(4, "attn.q.weight"), made(1, name), made(1, name, 5))
    assert "W_Q is q and W_K and W_V are one matrix, kv;" in said(given, ROLES)


def test_matrices_of_two_modules_keep_their_paths():
    given = of_roles(made(4, "a.q.weight"), made(1, "b.k.weight"), made(1, "b.v.weight", 5))
    assert "W_Q is a.q, W_K is b.k and W_V is b.v;" in said(given, ROLES)


def test_a_latent_vector_comes_first():
    latent = torch.ones(19)
    both = "l.kv_b.weight and l.kv_a.weight"
    given = of_roles(
        made(4, "l.q.weight"),
        made(1, both, entering=latent),
        made(1, "l.kv_b.weight", 5, entering=latent),
    )
    told_ = said(given, ROLES)
    assert "W_K is kv_b and kv_a together" in told_
    assert "x of 23 numbers makes a short latent vector first, one of 19 for k and v;" in told_
    assert r"q_i &= W_Q\,x_i" in equation(given, ROLES)
    assert r"k_j &= \left[W_K\,c_j;\ W'_K\,x_j\right]" in equation(given, ROLES)
    assert r"v_j &= W_V\,c_j" in equation(given, ROLES)


def test_what_cannot_be_followed_is_said():
    given = of_roles(made(4, "l.q.weight"), made(1, None), made(1, None, 5))
    assert "how k and v were made cannot be followed" in said(given, ROLES)
    assert equation(given, ROLES) == r"\begin{aligned}q_i &= W_Q\,x_i\end{aligned}"
    nothing = of_roles(made(4, None), made(1, None), made(1, None, 5))
    assert "How q, k and v were made cannot be followed." in said(nothing, ROLES)
    assert "shown are the rows" not in said(nothing, ROLES)
    assert equation(nothing, ROLES) == ""


def test_query_heads_that_share_keys_are_named():
    given = split()
    shared = replace(given, group=4, cell=replace(given.cell, head=6, kv_head=1))
    assert "Heads 4 to 7 share key and value head 1." in said(shared, ROLES)
    assert "rows of head 6" in said(shared, ROLES)
    two = replace(given, group=2, cell=replace(given.cell, head=5, kv_head=2))
    assert "Heads 4 and 5 share key and value head 2." in said(two, ROLES)
    assert "share" not in said(given, ROLES)


def test_a_norm_stands_in_words_and_equation():
    normed = made(4, "l.q.weight", made=3 * torch.linspace(-2, 1, 32))
    given = of_roles(normed, made(1, "l.k.weight"), made(1, "l.v.weight", 5), norm=True)
    assert "pass a norm of their own (QK-norm)" in said(given, ROLES)
    assert r"q_i &= \mathrm{norm}\left(W_Q\,x_i\right) \\ k_j &= W_K\,x_j" in equation(given, ROLES)


def test_what_a_model_does_besides_is_told_and_not_made_up():
    other = made(4, "l.q.weight", made=torch.linspace(1, 2, 32))
    given = of_roles(other, made(1, "l.k.weight"), made(1, "l.v.weight", 5))
    assert "The model changes q further before use" in said(given, ROLES)
    assert r"q_i &\leftarrow W_Q\,x_i" in equation(given, ROLES)


def test_the_factor_of_the_query_stands_in_its_equation():
    factor = 32**-0.5
    short = made(4, "l.q.weight", made=torch.linspace(-2, 1, 32) / factor, bias=torch.ones(32))
    given = of_roles(
        short, made(1, "l.k.weight"), made(1, "l.v.weight", 5), query_factor=factor, scale=1.0
    )
    assert r"q_i &= \frac{1}{\sqrt{32}}\left(W_Q\,x_i + b_Q\right)" in equation(given, ROLES)
    assert "changes q" not in said(given, ROLES)


def test_in_cross_attention_keys_and_values_are_of_the_other_sequence():
    given = split(kind="cross")
    assert "from the vector of “it” in the target" in said(given, ROLES)
    assert "from that of “cat” in the source" in said(given, ROLES)
    assert r"q_i &= W_Q\,x_i \\ k_j &= W_K\,y_j \\ v_j &= W_V\,y_j" in equation(given, ROLES)


def test_a_token_that_looks_at_itself_has_all_three():
    assert said(worked(query=4, key=4), ROLES).startswith("One vector, that of “it”, makes")


# --- 2 Position


def curve(kind: str, distances: range, values: list[float]) -> DistanceCurve:
    return DistanceCurve(kind, torch.tensor(list(distances)), torch.tensor(values) * 1.0)


def rotated(score: float = 3.21, **changes: Any) -> Worked:
    """A cell of distance 3 whose score before rotation is 0.5 · 2 − 1 · 4 = −3."""
    unrotated = {"query": torch.tensor([0.5, -1.0]), "key": torch.tensor([2.0, 4.0])}
    cell = {
        "query": Role(4, torch.ones(2), unrotated=unrotated["query"]),
        "key": Role(1, torch.ones(2), unrotated=unrotated["key"]),
        "match": Match(torch.tensor([score, 0.0]), score, torch.zeros(7)),
    }
    return worked(d_k=2, cell=cell, **changes)


def test_rotation_tells_the_score_before_and_after_and_elsewhere():
    given = rotated(curves=(curve("rotation", range(4, -3, -1), [9, 3.21, 5.1, 6, 7, 8, 9]),))
    assert said(given, POSITION) == (
        "Queries and keys are rotated by their places: before, the score is −3.00, afterwards, 3 "
        "tokens apart, it is 3.21. Were “cat” 3 tokens nearer, it would be 7.00."
    )
    assert r"(R_i\,\tilde q_i) \cdot (R_j\,\tilde k_j)" in equation(given, POSITION)
    assert "tilde" not in equation(worked(), POSITION)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (range(3, 0, -1), "Were “cat” 2 tokens nearer, it would be 12.0"),
        (range(3, 1, -1), "Were “cat” 1 token nearer, it would be 11.0"),
        (range(3, 5), "Were “cat” 1 token further off, it would be 11.0"),
        (range(3, -9, -1), "Were “cat” 3 tokens nearer, it would be 13.0"),
    ],
)
def test_a_key_is_moved_only_to_places_that_there_are(places: range, words: str):
    values = [10.0 + step for step in range(len(places))]
    assert words in said(rotated(curves=(curve("rotation", places, values),)), POSITION)


def test_a_key_alone_in_its_row_is_not_moved():
    told_ = said(rotated(curves=(curve("rotation", range(3, 4), [3.21]),)), POSITION)
    assert told_.endswith("it is 3.21.")


@pytest.mark.parametrize(
    ("query", "key", "there", "adds"), [(6, 1, "“it”", "7.00"), (0, 5, "“sat”", "3.00")]
)
def test_a_key_is_moved_on_its_own_side_of_the_query(query: int, key: int, there: str, adds: str):
    """From distance 5 to 2, not to -2; from -5 to -2."""
    given = worked(query=query, key=key, bias=True)
    given = replace(given, curves=(curve("bias", range(-5, 6), [float(x) for x in range(11)]),))
    assert f"to that of {there}, which is 3 tokens nearer, it adds {adds}." in said(given, POSITION)


def test_a_bias_is_told_with_that_of_a_nearer_token():
    given = worked(bias=True, curves=(curve("bias", range(4, -3, -1), [1, 2, 3, 4, 5, 6, 7]),))
    bias = number(given.cell.logit.bias)
    assert said(given, POSITION) == (
        f"The model adds {bias} to the logit of this cell, a position bias; to that of “it”, which "
        "is 3 tokens nearer, it adds 5.00."
    )
    assert r"\ldots + b_{ij}" in equation(given, POSITION)
    assert said(worked(bias=True), POSITION).endswith("a position bias.")


def test_vectors_that_were_added_are_told_with_their_lengths():
    added = AddedTo("model.wpe.weight", torch.tensor([3.0, 4.0]), torch.tensor([6.0, 8.0]))
    given = worked(added_positions=added)
    assert "of lengths 5.00 and 10.0, from model.wpe, were added to “it” and “cat”" in said(
        given, POSITION
    )
    assert r"\mathrm{token}_i + p_i" in equation(given, POSITION)
    one = said(worked(query=4, key=4, added_positions=added), POSITION)
    assert "A vector for its place, of length 5.00, from model.wpe, was added to “it”" in one
    unknown = said(worked(added_positions=AddedTo("wpe", None, None)), POSITION)
    assert unknown.startswith("The model adds vectors for places, from wpe, to its tokens")


def test_what_was_measured_is_told_as_such():
    given = worked(curves=(curve("measured", range(-2, 5), [7, 6, 5, 4, 3, 2, 1]),))
    scaled = number(given.cell.logit.scaled)
    assert said(given, POSITION) == (
        "Measured over this head, keys 3 tokens before their query have 2.00 on average for "
        f"scale · q·k, keys at their query's own place 5.00; this cell has {scaled}."
    )


def test_no_position_is_said_plainly():
    assert "No term for the places of the two tokens was seen" in said(worked(), POSITION)
    assert "two sequences" in said(worked(kind="cross"), POSITION)


# --- 3 Match


def of_products(*products: float, row: tuple[float, ...] = (), **changes: Any) -> Worked:
    score = sum(products)
    scores = list(row) or [0.0] * 7
    scores[1] = score
    match = Match(torch.tensor(products), score, torch.tensor(scores))
    return worked(cell={"match": match}, **changes)


def test_the_dimensions_that_decide_are_named_with_what_they_make():
    first = told(of_products(1.0, 5.0, 0.5, 4.0, 1.5), MATCH)[0]
    assert first == "Two of 5 dimensions make 9.00 of the score 12.0: 1, 3."
    first = told(of_products(1.0, 9.0, 0.5, -4.0), MATCH)[0]
    assert first == (
        "Dimension 1 alone makes 9.00. The others, which together speak against it, bring the "
        "score to 6.50."
    )
    first = told(of_products(-1.0, -4.9, 0.5, -4.0), MATCH)[0]
    assert first == "Two of 4 dimensions make −8.90 of the score −9.40: 1, 3."


@pytest.mark.parametrize("seed", range(10))
def test_the_deciding_dimensions_add_up(seed: int):
    given = worked(seed)
    first = told(given, MATCH)[0]
    products, score = given.cell.match.products.tolist(), given.cell.match.score
    head_, _, tail = first.partition(":")
    dims = [int(x) for x in re.findall(r"\d+", tail.split(".")[0])] or [
        int(re.search(r"Dimension (\d+)", first).group(1))
    ]
    (made_,) = [value(x) for x in re.findall(r"makes? (−?[\d.]+)", head_)]
    assert made_ == pytest.approx(sum(products[d] for d in dims), rel=5e-3)
    assert number(score) in first
    assert ("speak against it" in first) == (abs(sum(products[d] for d in dims)) > abs(score))
    if len(dims) > 1:
        words = ["No", "One", "Two", "Three", "Four", "Five", "Six"]
        assert first.startswith(f"{words[len(dims)]} of 32 dimensions make ")
        assert [abs(products[d]) for d in dims] == sorted(
            (abs(products[d]) for d in dims), reverse=True
        )


def test_a_score_of_zero_has_no_deciding_dimension():
    assert told(of_products(2.0, -2.0), MATCH)[0] == "The score is 0: no dimension decides it."


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ((1, 0, 2, 3, 4, 5, 6), "the largest; they go from 1.00 (“<s>”) to 9.00 (“cat”)"),
        ((10, 0, 2, 3, 4, 5, 6), "the 2nd largest; they go from 2.00 (“sat”) to 10.0 (“<s>”)"),
        ((10, 0, 11, 3, 12, 5, 6), "the 4th largest"),
        ((10, 0, 11, 13, 12, 15, 16), "the smallest; they go from 9.00 (“cat”)"),
    ],
)
def test_a_score_is_seen_among_all_that_its_query_finds(row: tuple[float, ...], place: str):
    given = of_products(4.0, 5.0, row=row)
    assert f"Of the scores of the 7 keys that “it” sees, this one is {place}" in said(given, MATCH)


def test_hidden_keys_are_not_among_them():
    given = of_products(4.0, 5.0, row=(1, 0, 99, 3, 4, 5, 99), hidden=(2, 6))
    assert "the 5 keys that “it” sees, this one is the largest" in said(given, MATCH)
    assert "The mask hides “cat” from “it”" in said(worked(hidden=(1,)), MATCH)
    assert "sees no other key" in said(worked(hidden=(0, 2, 3, 4, 5, 6)), MATCH)


# --- 4 Scale, 5 Softmax


def test_the_terms_of_the_logit_are_those_that_there_are():
    assert equation(worked(), SCALE) == (r"\mathrm{logit}_{ij} = \dfrac{q_i \cdot k_j}{\sqrt{32}}")
    assert equation(worked(scale=1.0, bias=True), SCALE).endswith(r"= q_i \cdot k_j + b_{ij}")
    assert equation(worked(scale=0.23), SCALE).endswith(r"= 0.23\,(q_i \cdot k_j)")
    assert equation(worked(scale=1 / 32), SCALE).endswith(r"\dfrac{q_i \cdot k_j}{32}")
    capped = equation(worked(softcap=50.0, hidden=(6,)), SCALE)
    assert r"50\,\tanh\left(\frac{1}{50}\,\dfrac{q_i \cdot k_j}{\sqrt{32}}\right)" in capped
    assert r"-\infty & \text{if hidden}" in capped
    assert "b_{ij}" not in capped


def test_the_scale_is_told_with_what_comes_after_it():
    given = worked(softcap=5.0, bias=True)
    logit = given.cell.logit
    told_ = said(given, SCALE)
    assert f"The score {number(given.cell.match.score)} times 1/√32 is" in told_
    assert f"The soft cap makes {number(logit.capped)} of it" in told_
    assert f"the position bias adds {number(logit.bias)}" in told_
    assert told_.endswith(f"The logit is {number(logit.logit)}.")
    assert "no soft cap and no position bias" in said(worked(), SCALE)
    assert said(worked(hidden=(1,)), SCALE).endswith(
        "The mask hides “cat” from “it”, which makes the logit −∞."
    )


@pytest.mark.parametrize("terms", ["plain", "bias", "sink", "large logits", "causal"])
def test_the_softmax_is_told_from_logit_to_weight(terms: str):
    given = worked(1, **TERMS[terms])
    first = told(given, SOFTMAX)[0]
    own, total, weight = re.search(
        r"exponential (\S+), and those of the whole row sum to (\S+): the weight is (\S+)\.$", first
    ).groups()
    assert value(own) / value(total) == pytest.approx(given.cell.weight, rel=2e-3)
    assert value(weight) == pytest.approx(given.cell.weight, rel=6e-3)
    logits = [x for x in given.cell.logit.row.tolist() if x > -math.inf]
    shift = max(logits) if terms == "large logits" else 0.0
    true = sum(math.exp(x - shift) for x in logits) + math.exp(TERMS[terms].get("sink", -math.inf))
    assert value(total) == pytest.approx(true, rel=6e-4)
    assert ("lowered by m = " in first) == (terms == "large logits")
    assert (" - m" in equation(given, SOFTMAX)) == (terms == "large logits")
    assert ("sink" in equation(given, SOFTMAX)) == (terms == "sink")


def test_the_weight_is_compared_with_even_weights_over_what_is_seen():
    given = worked(hidden=(5, 6))
    times = given.cell.weight * 5
    last = told(given, SOFTMAX)[-1]
    assert "“it” sees 5 keys; spread evenly, each would have 0.200" in last
    assert number(times) in last
    even = replace(given, cell=replace(given.cell, weights=torch.full((7,), 0.2)))
    assert told(even, SOFTMAX)[-1].endswith("this weight is just that.")
    assert "“it” sees no other key." in said(worked(hidden=(0, 2, 3, 4, 5, 6)), SOFTMAX)


def test_a_learned_sink_is_told_with_its_share():
    given = worked(sink=1.7)
    exponentials = [math.exp(x) for x in given.cell.logit.row.tolist()]
    share = math.exp(1.7) / (math.exp(1.7) + sum(exponentials))
    assert f"takes {number(share)} of the row" in said(given, SOFTMAX)
    assert "sink" not in said(worked(), SOFTMAX)


def test_a_hidden_key_is_told_in_the_softmax():
    assert said(worked(hidden=(1,)), SOFTMAX) == (
        "“cat” is hidden from “it”: exp(−∞) = 0, and so is the weight."
    )


# --- 6 Retrieve, 7 Into the stream


def of_parts(weights: list[float], brought: list[float], part: list[float], **changes) -> Worked:
    fields = {
        "weights": torch.tensor(weights),
        "retrieved": Retrieved(torch.zeros(5), torch.ones(5), torch.tensor(brought), True),
        "into_stream": IntoStream("o.weight", torch.tensor(part), None, torch.ones(6)),
    }
    return worked(cell=fields | changes)


def test_the_token_that_brings_most_need_not_have_the_largest_weight():
    weights, brought = [0.1, 0.3, 0.4, 0.2, 0, 0, 0], [0.5, 2.0, 1.0, 0.5, 0, 0, 0.0]
    first = told(of_parts(weights, brought, [3.0, 0.0]), RETRIEVE)[0]
    assert first == (
        "“sat” has the largest weight, 0.400, but “cat”, with 0.300, brings most to the output: "
        "0.500 of all lengths, against 0.250."
    )
    brought[1], brought[2] = 1.0, 2.0
    first = told(of_parts(weights, brought, [3.0, 0.0]), RETRIEVE)[0]
    assert first == (
        "“sat” has the largest weight, 0.400, and brings most to the output as well: 0.500 of all "
        "lengths. “cat”, with 0.300, brings 0.250."
    )


def test_what_cancels_is_told():
    weights, brought = [0.1, 0.3, 0.4, 0.2, 0, 0, 0], [0.5, 2.0, 1.0, 0.5, 0, 0, 0.0]
    second = told(of_parts(weights, brought, [1.8, 2.4]), RETRIEVE)[1]
    assert second == (
        "The lengths of all that is brought add up to 4.00, their sum has length 3.00: 25 % of it "
        "cancels."
    )
    hardly = told(of_parts(weights, brought, [4.0, 0.0]), RETRIEVE)[1]
    assert "hardly any of it cancels" in hardly


def test_without_w_o_the_output_itself_is_compared():
    retrieved = Retrieved(torch.zeros(2), torch.tensor([0.6, 0.8]), torch.full((7,), 0.5), False)
    given = of_parts([0.2] * 7, [0.5] * 7, [9.0], retrieved=retrieved, into_stream=None)
    assert "before W_O, which could not be followed" in said(given, RETRIEVE)
    assert "add up to 3.50, their sum has length 1.00: 71 % of it cancels" in said(given, RETRIEVE)
    assert "W_O" not in equation(given, RETRIEVE)
    assert "could not be followed" in said(given, STREAM)
    assert equation(given, STREAM) == ""


@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_of_retrieving_is_so(seed: int):
    given = worked(seed)
    lengths = given.cell.retrieved.brought.tolist()
    most = max(range(7), key=lengths.__getitem__)
    first, second, third = told(given, RETRIEVE)
    assert f"{number(lengths[most] / sum(lengths))} of all lengths" in first
    total, length, *_ = numbers(second)
    assert total == pytest.approx(sum(lengths), rel=6e-3)
    assert length == pytest.approx(float(given.cell.into_stream.part.norm()), rel=6e-3)
    assert third.startswith("What comes back is weight times value")


def test_a_query_that_sees_nothing_gets_nothing_back():
    nothing = of_parts([0.0] * 7, [0.0] * 7, [0.0])
    assert said(nothing, RETRIEVE) == "“it” sees no key, so nothing comes back."


def into(**changes: Any) -> Worked:
    lengths = torch.tensor([1.0, 7.0, 5.0, 6.0, 2.0, 3.0])
    fields = {
        "matrix": "h.1.attn.c_proj.weight",
        "part": torch.tensor([3.0, 4.0]),
        "bias": None,
        "heads": lengths,
        "added": torch.tensor([6.0, 8.0]),
        "before": torch.tensor([5.0, 12.0]),
        "changed": False,
    }
    return worked(cell={"into_stream": IntoStream(**(fields | changes))})


def test_the_part_of_the_head_is_seen_among_all_and_before_the_stream():
    assert said(into(), STREAM) == (
        "From the 5 numbers of this head's output, W_O (h.1.attn.c_proj) makes a vector of 2 "
        "numbers and of length 5.00, the 3rd longest among the 6 heads (from 1.00 to 7.00). All "
        "heads together add a vector of length 10.0 to the stream at “it”, the token that looks, "
        "which has length 13.0 before; from there all that follows reads "
        "it."
    )


def test_a_gate_a_norm_and_a_bias_stand_where_they_are():
    plain, all_three = (
        (said(given, STREAM), equation(given, STREAM))
        for given in (into(), into(bias=torch.ones(2), gated=True, changed=True))
    )
    assert "multiplied number by number first (a gate or a norm), W_O" in all_three[0]
    assert "add, after a norm or a factor, a vector" in all_three[0]
    assert (
        r"f(\textstyle\sum_h W_O^{h}\,(g_i^{h} \odot \mathrm{output}_i^{h}) + b_O)"
        in (all_three[1])
    )
    assert not any(word in plain[0] for word in ("gate", "norm"))
    assert not any(word in plain[1] for word in ("g_i", "b_O", "f("))


def test_a_stream_that_was_not_found_is_said():
    lost = into(added=None, before=None, changed=None)
    assert "where it is added to the stream was not found" in said(lost, STREAM)
    assert "stream" not in equation(lost, STREAM)
    alone = into(heads=torch.tensor([5.0, 5.0, 5.0])[:1])
    alone = replace(alone, cell=replace(alone.cell, head=0))
    assert "there is no other head" in said(alone, STREAM)


# --- all of it


@pytest.mark.parametrize("terms", TERMS)
def test_every_step_has_its_words(terms: str):
    for seed in range(3):
        given = worked(seed, **TERMS[terms])
        for step in range(len(STEPS)):
            words = told(given, step)
            assert 1 <= len(words) <= 3
            for text in [*words, equation(given, step)]:
                assert not re.search(r"-0\.0+\b(?!\d)|−0(\.0+)?(?![\d.])|nan|None|tensor", text)
            assert all(text.endswith(".") and text[0] not in " ." for text in words)


def test_a_model_without_q_and_k_says_so_where_they_are_needed():
    given = worked(weights_only=True)
    for step in (ROLES, MATCH, SCALE, SOFTMAX):
        assert "offers no queries and keys" in said(given, step)
    assert [equation(given, step) for step in (MATCH, SCALE, SOFTMAX)] == ["", "", ""]
    assert "each would have 0.143" in said(given, SOFTMAX)


@pytest.mark.parametrize(
    ("family", "part", "expected"),
    [
        ("gpt2", "decoder", {ROLES: "one matrix, c_attn", POSITION: "transformer.wpe"}),
        ("llama", "decoder", {ROLES: "Heads 2 and 3 share key and value head 1", POSITION: "Were"}),
        ("gemma2", "decoder", {SCALE: "The soft cap makes", STREAM: "after a norm or a factor"}),
        ("gpt_oss", "decoder", {SOFTMAX: "A learned sink"}),
        ("t5", "encoder", {POSITION: "a position bias", SCALE: "does not divide"}),
        ("bart", "cross", {ROLES: "in the source", STREAM: "out_proj"}),
        ("deepseek_v3", "decoder", {ROLES: "one of 23 for q and one of 19 for k and v"}),
        ("qwen3_next", "decoder", {ROLES: "QK-norm", STREAM: "a gate or a norm"}),
        ("opt", "decoder", {SCALE: "q was multiplied before, by 1/√11"}),
    ],
)
def test_real_models_are_told_as_they_are(
    tmp_path: Path, family: str, part: str, expected: dict[int, str]
):
    asked = Asked(
        saved_models.save(tmp_path / family, family),
        "The cat sat on the mat because it was tired",
        target="the king was tired of gold",
    )
    layer = next(iter(served(asked).calls(part)))
    given = cells.worked(asked, heads.head(asked, part, layer, 2), 4, 3)
    for step, words in expected.items():
        assert words in said(given, step)
    for step in range(len(STEPS)):
        assert 1 <= len(told(given, step)) <= 3
    assert "· ✓ largest difference in this head" in badge(given)
    call = served(asked).calls(part)[layer]
    score = float(call.query[0, 2, 4] @ call.key[0, 2 // given.group, 3])
    assert value(dict(boxes(given))["score q·k"]) == pytest.approx(score, abs=6e-4)


# --- what a model does otherwise than most


def replaced(given: Worked, name: str, **changes) -> Worked:
    cell = replace(given.cell, **{name: replace(getattr(given.cell, name), **changes)})
    return replace(given, cell=cell)


def test_a_key_made_from_another_vector_than_its_value_is_told():
    """As in DETR, where positions are added to what makes queries and keys."""
    x = torch.arange(D_MODEL).float()
    given = replaced(replaced(worked(0), "value", x=x), "key", x=x.clone())
    other = replaced(given, "key", x=x + 1)
    assert "made from two different vectors of that token" in told(other, ROLES)[0]
    assert "two different vectors" not in told(given, ROLES)[0]


def test_a_learned_query_at_the_place_of_the_key_is_told():
    x = torch.arange(D_MODEL).float()
    given = worked(0)
    given = replaced(replace(given, key=given.query), "key", x=x)
    assert "One vector" in told(replaced(given, "query", x=x.clone()), ROLES)[0]
    other = replaced(given, "query", x=x + 1)
    assert "stands for one vector on the side of the queries" in told(other, ROLES)[0]


def test_a_value_that_passes_a_norm_is_told_beside_those_of_query_and_key():
    given = replace(worked(0), norm=True)
    assert "The value is changed as well" not in " ".join(told(given, ROLES))
    changed = replaced(given, "value", made=given.cell.value.used * 2)
    assert "The value is changed as well" in " ".join(told(changed, ROLES))


def test_a_rotation_of_which_half_is_known_is_told():
    given = worked(0)
    half = replaced(given, "query", unrotated=given.cell.query.used)
    half = replaced(half, "key", unrotated=None)
    assert "only of one of the two could it be followed" in " ".join(told(half, POSITION))


def test_numbers_that_W_O_takes_beside_the_heads_are_told():  # noqa: N802 - the name of a matrix
    x = torch.arange(D_MODEL).float()
    given = replaced(worked(0), "into_stream", others=1234, added=x, before=x)
    assert "with 1,234 numbers of another kind that W_O takes" in " ".join(told(given, STREAM))
