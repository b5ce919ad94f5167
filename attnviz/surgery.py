"""Change how sharply a real model attends, for one run, and measure what that does to it.

Multiplying a query by a number multiplies all its scores, as another divisor would: soft cap,
position terms, mask and sinks follow in the model's own order and stay as they are. Only the run
sees it: queries are multiplied on their way into the attention function that transformers hands
out, in this thread's context alone, or where a model computes attention by itself, among its own
operations (`trace`). The model's configuration and weights are never touched, and other threads
that run the same model see nothing.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnviz.attention_call import AttentionCall, UnreadableModel
from attnviz.families import other_attention
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

    from attnviz.inputs import Inputs
    from attnviz.models import LoadedModel

MASKED_SHARE = 0.15  # of the tokens at a time, as BERT was trained (Devlin et al. 2019)
MASKING_SEED = 0
ROWS_AT_ONCE = 256  # of logits over a vocabulary, which may hold hundreds of thousands
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
        with _performed(operation):
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


# --- models that ask transformers for an attention function

_operation: ContextVar[_Operation | None] = ContextVar("attnviz_operation", default=None)
_installing = threading.Lock()


@contextmanager
def _performed(operation: _Operation) -> Iterator[None]:
    """Let this thread's attention calls be changed."""
    _install()
    token = _operation.set(operation)
    try:
        with operation.trace:
            yield
    finally:
        _operation.reset(token)


def _install() -> None:
    """Let `get_interface` hand out other functions, but only where there is an operation."""
    with _installing:
        try:
            from transformers.modeling_utils import AttentionInterface

            original = AttentionInterface.get_interface
        except (ImportError, AttributeError):  # another version: `check` will miss the calls
            return
        if hasattr(original, "operable"):
            return

        @functools.wraps(original)
        def get_interface(self: Any, attn_implementation: str, default: Callable) -> Callable:
            function = original(self, attn_implementation, default)
            operation = _operation.get()
            return function if operation is None else _changed(operation, function)

        get_interface.operable = True  # type: ignore[attr-defined]
        AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]


def _changed(operation: _Operation, function: Callable) -> Callable:
    @functools.wraps(function)
    def changed(module: nn.Module, query: Tensor, *others: Any, **named: Any) -> Any:
        with operation.trace.rest():  # what happens in there is done already
            query = operation.multiplied(query, operation.at(module))
            result = function(module, query, *others, **named)
        operation.trace.age()
        return result

    return changed


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


# --- what it does


@dataclass(frozen=True)
class Outcome:
    """What a model made of its inputs.

    `loss` is −log of the probability of each token in nats, NaN where none was predicted, and
    `predicted` says how: each token from those before it, each masked token from the others, or
    not at all. `next_token` are the probabilities of the token after the last one, None where
    none is written. `output` is what is compared where there is no loss, None where there is one.
    """

    predicted: Literal["from before", "masked", "not"]
    loss: Float[Tensor, " token"] | None
    next_token: Float[Tensor, " vocabulary"] | None
    output: Float[Tensor, ...] | None

    @property
    def mean_loss(self) -> float | None:
        """Mean over the tokens that were predicted, in nats; None where none was."""
        if self.loss is None or bool(self.loss.isnan().all()):
            return None
        return float(self.loss.nanmean())

    @property
    def entropy(self) -> float | None:
        """Entropy in nats of what comes next, None where nothing does."""
        p = self.next_token
        return None if p is None else float(torch.special.entr(p).sum())


def outcome(loaded: LoadedModel, inputs: Inputs, scalings: Sequence[Scaling] = ()) -> Outcome:
    """Run a model with some heads' scores multiplied, and measure.

    A model that writes text predicts each token from those before it, the first one not at all;
    an encoder–decoder those of its target. A masked language model is run a few times: a seeded
    drawing puts each token that is not special into one of seven groups, and each group is masked
    once (Devlin et al. 2019 mask 15 %). Of any other model the output itself is kept.
    Raises `UnreadableModel` as `scaled` does.
    """
    model, given = loaded.model, inputs.tensors
    mask = getattr(loaded.tokenizer, "mask_token_id", None)
    if type(model).__name__.endswith("ForMaskedLM") and inputs.source and mask is not None:
        special = torch.tensor(inputs.source.special)
        return Outcome("masked", _masked_loss(model, given, scalings, special, mask), None, None)
    output = scaled(model, given, scalings)
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    if ids is None or not _predicts(model, output, ids):
        return Outcome("not", None, None, _last(output))
    logits: Tensor = output.logits[0]
    loss = torch.cat([torch.full((1,), torch.nan), _loss(logits[:-1], ids[0, 1:])])
    return Outcome("from before", loss, logits[-1].float().log_softmax(-1).exp().cpu(), None)


def _predicts(model: PreTrainedModel, output: Any, ids: Tensor) -> bool:
    """Whether there are logits over the vocabulary for what follows each token."""
    logits = getattr(output, "logits", None)
    known = isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == ids.shape
    return known and model.can_generate()


def likeliest(before: Outcome, after: Outcome, count: int = 10) -> tuple[int, ...]:
    """Ids of the tokens that are likeliest to come next before or after, the likeliest first.

    None where one of the two predicts nothing.
    """
    if before.next_token is None or after.next_token is None:
        return ()
    either = torch.maximum(before.next_token, after.next_token)
    return tuple(either.topk(min(count, len(either))).indices.tolist())


def relative_change(before: Outcome, after: Outcome) -> float | None:
    """‖after − before‖ / ‖before‖ of the outputs, None where they are not kept."""
    if before.output is None or after.output is None:
        return None
    return float((after.output - before.output).norm() / before.output.norm())


def _loss(logits: Float[Tensor, "token vocabulary"], ids: Tensor) -> Float[Tensor, " token"]:
    """Cross-entropy of each row with the token that is there, a block at a time."""
    rows = zip(logits.split(ROWS_AT_ONCE), ids.split(ROWS_AT_ONCE), strict=True)
    losses = [nn.functional.cross_entropy(x.float(), i, reduction="none") for x, i in rows]
    return torch.cat(losses).cpu()


def _masked_loss(
    model: PreTrainedModel,
    given: Mapping[str, Tensor],
    scalings: Sequence[Scaling],
    special: Tensor,
    mask: int,
) -> Float[Tensor, " token"]:
    """The loss of each token that is not special, in the run in which it is masked."""
    ids, groups = given["input_ids"], round(1 / MASKED_SHARE)
    tokens = (~special).nonzero().flatten()
    dice = torch.Generator().manual_seed(MASKING_SEED)
    shuffled = tokens[torch.randperm(len(tokens), generator=dice)]
    loss = torch.full(special.shape, torch.nan)
    for group in filter(len, (shuffled[i::groups] for i in range(groups))):
        hidden = ids.clone()
        hidden[0, group] = mask
        logits = scaled(model, {**given, "input_ids": hidden}, scalings).logits
        loss[group] = _loss(logits[0, group], ids[0, group])
    return loss


def _last(output: Any) -> Tensor:
    """The vectors that leave the last layer, or else the first numbers that a model returns."""
    for name in ("last_hidden_state", "logits", "logits_per_text"):
        if isinstance(found := getattr(output, name, None), Tensor):
            return found.float().cpu()
    return next(x for x in output.values() if isinstance(x, Tensor)).float().cpu()
