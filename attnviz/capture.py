"""Read the queries, keys and values that a model's attention really used.

transformers asks `AttentionInterface.get_interface` which function shall compute attention.
`capture` observes the function that the model was about to call anyway: while a recorder is
held in this thread's context, the function comes back wrapped, notes its arguments, and
returns its own result untouched. Neither the model's configuration, weights nor masks change,
and other threads that use the same model see nothing.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import AttentionInterface

from attnviz import equation
from attnviz.families import Kind, Tower, kind_of, layer_of, tower_of

ROWS_CHECKED = 8  # query rows per call that are recomputed against the model's own output
HIDDEN_BELOW = -1e4  # an additive mask hides a key with at most this; a bias stays above it
TOLERANCE = {
    torch.float32: 1e-4,
    torch.float64: 1e-9,
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}


class UnreadableModel(Exception):  # noqa: N818 - the word that the design gives it
    """The attention of a model cannot be shown faithfully; the message says why."""


@dataclass(frozen=True)
class AttentionCall:
    """One call of one attention module: everything that entered its softmax.

    `query` and `key` are as the product used them, after rotation, norm and splitting.
    `mask` is True where a key is visible, None where all are; `bias` was added to the
    logits; `sinks` holds one learned logit per head. `max_error` is the largest absolute
    difference between the rows recomputed from these fields and the model's own output.
    """

    module: str
    layer: int
    tower: Tower
    kind: Kind
    query: Float[Tensor, "batch head query d_k"]
    key: Float[Tensor, "batch kv_head key d_k"]
    value: Float[Tensor, "batch kv_head key d_v"]
    scale: float
    softcap: float | None
    sinks: Float[Tensor, " head"] | None
    bias: Float[Tensor, "#batch #head query key"] | None
    mask: Bool[Tensor, "#batch #head query key"] | None
    max_error: float

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
class Capture:
    """All attention calls of one run of a model, in the order of execution."""

    model_type: str
    calls: tuple[AttentionCall, ...]


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
    with recorder.listening():
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
    with _Recorder(model).listening():
        recorded = _run(model, inputs)[0]
    return float((plain - recorded).abs().max())


def _run(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Any:
    takes_cache = "use_cache" in inspect.signature(model.forward).parameters
    # A cache may write its keys in place after they were read.
    cache = {"use_cache": False} if takes_cache else {}
    try:
        with torch.no_grad():
            return model(**inputs, **cache)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
        raise UnreadableModel(
            f"{type(model).__name__} cannot run on this input: {reason}."
        ) from error


@dataclass
class _Recorder:
    """Notes the attention calls of one run; lives as long as that run."""

    model: PreTrainedModel
    calls: list[AttentionCall] = field(default_factory=list)
    taken: Counter[tuple[Tower, Kind]] = field(default_factory=Counter)
    # Layers share their mask: it is read once. The mask itself is kept, so that its id stays its.
    masks: dict[Any, tuple[Any, Tensor | None, Tensor | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths = {id(module): path for path, module in self.model.named_modules()}

    @contextmanager
    def listening(self):
        """Make this the recorder of the current context."""
        _observe_interface()
        token = _recorder.set(self)
        try:
            yield
        finally:
            _recorder.reset(token)

    def note(
        self,
        arguments: _Arguments,
        output: Float[Tensor, "batch query head d_v"],
    ) -> None:
        """Turn one observed call into a verified `AttentionCall`."""
        path = self.paths.get(id(arguments.module), type(arguments.module).__name__)
        tower = tower_of(self.model, path, arguments.module)
        kind = kind_of(path, arguments.module)
        mask, bias = self.visible(arguments)
        call = AttentionCall(
            module=path,
            layer=self.layer(path, arguments.module, tower, kind),
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
        seen = {c.layer for c in self.calls if (c.tower, c.kind) == (tower, kind)}
        self.taken[tower, kind] += 1
        if number is None or number in seen:
            return self.taken[tower, kind] - 1
        return number

    def visible(self, arguments: _Arguments) -> tuple[Tensor | None, Tensor | None]:
        """Mask and bias of a call, read from whatever form they came in."""
        given = arguments.mask
        size = (arguments.query.shape[2], arguments.key.shape[2])
        key = (id(given), id(arguments.position_bias), arguments.causal, size)
        if key not in self.masks:
            mask, bias = _read_mask(given, arguments.causal, size)
            if arguments.position_bias is not None:
                added = arguments.position_bias[..., : size[1]]
                bias = added if bias is None else bias + added
            self.masks[key] = ((given, arguments.position_bias), mask, bias)
        return self.masks[key][1:]


def _read_mask(
    given: Tensor | None, causal: bool, size: tuple[int, int]
) -> tuple[Tensor | None, Tensor | None]:
    if given is None:
        return (torch.ones(1, 1, *size, dtype=torch.bool).tril() if causal else None), None
    given = given[..., : size[1]].expand(*given.shape[:-2], *size)
    if given.dtype == torch.bool:
        return given, None
    mask = given > HIDDEN_BELOW
    rest = given.masked_fill(~mask, 0.0)
    return mask, (rest if bool(rest.any()) else None)


@dataclass(frozen=True)
class _Arguments:
    """The arguments of an attention function, under the names used here."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None
    sinks: Tensor | None
    position_bias: Tensor | None
    causal: bool

    @classmethod
    def read(
        cls,
        eager: bool,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **others: Any,
    ) -> _Arguments:
        """Follow the convention of transformers' attention functions."""
        scale = others.get("scaling")
        sinks = others.get("s_aux") if others.get("s_aux") is not None else others.get("sinks")
        causal = others.get("is_causal")
        if causal is None:
            causal = getattr(module, "is_causal", True)
        return cls(
            module=module,
            query=query,
            key=key,
            value=value,
            mask=attention_mask,
            scale=float(scale) if scale is not None else query.shape[-1] ** -0.5,
            softcap=others.get("softcap"),
            sinks=sinks,
            position_bias=others.get("position_bias"),
            # The eager functions take a missing mask as full attention.
            causal=bool(causal) and not eager and attention_mask is None and query.shape[2] > 1,
        )


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
    tolerance = TOLERANCE[call.query.dtype] * max(1.0, float(real.abs().max()))
    if not error <= tolerance:
        raise UnreadableModel(
            f"Attention recomputed from what {call.module} was given differs from the model's "
            f"own output by {error:.2g}, so it would not be the truth about this model."
        )
    return error


def _recompute(call: AttentionCall, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (batch, head, row, d_v) of some query rows, and 1 where such a row sees a key."""
    batch, heads, kv_heads = call.query.shape[0], call.heads, call.kv_heads

    def grouped(tensor: Tensor) -> Tensor:
        if tensor.shape[1] == 1:
            return tensor.unsqueeze(1)
        return tensor.unflatten(1, (kv_heads, heads // kv_heads))

    def at_rows(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else grouped(tensor[:, :, rows])

    logits = equation.logits(
        equation.scores(grouped(call.query[:, :, rows].float()), call.key.float().unsqueeze(2)),
        call.scale,
        softcap=call.softcap,
        bias=at_rows(call.bias),
        mask=at_rows(call.mask),
    )
    sinks = None if call.sinks is None else grouped(call.sinks.float().reshape(1, -1, 1, 1))
    weights = equation.weights(logits, sinks)
    outputs = equation.output(weights, call.value.float().unsqueeze(2))
    seen = (logits > -torch.inf).any(-1, keepdim=True)
    return outputs.reshape(batch, heads, len(rows), -1), seen.reshape(batch, heads, len(rows), 1)


_recorder: ContextVar[_Recorder | None] = ContextVar("attnviz_recorder", default=None)
_installing = threading.Lock()


def _observe_interface() -> None:
    """Let `get_interface` hand out observed functions to threads that hold a recorder."""
    with _installing:
        original = AttentionInterface.get_interface
        if hasattr(original, "observes"):
            return

        @functools.wraps(original)
        def get_interface(self, attn_implementation, default):
            function = original(self, attn_implementation, default)
            recorder = _recorder.get()
            if recorder is None:
                return function
            return _observed(function, attn_implementation == "eager", recorder)

        get_interface.observes = True  # type: ignore[attr-defined]
        AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]


def _observed(function: Callable, eager: bool, recorder: _Recorder) -> Callable:
    @functools.wraps(function)
    def observed(module, query, key, value, attention_mask=None, *others, **named):
        result = function(module, query, key, value, attention_mask, *others, **named)
        arguments = _Arguments.read(eager, module, query, key, value, attention_mask, **named)
        recorder.note(arguments, result[0])
        return result

    return observed
