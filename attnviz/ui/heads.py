"""One head at a time: what there is to draw and to say of it, cached, and never changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.readings import Asked, Reading, served

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image
    from torch import Tensor

    from attnviz.capture import AttentionCall

SINK = 0.3  # mean weight on the first token from which on it is called a sink,
SINK_TIMES_EVEN = 2  # where that is also so many times what even weights would give it
ALIKE = 0.98  # entropy relative to uniform from which on a head is said to look everywhere alike
LATER = "all but the first token"
AVERAGED_OVER = {
    "entropy, relative to uniform": "all that see several keys",
    "weight on the first token": LATER,
    "weight on the previous token": LATER,
    "weight on itself": LATER,
}


@dataclass(frozen=True)
class WhichHead:
    """Which head it is, and how well it was verified.

    `only_part` is True where the model has no other part. d_k and scale are None where the
    model offers no queries and keys as such. `n` counts the model's queries and keys, hidden
    ones too.
    """

    title: str
    part: str
    only_part: bool
    layer: int
    head: int
    d_k: int | None
    scale: float | None
    n: tuple[int, int]
    precision: str
    max_error: float
    recording_difference: float


@dataclass(frozen=True)
class Head(WhichHead):
    """One head on one input: frames to draw and numbers to say.

    Variances are within a row over the visible keys, of the plain q·k even where the model
    shortens q before; `nan` where no row sees two, None where there are no queries and keys.
    `first_share` is the mean weight on the first key, of every later token where queries and
    keys are the same; `first_even` is what even weights over the visible keys would give it.
    `sequences` is how many sequences one
    run had, of which this is the first: a model may look within windows. `hidden` is True
    where the first token was taken out and the rows divided by what is left.
    """

    matrix: pd.DataFrame
    visible: pd.DataFrame
    queries: pd.DataFrame
    keys: pd.DataFrame
    statistics: pd.DataFrame
    score_variance: float | None
    logit_variance: float | None
    first_share: float
    first_even: float
    cross: bool = False
    rotary: bool = False
    biased: bool = False
    learned_sink: bool = False
    sequences: int = 1
    hidden: bool = False
    picture: Image | None = None
    grid: tuple[int, int] | None = None

    @property
    def sink(self) -> bool:
        """Whether the first token takes much, and clearly more than even weights would give."""
        return self.first_share > max(SINK, SINK_TIMES_EVEN * self.first_even)

    @property
    def evenness(self) -> float:
        """Mean entropy of the rows relative to uniform; NaN where no row sees two keys."""
        return _evenness(self.matrix, self.visible)

    def alike(self, query: int | None = None) -> bool:
        """Whether the head looks everywhere alike, and this query too."""
        row = 1.0
        if query is not None:
            row = _evenness(self.matrix.loc[[query]], self.visible.loc[[query]])
        return min(self.evenness, row) > ALIKE


def head(asked: Asked, part: str, layer: int, index: int) -> Head:
    """One head's matrix and numbers."""
    return _head(asked, part, layer, index)


def which(reading: Reading, part: str, layer: int, index: int) -> WhichHead:
    """The name of a head, and how well it was verified."""
    call = reading.calls(part)[layer]
    return WhichHead(
        title=reading.title,
        part=part,
        only_part=len(reading.parts) == 1,
        layer=layer,
        head=index,
        d_k=call.d_k,
        scale=None if call.d_k is None else call.scale * call.query_factor,
        n=call.n,
        precision=str(call.value.dtype).removeprefix("torch."),
        max_error=call.max_error,
        recording_difference=reading.recording_difference,
    )


def row(asked: Asked, head: Head, query: int) -> pd.DataFrame:
    """One query's row term by term, from q·k to the weight."""
    from attnviz import frames

    call = served(asked).calls(head.part)[head.layer]
    terms = {name: matrix[query] for name, matrix in _terms(call, head.head).items()}
    return frames.row_table(terms, head.matrix.loc[query], head.visible.loc[query], head.keys)


def without_first(head: Head) -> Head:
    """The head with its first token taken out and each row divided by what is left."""
    from attnviz import frames

    if not can_hide_first(head):
        return head
    rows_from = 0 if head.cross else 1  # in cross-attention the rows are other tokens
    return replace(
        head,
        matrix=frames.without_first_key(head.matrix).iloc[rows_from:],
        visible=head.visible.iloc[rows_from:, 1:],
        queries=head.queries.iloc[rows_from:],
        keys=head.keys.iloc[1:],
        hidden=True,
    )


def can_hide_first(head: Head) -> bool:
    """Whether anything would be left."""
    return min(head.matrix.shape) > 1


def patch_of(head: Head, query: int) -> tuple[int, int] | None:
    """Row and column of the patch that looks, None if it is no patch of the picture."""
    if head.grid is None or head.cross or head.queries["special"][query]:
        return None
    before = int(head.queries["special"].sum()) + int(head.queries.index[0])
    return divmod(query - before, head.grid[1])


def marks(head: Head | None) -> pd.DataFrame | None:
    """The real head's place on the variance curve, None where it has none."""
    from attnviz import frames
    from attnviz.charts.theme import DRAWN_VARIANCES

    if head is None or head.d_k is None:
        return None
    scores, logits = head.score_variance, head.logit_variance
    if scores is None or logits is None:
        return None
    if not all(DRAWN_VARIANCES[0] < v < DRAWN_VARIANCES[1] for v in (scores, logits)):
        return None
    return frames.head_marks(head.d_k, scores, logits)


def _evenness(matrix: pd.DataFrame, visible: pd.DataFrame) -> float:
    import torch

    from attnviz.head_statistics import relative_entropy

    weights, seen = torch.tensor(matrix.to_numpy()), torch.tensor(visible.to_numpy())
    return float(relative_entropy(weights, seen))


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _head(asked: Asked, part: str, layer: int, index: int) -> Head:
    from attnviz import attention, frames

    reading = served(asked)
    call = reading.calls(part)[layer]
    weights, visible = attention.weights(call, index), _visible(call, index)
    cross, tokens = call.kind == "cross", reading.queries(call)
    later = slice(0 if cross else 1, None)
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    statistics = frames.head_statistics(weights, visible, of_a_text=reading.of_a_text(call))
    score_variance, logit_variance = _variances(call, index, visible)
    return Head(
        **asdict(which(reading, part, layer, index)),
        matrix=frames.weight_matrix(weights),
        visible=frames.visible_matrix(visible),
        queries=frames.token_axis(tokens.labels, tokens.special),
        keys=frames.token_axis(reading.keys(call).labels, reading.keys(call).special),
        statistics=statistics.assign(
            queries=[AVERAGED_OVER.get(name, "all") for name in statistics["statistic"]]
        ),
        score_variance=score_variance,
        logit_variance=logit_variance,
        first_share=float(weights[later, 0].nan_to_num().mean().nan_to_num()),
        first_even=float(even[later, 0].mean().nan_to_num()),
        cross=cross,
        rotary=call.query_unrotated is not None,
        biased=call.bias is not None,
        learned_sink=call.sinks is not None,
        sequences=len(call.value),
        **_picture(reading, call),
    )


def _picture(reading: Reading, call: AttentionCall) -> dict:
    """The picture under the keys, where each key but the special ones is a patch of it."""
    picture, special = reading.inputs.picture, reading.keys(call).special
    if picture is None or not reading.keys(call).labels[-1].startswith("r"):
        return {}
    rows, columns = picture.grid
    if len(special) - sum(special) != rows * columns:
        return {}
    return {"picture": picture.seen, "grid": picture.grid}


def _visible(call: AttentionCall, index: int) -> Tensor:
    """Which keys each query can see."""
    from attnviz import attention

    if call.observed_weights is not None:
        return attention.weights(call, index) > 0
    return attention.logits(call, index).isfinite()


def _variances(
    call: AttentionCall, index: int, visible: Tensor
) -> tuple[float, float] | tuple[None, None]:
    """Variance within a row of the plain q·k, and of what enters the softmax."""
    from attnviz import attention
    from attnviz.head_statistics import row_variance

    if call.query is None:
        return None, None
    scores = attention.scores(call, index) / call.query_factor
    logits = attention.logits(call, index)
    return float(row_variance(scores, visible)), float(row_variance(logits, visible))


def _terms(call: AttentionCall, index: int) -> dict[str, Tensor]:
    """What each logit is made of: score · scale + soft cap + bias = logit."""
    import torch

    from attnviz import attention, equation

    if call.query is None:
        return {}
    scores = attention.scores(call, index)
    terms = {"score before rotation": attention.scores_unrotated(call, index), "score": scores}
    terms["scale"] = torch.full_like(scores, call.scale)
    if call.softcap is not None:
        capped = equation.logits(scores, call.scale, softcap=call.softcap)
        terms["soft cap"] = capped - scores * call.scale
    if call.bias is not None:
        bias = call.bias[0]
        terms["bias"] = bias[index if len(bias) > 1 else 0]
    terms["logit"] = attention.logits(call, index)
    return {name: term for name, term in terms.items() if term is not None}
