"""What a head's matrices multiply to, as tidy frames: the one place that spells their columns.

| frame | one row | columns |
|---|---|---|
| axis | a token, or some in a row | position, last, token, special; by position |
| matrix | a query | one column per key, by position; values are weights or scores |
| pairs | two different tokens | position and token of both, score, turned about, difference |
| row | a key of one query | position, token, before, after |
| shares | a head, or a draw of random vectors | of, layer, head, share, centred |
| spectra | a singular value | product, index, value, relative |
| products | one of the two products | what its factors and the product itself hold |

`of` is "this head", "other heads" or "random vectors".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnviz import folding
from attnviz.circuits import Spectrum
from attnviz.folding import Positions
from attnviz.tokens import Tokens

THIS, OTHERS, RANDOM = "this head", "other heads", "random vectors"
LONGEST_RUN = 3  # tokens that are named one after the other


def axis(tokens: Tokens, spans: Positions) -> pd.DataFrame:
    """The tokens that stand for each row or column; of many in a row the first is named."""
    short = all(len(span) <= LONGEST_RUN for span in spans)
    named = folding.labels(spans, tokens.labels) if short else None
    found = [tokens.labels[span[0]] + " …" for span in spans] if named is None else [*named]
    table = pd.DataFrame(
        {
            "position": [span[0] for span in spans],
            "last": [span[-1] for span in spans],
            "token": found,
            "special": [tokens.special[span[0]] for span in spans],
        }
    )
    return table.set_index("position", drop=False).rename_axis(None)


def matrix(
    values: Float[Tensor, "query key"], queries: pd.DataFrame, keys: pd.DataFrame
) -> pd.DataFrame:
    """Numbers of pairs of tokens, whose places are those of two `axis` frames."""
    return pd.DataFrame(values.numpy(), index=queries.index, columns=keys.index)


def pairs(scores: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """A `matrix` of some tokens among themselves, pair by pair: those that differ most first."""
    values = scores.to_numpy()
    one, other = np.tril_indices(len(values), -1)
    table = pd.DataFrame({"position": tokens.index[one], "token": tokens["token"].to_numpy()[one]})
    table["other position"] = tokens.index[other]
    table["other token"] = tokens["token"].to_numpy()[other]
    table["score"], table["turned about"] = values[one, other], values[other, one]
    table["difference"] = table["score"] - table["turned about"]
    return table.sort_values("difference", key=abs, ascending=False, ignore_index=True)


def row(before: pd.DataFrame, after: pd.DataFrame, keys: pd.DataFrame, query: int) -> pd.DataFrame:
    """What one query gives each key it sees, in two matrices."""
    table = keys[["position", "token"]].reset_index(drop=True)
    table["before"], table["after"] = before.loc[query].to_numpy(), after.loc[query].to_numpy()
    return table.dropna(subset=["before", "after"], ignore_index=True)


def shares(
    heads: Mapping[tuple[int, int], tuple[float, float]],
    this: tuple[int, int],
    drawn: Iterable[tuple[float, float]],
) -> pd.DataFrame:
    """Symmetric shares of heads, by layer and head, and of random vectors; plain and centred."""
    columns = ["of", "layer", "head", "share", "centred"]
    rows = [(THIS if at == this else OTHERS, *at, *found) for at, found in heads.items()]
    rows += [(RANDOM, pd.NA, number, *found) for number, found in enumerate(drawn)]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"layer": "Int64", "head": "Int64", "share": float, "centred": float})


def spectra(found: Mapping[str, Spectrum]) -> pd.DataFrame:
    """Singular values of each product, largest first; `relative` are they to the largest."""
    parts = []
    for product, spectrum in found.items():
        values = spectrum.values.numpy()
        table = pd.DataFrame({"product": product, "index": range(1, len(values) + 1)})
        parts.append(table.assign(value=values, relative=values / (values[0] or 1.0)))
    return pd.concat(parts, ignore_index=True)


def products(found: Mapping[str, Spectrum]) -> pd.DataFrame:
    """How many numbers two factors hold, how many their product, and the bound of its rank."""
    return pd.DataFrame(
        {
            "product": [*found],
            "rank at most": [one.rank_bound for one in found.values()],
            "numbers in the factors": [one.in_factors for one in found.values()],
            "numbers in the product": [one.in_product for one in found.values()],
        }
    )
