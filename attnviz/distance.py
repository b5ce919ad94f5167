"""What the places of two tokens do to their score: as a curve over the distance between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnviz import attention, equation
from attnviz.capture import AttentionCall

PLACES_TRIED = 32  # by which the layout of a rotation is told; its angles are told at all places
BELIEVED = 2e-4  # of the largest number at a place: what the rotation found may leave over


@dataclass(frozen=True)
class DistanceCurve:
    """A number for each place of the key, by its distance: place of the query less that of the key.

    rotation: the score of the cell's query and key, were the key at that place. bias: what the
    model adds to the logit there. measured: the mean score of all visible cells at that distance,
    whatever the words, where the model has no term of position by itself.
    """

    kind: Literal["rotation", "bias", "measured"]
    distance: Int[Tensor, " place"]
    value: Float[Tensor, " place"]


def distance_curves(
    call: AttentionCall, head: int, query: int, key: int
) -> tuple[DistanceCurve, ...]:
    """The curves that a call allows for one cell: rotation, bias, or else what was measured.

    None for two texts, whose places have no distance, for pictures, and where queries are not
    as many as keys, so that their places cannot be told.
    """
    queries, keys = call.n
    if call.kind == "cross" or call.tower == "vision" or queries != keys:
        return ()
    terms = (_rotation(call, head, query, key), _bias(call, head, query))
    found = tuple(curve for curve in terms if curve is not None)
    measured = None if found else _measured(call, head)
    return found if measured is None else (measured,)


def _bias(call: AttentionCall, head: int, query: int) -> DistanceCurve | None:
    bias = attention.bias(call, head)
    if bias is None:
        return None
    row, mask = bias[query].float(), attention.mask(call, head)
    # Where bias and mask came as one tensor, the bias of hidden keys is lost, and is 0 here.
    told = row.isfinite() if mask is None else row.isfinite() & (mask[query] | (row != 0))
    place = told.nonzero().flatten()
    return DistanceCurve("bias", query - place, row[place])


def _measured(call: AttentionCall, head: int) -> DistanceCurve | None:
    """Visible cells of one distance lie on one diagonal."""
    if call.query is None:
        return None
    scaled = equation.logits(attention.scores(call, head), call.scale).double()
    mask = attention.mask(call, head)
    visible = torch.ones_like(scaled, dtype=torch.bool) if mask is None else mask
    queries, keys = scaled.shape
    distance = torch.arange(queries)[:, None] - torch.arange(keys)
    diagonal = distance[visible] + keys - 1
    count = diagonal.bincount()
    total = diagonal.bincount(weights=scaled[visible])
    occurs = count.nonzero().flatten()
    mean = (total[occurs] / count[occurs]).float()
    return DistanceCurve("measured", occurs - (keys - 1), mean)


# --- rotation, told by the keys before and after it


def rotation(call: AttentionCall) -> Rotation | None:
    """How the model turns the keys of each place, None where it does not, or it cannot be told."""
    if call.query is None or call.key is None or call.key_unrotated is None:
        return None
    if call.key.dtype not in (torch.float32, torch.float64):
        return None
    return _fitted(call.key_unrotated[0].double(), call.key[0].double())


def _rotation(call: AttentionCall, head: int, query: int, key: int) -> DistanceCurve | None:
    """The query as it is, and the key turned as the model turns the keys of each place."""
    turning = rotation(call)
    if turning is None or call.query is None or call.key_unrotated is None:
        return None
    plain = call.key_unrotated[0].double()
    turned = turning.of(plain[call.kv_head(head), key].expand(plain.shape[1:]))
    value = turned @ call.query[0, head, query].double()
    return DistanceCurve("rotation", query - torch.arange(len(value)), value.float())


@dataclass(frozen=True)
class _Layout:
    """Which dimensions turn together: `first[t]` with `second[t]`."""

    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Rotation:
    """By what angle each pair of dimensions turns at each place, and the one common factor."""

    layout: _Layout
    angle: Float[Tensor, "place pair"]
    length: float

    def between(self, distance: int) -> Rotation:
        """What a key is turned by against a query that stands so many places after it."""
        query, key = max(distance, 0), max(-distance, 0)
        return Rotation(self.layout, (self.angle[key] - self.angle[query])[None], self.length**2)

    def of(self, vectors: Float[Tensor, "*head place d_k"]) -> Float[Tensor, "*head place d_k"]:
        """Vectors as they are at their places."""
        one, other = vectors[..., self.layout.first], vectors[..., self.layout.second]
        cos, sin = self.length * self.angle.cos(), self.length * self.angle.sin()
        turned = vectors.clone()
        turned[..., self.layout.first] = one * cos - other * sin
        turned[..., self.layout.second] = one * sin + other * cos
        return turned


def _fitted(
    plain: Float[Tensor, "head place d_k"], turned: Float[Tensor, "head place d_k"]
) -> Rotation | None:
    """The rotation that makes the one of the other, None where none does."""
    layout = _best_layout(plain, turned)
    if layout is None:
        return None
    one, other = plain[..., layout.first], plain[..., layout.second]
    one_after, other_after = turned[..., layout.first], turned[..., layout.second]
    dot = (one * one_after + other * other_after).sum(0)
    cross = (one * other_after - other * one_after).sum(0)
    length = torch.hypot(dot, cross).sum() / (one.square() + other.square()).sum()
    found = Rotation(layout, torch.atan2(cross, dot), float(length))
    left_over = (found.of(plain) - turned).abs().amax((0, 2))
    believed = bool((left_over <= BELIEVED * turned.abs().amax((0, 2))).all())
    return found if believed else None


def _layouts(d_k: int) -> Iterator[_Layout]:
    """All dimensions, the first or the last r: t with t + r/2 or neighbours."""
    for width in range(2, d_k + 1, 2):
        for start in {0, d_k - width}:
            half = torch.arange(start, start + width // 2)
            yield _Layout(half, half + width // 2)
            even = torch.arange(start, start + width, 2)
            yield _Layout(even, even + 1)


def _best_layout(plain: Tensor, turned: Tensor) -> _Layout | None:
    """The layout under which the least is left over, each angle chosen by least squares.

    With dot and cross the sums, over heads, of k·k' and k×k' of a pair at a place, the best angle
    brings the pair hypot(dot, cross), so that what is left over is told by sums over pairs.
    """
    tried = torch.linspace(0, plain.shape[1] - 1, PLACES_TRIED).long().unique()
    plain, turned = plain[:, tried], turned[:, tried]
    products = torch.einsum("hpa,hpb->pab", plain, turned)
    dot = products.diagonal(dim1=1, dim2=2)
    cross = products - products.mT
    gain = torch.hypot(dot[:, :, None] + dot[:, None, :], cross).sum(0)
    before, after = plain.square().sum((0, 1)), turned.square().sum((0, 1))
    alone = before + after - 2 * dot.sum(0)

    def left_over(layout: _Layout) -> float:
        first, second = layout.first, layout.second
        within = after[first].sum() + after[second].sum()
        size = before[first].sum() + before[second].sum()
        explained = gain[first, second].sum().square() / size.clamp(min=1e-30)
        outside = alone.sum() - alone[first].sum() - alone[second].sum()
        return float(within - explained + outside)

    return min(_layouts(plain.shape[-1]), key=left_over, default=None)
