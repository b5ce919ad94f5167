"""What a head's matrices multiply to, and how symmetric its scores are: worked out once, kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import streamlit as st

from attnviz.ui import cells
from attnviz.ui.readings import MAX_TOKENS, Asked, in_a_sentence, loaded, served
from attnviz.ui.views import Place, call_of

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attnviz.capture import AttentionCall
    from attnviz.circuits import OutputValue, QueryKey, Spectrum
    from attnviz.wiring import Wiring

Found = TypeVar("Found")

IN_VIEW = 64  # tokens of a picture of scores
MOST_PRODUCTS = 10**9  # of numbers, for the shares of all heads at once; beyond, one layer's
DRAWS, DRAWN_TOKENS, SEED = 64, 256, 7  # of random vectors, as many numbers each as the head's
CUT = 64  # tokens of a long text from which the products are worked out
AT_ONCE = 256  # rows of scores


@dataclass(frozen=True)
class Pair:
    """Two tokens, by position, whose two directions differ most: query → key, and back."""

    query: int
    key: int
    forth: float
    back: float


@dataclass(frozen=True)
class Symmetry:
    """Scores of some tokens among themselves, before the mask, and their symmetric shares.

    `share` and `centred` are those of the whole text; `shares` has other heads and random vectors
    beside. `pair` is None where all pairs in view have one score.
    """

    scores: pd.DataFrame
    tokens: pd.DataFrame
    share: float
    centred: float
    shares: pd.DataFrame
    drawn: tuple[float, float]
    pair: Pair | None
    top: float


@dataclass(frozen=True)
class Product:
    """One of a head's two products. `error` is how far what comes of it is from the model's.

    It is relative to the largest number. `names` are the two factors' paths in the model, `sizes`
    the rows and columns of the product.
    """

    spectrum: Spectrum
    error: float
    names: tuple[str, str]
    sizes: tuple[int, int]


@dataclass(frozen=True)
class Products:
    """W_QK and W_OV of a head, each a sentence where it cannot be had.

    Where a rotation stands between queries and keys, `rotated`, W_QK is that before it. `tokens`
    are how many were read for it, and `cut` says that there are more in the text.
    """

    query_key: Product | str
    output_value: Product | str
    rotated: bool
    tokens: int
    cut: bool


# --- symmetry


def symmetry(place: Place, start: int) -> Symmetry:
    """How symmetric a head's scores are; `start` is the first token in view.

    Raises `NotServed` with a sentence where no pair of tokens has two directions.
    """
    from attnviz import circuits_frames as frames

    call = call_of(place)
    with in_a_sentence():
        share, centred = _shares(call, place.head)
    rows = slice(start, min(start + IN_VIEW, call.n[0]))
    values = _scores(call, place.head, rows)
    reading = served(place.asked, None)
    tokens = frames.axis(reading.queries(call), tuple((at,) for at in range(rows.start, rows.stop)))
    scores = frames.matrix(values, tokens, tokens)
    drawn = _drawn(min(call.n[0], DRAWN_TOKENS), int(call.d_k or 1))
    heads = _of_heads(replace(place, head=0), place)
    table = frames.shares(heads, (place.layer, place.head), drawn)
    top = float(values.abs().max()) or 1.0
    return Symmetry(
        scores, tokens, share, centred, table, _mean_and_spread(drawn), _pair(values, start), top
    )


def _shares(call: AttentionCall, head: int) -> tuple[float, float]:
    from attnviz.circuits import symmetric_share

    return symmetric_share(call, head), symmetric_share(call, head, centred=True)


def _scores(call: AttentionCall, head: int, rows: slice) -> Tensor:
    """q·k of some tokens among themselves, whatever a mask hides."""
    from attnviz.weight_blocks import scores_of

    return scores_of(call, 0, slice(head, head + 1), rows, rows)[0]


def _pair(scores: Tensor, start: int) -> Pair | None:
    """The pair whose two scores differ most; the direction with the larger one first."""
    apart = scores - scores.mT
    query, key = divmod(int(apart.argmax()), len(scores))
    if float(apart[query, key]) <= 0:
        return None
    return Pair(start + query, start + key, float(scores[query, key]), float(scores[key, query]))


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _of_heads(of_layer: Place, _place: Place) -> dict[tuple[int, int], tuple[float, float]]:
    """Shares of all heads of the part, or of the layer where those would take long."""
    from attnviz.capture import UnreadableModel

    calls = served(_place.asked, None).calls(_place.part)
    work = sum(call.heads * call.n[0] * (call.d_k or 0) ** 2 for call in calls.values())
    some = calls if work <= MOST_PRODUCTS else {_place.layer: calls[_place.layer]}
    found = {}
    for layer, call in some.items():
        for head in range(call.heads):
            try:
                found[layer, head] = _shares(call, head)
            except UnreadableModel:  # it has none, as where all of its scores are 0
                continue
    return found


@st.cache_resource(max_entries=16, show_spinner=False)
def _drawn(n: int, d_k: int) -> tuple[tuple[float, float], ...]:
    """Shares of independent standard normal queries and keys."""
    import torch

    from attnviz.attention_call import AttentionCall

    dice = torch.Generator().manual_seed(SEED)
    query, key = (torch.randn(1, DRAWS, n, d_k, generator=dice) for _ in range(2))
    drawn = AttentionCall(
        "", 0, "decoder", "self", query, key, key, 1.0, None, None, None, None, 0.0
    )
    return tuple(_shares(drawn, head) for head in range(DRAWS))


def _mean_and_spread(drawn: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    from statistics import fmean, stdev

    plain = [share for share, _ in drawn]
    return fmean(plain), stdev(plain)


# --- products


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def products(place: Place) -> Products:
    """The two products of a head, and what comes of them against the model's own numbers."""
    from attnviz import circuits

    call, wiring, cut = _read(place)
    query_key = _or_why(circuits.query_key, call, wiring, place.head)
    output_value = _or_why(circuits.output_value, call, wiring, place.head)
    return Products(
        query_key if isinstance(query_key, str) else _of_scores(call, query_key, place.head),
        output_value
        if isinstance(output_value, str)
        else _of_output(call, output_value, wiring, place.head),
        rotated=not isinstance(query_key, str) and query_key.rotated,
        tokens=max(call.n),
        cut=cut,
    )


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def at_distance(place: Place, distance: int) -> Product | str:
    """W_QK of a rotated head for one distance: place of the query less that of the key."""
    return _or_why(_at_distance, place, distance)


def _of_scores(call: AttentionCall, found: QueryKey, head: int) -> Product:
    """Those captured, or those before rotation."""
    from attnviz import attention

    real = attention.scores_unrotated(call, head) if found.rotated else attention.scores(call, head)
    assert real is not None
    blocks = (slice(start, start + AT_ONCE) for start in range(0, len(real), AT_ONCE))
    error = max(float((found.scores(rows) - real[rows]).abs().max()) for rows in blocks)
    return _product(found, error / _largest(real))


def _at_distance(place: Place, distance: int) -> Product:
    """The scores of one distance lie on a diagonal: one for each query, at most."""
    from attnviz import attention, circuits

    call, wiring, _ = _read(place)
    found = circuits.query_key(call, wiring, place.head)
    made = circuits.at_distance(call, found, place.head, distance)
    real = attention.scores(call, place.head).diagonal(-distance)
    error = float((made.scores().diagonal(-distance) - real).abs().max())
    return _product(made, error / _largest(real))


def _product(found: QueryKey, error: float) -> Product:
    names = found.query.name, found.key.name
    sizes = found.query.weight.shape[1], found.key.weight.shape[1]
    return Product(found.spectrum(), error, names, sizes)


def _of_output(call: AttentionCall, found: OutputValue, wiring: Wiring, head: int) -> Product:
    from attnviz import attention

    assert wiring.output is not None
    weights = attention.weights(call, head)
    real = attention.output(call, head).double() @ found.output.mT
    error = float((found.into_stream(weights) - real).abs().max())
    names = wiring.output.projection.name, found.value.name
    sizes = len(found.output), found.value.weight.shape[1]
    return Product(found.spectrum(), error / _largest(real), names, sizes)


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().max()) or 1.0


# --- what was read


def _read(place: Place) -> tuple[AttentionCall, Wiring, bool]:
    """A call and what surrounds it, of a long text that of its beginning: it is run once more."""
    reading = served(place.asked, None)
    texts = [x for x in (reading.inputs.source, reading.inputs.target) if x is not None]
    if max(map(len, texts), default=0) > MAX_TOKENS:
        return *_of_beginning(place.asked, place.part, place.layer), True
    return call_of(place), cells.wiring(place.asked, place.part, place.layer), False


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _of_beginning(asked: Asked, part: str, layer: int) -> tuple[AttentionCall, Wiring]:
    from attnviz.capture import capture
    from attnviz.wiring import wiring

    model, reading = loaded(asked.model).model, served(asked, None)
    given = {
        name: tensor if tensor.is_floating_point() else tensor[:, :CUT]
        for name, tensor in reading.inputs.tensors.items()
    }
    read = capture(model, given)
    call = replace(reading, capture=read).calls(part)[layer]
    return call, wiring(model, given, read, call)


def _or_why(work: Callable[..., Found], *given: object) -> Found | str:
    """What `work` returns, or the sentence that says why it cannot be had."""
    from attnviz.capture import UnreadableModel

    try:
        return work(*given)
    except UnreadableModel as problem:
        return str(problem)
