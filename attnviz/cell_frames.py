"""The numbers of one cell as tidy frames: the place that spells their column names.

| frame | one row | columns |
|---|---|---|
| strips | a number of a vector | row, dimension, value |
| match | a dimension, as drawn | place, dimension, query, key, product, running, decides |
| keys | a key, or a sink at the end | key, token, visible, chosen, sink, and the terms: |
| | | score, logit, exponential, weight, brought |
| heads | a head of the layer | head, length, chosen |
| curve | a distance | distance, value, chosen, kind |
| dimension_numbers | a dimension | dimension, and one column for each vector |
| match_numbers | a dimension, as drawn | dimension, q, k, q·k, decides, running sum |
| key_numbers | a visible key, most weight first | key, token, and the terms that the model has |

Numbers keep the digits of the float32 that they are, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnviz.cell import Cell, IntoStream
from attnviz.distance import DistanceCurve

DECIDING = 0.5  # part of what speaks for the score that the deciding dimensions make together,
MOST_DECIDING = 6  # but never more dimensions than one takes in
SINK = "learned sink"
TERMS = {  # columns of `keys` and what a table calls them
    "weight": "weight",
    "exponential": "exponential",
    "logit": "logit",
    "score": "score",
    "brought": "share brought",
}


def strips(vectors: Mapping[str, Float[Tensor, " dimension"]]) -> pd.DataFrame:
    """Several vectors of one width, each under its name, one number a row."""
    parts = [
        pd.DataFrame({"row": name, "dimension": range(len(vector)), "value": _digits(vector)})
        for name, vector in vectors.items()
    ]
    return pd.concat(parts, ignore_index=True)


def match(cell: Cell, order: Literal["dimension", "size"] = "dimension") -> pd.DataFrame:
    """q·k dimension by dimension; `size` puts the largest products first, whatever their sign.

    `running` sums the products from the left. Raises `ValueError` where the model offers no
    queries and keys as such.
    """
    if cell.match is None or cell.query is None or cell.key is None:
        raise ValueError("This head offers weights only, no queries and keys.")
    frame = pd.DataFrame(
        {
            "dimension": range(len(cell.match.products)),
            "query": _digits(cell.query.used),
            "key": _digits(cell.key.used),
            "product": _digits(cell.match.products),
        }
    )
    frame["decides"] = frame["dimension"].isin(deciding(cell.match.products, cell.match.score))
    if order == "size":
        frame = frame.sort_values("product", key=lambda x: -x.abs(), kind="stable")
    frame.insert(0, "place", range(len(frame)))
    frame.insert(5, "running", _rounded(frame["product"].cumsum().to_numpy()))
    return frame.reset_index(drop=True)


def deciding(products: Float[Tensor, " d_k"], score: float) -> tuple[int, ...]:
    """The few dimensions that decide a score, largest product first.

    They are the smallest set whose products reach half of all those with the sign of the score,
    at most six; none where the score is 0.
    """
    towards = np.maximum(products.double().numpy() * np.sign(score), 0)
    largest = np.argsort(-towards, kind="stable")[: int((towards > 0).sum())]
    reached = np.cumsum(towards[largest])
    needed = int((reached < DECIDING * towards.sum()).sum()) + 1
    return tuple(int(dimension) for dimension in largest[: min(needed, MOST_DECIDING)])


def keys(cell: Cell, tokens: Sequence[str], *, with_sink: bool = False) -> pd.DataFrame:
    """The whole row of the cell, key by key; NaN for what the model does not offer.

    `brought` is each key's share of what all keys bring. A learned sink, if there is one and it
    is asked for, is one more row: it takes a weight and brings nothing.
    """
    row = pd.DataFrame({"key": range(len(tokens)), "token": list(tokens)})
    row["visible"] = _visible(cell)
    row["chosen"] = row["key"] == cell.value.token
    row["sink"] = False
    row["score"] = np.nan if cell.match is None else _digits(cell.match.row)
    row["logit"] = np.nan if cell.logit is None else _digits(cell.logit.row)
    row["exponential"] = np.nan if cell.softmax is None else _digits(cell.softmax.exponentials)
    row["weight"] = _digits(cell.weights)
    row["brought"] = _shares(cell.retrieved.brought)
    if with_sink and cell.sink_share is not None:
        row = pd.concat([row, _sink(cell, len(row))], ignore_index=True)
    return row


def heads(into_stream: IntoStream, chosen: int) -> pd.DataFrame:
    """How long each head's part of the stream is."""
    lengths = _digits(into_stream.heads)
    frame = pd.DataFrame({"head": range(len(lengths)), "length": lengths})
    return frame.assign(chosen=frame["head"] == chosen)


def curve(curve: DistanceCurve, distance: int) -> pd.DataFrame:
    """A curve over distance, from near to far; that of the cell is chosen."""
    frame = pd.DataFrame({"distance": curve.distance.numpy(), "value": _digits(curve.value)})
    frame = frame.sort_values("distance", kind="stable", ignore_index=True)
    return frame.assign(chosen=frame["distance"] == distance, kind=curve.kind)


# --- to be read aloud


def dimension_numbers(strips: pd.DataFrame) -> pd.DataFrame:
    """The vectors of a `strips` side by side, dimension by dimension."""
    table = strips.pivot(index="dimension", columns="row", values="value")
    return table[strips["row"].unique()].reset_index().rename_axis(columns=None)


def match_numbers(match: pd.DataFrame) -> pd.DataFrame:
    """A `match` in the order in which it is drawn."""
    names = {"query": "q", "key": "k", "product": "q·k", "running": "running sum"}
    return match.drop(columns="place").rename(columns=names)


def key_numbers(keys: pd.DataFrame) -> pd.DataFrame:
    """The visible rows of a `keys`, most weight first, without terms that the model has not."""
    seen = keys[keys["visible"]].sort_values("weight", ascending=False, kind="stable")
    table = seen[["key", "token", *TERMS]].rename(columns=TERMS)
    return table.dropna(axis="columns", how="all").reset_index(drop=True)


def _digits(numbers: Float[Tensor, " place"]) -> Float[np.ndarray, " place"]:
    return _rounded(numbers.numpy())


def _rounded(numbers: Float[np.ndarray, " place"]) -> Float[np.ndarray, " place"]:
    """The float64 that is written like the float32: 0.1, and not 0.10000000149."""
    return numbers.astype(np.float32).astype(str).astype(np.float64)


def _visible(cell: Cell) -> list[bool]:
    seen = cell.weights > 0 if cell.logit is None else cell.logit.row.isfinite()
    return seen.tolist()


def _shares(brought: Float[Tensor, " key"]) -> Float[np.ndarray, " key"]:
    return _digits(brought / brought.sum().clamp(min=1e-30))


def _sink(cell: Cell, place: int) -> pd.DataFrame:
    term = np.nan if cell.softmax is None or cell.softmax.sink is None else cell.softmax.sink
    shift = 0.0 if cell.softmax is None else cell.softmax.shift
    logit = np.log(term) + shift if term > 0 else np.nan
    numbers = {"weight": cell.sink_share, "exponential": term, "logit": logit}
    row = {name: _rounded(np.array([number])) for name, number in numbers.items()}
    fixed = {"key": place, "token": SINK, "visible": True, "chosen": False, "sink": True}
    return pd.DataFrame(row | fixed | {"score": np.nan, "brought": 0.0})
