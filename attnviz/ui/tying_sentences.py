"""What is said of a model whose heads share projections for one run, made from the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.ui import surgery_sentences
from attnviz.ui.surgery_sentences import LEVEL

if TYPE_CHECKING:
    from attnviz.outcome import Effect
    from attnviz.tying import Way
    from attnviz.ui.heads import WhichHead
    from attnviz.ui.surgery import Of
    from attnviz.ui.tying import Pattern

WAYS: dict[Way, str] = {
    "K := V": "W_V makes the keys too: “Q and V only”",
    "V := K": "W_K makes the values too: what is matched is what is returned",
    "Q := K": "W_K makes the queries too: who looks at whom is lost",
    "Q and K swapped": "the one who looks becomes the one looked at",
    "values shuffled": "each head returns what another one would",
}
OF_VALUES: tuple[Way, ...] = ("V := K", "values shuffled")  # no pattern is made of values
UNTOUCHED = (
    "For one run, rows of the one matrix, with their bias, stand in the place of the other’s; a "
    "norm or a rotation that follows acts as before. The model itself, which all visitors share, "
    "is never changed."
)
WITH_TRAINING: dict[Way, str] = {
    "K := V": "in the toy, training with K = V does as well where the head has room",
    "V := K": "in the toy, training with K = V does as well where the head has room",
    "Q := K": "in the toy, training with Q = K fails only where direction matters",
    "Q and K swapped": "a model trained like this would be the same one by other names",
    "values shuffled": "a model trained like this would be the same one by other names",
}
NO_PATTERN = (
    "The pattern after the change cannot be shown: this layer’s output no longer confirms what was "
    "read of it."
)


CLEARLY = 0.05  # of the untouched loss


def what(way: Way, whom: str) -> str:
    """What is done, and where."""
    return f"{way} in {whom}"


def also(others: tuple[int, ...]) -> str:
    """That heads which share a key and value head change together; "" where one is alone."""
    if not others:
        return ""
    names = [str(head) for head in others]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    heads, read, change = (
        ("Head", "reads", "changes") if len(names) == 1 else ("Heads", "read", "change")
    )
    return (
        f"{heads} {listed} {read} the same key and value head (grouped queries) and {change} with "
        "it."
    )


def moved(found: Pattern, place: str, way: Way, of: Of, word: str) -> str:
    """How much of the head's attention goes elsewhere after the change.

    `word` names the query of which most does.
    """
    if found.moved < 5e-5:
        why = ", since no pattern is made of values" if way in OF_VALUES else ""
        return f"The pattern of {place} stays as it is{why}."
    earlier = (
        " Values take no part in it: it moves because earlier layers return something else."
        if way in OF_VALUES and of == "all"
        else ""
    )
    return (
        f"In {place}, {surgery_sentences.share(found.moved)} of a query’s attention goes elsewhere "
        f"on average, and {surgery_sentences.share(found.most_moved)} of that of {word}.{earlier}"
    )


def shows(effect: Effect, way: Way) -> str:
    """What may be concluded from it, and what not."""
    not_that = f"It is no proof that training could not cope: {WITH_TRAINING[way]}."
    if effect.mean_losses is None and effect.change is None:
        return ""
    if effect.mean_losses is None and (effect.change or 0.0) >= LEVEL:
        return (
            "That the output hangs on it is all that this says: a change of the output is not yet "
            f"a loss. {not_that}"
        )
    before, after = effect.mean_losses or (0.0, 0.0)
    if after - before >= max(LEVEL, CLEARLY * before):
        return f"So this trained model uses its projections in separate roles. {not_that}"
    if after - before >= LEVEL:
        return f"The loss rises by {100 * (after / before - 1):.2g} %: too little to conclude from."
    if before - after >= LEVEL:
        return "On this text the model does even better: what was taken from it is not missed here."
    return "On this text that hardly matters: what was taken from the model is not missed here."


def made(way: Way, whom: str, seed: int) -> str:
    """What was done, for the line under the figures."""
    drawn = f" · order drawn with seed {seed}" if way == "values shuffled" else ""
    return f"before and after {what(way, whom)}{drawn}"


def of_whom(of: Of, head: WhichHead) -> str:
    """In which heads."""
    return surgery_sentences.of_whom(of, head)
