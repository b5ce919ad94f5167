"""A head as the page of heads shows it: which numbers, of which tokens, as much as fits.

Up to `WHOLE` tokens the numbers of a head are worked out once, folded and shared out anew as
asked for. Of longer texts only those rows are worked out that a picture needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import streamlit as st

from attnviz.ui import cells, heads
from attnviz.ui.heads import WhichHead
from attnviz.ui.readings import Asked, NotServed, served

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attnviz.capture import AttentionCall
    from attnviz.folding import Positions
    from attnviz.reading import Reading
    from attnviz.surroundings import Wiring
    from attnviz.tokens import Tokens
    from attnviz.windows import Blocks

CELLS = 300  # rows and columns of a picture: a browser gets at most 270 kB for it
WHOLE = 2048  # tokens; their matrix takes 16 MiB
FOLLOWED = 512  # tokens with which a model runs once more, to follow W_O
Found = TypeVar("Found")


@dataclass(frozen=True)
class How:
    """What is weighed, over which heads, and what becomes of the tokens.

    The words are those of `Selection`.
    """

    weighed: Literal["weights", "norms", "scores", "logits"] = "weights"
    over: Literal["head", "mean_heads", "max_heads", "mean_layers", "max_layers", "rollout"] = (
        "head"
    )
    without: Literal["nothing", "first", "special"] = "nothing"
    words: bool = False
    pairing: Literal["all", "AA", "AB", "BA", "BB"] = "all"

    @property
    def of_tokens(self) -> bool:
        """Whether rows and columns are the model's own tokens, none of them missing."""
        return (self.without, self.words, self.pairing) == ("nothing", False, "all")

    @property
    def own(self) -> bool:
        """Whether the numbers are the weights that the head itself has."""
        return self.of_tokens and (self.weighed, self.over) == ("weights", "head")


@dataclass(frozen=True)
class Place:
    """A head of a model on a text."""

    asked: Asked
    part: str
    layer: int
    head: int

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others, and from the same head of a model saved anew."""
        return (*self.asked.key, self.part, self.layer, self.head)


def call_of(place: Place) -> AttentionCall:
    """The attention call that the head is in, however long its text is."""
    return served(place.asked, None).calls(place.part)[place.layer]


@dataclass(frozen=True)
class Axes:
    """All rows and columns there are: position of their first token, `last`, word, special."""

    queries: pd.DataFrame
    keys: pd.DataFrame


@dataclass(frozen=True)
class View:
    """A picture's numbers: cells by the position of their first tokens, NaN where hidden.

    `downsampled` is True where a cell is the largest of several; `windowed` where there is more
    than what is in view. `heads` is how many the layer has, `sinks` whether they have learned
    sinks. `query` and `key` are those of the chosen cell.
    """

    head: WhichHead
    heads: int
    how: How
    cross: bool
    sinks: bool
    numbers: pd.DataFrame
    queries: pd.DataFrame
    keys: pd.DataFrame
    query: int
    key: int
    downsampled: bool
    windowed: bool


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a head as asked for: any rows and columns of them, by index."""

    part: Callable[[slice, slice], Tensor]
    queries: Positions
    keys: Positions

    @property
    def size(self) -> tuple[int, int]:
        return len(self.queries), len(self.keys)


def axes(place: Place, how: How) -> Axes:
    """The tokens, words or sentences that look and that are looked at."""
    return _axes(replace(place, head=0), how, place)


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _axes(of_layer: Place, how: How, _place: Place) -> Axes:
    """The same for all heads of a layer; worked out with the one at hand."""
    reading = served(_place.asked, None)
    call, numbers = reading.calls(_place.part)[_place.layer], _numbers(_place, how)
    return Axes(
        _axis(reading.queries(call), numbers.queries), _axis(reading.keys(call), numbers.keys)
    )


def view(place: Place, how: How, zoom: int, query: int, key: int) -> View:
    """What a picture of the head shows.

    `zoom` is how many rows and columns about the chosen cell are in view, 0 for all. Raises
    `NotServed`.
    """
    reading = served(place.asked, None)
    call, numbers = reading.calls(place.part)[place.layer], _numbers(place, how)
    all_axes = axes(place, how)
    at = (_row(all_axes.queries, query), _row(all_axes.keys, key))
    windowed = 0 < zoom < max(numbers.size)
    rows, columns = (
        _about(row, zoom, size) if windowed else slice(0, size)
        for row, size in zip(at, numbers.size, strict=True)
    )
    blocks = _largest(numbers, rows, columns) if windowed else _blocks(place, how)
    values, steps = blocks.values, (len(blocks.queries[0]), len(blocks.keys[0]))
    queries = _in_blocks(all_axes.queries.iloc[rows], steps[0])
    keys = _in_blocks(all_axes.keys.iloc[columns], steps[1])
    return View(
        head=heads.which(reading, place.part, place.layer, place.head),
        heads=call.heads,
        how=how,
        cross=call.kind == "cross",
        sinks=call.sinks is not None,
        numbers=_frame(values, queries, keys),
        queries=queries,
        keys=keys,
        query=int(queries["position"].iloc[_row(queries, query)]),
        key=int(keys["position"].iloc[_row(keys, key)]),
        downsampled=steps != (1, 1),
        windowed=windowed,
    )


def nearest(tokens: pd.DataFrame, position: int) -> int:
    """The row in which a position lies, or that before it, by its first token's position."""
    return int(tokens.index[_row(tokens, position)])


def of_a_picture(place: Place) -> bool:
    """Whether the tokens that look are parts of a picture."""
    reading = served(place.asked, None)
    call = reading.calls(place.part)[place.layer]
    return reading.inputs.picture is not None and call.kind == "self" and call.tower != "text"


def checked(place: Place) -> Place:
    """The same; raises `NotServed` where the model, the text or the head cannot be shown."""
    reading = served(place.asked, None)
    call = reading.calls(place.part).get(place.layer) if place.part in reading.parts else None
    if call is None or place.head >= call.heads:
        raise NotServed(
            f"There is no layer {place.layer}, head {place.head} ({place.part}) in the model whose "
            "head was pinned. Let it go, or pin another."
        )
    return place


def row(place: Place, how: How, query: int) -> pd.Series:
    """One query's numbers by the position of each key, NaN where hidden."""
    import pandas as pd

    found = axes(place, how)
    at = _row(found.queries, query)
    values = _numbers(place, how).part(slice(at, at + 1), slice(None))[0]
    return pd.Series(values.numpy(), index=found.keys.index)


def everything(place: Place, how: How) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """All numbers, whatever is in view, and both axes."""
    found = axes(place, how)
    values = _numbers(place, how).part(slice(None), slice(None))
    return _frame(values, found.queries, found.keys), found.queries, found.keys


def opening_key(place: Place, how: How, query: int) -> int:
    """The key with the largest number in a query's row; the first where it has none."""
    found = row(place, how, query)
    return int(found.index[0] if found.isna().all() else found.abs().idxmax())


def strongest(place: Place, view: View, query: int, key: int) -> tuple[int, int]:
    """The cell that a cell of a downsampled picture stands for; others stand for themselves."""
    if not view.downsampled:
        return query, key
    numbers, found = _numbers(place, view.how), axes(place, view.how)
    spans = []
    for tokens, position, all_tokens in (
        (view.queries, query, found.queries),
        (view.keys, key, found.keys),
    ):
        first = all_tokens.index.get_loc(position)
        last = _row(all_tokens, int(tokens["last"][position]))
        spans.append(slice(first, last + 1))
    values = numbers.part(*spans).abs().nan_to_num(-1.0)
    down, across = divmod(int(values.argmax()), values.shape[1])
    return (
        int(found.queries.index[spans[0].start + down]),
        int(found.keys.index[spans[1].start + across]),
    )


# --- numbers


def _numbers(place: Place, how: How) -> _Numbers:
    from attnviz.windows import runs

    call = call_of(place)
    place = place if how.over == "head" else replace(place, head=0)  # pooled: the same for all
    if max(call.n) <= WHOLE:
        whole = _whole(place, how)
        return _Numbers(
            lambda rows, columns: whole.values[rows, columns], whole.queries, whole.keys
        )
    if not how.of_tokens or how.over in ("mean_layers", "max_layers", "rollout"):
        raise NotServed(
            f"Of texts of more than {WHOLE:,} tokens, single heads and those of one layer "
            "together are shown, token by token. Choose “this head” and all tokens, or a shorter "
            "text."
        )
    of_rows = _of_rows(place, how)
    return _Numbers(of_rows, *(runs(tokens) for tokens in call.n))


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _whole(place: Place, how: How) -> Blocks:
    """All numbers of a head, with the tokens that its rows and columns stand for."""
    from attnviz import folding

    reading = served(place.asked, None)
    call = reading.calls(place.part)[place.layer]
    tokens = (reading.queries(call), reading.keys(call))
    blocks = folding.of_tokens(_of_rows(place, how)(slice(None), slice(None)))
    if how.without != "nothing":
        left_out = [_left_out(of, how.without) for of in tokens]
        rows = () if call.kind == "cross" else left_out[0]
        blocks = folding.leave_out(blocks, left_out[1], rows, divide=how.weighed == "weights")
    if how.words:
        blocks = folding.fold_words(blocks, tokens[0].words, tokens[1].words)
    if how.pairing != "all":
        blocks = folding.segment(blocks, tokens[0].segments, tokens[1].segments, how.pairing)
    if not blocks.values.numel():
        raise NotServed("Nothing is left of these tokens. Leave out fewer of them.")
    return blocks


@st.cache_resource(max_entries=24, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _blocks(place: Place, how: How) -> Blocks:
    """All of a head in as many cells as a picture has."""
    numbers = _numbers(place, how)
    return _largest(numbers, *(slice(0, size) for size in numbers.size))


def _largest(numbers: _Numbers, rows: slice, columns: slice) -> Blocks:
    """Some rows and columns in as many cells as a picture has."""
    from attnviz.windows import by_largest

    def some(inner: slice) -> Tensor:
        return numbers.part(slice(rows.start + inner.start, rows.start + inner.stop), columns)

    return by_largest(some, (rows.stop - rows.start, columns.stop - columns.start), CELLS)


def _of_rows(place: Place, how: How) -> Callable[[slice, slice], Tensor]:
    """A function that works out some rows and columns of the model's own tokens."""
    from attnviz import pooling, weighing
    from attnviz.windows import window

    reading = served(place.asked, None)
    calls = reading.calls(place.part)
    call = calls[place.layer]
    over, _, of = how.over.partition("_")
    pooled: pooling.How = "mean" if over == "mean" else "maximum"
    if how.over == "rollout":
        whole = _rollout(reading, place.part)
        return lambda rows, columns: whole[rows, columns]
    if of == "layers":
        return lambda rows, columns: _told(pooling.over_layers, calls, pooled, rows, columns)
    if of == "heads":
        return lambda rows, columns: pooling.over_heads(call, pooled, rows, columns)
    if how.weighed == "norms":
        wiring = _wiring(place, call)
        return lambda rows, columns: weighing.weighed(call, wiring, place.head, rows, columns)
    if how.weighed in ("scores", "logits") and call.query is None:
        raise NotServed("This model offers its weights only, no queries and keys as such.")
    what = how.weighed
    return lambda rows, columns: window(call, place.head, rows, columns, what)


def _rollout(reading: Reading, part: str) -> Tensor:
    from attnviz import pooling

    return _told(pooling.rollout, reading.calls(part), reading.unread(part))


def _wiring(place: Place, call: AttentionCall) -> Wiring:
    from attnviz import weighing

    if max(call.n) > FOLLOWED:
        raise NotServed(
            f"Lengths of values are worked out for texts of at most {FOLLOWED} tokens, since the "
            "model runs once more for them. Choose bare weights, or a shorter text."
        )
    wiring = cells.wiring(place.asked, place.part, place.layer)
    if told := weighing.refusal(wiring):
        raise NotServed(f"{told} Choose bare weights.")
    return wiring


def _told(work: Callable[..., Found], *given: object) -> Found:
    """What `work` returns; its reason why not becomes a sentence for the person."""
    try:
        return work(*given)
    except ValueError as problem:
        raise NotServed(str(problem)) from problem


# --- tokens


def _left_out(tokens: Tokens, without: str) -> Sequence[int]:
    if without == "first":
        return [0]
    return [at for at, special in enumerate(tokens.special) if special]


def _axis(tokens: Tokens, spans: Positions) -> pd.DataFrame:
    from attnviz import folding, frames

    axis = frames.token_axis(
        folding.labels(spans, tokens.labels), [tokens.special[span[0]] for span in spans]
    )
    axis["position"] = [span[0] for span in spans]
    return axis.assign(last=[span[-1] for span in spans]).set_index("position", drop=False)


def _in_blocks(tokens: pd.DataFrame, step: int) -> pd.DataFrame:
    """Every step-th token of an axis, as the first of its block."""
    if step == 1:
        return tokens
    last = [*tokens["last"].iloc[step - 1 :: step]]
    first = tokens.iloc[::step]
    return first.assign(last=[*last, tokens["last"].iloc[-1]][: len(first)])


def _row(tokens: pd.DataFrame, position: int) -> int:
    """The index of the row in which a position lies, or of the nearest before it."""
    return max(0, int(tokens["position"].searchsorted(position, side="right")) - 1)


def _about(place: int, zoom: int, size: int) -> slice:
    """So many rows with this one in the middle, as far as there are some."""
    start = min(max(0, place - zoom // 2), max(0, size - zoom))
    return slice(start, min(size, start + zoom))


def _frame(values: Tensor, queries: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(values.numpy(), index=queries.index, columns=keys.index)
