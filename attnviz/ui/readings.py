"""What was read, cached: models, captures, heads and draws, keyed by names, texts and numbers.

Entries are shared by all sessions and never changed. torch and transformers are imported
here, inside the functions, so that a page has painted its first text before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor
    from transformers import PreTrainedModel

    from attnviz.capture import AttentionCall
    from attnviz.models import LoadedModel
    from attnviz.tokens import Tokens

MAX_TOKENS = 512  # what the page draws; a model may take fewer
PAIRS = 4000  # independent pairs (q, k) behind each measured variance


@dataclass(frozen=True)
class Reading:
    """One text read by one model: its self-attention calls, one a layer."""

    title: str
    warning: str | None
    tokens: Tokens
    calls: tuple[AttentionCall, ...]
    recording_difference: float


@dataclass(frozen=True)
class Head:
    """One head on one text: frames to draw and numbers to say.

    Variances are within a row over the visible keys; `nan` where no row sees two.
    """

    title: str
    layer: int
    head: int
    n: int
    d_k: int
    scale: float
    max_error: float
    recording_difference: float
    matrix: pd.DataFrame
    visible: pd.DataFrame
    tokens: pd.DataFrame
    statistics: pd.DataFrame
    score_variance: float
    logit_variance: float


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


class NotServed(Exception):  # noqa: N818 - what a person is told, not a mistake
    """What was asked cannot be shown; the message is the sentence for the person."""


@st.cache_resource(max_entries=2, show_spinner=False)
def loaded(name: str) -> LoadedModel:
    """A model with its tokenizer and card."""
    from attnviz.models import load

    return load(name)


@st.cache_resource(max_entries=2, show_spinner=False)
def difference(name: str, _inputs: Mapping[str, Tensor]) -> float:
    """By how much recording changes a model's output: found once, on its first text."""
    from attnviz.capture import recording_difference

    return recording_difference(_reader(loaded(name)), _inputs)


@st.cache_resource(max_entries=8, show_spinner=False)
def read(name: str, text: str) -> Reading:
    """Run a model on a text and keep what its attention used."""
    from attnviz.capture import capture
    from attnviz.tokens import model_inputs, tokenize

    model = loaded(name)
    limit = min(MAX_TOKENS, model.card.max_tokens or MAX_TOKENS)
    tokens = tokenize(model.tokenizer, text, max_tokens=limit)
    inputs = model_inputs(tokens)
    calls = capture(_reader(model), inputs).calls
    return Reading(model.card.title, model.card.warning, tokens, calls, difference(name, inputs))


@st.cache_resource(max_entries=32, show_spinner=False)
def head(name: str, text: str, layer: int, index: int) -> Head:
    """One head's matrix and numbers."""
    from attnviz import attention, frames
    from attnviz.head_statistics import row_variance

    reading = read(name, text)
    call = reading.calls[layer]
    weights, logits = attention.weights(call, index), attention.logits(call, index)
    visible = logits.isfinite()
    return Head(
        title=reading.title,
        layer=call.layer,
        head=index,
        n=len(reading.tokens),
        d_k=call.d_k,
        scale=call.scale,
        max_error=call.max_error,
        recording_difference=reading.recording_difference,
        matrix=frames.weight_matrix(weights),
        visible=frames.visible_matrix(visible),
        tokens=frames.token_axis(reading.tokens.labels),
        statistics=frames.head_statistics(weights, visible),
        score_variance=float(row_variance(attention.scores(call, index), visible)),
        logit_variance=float(row_variance(logits, visible)),
    )


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


def marks(head: Head | None) -> pd.DataFrame | None:
    """The real head's place on the variance curve, None where it has none."""
    from attnviz import frames
    from attnviz.charts.theme import DRAWN_VARIANCES

    if head is None or not all(
        DRAWN_VARIANCES[0] < variance < DRAWN_VARIANCES[1]
        for variance in (head.score_variance, head.logit_variance)
    ):
        return None
    return frames.head_marks(head.d_k, head.score_variance, head.logit_variance)


def served(name: str, text: str) -> Reading:
    """`read`, where every reason why it cannot be done becomes `NotServed`."""
    from attnviz.capture import UnreadableModel
    from attnviz.models import ModelNotLoaded
    from attnviz.tokens import UnusableText

    try:
        return read(name, text)
    except UnreadableModel as problem:
        # What is wrong with the tokenizer explains more than where the model stumbled.
        raise NotServed(loaded(name).card.warning or str(problem)) from problem
    except (ModelNotLoaded, UnusableText) as problem:
        raise NotServed(str(problem)) from problem


def _reader(model: LoadedModel) -> PreTrainedModel:
    """The part that reads a text: of an encoder–decoder its encoder."""
    whole = model.model
    return whole.get_encoder() if whole.config.is_encoder_decoder else whole
