"""Made-up lookups: what they show can be answered, and only from the right item."""

from __future__ import annotations

from fractions import Fraction
from math import factorial

import pytest
import torch

from attnviz import lookup_task
from attnviz.lookup_task import CODE, CONTENTS, ITEMS, SYMBOLS, TASKS, Lookups, Source

LOOKUPS = 37


def drawn(task: str, seed: int = 3) -> Lookups:
    return Source(task, seed).draw(LOOKUPS)


def symbols_and_contents(lookups: Lookups) -> tuple[torch.Tensor, torch.Tensor]:
    """What the items' ones stand for."""
    rows = lookups.items[0]
    assert (rows.sum(-1) == 2).all()
    return rows[..., :SYMBOLS].argmax(-1), rows[..., SYMBOLS : SYMBOLS + CONTENTS].argmax(-1)


def asked(lookups: Lookups) -> tuple[torch.Tensor, torch.Tensor]:
    """The query's symbol and bit."""
    row = lookups.query[0, :, 0]
    assert (row.sum(-1) == 2).all()
    return row[:, :SYMBOLS].argmax(-1), row[:, SYMBOLS + CONTENTS :].argmax(-1)


def at_place(values: torch.Tensor, lookups: Lookups) -> torch.Tensor:
    return values.gather(-1, lookups.place[0][:, None])[:, 0]


@pytest.mark.parametrize("task", TASKS)
def test_shapes(task):
    lookups = drawn(task)
    width = lookup_task.features(task)
    assert lookups.items.shape == (1, LOOKUPS, ITEMS, width)
    assert lookups.query.shape == (1, LOOKUPS, 1, width)


@pytest.mark.parametrize("task", ["same", "partner", "readout by the query"])
def test_no_two_items_have_one_symbol(task):
    symbols, _ = symbols_and_contents(drawn(task))
    assert all(len(set(row.tolist())) == ITEMS for row in symbols)


def test_same_symbol_holds_the_answer():
    lookups = drawn("same")
    symbols, contents = symbols_and_contents(lookups)
    assert torch.equal(at_place(symbols, lookups), asked(lookups)[0])
    assert torch.equal(at_place(contents, lookups), lookups.answer[0])


def test_partner_holds_the_answer_while_the_symbol_itself_is_there():
    lookups = drawn("partner")
    symbols, contents = symbols_and_contents(lookups)
    wanted, _ = asked(lookups)
    holder = at_place(symbols, lookups)
    assert torch.equal(holder // 2, wanted // 2)
    assert (holder != wanted).all()
    assert (symbols == wanted[:, None]).any(-1).all()
    assert torch.equal(at_place(contents, lookups), lookups.answer[0])


def test_the_query_s_bit_says_what_is_returned():
    lookups = drawn("readout by the query")
    _, contents = symbols_and_contents(lookups)
    _, bits = asked(lookups)
    assert set(bits.tolist()) == {0, 1}
    assert torch.equal((at_place(contents, lookups) + bits) % CONTENTS, lookups.answer[0])


def test_vectors_are_copied_from_the_item_with_the_query_s_code():
    lookups = drawn("copy a vector")
    items, query = lookups.items[0], lookups.query[0, :, 0]
    rows = torch.arange(LOOKUPS)
    at = items[rows, lookups.place[0]]
    assert torch.equal(at[:, :CODE], query[:, :CODE])
    assert torch.equal(at[:, CODE:], lookups.answer[0])
    assert (query[:, CODE:] == 0).all()


@pytest.mark.parametrize("task", TASKS)
def test_probe_asks_for_each_item_in_turn(task):
    probe = Source(task, 5).probe()
    assert probe.place.tolist() == [list(range(ITEMS))]
    assert (probe.items == probe.items[:, :1]).all()


@pytest.mark.parametrize("task", TASKS)
def test_seed_alone_says_what_is_drawn(task):
    assert torch.equal(drawn(task).items, drawn(task).items)
    assert not torch.equal(drawn(task).items, drawn(task, seed=4).items)
    source = Source(task, 3)
    assert torch.equal(source.draw(LOOKUPS).items, drawn(task).items)
    assert not torch.equal(source.draw(LOOKUPS).items, drawn(task).items)


def test_replicas_stand_beside_each_other_as_often_as_asked():
    both = lookup_task.together([drawn("same", 3), drawn("same", 4)], times=2)
    assert len(both.items) == len(both.answer) == 4
    assert torch.equal(both.items[3], drawn("same", 4).items[0])
    assert torch.equal(both.items[2], drawn("same", 3).items[0])


def worked() -> tuple[torch.Tensor, Lookups]:
    """Two lookups of one replica: odds 3 : 1 for the right content, 3 : 1 for a wrong one."""
    answers = torch.full((1, 2, CONTENTS), -torch.inf)
    answers[0, :, :2] = torch.tensor([3.0, 1.0]).log()
    right = torch.tensor([[0, 1]])
    return answers, Lookups(torch.zeros(1, 2, 1, 1), torch.zeros(1, 2, 1, 1), right, right)


def test_loss_and_accuracy_by_hand():
    answers, lookups = worked()
    # −(ln ¾ + ln ¼) / 2
    assert lookup_task.loss(answers, lookups).tolist() == pytest.approx([0.8369882])
    assert lookup_task.accuracy(answers, lookups).tolist() == [0.5]


def test_squared_error_and_explained_variance_by_hand():
    wanted = torch.tensor([[[1.0, 3.0]]])  # variance 1 about 2
    place = torch.zeros(1, 1, dtype=torch.long)
    lookups = Lookups(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1), place, wanted)
    answers = torch.tensor([[[1.0, 2.0]]])
    assert lookup_task.loss(answers, lookups).tolist() == [0.5]
    assert lookup_task.accuracy(answers, lookups).tolist() == [0.5]
    assert lookup_task.accuracy(wanted, lookups).tolist() == [1.0]


def most_at_most(m: int) -> Fraction:
    """P(no content stands there more than m times): 16!/16¹⁶ [x¹⁶] (Σ_{k ≤ m} xᵏ/k!)¹⁶."""
    powers = [Fraction(1)] + [Fraction(0)] * ITEMS
    for _ in range(CONTENTS):
        powers = [
            sum((powers[i - k] / factorial(k) for k in range(min(i, m) + 1)), Fraction(0))
            for i in range(ITEMS + 1)
        ]
    return powers[ITEMS] * factorial(ITEMS) / Fraction(CONTENTS) ** ITEMS


def test_bag_ceiling_is_the_expected_largest_count():
    expected = sum(1 - most_at_most(m) for m in range(ITEMS)) / ITEMS
    assert pytest.approx(float(expected), abs=5e-4) == lookup_task.BAG_CEILING
