"""A lookup that fits on a blackboard: what is matched, what is returned, and what is then read.

Six items, each with a key symbol, by which it is found, and a content, which is wanted. Both are
vectors of two whole numbers. Matching and returning take these vectors as they are, so that every
number can be checked by hand: scores are q·k, the rest is `attnviz.equation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import equation

Part = Literal["key", "content", "sum", "both"]


@dataclass(frozen=True)
class Item:
    """What stands in a row of the table."""

    symbol: str
    key: tuple[int, int]
    content: str
    value: tuple[int, int]


# Keys are the six corners of a hexagon whose points are whole and all of length 5, contents all of
# length √5: the largest product of either is always with itself.
TABLE = (
    Item("A", (5, 0), "sun", (-1, -2)),
    Item("B", (3, 4), "rain", (-1, 2)),
    Item("C", (-3, 4), "snow", (-2, -1)),
    Item("D", (-5, 0), "wind", (1, 2)),
    Item("E", (-3, -4), "moon", (1, -2)),
    Item("F", (3, -4), "star", (2, 1)),
)


@dataclass(frozen=True)
class Variant:
    """Which vector of an item is matched, and which is returned.

    "sum" is key + content, "both" the key's two numbers and then the content's two.
    """

    matched: Part
    returned: Part


VARIANTS = {
    "Q, K, V": Variant("key", "content"),
    "K = V: content": Variant("content", "content"),
    "K = V: key": Variant("key", "key"),
    "K = V: sum": Variant("sum", "sum"),
    "K = V: side by side": Variant("both", "both"),
    "K and V exchanged": Variant("content", "key"),
}


@dataclass(frozen=True)
class Lookup:
    """The table asked for each of its key symbols in turn: query i asks for item i.

    `read` is what W_O keeps of the output; `readings` are its products with the contents of all
    items, and the content with the largest is the answer. All in float64.
    """

    query: Float[Tensor, "query d_k"]
    key: Float[Tensor, "key d_k"]
    value: Float[Tensor, "key d_v"]
    scores: Float[Tensor, "query key"]
    logits: Float[Tensor, "query key"]
    weights: Float[Tensor, "query key"]
    output: Float[Tensor, "query d_v"]
    read: Float[Tensor, "query content"]
    readings: Float[Tensor, "query key"]

    @property
    def d_k(self) -> int:
        """Numbers in a key."""
        return self.key.shape[-1]

    def found(self, asked: int) -> int:
        """The item with the largest weight."""
        return int(self.weights[asked].argmax())

    def answer(self, asked: int) -> int:
        """The item whose content is read."""
        return int(self.readings[asked].argmax())


def lookup(variant: Variant, sharpness: float = 1.0) -> Lookup:
    """Ask for every key symbol; the query is the symbol's own vector times the sharpness.

    Scaled dot-product attention with 1/√d_k (Vaswani et al. 2017, equation 1). Before keys that
    hold the content as well, the query is 0 in the content's place.
    """
    key, value = vectors(variant.matched), vectors(variant.returned)
    query = sharpness * vectors("key")
    if variant.matched == "both":
        query = torch.cat([query, torch.zeros_like(query)], dim=-1)
    scores = equation.scores(query, key)
    logits = equation.logits(scores, key.shape[-1] ** -0.5)
    weights = equation.weights(logits)
    output = equation.output(weights, value)
    read = output @ output_matrix(variant)
    readings = read @ vectors("content").mT
    return Lookup(query, key, value, scores, logits, weights, output, read, readings)


def vectors(part: Part) -> Float[Tensor, "item number"]:
    """One vector of every item."""
    keys = torch.tensor([item.key for item in TABLE], dtype=torch.float64)
    contents = torch.tensor([item.value for item in TABLE], dtype=torch.float64)
    return {
        "key": keys,
        "content": contents,
        "sum": keys + contents,
        "both": torch.cat([keys, contents], dim=-1),
    }[part]


def output_matrix(variant: Variant) -> Float[Tensor, "d_v content"]:
    """W_O: the identity, or what drops the key's two numbers and keeps the content's."""
    kept = torch.eye(2, dtype=torch.float64)
    return torch.cat([torch.zeros_like(kept), kept]) if variant.returned == "both" else kept
