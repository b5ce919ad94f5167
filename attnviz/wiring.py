"""What leads into an attention call and out of it: W_Q, W_K, W_V, W_O, and the stream.

A call keeps the vectors that entered its softmax. `wiring` runs the model once more and, at the
same call, follows those vectors back to the products with the model's own matrices that made
them, and the call's output on to the one that mixes the heads. No names of families are needed:
where a matrix serves several roles or heads, the numbers that belong to one head are found by
doing to their places what the model did to the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from attnviz.capture import AttentionCall, Capture
from attnviz.follower import Follower
from attnviz.surroundings import AddedPositions, Mixing, Origin, Projection, Stream, Wiring

__all__ = ["AddedPositions", "Mixing", "Origin", "Projection", "Stream", "Wiring", "wiring"]


def wiring(
    model: PreTrainedModel, inputs: Mapping[str, Any], capture: Capture, call: AttentionCall
) -> Wiring:
    """Run the model again and tell what surrounds one of the calls that were captured.

    What another run does not repeat, as where a model draws at random, stays None. Raises
    `UnreadableModel` if the model cannot run on the inputs, `ValueError` for a call of another
    capture.
    """
    of_module = [id(other) for other in capture.calls if other.module == call.module]
    if id(call) not in of_module:
        raise ValueError("This call is not one of that capture.")
    follower = Follower(model, inputs, call, of_module.index(id(call)))
    follower.watch()
    return follower.found
