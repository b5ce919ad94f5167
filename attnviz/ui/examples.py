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
        "what “it” looks at. In MiniLM, layer 5, head 11, it is “cat”, for which it stands. The "
        "bundled model is too small for that: its layer 0, head 2 looks at the token before.",
        {"bundled": (0, 2), "minilm": (5, 11)},
    ),
    Example(
        "A name that comes twice",
        "Alice gave the key to the king, and the king thanked Alice.",
        "Alice",
        "whether the second “Alice” looks back to the first. MiniLM's layer 2, head 9 does, with "
        "most of its attention; the bundled model's layer 1, head 2 does with some.",
        {"bundled": (1, 2), "minilm": (2, 9)},
    ),
    Example(
        "A list that repeats",
        "seven wolf door gold night hand stone fire seven wolf door gold night hand stone fire",
        "door",
        "the second line beside the diagonal. The bundled model's layer 1, head 0 is an induction "
        "head: the second “door” looks at “gold”, which followed the first. MiniLM, which reads "
        "in both directions, has a head for the same word instead: layer 2, head 9.",
        {"bundled": (1, 0), "minilm": (2, 9)},
    ),
)
OPENING = EXAMPLES[0].heads


def example_of(text: str) -> Example | None:
    """The example with this text, None for a visitor's own."""
    return next((example for example in EXAMPLES if example.text == text), None)


def hint(text: str, model: str) -> str | None:
    """What to look for, None in a text of one's own or in a model that was not tried."""
    example = example_of(text)
    return example.see if example and model in example.heads else None
