"""Change how sharply a real model attends, for one run.

Multiplying a query by a number multiplies all its scores, as another divisor would: soft cap,
position terms, mask and sinks follow in the model's own order and stay as they are. Only the run
sees it: queries are multiplied on their way into the attention function that transformers hands
out, in this thread's context alone, or where a model computes attention by itself, among its own
operations (`trace`). The model's configuration and weights are never touched, and other threads
that run the same model see nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.families import other_attention
from attnviz.interface import changed_by
from attnviz.operations import WEIGHING, is_attention
from attnviz.places import Place, Places
from attnviz.recorder import batch_size, run
from attnviz.trace import (
    ARITHMETIC,
    FUSED,
    MOVES,
    PRODUCTS,
    SOFTMAX,
    WIDEST,
    Step,
    Trace,
    as_value,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

UNFOLLOWED = "it computes attention in steps that attnviz cannot follow"

Way = tuple[tuple[Step, int], ...]


@dataclass(frozen=True)
class Scaling:
    """Multiply the scores of some heads by a factor.

    `module` and `layer` are those of an `AttentionCall`. What is None stands for all: all
    modules, all layers, all heads. Raises `ValueError` where the factor is no finite number.
    """

    factor: float
    module: str | None = None
    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.factor):
            raise ValueError(f"Scores cannot be multiplied by {self.factor}.")

    def is_at(self, place: Place) -> bool:
        """Whether heads of this place are meant."""
        return self.module in (None, place.module) and self.layer in (None, place.layer)


def multiplied(
    calls: Iterable[AttentionCall], factor: float, head: int | None = None
) -> tuple[Scaling, ...]:
    """What multiplies the scores of these calls by a factor; None stands for all heads."""
    places = dict.fromkeys((call.module, call.layer) for call in calls)  # some attend twice
    return tuple(Scaling(factor, *place, head) for place in places)


def as_if_divided(
    calls: Iterable[AttentionCall], divisor: Callable[[int], float], head: int | None = None
) -> tuple[Scaling, ...]:
    """What makes these calls attend as if q·k were divided by `divisor(d_k)`.

    The factor is the model's own divisor over the wanted one, call by call, since d_k and scale
    may differ between layers. Calls of which only the weights are known are left out; raises
    `UnreadableModel` if they all are.
    """
    scalings = {}
    for call in calls:
        if call.d_k is not None:
            factor = 1 / (call.scale * call.query_factor * divisor(call.d_k))
            # One number stays one: the model's own divisor changes no bit.
            factor = 1.0 if math.isclose(factor, 1.0, rel_tol=1e-6) else factor
            place = (call.module, call.layer)  # some layers attend twice
            scalings[place] = Scaling(factor, *place, head)
    if not scalings:
        raise UnreadableModel(
            "Of this attention only the weights are known, not the queries and keys, so it cannot "
            "be divided by something else."
        )
    return tuple(scalings.values())


def scaled(
    model: PreTrainedModel, inputs: Mapping[str, Any], scalings: Sequence[Scaling] = ()
) -> Any:
    """The model's output with some heads' scores multiplied, and untouched where there are none.

    Raises `UnreadableModel` if the model cannot run on the inputs, or if what is asked for cannot
    be done: no such layer or head, or attention in steps that are no softmax of q·k.
    """
    if not scalings:
        return run(model, inputs)
    operation = _Operation(model, batch_size(model, inputs), tuple(scalings))
    try:
        with changed_by(operation), operation.trace:
            output = run(model, inputs)
        operation.check()
    finally:
        del operation.trace  # it knows the operation: together they would keep the model alive
    return output


class _Operation:
    """What is done in one run, and what could not be; lives as long as that run."""

    def __init__(self, model: PreTrainedModel, batch: int, scalings: tuple[Scaling, ...]) -> None:
        self.model, self.batch, self.scalings = model, batch, scalings
        self.places = Places(model)
        self.done: set[Scaling] = set()
        self.obstacles: list[str] = []
        self.trace = _Following(self)

    def at(self, module: nn.Module) -> tuple[Scaling, ...]:
        """What is to be done at the call that this module makes now."""
        if not self.places.holds(module):
            return ()
        place = self.places.place(module)
        return tuple(scaling for scaling in self.scalings if scaling.is_at(place))

    def attend(
        self, function: Callable, module: nn.Module, query: Tensor, *others: Any, **named: Any
    ) -> Any:
        """An attention function that transformers hands out, on other queries."""
        with self.trace.rest():  # what happens in there is done already
            query = self.multiplied(query, self.at(module))
            result = function(module, query, *others, **named)
        self.trace.age()
        return result

    def multiplied(self, query: Tensor, scalings: Iterable[Scaling]) -> Tensor:
        """Queries (batch head query d_k) times the factors, the very tensor where all are 1."""
        for scaling in scalings:
            head, factor = scaling.head, scaling.factor
            if head is not None and not 0 <= head < query.shape[1]:
                self.obstacles.append(f"there are {query.shape[1]} heads and no head {head}")
                continue
            self.done.add(scaling)
            if factor == 1:
                continue
            if head is None:
                query = query * factor
            else:
                query = query.clone()
                query[:, head] *= factor
        return query

    def check(self) -> None:
        """Raise `UnreadableModel` unless everything was done."""
        if any(waits for _, waits in self.trace.awaited.values()):
            self.obstacles.append(UNFOLLOWED)
        missing = [scaling for scaling in self.scalings if scaling not in self.done]
        if missing and not self.obstacles:
            where = "it has" if missing[0].layer is None else f"its layer {missing[0].layer} has"
            self.obstacles.append(f"{where} no softmax attention that attnviz can see")
        if self.obstacles:
            name = type(self.model).__name__
            raise UnreadableModel(f"{name} cannot be changed as asked: {self.obstacles[0]}.")


# --- models that compute attention by themselves


class _Following(Trace):
    """Changes what enters a model's own softmax, by repeating the steps since its product q·k.

    A softmax is changed before it is known whether its result will weigh values. Every one that
    was must do so later, and every one that does must have been; else the run is given up.
    """

    def __init__(self, operation: _Operation) -> None:
        super().__init__(self._confirm, self._refuse_width)
        self.operation = operation
        self.makers: WeakKeyDictionary[Step, nn.Module] = WeakKeyDictionary()
        # What softmaxes were given, by id, and whether it must still be confirmed.
        self.awaited: dict[int, tuple[Tensor, bool]] = {}

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        change = {FUSED: self._fused, **dict.fromkeys(SOFTMAX, self._softmax)}.get(name)
        if change is not None and not (self.resting or self.stopped):
            first = "query" if name == FUSED else "input"
            if args:
                args = (change(args[0]), *args[1:])
            elif first in named:
                named[first] = change(named[first])
        return super().__torch_function__(func, types, args, named)

    def _fused(self, query: Tensor) -> Tensor:
        """Torch's own attention function takes queries as they are."""
        module = self.operation.places.at_work()
        scalings = () if module is None else self._allowed(module)
        if scalings and query.dim() != 4:
            self.operation.obstacles.append(f"it attends on {query.dim()} axes")
            return query
        return self.operation.multiplied(query, scalings)

    def _softmax(self, given: Tensor) -> Tensor:
        """What a softmax shall be given instead."""
        ways = _ways(self.traced(given), given.numel())
        module = self.makers.get(ways[0][0][0]) if ways else None
        if module is None:
            return given
        scalings = self._allowed(module)
        if scalings and len(ways) > 1:
            self.operation.obstacles.append("its logits are a sum of several products")
            scalings = ()
        changed = given
        if scalings:
            try:
                changed = self._repeated(ways[0], scalings, given)
            except Exception:  # anything may be met in a model that nobody has tried
                self.operation.obstacles.append(UNFOLLOWED)
        self.awaited[id(changed)] = (changed, bool(scalings))
        return changed

    def _repeated(self, way: Way, scalings: tuple[Scaling, ...], given: Tensor) -> Tensor:
        """The logits that come of other queries; `given` are those that came of the model's."""
        product, place = way[0]
        query = as_value(product.operands[place])
        folded, batch = query.dim() == 3, self.operation.batch
        by_letters = product.operation == "einsum" and any(x.head is not None for x in scalings)
        if by_letters or query.dim() not in (3, 4) or (folded and len(query) % batch):
            self.operation.obstacles.append("its heads cannot be told apart")
            return given
        apart = query.unflatten(0, (batch, -1)) if folded else query
        multiplied = self.operation.multiplied(apart, scalings)
        if multiplied is apart:
            return given
        if not torch.equal(_replayed(way, query), given):
            self.operation.obstacles.append(UNFOLLOWED)
        return _replayed(way, multiplied.flatten(0, 1) if folded else multiplied)

    def _allowed(self, module: nn.Module) -> tuple[Scaling, ...]:
        """What is to be done at a module, unless it computes something else than attention."""
        scalings = self.operation.at(module)
        if scalings and (other := other_attention(module)):
            self.operation.obstacles.append(other)
            return ()
        return scalings

    def _confirm(self, step: Step) -> None:
        """Note where products are made, and hold a product of weights against what was done."""
        if step.operation in PRODUCTS and (module := self.operation.places.at_work()) is not None:
            self.makers[step] = module
        if step.operation not in WEIGHING or not is_attention(step):
            return
        made = step.operands[step.operation == "einsum"]
        while made.operation not in SOFTMAX:
            made = made.operands[0]
        argument = as_value(made.operands[0])
        if id(argument) in self.awaited:
            self.awaited[id(argument)] = (argument, False)
            self.awaited = {k: x for k, x in self.awaited.items() if x[1] or k == id(argument)}
        elif step in self.makers and self._allowed(self.makers[step]):
            self.operation.obstacles.append(UNFOLLOWED)
        self.age()

    def _refuse_width(self, weights: Tensor) -> None:
        module = self.operation.places.at_work()
        square = weights.shape[-1] == weights.shape[-2]
        if module is not None and square and self.operation.at(module):
            self.operation.obstacles.append(
                f"it computes its attention by itself, which attnviz can follow for up to {WIDEST} "
                f"tokens, and these are {weights.shape[-1]:,}; shorten the text"
            )


def _ways(made: Any, size: int) -> list[Way]:
    """How products of that many numbers came here, changed number by number.

    Each way begins with the product; a step comes with the place of the operand that leads on.
    """
    if not isinstance(made, Step):
        return []
    if made.operation in PRODUCTS:
        factors = [i for i, x in enumerate(made.operands) if isinstance(x, (Step, Tensor))][-2:]
        learned = any(isinstance(_source(made.operands[i]), nn.Parameter) for i in factors)
        return [] if learned or made.result.numel() != size else [((made, factors[0]),)]
    if made.operation not in MOVES | ARITHMETIC:
        return []
    return [
        (*way, (made, place))
        for place, operand in enumerate(made.operands)
        for way in _ways(operand, size)
    ]


def _source(made: Any) -> Any:
    """The tensor that was moved about to become this."""
    while isinstance(made, Step) and made.operation in MOVES:
        made = made.operands[0]
    return as_value(made)


def _replayed(way: Way, factor: Tensor) -> Tensor:
    """What the steps of a way make of another first factor of its product."""
    for step, place in way:
        factor = step.again(factor, place)
    return factor
