"""Made-up lookups for a toy of one attention head to learn: what is asked, and where it stands.

A lookup shows sixteen items, each with a symbol that no other item has and a content, and asks
with a symbol for a content. Symbols and contents have no meaning; every lookup is drawn anew.

| task | what is asked for |
|---|---|
| same | the content beside the same symbol |
| partner | the content beside the symbol's partner, while the symbol itself is there too |
| copy a vector | the same as in the first, but contents are vectors of normal numbers |
| readout by the query | the query also carries a bit: the content itself, or another in its place |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

Task = Literal["same", "partner", "copy a vector", "readout by the query"]
TASKS: tuple[Task, ...] = ("same", "partner", "copy a vector", "readout by the query")
ITEMS, SYMBOLS, CONTENTS = 16, 32, 16
CODE = 16  # entries of the fixed vector that stands for a symbol where contents are vectors
CHANCE = 1 / CONTENTS
# What is right by always answering the content that stands there most often: the expectation of the
# largest count over 16, the best without knowing which content belongs to which symbol
BAG_CEILING = 0.192
MARKERS = 2  # what tells a query from an item, one for each value of the bit


@dataclass(frozen=True)
class Lookups:
    """Lookups of several replicas: what is seen, where the answer stands, and what it is.

    `items` and `query` are rows of features: ones where a symbol, a content or a marker is, or
    the vectors themselves. `place` is the item that holds the answer. `answer` is the content's
    number, of shape (replica, lookup), or a vector, of shape (replica, lookup, content).
    """

    items: Float[Tensor, "replica lookup item feature"]
    query: Float[Tensor, "replica lookup 1 feature"]
    place: Int[Tensor, "replica lookup"]
    answer: Tensor


def features(task: Task) -> int:
    """Entries of the rows that a task shows."""
    return CODE + CONTENTS if task == "copy a vector" else SYMBOLS + CONTENTS + MARKERS


@dataclass
class Source:
    """Lookups of one seed, one batch after the other."""

    task: Task
    seed: int

    def __post_init__(self) -> None:
        fixed = torch.Generator().manual_seed(self.seed)
        self.codes = torch.randn(SYMBOLS, CODE, generator=fixed)
        self.dice = torch.Generator().manual_seed(2**32 + self.seed)

    def draw(self, lookups: int) -> Lookups:
        """So many new lookups, of one replica."""
        symbols = self._symbols(lookups)
        place = torch.randint(ITEMS, (lookups,), generator=self.dice)
        return self._shown(symbols, place, self._contents(lookups), self._bits(lookups))

    def probe(self) -> Lookups:
        """One set of items, asked for each of them in turn: query i has its answer in item i."""
        symbols, contents = self._symbols(1), self._contents(1)
        each = torch.arange(ITEMS)
        every = [-1] * (contents.ndim - 1)
        return self._shown(
            symbols.expand(ITEMS, -1), each, contents.expand(ITEMS, *every), self._bits(ITEMS)
        )

    def _symbols(self, lookups: int) -> Int[Tensor, "lookup item"]:
        """Different symbols, in whole pairs where partners are asked for: 2 i and 2 i + 1."""
        if self.task != "partner":
            return torch.rand(lookups, SYMBOLS, generator=self.dice).argsort(-1)[:, :ITEMS]
        pairs = torch.rand(lookups, SYMBOLS // 2, generator=self.dice).argsort(-1)[:, : ITEMS // 2]
        symbols = torch.cat([2 * pairs, 2 * pairs + 1], dim=-1)
        order = torch.rand(lookups, ITEMS, generator=self.dice).argsort(-1)
        return symbols.gather(-1, order)

    def _contents(self, lookups: int) -> Tensor:
        if self.task == "copy a vector":
            return torch.randn(lookups, ITEMS, CONTENTS, generator=self.dice)
        return torch.randint(CONTENTS, (lookups, ITEMS), generator=self.dice)

    def _bits(self, lookups: int) -> Int[Tensor, " lookup"]:
        if self.task != "readout by the query":
            return torch.zeros(lookups, dtype=torch.long)
        return torch.randint(MARKERS, (lookups,), generator=self.dice)

    def _shown(self, symbols: Tensor, place: Tensor, contents: Tensor, bits: Tensor) -> Lookups:
        """Rows of features of these items, and of a query for the item at `place`."""
        rows = torch.arange(len(place))
        asked, content = symbols[rows, place], contents[rows, place]
        if self.task == "partner":
            asked = asked ^ 1
        if self.task == "copy a vector":
            items = torch.cat([self.codes[symbols], contents], dim=-1)
            query = torch.cat([self.codes[asked], torch.zeros_like(content)], dim=-1)
        else:
            items = _ones(symbols, SYMBOLS + contents)
            query = _ones(asked, SYMBOLS + CONTENTS + bits)
            # Another content in its place: the next one, the last by the first.
            content = (content + bits) % CONTENTS
        return Lookups(items[None], query[None, :, None], place[None], content[None])


def _ones(first: Int[Tensor, "*row"], second: Int[Tensor, "*row"]) -> Float[Tensor, "*row feature"]:
    """Rows that are one in two places and zero elsewhere."""
    width = SYMBOLS + CONTENTS + MARKERS
    return (one_hot(first, width) + one_hot(second, width)).float()


def together(lookups: Sequence[Lookups], times: int = 1) -> Lookups:
    """Replicas beside each other, the whole row of them so many times."""

    def joined(part: Callable[[Lookups], Tensor]) -> Tensor:
        return torch.cat([part(one) for one in lookups] * times)

    return Lookups(
        joined(lambda one: one.items),
        joined(lambda one: one.query),
        joined(lambda one: one.place),
        joined(lambda one: one.answer),
    )


def loss(
    answers: Float[Tensor, "replica lookup content"], lookups: Lookups
) -> Float[Tensor, " replica"]:
    """Mean loss of each replica: cross-entropy in nats, or the squared error of an entry."""
    if lookups.answer.ndim == answers.ndim:
        return (answers - lookups.answer).square().mean((1, 2))
    losses = cross_entropy(answers.flatten(0, 1), lookups.answer.flatten(), reduction="none")
    return losses.reshape(lookups.answer.shape).mean(-1)


def accuracy(
    answers: Float[Tensor, "replica lookup content"], lookups: Lookups
) -> Float[Tensor, " replica"]:
    """The share of right answers, or of the answers' variance that is explained (R²)."""
    if lookups.answer.ndim < answers.ndim:
        return (answers.argmax(-1) == lookups.answer).float().mean(-1)
    spread = lookups.answer - lookups.answer.mean((1, 2), keepdim=True)
    error = answers - lookups.answer
    return 1 - error.square().sum((1, 2)) / spread.square().sum((1, 2))
