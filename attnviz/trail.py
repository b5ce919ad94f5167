"""Follow numbers back to where they were made: which number of an earlier tensor each one is.

What a model does between a projection and its attention moves numbers about (heads are split,
parts cut and joined) or changes them where they stand (a norm, a rotation, a factor). Doing the
same moves to the places of the numbers tells where each came from, whatever the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnviz.rotation import unturned
from attnviz.trace import JOINS, MOVES, PRECISIONS, Step, as_value

# What only looks like a move, and what changes numbers where they stand.
RESTS = {*PRECISIONS, "dropout", "view_as_complex", "view_as_real"}
FACTORS = frozenset({"mul", "div", "rms_norm"})  # each number times another one
CHANGES = FACTORS | {"layer_norm", "normalize", "add", "sub", "neg", "tanh", "clamp"}
CHANGES |= {"masked_fill", "where"}


@dataclass
class Trail:
    """Leads back to roots; `size` numbers of theirs have got an address, counted through.

    `through` names the operations that may have changed the numbers on the way.
    """

    is_root: Callable[[Any], bool]
    through: Collection[str] = CHANGES
    roots: list[tuple[Any, int]] = field(default_factory=list)
    size: int = 0

    def follow(self, made: Any) -> Tensor | None:
        """The address of each number of a tensor, −1 where it has none; None if none has one."""
        if self.is_root(made):
            return self._addresses(made)
        if not isinstance(made, Step) or not made.operands:
            return None
        if made.operation in JOINS:
            return self._joined(made)
        if made.operation in RESTS:
            return self.follow(made.operands[0])
        if made.operation in MOVES or made.operation in ("roll", "broadcast_to"):
            found = self.follow(made.operands[0])
            return None if found is None else made.again(found)
        if made.operation == "pad":  # by zeros, which here mean no address
            found = self.follow(made.operands[0])
            return None if found is None else made.again(found + 1) - 1
        return self._combined(made) if made.operation in self.through else None

    def root_of(self, addresses: Tensor) -> tuple[Tensor, Tensor]:
        """Which root each address belongs to, and the place of the number in it; −1 for none."""
        bases = torch.tensor([base for _, base in self.roots])
        which = torch.searchsorted(bases, addresses.contiguous(), right=True) - 1
        return which, torch.where(which < 0, -1, addresses - bases[which.clamp(min=0)])

    def _addresses(self, root: Any) -> Tensor:
        tensor = as_value(root)
        base = next((base for other, base in self.roots if as_value(other) is tensor), None)
        if base is None:
            base = self.size
            self.roots.append((root, base))
            self.size += tensor.numel()
        return torch.arange(base, base + tensor.numel()).view(tensor.shape)

    def _joined(self, made: Step) -> Tensor | None:
        parts = made.operands[0]
        found = [self.follow(part) for part in parts]
        if all(addresses is None for addresses in found):
            return None
        filled = [
            torch.full(as_value(part).shape, -1) if addresses is None else addresses
            for part, addresses in zip(parts, found, strict=True)
        ]
        return made.again(type(parts)(filled))

    def _combined(self, made: Step) -> Tensor | None:
        """The addresses of the operand whose numbers stand where those of the result do."""
        operands = made.operands[:3]
        if made.operation in ("add", "sub") and (data := unturned(made)) is not None:
            operands = [data, *operands]
        result = torch.view_as_real(made.result) if made.result.is_complex() else made.result
        followed = (self.follow(operand) for operand in operands)
        return next((f for f in followed if f is not None and f.shape == result.shape), None)
