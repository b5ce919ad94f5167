"""Notes what the attention of a running model uses: one value for each call, verified.

Calls are seen where models ask transformers for an attention function (`interface`), else in the
model's own operations (`trace`, `operations`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.families import Tower, other_attention, why_no_attention, writes_alone
from attnviz.interface import Arguments, mask_and_bias, observed_by
from attnviz.operations import NoForm, OwnAttention, is_attention, own_attention, scale_within
from attnviz.padding import Padding
from attnviz.places import Place, Places
from attnviz.quiet import quiet
from attnviz.rotation import before_rotation
from attnviz.trace import FUSED, PRODUCTS, WIDEST, Step, Trace, times_written
from attnviz.verification import Unconfirmed, confirm_weights, confirmed_error

# Of a mask, as a sum of bools first makes a copy of eight bytes for each.
ROWS_AT_ONCE = 64


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    """A model's output; raises `UnreadableModel` where it cannot run on the inputs."""
    try:
        given = {name: _own(value) for name, value in inputs.items()}
        if "use_cache" in inspect.signature(model.forward).parameters:
            given["use_cache"] = False  # a cache may write its keys in place after they were read
        with torch.no_grad(), quiet():
            return model(**given)
    except Exception as error:  # a model may stumble over an input in any way
        said: list[str] = []
        with suppress(Exception):
            said = [line for line in str(error).splitlines() if line.strip()]
        reason = (said or ["no reason given"])[0].rstrip(".")
        raise UnreadableModel(
            f"{type(model).__name__} cannot run on this input: {reason}."
        ) from error


def _own(value: Any) -> Any:
    """What a run may change without anybody noticing: a cache that is given grows."""
    return copy.deepcopy(value) if isinstance(value, Cache) else value


class Recorder:
    """Notes the attention calls of one run; lives as long as that run."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
        self.model, self.inputs = model, inputs
        self.batch = batch_size(model, inputs)
        has_encoder = bool(model.config.is_encoder_decoder)
        self.places, self.padding = Places(model), Padding.of(inputs, has_encoder)
        self.used: set[int] = set()
        self.calls: list[AttentionCall] = []
        self.failures: dict[str, tuple[Place, str]] = {}
        # Layers share their mask: it is read once. What it was read from is kept with it,
        # because an id is only its own as long as the object lives.
        self.masks: dict[Any, tuple[Any, Any]] = {}
        self.seen: list[list[Any]] = []  # what the tensors of each call were when it was verified

    def watch(self) -> Any:
        """Run the model under observation and return its output."""
        self.trace = Trace(self.noticed, self.too_wide)
        try:
            with observed_by(self), self.trace:
                return run(self.model, self.inputs)
        finally:
            self.used = self.trace.used
            del self.trace  # it knows the recorder: together they would keep the model alive

    def aside(self) -> AbstractContextManager[None]:
        """While an observed function computes, its operations are not the model's own."""
        return self.trace.rest()

    def note(self, module: nn.Module, given: Callable[[], Arguments], output: Any) -> None:
        """Take one call of the attention interface."""
        if not self.places.holds(module):
            return
        with self.trace.rest(), self._told(module) as place:
            arguments = given()
            if not self._runs_over_depth(arguments):
                self._take(place(), output[0], self._from_interface(arguments))
        self.trace.age()

    def noticed(self, step: Step) -> None:
        """Take a product of weights and values among the model's own operations."""
        if step.operation != FUSED and step.operation not in PRODUCTS:
            return
        with self.trace.rest():
            module = self.places.at_work()
            if module is None or not is_attention(step):
                return
            with self._told(module) as place:
                if known := other_attention(module):
                    raise NoForm(known)
                self._take_own(place(), own_attention(step, self.batch))
        self.trace.age()

    def too_wide(self, weights: Tensor) -> None:
        """Tell of attention over more tokens than can be followed."""
        module = self.places.at_work()
        if module is not None and weights.shape[-1] == weights.shape[-2]:
            self._fail(
                self.places.place(module),
                "it computes its attention by itself, which attnviz can follow for up to "
                f"{WIDEST} tokens, and these are {weights.shape[-1]:,}; shorten the text",
            )

    def _fail(self, place: Place, clause: str) -> None:
        """Keep the first reason why calls of a module cannot be shown."""
        self.failures.setdefault(place.module, (place, clause))

    @contextmanager
    def _told(self, module: nn.Module) -> Iterator[Callable[[], Place]]:
        """Whatever keeps a call from being read becomes the reason of its layer.

        The place is only given to a call that asks for it: others count for no layer.
        """
        places: list[Place] = []

        def place() -> Place:
            places[:] = places or [self.places.place(module)]
            return places[0]

        try:
            yield place
        except (Unconfirmed, NoForm) as why:
            self._fail(place(), str(why))
        except Exception:  # anything may be met in a model that nobody has tried
            self._fail(place(), "it computes attention in steps that attnviz cannot follow")

    def _runs_over_depth(self, given: Arguments) -> bool:
        """Whether learned queries look at earlier layers, apart for each token, not at tokens."""
        ids = self.inputs.get("input_ids")
        heads = (given.query.shape[1], given.key.shape[1])
        return given.key is given.value and ids is not None and set(heads) == {ids.shape[-1]}

    def _from_interface(self, given: Arguments) -> dict[str, Any]:
        size = (given.query.shape[2], given.key.shape[2])
        source = (given.mask, given.position_bias)
        mask, bias = self._once((given.causal, size), source, lambda: mask_and_bias(given))
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
                return self._take(place, output, whole, own.weights)
            except Unconfirmed:
                if own.weights is None:
                    raise
        assert own.weights is not None
        if float(own.weights.sum(-1).max()) > 1.01:
            raise NoForm("it has weights that do not share 1 among the keys")
        return self._take(place, output, alone)

    def _tower(self, place: Place, mask: Tensor | None, weights: Tensor | None) -> Tower:
        """The tower by its name; what has none and hides all later tokens is a decoder."""
        if place.tower != "encoder" or "encoder" in place.module or place.kind == "cross":
            return place.tower
        if writes_alone(self.model):
            return "decoder"
        visible = mask if weights is None else weights > 0
        causal = visible is not None and self._once(
            "causal", (visible,), lambda: _hides_later(visible)
        )
        return "decoder" if causal else "encoder"

    def _once(self, what: Any, sources: tuple[Tensor | None, ...], find: Callable[[], Any]) -> Any:
        """What is made of masks and the like, found once for all layers that share them."""
        key = (what, *map(_identity, sources))
        if key not in self.masks:
            self.masks[key] = (sources, find())
        return self.masks[key][1]

    def _window(self, said: int | None, mask: Tensor | None) -> int | None:
        """How many keys a local row sees: told by the mask, or by the call in a short text."""
        if mask is None:
            return said
        return self._once("window", (mask,), lambda: _widest_row(mask)) or said

    def _take(
        self, place: Place, output: Tensor, found: dict[str, Any], weights: Tensor | None = None
    ) -> None:
        """Add a call if the model's own output confirms it, and its own weights where known."""
        size = (output.shape[1], found["value"].shape[2])
        batch = output.shape[0]
        padding = self.padding.at(place.tower, place.kind, batch, size)
        found["window"] = self._window(found.get("window"), found["mask"])
        mask = found["mask"]
        found["mask"] = self._once(size, (mask, padding[0]), lambda: _shown(mask, padding[0], size))
        if found.get("observed_weights") is not None and padding[0] is not None:
            hidden = padding[0][:, None, :, None]
            found["observed_weights"] = found["observed_weights"].masked_fill(hidden, 0.0)
        if found["bias"] is not None:
            found["bias"] = found["bias"].expand(*found["bias"].shape[:2], *size)
        call = AttentionCall(
            module=place.module,
            layer=place.layer,
            tower=self._tower(place, found["mask"], found.get("observed_weights")),
            kind=place.kind,
            max_error=float("inf"),
            query_padding=padding[0],
            key_padding=padding[1],
            **found,
        )
        call = replace(call, max_error=confirmed_error(call, output))
        if weights is not None:
            confirm_weights(call, weights)
        self.calls.append(_in_memory(call))
        tensors = (call.query, call.key, call.value, call.observed_weights)
        self.seen.append([(tensor, times_written(tensor)) for tensor in tensors])

    def readable(self) -> tuple[AttentionCall, ...]:
        """The calls that still say what was verified, and none that is a piece of a larger one."""
        for call, tensors in zip(self.calls, self.seen, strict=True):
            if any(times_written(tensor) != version for tensor, version in tensors):
                self._fail(_place_of(call), "it overwrites its queries, keys or values after use")
        for _, run in groupby(self.calls, lambda call: call.module):
            calls = [call for call in run if call.read_at == "operations"]
            sizes = {call.n for call in calls}
            # Two sequences that look at each other are no pieces: n × m and m × n.
            if len(calls) > 1 and any(n != m and (m, n) not in sizes for n, m in sizes):
                self._fail(
                    _place_of(calls[0]),
                    "it computes its attention in blocks, none of which is whole",
                )
        return tuple(call for call in self.calls if call.module not in self.failures)

    def why_nothing(self) -> str:
        """Why no layer could be read, in a sentence."""
        told = [clause for _, clause in self.failures.values()]
        clause = next(iter(told), None) or why_no_attention(self.model)
        return f"{type(self.model).__name__} cannot be shown: {clause}."


def batch_size(model: PreTrainedModel, inputs: Mapping[str, Any]) -> int:
    """How many sequences the inputs hold."""
    tensors = {k: x for k, x in inputs.items() if isinstance(x, Tensor) and x.dim() > 1}
    main = [tensors[k] for k in (model.main_input_name, "inputs_embeds") if k in tensors]
    return next((len(tensor) for tensor in (*main, *tensors.values())), 1)


def _identity(tensor: Tensor | None) -> tuple[int, int]:
    return id(tensor), times_written(tensor)


def _place_of(call: AttentionCall) -> Place:
    return Place(call.module, call.layer, call.tower, call.kind)


def _in_memory(call: AttentionCall) -> AttentionCall:
    """The same call, its tensors off the GPU, from where they are looked at, and off any graph."""
    kept: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(call)}
    moved = {
        name: tensor.detach().cpu()
        for name, tensor in kept.items()
        if isinstance(tensor, Tensor) and (tensor.requires_grad or not tensor.is_cpu)
    }
    return AttentionCall(**{**kept, **moved}) if moved else call


def _shown(mask: Tensor | None, padding: Tensor | None, size: tuple[int, int]) -> Tensor | None:
    """The mask without the rows of padding, whatever the model makes of those."""
    shown = mask if mask is None else mask.expand(*mask.shape[:2], *size)
    if padding is None:
        return shown
    rows = ~padding[:, None, :, None].to(mask.device if mask is not None else "cpu")
    return (rows if shown is None else shown & rows).expand(-1, -1, *size)


def _widest_row(mask: Tensor) -> int | None:
    """The most keys that a query sees, if every query sees keys in a row, and none sees all."""
    widest, keys = 0, int(mask.any(-2).sum(-1).max())
    # From the end, where a row that sees all keys is found at once.
    for rows in reversed(mask.split(ROWS_AT_ONCE, dim=-2)):
        seen = rows.sum(-1)
        if int(seen.max()) == keys:
            return None
        first, last = rows.int().argmax(-1), rows.shape[-1] - 1 - rows.int().flip(-1).argmax(-1)
        if bool(((seen != last - first + 1) & (seen > 0)).any()):
            return None
        widest = max(widest, int(seen.max()))
    return widest


def _hides_later(visible: Tensor) -> bool:
    """Whether no query sees later keys, and some see more than one."""
    queries, keys = visible.shape[-2:]
    first, some = keys - queries, False
    for rows in visible.split(ROWS_AT_ONCE, dim=-2):
        if bool(rows.triu(1 + first).any()):
            return False
        some = some or int(rows.sum(-1).max()) > 1
        first += ROWS_AT_ONCE
    return some
