"""Remember how the tensors of a running model came about, for as long as it matters.

A `Trace` sees every operation on tensors that its own thread makes, and changes none. It keeps
the few kinds that lead from a projection to the softmax and from there to the output, so that
what entered a product can be followed back: before its rotation, or before its scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Operations that move numbers about without changing them; dropout rests outside of training.
MOVES = frozenset(
    {
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "contiguous"),
        *("transpose", "swapaxes", "permute", "movedim", "mT", "squeeze", "unsqueeze", "t", "T"),
        *(
            "expand",
            "expand_as",
            "repeat",
            "repeat_interleave",
            "clone",
            "detach",
            "narrow",
            "__getitem__",
            "dropout",
        ),
        *("chunk", "split", "tensor_split", "unbind", "view_as_complex", "view_as_real"),
        *(PRECISIONS := ("to", "type", "type_as", "float", "double", "half", "bfloat16")),
    }
)
JOINS = frozenset({"cat", "stack", "concat"})
SOFTMAX = frozenset({"softmax", "_softmax"})
PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum"})
FUSED = "scaled_dot_product_attention"
ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "neg", "tanh", "masked_fill", "where", "maximum", "clamp"}
)
FOLLOWED = MOVES | JOINS | SOFTMAX | PRODUCTS | ARITHMETIC | {FUSED, "copy"}
SPELLINGS = {"true_divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg"}
# What these call their tensors, for those that are given by name.
NAMES = {
    "baddbmm": ("input", "batch1", "batch2"),
    "bmm": ("input", "mat2"),
    "matmul": ("input", "other"),
    "add": ("input", "other"),
    "softmax": ("input", "dim"),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "transpose": ("input", "dim0", "dim1"),
    "copy": ("input", "other"),
    FUSED: ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
}
# Wider tensors are those between projections (a feed-forward layer's, the residual stream of a
# large model): nothing leads through them, and they would cost memory.
WIDEST = 512
LONGEST = 512  # steps that may go by without attention

# torch's own function, but for the check that would hand it over to a mode instead of running it.
MULTIHEAD = FunctionType(
    (_multihead := nn.functional.multi_head_attention_forward).__code__,
    {**_multihead.__globals__, "has_torch_function": lambda tensors: False},
    argdefs=_multihead.__defaults__,
)


@dataclass(frozen=True, eq=False)
class Step:
    """One operation: its name, what went in, and the tensor that came out.

    An operand that an earlier step made is that `Step`; the first `given` of them came by place,
    the others by name. Where the function returns several tensors, `part` says which this is.
    A step in place has overwritten its first operand.
    """

    operation: str
    function: Callable
    operands: list[Any]
    options: Mapping[str, Any]
    given: int
    part: int | None
    result: Tensor
    in_place: bool

    def again(self, source: Any, place: int = 0) -> Tensor:
        """The same operation with another operand, which stays as it is: the first, or that given.

        An operand that came by name is replaced by that name.
        """
        operands = list(map(as_value, self.operands[: self.given]))
        options = {name: as_value(option) for name, option in self.options.items()}
        source = source.clone() if self.in_place else source
        if place < self.given:
            operands[place] = source
        else:
            options[NAMES[self.operation][place]] = source
        result = self.function(*operands, **options)
        return result if self.part is None else result[self.part]


def as_value(operand: Any) -> Any:
    """An operand as the function was given it: the tensor of a step, else what it is."""
    if isinstance(operand, Step):
        return operand.result
    if isinstance(operand, (list, tuple)):
        return type(operand)(map(as_value, operand)) if type(operand) in (list, tuple) else operand
    return operand


def times_written(made: Any) -> int:
    """How often a tensor, or that of a step, was written to; 0 where there is none."""
    tensor = as_value(made)
    return 0 if tensor is None or tensor.is_inference() else tensor._version


class Trace(TorchFunctionMode):
    """Sees this thread's operations while it is entered.

    `noticed` gets every step that is kept, `too_wide` the result of a softmax that is not. With
    `everything`, operations of every kind and tensors of every size are kept: only for as long
    as a layer takes, or the memory is that of all activations.
    """

    def __init__(
        self,
        noticed: Callable[[Step], None],
        too_wide: Callable[[Tensor], None] = lambda weights: None,
        *,
        everything: bool = False,
    ) -> None:
        super().__init__()
        self.noticed, self.too_wide, self.everything = noticed, too_wide, everything
        # By the id of their result, which they keep alive: those since the last call of
        # attention, and those between the last two.
        self.steps: dict[int, Step] = {}
        self.older: dict[int, Step] = {}
        self.filled: dict[int, dict[int, tuple[Tensor, Any]]] = {}
        self.used: set[int] = set()  # ids of parameters that took part
        self.resting = self.stopped = False

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Look away."""
        before, self.resting = self.resting, True
        try:
            yield
        finally:
            self.resting = before

    def age(self) -> None:
        """Let go of the older steps and of their tensors."""
        self.steps, self.older, self.filled = {}, self.steps, {}

    def forget(self) -> None:
        """Let go of all steps."""
        self.steps, self.older, self.filled = {}, {}, {}

    def stop(self) -> None:
        """Keep nothing any more."""
        self.stopped = True
        self.forget()

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is nn.functional.multi_head_attention_forward and not self.resting:
            with self:  # its parts are what there is to see
                return MULTIHEAD(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.used.update(id(x) for x in args if type(x) is nn.Parameter)
        name = _name(func)
        if (self.everything or name in FOLLOWED) and not (self.resting or self.stopped):
            # A tensor of another kind (nested, sparse) may refuse what is asked of it here; then
            # this step is not followed, and what hangs on it is not read.
            with suppress(Exception):
                self._keep(name, func, args, kwargs or {}, result)
        return result

    def _keep(self, name: str, func: Callable, args: tuple, options: dict, result: Any) -> None:
        if len(self.steps) > LONGEST:
            self.age()
        if name == "einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
            args = (args[0], *args[1])
        operands = self.traced([*args, *_by_name(name, args, options)])
        options = {key: self.traced(value) for key, value in options.items()}
        several = isinstance(result, (tuple, list))
        for part, tensor in enumerate(result if several else (result,)):
            if not isinstance(tensor, Tensor) or (tensor.dim() <= 2 and not self.everything):
                continue
            at = part if several else None
            if self.everything or tensor.shape[-1] <= WIDEST or name == FUSED:
                step = Step(name, func, operands, options, len(args), at, tensor, _in_place(func))
                self.steps[id(tensor)] = step
                self.noticed(step)
                if name == "copy" and tensor._base is not None:
                    self._fill(tensor._base, tensor, operands[1])
            elif name in SOFTMAX:
                self.too_wide(tensor)

    def _fill(self, whole: Tensor, part: Tensor, source: Any) -> None:
        """Take a tensor that is filled part by part along its last axis for a join of them."""
        parts = self.filled.setdefault(id(whole), {})
        parts[int(part.storage_offset())] = (part, source)
        in_order = [parts[offset] for offset in sorted(parts)]
        if sum(p.shape[-1] for p, _ in in_order) == whole.shape[-1]:
            sources = [source for _, source in in_order]
            self.steps[id(whole)] = Step("cat", torch.cat, [sources, -1], {}, 2, None, whole, False)

    def traced(self, operand: Any) -> Any:
        """The step that made a tensor, where one did; anything else as it is."""
        if isinstance(operand, Tensor):
            return self.steps.get(id(operand)) or self.older.get(id(operand), operand)
        if type(operand) in (list, tuple):
            return type(operand)(map(self.traced, operand))
        return operand


def _by_name(operation: str, args: tuple, options: dict) -> list[Any]:
    """Operands given by name, in their places behind those given by place."""
    names = NAMES.get(operation, ())[len(args) :]
    last = max((place for place, name in enumerate(names) if name in options), default=-1)
    return [options.get(name) for name in names[: last + 1]]


def _in_place(func: Callable) -> bool:
    return bool(re.fullmatch("[a-z]\\w*[^_]_|__i[a-z]+__", getattr(func, "__name__", "")))


def _name(func: Callable) -> str:
    """`mul` for `mul_`, `torch.mul` and `*` alike."""
    name = getattr(func, "__name__", "")
    if name == "__get__":  # a property, such as Tensor.mT
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    name = name.removesuffix("_") if not name.endswith("__") else name
    return SPELLINGS.get(name, name)
