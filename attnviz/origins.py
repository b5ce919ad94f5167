"""Where the queries, keys and values of every call come from, told by one run for all calls.

`wiring` follows one call and all that surrounds it, in a run of its own. Where only what leads
into the calls is asked for, one run tells it of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from attnviz.capture import AttentionCall, Capture
from attnviz.follower import Follower
from attnviz.surroundings import Wiring
from attnviz.trace import Step


def origins(model: PreTrainedModel, inputs: Mapping[str, Any], read: Capture) -> tuple[Wiring, ...]:
    """What leads into each call of a capture; nothing else of its surroundings is known.

    Raises `UnreadableModel` if the model cannot run on the inputs.
    """
    every = _EveryCall(model, inputs, read)
    every.watch()
    return tuple(every.wirings.get(id(call), Wiring()) for call in read.calls)


class _EveryCall(Follower):
    """Follows each call back when its turn comes, and none on to the stream."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Any], read: Capture) -> None:
        super().__init__(model, inputs, read.calls[0], 0)
        self.wirings: dict[int, Wiring] = {}
        self.ahead: dict[str, list[AttentionCall]] = {}
        for call in read.calls:
            self.ahead.setdefault(call.module, []).append(call)

    def _is_it(self, module: nn.Module) -> bool:
        """Whether a call of this module is still to come; it is compared with the next one."""
        ahead = self.ahead.get(self.places.paths.get(id(module), ""))
        if not ahead:
            self._forget()
            return False
        self.call = ahead[0]
        return True

    def _take(
        self, trail: Any, query: Tensor | None, key: Tensor | None, value: Tensor | None
    ) -> None:
        super()._take(trail, query, key, value)
        self.wirings[id(self.call)] = self.found
        self.ahead[self.call.module].pop(0)
        self.xs.clear()

    def _await(self, output: Tensor, addresses: Tensor) -> None:
        """A module may use the same vectors for several calls; what led to its last is let go."""
        if not self.ahead[self.call.module]:
            self._forget()

    def _forget(self) -> None:
        self.trace.forget()
        self.names.clear()
        self.sources.clear()

    def _ask(self, attend: Callable[[Tensor], Tensor], value: Tensor) -> None:
        """No weights are needed."""

    def _added(self, step: Step) -> None:
        """Neither the stream nor vectors of places are needed."""
