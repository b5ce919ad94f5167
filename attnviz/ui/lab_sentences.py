"""What the scale lab says about the numbers on it, made from those numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnviz.ui import sentences
from attnviz.ui.card_sentences import listed
from attnviz.ui.lab_heads import NUDGES, PAIRS_OF_A_HEAD, RealHead
from attnviz.ui.sentences import figure, with_error

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.ui.heads import Head, WhichHead
    from attnviz.ui.lab import Setting, Side

SECTIONS = (
    "The chain",
    "Variance",
    "Saturation",
    "Gradient",
    "On the whole model",
    "In training",
    "Real models",
)
EVENNESS = "entropy, relative to even weights"
NEARLY_EVEN = 0.9  # of that entropy
STAGES = {
    "scores": (
        "Scores q·k",
        "A sum of d_k products. The line is a normal density: at the left of the closed form's "
        "mean and variance, at the right of what independent entries of variance 1 promise.",
    ),
    "logits": (
        "Logits, which enter the softmax",
        "The same numbers divided, on the axis of the scores.",
    ),
    "weights": ("Weights of one row", "What the softmax makes of one query's logits."),
    "saturation": (
        "Saturation of all rows",
        "Each divisor on one and the same draw: bars are means, lines medians. Of the real head, "
        "rows that see one key only are left out.",
    ),
    "gradient": (
        "Gradient that comes back",
        "How far a random nudge of the weights reaches q: ‖dL/dq‖ of each query, on a log axis.",
    ),
}
NO_VECTORS = (
    "This model offers no queries and keys as such, only weights, so there is nothing to divide. "
    "The synthetic side stands alone."
)
CLAIM = (
    "The claim: undivided, q·k has variance d_k; for large d_k the softmax saturates, and its "
    "gradients vanish. Divided by √d_k the variance is 1 again; by d_k it shrinks too much, and by "
    "d_k² the signal is destroyed. Each half of that is put to the test."
)
HIDDEN = "The answer is hidden until you reveal it."
RANDOM_LOSS = (
    f"Of the real head no loss is asked: its rows are nudged at random, N(0, 1) for each key, "
    f"{NUDGES:,} times or more in all."
)
ALIKE = (
    "As it is set, all keys of a row score alike: what differs between them is 0. The weights are "
    "even under every divisor, and there is nothing to saturate."
)


# --- predict, then reveal


def question(setting: Setting) -> str:
    """What to ask the class."""
    under = divided(setting.power, setting.d_k)
    return (
        f"Predict: q and k have d_k = {setting.d_k} entries. What is the variance of q·k? And of "
        f"q·k {under}? Of {setting.n} keys, how much of the weight does the largest have then: "
        f"nearly all, some, or the same as every other? And does the gradient still reach q?"
    )


def divided(power: float, d_k: int) -> str:
    """A divisor with its number, as ÷ √64 = 8."""
    value = d_k**power
    if power == 0:
        return "÷ 1"
    spelt = {0.5: f"√{d_k}", 1.0: f"{d_k}", 2.0: f"{d_k}²"}.get(power, f"{d_k}^{power:g}")
    return f"÷ {spelt}" if power == 1 else f"÷ {spelt} = {_long(value)}"


def _long(value: float) -> str:
    """Four digits, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


# --- the chain


def scores_drawn(side: Side) -> str:
    """Variance of the drawn scores, pooled and within rows."""
    pooled, within = _with_error(side.variance), _with_error(side.row_variance)
    if side.n < 2:
        return f"q·k has variance {pooled}, predicted {figure(side.predicted)}"
    return (
        f"q·k has variance {pooled}, predicted {figure(side.predicted)}; within a row, which is "
        f"all that the softmax sees, {within}, predicted {figure(side.predicted_row)}"
    )


def scores_read(side: Side) -> str:
    """Variance of a head's scores, pooled and within rows."""
    return (
        f"q·k has variance {figure(side.variance[0])} over all visible pairs and, averaged over "
        f"the rows without bias, {_figure(side.row_variance[0])} within a row; independent entries "
        f"of variance 1 would have {side.d_k}"
    )


def logits(side: Side, power: float) -> str:
    """Variance of the logits within a row."""
    said = f"{divided(power, side.d_k)}: variance {_figure(side.logit_variance)} within a row"
    predicted = side.predicted_row / side.divisor**2
    return f"{said}, {'promised' if side.variance[1] is None else 'predicted'} {figure(predicted)}"


def own_divisor(head: RealHead, power: float) -> str:
    """What the model itself divides by, beside what is shown."""
    d_k, own = head.moments.d_k, head.own_divisor
    spelt = f"√{d_k} = {own:.4g}" if math.isclose(own, d_k**0.5, rel_tol=1e-4) else f"{own:.4g}"
    if math.isclose(own, d_k**power, rel_tol=1e-4):
        return f"This is the model's own divisor, {spelt}: the weights below are its own."
    return (
        f"The model's own divisor is {spelt}. Here its scores are multiplied by "
        f"{own / d_k**power:.3g} first, so that one sees what its softmax would make of them."
    )


def row_drawn(side: Side) -> str:
    """How sharp the drawn row is."""
    return f"The largest of {side.n} weights is {_largest(side)}: {_alike(side)}"


def row_read(side: Side, head: Head, query: int) -> str:
    """Where a real query looks under this divisor, and how sharply."""
    top = side.row.loc[side.row["weight"].idxmax()]
    return (
        f"{sentences.word(head.queries, query)} has {_largest(side)} on "
        f"{sentences.word(head.keys, int(top['key']))}: {_alike(side)}"
    )


def _largest(side: Side) -> str:
    return sentences.weight(float(side.row["weight"].max()))


def _alike(side: Side) -> str:
    weights = side.row["weight"]
    held = weights[weights > 0]
    keys = math.exp(-float((held * held.map(math.log)).sum()))
    return f"as sharp as even weights on {keys:.1f} of {side.n} keys"


def saturation(side: Side, quantity: str) -> str:
    """A number of all rows under the divisor in view."""
    found = side.chain.set_index(["divisor", "quantity"]).loc[(side.name, quantity)]
    return f"{quantity.capitalize()}: mean {_number(found['mean'])}, median " + _number(
        found["median"]
    )


def gradient(side: Side, quantity: str) -> str:
    """Mean and median of a length under the divisor in view."""
    found = side.marks.set_index(["divisor", "quantity"]).loc[(side.name, quantity)]
    return f"{quantity}: mean {_number(found['mean'])}, median {_number(found['median'])}"


def drawn_caption(setting: Setting, trials: int) -> str:
    """The line under what was drawn."""
    parts = [
        "synthetic",
        entries(setting),
        f"{trials:,} queries × {setting.n} keys",
        f"d_k = {setting.d_k}",
        divided(setting.power, setting.d_k),
        f"seed {setting.seed}",
    ]
    return " · ".join(parts)


def entries(setting: Setting) -> str:
    """What queries and keys are drawn from, in words."""
    named = f"{setting.entries} entries"
    if setting.entries == "normalised":
        named = "vectors of length √d_k"
    if setting.plain:
        return f"{named}, mean 0, variance 1, independent"
    return (
        f"{named}, σ_q {setting.query_std:g}, σ_k {setting.key_std:g}, μ_q {setting.query_mean:g}, "
        f"μ_k {setting.key_mean:g}, ρ {setting.correlation:g}"
    )


def read_caption(head: WhichHead, power: float, told: str = "") -> str:
    """The line under a real head's numbers under some divisor."""
    as_if = "" if head.d_k is None else f"shown {divided(power, head.d_k)}"
    return sentences.caption(head, " · ".join(filter(None, [as_if, told])))


# --- why it is not d_k


def why_not_d_k(head: RealHead) -> list[str]:
    """What makes a trained head's variance another than d_k, each part measured."""
    found, unit = head.moments, head.moments.d_k**0.5
    return [
        f"Lengths: q is {found.query_length:.3g} long on average, k {found.key_length:.3g}; "
        f"entries of variance 1 would make both about √{found.d_k} = {unit:.3g}.",
        _norms(head),
        f"Means: the mean query has length {found.query_mean_length:.3g}, the mean key "
        f"{found.key_mean_length:.3g}; they would be near 0. A mean of the keys moves a whole row "
        "at once, and the softmax does not see it; a mean of the queries it does see.",
        f"Pooled or within a row: of the variance {figure(found.pooled_variance)} over all "
        f"visible pairs, {figure(found.between_rows)} lies between the means of rows, where no "
        f"softmax sees it, and {figure(found.pooled_variance - found.between_rows)} within them. "
        "There a row counts the more the more keys it sees. Estimated for each row without bias, "
        f"over its keys less one, and averaged over the rows, it is {_figure(found.row_variance)}.",
        f"Dependence: with these means and covariances, queries and keys that know nothing of "
        f"each other would have mean {found.independent_mean:.3g} and variance "
        f"{figure(found.independent_variance)}; this head has {found.mean:.3g} and "
        f"{figure(found.pooled_variance)}. Their cosine is {found.cosine:.2g} on average, where "
        "independent vectors have 0.",
    ]


def _norms(head: RealHead) -> str:
    """What norms do to the lengths, as far as the layer has some."""
    if not head.norms:
        return "Learned norms: this layer has none for its queries and keys (no QK-norm)."
    (q_least, q_most), (k_least, k_most) = head.query_lengths, head.key_lengths
    return (
        f"Learned norms: queries and keys pass {listed(head.norms)} (QK-norm), which set "
        f"their lengths whatever x is: ‖q‖ is {q_least:.3g} to {q_most:.3g} on this text, ‖k‖ "
        f"{k_least:.3g} to {k_most:.3g}."
    )


# --- variance against d_k


def variance_seen(setting: Setting) -> str:
    """What to see in the curves."""
    if setting.plain:
        return (
            "Undivided, the variance is d_k; divided by √d_k it is 1 at every width; by d_k it is "
            "1/d_k, and by d_k² it is 1/d_k³. The curves meet at d_k = 1, where all divisors are 1."
        )
    return (
        "Standard deviations and means move all four curves by the same factor: only the power of "
        "d_k decides their slope."
        + (
            " With a correlation, E q·k grows as d_k itself, while its standard deviation grows "
            "as √d_k: that is µP's argument for dividing by d_k (Yang et al. 2022)."
            if setting.correlation
            else ""
        )
    )


def kurtosis_seen(setting: Setting) -> str:
    """What to see in the kurtosis."""
    if _all_alike(setting) and not (setting.query_std and setting.key_std):
        return "Excess kurtosis is 0 for a normal distribution. No divisor changes it."
    return (
        "Excess kurtosis is 0 for a normal distribution. As a sum of d_k terms, q·k comes nearer "
        f"to one as d_k grows, whatever its entries are (here: {entries(setting)}). No divisor "
        "changes it. A fourth moment rests on the few largest products: where the line is high, "
        "a sample mostly misses them, and points lie below it by more than their errors say."
    )


def curve_caption(setting: Setting, pairs: int) -> str:
    """The line under the curves."""
    return (
        f"synthetic: points measured on {pairs:,} pairs with their standard errors, lines in "
        f"closed form · {entries(setting)} · seed {setting.seed}"
    )


def layers_caption(head: WhichHead) -> str:
    """The line about the dots of all layers."""
    return (
        f"real: ◆ ◇ {sentences.place(head)} and dots for all layers of {head.title}, each the mean "
        f"over its heads of the variance within a row, with the least and the largest head; "
        f"n = {sentences.size(head)}, of long texts {PAIRS_OF_A_HEAD:,} pairs a head"
    )


# --- saturation map


def freezing(setting: Setting) -> list[str]:
    """Where rows freeze, from what is set."""
    from attnviz.moments import freezing_d_k, row_variance

    if _all_alike(setting):
        return [ALIKE]
    limit, per_entry = 2 * math.log(setting.n), row_variance(setting.vectors, 1)
    at, of_512 = (freezing_d_k(n, 0.0, setting.vectors) for n in (setting.n, 512))
    law = "2 ln n" if setting.plain or per_entry == 1 else f"2 ln n / {per_entry:.3g}"
    beyond = " Heads of common models have 64 to 256 entries, far beyond." if of_512 < 32 else ""
    return [
        f"The line is where the variance of the logits is 2 ln n, for n = {setting.n} keys "
        f"{limit:.3g}: from there on a few keys hold the weight (the random energy model, Derrida "
        "1981). For so few keys it is a crossover, not a step.",
        f"Undivided it lies at d_k = {law}: {at:.3g} here, and {of_512:.3g} for 512 keys.{beyond} "
        "Under √d_k the colour hardly changes from left to right, only with n: that is what the "
        "root is for. It does nothing about n (SSMax by Nakanishi 2025 multiplies by ln n).",
        "Divided by d_k or d_k², rows are the more even the wider the head: nothing is sharp "
        "any more, at least before training.",
    ]


def _all_alike(setting: Setting) -> bool:
    """Whether no key of a row can score otherwise than the rest."""
    from attnviz.moments import row_variance

    return row_variance(setting.vectors, 1) == 0


def map_caption(setting: Setting, trials: int, head: WhichHead | None) -> str:
    """The line under the maps."""
    line = (
        f"synthetic · Gaussian entries, σ_q {setting.query_std:g}, σ_k {setting.key_std:g}, "
        f"μ_q {setting.query_mean:g}, ρ {setting.correlation:g} · mean of {trials} rows · "
        f"seed {setting.seed}"
    )
    if head is None or head.d_k is None:
        return line
    return f"{line} · real: ◆ {head.title}, d_k = {head.d_k}, n = {head.n[1]:,} keys"


# --- gradient


def gradient_seen(side: Side, setting: Setting) -> list[str]:
    """The two halves of the claim about gradients, from the numbers drawn."""
    if _all_alike(setting):
        return [ALIKE]
    if side.d_k == 1:
        return ["At d_k = 1 all four divisors are 1: there is nothing to compare."]
    marks = side.marks[side.marks["quantity"] == "‖dL/dq‖"].set_index("divisor")
    bare, root = marks.loc["1"], marks.loc["√d_k"]
    return [
        f"Undivided, the typical (median) query gets {_number(bare['median'])}, the mean is "
        f"{_number(bare['mean'])}{_times(bare['mean'], bare['median'])}; under √d_k the median is "
        f"{_number(root['median'])} and the mean {_number(root['mean'])}.",
        "So the folk story is half true. As d_k grows the typical query's gradient dies, and "
        "sooner the fewer keys there are. The mean does not: it goes towards √(2/π) M_n"
        f"{_limit(setting)} (M_n is the expected largest of n standard normal numbers), because in "
        "a few rows two keys nearly tie, and these rows carry everything. Training then hangs on a "
        "few loud rows: noisy, not silent.",
        _small(side, marks["median"]),
        "‖J‖ is the softmax's own part, ‖dL/dz‖ what reaches the logits; only ‖dL/dq‖ = "
        "‖Kᵀ dL/dz‖ / divisor has the factor 1/divisor in it. ‖J‖ is largest in between, not at "
        "even weights.",
    ]


def _small(side: Side, medians: pd.Series) -> str:
    """Why little comes back under d_k and d_k²."""
    entropies = side.chain[side.chain["quantity"] == EVENNESS].set_index("divisor")["mean"]
    said = (
        f"Divided by d_k, the typical query gets {_number(medians['d_k'])}, by d_k² "
        f"{_number(medians['d_k²'])}: dL/dq has 1/divisor as a factor"
    )
    if entropies["d_k"] < NEARLY_EVEN:
        return f"{said}."
    return (
        f"{said}, and the weights are nearly even (entropy {entropies['d_k']:.3f} and "
        f"{entropies['d_k²']:.3f} of even ones), so that nothing is sharp: it is small for another "
        "reason than undivided."
    )


def gradient_read(side: Side) -> str:
    """The same of a trained head."""
    marks = side.marks[side.marks["quantity"] == "‖dL/dq‖"].set_index("divisor")
    bare, root = marks.loc["1"], marks.loc["√d_k"]
    return (
        f"In this head, undivided: median {_number(bare['median'])}, mean {_number(bare['mean'])}; "
        f"under √d_k median {_number(root['median'])}, mean {_number(root['mean'])}."
    )


def _times(mean: float, median: float) -> str:
    if median <= 0 or mean < 1.2 * median:
        return ""
    ratio = mean / median
    return f", {ratio:,.2g} times that" if ratio < 1000 else ", a thousand times that and more"


def _limit(setting: Setting) -> str:
    from attnviz.moments import saturated_gradient

    limit = saturated_gradient(setting.n, setting.vectors)
    over = "" if setting.query_std == 1 and setting.query_mean == 0 else " / √(σ_q² + μ_q²)"
    return f"{over} = {limit:.3g} for {setting.n} keys"


def _with_error(value: tuple[float, float | None]) -> str:
    number, error = value
    return _figure(number) if error is None else with_error(number, error)


def _figure(value: float) -> str:
    """Two digits, or that there is no number."""
    return "no variance (no row sees two keys)" if math.isnan(value) else figure(value)


def _number(value: float) -> str:
    return sentences.tens(f"{value:.3g}")
