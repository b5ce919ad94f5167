"""What goes through the modules of a model: seen by forward hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass
class Seen:
    """What went through each module of a model: its first input and its output, first call."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def note(self, path: str, given: tuple, output: Tensor) -> None:
        # DeBERTa projects its position embeddings by the same modules, after the text.
        if path not in self.outputs:
            self.inputs[path] = given[0] if given else None
            self.outputs[path] = output


@contextmanager
def seen_by_hooks(model: nn.Module) -> Iterator[Seen]:
    seen, hooks = Seen(), []
    for path, module in model.named_modules():

        def note(module, given, output, path=path):
            seen.note(path, given, output)

        hooks.append(module.register_forward_hook(note))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Part:
    """One attention module, and what its projections gave."""

    module: nn.Module
    path: str
    seen: Seen

    def heads(self, name: str, count: int) -> Tensor:
        """Output of a projection as (batch, head, token, d)."""
        return split_heads(self.seen.outputs[f"{self.path}.{name}"], count)

    def fused(self, name: str, *order: int) -> Tensor:
        """Output of a fused projection as (batch, token, *order)."""
        return self.seen.outputs[f"{self.path}.{name}"].unflatten(-1, order)


def split_heads(tensor: Tensor, count: int) -> Tensor:
    return tensor.unflatten(-1, (count, -1)).transpose(1, 2)
