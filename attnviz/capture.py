"""Read the queries, keys and values that a model's attention really used.

`capture` runs a model once under observation and keeps, for each attention call, all that
entered its softmax: O(layers · n · d) numbers, no n × n weights. Calls are seen where models
ask transformers for an attention function (`interface`), else in the model's own operations
(`trace`, `operations`). Some rows are recomputed from what was kept and compared with the
model's own output; what cannot be confirmed is not shown, and the capture says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnviz.attention_call import AttentionCall, Capture, UnreadableModel, UnreadLayer
from attnviz.recorder import Recorder, run
from attnviz.verification import TOLERANCE

__all__ = [
    "TOLERANCE",
    "AttentionCall",
    "Capture",
    "UnreadLayer",
    "UnreadableModel",
    "capture",
    "recording_difference",
]


def capture(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Capture:
    """Run the model once and read every attention call.

    Layers whose attention cannot be read or confirmed are named in `Capture.unread`. Raises
    `UnreadableModel` if the model is in training mode, cannot run on the inputs, or has no
    layer that can be read.
    """
    if model.training:
        raise UnreadableModel(
            "The model is in training mode, where dropout changes every run; "
            "call model.eval() first."
        )
    recorder = Recorder(model, inputs)
    recorder.watch()
    calls = recorder.readable()
    if not calls:
        raise UnreadableModel(recorder.why_nothing())
    unread = recorder.places.unread(calls, recorder.failures, recorder.used)
    return Capture(model.config.model_type, calls, unread)


def recording_difference(model: PreTrainedModel, inputs: Mapping[str, Any]) -> float:
    """Largest difference between the model's outputs with and without a recorder: 0 if sound."""
    dice = torch.get_rng_state()
    plain = run(model, inputs)
    torch.set_rng_state(dice)  # for models that draw at random what they look at
    recorded = Recorder(model, inputs).watch()
    pairs = zip(_numbers(plain), _numbers(recorded), strict=True)
    return max(_distance(one, other) for one, other in pairs)


def _distance(one: Tensor, other: Tensor) -> float:
    """Largest difference; what is infinite or no number in both alike does not differ."""
    same = (one == other) | (one.isnan() & other.isnan())
    return float((one - other).abs().masked_fill(same, 0.0).max())


def _numbers(outputs: Any) -> Iterator[Tensor]:
    """All tensors of real numbers in a model's output, however deep."""
    if isinstance(outputs, Tensor) and outputs.is_floating_point():
        yield outputs
    elif isinstance(outputs, (tuple, list, dict)):
        for part in outputs.values() if isinstance(outputs, dict) else outputs:
            yield from _numbers(part)
