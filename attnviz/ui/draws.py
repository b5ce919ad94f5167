"""What was drawn at random for the playground, cached by its numbers; never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd

PAIRS = 4000  # independent pairs (q, k) behind each measured variance


@dataclass(frozen=True)
class Draw:
    """The playground at one d_k, n and seed."""

    d_k: int
    n: int
    seed: int
    histogram: pd.DataFrame
    rows: pd.DataFrame
    before: tuple[float, float]
    after: tuple[float, float]


@st.cache_resource(max_entries=64, show_spinner=False)
def draw(d_k: int, n: int, seed: int) -> Draw:
    """Random pairs for the histogram, and one query before n keys for the softmax."""
    from attnviz import frames, synthetic

    scores = synthetic.sample_scores(d_k, n_keys=1, trials=PAIRS, seed=seed)[:, 0]
    row = synthetic.sample_scores(d_k, n_keys=n, trials=1, seed=seed)[0]
    before, after = synthetic.variance(scores), synthetic.variance(scores / d_k**0.5)
    return Draw(
        d_k,
        n,
        seed,
        frames.score_histogram(scores, d_k),
        frames.softmax_rows(row, d_k),
        (before.value, before.standard_error),
        (after.value, after.standard_error),
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def curve(seed: int) -> pd.DataFrame:
    """Variance against d_k for every divisor."""
    from attnviz import frames
    from attnviz.ui.selection import D_KS

    return frames.variance_curve(D_KS, PAIRS, seed)
