"""Attention read from a model's own operations, where it does not ask transformers for it.

Seen from the product of a softmax with the values, the steps before it say what entered:
query · key, then scale, soft cap, position terms and mask in the model's own order. What can't
be put in that form keeps the weights alone. Nothing here is believed before it is verified
against the output (see `capture`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from attnviz.interface import HIDDEN_BELOW, split_mask
from attnviz.rotation import before_rotation
from attnviz.trace import FUSED, MOVES, NAMES, PRODUCTS, SOFTMAX, Step, as_value

WEIGHING = PRODUCTS - {"baddbmm"}


class NoForm(Exception):  # noqa: N818 - it says what is not there
    """Steps that are not the equation's; told in a clause."""


@dataclass(frozen=True)
class OwnAttention:
    """One product of weights and values, with batch and head apart.

    `query` and `key` are None where only the weights can be had; `weights` is None where torch's
    fused function kept them to itself.
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor
    scale: float
    softcap: float | None
    bias: Tensor | None
    mask: Tensor | None
    weights: Tensor | None
    output: Tensor
    shared_value: Tensor  # without the copies for heads that share one
    query_unrotated: Tensor | None = None
    key_unrotated: Tensor | None = None


def is_attention(step: Step) -> bool:
    """Whether a step weighs values by a softmax."""
    if step.operation == FUSED:
        return True
    return step.operation in WEIGHING and _softmax_behind(_left(step)) is not None


def own_attention(step: Step, batch: int) -> OwnAttention:
    """What such a step and those before it say.

    `batch` is the batch size of the inputs: many models fold batch and head into one axis.
    Raises `NoForm` where it does not run over batch, head, query and key.
    """
    if step.operation == FUSED:
        return _fused(step)
    softmax = _softmax_behind(_left(step))
    assert softmax is not None
    return _with_logits(_weighted(step, batch), softmax, batch)


def _left(product: Step) -> Any:
    """The left factor; einsum has its letters before it."""
    return product.operands[1 if product.operation == "einsum" else 0]


def _softmax_behind(made: Any) -> Step | None:
    """The softmax whose result this is, moved about at most, or with hidden keys at zero."""
    while isinstance(made, Step) and (made.operation in MOVES or _zeroes(made)):
        made = made.operands[0]
    return made if isinstance(made, Step) and made.operation in SOFTMAX else None


def _zeroes(made: Step) -> bool:
    return made.operation == "masked_fill" and _number(made.operands[2]) == 0


def _fused(step: Step) -> OwnAttention:
    """Attention by torch's own function, whose arguments say everything."""
    given = dict(zip(NAMES[FUSED], step.operands, strict=False))
    query, key, value, mask = map(as_value, [*step.operands, None][:4])
    if query.dim() != 4:
        raise NoForm(f"it works on {query.dim()} axes, not on batch, head, query and d_k")
    size, bias = (query.shape[-2], key.shape[-2]), None
    if given.get("is_causal"):
        mask = torch.ones(1, 1, *size, dtype=torch.bool, device=query.device).tril()
    elif mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
        mask, bias = split_mask(mask.expand(*mask.shape[:2], *size))
    scale = given.get("scale")
    group = _sharing(key, value)
    key_unrotated = before_rotation(given["key"])
    return OwnAttention(
        query=query,
        key=key[:, ::group],
        value=value,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        softcap=None,
        bias=bias,
        mask=mask,
        weights=None,
        output=step.result,
        shared_value=value[:, ::group],
        query_unrotated=before_rotation(given["query"]),
        key_unrotated=None if key_unrotated is None else key_unrotated[:, ::group],
    )


@dataclass(frozen=True)
class Layout:
    """What stands for each number of queries, keys and values (batch, head, token, width)."""

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    output: Tensor


def laid_out(
    step: Step,
    own: OwnAttention,
    batch: int,
    found: Callable[[Any], Tensor | None],
    output: Tensor,
) -> Layout:
    """Put what was `found` for each factor, in its shape, where `own_attention` put that factor.

    `own` is what that says of the step; `output` has the shape of the step's result.
    """
    group = own.value.shape[1] // own.shared_value.shape[1]
    if step.operation == FUSED:
        query, key, value = map(found, step.operands[:3])
    else:
        value, query, key = _placed(step, 1, found, batch), None, None
        output = _apart(_in_order(step, *_factors(step)[:2], output)[2], batch)
    if step.operation != FUSED and own.query is not None:
        softmax = _softmax_behind(_left(step))
        assert softmax is not None
        product = _Logits(batch).follow(softmax.operands[0], 1.0)
        query, key = (_placed(product, side, found, batch) for side in (0, 1))
    key, value = (x if x is None else x[:, ::group] for x in (key, value))
    return Layout(query, key, value, output)


def _placed(
    product: Step, side: int, found: Callable[[Any], Tensor | None], batch: int
) -> Tensor | None:
    """What was found for one factor; that of the keys is turned, so that tokens are rows."""
    stands_for = found(_makers(product)[side])
    if stands_for is None:
        return None
    factors: list[Tensor] = list(_factors(product)[:2])
    factors[side] = stands_for
    placed = _in_order(product, factors[0], factors[1], product.result)[side]
    is_key = side == 1 and _softmax_behind(_left(product)) is None
    return _apart(placed.mT if is_key else placed, batch)


def _weighted(product: Step, batch: int) -> OwnAttention:
    """Weights, values and their product, and nothing yet of what came before."""
    weights, value, output = (_apart(x, batch) for x in _factors(product))
    return OwnAttention(None, None, value, 1.0, None, None, None, weights, output, value)


def _with_logits(known: OwnAttention, softmax: Step, batch: int) -> OwnAttention:
    """Add queries, keys and all else that entered the softmax, if it has that form."""
    try:
        if [*softmax.operands, -1][1] not in (-1, softmax.result.dim() - 1):
            raise NoForm("it has a softmax that does not run over the keys")
        logits = _Logits(batch)
        product = logits.follow(softmax.operands[0], 1.0)
        query, columns, _ = _factors(product)
        makers = _makers(product)
        factors = [scale_within(maker) for maker in makers]
        by_row = 1.0 if logits.factor is None else logits.factor
        key = _apart((columns / factors[1]).mT, batch)
        group = _sharing(key, known.value)
        before, columns_before = _unrotated(product, makers, factors, batch)
        return replace(
            known,
            query=_apart(query / factors[0], batch) * by_row,
            key=key[:, ::group],
            shared_value=known.value[:, ::group],
            scale=logits.scale * factors[0] * factors[1],
            softcap=logits.softcap,
            bias=logits.bias,
            mask=None if logits.hidden is None else ~logits.hidden,
            query_unrotated=before,
            key_unrotated=None if columns_before is None else columns_before[:, ::group],
        )
    except NoForm:
        return known


def _unrotated(
    product: Step, makers: list[Any], factors: list[float], batch: int
) -> tuple[Tensor | None, Tensor | None]:
    """Query and key before rotation, in the axes of those after it."""
    query, columns = map(before_rotation, makers)
    if query is None or columns is None or product.operation == "einsum":
        return None, None
    return _apart(query / factors[0], batch), _apart((columns / factors[1]).mT, batch)


@dataclass
class _Logits:
    """What is met on the way from the softmax back to the product of queries and keys."""

    batch: int
    scale: float = 1.0
    softcap: float | None = None
    factor: Tensor | None = None  # a multiplier by head or by query
    bias: Tensor | None = None
    hidden: Tensor | None = None

    def follow(self, made: Any, outer: float) -> Step:
        """Go back one step; `outer` is what its result will still be multiplied by."""
        if not isinstance(made, Step):
            raise NoForm("it has logits that are no product of queries and keys")
        if made.operation in PRODUCTS:
            return self.arrive(made, outer)
        if made.operation in MOVES or made.operation in ("maximum", "clamp"):
            return self.follow(made.operands[0], outer)
        go_back = getattr(self, f"_{made.operation}", None)
        if go_back is None:
            raise NoForm(f"it has logits that went through {made.operation}")
        return go_back(made, outer)

    def arrive(self, product: Step, outer: float) -> Step:
        """End at the product, which `baddbmm` adds to a bias and multiplies."""
        if product.operation == "baddbmm":
            if beta := product.options.get("beta", 1):  # 0: memory that was never written
                self.add_bias(product.operands[0], outer * beta, 3)
            outer *= product.options.get("alpha", 1)
        self.scale = outer
        return product

    def add_bias(self, made: Any, outer: float, axes: int) -> None:
        """Note a term that was added to logits of that many axes."""
        term = as_value(made)
        if not isinstance(term, Tensor):
            return  # one number for all keys: the softmax does not see it
        if self.softcap is not None:
            raise NoForm("it adds a position term before its soft cap")
        term = term[(None,) * (axes - term.dim())]
        mask, rest = split_mask(_apart(term * outer, self.batch))
        self.hide(~mask)
        if rest is not None:
            rest = rest if self.factor is None else rest * self.factor
            self.bias = rest if self.bias is None else self.bias + rest

    def hide(self, hidden: Tensor) -> None:
        if bool(hidden.any()):
            self.hidden = hidden if self.hidden is None else self.hidden | hidden

    def _add(self, made: Step, outer: float) -> Step:
        left, right = made.operands[:2]
        factors = (outer, outer * made.options.get("alpha", 1))  # alpha multiplies the second
        if not _leads_to_product(left, made.result.numel()):
            left, right, factors = right, left, factors[::-1]
        self.add_bias(right, factors[1], made.result.dim())
        return self.follow(left, factors[0])

    def _sub(self, made: Step, outer: float) -> Step:
        left, right = made.operands[:2]
        self.add_bias(right, -outer * made.options.get("alpha", 1), made.result.dim())
        return self.follow(left, outer)

    def _mul(self, made: Step, outer: float) -> Step:
        left, right = made.operands[:2]
        if not _leads_to_product(left, made.result.numel()):
            left, right = right, left
        number = _number(right)
        if number is not None:
            return self.follow(left, outer * number)
        by_row = as_value(right)
        if by_row.shape[-1] != 1 or self.softcap is not None:
            raise NoForm("it multiplies its logits key by key")
        by_row = _apart(by_row[(None,) * (made.result.dim() - by_row.dim())], self.batch)
        self.factor = by_row if self.factor is None else self.factor * by_row
        return self.follow(left, outer)

    def _div(self, made: Step, outer: float) -> Step:
        number = _number(made.operands[1])
        if not number:
            raise NoForm("it divides its logits by more than a number")
        return self.follow(made.operands[0], outer / number)

    def _neg(self, made: Step, outer: float) -> Step:
        return self.follow(made.operands[0], -outer)

    def _tanh(self, made: Step, outer: float) -> Step:
        if self.softcap is not None or self.factor is not None:
            raise NoForm("it caps its logits twice")
        self.softcap = outer
        return self.follow(made.operands[0], outer)

    def _masked_fill(self, made: Step, outer: float) -> Step:
        source, hidden, filler = made.operands[:3]
        return self._replaced(made, source, as_value(hidden), filler, outer)

    def _where(self, made: Step, outer: float) -> Step:
        visible, source, filler = made.operands[:3]
        hidden = ~as_value(visible)
        if not _leads_to_product(source, made.result.numel()):
            source, filler, hidden = filler, source, ~hidden
        return self._replaced(made, source, hidden, filler, outer)

    def _replaced(self, made: Step, source: Any, hidden: Tensor, filler: Any, outer: float) -> Step:
        number = _number(filler)
        if number is None or number * outer > HIDDEN_BELOW:
            raise NoForm("it replaces some of its logits")
        frame = hidden[(None,) * (made.result.dim() - hidden.dim())]
        self.hide(_apart(frame.bool(), self.batch))
        return self.follow(source, outer)


def _leads_to_product(made: Any, size: int) -> bool:
    """Whether a product of that many numbers is behind this, changed number by number."""
    while isinstance(made, Step) and made.operation not in PRODUCTS:
        if made.operation in ("add", "mul", "where"):
            return any(_leads_to_product(operand, size) for operand in made.operands)
        made = made.operands[0]
    return isinstance(made, Step) and made.result.numel() == size


def _number(operand: Any) -> float | None:
    """The number that an operand is, be it one of Python or a tensor of one element."""
    value = as_value(operand)
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    return float(value) if isinstance(value, (int, float)) else None


def scale_within(made: Any) -> float:
    """The number by which a query or key was multiplied on its way to the product."""
    while isinstance(made, Step) and made.operation in MOVES:
        made = made.operands[0]
    if isinstance(made, Step) and made.operation in ("mul", "div"):
        number = _number(made.operands[1])
        if number and isfinite(number):
            return number if made.operation == "mul" else 1 / number
    return 1.0


# --- axes


def _makers(product: Step) -> list[Any]:
    """What a product multiplies: the steps that made it, or tensors."""
    return [x for x in product.operands if isinstance(x, (Step, Tensor))][-2:]


def _factors(product: Step) -> tuple[Tensor, Tensor, Tensor]:
    """Both factors and the product as (…, row, inner), (…, inner, column), (…, row, column)."""
    left, right = map(as_value, _makers(product))
    return _in_order(product, left, right, product.result)


def _in_order(
    product: Step, left: Tensor, right: Tensor, result: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors of the shapes of both factors and of the product, in the order of `_factors`."""
    if product.operation != "einsum":
        return left, right, result
    return _by_letters(product.operands[0], left, right, result)


def _by_letters(
    letters: str, left: Tensor, right: Tensor, result: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of an einsum, put in the order of a matrix product."""
    inputs, arrow, out = letters.replace(" ", "").partition("->")
    a, comma, b = inputs.partition(",")
    inner = [x for x in a if x in b and x not in out]
    rows = [x for x in a if x not in b]
    columns = [x for x in b if x not in a]
    shared = [x for x in out if x in a and x in b]
    if not (arrow and comma) or [len(inner), len(rows), len(columns)] != [1, 1, 1]:
        raise NoForm(f"it multiplies as {letters}")

    def ordered(tensor: Tensor, have: str, want: list[str]) -> Tensor:
        return tensor.permute([have.index(x) for x in want])

    return (
        ordered(left, a, [*shared, *rows, *inner]),
        ordered(right, b, [*shared, *inner, *columns]),
        ordered(result, out, [*shared, *rows, *columns]),
    )


def _apart(tensor: Tensor, batch: int) -> Tensor:
    """A tensor with batch and head as axes of their own, where they were folded into one."""
    if tensor.dim() < 3:
        return tensor[(None,) * (4 - tensor.dim())]
    if tensor.dim() == 3:
        return tensor[None] if tensor.shape[0] == 1 else tensor.unflatten(0, (batch, -1))
    if tensor.dim() != 4:
        raise NoForm(f"it works on {tensor.dim()} axes, not on batch, head, query and key")
    return tensor


def _sharing(key: Tensor, value: Tensor) -> int:
    """How many heads in a row were given copies of the same keys and values."""
    heads = key.shape[1]
    sizes = (group for group in range(heads, 1, -1) if heads % group == 0)
    return next((g for g in sizes if _is_repeated(key, g) and _is_repeated(value, g)), 1)


def _is_repeated(tensor: Tensor, group: int) -> bool:
    groups = tensor.unflatten(1, (-1, group))
    # One row first: most often it says no already.
    return all(torch.equal(x, x[:, :, :1].expand_as(x)) for x in (groups[..., :1, :], groups))
