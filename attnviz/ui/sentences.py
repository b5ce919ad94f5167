"""What the page says about the numbers on it, made from those numbers."""

from __future__ import annotations

from math import isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.ui.readings import Draw, Head


def word(head: Head, position: int) -> str:
    """A token as one quotes it in a sentence."""
    label = head.tokens["token"][position].strip("␣")
    return f"“{label or '␣'}”"


def headline(head: Head, query: int) -> str:
    """Where the chosen query looks most."""
    row = head.matrix.loc[query]
    key = int(row.idxmax())
    if row[key] == 0:
        return f"{word(head, query)} looks at nothing"
    share = weight(float(row[key]))
    return f"{word(head, query)} looks most at {word(head, key)}: {share} of its attention"


def against_the_column(head: Head, query: int) -> str:
    """The same key seen from all queries: a habit of the head, or a choice of this token."""
    key = int(head.matrix.loc[query].idxmax())
    seen = head.matrix[key][head.visible[key]]
    return (
        f"{word(head, key)} gets {weight(float(seen.mean()))} on average over all tokens that can "
        f"see it ({len(seen)}), so weigh the number against its column."
    )


def scale(head: Head) -> str:
    """The model's own scale, in words."""
    if abs(head.scale * head.d_k**0.5 - 1) < 1e-4:
        return f"the model divides by √{head.d_k}"
    if head.scale == 1:
        return "the model does not divide"
    return f"the model multiplies by {head.scale:.4g}"


def head_caption(head: Head) -> str:
    """The line under a picture of a real head."""
    return (
        f"real · {head.title} · layer {head.layer}, head {head.head} · n = {head.n} · "
        f"d_k = {head.d_k} · {scale(head)} · {badge(head)}"
    )


def badge(head: Head) -> str:
    """How well the head was verified, with a tick only where recording changed nothing."""
    if head.recording_difference == 0:
        return f"✓ equals the model to {head.max_error:.0e}, recording changes its output by 0"
    return (
        f"✗ not verified: recomputed to {head.max_error:.0e}, but recording changes the model's "
        f"output by {head.recording_difference:.1g}"
    )


def why_not_d_k(head: Head) -> str:
    """Why the real head's variance is not d_k."""
    if not (isfinite(head.score_variance) and isfinite(head.logit_variance)):
        return "No row of this text sees two keys, so this head has no variance within a row."
    near = abs(head.score_variance / head.d_k - 1) < 0.1
    relation = "close to" if near else "not"
    return (
        f"This head's scores have variance {figure(head.score_variance)} within a row, {relation} "
        f"d_k = {head.d_k}: d_k is promised for independent entries of variance 1, and trained "
        f"queries and keys are neither independent nor of that length. What enters the softmax, "
        f"with the model's own scale and all else that it adds, has {figure(head.logit_variance)}."
    )


def measured(draw: Draw) -> tuple[str, str]:
    """Measured against predicted variance, before and after dividing by √d_k."""
    (before, error), (after, after_error) = draw.before, draw.after
    return (
        f"q·k has variance {with_error(before, error)}, predicted {draw.d_k}",
        f"q·k / √{draw.d_k} has variance {with_error(after, after_error)}, predicted 1",
    )


def draw_caption(draw: Draw, pairs: int) -> str:
    """The line under the playground's histogram."""
    return (
        f"synthetic · independent Gaussian entries, variance 1 · {pairs:,} pairs · "
        f"d_k = {draw.d_k} · divisor √{draw.d_k} · seed {draw.seed}"
    )


def rows_caption(draw: Draw) -> str:
    """The line under the softmax rows."""
    return f"synthetic · one query, n = {draw.n} keys · d_k = {draw.d_k} · seed {draw.seed}"


def curve_caption(pairs: int, seed: int, head: Head | None) -> str:
    """The line under the curve of variance against d_k."""
    line = f"synthetic: points measured on {pairs:,} pairs, lines predicted · seed {seed}"
    if head is None:
        return line
    return f"{line} · real: ◇ {head.title}, layer {head.layer}, head {head.head}, n = {head.n}"


def divisor_value(name: str, d_k: int) -> str:
    """A divisor with d_k filled in, as ÷ √32."""
    power = {"d_k": f"{d_k:,}", "d_k²": f"{d_k**2:,}", "√d_k": f"√{d_k}"}
    return f"÷ {power.get(name, name)}"


def figure(value: float) -> str:
    """Two significant digits, without an exponent where that is readable."""
    if value >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.2g}"


def weight(value: float) -> str:
    """A weight to two decimals, or to two digits where those would be zeros."""
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.2g}"


def with_error(value: float, error: float) -> str:
    """A value and its standard error, to the digits that the error allows."""
    digits = max(0, 1 - int(log10(error) // 1)) if error > 0 else 2
    digits = min(digits, 4)
    return f"{value:.{digits}f} ± {error:.{digits}f}"
