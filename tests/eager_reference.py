"""What the eager attention function of a family is given and returns: an independent reference.

The function that a family defines beside its attention classes is replaced, for the test, by
one that notes and calls it. The weights and the output are the function's own; the logits are
written out here from its arguments, as plainly as can be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
import transformers as hf
from torch import Tensor, nn

HIDDEN = -1e4  # what is added to hide a key is at most this


@dataclass(frozen=True)
class Reference:
    """One attention call of a model, as the model itself computed it."""

    part: nn.Module
    query: Tensor  # (batch, head, query, d_k)
    key: Tensor  # (batch, kv_head, key, d_k)
    value: Tensor  # (batch, kv_head, key, d_v)
    logits: Tensor  # (batch, head, query, key), −∞ where hidden
    weights: Tensor
    output: Tensor  # (batch, head, query, d_v)


def eager_reference(model: hf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[Reference]:
    """Every attention call of one run, in order; the model must use eager attention."""
    noted: list[Reference] = []
    with noting_eager_functions(model, noted), torch.no_grad():
        model(**inputs)
    return noted


@contextmanager
def noting_eager_functions(model: hf.PreTrainedModel, noted: list[Reference]) -> Iterator[None]:
    """Note the calls of the eager functions of every modelling module that the model is made of."""
    sources = {sys.modules[type(part).__module__] for part in model.modules()}
    with ExitStack() as stack:
        for source in sources:
            if hasattr(source, "eager_attention_forward"):
                function = _noting(source.eager_attention_forward, noted)
                stack.enter_context(mock.patch.object(source, "eager_attention_forward", function))
        reordered = hf.models.gpt2.modeling_gpt2.GPT2Attention._upcast_and_reordered_attn
        stack.enter_context(
            mock.patch.object(
                hf.models.gpt2.modeling_gpt2.GPT2Attention,
                reordered.__name__,
                _noting(reordered, noted, named=("scaling",)),
            )
        )
        yield


def _noting(original: Callable, noted: list[Reference], named: tuple[str, ...] = ()) -> Callable:
    """`named` arguments are attributes of the module where the function is a method."""

    def noting(part, query, key, value, mask=None, **others):
        output, weights = original(part, query, key, value, mask, **others)
        others |= {name: getattr(part, name) for name in named}
        logits = plain_logits(query, key, mask, **others)
        noted.append(Reference(part, query, key, value, logits, weights, output.transpose(1, 2)))
        return output, weights

    return noting


def plain_logits(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others,
) -> Tensor:
    """Scores, scale, soft cap, position bias and mask, in the order of every family so far."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = torch.einsum("bhqd,bhkd->bhqk", query.float(), key.float())
    logits = logits / query.shape[-1] ** 0.5 if scaling is None else logits * scaling
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if position_bias is not None:
        logits = logits + position_bias
    if mask is not None:
        logits = torch.where(mask > HIDDEN, logits + mask, -torch.inf)
    return logits


def plain_weights(reference: Reference) -> Tensor:
    """Exponentials over their sum, and over that of a learned sink where the module has one."""
    exponentials = (reference.logits - reference.logits.amax(-1, keepdim=True)).exp()
    total = exponentials.sum(-1, keepdim=True)
    sinks = getattr(reference.part, "sinks", None)
    if sinks is not None:
        highest = reference.logits.amax(-1, keepdim=True)
        total = total + (sinks.reshape(1, -1, 1, 1) - highest).exp()
    return exponentials / total
