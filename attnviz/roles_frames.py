"""The lookup on the blackboard as tidy frames: the one place that spells their column names.

| frame | one row | columns |
|---|---|---|
| table | an item | symbol, key, content, its vector |
| matched | an item | item, symbol, vector, product, score, logit, weight, asked |
| returned | a number of an item's vector | item, symbol, weight, vector, dimension, value, asked |
| output | a number of the output | dimension, holds, value, kept |
| read | an item's content | item, content, product, value, asked, answer |
| outcomes | a variant | variant, kept, found, right |

`product` spells a sum of products as one writes it on a blackboard.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from attnviz import roles
from attnviz.roles import TABLE, VARIANTS, Lookup, Part, Variant

COMMA = ",\u00a0"  # between the numbers of a vector, which no line is to break
DECIMALS = 3  # at most, of a number that is written
HOLDS: dict[Part, tuple[str, ...]] = {
    "key": ("key", "key"),
    "content": ("content", "content"),
    "sum": ("key + content", "key + content"),
    "both": ("key", "key", "content", "content"),
}


def table() -> pd.DataFrame:
    """What there is to be found."""
    keys, contents = (map(vector, roles.vectors(part).tolist()) for part in ("key", "content"))
    symbols, words = ([getattr(item, name) for item in TABLE] for name in ("symbol", "content"))
    rows = zip(symbols, keys, words, contents, strict=True)
    return pd.DataFrame(rows, columns=["symbol", "key", "content", "its vector"])


def matched(lookup: Lookup, asked: int) -> pd.DataFrame:
    """How well each item's key fits the query, from the products to the weight."""
    query, rows = lookup.query[asked].tolist(), []
    for item, key in enumerate(lookup.key.tolist()):
        numbers = [float(x[asked, item]) for x in (lookup.scores, lookup.logits, lookup.weights)]
        spelt = (TABLE[item].symbol, vector(key), products(query, key))
        rows.append((item, *spelt, *numbers, item == asked))
    columns = ["item", "symbol", "vector", "product", "score", "logit", "weight", "asked"]
    return pd.DataFrame(rows, columns=columns)


def returned(lookup: Lookup, asked: int) -> pd.DataFrame:
    """What each item brings: its weight times each number of the vector that is returned."""
    weights, values = lookup.weights[asked].tolist(), lookup.value.tolist()
    rows = [
        (item, TABLE[item].symbol, weights[item], vector(value), place, weights[item] * number)
        for item, value in enumerate(values)
        for place, number in enumerate(value)
    ]
    columns = ["item", "symbol", "weight", "vector", "dimension", "value"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(asked=frame["item"] == asked)


def output(lookup: Lookup, variant: Variant, asked: int) -> pd.DataFrame:
    """The sum of what all items bring: what each number holds, and whether W_O keeps it."""
    kept = (roles.output_matrix(variant).abs().sum(-1) > 0).tolist()
    values = lookup.output[asked].tolist()
    holds = HOLDS[variant.returned]
    rows = zip(range(len(values)), holds, values, kept, strict=True)
    return pd.DataFrame(rows, columns=["dimension", "holds", "value", "kept"])


def read(lookup: Lookup, asked: int) -> pd.DataFrame:
    """What is read of the output: its product with each content."""
    kept, contents = lookup.read[asked].tolist(), roles.vectors("content").tolist()
    rows = [
        (
            item,
            row.content,
            products(contents[item], kept),
            float(lookup.readings[asked, item]),
            item == asked,
            item == lookup.answer(asked),
        )
        for item, row in enumerate(TABLE)
    ]
    columns = ["item", "content", "product", "value", "asked", "answer"]
    return pd.DataFrame(rows, columns=columns)


def outcomes(sharpness: float) -> pd.DataFrame:
    """How many of the six questions each variant matches, and answers, rightly.

    `kept` counts the numbers that one must keep of each item: a vector in both roles counts once.
    """
    rows, every = [], range(len(TABLE))
    for name, variant in VARIANTS.items():
        done = roles.lookup(variant, sharpness)
        kept = done.d_k + (done.value.shape[-1] if variant.matched != variant.returned else 0)
        found = sum(done.found(asked) == asked for asked in every)
        right = sum(done.answer(asked) == asked for asked in every)
        rows.append((name, kept, found, right))
    return pd.DataFrame(rows, columns=["variant", "kept", "found", "right"])


# --- as on a blackboard


def vector(numbers: Iterable[float]) -> str:
    """(3, −4)."""
    return f"({COMMA.join(map(written, numbers))})"


def products(first: Iterable[float], second: Iterable[float]) -> str:
    """3·3 + (−4)·1."""
    pairs = zip(first, second, strict=True)
    return " + ".join(f"{factor(a)}·{factor(b)}" for a, b in pairs)


def factor(number: float) -> str:
    """A number as it stands in a product."""
    return f"({written(number)})" if number < 0 else written(number)


def written(number: float) -> str:
    """A number with as many decimals as it has, but few, and a true minus."""
    rounded = round(number, DECIMALS)
    return f"{rounded:.{DECIMALS}f}".rstrip("0").rstrip(".").replace("-", "−") if rounded else "0"
