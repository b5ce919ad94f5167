"""Many heads at once as tidy frames: the one place that spells their column names.

| frame | one row | columns |
|---|---|---|
| found_heads | a head | layer, head, kind, score; each kind's text, even, offset, repeats, spread |
| heads_of_kind | a head, the best first | layer, head, and what that kind scores |
| ranking | a key, the largest number first | key, token, and the number of one query |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from attnviz.finder import Scores, best_kind, by_chance

Layers = Mapping[int, Mapping[str, Scores]]  # by layer and kind

ON_TEXT, EVEN, OFFSET = "on this text", "even weights", "distance"
ON_REPEATS, SPREAD, STANDS_OUT = "on random tokens", "± over draws", "stands out as"


def found_heads(on_text: Layers, on_repeats: Sequence[Layers]) -> pd.DataFrame:
    """Every head with what it stands out as, and its scores of every kind.

    `kind` and `score` are those of the text, or the mean on repeats where the text tells
    nothing. On repeats there is the mean over the draws, and their standard deviation.
    """
    kinds = list(next(iter(on_text.values())))
    chance = {kind: by_chance(found[kind] for found in on_text.values()) for kind in kinds}
    parts = [_of_layer(layer, found, chance) for layer, found in on_text.items()]
    table = pd.concat(parts, ignore_index=True)
    for kind in kinds:
        drawn = np.array([_in_order(found, kind) for found in on_repeats])
        if len(drawn):
            table[f"{kind}, repeats"] = drawn.mean(0)
            table[f"{kind}, spread"] = drawn.std(0, ddof=1) if len(drawn) > 1 else np.nan
    return table


def _of_layer(layer: int, found: Mapping[str, Scores], chance: Mapping[str, float]) -> pd.DataFrame:
    heads = range(len(next(iter(found.values())).score))
    named = [best_kind(found, head, chance) for head in heads]
    columns: dict[str, object] = {
        "layer": layer,
        "head": heads,
        "kind": named,
        "score": [
            float(found[kind].score[head]) if kind else np.nan
            for head, kind in zip(heads, named, strict=True)
        ],
    }
    for kind, scores in found.items():
        columns[f"{kind}, text"] = scores.score.double().numpy()
        columns[f"{kind}, even"] = scores.even
        if scores.offset is not None:
            columns[f"{kind}, offset"] = scores.offset.numpy()
    return pd.DataFrame(columns)


def _in_order(found: Layers, kind: str) -> np.ndarray:
    return np.concatenate([scores[kind].score.double().numpy() for scores in found.values()])


def heads_of_kind(found: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The heads by one kind, the best first: on the text, or where it tells nothing on repeats."""
    names = {
        "text": ON_TEXT,
        "offset": OFFSET,
        "repeats": ON_REPEATS,
        "spread": SPREAD,
        "even": EVEN,
    }
    table = found[["layer", "head"]].copy()
    for part, name in names.items():
        if f"{kind}, {part}" in found:
            table[name] = found[f"{kind}, {part}"]
    table[STANDS_OUT] = found["kind"]
    by = [name for name in (ON_TEXT, ON_REPEATS) if name in table]
    return table.sort_values(by, ascending=False, kind="stable", ignore_index=True)


def ranking(row: pd.Series, keys: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """The keys that one query sees, from the largest number to the least."""
    table = pd.DataFrame(
        {"key": keys["position"].to_numpy(), "token": keys["token"].to_numpy(), quantity: [*row]}
    )
    seen = table[table[quantity].notna()]
    return seen.sort_values(quantity, ascending=False, kind="stable", ignore_index=True)
