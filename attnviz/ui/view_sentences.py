"""What the page of heads says about the numbers on it, made from those numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.ui import sentences

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.ui.views import Axes, How, View

QUANTITIES = {
    "weights": "weight",
    "norms": "‖weight · value · W_O‖",
    "scores": "score q·k",
    "logits": "logit",
}
WEIGHED = {
    "norms": (
        "Weight times the length of what the key's value brings through W_O (Kobayashi et al. "
        "2020): a large weight on a short vector moves little. Rows sum to no 1."
    ),
    "scores": "q·k before the model's scale, its mask and all that it adds; blue is below zero.",
    "logits": (
        "What enters the softmax, with the model's scale and all that it adds: a difference of 1 "
        "within a row is a factor of 2.72 between two weights."
    ),
}
WITHOUT = {
    "first": "The first token is left out and each row divided by what is left.",
    "special": "Special tokens are left out and each row divided by what is left.",
}
SINKS_TOO = "So is the share that a learned sink has taken."
SAME_FOR_ALL = "It is the same whichever layer and head are chosen."
WORDS = (
    "Pieces of a word are one: the weights on a key's pieces are added, those of a query's pieces "
    "averaged."
)
NORMS_OF_WORDS = (
    "Pieces of a word are one: the lengths of a key's pieces are added, which is at least the "
    "length of their sum, and those of a query's pieces averaged."
)
PAIRING = (
    "Only the part from {} text to {} is shown, without special tokens; a row sums to its share, "
    "not to 1."
)
TEXTS = {"A": "the first", "B": "the second"}
SIGNED = (
    "Lines and shades stand for shares, and scores and logits may be negative: see them as a "
    "matrix or as a ranking, or choose weights."
)
REMARK = (
    "Attention weights are not an explanation: they say where a head looks, not what the model's "
    "answer rests on (Jain and Wallace 2019; Wiegreffe and Pinter 2019)."
)


def headline(how: How, query: int, row: pd.Series, axes: Axes) -> str:
    """Where the chosen query looks most, or with what it has the largest number."""
    looking = sentences.word(axes.queries, query)
    if row.isna().all() or (row.fillna(0) == 0).all():
        return f"{looking} looks at nothing here"
    key = int(row.idxmax())
    most, named = float(row[key]), sentences.word(axes.keys, key)
    if how.weighed != "weights":
        quantity = QUANTITIES[how.weighed]
        return f"{looking} has its largest {quantity} with {named}: {number(most)}"
    if how.over == "rollout":
        return f"{looking} is mixed most of all from {named}: {sentences.weight(most)} of it"
    if how.over.startswith("max"):
        of = "head" if how.over == "max_heads" else "layer"
        return f"{looking} looks most at {named}: {sentences.weight(most)} in one {of}"
    return f"{looking} looks most at {named}: {sentences.weight(most)} of its attention"


def number(value: float) -> str:
    """A signed number to three digits."""
    return f"{value:,.3g}".replace("-", "−")


def about(how: How, sinks: bool = False) -> list[str]:
    """What was made of the head's own weights, and what that hides."""
    from attnviz.pooling import HIDES

    told = [WEIGHED.get(how.weighed, "")]
    if how.over != "head":
        told += _pooled(how, HIDES)
    without = WITHOUT.get(how.without, "")
    if how.weighed != "weights":
        without = without.replace(" and each row divided by what is left", "")
    told.append(without)
    if without and sinks and how.weighed == "weights":
        told.append(SINKS_TOO)
    if how.words:
        told.append(NORMS_OF_WORDS if how.weighed == "norms" else WORDS)
    if how.pairing != "all":
        told.append(PAIRING.format(*(TEXTS[letter] for letter in how.pairing)))
    return [sentence for sentence in told if sentence]


def _pooled(how: How, hides: dict[str, str]) -> list[str]:
    if how.over == "rollout":
        return [hides["rollout"], SAME_FOR_ALL]
    kind, _, of = how.over.partition("_")
    told = [hides["mean" if kind == "mean" else "maximum"]]
    return [*told, hides["layers"], SAME_FOR_ALL] if of == "layers" else told


def made(how: How) -> str:
    """The same in the few words of a caption, "" for the head's own weights."""
    parts = [
        "" if how.weighed == "weights" else QUANTITIES[how.weighed],
        {"first": "without the first token", "special": "without special tokens"}.get(
            how.without, ""
        ),
        "whole words" if how.words else "",
        "" if how.pairing == "all" else f"{how.pairing[0]} → {how.pairing[1]}",
    ]
    return " · ".join(filter(None, parts))


def sampled(view: View, size: tuple[int, int]) -> str:
    """How much of a large matrix is in the picture, "" if all of it is."""
    rows, columns = len(view.queries), len(view.keys)
    if view.downsampled:
        return (
            f"{size[0]:,} × {size[1]:,} numbers in {rows} × {columns} cells: each is the largest "
            "of its block. Zoom in to see each number; a click takes the largest of its block."
        )
    if view.windowed:
        return f"A window of {rows} × {columns} of the {size[0]:,} × {size[1]:,} numbers."
    return ""


def in_view(view: View) -> str:
    """The same in the few words of a caption."""
    rows, columns = len(view.queries), len(view.keys)
    if view.downsampled:
        return f"{rows} × {columns} cells, each the largest of its block"
    first, last = view.queries.index[0], view.keys.index[0]
    return f"{rows} × {columns} from query {first} and key {last} on" if view.windowed else ""


def not_offered(field: str, asked_for: str, shown: str) -> str:
    """Why a link's wish is not met."""
    return (
        f"“{asked_for}” cannot be had under “{field}” with this model and these fields; here is "
        f"“{shown}”."
    )


def no_such_heads(names: list[str]) -> str:
    """Which heads of a link are not there."""
    return f"This model has no head {', '.join(names)}; the link's other heads are shown."


def not_beside(layer: int, head: int, why: str) -> str:
    """Why a head is missing beside the one that is open."""
    return f"Layer {layer}, head {head} cannot stand beside it: {why}"


def place(view: View) -> str:
    """Of which head the numbers are, or of which heads and layers together."""
    part = "" if view.head.only_part else f", {view.head.part}"
    layer, heads = f"layer {view.head.layer}", view.heads
    where = {
        "mean_heads": f"{layer}, mean over {heads} heads",
        "max_heads": f"{layer}, maximum over {heads} heads",
        "mean_layers": "mean over all layers",
        "max_layers": "maximum over all layers",
        "rollout": "attention rollout over all layers",
    }
    return where.get(view.how.over, f"{layer}, head {view.head.head}") + part


def file_place(view: View) -> str:
    """The same in a file's name."""
    kind, _, of = view.how.over.partition("_")
    if of == "heads":
        return f"L{view.head.layer} {kind} of heads"
    return f"L{view.head.layer}H{view.head.head}" if kind == "head" else f"{kind} {of}".strip()


def window_of_lines(shown: int, most: int) -> str:
    """That not all tokens have a line."""
    return (
        f"Lines are drawn for the {shown} tokens about the chosen ones, of {most:,}: a browser "
        "would be slow with more."
    )
