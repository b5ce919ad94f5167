"""Which head should I look at? Scores of all heads for every kind of `patterns`.

A score alone says little: it is given beside what even weights over the visible keys would get,
and beside what the best of all heads gets by chance, with each row's targets moved at random
among the keys that it sees. Weights are computed a block at a time and left again, so that
n × n of all heads never lie in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from attnviz.attention_call import AttentionCall
from attnviz.capture import capture
from attnviz.head_statistics import entropy
from attnviz.inputs import Inputs
from attnviz.patterns import FARTHEST, Axes, Kind, axes, kinds
from attnviz.reading import Reading
from attnviz.tokens import from_ids, model_inputs, tokenize
from attnviz.weight_blocks import WeightBlock, visible_keys, weight_blocks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from attnviz.models import LoadedModel

DRAWS = 20  # how often targets are moved at random
MOVED_ROWS = 256  # rows whose targets are moved, at most
SEEDS = range(5)
REPEATED = 50  # random tokens, as Crosbie and Shutova 2024
FEWEST = 5  # random tokens that are worth repeating
BROAD = 0.9  # relative entropy from which on a head that does nothing else is called broad
PROBE = "a"


@dataclass(frozen=True)
class Scores:
    """One kind's scores of all heads of one call.

    `score` is NaN where no token can tell. `even` is the score of even weights over the visible
    keys. `moved` holds, for each draw, the largest score of the heads once the targets of each
    row were moved at random; NaN for a kind without targets. `offset` is the distance that
    scored best, key minus query, where the kind has one for each head. `rows` is the number of
    tokens that could tell.
    """

    score: Float[Tensor, " head"]
    even: float
    moved: Float[Tensor, " draw"]
    rows: int
    offset: Int[Tensor, " head"] | None = None


def of_layer(reading: Reading, part: str, layer: int) -> dict[str, Scores]:
    """All heads of one layer of what a model read, by the names of the kinds.

    Raises `KeyError` where nothing was read of that layer.
    """
    call = reading.calls(part)[layer]
    queries, keys, cross = reading.queries(call), reading.keys(call), call.kind == "cross"
    tokens = axes(queries, keys, cross=cross, first=_first_key(call, 0))
    return scores(call, tokens, kinds(queries, keys, cross=cross))


def scores(
    call: AttentionCall, tokens: Axes, asked: Sequence[Kind], batch: int = 0
) -> dict[str, Scores]:
    """All heads of a call, for one sequence of the batch, by the names of the kinds asked for.

    Rows that stand for no token are left out. A key counts as visible if any head sees it. For
    what chance gives, the targets of at most `MOVED_ROWS` rows, evenly spaced, are turned round
    the ring of the keys that the row sees, `DRAWS` times by a random angle, the same for all
    heads and layers.
    """
    tallies = {kind: _Tally.empty(call.heads, kind) for kind in asked}
    turns = torch.rand(DRAWS, call.n[0], generator=torch.Generator().manual_seed(0))
    blocks = weight_blocks(call, batch)
    for _, of_rows in groupby(blocks, key=lambda block: block.queries.start):
        aims: dict[Kind, _Aim] = {}
        seen: Bool[Tensor, "query key"] | None = None
        for block in of_rows:
            if seen is None:
                seen = _seen(call, batch, block)
                of_block = turns[:, block.queries]
                aims = {kind: _aim(kind, tokens, block, seen, of_block) for kind in asked}
            for kind, tally in tallies.items():
                if kind.targets:
                    tally.add(block, aims[kind])
                else:
                    tally.add_entropy(block, seen)
    return {kind.name: tally.scores(kind) for kind, tally in tallies.items()}


def by_chance(of_layers: Iterable[Scores]) -> float:
    """What the best head of all these layers gets by chance, in 19 of 20 draws at most.

    NaN where there is nothing to move.
    """
    moved = torch.stack([layer.moved for layer in of_layers]).nan_to_num(-1.0).amax(0)
    return float(moved.quantile(0.95)) if bool((moved >= 0).all()) else float("nan")


def best_kind(
    found: Mapping[str, Scores], head: int, chance: Mapping[str, float], broad: str = "broad"
) -> str:
    """The kind by which a head exceeds even weights most, "" if by none more than by chance.

    A head that exceeds chance by none, and spreads its rows, is broad.
    """
    excess = {
        name: float(of.score[head]) - of.even
        for name, of in found.items()
        if of.score[head] > chance[name] and of.score[head] > of.even
    }
    if excess:
        return max(excess, key=lambda name: excess[name])
    return broad if broad in found and found[broad].score[head] >= BROAD else ""


# --- random tokens, repeated


def repeated(loaded: LoadedModel, given: Inputs, seed: int) -> Inputs | None:
    """What a model is given to find its heads on: random tokens twice, r + r.

    r holds different ordinary tokens, `REPEATED` or what the model has positions for. A text
    begins and ends with the special tokens that its tokenizer adds, or begins with its [BOS]
    all the same; what a decoder reads after an encoder begins as what it was `given`. None
    where the model reads no text, or has no room for it.
    """
    tokenizer = loaded.tokenizer
    written = given.target or given.source
    if tokenizer is None or written is None:
        return None
    before, after = _edges(tokenizer)
    start = list(given.target.ids[:1]) if given.target else []
    room = (loaded.card.max_tokens or 4 * REPEATED) - max(len(before) + len(after), len(start))
    r = _random_tokens(loaded, min(REPEATED, room // 2), seed)
    if len(r) < FEWEST:
        return None
    tensors = dict(given.tensors)
    source, target = given.source, given.target
    if source is not None:
        source = from_ids(tokenizer, [*before, *r, *r, *after])
        tensors.pop("token_type_ids", None)  # of a pair of texts; these are one
        tensors |= model_inputs(source)
    if target is not None:
        target = from_ids(tokenizer, [*start, *r, *r])
        tensors["decoder_input_ids"] = torch.tensor([target.ids])
    return replace(given, tensors=tensors, source=source, target=target)


def read_repeated(loaded: LoadedModel, reading: Reading, seed: int) -> Reading | None:
    """What the model does with random tokens given twice; None as for `repeated`.

    Raises `UnreadableModel` where the model cannot run on them.
    """
    inputs = repeated(loaded, reading.inputs, seed)
    if inputs is None:
        return None
    return replace(reading, inputs=inputs, capture=capture(loaded.model, inputs.tensors))


def _edges(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text."""
    probe = tokenize(tokenizer, PROBE)
    words = [place for place, apart in enumerate(probe.special) if not apart]
    before, after = list(probe.ids[: words[0]]), list(probe.ids[words[-1] + 1 :])
    start = tokenizer.bos_token_id
    return before or ([start] if isinstance(start, int) else []), after


def _random_tokens(loaded: LoadedModel, count: int, seed: int) -> list[int]:
    """Different tokens of letters, in random order; of any signs where there are too few."""
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    size = min(len(tokenizer), getattr(loaded.model.config, "vocab_size", None) or len(tokenizer))
    apart = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    shuffled = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
    ordinary = [i for i in shuffled if i not in apart]
    some = from_ids(tokenizer, ordinary[: 20 * max(0, count)])
    named = zip(some.ids, some.labels, strict=True)
    words = [i for i, label in named if label.strip("␣…").isalpha()]
    return (words if len(words) >= count else ordinary)[: max(0, count)]


# --- rows, targets, sums


def _first_key(call: AttentionCall, batch: int) -> int:
    """The first key that the first row which stands for a token sees."""
    for block in weight_blocks(call, batch):
        seen = _seen(call, batch, block)
        rows = seen.any(-1)
        if bool(rows.any()):
            return block.keys.start + int(seen[int(rows.int().argmax())].int().argmax())
    return 0


def _seen(call: AttentionCall, batch: int, block: WeightBlock) -> Bool[Tensor, "query key"]:
    """Which keys of a block are visible; none to a row that stands for no token."""
    rows, keys = block.queries, block.keys
    visible = visible_keys(call, batch, rows, keys)
    if visible is None:
        seen = torch.ones(rows.stop - rows.start, keys.stop - keys.start, dtype=torch.bool)
    else:
        seen = visible.any(0)
    if call.query_padding is not None:
        seen = seen & ~call.query_padding[batch, rows, None]
    return seen


@dataclass(frozen=True)
class _Aim:
    """The targets of some rows, as pairs of a query and a key of a block.

    Pairs belong to groups: one for each offset, or one for all. `rows` counts the rows of each
    group that have a target, `even` sums what even weights would give them; `moved_…` are the
    same for the rows whose targets are moved.
    """

    query: Int[Tensor, " pair"]
    key: Int[Tensor, " pair"]
    group: Int[Tensor, " pair"]
    rows: Float64[Tensor, " group"]
    even: Float64[Tensor, " group"]
    moved_query: Int[Tensor, " moved"]
    moved_key: Int[Tensor, "draw moved"]
    moved_group: Int[Tensor, " moved"]
    moved_rows: Float64[Tensor, " group"]


def _aim(
    kind: Kind,
    tokens: Axes,
    block: WeightBlock,
    seen: Bool[Tensor, "query key"],
    turns: Float[Tensor, "draw query"],
) -> _Aim:
    targets = torch.zeros_like(seen)
    if kind.targets:
        targets = kind.targets(tokens, block.queries, block.keys) & seen
    query, key = targets.nonzero().unbind(1)
    group = torch.zeros_like(query)
    if kind.each_offset:
        group = key + block.keys.start - query - block.queries.start + FARTHEST
    even = torch.zeros(_groups(kind), dtype=torch.float64)
    even.index_add_(0, group, seen.sum(-1).double().reciprocal()[query])
    stride = -(-len(tokens.query_ids) // MOVED_ROWS)
    moved = (query + block.queries.start) % stride == 0
    return _Aim(
        query,
        key,
        group,
        _rows(kind, query, group),
        even,
        query[moved],
        _moved(query[moved], key[moved], seen, turns),
        group[moved],
        _rows(kind, query[moved], group[moved]),
    )


def _groups(kind: Kind) -> int:
    return 2 * FARTHEST + 1 if kind.each_offset else 1


def _rows(
    kind: Kind, query: Int[Tensor, " pair"], group: Int[Tensor, " pair"]
) -> Float64[Tensor, " group"]:
    """How many rows have a target in each group."""
    if kind.each_offset:
        return group.bincount(minlength=_groups(kind)).double()
    return torch.tensor([len(query.unique())], dtype=torch.float64)


def _moved(
    query: Int[Tensor, " pair"],
    key: Int[Tensor, " pair"],
    seen: Bool[Tensor, "query key"],
    turns: Float[Tensor, "draw query"],
) -> Int[Tensor, "draw pair"]:
    """Where the targets come to lie, when the keys that a row sees stand in a ring and turn."""
    rows, row = query.unique(return_inverse=True)
    counts = seen[rows].sum(-1)
    ring = (~seen[rows]).int().argsort(dim=-1, stable=True)  # the visible keys, in their order
    place = (seen[rows].cumsum(-1) - 1)[row, key]
    turned = place + (turns[:, query] * counts[row]).long()
    return ring[row, turned % counts[row]]


@dataclass(frozen=True)
class _Tally:
    """What is summed over the rows of a call, a block at a time."""

    moved: Float64[Tensor, "head draw group"]
    total: Float64[Tensor, "head group"]
    rows: Float64[Tensor, "head group"]
    even: Float64[Tensor, "head group"]
    moved_rows: Float64[Tensor, "head group"]

    @classmethod
    def empty(cls, heads: int, kind: Kind) -> _Tally:
        groups = (heads, _groups(kind))
        sums = (torch.zeros(groups, dtype=torch.float64) for _ in range(4))
        return cls(torch.zeros(heads, DRAWS, groups[1], dtype=torch.float64), *sums)

    def add(self, block: WeightBlock, aim: _Aim) -> None:
        """The weights of a block on their targets."""
        heads, weights = block.heads, block.weights
        self.total[heads].index_add_(1, aim.group, weights[:, aim.query, aim.key].double())
        self.rows[heads] += aim.rows
        self.even[heads] += aim.even
        moved = weights[:, aim.moved_query, aim.moved_key].double()
        self.moved[heads].index_add_(2, aim.moved_group, moved)
        self.moved_rows[heads] += aim.moved_rows

    def add_entropy(self, block: WeightBlock, seen: Bool[Tensor, "query key"]) -> None:
        """The entropy of a block's rows, relative to that of even weights."""
        count = seen.sum(-1)
        several = count > 1
        relative = entropy(block.weights)[:, several] / count[several].log()
        self.total[block.heads] += relative.double().sum(-1, keepdim=True)
        self.rows[block.heads] += several.sum()
        self.even[block.heads] += several.sum()

    def scores(self, kind: Kind) -> Scores:
        """Means over the rows; of groups, the largest of those that enough rows have."""
        rows = self.rows[0]
        enough = (rows > 0) & (2 * rows >= rows.max())
        score, group = _largest(self.total / self.rows, enough)
        even, _ = _largest(self.even[:1] / self.rows[:1], enough)
        moved_enough = enough & (self.moved_rows[0] > 0)
        moved, _ = _largest(self.moved / self.moved_rows[:, None], moved_enough)
        return Scores(
            score.float(),
            float(even),
            moved.amax(0).float(),
            int(rows.max()),
            group - FARTHEST if kind.each_offset else None,
        )


def _largest(
    means: Float64[Tensor, "*head group"], enough: Bool[Tensor, " group"]
) -> tuple[Float64[Tensor, "*head"], Int[Tensor, "*head"]]:
    """The largest mean and its group; NaN where no group has enough rows."""
    largest, group = means.masked_fill(~enough, -torch.inf).max(-1)
    return largest.where(largest.isfinite(), torch.nan), group
