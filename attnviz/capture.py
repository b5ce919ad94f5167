"""Read the queries, keys and values that a model's attention really used.

`capture` runs a model once under observation and keeps, for each attention call, all that
entered its softmax: O(layers · n · d) numbers, no n × n weights. Calls are seen where models
ask transformers for an attention function (`interface`), else in the model's own operations
(`trace`, `operations`). Some rows are recomputed from what was kept and compared with the
model's own output; what cannot be confirmed is not shown, and the capture says why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnviz.attention_call import AttentionCall, Capture, UnreadableModel, UnreadLayer
from attnviz.families import Tower, other_attention, why_no_attention
from attnviz.interface import Arguments, mask_and_bias, observed_by
from attnviz.operations import NoForm, OwnAttention, is_attention, own_attention, scale_within
from attnviz.padding import Padding
from attnviz.places import Place, Places
from attnviz.quiet import quiet
from attnviz.rotation import before_rotation
from attnviz.trace import FUSED, PRODUCTS, WIDEST, Step, Trace
from attnviz.verification import TOLERANCE, Unconfirmed, confirmed_error

__all__ = [
    "TOLERANCE",
    "AttentionCall",
    "Capture",
    "UnreadLayer",
    "UnreadableModel",
    "capture",
    "recording_difference",
]


def capture(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Capture:
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
    recorder = _Recorder(model, inputs)
    recorder.watch()
    calls = recorder.readable()
    if not calls:
        raise UnreadableModel(recorder.why_nothing())
    unread = recorder.places.unread(calls, recorder.failures, recorder.used)
    return Capture(model.config.model_type, calls, unread)


def recording_difference(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> float:
    """Largest difference between the model's outputs with and without a recorder: 0 if sound."""
    dice = torch.get_rng_state()
    plain = _run(model, inputs)
    torch.set_rng_state(dice)  # for models that draw at random what they look at
    recorded = _Recorder(model, inputs).watch()
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


def _run(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Any:
    takes_cache = "use_cache" in inspect.signature(model.forward).parameters
    # A cache may write its keys in place after they were read.
    cache = {"use_cache": False} if takes_cache else {}
    try:
        with torch.no_grad(), quiet():
            return model(**inputs, **cache)
    except Exception as error:  # a model may stumble over an input in any way
        reason = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
        raise UnreadableModel(
            f"{type(model).__name__} cannot run on this input: {reason}."
        ) from error


class _Recorder:
    """Notes the attention calls of one run; lives as long as that run."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> None:
        self.model, self.inputs = model, inputs
        self.batch = next((len(x) for x in inputs.values() if isinstance(x, Tensor)), 1)
        self.places, self.padding = Places(model), Padding.of(inputs)
        self.used: set[int] = set()
        self.calls: list[AttentionCall] = []
        self.failures: dict[str, tuple[Place, str]] = {}
        # Layers share their mask: it is read once. What it was read from is kept with it,
        # because an id is only its own as long as the object lives.
        self.masks: dict[Any, tuple[Any, Any]] = {}

    def watch(self) -> Any:
        """Run the model under observation and return its output."""
        self.trace = Trace(self.noticed, self.too_wide)
        try:
            with observed_by(self), self.trace:
                return _run(self.model, self.inputs)
        finally:
            self.used = self.trace.used
            del self.trace  # it knows the recorder: together they would keep the model alive

    def aside(self) -> AbstractContextManager[None]:
        """While an observed function computes, its operations are not the model's own."""
        return self.trace.rest()

    def note(self, arguments: Arguments, output: Tensor) -> None:
        """Take one call of the attention interface."""
        if self._runs_over_depth(arguments):
            return
        with self.trace.rest():
            place = self.places.place(arguments.module)
            with self._told(place):
                self._take(place, output, self._from_interface(arguments))
        self.trace.age()

    def noticed(self, step: Step) -> None:
        """Take a product of weights and values among the model's own operations."""
        if step.operation != FUSED and step.operation not in PRODUCTS:
            return
        with self.trace.rest():
            module = self.places.at_work()
            if not is_attention(step):
                return
            place = self.places.place(module)
            with self._told(place):
                if known := other_attention(module):
                    raise NoForm(known)
                self._take_own(place, own_attention(step, self.batch))
        self.trace.age()

    def too_wide(self, weights: Tensor) -> None:
        """Tell of attention over more tokens than can be followed."""
        if weights.shape[-1] == weights.shape[-2]:
            place = self.places.place(self.places.at_work())
            self._fail(
                place,
                "it computes its attention by itself, which attnviz can follow for up to "
                f"{WIDEST} tokens, and these are {weights.shape[-1]:,}; shorten the text",
            )

    def _fail(self, place: Place, clause: str) -> None:
        """Keep the first reason why calls of a module cannot be shown."""
        self.failures.setdefault(place.module, (place, clause))

    @contextmanager
    def _told(self, place: Place) -> Iterator[None]:
        """Whatever keeps a call from being read becomes the reason of its layer."""
        try:
            yield
        except (Unconfirmed, NoForm) as why:
            self._fail(place, str(why))
        except Exception:  # anything may be met in a model that nobody has tried
            self._fail(place, "it computes attention in steps that attnviz cannot follow")

    def _runs_over_depth(self, given: Arguments) -> bool:
        """Whether learned queries look at earlier layers, apart for each token, not at tokens."""
        tokens = self.inputs.get("input_ids", torch.empty(0, 0)).shape[-1]
        return given.key is given.value and given.query.shape[1] == tokens

    def _from_interface(self, given: Arguments) -> dict[str, Any]:
        mask, bias = self._mask_and_bias(given)
        query, key = self.trace.traced([given.query, given.key])
        return {
            "query": given.query,
            "key": given.key,
            "value": given.value,
            "scale": given.scale,
            "softcap": given.softcap,
            "sinks": given.sinks,
            "bias": bias,
            "mask": mask,
            "query_unrotated": before_rotation(query),
            "key_unrotated": before_rotation(key),
            "window": given.window,
            "query_factor": scale_within(query),
            "read_at": "interface",
        }

    def _mask_and_bias(self, given: Arguments) -> tuple[Tensor | None, Tensor | None]:
        """Mask and bias of a call, the same objects for all calls that share them."""
        source = (given.mask, given.position_bias)
        size = (given.query.shape[2], given.key.shape[2])
        key = (id(source[0]), id(source[1]), given.causal, size)
        if key not in self.masks:
            self.masks[key] = (source, mask_and_bias(given))
        return self.masks[key][1]

    def _take_own(self, place: Place, own: OwnAttention) -> None:
        """Keep queries and keys if they are confirmed, else the weights alone."""
        output = own.output.transpose(1, 2)
        alone = {
            "query": None,
            "key": None,
            "value": own.value,
            "scale": 1.0,
            "softcap": None,
            "sinks": None,
            "bias": None,
            "mask": None,
            "observed_weights": own.weights,
            "read_at": "operations",
        }
        whole = alone | {
            "query": own.query,
            "key": own.key,
            "value": own.shared_value,
            "scale": own.scale,
            "softcap": own.softcap,
            "bias": own.bias,
            "mask": own.mask,
            "query_unrotated": own.query_unrotated,
            "key_unrotated": own.key_unrotated,
            "observed_weights": None,
        }
        if own.query is not None:
            try:
                return self._take(place, output, whole)
            except Unconfirmed:
                if own.weights is None:
                    raise
        return self._take(place, output, alone)

    def _tower(self, place: Place, mask: Tensor | None) -> Tower:
        """The tower by its name; what has none and hides all later tokens is a decoder."""
        unnamed = place.tower == "encoder" and "encoder" not in place.module
        if not unnamed or mask is None or place.kind == "cross" or mask.shape[-1] == 1:
            return place.tower
        return "decoder" if self._once("causal", mask, _hides_later) else "encoder"

    def _once(self, what: str, mask: Tensor, find: Callable[[Tensor], Any]) -> Any:
        """What a mask tells, found once for all layers that share it."""
        key = (what, id(mask))
        if key not in self.masks:
            self.masks[key] = (mask, find(mask))
        return self.masks[key][1]

    def _window(self, said: int | None, mask: Tensor | None) -> int | None:
        """How many keys a local row sees: told by the mask, or by the call in a short text."""
        if mask is None:
            return said
        return self._once("window", mask, _widest_row) or said

    def _take(self, place: Place, output: Tensor, found: dict[str, Any]) -> None:
        """Add a call if the model's own output confirms it."""
        size = (output.shape[1], found["value"].shape[2])
        batch = output.shape[0]
        padding = self.padding.at(place.tower, place.kind, batch, size)
        found["window"] = self._window(found.get("window"), found["mask"])
        found["mask"] = self._shown(found["mask"], padding[0], size)
        if found.get("observed_weights") is not None and padding[0] is not None:
            hidden = padding[0][:, None, :, None]
            found["observed_weights"] = found["observed_weights"].masked_fill(hidden, 0.0)
        if found["bias"] is not None:
            found["bias"] = found["bias"].expand(*found["bias"].shape[:2], *size)
        call = AttentionCall(
            module=place.module,
            layer=place.layer,
            tower=self._tower(place, found["mask"]),
            kind=place.kind,
            max_error=float("inf"),
            query_padding=padding[0],
            key_padding=padding[1],
            **found,
        )
        self.calls.append(_in_memory(replace(call, max_error=confirmed_error(call, output))))

    def _shown(
        self, mask: Tensor | None, padding: Tensor | None, size: tuple[int, int]
    ) -> Tensor | None:
        """The mask without the rows of padding, whatever the model makes of those."""
        key = ("rows", id(mask), id(padding), size)
        if key not in self.masks:
            shown = mask if mask is None else mask.expand(*mask.shape[:2], *size)
            if padding is not None:
                rows = ~padding[:, None, :, None].to(mask.device if mask is not None else "cpu")
                shown = (rows if shown is None else shown & rows).expand(-1, -1, *size)
            self.masks[key] = ((mask, padding), shown)
        return self.masks[key][1]

    def readable(self) -> tuple[AttentionCall, ...]:
        """The calls, without those of modules that compute one attention in several pieces."""
        for path, run in groupby(self.calls, lambda call: call.module):
            calls = [call for call in run if call.read_at == "operations"]
            sizes = {call.n for call in calls}
            # Two sequences that look at each other are no pieces: n × m and m × n.
            if len(calls) > 1 and any(n != m and (m, n) not in sizes for n, m in sizes):
                first = calls[0]
                place = Place(path, first.layer, first.tower, first.kind)
                self._fail(place, "it computes its attention in blocks, none of which is whole")
        return tuple(call for call in self.calls if call.module not in self.failures)

    def why_nothing(self) -> str:
        """Why no layer could be read, in a sentence."""
        told = [clause for _, clause in self.failures.values()]
        clause = next(iter(told), None) or why_no_attention(self.model)
        return f"{type(self.model).__name__} cannot be shown: {clause}."


def _in_memory(call: AttentionCall) -> AttentionCall:
    """The same call, its tensors off the GPU: they are looked at from the CPU."""
    kept: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(call)}
    moved = {k: x.cpu() for k, x in kept.items() if isinstance(x, Tensor) and not x.is_cpu}
    return AttentionCall(**{**kept, **moved}) if moved else call


def _widest_row(mask: Tensor) -> int | None:
    """The most keys that a query sees, None if some query sees all that any one sees."""
    # Row by row, as a sum of bools first makes a copy of eight bytes for each.
    seen = max(int(rows.sum(-1).max()) for rows in mask.split(64, dim=-2))
    return seen if seen < int(mask.any(-2).sum(-1).max()) else None


def _hides_later(mask: Tensor) -> bool:
    return not bool(mask.triu(1).any())
