"""Try, at the start, what attnviz relies on inside transformers, on the bundled model."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from attnviz import interface
from attnviz.capture import UnreadableModel, capture
from attnviz.trace import WIDEST

IDS = (0, 11, 7, 5, 7)  # any tokens will do


def self_test(bundled: PreTrainedModel) -> str | None:
    """Say in a sentence what is wrong with observing transformers, None if nothing is.

    Where the attention interface cannot be observed any more, attnviz follows the operations
    of every model from then on, as it does for those with attention of their own.
    """
    if _reads_at("interface", bundled):
        return None
    interface.give_up()
    way = (
        f"models are read from their own operations instead, with texts of up to {WIDEST} tokens"
        if _reads_at("operations", bundled)
        else "no model can be read"
    )
    return (
        "The installed transformers does not show its attention functions in the way that attnviz "
        f"was written for, so {way}; install the versions of requirements.txt."
    )


def _reads_at(where: str, model: PreTrainedModel) -> bool:
    """Whether every layer of the model is read there, and confirmed."""
    try:
        calls = capture(model, {"input_ids": torch.tensor([IDS])}).calls
    except UnreadableModel:
        return False
    return len(calls) == model.config.num_hidden_layers and {c.read_at for c in calls} == {where}
