"""Read the queries, keys and values that a model's attention really used.

`capture` runs a model once under observation (see `interface`) and keeps, for each attention
call, all that entered its softmax: O(layers · n · d) numbers, no n × n weights. Some rows are
recomputed from what was kept and compared with the model's own output; what cannot be
confirmed is refused.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnviz import equation
from attnviz.families import Kind, Tower, kind_of, layer_of, tower_of
from attnviz.interface import Arguments, mask_and_bias, observed_by

ROWS_CHECKED = 8  # query rows per call that are recomputed against the model's own output
TOLERANCE = {
    torch.float32: 1e-4,
    torch.float64: 1e-4,  # recomputed in float32 like the others
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}


class UnreadableModel(Exception):  # noqa: N818 - the word that the design gives it
    """The attention of a model cannot be shown faithfully; the message says why."""


@dataclass(frozen=True)
class AttentionCall:
    """One call of one attention module: everything that entered its softmax.

    `query` and `key` are as the product used them, after rotation, norm and splitting;
    `query_unrotated` and `key_unrotated` are before a rotary position encoding, None where
    nothing was rotated. `mask` is True where a key is visible, None where all are; `bias` was
    added to the logits; `sinks` holds one learned logit per head. Padding is True at positions
    that stand for no token: their rows are hidden. `window` is the number of tokens that a
    local layer sees. `max_error` is the largest absolute difference between the rows
    recomputed from these fields and the model's own output.

    `observed_weights` are the model's own, kept only where queries and keys cannot be had as
    such; `query` and `key` are None then.
    """

    module: str
    layer: int
    tower: Tower
    kind: Kind
    query: Float[Tensor, "batch head query d_k"] | None
    key: Float[Tensor, "batch kv_head key d_k"] | None
    value: Float[Tensor, "batch kv_head key d_v"]
    scale: float
    softcap: float | None
    sinks: Float[Tensor, " head"] | None
    bias: Float[Tensor, "#batch #head query key"] | None
    mask: Bool[Tensor, "#batch #head query key"] | None
    max_error: float
    query_unrotated: Float[Tensor, "batch head query d_k"] | None = None
    key_unrotated: Float[Tensor, "batch kv_head key d_k"] | None = None
    query_padding: Bool[Tensor, "batch query"] | None = None
    key_padding: Bool[Tensor, "batch key"] | None = None
    observed_weights: Float[Tensor, "batch head query key"] | None = None
    window: int | None = None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.query.shape[1]

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads, at most the number of query heads."""
        return self.key.shape[1]

    @property
    def d_k(self) -> int:
        """Width of one query or key vector."""
        return self.query.shape[-1]

    def kv_head(self, head: int) -> int:
        """The key and value head that a query head reads (Ainslie et al. 2023)."""
        return head // (self.heads // self.kv_heads)


@dataclass(frozen=True)
class UnreadLayer:
    """A layer that shows nothing, and the reason in one sentence."""

    layer: int
    tower: Tower
    module: str
    reason: str


@dataclass(frozen=True)
class Capture:
    """All attention calls of one run of a model, in the order of execution.

    `unread` names the layers that have no call here: those without softmax attention, and
    those whose recomputed output did not confirm what was read.
    """

    model_type: str
    calls: tuple[AttentionCall, ...]
    unread: tuple[UnreadLayer, ...] = ()


def capture(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Capture:
    """Run the model once and read every attention call.

    Raises `UnreadableModel` if the model is in training mode, cannot run on the inputs, does
    not route its attention through transformers' attention interface, or if what was read
    does not reproduce the model's own output.
    """
    if model.training:
        raise UnreadableModel(
            "The model is in training mode, where dropout changes every run; "
            "call model.eval() first."
        )
    recorder = _Recorder(model)
    with observed_by(recorder.note):
        _run(model, inputs)
    if not recorder.calls:
        raise UnreadableModel(
            f"{type(model).__name__} computes no attention that attnviz can read yet: "
            "none of its layers calls transformers' attention interface."
        )
    return Capture(model.config.model_type, tuple(recorder.calls))


def recording_difference(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> float:
    """Largest difference between the model's outputs with and without a recorder: 0 if sound."""
    plain = _run(model, inputs)[0]
    with observed_by(_Recorder(model).note):
        recorded = _run(model, inputs)[0]
    return float((plain - recorded).abs().max())


def _run(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Any:
    takes_cache = "use_cache" in inspect.signature(model.forward).parameters
    # A cache may write its keys in place after they were read.
    cache = {"use_cache": False} if takes_cache else {}
    try:
        with torch.no_grad():
            return model(**inputs, **cache)
    except UnreadableModel:
        raise
    except Exception as error:  # a model may stumble over an input in any way
        reason = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
        raise UnreadableModel(
            f"{type(model).__name__} cannot run on this input: {reason}."
        ) from error


@dataclass
class _Recorder:
    """Notes the attention calls of one run; lives as long as that run."""

    model: PreTrainedModel
    calls: list[AttentionCall] = field(default_factory=list)
    counts: Counter[tuple[Tower, Kind]] = field(default_factory=Counter)
    # Layers share their mask: it is read once. What it was read from is kept with it, because
    # an id is only its own as long as the object lives.
    masks: dict[Any, tuple[Any, tuple[Tensor | None, Tensor | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths = {id(module): path for path, module in self.model.named_modules()}

    def note(self, arguments: Arguments, output: Tensor) -> None:
        """Turn one observed call into a verified `AttentionCall`."""
        module = arguments.module
        path = self.paths.get(id(module), type(module).__name__)
        tower, kind = tower_of(self.model, path, module), kind_of(path, module)
        mask, bias = self.mask_and_bias(arguments)
        call = AttentionCall(
            module=path,
            layer=self.layer(path, module, tower, kind),
            tower=tower,
            kind=kind,
            query=arguments.query,
            key=arguments.key,
            value=arguments.value,
            scale=arguments.scale,
            softcap=arguments.softcap,
            sinks=arguments.sinks,
            bias=bias,
            mask=mask,
            max_error=float("inf"),
        )
        self.calls.append(replace(call, max_error=_verified_error(call, output)))

    def layer(self, path: str, module: nn.Module, tower: Tower, kind: Kind) -> int:
        """The layer's own number, or how many came before where one module runs many times."""
        number = layer_of(path, module)
        seen = {call.layer for call in self.calls if (call.tower, call.kind) == (tower, kind)}
        self.counts[tower, kind] += 1
        return self.counts[tower, kind] - 1 if number is None or number in seen else number

    def mask_and_bias(self, arguments: Arguments) -> tuple[Tensor | None, Tensor | None]:
        """Mask and bias of a call, the same objects for all calls that share them."""
        source = (arguments.mask, arguments.position_bias)
        size = (arguments.query.shape[2], arguments.key.shape[2])
        key = (id(source[0]), id(source[1]), arguments.causal, size)
        if key not in self.masks:
            self.masks[key] = (source, mask_and_bias(arguments))
        return self.masks[key][1]


def _verified_error(call: AttentionCall, real: Tensor) -> float:
    """Recompute some rows of every head and return the largest difference to the real output."""
    expected = (call.query.shape[0], call.query.shape[2], call.heads, call.value.shape[-1])
    if tuple(real.shape) != expected:
        raise UnreadableModel(
            f"{call.module} returns attention of shape {tuple(real.shape)}, "
            f"not (batch, query, head, d_v) = {expected}, so it cannot be verified."
        )
    length = call.query.shape[2]
    rows = torch.linspace(0, length - 1, min(length, ROWS_CHECKED)).long()
    computed, seen = _recompute(call, rows)
    difference = (computed - real[:, rows].transpose(1, 2).float()).abs() * seen
    error = float(difference.max())
    tolerance = TOLERANCE[call.query.dtype] * float(real.abs().max())
    if not error <= tolerance:
        raise UnreadableModel(
            f"Attention recomputed from what {call.module} was given differs from the model's "
            f"own output by {error:.2g}, so it would not be the truth about this model."
        )
    return error


def _recompute(call: AttentionCall, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (batch, head, row, d_v) of some query rows, and 1 where such a row sees a key.

    The rows of all heads that share a key and value head are stacked, so that neither keys nor
    values are copied.
    """
    group = call.heads // call.kv_heads

    def stacked(tensor: Tensor) -> Tensor:
        if tensor.shape[1] == 1:
            return tensor.repeat(1, 1, group, 1)
        return tensor.unflatten(1, (call.kv_heads, group)).flatten(2, 3)

    def at_rows(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else stacked(tensor[:, :, rows])

    def unstacked(tensor: Tensor) -> Tensor:
        return tensor.unflatten(2, (group, len(rows))).flatten(1, 2)

    sinks = call.sinks
    if sinks is not None:
        sinks = stacked(sinks.float().reshape(1, -1, 1, 1).expand(-1, -1, len(rows), -1))
    logits = equation.logits(
        equation.scores(stacked(call.query[:, :, rows].float()), call.key.float()),
        call.scale,
        softcap=call.softcap,
        bias=at_rows(call.bias),
        mask=at_rows(call.mask),
    )
    outputs = equation.output(equation.weights(logits, sinks), call.value.float())
    return unstacked(outputs), unstacked(logits.isfinite().any(-1, keepdim=True))
