"""Follows what enters one attention call, and what leaves it, through a run of its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnviz import equation
from attnviz.attention_call import AttentionCall
from attnviz.families import position_tables
from attnviz.interface import Arguments, observed_by
from attnviz.matrix_products import MatrixProduct, counted, matrix_product, whole
from attnviz.operations import NoForm, is_attention, laid_out, own_attention
from attnviz.places import Places
from attnviz.recorder import batch_size, run
from attnviz.surroundings import AddedPositions, Mixing, Origin, Projection, Stream, Wiring
from attnviz.trace import FUSED, PRODUCTS, Step, Trace, as_value, times_written
from attnviz.trail import CHANGES, FACTORS, Trail
from attnviz.verification import TOLERANCE

LOOKED_UP = {"embedding", "index_select"}


class Follower:
    """Watches one run for one call, and follows what enters and leaves it."""

    def __init__(
        self, model: PreTrainedModel, inputs: Mapping[str, Any], call: AttentionCall, at: int
    ) -> None:
        self.model, self.inputs, self.call, self.at = model, inputs, call, at
        self.batch = batch_size(model, inputs)
        self.places = Places(model)
        self.tables = {id(t): name for name, t in position_tables(model, call.module).items()}
        # Of matrices, by the id of the product's result; and how often what was multiplied had
        # been written to by then.
        self.names: dict[int, tuple[str, int]] = {}
        self.sources: dict[int, tuple[Any, Tensor]] = {}  # copies, by what they are copies of
        self.positions: AddedPositions | None = None
        self.found = Wiring()
        self.output: Tensor | None = None
        self.output_addresses: Tensor | None = None  # (batch, head, query, d_v)
        self.written = 0  # how often the output had been written to
        self.mixed: Step | None = None
        self.xs: list[Any] = []  # what the first matrices take
        # What the heads' sum was when another block's output was added to it, and both together.
        self.beside: tuple[Tensor, Tensor] | None = None

    def watch(self) -> None:
        """Run the model."""
        self.trace = Trace(self.noticed, everything=True)
        try:
            with observed_by(self), self.trace:
                run(self.model, self.inputs)
        finally:
            del self.trace  # it knows its owner: together they would keep the model alive

    def aside(self) -> AbstractContextManager[None]:
        """While an observed function computes, its operations are not the model's own."""
        return self.trace.rest()

    def note(self, module: nn.Module, given: Callable[[], Arguments], output: Any) -> None:
        """Take the call if it is the one."""
        with self.trace.rest():
            if not self._is_it(module):
                return
            arguments, trail = given(), self._trail()
            if not self._is_same_run(arguments.value):
                return
            roles = self.trace.traced([arguments.query, arguments.key, arguments.value])
            self._take(trail, *map(trail.follow, roles))
            self._await(output[0], counted(output[0]).transpose(1, 2))
            self._ask(lambda value: arguments.again(value)[0].transpose(1, 2), arguments.value)

    def noticed(self, step: Step) -> None:
        """Look at a step on the way to the call, and on from there to the stream."""
        with self.trace.rest():
            if product := matrix_product(step):
                self._multiplied(step, product)
            elif step.operation == "add":
                self._added(step)
            elif step.operation == FUSED or step.operation in PRODUCTS:
                self._attended(step)

    # --- at the call

    def _is_it(self, module: nn.Module) -> bool:
        """Whether a call is the one; what led to another one is forgotten."""
        if self.places.paths.get(id(module)) == self.call.module:
            self.at -= 1
            if self.at >= -1:  # an earlier call of the same module may be of the same vectors
                return self.at == -1
        if self.output is None:
            self.trace.forget()
            self.names.clear()
        else:
            self.trace.stop()
        return False

    def _is_same_run(self, value: Tensor) -> bool:
        """Whether the values are those captured: a model may draw at random what it looks at."""
        return _is_same(value.detach().cpu(), self.call.value)

    def _attended(self, step: Step) -> None:
        """Take a model's own operations as the call, if they are."""
        module = self.places.at_work()
        if module is None or not is_attention(step) or not self._is_it(module):
            return
        with suppress(NoForm):
            own = own_attention(step, self.batch)
            if not self._is_same_run(own.shared_value):
                return
            trail = self._trail()
            layout = laid_out(step, own, self.batch, trail.follow, counted(step.result))
            self._take(trail, layout.query, layout.key, layout.value)
            self._await(step.result, layout.output)
            if own.weights is None:
                self._ask(lambda value: step.again(value, 2), as_value(step.operands[2]))
            else:
                self.found = replace(self.found, weights=own.weights.detach().cpu())

    def _trail(self, within: str = "") -> Trail:
        """Leads back to products with a matrix, or to those inside one module only.

        Inside a module no stream is added to: that would lead to an earlier run of the module.
        """

        def is_root(made: Any) -> bool:
            name, version = self.names.get(id(as_value(made)), (None, 0))
            if name is None or not name.startswith(within):
                return False
            product = matrix_product(made)
            return product is not None and times_written(product.data) == version

        return Trail(is_root, CHANGES - {"add", "sub"} if within else CHANGES)

    def _take(
        self, trail: Trail, query: Tensor | None, key: Tensor | None, value: Tensor | None
    ) -> None:
        projections = tuple(self._projection(root) for root, _ in trail.roots)
        places = [matrix_product(root) for root, _ in trail.roots]
        query_origin, key_origin, value_origin = (
            None if found is None else _origin(trail, projections, places, found)
            for found in (query, key, value)
        )
        self.found = Wiring(query_origin, key_origin, value_origin, positions=self._positions())

    def _projection(self, root: Step) -> Projection:
        """A product with what it multiplied, and the one within the attention before that."""
        product = matrix_product(root)
        assert product is not None
        trail = self._trail(f"{self.call.module}.")
        trail.follow(product.data)
        inner = self._projection(trail.roots[0][0]) if len(trail.roots) == 1 else None
        if inner is None and self.output is None:
            self.xs.append(product.data)
        return Projection(
            self.names[id(root.result)][0],
            self._source(product),
            product.weight.detach().cpu(),
            None if product.bias is None else product.bias.detach().cpu(),
            inner,
        )

    def _source(self, product: MatrixProduct) -> Tensor:
        """A copy, as a model may write into its own tensors; one for all roles."""
        data = as_value(product.data)
        if id(data) not in self.sources:
            copied = product.by_rows(data).detach().cpu().clone()
            self.sources[id(data)] = (data, copied)
        return self.sources[id(data)][1]

    def _await(self, output: Tensor, addresses: Tensor) -> None:
        self.output, self.output_addresses = output, addresses
        self.written = times_written(output)

    def _is_output(self, made: Any) -> bool:
        """Whether this is the call's output, which nothing was written into since."""
        return as_value(made) is self.output and times_written(made) == self.written

    def _ask(self, attend: Callable[[Tensor], Tensor], value: Tensor) -> None:
        """Keep the weights that the model's own function gives, if its output is their mean."""
        with suppress(Exception):  # a function may not be made for other values
            weights = _weights_of(attend, value)
            group = weights.shape[1] // value.shape[1]
            whole_values = value.float().repeat_interleave(group, 1)
            apart = (equation.output(weights.float(), whole_values) - attend(value).float()).abs()
            if float(apart.max()) <= TOLERANCE[value.dtype] * float(whole_values.abs().max()):
                self.found = replace(self.found, weights=weights.detach().cpu())

    # --- after the call, and before

    def _multiplied(self, step: Step, product: MatrixProduct) -> None:
        """Name a product's matrix; the first that takes the call's output mixes the heads."""
        if step.operation == "add" and not self._is_of_same_module(step):
            return
        self.names[id(step.result)] = self._name(step), times_written(product.data)
        its_bias = step.operation == "add" and step.operands[0] is self.mixed
        if self.output is None or (self.found.output is not None and not its_bias):
            return
        trail = Trail(self._is_output, through=FACTORS)
        addresses = trail.follow(product.data)
        if addresses is None:
            return
        assert self.output_addresses is not None
        rows = product.by_rows(addresses)
        at = _inverse(rows, self.output.numel())[self.output_addresses]
        if bool((at < 0).any()):
            return
        mixing = Mixing(self._projection(step), at // rows.shape[1], at % rows.shape[1])
        self.found, self.mixed = replace(self.found, output=mixing), step

    def _is_of_same_module(self, bias_added: Step) -> bool:
        """Whether a bias is added by the module that has the matrix."""
        name, _ = self.names.get(id(as_value(bias_added.operands[0])), ("", 0))
        module = self.places.at_work()
        return module is not None and name.startswith(f"{self.places.paths[id(module)]}.")

    def _name(self, step: Step) -> str:
        """The path of the matrix in the model."""
        module = self.places.at_work()
        if module is None:
            return ""
        path = self.places.paths[id(module)]
        made = step.operands[0]
        product = made if step.operation == "add" else step  # a bias alone is no matrix
        used = {
            id(whole(operand))
            for operand in product.operands
            if isinstance(operand, (Step, Tensor))
        }
        own = (name for name, p in module.named_parameters() if p.dim() > 1 and id(p) in used)
        name = next(own, "")
        return f"{path}.{name}".strip(".")

    def _added(self, step: Step) -> None:
        """Look for the stream after the call, and for vectors of positions before it."""
        if self.mixed is not None:
            if self.found.stream is None:
                self._join(step)
        elif self.output is None:
            self._place(step)

    def _place(self, step: Step) -> None:
        for operand in step.operands[:2]:
            source = whole(operand)
            if isinstance(source, Step) and source.operation in LOOKED_UP:
                tables = (x for x in source.operands if id(whole(x)) in self.tables)
                source = whole(next(tables, None))
            if name := self.tables.get(id(source)):
                vectors = as_value(operand).detach().cpu()
                self.positions = AddedPositions(name, vectors.reshape(-1, *vectors.shape[-2:])[0])

    def _positions(self) -> AddedPositions | None:
        """Those that were added to the tokens of this call."""
        known = self.positions
        queries, keys = self.call.n
        if known is None or known.vectors is None or self.call.kind == "cross" or queries != keys:
            return None
        one_each = len(known.vectors) == self.call.n[0]
        return known if one_each else replace(known, vectors=None)

    def _join(self, step: Step) -> None:
        """Take the addition of the heads' sum to the stream."""
        trail = Trail(lambda made: made is self.mixed)
        found = [
            (side, addresses)
            for side in (0, 1)
            if (addresses := trail.follow(step.operands[side])) is not None
        ]
        if len(found) != 1:
            return
        ((side, addresses),) = found
        other = as_value(step.operands[1 - side])
        if not isinstance(other, Tensor) or other.shape != step.result.shape:
            return
        if self._depends_on_heads(step.operands[1 - side]) or step.options.get("alpha", 1) != 1:
            if self.beside is None and self.xs:  # W_O is not all that is done to the heads
                self.found = replace(self.found, output=None)
            self.trace.stop()
            return
        before, added = _summands(step, other, side)
        if self.beside is not None:
            alone, together = self.beside
            if not _is_same(added, together):  # something was done to both, or to one of them
                self.trace.stop()
                return
            added = alone
        if self._leads_to_x(other):
            self._take_stream(before, added, addresses)
        else:  # it is the output of another block beside this one
            self.beside = added.clone(), step.result.clone()

    def _depends_on_heads(self, made: Any) -> bool:
        """Whether anything on the way to a tensor was the call's output."""
        ahead, known = [made], set()
        while ahead:
            one = ahead.pop()
            if as_value(one) is self.output:
                return True
            if isinstance(one, (list, tuple)):
                ahead.extend(one)
            elif isinstance(one, Step) and id(one) not in known:
                known.add(id(one))
                ahead.extend([*one.operands, *one.options.values()])
        return False

    def _take_stream(self, before: Tensor, added: Tensor, addresses: Tensor) -> None:
        """Put stream and addition in the order of W_O's result; `addresses` are of its numbers."""
        product = matrix_product(self.mixed)
        assert product is not None
        assert self.found.output is not None
        plain = _result(self.found.output.projection)
        if addresses.numel() != plain.numel():  # windows with padding, which the stream has not
            self.trace.stop()
            return
        order = product.place.flatten()[addresses.flatten()].argsort()
        width = len(product.weight)
        before, added = (x.flatten()[order].view(-1, width).detach().cpu() for x in (before, added))
        changed = not _is_same(added, plain)
        stream = Stream(before.clone(), added.clone() if changed else plain, changed)
        self.found = replace(self.found, stream=stream)
        self.trace.stop()

    def _leads_to_x(self, stream: Tensor) -> bool:
        """Whether a tensor is what the heads' own vectors were made from."""
        trail = Trail(lambda made: as_value(made) is stream)
        return any(trail.follow(x) is not None for x in self.xs)


def _origin(
    trail: Trail,
    projections: tuple[Projection, ...],
    products: list[MatrixProduct | None],
    addresses: Tensor,
) -> Origin:
    """Tell for each address which number of which product it is."""
    which, place = trail.root_of(addresses)
    row, column = torch.zeros_like(which), torch.zeros_like(which)
    for index, product in enumerate(products):
        assert product is not None
        its = which == index
        d_out = len(product.weight)
        at = product.place.flatten()[place[its]]
        row[its], column[its] = at // d_out, at % d_out
    return Origin(projections, which, row, column)


def _summands(step: Step, other: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """The other summand, and that on one side of an addition, as they were before it."""
    one = as_value(step.operands[side])
    if not step.in_place:
        return other, one
    # Its first operand is overwritten by the sum.
    return (step.result - one, one) if side else (other, step.result - other)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether they are the same numbers, computed twice, in the precision of the first."""
    if one.shape != other.shape:
        return False
    return bool(((one - other).abs() <= TOLERANCE[one.dtype] * other.abs().max()).all())


def _inverse(addresses: Tensor, size: int) -> Tensor:
    """Where each address stands, −1 where it does not."""
    flat = addresses.flatten()
    at = torch.full((size,), -1)
    at[flat[flat >= 0]] = torch.arange(len(flat))[flat >= 0]
    return at


def _weights_of(attend: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Weights (batch head query key), by values that are 1 for one key and 0 for all others.

    As many keys at a time as a value has numbers: so the function is asked what it always is.
    """
    keys, width = value.shape[2:]
    parts = []
    for first in range(0, keys, width):
        ones = torch.zeros_like(value)
        some = torch.arange(first, min(first + width, keys))
        ones[:, :, some, some - first] = 1
        parts.append(attend(ones)[..., : len(some)])
    return torch.cat(parts, dim=-1)


def _result(projection: Projection) -> Tensor:
    result = projection.source.float() @ projection.weight.float().mT
    return result if projection.bias is None else result + projection.bias.float()
