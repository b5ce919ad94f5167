"""The head on screen as a side of the scale lab, cached; never changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.lab import Side, divisor_name, powers, reach
from attnviz.ui.readings import Asked, loaded, served
from attnviz.ui.views import Place

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attnviz.head_moments import HeadMoments, HeadRows
    from attnviz.synthetic import Simulation

PAIRS_OF_A_HEAD = 2**16  # for the moments of all heads; 256 queries with 256 keys
ITS_OWN = ", its own"
NUDGES = 2000  # of the weights of all rows together, whose way back to the queries is measured


@dataclass(frozen=True)
class RealHead:
    """A head with its queries and keys: what no divisor changes.

    `several` are its rows that see more than one key; `scores`, `scores_curve` and `reach` are
    as in `Side`. `norms` names those that queries and keys pass (QK-norm); lengths are the least
    and the largest ‖q‖ and ‖k‖.
    """

    rows: HeadRows
    several: HeadRows
    moments: HeadMoments
    scores: pd.DataFrame
    scores_curve: pd.DataFrame
    reach: tuple[float, float]
    norms: tuple[str, ...]
    query_lengths: tuple[float, float]
    key_lengths: tuple[float, float]
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
    from attnviz.families import norms_of_queries_and_keys

    reading, model = served(place.asked), loaded(place.asked.model).model
    call = reading.calls(place.part)[place.layer]
    if call.query is None:
        return None
    rows = head_moments.rows_of(call, place.head)
    found = head_moments.moments_of(rows)
    expected, spread = float(found.d_k), found.pooled_variance**0.5
    scores = lab_frames.histogram(rows.seen_scores, 1.0, 0.0, expected, around=(found.mean, spread))
    return RealHead(
        rows,
        head_moments.of_several_keys(rows),
        found,
        scores,
        lab_frames.normal_curve(0.0, expected, 1.0, reach(scores)),
        reach(scores),
        tuple(norms_of_queries_and_keys(model.get_submodule(call.module))),
        _least_and_largest(rows.query),
        _least_and_largest(rows.key[rows.visible.any(0)]),
        reading.keys(call).labels,
        lab_frames.cosines(head_moments.cosines(rows)),
        lab_frames.head_moments(found),
    )


def _least_and_largest(vectors: Tensor) -> tuple[float, float]:
    lengths = vectors.norm(dim=-1)
    return float(lengths.min()), float(lengths.max())


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def read(place: Place, power: float, query: int, seed: int) -> Side | None:
    """The head as if its model divided by d_k to a power; `query` is the row on screen.

    The loss's gradient on the weights is drawn by the seed: no loss is asked for here.
    """
    from attnviz import head_moments, lab_frames

    head = real_head(place)
    if head is None:
        return None
    rows, found, expected = head.rows, head.moments, float(head.moments.d_k)
    divisor = expected**power
    logits = head_moments.row_logits(rows, divisor)
    at = int((rows.positions - query).abs().argmin())
    shown = logits[rows.visible]
    chain, nudged = _chain(place, power, seed)
    # What a model adds to q·k, as T5 does, may put its logits elsewhere.
    around = (float(shown.mean()), float(shown.std(correction=0)))
    weights = head_moments.row_weights(rows, divisor)
    keys = head.several.visible.sum(-1).double()
    return Side(
        d_k=found.d_k,
        n=int(rows.visible[at].sum()),
        name=divisor_name(power),
        divisor=divisor,
        scores=head.scores,
        scores_curve=head.scores_curve,
        logits=lab_frames.histogram(shown, 1.0, 0.0, expected / divisor**2, around=around),
        logits_curve=lab_frames.normal_curve(0.0, expected, divisor, head.reach),
        reach=head.reach,
        row=lab_frames.row_of(rows.scores[at], logits[at], weights[at], head.labels),
        chain=chain,
        gradients=lab_frames.gradients(nudged),
        marks=lab_frames.gradient_marks(nudged),
        variance=(found.pooled_variance, None),
        row_variance=(found.row_variance, None),
        predicted=expected,
        predicted_row=expected,
        logit_variance=_within(logits, rows),
        most_keys=int(keys.max()),
        even_weight=float((1 / keys).mean()),
        even_keys=float(keys.mean()),
    )


def _within(logits: Tensor, rows: HeadRows) -> float:
    """Variance of the logits within a row over the keys that it sees."""
    from attnviz.head_statistics import row_variance

    return float(row_variance(logits, rows.visible))


def _chain(place: Place, power: float, seed: int) -> tuple[pd.DataFrame, dict[str, Simulation]]:
    """The head's rows under each divisor, and the same rows nudged many times.

    The saturation counts each row once, the gradients each nudge.
    """
    import pandas as pd

    from attnviz import lab_frames

    found = {name: _measured(place, by, seed) for name, by in _divisors(place, power).items()}
    nudged = {name: many for name, (_, many) in found.items()}
    once = lab_frames.chain({name: rows for name, (rows, _) in found.items()})
    many = lab_frames.chain(nudged)
    of_gradients = many["stage"] == "gradient"
    return pd.concat([once[~of_gradients], many[of_gradients]], ignore_index=True), nudged


def _divisors(place: Place, power: float) -> dict[str, float]:
    """The divisors in view, and the model's own where that is none of them."""
    head = real_head(place)
    assert head is not None
    d_k, own = head.moments.d_k, head.own_divisor
    divisors = {name: float(d_k) ** known for name, known in powers(power).items()}
    if not any(math.isclose(own, divisor, rel_tol=1e-4) for divisor in divisors.values()):
        divisors[f"{own:.4g}{ITS_OWN}"] = own
    return divisors


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs={Place: lambda place: place.key})
def _measured(place: Place, divisor: float, seed: int) -> tuple[Simulation, Simulation]:
    """Each row once, and with as many nudges as make `NUDGES` with the other rows."""
    from attnviz import head_moments

    head = real_head(place)
    assert head is not None
    nudges = -(-NUDGES // len(head.several.scores))
    return (
        head_moments.measured(head.several, divisor, seed),
        head_moments.measured(head.several, divisor, seed, nudges),
    )


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
