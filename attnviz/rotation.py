"""Queries and keys before a rotary position encoding (Su et al. 2021, RoFormer).

A rotation is x · cos + turned(x) · sin, whichever way a family pairs the dimensions, or a
product of complex numbers. Following a query back to such a sum gives x. That it was a rotation
is checked by what rotations do: they keep the length of every vector, up to one common factor
(YaRN stretches all alike).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnviz.trace import JOINS, MOVES, PRECISIONS, Step, as_value

# Relative, for tables of cosines that were rounded to bfloat16, even if they are float32 now.
SAME_LENGTH = 1e-2
SAME_LENGTH_IN_BFLOAT16 = 3e-2


@dataclass(frozen=True)
class _Found:
    """A tensor before rotation; `checked` once the lengths were compared."""

    tensor: Tensor
    checked: bool


def before_rotation(made: Step | Tensor) -> Tensor | None:
    """What a query or key was before it was rotated, None where no rotation is found.

    Whatever the model did after the rotation (a norm, a scale, a change of shape) is done to
    the unrotated tensor too.
    """
    found = _follow(made)
    return found.tensor if found and found.checked else None


def _follow(made: Any) -> _Found | None:
    if not isinstance(made, Step) or not made.operands:
        return None
    if made.operation in JOINS:
        return _joined(made)
    if made.operation == "dropout":
        rests = torch.equal(as_value(made.operands[0]), made.result)
        return _follow(made.operands[0]) if rests else None
    if made.operation in MOVES:
        return _carried(made, made.operands[0])
    if made.operation in ("add", "sub"):
        return _sum(made) or _carried(made, made.operands[0])
    if made.operation in ("mul", "div"):
        return _complex_product(made) or _scaled(made)
    return None


def _carried(step: Step, source: Any) -> _Found | None:
    """Do to the unrotated tensor what was done to the rotated one."""
    found = _follow(source)
    return found and _Found(step.again(found.tensor), found.checked)


def _scaled(step: Step) -> _Found | None:
    left, right = step.operands[:2]
    if found := _follow(left):
        return _Found(step.again(found.tensor), found.checked)
    if step.operation == "mul" and (found := _follow(right)):
        return _Found(as_value(left) * found.tensor, found.checked)
    return None


def _sum(step: Step) -> _Found | None:
    """The x of a rotation's sum.

    Where a half of x stands for the whole, it is only known when the halves are joined.
    """
    left, right = _summed(step)
    if left is None:
        return None
    source = as_value(left)
    return _Found(source, _is_turned(right, left) and _same_lengths(source, step.result))


def unturned(step: Step) -> Any:
    """What stands in a rotation's sum as it was before, None where a step is no such sum."""
    return _summed(step)[0]


def _summed(step: Step) -> tuple[Any, Any]:
    """The x of x · cos ± turned(x) · sin, whatever their order, and turned(x)."""
    sides = step.operands[:2]
    if not all(isinstance(side, Step) and side.operation == "mul" for side in sides):
        return None, None
    left, right = map(_data, sides)
    if left is None or right is None:
        return None, None
    return (right, left) if _is_turned(left, right) else (left, right)


def _is_turned(made: Any, source: Any) -> bool:
    """Whether a tensor is another one moved about, in part with the opposite sign."""
    if isinstance(made, (list, tuple)):
        return any(_is_turned(part, source) for part in made)
    if not isinstance(made, Step) or made.operation not in MOVES | JOINS | {"neg"}:
        return False
    origin = made.operands[0]
    return _as_stored(origin) is _as_stored(source) or _is_turned(origin, source)


def _as_stored(made: Any) -> Any:
    """A tensor before it was only put into another precision."""
    while isinstance(made, Step) and made.operation in PRECISIONS:
        made = made.operands[0]
    return as_value(made)


def _complex_product(step: Step) -> _Found | None:
    if not step.result.is_complex():
        return None
    source = as_value(_data(step))
    return None if source is None else _Found(source, _same_lengths(source, step.result))


def _data(product: Step) -> Any:
    """The factor that is no table of angles: the larger one, the first of equals.

    None where there is none, or where the product has overwritten it.
    """
    factors = [f for f in product.operands[:2] if isinstance(as_value(f), Tensor)]
    factors = [factor for factor in factors if as_value(factor).dim() > 2]
    if product.in_place or not factors:
        return None
    return max(factors, key=lambda factor: as_value(factor).numel())


def _joined(step: Step) -> _Found | None:
    """Halves or even and odd dimensions rotated apart, or a part that was not rotated at all."""
    parts = step.operands[0]
    found = [_follow(part) for part in parts]
    axis = [*step.operands, step.options.get("dim", 0)][1]
    across = step.operation == "stack" or axis in (-1, step.result.dim() - 1)
    # Parts that were not rotated are dimensions left alone; tokens are all rotated or none, but
    # for the nothing that an empty cache puts before them.
    of_tokens = [f for f, part in zip(found, parts, strict=True) if as_value(part).numel()]
    if not (any(found) if across else of_tokens and all(of_tokens)):
        return None
    tensors = [f.tensor if f else as_value(p) for f, p in zip(found, parts, strict=True)]
    whole = step.again(type(parts)(tensors))
    checked = all(f.checked for f in found if f)
    return _Found(whole, checked or _same_lengths(whole, step.result))


def _same_lengths(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    before, after = (x.norm(dim=-1).double() for x in (one, other))
    factor = after.norm() / before.norm()
    tolerance = SAME_LENGTH_IN_BFLOAT16 if one.dtype == torch.bfloat16 else SAME_LENGTH
    return bool(((after - factor * before).abs() <= tolerance * after.max()).all())
