"""Random queries and keys of the scale lab, cached by what they are drawn from; never changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.draws import PAIRS
from attnviz.ui.lab import Setting, Side, divisor_name, powers, reach
from attnviz.ui.selection import D_KS

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.moments import Vectors
    from attnviz.synthetic import Draw, Estimate, Simulation

TRIALS = 2000  # queries, each before its own keys
MAP_TRIALS = 200  # for each square of the map
MAP_KEYS = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Scores:
    """What no divisor changes of a draw."""

    bins: pd.DataFrame
    curve: pd.DataFrame
    reach: tuple[float, float]
    pooled: Estimate
    within: Estimate


@st.cache_resource(max_entries=128, show_spinner=False)
def drawn(setting: Setting) -> Side:
    """Random vectors under the chosen divisor, beside the four that have a name."""
    from attnviz import lab_frames, moments, synthetic

    vectors, d_k, n = setting.vectors, setting.d_k, setting.n
    draw, scores = _draw(vectors, d_k, n, setting.seed), _scores(vectors, d_k, n, setting.seed)
    divisor = synthetic.divisor(d_k, setting.power)
    simulations = _simulations(setting)
    mean, variance = moments.mean(vectors, d_k), moments.variance(vectors, d_k)
    step = lab_frames.step_of(vectors)
    return Side(
        d_k=d_k,
        n=n,
        name=divisor_name(setting.power),
        divisor=divisor,
        scores=scores.bins,
        scores_curve=scores.curve,
        logits=lab_frames.histogram(draw.scores, divisor, mean, variance, step),
        logits_curve=lab_frames.normal_curve(mean, variance, divisor, scores.reach),
        reach=scores.reach,
        row=lab_frames.row(draw.scores[0], divisor),
        chain=lab_frames.chain(simulations),
        gradients=lab_frames.gradients(simulations),
        marks=lab_frames.gradient_marks(simulations),
        variance=(scores.pooled.value, scores.pooled.standard_error),
        row_variance=(scores.within.value, scores.within.standard_error),
        predicted=variance,
        predicted_row=moments.row_variance(vectors, d_k),
        logit_variance=scores.within.value / divisor**2,
        most_keys=n,
        even_weight=1 / n,
        even_keys=float(n),
    )


@st.cache_resource(max_entries=64, show_spinner=False)
def _scores(vectors: Vectors, d_k: int, n: int, seed: int) -> Scores:
    from attnviz import lab_frames, moments, synthetic

    scores = _draw(vectors, d_k, n, seed).scores
    mean, variance = moments.mean(vectors, d_k), moments.variance(vectors, d_k)
    bins = lab_frames.histogram(scores, 1.0, mean, variance, lab_frames.step_of(vectors))
    spanned = reach(bins)
    return Scores(
        bins,
        lab_frames.normal_curve(mean, variance, 1.0, spanned),
        spanned,
        synthetic.pooled_variance(scores),
        synthetic.row_variance(scores),
    )


# A draw of keys with all their entries takes up to 64 MB: few are kept.
@st.cache_resource(max_entries=4, show_spinner=False)
def _draw(vectors: Vectors, d_k: int, n: int, seed: int) -> Draw:
    from attnviz import synthetic

    return synthetic.draw(vectors, d_k, n, TRIALS, seed)


def _simulations(setting: Setting) -> dict[str, Simulation]:
    """One and the same draw under each divisor."""
    return {
        name: _simulation(replace(setting, power=power))
        for name, power in powers(setting.power).items()
    }


@st.cache_resource(max_entries=256, show_spinner=False)
def _simulation(setting: Setting) -> Simulation:
    from attnviz import synthetic

    draw = _draw(setting.vectors, setting.d_k, setting.n, setting.seed)
    return synthetic.measured(draw, synthetic.divisor(setting.d_k, setting.power))


def trials(setting: Setting) -> int:
    """How many queries are drawn; keys that are not Gaussian take more room."""
    from attnviz import synthetic

    return synthetic.most_trials(setting.vectors, setting.d_k, setting.n, TRIALS)


@st.cache_resource(max_entries=32, show_spinner=False)
def curve(setting: Setting) -> pd.DataFrame:
    """Variance against d_k under each divisor, measured and in closed form."""
    from attnviz import lab_frames

    d_ks = sorted({*D_KS, setting.d_k})
    named = powers(setting.power)
    return lab_frames.variance_curve(setting.vectors, d_ks, PAIRS, setting.seed, named)


def of_maps(setting: Setting) -> Setting:
    """The setting as far as the maps hang on it: they have all d_k and n, and normal entries."""
    return replace(setting, d_k=1, n=1, entries="Gaussian")


@st.cache_resource(max_entries=16, show_spinner=False)
def saturation(setting: Setting) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Largest weight and entropy over d_k and n, and where rows freeze, by divisor."""
    import pandas as pd

    from attnviz import lab_frames

    vectors, cells, lines = setting.vectors, [], []
    for name, power in powers(setting.power).items():
        found = lab_frames.saturation_map(vectors, D_KS, MAP_KEYS, power, MAP_TRIALS, setting.seed)
        cells.append(found.assign(divisor=name))
        lines.append(lab_frames.freezing_line(vectors, MAP_KEYS, power).assign(divisor=name))
    return pd.concat(cells, ignore_index=True), pd.concat(lines, ignore_index=True)
