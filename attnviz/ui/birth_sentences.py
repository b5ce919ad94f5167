"""What is said about the birth of an induction head, made from the training log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.training_log import PhaseChange

REPEATED = 31  # random tokens, shown twice, on which heads are scored
SEED = 20261130  # of the training
TASK = (
    "The bundled model was trained from random weights, on stories and on sequences that repeat. "
    "An induction head looks for what came next the last time: its query is the present token, its "
    "keys say which token stood before theirs, its values say what to copy. Its log tells when "
    "such a head appeared."
)
SCORES = (
    "Previous token: the weight on the token just before. Induction: the weight on the token after "
    "this token's earlier copy. Both are means over random tokens that are shown twice, and of the "
    "head that is best at that step."
)
DEFINED = (
    "Phase change: from the first measured step at which the induction score has a tenth of the "
    "largest it ever has, to the first at which it has nine tenths."
)
LEARNED = (
    "Roles are learned, nobody assigned them. The recipe names no head and no role: all matrices "
    "of all heads begin at random, and there is a loss. That some head matches by what stood "
    "before and returns what stands here came of training alone."
)
HONEST = (
    "What this does not show: that three matrices were needed for it. And such heads came so "
    "cleanly because more than half of the training sequences repeat; in large models they come "
    "from text (Olsson et al. 2022)."
)


def change(found: PhaseChange, steps: int) -> str:
    """Where the phase change lies, and how short it is."""
    return (
        f"The phase change takes {found.end - found.begin:,} of {steps:,} steps, from "
        f"{found.begin:,} to {found.end:,}."
    )


def seen(begin: Mapping[str, float], end: Mapping[str, float]) -> list[str]:
    """What the numbers do between the ends of the phase change."""
    return [
        f"The induction score goes from {_moved(begin, end, 'induction')}, and the loss on "
        f"repeats from {_moved(begin, end, 'repeat_loss')} nats: the model can copy.",
        f"The previous-token score goes from {_moved(begin, end, 'previous_token')} meanwhile. "
        "Such a head, one layer earlier, is what tells an induction head's keys which token stood "
        "before them (Elhage et al. 2021); the log itself shows that both rise together.",
        f"The loss on stories goes from {_moved(begin, end, 'story_loss')} nats: who watches only "
        "that one does not see it happen.",
    ]


def caption(steps: int) -> str:
    """The line under the charts."""
    return (
        "real · bundled model · its own training log · best of 2 layers × 4 heads · n = "
        f"{1 + 2 * REPEATED} (⟨bos⟩ and {REPEATED} random tokens twice), 4 such texts, and "
        f"stories not trained on · d_k = 32 · {steps:,} steps of AdamW: 40 % random repeats, 15 % "
        f"repeated text, 45 % text · seed {SEED}"
    )


def described(quantity: str, found: PhaseChange) -> str:
    """What a chart shows, for who does not see it."""
    what = {"loss": "Losses on repeats and on stories", "score": "Scores of the best heads"}
    return f"{what[quantity]} over the steps; phase change from {found.begin:,} to {found.end:,}."


def _moved(begin: Mapping[str, float], end: Mapping[str, float], name: str) -> str:
    return f"{begin[name]:.2f} to {end[name]:.2f}"
