"""What changing a model's attention did as tidy frames: the one place that spells their columns.

| frame | one row | columns |
|---|---|---|
| against_factor | a change of the same heads | factor, divisor, value, difference |
| of_tokens | a token, or some in a row | place, last, token, before, after |
| next_tokens | a token that may come next | row, id, token, before, after |

`before` and `difference` are missing where only the change of the output is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnviz.outcome import Effect

MOST_PLACES = 128  # side by side; of a longer text each is the mean of some tokens in a row


def against_factor(
    points: Sequence[tuple[float, str, float]], before: float | None = None
) -> pd.DataFrame:
    """Factors, divisors ("" for none) and what came of them, by factor.

    `value` is a mean loss in nats per token, and `difference` what it is more than `before`; or
    it is a relative change of the output, before which there is nothing to compare.
    """
    table = pd.DataFrame(points, columns=["factor", "divisor", "value"])
    table = table.astype({"factor": float, "value": float})
    if before is not None:
        table["difference"] = table["value"] - before
    return table.sort_values("factor", kind="stable", ignore_index=True)


def of_tokens(effect: Effect, labels: Sequence[str]) -> pd.DataFrame | None:
    """Each token's loss before and after, or how far its output vector went; None for neither.

    Of more than 128 tokens, each row has the mean of some neighbours, from `place` to `last`.
    """
    numbers = {} if effect.moved is None else {"after": effect.moved}
    if effect.losses is not None:
        numbers = dict(zip(("before", "after"), effect.losses, strict=True))
    if not numbers:
        return None
    step = -(-len(labels) // MOST_PLACES)
    places = [*range(0, len(labels), step)]
    last = [min(place + step, len(labels)) - 1 for place in places]
    table = pd.DataFrame({"place": places, "last": last})
    table["token"] = [labels[place] + ("" if step == 1 else " …") for place in places]
    return table.assign(**{name: _means(x, step) for name, x in numbers.items()})


def _means(values: Float[Tensor, " token"], step: int) -> list[float]:
    """Means of so many neighbours, without those that have no number."""
    return [float(some.nanmean()) for some in values.double().split(step)]


def next_tokens(effect: Effect, labels: Sequence[str]) -> pd.DataFrame:
    """Probabilities of what comes next, before and after; `labels` name the ids."""
    columns = ["id", "before", "after"]
    table = pd.DataFrame(effect.next_tokens, columns=columns)
    table.insert(0, "row", range(len(table)))
    table.insert(2, "token", [*labels])
    return table
