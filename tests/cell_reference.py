"""What surrounds the attention calls of a model, by hand: an independent reference.

Forward hooks see what enters and leaves the modules of a model. Which of them are W_Q, W_K, W_V
and W_O, and which of their rows and columns belong to a head, is written out in `cell_recipes`;
the rest is plain torch. What the attention itself was given and gave is told by
`eager_reference` and `own_reference`.
"""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import tiny_models
import torch
import transformers as hf
from cell_recipes import RECIPES, ROLES, Cut, Recipe
from eager_reference import Reference, noting_eager_functions
from own_reference import own_reference
from torch import Tensor, nn

from attnviz.models import BUNDLED, MINILM_PACKAGE

BATCH = 2
REAL = ("bundled", "minilm")


@dataclass(frozen=True)
class Product:
    """Some numbers of the vectors of one role: those that one matrix makes."""

    matrix: str  # the name of the parameter
    weight: Tensor  # (head, width, d_in)
    bias: Tensor | None  # (head, width)
    entering: Tensor  # (batch, token, d_in)
    x: Tensor  # (batch, token, d_model)

    @property
    def made(self) -> Tensor:
        """(batch, head, token, width)"""
        made = torch.einsum("btd,hwd->bhtw", self.entering, self.weight)
        return made if self.bias is None else made + self.bias[:, None]


@dataclass(frozen=True)
class Mixed:
    """W_O by heads, what it is given, and what it gives."""

    matrix: str
    weight: Tensor  # (head, d_model, d_v)
    bias: Tensor | None  # (d_model)
    given: Tensor  # (batch, head, query, d_v)

    @property
    def sum(self) -> Tensor:
        """(batch, query, d_model)"""
        whole = torch.einsum("bhqv,hmv->bqm", self.given, self.weight)
        return whole if self.bias is None else whole + self.bias


@dataclass(frozen=True)
class Surroundings:
    """One attention call of a model, and all that leads into it and out of it."""

    module: str
    recipe: Recipe
    real: Reference
    query: tuple[Product, ...]
    key: tuple[Product, ...]
    value: tuple[Product, ...]
    unrotated: tuple[Tensor, Tensor] | None
    bias: Tensor | None
    sinks: Tensor | None
    gate: Tensor | None  # (batch, head, query, d_v)
    mixed: Mixed | None
    before: Tensor
    added: Tensor
    after: Tensor
    beside: Tensor | None
    positions: tuple[str, Tensor] | None

    def made(self, role: str) -> Tensor:
        """(batch, head, token, width)"""
        return torch.cat([product.made for product in getattr(self, role)], dim=-1)


class Seen:
    """What went through each module: its first input and its output, run after run."""

    def __init__(self) -> None:
        self.inputs: dict[str, list[Tensor]] = defaultdict(list)
        self.outputs: dict[str, list[Tensor]] = defaultdict(list)


@contextmanager
def seen_by_hooks(model: nn.Module) -> Iterator[Seen]:
    """Copies, as a model may write into its own tensors."""
    seen, hooks = Seen(), []
    for path, module in model.named_modules():

        def enters(module, given, named, path=path):
            first = given[0] if given else named.get("hidden_states")
            if isinstance(first, Tensor):
                seen.inputs[path].append(first.clone())

        def leaves(module, given, output, path=path):
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                seen.outputs[path].append(first.clone())

        hooks.append(module.register_forward_pre_hook(enters, with_kwargs=True))
        hooks.append(module.register_forward_hook(leaves))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Run:
    """One run of one layer."""

    model: nn.Module
    seen: Seen
    recipe: Recipe
    layer: str
    time: int

    def path(self, below: str) -> str:
        return f"{self.layer}.{below}".strip(".")

    def enters(self, below: str) -> Tensor:
        return self._tokens(self.seen.inputs[self.path(below)][self.time])

    def leaves(self, below: str) -> Tensor:
        return self._tokens(self.seen.outputs[self.path(below)][self.time])

    def _tokens(self, tensor: Tensor) -> Tensor:
        """(batch, token, width); some have an axis more, or one less."""
        tensor = tensor.transpose(0, 1) if self.recipe.tokens_first else tensor
        return tensor.reshape(BATCH, -1, tensor.shape[-1])

    def parameter(self, below: str) -> Tensor | None:
        found = dict(self.model.named_parameters()).get(self.path(below))
        return None if found is None else found.detach()

    def product(self, cut: Cut, heads: int) -> Product:
        weight, bias = self.parameter(cut.matrix), None
        name, taker = cut.matrix, cut.matrix.rpartition(".")[0]
        if weight is None:
            name, taker = f"{cut.matrix}.weight", cut.matrix
            weight, bias = self.parameter(name), self.parameter(f"{cut.matrix}.bias")
            if type(self.model.get_submodule(self.path(taker))).__name__ != "Conv1D":
                weight = weight.T
        weight = weight.flatten(1)  # (d_in, d_out)
        rows = torch.tensor([cut.rows(head) for head in range(heads)])
        return Product(
            self.path(name),
            weight.T[rows],
            None if bias is None else bias[rows],
            self.enters(taker),
            self.enters(cut.x or taker),
        )

    def mixed(self, real: Reference) -> Mixed | None:
        cut = self.recipe.mixed
        if cut is None:
            return None
        columns = torch.tensor([cut.rows(head) for head in range(self.recipe.heads)])
        if (weight := self.parameter(cut.matrix)) is not None:
            by_heads = weight.flatten(1)[:, columns].transpose(0, 1)
            return Mixed(self.path(cut.matrix), by_heads, None, real.output)
        weight, bias = (self.parameter(f"{cut.matrix}.{name}") for name in ("weight", "bias"))
        if type(self.model.get_submodule(self.path(cut.matrix))).__name__ == "Conv1D":
            weight = weight.T
        return Mixed(
            self.path(f"{cut.matrix}.weight"),
            weight[:, columns].transpose(0, 1),
            bias,
            self.enters(cut.matrix)[..., columns].transpose(1, 2),
        )

    def unrotated(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """What was made, or what their norms made of it."""
        if not self.recipe.rotated:
            return None
        if self.recipe.norms is None:
            return query, key
        outputs = (self.seen.outputs[self.path(norm)][self.time] for norm in self.recipe.norms)
        shapes = (made.transpose(1, 2).shape for made in (query, key))
        first, second = (
            output.transpose(1, 2) if output.shape == made.shape else output.reshape(shape)
            for output, made, shape in zip(outputs, (query, key), shapes, strict=True)
        )
        return first.transpose(1, 2), second.transpose(1, 2)

    def positions(self, tokens: int) -> tuple[str, Tensor] | None:
        if self.recipe.positions is None:
            return None
        name, first = self.recipe.positions
        table = dict(self.model.named_parameters())[name].detach()
        return name, table.reshape(-1, table.shape[-1])[first : first + tokens]

    def around(self, real: Reference) -> Surroundings:
        recipe = self.recipe
        sizes = (recipe.heads, recipe.kv_heads, recipe.kv_heads)
        query, key, value = (
            tuple(self.product(cut, heads) for cut in getattr(recipe, role))
            for role, heads in zip(ROLES, sizes, strict=True)
        )
        made = (torch.cat([product.made for product in role], -1) for role in (query, key))
        before = self.enters(recipe.before)
        after = self.enters(recipe.after) if recipe.beside is None else self.leaves("")
        queries, keys = real.logits.shape[-2:]
        return Surroundings(
            self.path(recipe.attention),
            recipe,
            real,
            query,
            key,
            value,
            self.unrotated(*made),
            None if recipe.bias is None else recipe.bias(self.seen, queries, keys),
            self.parameter(f"{recipe.attention}.sinks"),
            None if recipe.gate is None else self.product(recipe.gate, sizes[0]).made.sigmoid(),
            self.mixed(real),
            before,
            self.leaves(recipe.added) if recipe.added else after - before,
            after,
            None if recipe.beside is None else self.leaves(recipe.beside),
            self.positions(queries),
        )


def surroundings(family: str) -> list[Surroundings]:
    """Every attention call of one run of a family, in order."""
    model, inputs, noted = model_of(family, "eager"), inputs_for(family), []
    noting = noting_eager_functions(model, noted)
    with noting, seen_by_hooks(model) as seen, torch.no_grad():
        model(**inputs)
    noted = noted or own_reference(model, inputs)
    order = _by_module(model, noted)
    runs = [
        Run(model, seen, recipe, f"{recipe.layer}.{number}", time)
        for recipe in RECIPES[family]
        for number in recipe.runs
        for time in range(recipe.times)
    ]
    found, taken = {}, Counter()
    for run in runs:
        module = run.path(run.recipe.attention)
        place = order[module][taken[module]]
        taken[module] += 1
        found[place] = run.around(noted[place])
    assert sorted(found) == list(range(len(noted)))
    return [found[place] for place in sorted(found)]


def _by_module(model: nn.Module, noted: list[Reference]) -> dict[str, list[int]]:
    """Places in the list of the calls of each module."""
    paths = {module: path for path, module in model.named_modules()}
    order = defaultdict(list)
    for place, real in enumerate(noted):
        order[paths[real.part]].append(place)
    return order


@cache
def model_of(family: str, attention: str = "sdpa") -> hf.PreTrainedModel:
    """A model of a family; MiniLM, where it is not installed, skips the test."""
    if family not in REAL:
        only = family in tiny_models.EAGER_ONLY
        return tiny_models.build(family, "eager" if only else attention)
    model_class, folder = hf.AutoModelForCausalLM, BUNDLED
    if family == "minilm":
        package = importlib.util.find_spec(MINILM_PACKAGE)
        if package is None:
            pytest.skip("MiniLM is not installed.")
        model_class, folder = hf.AutoModel, Path(str(package.origin)).parent / "model"
    model = model_class.from_pretrained(
        folder, attn_implementation=attention, dtype=torch.float32, local_files_only=True
    )
    return model.eval()


def inputs_for(family: str) -> dict[str, Tensor]:
    """Two texts, or pictures, of the same length."""
    if family not in REAL:
        return tiny_models.inputs_for(family, batch=BATCH)
    dice = torch.Generator().manual_seed(1)
    ids = torch.randint(1000, 3000, (BATCH, 13), generator=dice)
    ids[:, 0] = {"bundled": 0, "minilm": 101}[family]  # <|bos|>, [CLS]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
