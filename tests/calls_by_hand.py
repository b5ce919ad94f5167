"""Attention calls from tensors of one's own; what is not given, the model does not do."""

from __future__ import annotations

from attnviz.attention_call import AttentionCall


def plain_call(**given) -> AttentionCall:
    """`query`, `key`, `value` and `scale` must be given."""
    fields = {
        "module": "layers.0.attention",
        "layer": 0,
        "tower": "decoder",
        "kind": "self",
        "softcap": None,
        "sinks": None,
        "bias": None,
        "mask": None,
        "max_error": 0.0,
    }
    return AttentionCall(**(fields | given))
