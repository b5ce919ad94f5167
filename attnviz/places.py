"""The place of every attention call in its model, and the layers that no call came from."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType

from torch import nn
from transformers import PreTrainedModel

from attnviz.attention_call import AttentionCall, UnreadLayer
from attnviz.families import (
    Kind,
    Tower,
    any_below,
    kind_of,
    layer_of,
    layer_stacks,
    numbers_in,
    stated_layer,
    tower_of,
    why_no_attention,
)


@dataclass(frozen=True)
class Place:
    """Where a call happened."""

    module: str
    layer: int
    tower: Tower
    kind: Kind


@dataclass
class Places:
    """Gives each call of a run its place; lives as long as that run."""

    model: PreTrainedModel
    taken: dict[tuple[Tower, Kind], dict[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths = {id(module): path for path, module in self.model.named_modules()}

    def place(self, module: nn.Module) -> Place:
        """The place of a call that this module makes now.

        A layer's number is what the module says or its path tells. Counted are the runs of a
        module that is all layers in one, and layers that are numbered anew in each stage.
        """
        path = self.paths.get(id(module)) or type(module).__name__
        tower, kind = tower_of(self.model, path, module), kind_of(path, module)
        number, taken = layer_of(path, module), self.taken.setdefault((tower, kind), {})
        counted = stated_layer(module) is None and number in taken
        if number is None or (counted and self._is_another(path, taken[number])):
            number = max(taken, default=-1) + 1
        taken[number] = path
        return Place(path, number, tower, kind)

    def _is_another(self, path: str, before: str) -> bool:
        """Whether a call is of another layer than the one that had its number before."""
        if path != before:
            return numbers_in(path) != numbers_in(before)
        stack = re.split(r"\.\d+(?=\.|$)", path)[0]
        return len(list(self.model.get_submodule(stack).children())) == 1

    def at_work(self) -> nn.Module | None:
        """The innermost module whose code is running in this thread.

        None if it is none of this model: a hook may run another one.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                return owner if self.holds(owner) else None
            frame = frame.f_back
        return None

    def holds(self, module: nn.Module) -> bool:
        """Whether a module is a part of this model."""
        return id(module) in self.paths

    def unread(
        self,
        calls: Iterable[AttentionCall],
        failures: dict[str, tuple[Place, str]],
        used: Collection[int],
    ) -> tuple[UnreadLayer, ...]:
        """Layers without a call, each with its reason, in the order of the model.

        `failures` holds, by module, a clause that says why its calls cannot be shown; `used`
        the ids of the parameters that took part in the run.
        Only stacks in which something is known are looked at: a convolution before the first
        layer is no layer without attention.
        """
        told = [
            UnreadLayer(place.layer, place.tower, place.module, _sentence(clause))
            for place, clause in failures.values()
        ]
        towers = {call.module: call.tower for call in calls}
        towers |= {layer.module: layer.tower for layer in told}
        silent = [
            UnreadLayer(
                number,
                self._tower(stack, towers),
                path,
                _sentence(why_no_attention(layer, _took_part(layer, used))),
            )
            for stack, layers in layer_stacks(self.model, towers)
            for number, layer in enumerate(layers)
            if not any_below(path := self.paths.get(id(layer), f"{stack}.{number}"), towers)
        ]
        return tuple(sorted([*told, *silent], key=lambda layer: (layer.tower, layer.layer)))

    def _tower(self, stack: str, towers: Mapping[str, Tower]) -> Tower:
        """The tower of the calls in the same stack, else what its path says."""
        beside = (tower for path, tower in towers.items() if path.startswith(f"{stack}."))
        return next(beside, None) or tower_of(self.model, stack, self.model.get_submodule(stack))


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _took_part(layer: nn.Module, used: Collection[int]) -> bool:
    """Whether a parameter did; one on the meta device was swapped for another in the run."""
    return any(p.is_meta or id(p) in used for p in layer.parameters())
