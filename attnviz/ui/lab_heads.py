"""The head on screen as a side of the scale lab, cached; never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.lab import Side, divisor_name, powers, reach
from attnviz.ui.readings import Asked, served
from attnviz.ui.views import Place

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attnviz.head_moments import HeadMoments, HeadRows
    from attnviz.synthetic import Simulation

PAIRS_OF_A_HEAD = 2**16  # for the moments of all heads; 256 queries with 256 keys
OWN = "its own scale"


@dataclass(frozen=True)
class RealHead:
    """A head with its queries and keys: what no divisor changes."""

    rows: HeadRows
    moments: HeadMoments
    labels: Sequence[str]
    cosines: pd.DataFrame
    numbers: pd.DataFrame

    @property
    def own_divisor(self) -> float:
        """What the model divides q·k by."""
        return 1 / self.rows.scale


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def real_head(place: Place) -> RealHead | None:
    """The head, None where the model offers no queries and keys as such."""
    from attnviz import head_moments, lab_frames

    reading = served(place.asked)
    call = reading.calls(place.part)[place.layer]
    if call.query is None:
        return None
    rows = head_moments.rows_of(call, place.head)
    found = head_moments.moments_of(rows)
    return RealHead(
        rows,
        found,
        reading.keys(call).labels,
        lab_frames.cosines(head_moments.cosines(rows)),
        lab_frames.head_moments(found),
    )


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def read(place: Place, power: float, query: int, seed: int) -> Side | None:
    """The head as if its model divided by d_k to a power; `query` is the row on screen.

    The loss's gradient on the weights is drawn by the seed: no loss is asked for here.
    """
    from attnviz import head_moments, lab_frames

    head = real_head(place)
    if head is None:
        return None
    rows, found = head.rows, head.moments
    divisor = float(found.d_k) ** power
    logits = head_moments.row_logits(rows, divisor)
    at = int((rows.positions - query).abs().argmin())
    shown = logits[rows.visible]
    simulations = _head_simulations(place, power, seed)
    spread = found.pooled_variance**0.5
    scores = lab_frames.histogram(
        rows.seen_scores, 1.0, 0.0, float(found.d_k), around=(found.mean, spread)
    )
    # What a model adds to q·k, as T5 does, may put its logits elsewhere.
    around = (float(shown.mean()), float(shown.std(correction=0)))
    weights = head_moments.row_weights(rows, divisor)
    return Side(
        d_k=found.d_k,
        n=int(rows.visible[at].sum()),
        name=divisor_name(power),
        divisor=divisor,
        scores=scores,
        logits=lab_frames.histogram(shown, 1.0, 0.0, found.d_k / divisor**2, around=around),
        reach=reach(scores),
        row=lab_frames.row_of(rows.scores[at], logits[at], weights[at], head.labels),
        chain=lab_frames.chain(simulations),
        gradients=lab_frames.gradients(simulations),
        marks=lab_frames.gradient_marks(simulations),
        variance=(found.pooled_variance, None),
        row_variance=(found.row_variance, None),
        predicted=float(found.d_k),
        predicted_row=float(found.d_k),
        logit_variance=_within(logits, rows),
    )


def _within(logits: Tensor, rows: HeadRows) -> float:
    """Variance of the logits within a row over the keys that it sees."""
    from attnviz.head_statistics import row_variance

    return float(row_variance(logits, rows.visible))


def _head_simulations(place: Place, power: float, seed: int) -> dict[str, Simulation]:
    """The head's rows under each divisor, and under the model's own where that is none of them."""
    head = real_head(place)
    if head is None:
        return {}
    d_k, own = head.moments.d_k, head.own_divisor
    divisors = {name: float(d_k) ** known for name, known in powers(power).items()}
    if not any(abs(own / divisor - 1) < 1e-4 for divisor in divisors.values()):
        divisors[OWN] = own
    return {name: _measured(place, divisor, seed) for name, divisor in divisors.items()}


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _measured(place: Place, divisor: float, seed: int) -> Simulation:
    from attnviz import head_moments

    head = real_head(place)
    assert head is not None
    return head_moments.measured(head.rows, divisor, seed)


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def layers(asked: Asked, part: str) -> pd.DataFrame:
    """Variances within rows of all heads of all layers of a part."""
    from attnviz import head_moments, lab_frames

    found: Mapping[int, list[HeadMoments]] = {
        layer: [
            head_moments.moments_of(head_moments.rows_of(call, head, most_pairs=PAIRS_OF_A_HEAD))
            for head in range(call.heads)
        ]
        for layer, call in served(asked).calls(part).items()
        if call.query is not None
    }
    return lab_frames.layer_variances(found)
