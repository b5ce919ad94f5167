"""Cells of every kind of family, each number against an independent one, step by step.

The reference (`cell_reference`) has matrices and vectors from the modules of the model, and what
the family's own attention function was given and gave; each step is done here again, in double
precision, and the steps of a cell must lead to each other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import tiny_models
import torch
from cell_recipes import RECIPES
from cell_reference import Product, Surroundings
from test_wiring import EAGER, around
from torch import Tensor

from attnviz import cell as working
from attnviz.capture import AttentionCall
from attnviz.cell import Cell, Role, cell
from attnviz.wiring import Mixing, Wiring

OFF = 1e-5  # of the largest number
VISIBLE, HIDDEN = 3, 1  # cells that are tried of each call
ISSUE = ("bundled", "minilm", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart")
ISSUE += ("deepseek_v3", "vit")
FAMILIES = [*ISSUE, *(family for family in RECIPES if family not in ISSUE)]
by_family = pytest.mark.parametrize("family", FAMILIES)


@dataclass(frozen=True)
class Worked:
    """One cell, what it was worked out from, and what it must be."""

    call: AttentionCall
    wiring: Wiring
    real: Surroundings
    cell: Cell
    query: int
    key: int

    @property
    def head(self) -> int:
        return self.cell.head

    @property
    def kv_head(self) -> int:
        recipe = self.real.recipe
        return self.head // (recipe.heads // recipe.kv_heads)

    def another(self, **changes: int) -> Cell:
        place = {"head": self.head, "query": self.query, "key": self.key}
        return cell(self.call, self.wiring, **(place | changes))

    def row(self, name: str) -> Tensor:
        """The row of logits or weights that the model itself has."""
        return getattr(self.real.real, name)[0, self.head, self.query].double()

    @property
    def values(self) -> Tensor:
        return self.real.real.value[0, self.kv_head].double()

    @property
    def scores(self) -> Tensor:
        query = self.real.real.query[0, self.head, self.query].double()
        return self.real.real.key[0, self.kv_head].double() @ query


@cache
def cells(family: str) -> list[Worked]:
    attention = "eager" if family in EAGER else "sdpa"
    return [
        Worked(call, wiring, real, cell(call, wiring, *place), *place[1:])
        for call, wiring, real in around(family, attention)
        for place in places(real)
    ]


def places(real: Surroundings) -> list[tuple[int, int, int]]:
    """Some heads, queries and keys; where the model hides keys, a hidden one too."""
    dice = random.Random(real.module)
    visible = real.real.weights[0] > 0
    every = [tuple(at) for at in visible.nonzero().tolist()]
    hidden = [tuple(at) for at in (~visible).nonzero().tolist()]
    return dice.sample(every, VISIBLE) + dice.sample(hidden, min(HIDDEN, len(hidden)))


def close(found: Tensor | float | None, real: Tensor | float, of: float | None = None) -> None:
    """As close as five digits of the largest number, or of another one."""
    assert found is not None
    found, real = (torch.as_tensor(x, dtype=torch.float64) for x in (found, real))
    assert found.shape == real.shape
    largest = float(real.abs().max()) if of is None else of
    assert float((found - real).abs().max()) <= OFF * max(largest, 1e-30)


# --- a. three roles


def roles(worked: Worked) -> list[tuple[Role, str, int, int]]:
    """Role, name, head and token."""
    found = worked.cell
    assert found.query is not None
    assert found.key is not None
    return [
        (found.query, "query", worked.head, worked.query),
        (found.key, "key", worked.kv_head, worked.key),
        (found.value, "value", worked.kv_head, worked.key),
    ]


@by_family
def test_heads_and_tokens_are_those_asked_for(family: str):
    for worked in cells(family):
        assert worked.cell.kv_head == worked.kv_head
        assert worked.call.kv_heads == worked.real.recipe.kv_heads
        for role, _, _, token in roles(worked):
            assert role.token == token


@by_family
def test_a_role_is_x_times_its_matrix(family: str):
    for worked in cells(family):
        for role, name, head, token in roles(worked):
            products: tuple[Product, ...] = getattr(worked.real, name)
            main = max(products, key=lambda product: product.weight.shape[1])
            names = dict.fromkeys(product.matrix for product in products)
            assert role.matrix == " and ".join(names)
            close(role.x, main.x[0, token])
            close(role.entering, main.entering[0, token])
            close(role.made, made(products, head, token))


def made(products: tuple[Product, ...], head: int, token: int) -> Tensor:
    """W · entering + b, matrix by matrix."""
    numbers = []
    for product in products:
        numbers.append(product.weight[head].double() @ product.entering[0, token].double())
        if product.bias is not None:
            numbers[-1] += product.bias[head]
    return torch.cat(numbers)


@by_family
def test_the_bias_of_a_role_is_that_of_its_own_rows(family: str):
    for worked in cells(family):
        for role, name, head, _ in roles(worked):
            biases = [product.bias for product in getattr(worked.real, name)]
            if None in biases:
                assert biases == [None] * len(biases)
                assert role.bias is None
            else:
                close(role.bias, torch.cat([bias[head] for bias in biases]))


@by_family
def test_what_a_role_is_used_as_is_what_attention_was_given(family: str):
    for worked in cells(family):
        for role, name, head, token in roles(worked):
            close(role.used, getattr(worked.real.real, name)[0, head, token])


# --- b. position


@by_family
def test_what_is_made_is_what_is_used_but_for_norms_and_rotation(family: str):
    for worked in cells(family):
        recipe = worked.real.recipe
        query, key, value = (role for role, *_ in roles(worked))
        close(value.made, value.used)
        assert value.unrotated is None
        if recipe.rotated:
            continue
        assert (query.unrotated, key.unrotated) == (None, None)
        close(key.made, key.used)
        shift = 0.0
        if recipe.shift is not None:
            module, _, name = recipe.shift.partition(".")
            shift = getattr(worked.real.real.part, name)[worked.head].detach()
            assert worked.real.module.endswith(module)
        close(recipe.factor * query.made + shift, query.used)


@by_family
def test_before_the_rotation(family: str):
    """What was made, or what a norm made of it; its length stays, at the first place all of it."""
    for worked in cells(family):
        if not worked.real.recipe.rotated:
            continue
        of_roles = zip(roles(worked)[:2], worked.real.unrotated, strict=True)
        for (role, _, head, token), unrotated in of_roles:
            close(role.unrotated, unrotated[0, head, token])
            if worked.real.recipe.norms is None:
                close(role.unrotated, role.made)
            close(role.used.norm(), role.unrotated.norm())
            if token == 0:
                close(role.used, role.unrotated)
            elif token == 1:
                assert not torch.allclose(role.used, role.unrotated, atol=0.01)


# --- c. match


@by_family
def test_products_add_up_to_the_score(family: str):
    for worked in cells(family):
        match = worked.cell.match
        query, key, _ = (role for role, *_ in roles(worked))
        close(match.products, query.used.double() * key.used.double())
        size = float(match.products.abs().sum())
        close(match.score, float(match.products.double().sum()), of=size)
        close(match.score, float(worked.scores[worked.key]), of=size)
        close(match.row, worked.scores)
        assert match.row[worked.key] == match.score


# --- d. scale, soft cap, bias, mask


@by_family
def test_scale_and_soft_cap(family: str):
    for worked in cells(family):
        logit, recipe = worked.cell.logit, worked.real.recipe
        assert logit.scale == pytest.approx(recipe.scale, rel=1e-6)
        assert logit.softcap == recipe.softcap
        scaled = recipe.scale * worked.scores[worked.key]
        size = float(recipe.scale * worked.scores.abs().max())
        close(logit.scaled, float(scaled), of=size)
        close(logit.scaled, logit.scale * worked.cell.match.score)
        if recipe.softcap is None:
            assert logit.capped is None
        else:
            close(logit.capped, recipe.softcap * math.tanh(float(scaled) / recipe.softcap), of=size)
            close(logit.capped, logit.softcap * math.tanh(logit.scaled / logit.softcap))


@by_family
def test_bias_and_mask(family: str):
    for worked in cells(family):
        logit, real = worked.cell.logit, worked.real
        visible = float(worked.row("weights")[worked.key]) > 0
        assert logit.visible is visible
        assert (logit.bias is not None) is real.recipe.biased
        if real.bias is not None and visible:
            bias = real.bias[0, worked.head, worked.query]
            close(logit.bias, float(bias[worked.key]), of=float(bias.abs().max()))
        before = logit.scaled if logit.capped is None else logit.capped
        total = before + (logit.bias or 0.0) if visible else -math.inf
        assert logit.logit == pytest.approx(total, rel=1e-5, abs=1e-5)
        assert logit.row[worked.key] == logit.logit


@by_family
def test_the_row_of_logits_is_the_models(family: str):
    """Where the model has attention of its own, it is known up to a number that falls out."""
    for worked in cells(family):
        found, real = worked.cell.logit.row.double(), worked.row("logits")
        seen = real > -math.inf
        assert torch.equal(found > -math.inf, seen)
        found, real = found[seen], real[seen]
        if family in tiny_models.OWN_ATTENTION:
            found, real = found - found.mean(), real - real.mean()
        close(found, real)


# --- e. softmax


@by_family
def test_exponentials_over_their_sum(family: str):
    for worked in cells(family):
        softmax, row = worked.cell.softmax, worked.cell.logit.row.double()
        largest = float(row.max())
        assert softmax.shift in (0.0, pytest.approx(largest))
        close(softmax.exponentials, (row - softmax.shift).exp())
        close(softmax.total, float(softmax.exponentials.double().sum()) + (softmax.sink or 0.0))
        close(softmax.exponentials / softmax.total, worked.cell.weights)


@by_family
def test_a_sink_takes_its_share(family: str):
    for worked in cells(family):
        softmax, sinks = worked.cell.softmax, worked.real.sinks
        if sinks is None:
            assert (softmax.sink, worked.cell.sink_share) == (None, None)
            close(worked.cell.weights.double().sum(), 1.0)
            continue
        close(softmax.sink, math.exp(float(sinks[worked.head]) - softmax.shift))
        close(worked.cell.sink_share, softmax.sink / softmax.total)
        close(worked.cell.sink_share, float(1 - worked.row("weights").sum()), of=1.0)
        assert worked.cell.sink_share > 0


@by_family
def test_weights_are_the_models(family: str):
    """To five digits of 1, and both numbers of the badge."""
    for worked in cells(family):
        found, real = worked.cell, worked.row("weights")
        close(found.weights, real, of=1.0)
        close(found.weight, float(real[worked.key]), of=1.0)
        close(found.model_weight, float(real[worked.key]), of=1.0)
        assert abs(found.weight - found.model_weight) <= found.largest_difference < OFF


@by_family
def test_the_largest_difference_is_that_of_all_cells_of_the_head(family: str):
    for worked in cells(family)[:2]:
        queries = range(worked.call.n[0])
        rows = torch.stack([worked.another(query=query).weights for query in queries])
        own = worked.wiring.weights[0, worked.head]
        assert worked.cell.largest_difference == float((rows - own).abs().max())


# --- f. retrieve


@by_family
def test_weights_times_values_add_up_to_the_output(family: str):
    for worked in cells(family):
        retrieved, weights = worked.cell.retrieved, worked.row("weights")
        value = worked.cell.value.used.double()
        largest = float(worked.values.abs().max())
        close(retrieved.share, weights[worked.key] * worked.values[worked.key], of=largest)
        close(retrieved.share, worked.cell.weight * value, of=largest)
        close(retrieved.output, worked.real.real.output[0, worked.head, worked.query])
        close(retrieved.output, weights @ worked.values)


@by_family
def test_shares_of_all_keys_add_up_to_the_output(family: str):
    for worked in cells(family)[:2]:
        keys = range(worked.call.n[1])
        shares = [worked.another(key=key).retrieved.share.double() for key in keys]
        close(sum(shares), worked.cell.retrieved.output)


@by_family
def test_what_each_key_brings(family: str):
    """‖W_O · (weight · value)‖, with the gate where there is one."""
    for worked in cells(family):
        retrieved, real = worked.cell.retrieved, worked.real
        shares = worked.row("weights")[:, None] * worked.values
        assert retrieved.through_w_o is (real.mixed is not None)
        if real.gate is not None:
            shares = shares * real.gate[0, worked.head, worked.query].double()
        if real.mixed is not None:
            shares = shares @ real.mixed.weight[worked.head].double().T
        close(retrieved.brought, shares.norm(dim=-1))


# --- g. into the stream


@by_family
def test_the_heads_part_is_its_columns_of_w_o_times_its_output(family: str):
    for worked in cells(family):
        into, mixed, real = worked.cell.into_stream, worked.real.mixed, worked.real
        if mixed is None:
            assert into is None
            continue
        assert into.matrix == mixed.matrix
        assert into.gated is (real.gate is not None)
        given = mixed.given[0, :, worked.query].double()
        parts = torch.einsum("hmv,hv->hm", mixed.weight.double(), given)
        close(into.part, parts[worked.head])
        if real.gate is None:
            output = worked.cell.retrieved.output.double()
            close(into.part, mixed.weight[worked.head].double() @ output)
        close(into.heads, parts.norm(dim=-1))
        close(into.heads[worked.head], into.part.norm())
        assert (into.bias is None) == (mixed.bias is None)
        if mixed.bias is not None:
            close(into.bias, mixed.bias)


@by_family
def test_the_stream_before_and_what_is_added(family: str):
    for worked in cells(family):
        into, real = worked.cell.into_stream, worked.real
        if into is None:
            continue
        close(into.before, real.before[0, worked.query])
        close(into.added, real.added[0, worked.query])
        assert into.changed is real.recipe.changed
        beside = 0.0 if real.beside is None else real.beside[0, worked.query]
        close(into.before + into.added + beside, real.after[0, worked.query])


@by_family
def test_parts_of_all_heads_and_the_bias_are_what_is_added(family: str):
    for worked in cells(family)[:2]:
        if worked.cell.into_stream is None:
            continue
        of_heads = [worked.another(head=h).into_stream for h in range(worked.call.heads)]
        whole = sum(into.part.double() for into in of_heads)
        if of_heads[0].bias is not None:
            whole = whole + of_heads[0].bias
        close(whole, worked.real.mixed.sum[0, worked.query])
        if not worked.real.recipe.changed:
            close(whole, worked.cell.into_stream.added)


# --- faults put in on purpose

Fault = Callable[[pytest.MonkeyPatch], None]


def instead(name: str, wrong: Callable) -> Fault:
    original = getattr(working, name)
    return lambda patch: patch.setattr(working, name, lambda *given: wrong(original, *given))


def next_head(original: Callable, mixing: Mixing, head: int, query: int) -> Tensor:
    return original(mixing, (head + 1) % mixing.column.shape[1], query)


FAULTS: dict[str, tuple[str, Fault, Callable[[str], None]]] = {
    "W_O of the next head": (
        "gpt2",
        instead("w_o", next_head),
        test_the_heads_part_is_its_columns_of_w_o_times_its_output,
    ),
    "W_O of the next head, for what keys bring": (
        "t5",
        instead("w_o", next_head),
        test_what_each_key_brings,
    ),
    "a sink forgotten": (
        "gpt_oss",
        instead("_softmax", lambda original, row, sink: original(row, None)),
        test_exponentials_over_their_sum,
    ),
    "a gate forgotten": (
        "qwen3_next",
        instead("gate", lambda original, *given: None),
        test_what_each_key_brings,
    ),
    "kv_heads tiled": (
        "llama",
        lambda patch: patch.setattr(AttentionCall, "kv_head", lambda c, head: head % c.kv_heads),
        test_a_role_is_x_times_its_matrix,
    ),
    "a latent vector taken for x": (
        "deepseek_v3",
        instead("_x", lambda original, projection, row: projection.source[row]),
        test_a_role_is_x_times_its_matrix,
    ),
    "the stream of the token before": (
        "bundled",
        instead(
            "_into_stream",
            lambda original, w_o, stream, row, *more: original(w_o, stream, row - 1, *more),
        ),
        test_the_stream_before_and_what_is_added,
    ),
    "the score of the next key": (
        "vit",
        instead(
            "_match",
            lambda original, call, head, query, key: original(
                call, head, query, (key + 1) % call.n[1]
            ),
        ),
        test_products_add_up_to_the_score,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reference_sees(fault: str, monkeypatch: pytest.MonkeyPatch):
    family, put_in, check = FAULTS[fault]
    check(family)
    put_in(monkeypatch)
    monkeypatch.setitem(globals(), "cells", cells.__wrapped__)
    with pytest.raises(AssertionError):
        check(family)


# --- cells that must be among them


@pytest.mark.parametrize("family", ["bundled", "gpt2", "gemma2", "gpt_oss", "t5", "bart", "bloom"])
def test_hidden_keys_get_nothing(family: str):
    hidden = [worked for worked in cells(family) if not worked.cell.logit.visible]
    assert hidden
    for worked in hidden:
        assert worked.cell.logit.logit == -math.inf
        assert worked.cell.softmax.exponentials[worked.key] == 0
        assert (worked.cell.weight, worked.cell.model_weight) == (0, 0)
        assert not worked.cell.retrieved.share.any()
        assert worked.cell.retrieved.brought[worked.key] == 0


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_cross_attention_has_queries_and_keys_of_two_texts(family: str):
    cross = [worked for worked in cells(family) if worked.call.kind == "cross"]
    assert cross
    for worked in cross:
        assert worked.call.n == (7, 13)
        assert worked.cell.weights.shape == (13,)
        assert worked.cell.query.x.shape == worked.cell.key.x.shape
        last = worked.another(query=6, key=12)
        close(last.query.x, worked.real.query[0].x[0, 6])
        close(last.key.x, worked.real.key[0].x[0, 12])


@pytest.mark.parametrize(
    ("family", "heads", "kv_heads"), [("llama", 6, 3), ("gpt_oss", 6, 3), ("falcon_grouped", 6, 3)]
)
def test_heads_of_a_group_share_keys_and_values(family: str, heads: int, kv_heads: int):
    worked = cells(family)[0]
    of_heads = [worked.another(head=head) for head in range(heads)]
    assert [found.kv_head for found in of_heads] == [0, 0, 1, 1, 2, 2]
    for one, other in zip(of_heads[::2], of_heads[1::2], strict=True):
        assert torch.equal(one.key.made, other.key.made)
        assert torch.equal(one.value.used, other.value.used)
        assert not torch.allclose(one.query.made, other.query.made, atol=0.01)
    assert not torch.allclose(of_heads[1].key.made, of_heads[2].key.made, atol=0.01)


def test_a_latent_key_names_both_its_matrices_and_has_another_width_than_its_value():
    for worked in cells("deepseek_v3"):
        path = worked.call.module
        assert worked.cell.key.matrix == (
            f"{path}.kv_b_proj.weight and {path}.kv_a_proj_with_mqa.weight"
        )
        assert worked.cell.key.used.shape == (13,)
        assert worked.cell.value.used.shape == (11,)
        assert worked.cell.key.entering.shape == (19,)
        assert worked.cell.query.entering.shape == (23,)
        assert worked.cell.query.x.shape == worked.cell.key.x.shape == (44,)
