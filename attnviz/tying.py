"""Let a real model's heads share projections, for one run: V := K's, Q := K's, and so on.

That shows what *this trained model* does with separate roles, not that training could not cope
without them (theory: where the head has room, it can).

What is exchanged are rows of W_Q, W_K and W_V and their biases: what the model does to the
vectors afterwards (a norm, a rotation, a factor, a term of places) acts on them as before. Where
several query heads share a key and a value head, that head is changed for all of them, and Q and K
can be swapped for one of them alone. In cross-attention W_Q keeps taking the target's tokens and
W_K and W_V the source's.

Only the run sees it: while `tied` is entered, operations of this thread are given other tensors
in the place of those parameters (`TorchFunctionMode`). The model, its parameters and its
configuration are never touched, and other threads that run the same model see nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from attnviz.capture import AttentionCall, UnreadableModel, capture
from attnviz.circuits import ROLES, NoMatrix, rows_of
from attnviz.families import Kind
from attnviz.origins import origins
from attnviz.places import Places
from attnviz.weight_blocks import BLOCK_WEIGHTS
from attnviz.windows import window
from attnviz.wiring import Origin, Wiring

Role = Literal["query", "key", "value"]
Way = Literal["K := V", "V := K", "Q := K", "Q and K swapped", "values shuffled"]

WAYS: tuple[Way, ...] = get_args(Way)
# Where products take their bias: by place or by name.
BIASES = {
    "linear": (2, "bias"),
    "conv1d": (2, "bias"),
    "addmm": (0, "input"),
    "multi_head_attention_forward": (6, "in_proj_bias"),
}
SHORT = 7  # tokens: where a model's matrices lie does not depend on its text


@dataclass(frozen=True)
class Tying:
    """What takes the place of what.

    `module` and `layer` are those of an `AttentionCall`. What is None stands for all: all
    modules, all layers, all heads. "values shuffled" gives each value head the values of another
    one, drawn by `seed`, which is not negative; of one head alone, it and another change places.
    """

    way: Way
    module: str | None = None
    layer: int | None = None
    head: int | None = None
    seed: int = 0

    def is_at(self, makers: Makers) -> bool:
        """Whether heads of this call are meant."""
        return self.module in (None, makers.module) and self.layer in (None, makers.layer)


@dataclass(frozen=True)
class Strip:
    """A matrix or bias as it was used: how its numbers lie within a module's parameter.

    `first` is the place of the first one among the parameter's numbers in memory.
    """

    owner: str
    name: str
    first: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def path(self) -> str:
        """The parameter's path in the model."""
        return f"{self.owner}.{self.name}".strip(".")

    def place(self, row: int) -> tuple[str, int]:
        """Where a row begins: the same for all parts that hold it."""
        return self.path, self.first + row * self.stride[0]

    def within(self, parameter: Tensor) -> Tensor:
        """The same part of a tensor that is laid out as the parameter, to read or to write."""
        start = parameter.storage_offset() + self.first
        return parameter.as_strided(self.size, self.stride, start)


@dataclass(frozen=True, eq=False)
class Rows:
    """Which rows of which matrix make the vectors of one role; `of` has those of each head."""

    weight: Strip
    bias: Strip | None
    of: Int[Tensor, "head width"]
    latent: bool

    def places(self, head: int) -> list[tuple[str, int]]:
        """Where the rows of one head begin."""
        return [self.weight.place(row) for row in self.of[head].tolist()]


@dataclass(frozen=True, eq=False)
class Makers:
    """What makes the queries, keys and values of one attention call.

    `rows` has `Rows` by role, or a clause that says why there are none.
    """

    module: str
    layer: int
    kind: Kind
    heads: int
    kv_heads: int
    rows: Mapping[Role, Rows | str]

    def kv_head(self, head: int) -> int:
        """The key and value head that a query head reads."""
        return head // (self.heads // self.kv_heads)

    def beside(self, head: int) -> tuple[int, ...]:
        """The other query heads that read the same, and change with it."""
        group = self.kv_head(head)
        return tuple(h for h in range(self.heads) if h != head and self.kv_head(h) == group)


def makers(model: PreTrainedModel, inputs: Mapping[str, Any]) -> tuple[Makers, ...]:
    """What makes queries, keys and values in every call that can be read, in order.

    Takes two runs of a few tokens, and is worth keeping: the text does not matter.
    Raises `UnreadableModel` as `capture` does.
    """
    given = _shortened(inputs)
    try:
        read = capture(model, given)
    except UnreadableModel:  # as of pictures within a text, which must be whole
        given = dict(inputs)
        read = capture(model, given)
    found = zip(read.calls, origins(model, given, read), strict=True)
    return tuple(_makers(model, call, wires) for call, wires in found)


@contextmanager
def tied(
    model: PreTrainedModel, known: Sequence[Makers], tyings: Sequence[Tying]
) -> Iterator[None]:
    """Let what runs the model inside see shared projections; without tyings, nothing changes.

    `known` are the model's own `makers`; the matrices that change are copied for as long as this
    is entered. Raises `UnreadableModel` at the start if what is asked for cannot be done, and at
    the end if some of it was not seen to be used.
    """
    if not tyings:
        yield
        return
    exchange = _Exchange(model, _changes(model, known, tyings).made())
    with exchange:
        yield
    exchange.check()


def why_not(model: PreTrainedModel, known: Sequence[Makers], tyings: Sequence[Tying]) -> str | None:
    """The sentence that `tied` would start with, None if it can be tried; nothing is copied."""
    try:
        _changes(model, known, tyings)
    except UnreadableModel as why:
        return str(why)
    return None


def moved_attention(
    before: AttentionCall, after: AttentionCall, head: int
) -> Float[Tensor, " query"]:
    """What share of each query's attention goes elsewhere after a change: 0 none, 1 all of it.

    The total variation distance of its weights, ½ Σ |p − p′|, with what a learned sink takes as
    one more key. Rows are compared some at a time, so that texts may be long.
    """
    found: list[Tensor] = []
    at_once = max(1, BLOCK_WEIGHTS // before.n[1])
    for start in range(0, before.n[0], at_once):
        rows = slice(start, start + at_once)
        was, now = (window(call, head, rows).nan_to_num(0.0) for call in (before, after))
        sinks = (was.sum(-1) - now.sum(-1)).abs()
        found.append(((was - now).abs().sum(-1) + sinks) / 2)
    return torch.cat(found)


def _changes(model: PreTrainedModel, known: Sequence[Makers], tyings: Sequence[Tying]) -> _Changes:
    changes = _Changes(model, known)
    for tying in tyings:
        changes.tie(tying)
    return changes


def _refusal(model: PreTrainedModel, clause: str) -> UnreadableModel:
    return UnreadableModel(f"{type(model).__name__} cannot be changed as asked: {clause}.")


# --- where the matrices lie


def _shortened(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The first tokens of a text; anything else as it is."""

    def is_text(name: str, value: Any) -> bool:
        of_tokens = name.endswith(("ids", "mask")) and isinstance(value, Tensor)
        return of_tokens and value.dim() == 2

    return {
        name: value[:1, :SHORT] if is_text(name, value) else value for name, value in inputs.items()
    }


def _makers(model: PreTrainedModel, call: AttentionCall, wires: Wiring) -> Makers:
    of: dict[Role, Origin | None]
    of = {"query": wires.query, "key": wires.key, "value": wires.value}
    rows = {role: _rows(model, origin, role) for role, origin in of.items()}
    return Makers(call.module, call.layer, call.kind, call.heads, call.kv_heads, rows)


def _rows(model: PreTrainedModel, origin: Origin | None, role: Role) -> Rows | str:
    try:
        projection, rows = rows_of(origin, role)
        owner = projection.name.rpartition(".")[0]
        weight = _strip(model, owner, projection.weight)
        bias = None if projection.bias is None else _strip(model, owner, projection.bias)
    except NoMatrix as why:
        return str(why)
    return Rows(weight, bias, rows, projection.inner is not None)


def _strip(model: PreTrainedModel, owner: str, part: Tensor) -> Strip:
    """Find a matrix or bias that was used among a module's parameters, by its memory."""
    parameters = dict(model.get_submodule(owner).named_parameters(recurse=False))
    if any(parameter.is_meta for parameter in parameters.values()):
        raise NoMatrix("its weights are too large for the memory and come from disk as it runs")
    for name, parameter in parameters.items():
        first = int(part.storage_offset()) - int(parameter.storage_offset())
        same = part.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr()
        dense = torch.empty_like(parameter, device="meta").stride() == parameter.stride()
        if same and dense and parameter.dtype == part.dtype and 0 <= first < parameter.numel():
            return Strip(owner, name, first, tuple(part.shape), tuple(part.stride()))
    raise NoMatrix("its weights are quantised or are turned into others before they are used")


# --- what takes the place of what

Exchange = tuple[Role, int, Role, int]  # a role and head, and those that take their place


@dataclass(frozen=True, eq=False)
class _Move:
    """The rows of one head that take the place of those of one head."""

    target: Rows
    head: int
    source: Rows
    source_head: int

    @property
    def places(self) -> tuple[tuple[tuple[str, int], tuple[str, int]], ...]:
        """Where each row goes and where it comes from."""
        to, by = self.target.places(self.head), self.source.places(self.source_head)
        return tuple(zip(to, by, strict=True))


class _Changes:
    """Collects what is asked for; raises `UnreadableModel` where it cannot be done."""

    def __init__(self, model: PreTrainedModel, known: Sequence[Makers]) -> None:
        self.model, self.known = model, known
        self.modules = list(dict.fromkeys(one.module for one in known))
        self.moves: list[_Move] = []
        self.taken: dict[tuple[str, int], tuple[str, int]] = {}

    def tie(self, tying: Tying) -> None:
        """Add one tying."""
        meant = [one for one in self.known if tying.is_at(one)]
        if not meant:
            where = "it has" if tying.layer is None else f"its layer {tying.layer} has"
            raise _refusal(self.model, f"{where} no softmax attention that attnviz can see")
        modules = {one.module for one in meant}
        if any(one.module in modules and not tying.is_at(one) for one in self.known):
            clause = "its layers share their matrices, so that none of them can be changed alone"
            raise _refusal(self.model, clause)
        before = len(self.moves)
        for one in meant:
            try:
                self._tie(one, tying)
            except NoMatrix as why:
                kind = ", cross-attention" if one.kind == "cross" else ""
                raise _refusal(self.model, f"in layer {one.layer}{kind}, {why}") from why
        if len(self.moves) == before:
            raise _refusal(self.model, "what is to be made alike is one and the same already")

    def made(self) -> list[_Exchanged]:
        """The parameters that are exchanged, with what takes their place."""
        found: dict[str, _Exchanged] = {}
        parameters = dict(self.model.named_parameters(remove_duplicate=False))

        def old(part: Strip, rows: Tensor) -> Tensor:
            return part.within(parameters[part.path].detach())[rows]

        def new(part: Strip) -> _Exchanged:
            return found.setdefault(part.path, _Exchanged(part, parameters[part.path]))

        for move in self.moves:
            rows, target, source = move.target.of[move.head], move.target, move.source
            others = source.of[move.source_head]
            bias = None if source.bias is None else old(source.bias, others)
            exchanged = new(target.weight)
            exchanged.write(target.weight, rows, old(source.weight, others))
            if target.bias is not None:
                new(target.bias).write(target.bias, rows, bias)
            else:
                exchanged.add(target.weight, rows, bias)
        return list(found.values())

    def _tie(self, one: Makers, tying: Tying) -> None:
        moves = [_move(one, *exchange) for exchange in self._exchanges(one, tying)]
        touched = {id(move.target) for move in moves}
        moves = [move for move in moves if any(to != by for to, by in move.places)]
        others = {
            place
            for rows in one.rows.values()
            if isinstance(rows, Rows) and id(rows) not in touched
            for head in range(len(rows.of))
            for place in rows.places(head)
        }
        for to, by in (pair for move in moves for pair in move.places):
            if to in others:
                raise NoMatrix("one and the same matrix serves in several roles")
            if self.taken.setdefault(to, by) != by:
                raise NoMatrix(
                    "several heads share what would have to become another one for each of them; "
                    "one head alone can be changed"
                )
        self.moves += moves

    def _exchanges(self, one: Makers, tying: Tying) -> list[Exchange]:
        """What a tying means in one call."""
        if tying.head is not None and not 0 <= tying.head < one.heads:
            raise NoMatrix(f"there are {one.heads} heads and no head {tying.head}")
        heads = range(one.heads) if tying.head is None else [tying.head]
        pairs = [(head, one.kv_head(head)) for head in heads]
        groups = list(dict.fromkeys(group for _, group in pairs))
        if tying.way == "K := V":
            return [("key", group, "value", group) for group in groups]
        if tying.way == "V := K":
            return [("value", group, "key", group) for group in groups]
        if tying.way == "values shuffled":
            dice = np.random.default_rng([tying.seed, self.modules.index(one.module)])
            return _shuffled(one, None if tying.head is None else groups[0], dice)
        own: list[Exchange] = [("query", head, "key", group) for head, group in pairs]
        if tying.way == "Q := K":
            return own
        return own + [("key", group, "query", head) for head, group in pairs]


def _shuffled(one: Makers, group: int | None, dice: np.random.Generator) -> list[Exchange]:
    """One round through all value heads, so that none keeps its own, or one pair of them."""
    rows = _of_role(one, "value")
    first: dict[tuple[int, ...], int] = {}
    same = [first.setdefault(tuple(each), at) for at, each in enumerate(rows.of.tolist())]
    heads = list(first.values())
    if len(heads) < 2:
        raise NoMatrix("it has one value head alone, and none to take its place")
    if group is None:
        order = dice.permutation(heads).tolist()
    else:
        others = [head for head in heads if head != same[group]]
        order = [same[group], int(dice.choice(others))]
    return [("value", a, "value", b) for a, b in zip(order, order[1:] + order[:1], strict=True)]


def _of_role(one: Makers, role: Role) -> Rows:
    rows = one.rows[role]
    if isinstance(rows, str):
        raise NoMatrix(rows)
    return rows


def _move(one: Makers, role: Role, head: int, other: Role, other_head: int) -> _Move:
    """Raises `NoMatrix` where the rows of one do not fit in the place of the other."""
    target, source = _of_role(one, role), _of_role(one, other)
    what, whose = ROLES[role], ROLES[other]
    if role != other and (target.latent or source.latent):
        latent = what if target.latent else whose
        raise NoMatrix(f"its {latent} are made from a latent vector, not from x by one matrix")
    widths = target.of.shape[1], source.of.shape[1]
    if widths[0] != widths[1]:
        raise NoMatrix(f"its {what} have {widths[0]} numbers and its {whose} {widths[1]}")
    if target.weight.size[1] != source.weight.size[1]:
        raise NoMatrix(f"its {what} and its {whose} are made of vectors of different widths")
    return _Move(target, head, source, other_head)


# --- what the run is given


class _Exchanged:
    """One parameter and what takes its place.

    `biased` says whether the bias beside it, if any, is exchanged as well; `added` is one that the
    model's own product does not have.
    """

    def __init__(self, part: Strip, parameter: nn.Parameter) -> None:
        self.path, self.owner, self.parameter = part.path, part.owner, parameter
        self.new = nn.Parameter(parameter.detach().clone(), requires_grad=False)
        self.added: Tensor | None = None
        self.biased = True

    def write(self, part: Strip, rows: Tensor, values: Tensor | None) -> None:
        """Put values, or 0, in some rows."""
        place = part.within(self.new.detach())
        place[rows] = 0.0 if values is None else values.to(place.dtype)

    def add(self, part: Strip, rows: Tensor, bias: Tensor | None) -> None:
        """Let a product that has no bias get one in some rows."""
        self.biased = False
        if bias is not None:
            if self.added is None:
                self.added = self.new.new_zeros(part.size[0])
            self.added[rows] = bias.to(self.added.dtype)

    @cached_property
    def instead(self) -> Tensor:
        """The parameter itself where nothing is changed in it, so that no bit is."""
        return self.parameter if torch.equal(self.parameter, self.new) else self.new


class _Exchange(TorchFunctionMode):
    """Gives this thread's operations other tensors in the place of parameters."""

    def __init__(self, model: PreTrainedModel, exchanged: Sequence[_Exchanged]) -> None:
        super().__init__()
        self.model, self.places = model, Places(model)
        self.exchanged: dict[int, list[_Exchanged]] = {}  # modules may share a parameter
        for one in exchanged:
            self.exchanged.setdefault(id(one.parameter), []).append(one)
        self.unused = {one.path for one in exchanged}
        self.obstacles: list[str] = []

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        met: list[_Exchanged] = []
        given = [self._exchanged(x, met) for x in args]
        named = {name: self._exchanged(x, met) for name, x in (kwargs or {}).items()}
        result = func(*given, **named)
        parts = result if isinstance(result, (tuple, list)) else [result]
        if not any(isinstance(part, Tensor) for part in parts):
            return result  # what only asks for a shape uses no number
        for one in met:
            self.unused.discard(one.path)
            if not one.biased:
                result = self._with_bias(func, one, _bias_of(func, given, named), result)
        return result

    def check(self) -> None:
        """Raise `UnreadableModel` unless everything was used."""
        clauses = [f"nothing was seen to use its {path}" for path in sorted(self.unused)]
        if found := [*self.obstacles, *clauses]:
            raise _refusal(self.model, found[0])

    def _exchanged(self, operand: Any, met: list[_Exchanged]) -> Any:
        if type(operand) in (list, tuple):
            return type(operand)(self._exchanged(x, met) for x in operand)
        found = self.exchanged.get(id(operand))
        one = found and self._of_module_at_work(found)
        if not one:
            return operand
        met.append(one)
        return one.instead

    def _of_module_at_work(self, found: list[_Exchanged]) -> _Exchanged | None:
        """That of the module whose code is running: halves of a model may share parameters."""
        module = self.places.at_work()
        if module is None:
            return None
        path = self.places.paths[id(module)]
        inside = (x for x in found if not path or f"{x.owner}.".startswith(f"{path}."))
        return next(inside, None)

    def _with_bias(self, func: Callable, one: _Exchanged, bias: Any, result: Any) -> Any:
        """Add the bias that came with other rows, where the model's own product has none."""
        if bias is not None:
            self.obstacles.append(f"the bias beside its {one.path} could not be followed")
        if one.added is None:
            return result
        if func is not nn.functional.linear:
            self.obstacles.append(f"no bias can be given to the product with its {one.path}")
            return result
        return result + one.added.to(result.dtype)


def _bias_of(func: Callable, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a product adds, None if nothing."""
    place, name = BIASES.get(getattr(func, "__name__", ""), (None, ""))
    if place is None:
        return None
    return given[place] if place < len(given) else named.get(name)
