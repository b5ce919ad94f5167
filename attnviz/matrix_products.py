"""Products with a model's own matrices among the operations of a run, whatever their form."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.trace import MOVES, Step, as_value


@dataclass(frozen=True)
class MatrixProduct:
    """A step that multiplies `data` by a matrix: result[row] = weight · data[row] + bias.

    `by_rows` puts a tensor of the shape of the data in the order (row, d_in); `weight` is
    (d_out, d_in). `place` is row · d_out + column for each number of the step's own result.
    """

    data: Any
    by_rows: Callable[[Tensor], Tensor]
    weight: Tensor
    bias: Tensor | None
    place: Tensor


def matrix_product(made: Any) -> MatrixProduct | None:
    """A step as a product with a matrix of the model, None where it is none."""
    form = _FORMS.get(made.operation) if isinstance(made, Step) and not made.in_place else None
    with suppress(LookupError, RuntimeError, ValueError, TypeError):
        return form(made) if form else None
    return None


def counted(tensor: Tensor) -> Tensor:
    """The place of each number of a tensor, counted through, in its shape."""
    return torch.arange(tensor.numel()).view(tensor.shape)


def whole(operand: Any) -> Any:
    """What an operand was cut out of or moved from."""
    while isinstance(operand, Step) and operand.operation in MOVES:
        operand = operand.operands[0]
    base = getattr(operand, "_base", None)
    return operand if base is None else base


def _linear(step: Step) -> MatrixProduct | None:
    data, weight, bias = [*step.operands, None][:3]
    return _over_last(step, data, _parameter(weight), _parameter(bias))


def _addmm(step: Step) -> MatrixProduct | None:
    bias, data, weight = step.operands[:3]
    plain = step.options.get("beta", 1) == step.options.get("alpha", 1) == 1
    return _over_last(step, data, _turned(weight), _parameter(bias)) if plain else None


def _matmul(step: Step) -> MatrixProduct | None:
    return _over_last(step, step.operands[0], _turned(step.operands[1]), None)


def _add(step: Step) -> MatrixProduct | None:
    """A bias that is added to a product by itself."""
    product, bias = matrix_product(step.operands[0]), _parameter(step.operands[1])
    if product is None or product.bias is not None or bias is None:
        return None
    return replace(product, bias=bias) if bias.shape == step.result.shape[-1:] else None


def _over_last(
    step: Step, data: Any, weight: Tensor | None, bias: Tensor | None
) -> MatrixProduct | None:
    """A product over the last axis of the data."""
    if weight is None or weight.dim() != 2:
        return None
    return MatrixProduct(data, lambda x: x.flatten(0, -2), weight, bias, counted(step.result))


def _conv1d(step: Step) -> MatrixProduct | None:
    """A convolution over one token is a product; its channels stand before the tokens."""
    data, weight, bias = [*step.operands, None][:3]
    weight, size = _parameter(weight), as_value(data).shape
    if weight is None or len(size) != 3 or tuple(weight.shape[1:]) != (size[1], 1):
        return None
    if step.result.shape[2] != size[2]:
        return None
    return MatrixProduct(
        data,
        lambda x: x.mT.flatten(0, 1),
        weight[..., 0],
        _parameter(bias),
        counted(step.result.mT).mT,
    )


def _einsum(step: Step) -> MatrixProduct | None:
    """Letters of the data alone are rows, letters of the matrix alone are columns."""
    letters, data, factor = step.operands[:3]
    weight = _parameter(factor)
    inputs, _, out = letters.replace(" ", "").partition("->")
    a, _, b = inputs.partition(",")
    rows, columns = [x for x in a if x not in b], [x for x in b if x not in a]
    inner = [x for x in a if x in b]
    if weight is None or not inner or sorted(out) != sorted(rows + columns):
        return None
    order = [a.index(x) for x in rows + inner]
    matrix = weight.permute([b.index(x) for x in columns + inner])
    result = step.result.permute([out.index(x) for x in rows + columns])
    return MatrixProduct(
        data,
        lambda x: x.permute(order).flatten(len(rows)).flatten(0, -2),
        matrix.flatten(len(columns)).flatten(0, -2),
        None,
        counted(result).permute([(rows + columns).index(x) for x in out]),
    )


_FORMS: dict[str, Callable[[Step], MatrixProduct | None]] = {
    "linear": _linear,
    "addmm": _addmm,
    "matmul": _matmul,
    "mm": _matmul,
    "conv1d": _conv1d,
    "einsum": _einsum,
    "add": _add,
}


def _parameter(operand: Any) -> Tensor | None:
    """A matrix or a bias of the model, be it a part of a larger one or in another precision."""
    return as_value(operand) if isinstance(whole(operand), nn.Parameter) else None


def _turned(operand: Any) -> Tensor | None:
    weight = _parameter(operand)
    return None if weight is None else weight.mT
