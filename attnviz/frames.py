"""Arrays to tidy frames: the one place that spells column names.

| frame | one row | columns |
|---|---|---|
| weight_matrix | a query | one column per key position, values are weights |
| visible_matrix | a query | one column per key position, values are True or False |
| token_axis | a token | position, token, special |
| row_table | a key seen from one query | key, token, weight, logit, terms of the logit |
| patch_weights | a patch seen from one query | row, column, patch, weight |
| head_statistics | a statistic of one head | statistic, mean over queries |
| score_histogram | a bin | quantity, left, right, density, predicted |
| variance_curve | d_k under a divisor | d_k, divisor, variance, standard_error, predicted |
| head_marks | what a real head has | d_k, quantity, variance |
| softmax_rows | a key under a divisor | divisor, key, weight, largest, effective_keys |
| layer_marks | a layer | strip, name, layer, state, sees, height, chosen, told |
| family_tree | a query head | head, kv_head, above, below |
| layer_table | a layer | what is known of it, in words and numbers |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from attnviz import head_statistics as statistics
from attnviz import synthetic
from attnviz.anatomy import Heads, LayerAnatomy

HISTOGRAM_BINS = 64
IN_MANY_WORDS = ("not read because", "module")  # last, so that a narrow screen shows the rest


def weight_matrix(weights: Float[Tensor, "query key"]) -> pd.DataFrame:
    """One head's weights, queries down, keys across, both by position."""
    return pd.DataFrame(weights.numpy()).rename_axis(index="query", columns="key")


def visible_matrix(visible: Bool[Tensor, "query key"]) -> pd.DataFrame:
    """Which key each query can see, in the shape of `weight_matrix`."""
    return pd.DataFrame(visible.numpy()).rename_axis(index="query", columns="key")


def without_first_key(matrix: pd.DataFrame) -> pd.DataFrame:
    """A `weight_matrix` without its first key, each row divided by what is left of it."""
    rest = matrix.iloc[:, 1:]
    left = rest.sum(axis=1)
    return rest.div(left.where(left > 0, 1.0), axis=0)


def token_axis(labels: Sequence[str], special: Sequence[bool] | None = None) -> pd.DataFrame:
    """The tokens by position: equal words stay apart."""
    apart = [False] * len(labels) if special is None else list(special)
    return pd.DataFrame({"position": range(len(labels)), "token": list(labels), "special": apart})


def row_table(
    terms: Mapping[str, Float[Tensor, " key"]],
    weights: pd.Series,
    visible: pd.Series,
    keys: pd.DataFrame,
) -> pd.DataFrame:
    """Where one query looks, and what each logit is made of: the visible keys, most weight first.

    The results stand before the terms, so that a narrow screen shows them. `terms` run over all
    keys of the model, the rest over those on screen.
    """
    positions = keys["position"].to_list()
    table = pd.DataFrame({"key": positions, "token": keys["token"].to_list()})
    table["weight"] = weights.to_numpy()
    for name in sorted(terms, key=lambda name: name != "logit"):
        table[name] = terms[name].numpy()[positions]
    seen = table[visible.to_numpy()]
    return seen.sort_values("weight", ascending=False, kind="stable", ignore_index=True)


def patch_weights(weights: pd.Series, keys: pd.DataFrame, grid: tuple[int, int]) -> pd.DataFrame:
    """The weights of one query on the patches of a picture; special tokens have no place in it."""
    patches = ~keys["special"].to_numpy()
    rows, columns = np.indices(grid)
    return pd.DataFrame(
        {
            "row": rows.ravel(),
            "column": columns.ravel(),
            "patch": keys["token"].to_numpy()[patches],
            "weight": weights.to_numpy()[patches],
        }
    )


def head_statistics(
    weights: Float[Tensor, "query key"],
    visible: Bool[Tensor, "query key"],
    of_a_text: bool = True,
) -> pd.DataFrame:
    """The numbers of one head, each with what it means; NaN where the text is too short.

    Distances and neighbours are told only where queries and keys are the words of one text.
    """
    rows = {
        "entropy, relative to uniform": statistics.relative_entropy(weights, visible),
        "effective number of keys": statistics.effective_keys(weights),
    }
    if of_a_text:
        rows |= {
            "weight on the first token": statistics.first_token(weights),
            "weight on the previous token": statistics.previous_token(weights),
            "weight on itself": statistics.diagonal(weights),
            "mean distance, in tokens": statistics.distance(weights),
        }
    return pd.DataFrame(
        {"statistic": list(rows), "mean over queries": [float(x) for x in rows.values()]}
    )


def score_histogram(scores: Float64[Tensor, " pair"], d_k: int) -> pd.DataFrame:
    """Density of q·k and of q·k / √d_k over the same bins, beside the predicted normal one."""
    edge = 4 * d_k**0.5
    parts = []
    for quantity, divisor in (("q·k", 1.0), ("q·k / √d_k", d_k**0.5)):
        reach = edge / divisor
        counts, edges = np.histogram(scores.numpy() / divisor, HISTOGRAM_BINS, (-reach, reach))
        density = counts / (len(scores) * np.diff(edges))  # of all pairs, drawn or beyond
        parts.append(
            pd.DataFrame(
                {
                    "quantity": quantity,
                    "left": edges[:-1],
                    "right": edges[1:],
                    "density": density,
                    "predicted": _normal_density(
                        (edges[:-1] + edges[1:]) / 2,
                        synthetic.predicted_variance(d_k, divisor),
                    ),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def variance_curve(d_ks: Sequence[int], pairs: int, seed: int) -> pd.DataFrame:
    """Measured and predicted variance of q·k / divisor, for each d_k and divisor."""
    rows = []
    for d_k in d_ks:
        scores = synthetic.sample_scores(d_k, n_keys=1, trials=pairs, seed=seed)[:, 0]
        for name, divisor in synthetic.DIVISORS.items():
            measured = synthetic.variance(scores / divisor(d_k))
            predicted = synthetic.predicted_variance(d_k, divisor(d_k))
            rows.append((d_k, name, measured.value, measured.standard_error, predicted))
    columns = ["d_k", "divisor", "variance", "standard_error", "predicted"]
    return pd.DataFrame(rows, columns=columns)


def head_marks(d_k: int, scores: float, logits: float) -> pd.DataFrame:
    """A real head's within-row variance of scores and of logits, at its d_k."""
    return pd.DataFrame(
        {"d_k": d_k, "quantity": ["scores", "logits"], "variance": [scores, logits]}
    )


def softmax_rows(scores: Float64[Tensor, " keys"], d_k: int) -> pd.DataFrame:
    """The weights of one and the same row of scores under each divisor."""
    parts = []
    for name, divisor in synthetic.DIVISORS.items():
        weights = synthetic.row_of_weights(scores, divisor(d_k))
        parts.append(
            pd.DataFrame(
                {
                    "divisor": name,
                    "key": range(len(weights)),
                    "weight": weights.numpy(),
                    "largest": float(weights.max()),
                    "effective_keys": float(statistics.effective_keys(weights[None])),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _normal_density(x: Float64[np.ndarray, " bin"], variance: float) -> Float64[np.ndarray, " bin"]:
    return np.exp(-(x**2) / (2 * variance)) / (2 * np.pi * variance) ** 0.5


# --- what was read


def layer_marks(layers: Sequence[LayerAnatomy], chosen: Collection[LayerAnatomy]) -> pd.DataFrame:
    """A rectangle for each layer, a strip for each tower; lower where a window limits the view."""
    strips = list(dict.fromkeys((layer.tower, layer.kind) for layer in layers))
    rows = []
    for layer in layers:
        strip = strips.index((layer.tower, layer.kind))
        rows.append(
            {
                "strip": strip,
                "name": tower_name(layer.tower, layer.kind),
                "layer": layer.layer,
                "state": "read" if layer.heads else "not read",
                "sees": layer.reach or ("told below" if layer.unread else "not known"),
                "height": 0.5 if layer.window else 1.0,
                "chosen": layer in chosen,
                "told": layer.unread or _verified(layer.max_error),
            }
        )
    return pd.DataFrame(rows)


def _verified(error: float | None) -> str:
    return f"verified to {error:.0e}" if error else "verified to 0"


def tower_name(tower: str, kind: str) -> str:
    """A tower and the kind of its attention, in few words."""
    return f"{tower}, cross-attention" if kind == "cross" else tower


def family_tree(heads: int, kv_heads: int) -> pd.DataFrame:
    """Which key and value head each query head reads, and where both stand in the drawing."""
    group = heads // kv_heads
    head = np.arange(heads)
    kv_head = head // group
    return pd.DataFrame(
        {"head": head, "kv_head": kv_head, "above": head + 0.5, "below": (kv_head + 0.5) * group}
    )


def layer_table(layers: Sequence[LayerAnatomy]) -> pd.DataFrame:
    """Every layer with all that is known of it; empty where nothing is, or where it has none."""
    table = pd.DataFrame([_of_layer(layer) | _of_heads(layer.heads) for layer in layers])
    return table.assign(**{name: table.pop(name) for name in IN_MANY_WORDS})


def _of_layer(layer: LayerAnatomy) -> dict[str, object]:
    return {
        "tower": tower_name(layer.tower, layer.kind),
        "layer": layer.layer,
        "sees": layer.reach,
        "window": layer.window,
        "verified to": layer.max_error,
        "not read because": layer.unread,
        "module": layer.module,
    }


def _of_heads(heads: Heads | None) -> dict[str, object]:
    if heads is None:
        return {}
    return {
        "heads": heads.heads,
        "kv_heads": heads.kv_heads,
        "d_k": heads.d_k,
        "d_v": heads.d_v,
        "scale": heads.scale.value,
        "scale is": heads.scale.rule,
        "position": heads.position,
        "soft cap": heads.softcap,
        "sinks": heads.sinks,
        "norm of q and k": heads.norm,
        "projections": heads.projections,
        "dtype": heads.dtype,
    }
