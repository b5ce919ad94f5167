"""What one model did with what it was given: a capture with the tokens that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.capture import AttentionCall, Capture, UnreadLayer
    from attnviz.inputs import Inputs
    from attnviz.tokens import Tokens


@dataclass(frozen=True)
class Reading:
    """What one model did with what it was given.

    A part is a group of attention calls that belong together, one a layer: those of a tower
    among its own tokens, or "cross", from the target to the source.
    """

    title: str
    warning: str | None
    inputs: Inputs
    capture: Capture
    recording_difference: float

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts in which something was read, in the order of execution."""
        return tuple(dict.fromkeys(part_of(call) for call in self.capture.calls))

    def calls(self, part: str) -> dict[int, AttentionCall]:
        """The calls of a part by the true number of their layer."""
        calls = [call for call in self.capture.calls if part_of(call) == part]
        return {call.layer: call for call in sorted(calls, key=lambda call: call.layer)}

    def unread(self, part: str) -> dict[int, UnreadLayer]:
        """The layers of a part that show nothing, by their true number."""
        towers = {call.tower for call in self.calls(part).values()}
        alone = len(self.parts) == 1
        return {
            layer.layer: layer for layer in self.capture.unread if alone or layer.tower in towers
        }

    def queries(self, call: AttentionCall) -> Tokens:
        """The tokens that look in a call."""
        return self.inputs.queries(call.tower, call.n[0])

    def keys(self, call: AttentionCall) -> Tokens:
        """The tokens looked at in a call."""
        return self.inputs.keys(call.tower, call.kind, call.n[1])

    def of_a_text(self, call: AttentionCall) -> bool:
        """Whether queries and keys are the same words: only then distances mean something."""
        return call.kind == "self" and (self.inputs.picture is None or call.tower != "vision")


def part_of(call: AttentionCall) -> str:
    """The part that a call belongs to."""
    return "cross" if call.kind == "cross" else call.tower
