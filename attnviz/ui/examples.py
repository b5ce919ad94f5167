"""Texts in which something can be seen, and the head of each catalogue model to open first."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Example:
    """A text, the word whose row to look at, and what to see in it.

    `heads` names the (layer, head) of a model in which it shows.
    """

    title: str
    text: str
    word: str
    see: str
    heads: dict[str, tuple[int, int]] = field(default_factory=dict)


EXAMPLES = (
    Example(
        "A pronoun",
        "The cat sat on the mat because it was tired.",
        "it",
        "“it” stands for “cat”: which heads look from the one to the other?",
        {"bundled": (0, 0), "minilm": (5, 11)},
    ),
    Example(
        "A name that comes twice",
        "Alice gave the key to the king, and the king thanked Alice.",
        "Alice",
        "At the second “Alice”, does a head look back to the first, or to what came after it?",
        {"bundled": (1, 0), "minilm": (0, 2)},
    ),
    Example(
        "A list that repeats",
        "red green blue black white gold red green blue black white gold",
        "white",
        "In the second round an induction head looks at what followed the same word last time.",
        {"bundled": (1, 0), "minilm": (0, 2)},
    ),
)
OPENING = EXAMPLES[0].heads


def example_of(text: str) -> Example | None:
    """The example with this text, None for a visitor's own."""
    return next((example for example in EXAMPLES if example.text == text), None)
