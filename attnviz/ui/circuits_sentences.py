"""What is said of a head's two products and of how symmetric its scores are, from the numbers."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.ui.circuits import Pair, Product, Products, Symmetry

BOTH = (
    "S has the scores q·k of every pair of tokens, Sᵀ the same turned about: where S says how much "
    "one token looks at another, Sᵀ says how much it is looked at by it. Both stand before the "
    "mask, since a causal mask hides one direction of every pair."
)
LOST = (
    "With Q = K every score would be that of the pair turned about: who looks at whom is lost. "
    "The two pictures would be one, and the share would be 1."
)
ONLY_TWO = (
    "A head has four matrices, but scores see W_Q and W_K only as W_QK = W_Qᵀ W_K (written as "
    "models store them: q = W_Q x, x W_Q above with rows and columns exchanged), and the stream "
    "sees W_V and W_O only as W_OV = W_O W_V (Elhage et al. 2021). The factors are a saving: they "
    "hold the rank down to the head’s width."
)
ROTATED = (
    "Queries and keys are rotated by their places, and the rotation stands between W_Qᵀ and W_K. "
    "So the scores that the softmax sees have one W_QK for each distance of two tokens, and none "
    "for all; before the rotation there is one."
)
FACTORS_ALONE = (
    "So no single one of the four can be read by itself: W_Q times any invertible matrix, and W_K "
    "times the inverse of its transpose, give the same W_QK and the same scores. Biases do not fit "
    "into the two products and are added beside them."
)


def share(found: Symmetry) -> str:
    """How much of the scores has no direction, in one line."""
    return (
        f"{_share(found.share)} of S is its symmetric part, which does not know who looks at whom; "
        "with Q = K all would be"
    )


def compared(found: Symmetry, n: int, d_k: int, draws: int, seed: int) -> str:
    """The same for random vectors, and without what all scores have in common."""
    mean, spread = found.drawn
    return (
        f"‖(S + Sᵀ)/2‖² / ‖S‖² is {found.share:.3f} over all pairs of two different tokens. "
        f"Queries and keys that know nothing of each other give 1/2: {draws} draws of {n} normal "
        f"ones with d_k = {d_k} (seed {seed}) {mean:.3f} on average, with a standard deviation of "
        f"{spread:.3f}. A mean that all tokens share is symmetric in itself; less their means, "
        f"this head’s queries and keys give {found.centred:.3f}."
    )


def pair(found: Pair | None, words: tuple[str, str]) -> str:
    """The two tokens whose directions differ most."""
    if found is None:
        return "In view, every pair of tokens has the same score in both directions."
    looks, looked_at = words
    return (
        f"{looks} looking at {looked_at} scores {_number(found.forth)}; {looked_at} looking at "
        f"{looks} scores {_number(found.back)}. No pair in view differs more: with Q = K these two "
        "numbers would be one."
    )


def in_view(start: int, shown: int, n: int) -> str:
    """Which tokens are in the pictures; "" where all are."""
    if shown >= n:
        return ""
    return (
        f"In view are tokens {start:,} to {start + shown - 1:,} of {n:,}; the shares are those of "
        "all."
    )


def error(value: float) -> str:
    """How far numbers are apart, relative to the largest: one digit, rounded up."""
    if value == 0:
        return "not at all"
    unit = 10.0 ** floor(log10(value))
    return f"by at most {ceil(value / unit) * unit:.0e} of the largest"


def scores_from(product: Product, rotated: bool) -> str:
    """That W_QK alone gives the scores."""
    which = "scores before rotation" if rotated else "scores q·k"
    return (
        f"From W_QK alone, without any query or key, come the {which}: they differ from the "
        f"model’s own {error(product.error)}."
    )


def scores_at(product: Product, distance: int) -> str:
    """The same for one distance."""
    return (
        f"At a distance of {_tokens(distance)}, W_QK = W_Qᵀ R W_K with the rotation R of that "
        f"distance; from it come the scores q·k of all pairs so far apart, which differ from the "
        f"model’s own {error(product.error)}."
    )


def outputs_from(product: Product) -> str:
    """That W_OV alone gives what the head adds to the stream."""
    return (
        "From W_OV and the weights, without any value, comes what the head adds to the stream: it "
        f"differs from the model’s own {error(product.error)}."
    )


def saving(product: Product, width: str) -> str:
    """How many numbers the factors hold, against the product, and the bound of its rank."""
    found, (rows, columns) = product.spectrum, product.sizes
    against = found.in_factors / found.in_product
    saved = (
        f"a saving of {_share(1 - against)}"
        if against < 1
        else "no saving, since the head is at least half as wide as the model"
    )
    return (
        f"{rows:,} × {columns:,}, and of rank at most {width} = {found.rank_bound}. The two "
        f"factors hold {found.in_factors:,} numbers, the product {found.in_product:,}: {saved}."
    )


def read_from(found: Products) -> str:
    """Of which tokens the figures are."""
    which = f"the first {found.tokens:,} tokens" if found.cut else f"all {found.tokens:,} tokens"
    return f"measured on {which}"


def made_of(product: Product) -> str:
    """The factors' names in the model."""
    return "Factors: " + " and ".join(dict.fromkeys(product.names))


def _tokens(distance: int) -> str:
    return f"{distance} token" + ("" if distance == 1 else "s")


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _share(value: float) -> str:
    return f"{100 * value:.0f}\u00a0%"
