"""Cells worked out by hand, term by term, from seeded vectors; widths differ from one another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnviz.cell import Cell, IntoStream, Logit, Match, Retrieved, Role, Softmax
from attnviz.ui.cells import Worked
from attnviz.ui.heads import Head

KEYS = ("<s>", "␣cat", "␣sat", "␣the", "␣it", "␣mat", "␣the")
D_MODEL, D_V = 23, 5


def axis(*words: str) -> pd.DataFrame:
    return pd.DataFrame({"position": range(len(words)), "token": words, "special": False})


def head(**changes: Any) -> Head:
    matrix = pd.DataFrame(np.full((7, 7), 1 / 7))
    fields: dict[str, Any] = {
        "title": "Tiny",
        "part": "decoder",
        "only_part": True,
        "layer": 1,
        "head": 2,
        "d_k": 32,
        "scale": 32**-0.5,
        "n": (7, 7),
        "precision": "float32",
        "max_error": 2.4e-7,
        "recording_difference": 0.0,
        "matrix": matrix,
        "visible": matrix.notna(),
        "queries": axis(*KEYS),
        "keys": axis(*KEYS),
        "statistics": pd.DataFrame(),
        "score_variance": 86.4,
        "logit_variance": 2.7,
        "first_share": 0.3,
        "first_even": 0.417,
    }
    return Head(**(fields | changes))


def worked(
    seed: int = 0,
    *,
    query: int = 4,
    key: int = 1,
    d_k: int = 32,
    scale: float | None = None,
    softcap: float | None = None,
    bias: bool = False,
    sink: float | None = None,
    hidden: tuple[int, ...] = (),
    size: float = 1.0,
    lowered: bool = False,
    tied: bool = False,
    weights_only: bool = False,
    cell: dict[str, Any] | None = None,
    **changes: Any,
) -> Worked:
    """A cell with these terms; `size` is the spread of q and k, `lowered` shifts the row.

    `tied` sets another key so that the two have most of the row between them.
    """
    dice = torch.Generator().manual_seed(seed)
    q = size * torch.randn(d_k, generator=dice)
    keys = size * torch.randn(len(KEYS), d_k, generator=dice)
    if tied:
        keys[key] = size * q / q.norm() * d_k**0.5
        keys[5] = keys[key] + 0.03 * size * torch.randn(d_k, generator=dice)
    values = torch.randn(len(KEYS), D_V, generator=dice)
    added = torch.randn(len(KEYS), generator=dice)
    w_o = torch.randn(D_MODEL, D_V, generator=dice)
    scale = d_k**-0.5 if scale is None else scale

    row = torch.stack([sum((q * k).double()) for k in keys]).float()
    scaled = scale * row
    capped = scaled if softcap is None else softcap * torch.tanh(scaled / softcap)
    logits = capped + added if bias else capped.clone()
    logits[list(hidden)] = -math.inf
    shift = float(logits.max()) if lowered else 0.0
    exponentials = (logits.double() - shift).exp()
    term = None if sink is None else math.exp(sink - shift)
    total = float(exponentials.sum()) + (term or 0.0)
    weights = (exponentials / total).float() if total else torch.zeros(len(KEYS))

    shares = weights[:, None] * values
    part = w_o @ shares.sum(0)
    fields: dict[str, Any] = {
        "head": 2,
        "kv_head": 2,
        "query": Role(query, q),
        "key": Role(key, keys[key]),
        "value": Role(key, values[key]),
        "match": Match(q * keys[key], float(row[key]), row),
        "logit": Logit(
            scale=scale,
            scaled=float(scaled[key]),
            softcap=softcap,
            capped=None if softcap is None else float(capped[key]),
            bias=float(added[key]) if bias else None,
            visible=key not in hidden,
            logit=float(logits[key]),
            row=logits,
        ),
        "softmax": Softmax(shift, exponentials.float(), term, total),
        "weights": weights,
        "sink_share": None if term is None else term / total,
        "retrieved": Retrieved(shares[key], shares.sum(0), (shares @ w_o.mT).norm(dim=-1), True),
        "into_stream": IntoStream("layers.1.o_proj.weight", part, None, torch.rand(6) + 1),
        "model_weight": float(weights[key]),
        "largest_difference": 1.2e-7,
    }
    if weights_only:
        fields |= dict.fromkeys(("query", "key", "match", "logit", "softmax", "model_weight"))
    shown = {"d_k": None, "scale": None} if weights_only else {"d_k": d_k, "scale": scale}
    rest: dict[str, Any] = {
        "head": head(**shown),
        "query": query,
        "key": key,
        "kind": "self",
        "tower": "decoder",
        "group": 1,
        "query_factor": 1.0,
        "norm": False,
        "curves": (),
    }
    return Worked(cell=Cell(**(fields | (cell or {}))), **(rest | changes))
