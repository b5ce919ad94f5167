"""The two products that matter of a head's four matrices, and how symmetric its scores are.

Elhage et al. 2021, "A mathematical framework for transformer circuits": with x what the matrices
are given, q·k = x W_QK x′ with W_QK = W_Qᵀ W_K, and what a key brings to the stream is W_OV x′
with W_OV = W_O W_V. Neither has a rank above the head's width. Biases do not fit into the two
matrices and stand beside them. Everything is computed in float64 from the model's own numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.distance import Rotation, rotation
from attnviz.surroundings import Origin, Projection, Wiring
from attnviz.weighing import is_gated, refusal, w_o
from attnviz.windows import ALL

SAME = 1e-4  # relative to the largest number: one vector computed in two ways, in float32
ROUNDED = 4  # times the precision of a model that has less
ROLES = {"query": "queries", "key": "keys", "value": "values"}


class NoMatrix(Exception):  # noqa: N818 - a state to tell a person, not a mistake
    """One matrix does not make these vectors; the message is a clause that says why."""


@dataclass(frozen=True)
class Factor:
    """One head's part of one of the model's matrices: vector = weight · x + bias.

    `x` is what the matrix is given for each token of the first sequence, after any norm of the
    stream, and `name` the path of the matrix in the model.
    """

    name: str
    weight: Float64[Tensor, "width d_in"]
    bias: Float64[Tensor, " width"] | None
    x: Float64[Tensor, "token d_in"]

    @property
    def made(self) -> Float64[Tensor, "token width"]:
        """What it makes of x."""
        made = self.x @ self.weight.mT
        return made if self.bias is None else made + self.bias

    @property
    def offset(self) -> Float64[Tensor, " width"]:
        """The bias, 0 where there is none."""
        return self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a product of two factors, largest first: as many as its rank can be.

    `in_factors` and `in_product` are how many numbers the two factors and their product hold.
    """

    values: Float64[Tensor, " rank"]
    in_factors: int
    in_product: int

    @property
    def rank_bound(self) -> int:
        """What the rank cannot exceed."""
        return len(self.values)


@dataclass(frozen=True)
class QueryKey:
    """W_QK of one head: scores = factor · (x W_QK x′ + x · of_query + x′ · of_key + constant).

    Where queries and keys are `rotated` by their places, these are the scores before rotation:
    the rotation stands between W_Qᵀ and W_K and depends on the distance of the two tokens, so
    that after it there is one matrix for each distance, and none for all. `factor` is what the
    model multiplies queries and keys by before the product.
    """

    query: Factor
    key: Factor
    factor: float
    rotated: bool

    @property
    def matrix(self) -> Float64[Tensor, "d_query d_key"]:
        """W_Qᵀ W_K."""
        return self.query.weight.mT @ self.key.weight

    @property
    def of_query(self) -> Float64[Tensor, " d_query"]:
        """W_Qᵀ b_K, the same for every key of a row: no softmax sees it."""
        return self.query.weight.mT @ self.key.offset

    @property
    def of_key(self) -> Float64[Tensor, " d_key"]:
        """W_Kᵀ b_Q, which prefers some keys whatever the query is."""
        return self.key.weight.mT @ self.query.offset

    @property
    def constant(self) -> float:
        """b_Q · b_K."""
        return float(self.query.offset @ self.key.offset)

    @property
    def symmetric_share(self) -> float:
        """‖(W + Wᵀ)/2‖² / ‖W‖² of W_QK; raises `ValueError` where it is not square."""
        return _symmetric_share(self.query.weight.mT, self.key.weight.mT)

    def scores(self, queries: slice = ALL, keys: slice = ALL) -> Float64[Tensor, "query key"]:
        """q·k of the first sequence from W_QK, without any query or key being made."""
        x, other = self.query.x[queries], self.key.x[keys]
        products = x @ self.matrix @ other.mT
        by_row, by_column = (x @ self.of_query)[:, None], other @ self.of_key
        return self.factor * (products + by_row + by_column + self.constant)

    def spectrum(self) -> Spectrum:
        """The singular values of W_QK: at most d_k of them are not 0."""
        return _spectrum(self.query.weight.mT, self.key.weight.mT)


@dataclass(frozen=True)
class OutputValue:
    """W_OV of one head: what a key brings to the stream with weight 1 is W_OV x′ + bias.

    `output` are the columns of W_O that take this head. W_O's own bias belongs to no head. A
    weight's sum below 1, as a learned sink leaves it, brings so much less of the bias.
    """

    value: Factor
    output: Float64[Tensor, "d_model d_v"]
    factor: float

    @property
    def matrix(self) -> Float64[Tensor, "d_model d_in"]:
        """W_O W_V."""
        return self.factor * self.output @ self.value.weight

    @property
    def bias(self) -> Float64[Tensor, " d_model"]:
        """W_O b_V."""
        return self.factor * self.output @ self.value.offset

    def into_stream(self, weights: Float[Tensor, "query key"]) -> Float64[Tensor, "query d_model"]:
        """The head's part of W_O's result from W_OV, without any value being made."""
        weights = weights.double()
        return weights @ self.value.x @ self.matrix.mT + weights.sum(-1, keepdim=True) * self.bias

    def spectrum(self) -> Spectrum:
        """The singular values of W_OV: at most d_v of them are not 0."""
        return _spectrum(self.factor * self.output, self.value.weight.mT)


def query_key(call: AttentionCall, wiring: Wiring, head: int) -> QueryKey:
    """W_QK of one head. Raises `UnreadableModel` with a sentence where no one matrix is there."""
    try:
        if call.query is None or call.key is None:
            raise NoMatrix("its queries and keys cannot be had as such")
        rotated = call.query_unrotated is not None and call.key_unrotated is not None
        query = call.query_unrotated if rotated else call.query
        key = call.key_unrotated if rotated else call.key
        assert query is not None
        assert key is not None
        kv_head = call.kv_head(head)
        made_of = (
            factor_of(wiring.query, head, "query"),
            factor_of(wiring.key, kv_head, "key"),
        )
        used = query[0, head], key[0, kv_head]
        times = _multiple(made_of[0], used[0], "query") * _multiple(made_of[1], used[1], "key")
    except NoMatrix as why:
        raise UnreadableModel(f"This head has no W_QK that could be shown: {why}.") from why
    return QueryKey(*made_of, times, rotated)


def at_distance(call: AttentionCall, found: QueryKey, head: int, distance: int) -> QueryKey:
    """W_QK = W_Qᵀ R W_K of a rotated head, with the rotation R of one distance.

    The distance is the place of the query less that of the key (Su et al. 2021: the rotation
    depends on nothing else). Of the scores that come of it, those of this distance are the
    model's. Raises `UnreadableModel` with a sentence where the rotation cannot be told from
    distances alone, `ValueError` where the text has no such distance.
    """
    n = call.n[0]
    if not -n < distance < n:
        raise ValueError(f"Of {n} tokens, no two have a distance of {distance}.")
    turning = rotation(call)
    made = None if turning is None else _turned(found, turning.between(distance))
    if made is None or not _gives(made, call, head, distance):
        raise UnreadableModel(
            "By what angles queries and keys are rotated here could not be told by the distance of "
            "two tokens, so that there is no W_QK of one distance."
        )
    return made


def _gives(made: QueryKey, call: AttentionCall, head: int, distance: int) -> bool:
    """Whether the scores of one distance are those of the model."""
    assert call.query is not None
    assert call.key is not None
    later, earlier = slice(max(distance, 0), None), slice(max(-distance, 0), None)
    query, key = call.query[0, head, later], call.key[0, call.kv_head(head), earlier]
    pairs = min(len(query), len(key))
    real = (query[:pairs].double() * key[:pairs].double()).sum(-1)
    off = (made.scores().diagonal(-distance) - real).abs().max()
    return float(off) <= _exact(call.key) * float(real.abs().max())


def _turned(found: QueryKey, turn: Rotation) -> QueryKey:
    """The same with other keys, as if none had been rotated."""
    key = found.key
    bias = None if key.bias is None else turn.of(key.bias[None])[0]
    turned = replace(key, weight=turn.of(key.weight.mT).mT, bias=bias)
    return replace(found, key=turned, rotated=False)


def output_value(call: AttentionCall, wiring: Wiring, head: int) -> OutputValue:
    """W_OV of one head. Raises `UnreadableModel` with a sentence where no one matrix is there."""
    try:
        if wiring.output is None:
            raise NoMatrix("what the layer does with it could not be followed to a matrix W_O")
        if refusal(wiring):
            raise NoMatrix("W_O takes it in another order for other tokens")
        if is_gated(call, wiring.output, head):
            raise NoMatrix("its output is multiplied by a gate before W_O")
        value = factor_of(wiring.value, call.kv_head(head), "value")
        times = _multiple(value, call.value[0, call.kv_head(head)], "value")
    except NoMatrix as why:
        raise UnreadableModel(f"This head has no W_OV that could be shown: {why}.") from why
    return OutputValue(value, w_o(wiring.output, head).double(), times)


def symmetric_share(call: AttentionCall, head: int, *, centred: bool = False) -> float:
    """‖(S + Sᵀ)/2‖² / ‖S‖² of a head's scores: how much of them does not know who looks at whom.

    Over all pairs of two different tokens of the first sequence, before any mask, since both
    directions have a score then. 1 where queries are keys, 0 where turning a pair about turns
    the sign of its score, and 1/2 on average where the two directions know nothing of each other.
    A mean that all scores share is symmetric: `centred` are those of queries and keys less their
    means, which leaves what the two tokens make of each other. Computed from sums over tokens,
    O(n · d_k²). Raises `UnreadableModel` where no pair has two directions, or all scores are 0.
    """
    if call.query is None or call.key is None:
        raise UnreadableModel("Of this attention only the weights are known, not its scores.")
    if call.kind == "cross" or call.n[0] != call.n[1]:
        raise UnreadableModel(
            "One sequence looks at another here, so that no pair of tokens has two directions."
        )
    real = slice(None) if call.query_padding is None else ~call.query_padding[0]
    query = call.query[0, head][real].double()
    key = call.key[0, call.kv_head(head)][real].double()
    if len(query) < 2:
        raise UnreadableModel("One token alone has no other to look at.")
    if centred:
        query, key = query - query.mean(0), key - key.mean(0)
    share = _symmetric_share(query, key, diagonal=False)
    if math.isnan(share):
        raise UnreadableModel("All scores of this head are 0, which has no symmetric share.")
    return share


# --- matrices of one head


def rows_of(origin: Origin | None, role: str) -> tuple[Projection, Int[Tensor, "head width"]]:
    """The product that makes all vectors of a role, and the rows of its matrix by head.

    Raises `NoMatrix` where it is not one, or not the same for all tokens.
    """
    what = ROLES[role]
    if origin is None or bool((origin.which < 0).any()):
        raise NoMatrix(f"no matrix was found that makes its {what}")
    found = origin.which.unique()
    if len(found) > 1:
        raise NoMatrix(f"its {what} are put together from the results of {len(found)} matrices")
    rows = origin.column[0, :, 0]
    if not bool((origin.column == rows[None, :, None]).all()):
        raise NoMatrix(f"its {what} are made in another way for other tokens")
    return origin.projections[int(found)], rows


def factor_of(origin: Origin | None, head: int, role: str) -> Factor:
    """One head's part of the matrix of a role; raises `NoMatrix`."""
    projection, rows = rows_of(origin, role)
    assert origin is not None
    if projection.inner is not None:
        raise NoMatrix(f"its {ROLES[role]} are made from a latent vector, by two matrices")
    tokens = origin.row[0, head]
    if not bool((tokens == tokens[:, :1]).all()):
        raise NoMatrix(f"numbers of several tokens meet in its {ROLES[role]}")
    return Factor(
        projection.name,
        projection.weight[rows[head]].double(),
        None if projection.bias is None else projection.bias[rows[head]].double(),
        projection.source[tokens[:, 0]].double(),
    )


def _multiple(made_by: Factor, used: Float[Tensor, "token width"], role: str) -> float:
    """By what number the vectors that were used are those made; raises `NoMatrix` if by none."""
    exact = _exact(used)
    made, used = made_by.made, used.double()
    square = float(made.square().sum())
    times = float((made * used).sum()) / square if square else 1.0
    if float((times * made - used).abs().max()) > exact * float(used.abs().max()):
        raise NoMatrix(
            f"its {ROLES[role]} are more than the matrix makes of x: a norm, or something that is "
            "added, stands in between"
        )
    return 1.0 if abs(times - 1) < exact else times


def _exact(used: Tensor) -> float:
    """How far apart one vector may be that was computed in two ways, relative to the largest."""
    return max(SAME, ROUNDED * torch.finfo(used.dtype).eps)


# --- products of two factors, left · rightᵀ, never made in full


def _spectrum(left: Float64[Tensor, "a width"], right: Float64[Tensor, "b width"]) -> Spectrum:
    """Singular values of R R′ᵀ, with left = Q R and right = Q′ R′: Q and Q′ keep lengths."""
    inner = torch.linalg.qr(left).R @ torch.linalg.qr(right).R.mT
    return Spectrum(
        torch.linalg.svdvals(inner), left.numel() + right.numel(), len(left) * len(right)
    )


def _symmetric_share(
    left: Float64[Tensor, "n width"], right: Float64[Tensor, "m width"], diagonal: bool = True
) -> float:
    """With S = left · rightᵀ: ‖S‖² = Σ (leftᵀ left) ∘ (rightᵀ right), and Σ s_ij s_ji likewise."""
    if len(left) != len(right):
        raise ValueError("Only a square matrix has a symmetric part.")
    crossed = right.mT @ left
    square = ((left.mT @ left) * (right.mT @ right)).sum()
    turned = (crossed * crossed.mT).sum()
    if not diagonal:
        alone = (left * right).sum(-1).square().sum()
        square, turned = square - alone, turned - alone
    return float((1 + turned / square) / 2)
