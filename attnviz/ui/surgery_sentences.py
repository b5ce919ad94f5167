"""What is said about a model whose attention was changed for one run, made from the numbers."""

from __future__ import annotations

from math import exp, isclose
from typing import TYPE_CHECKING

from attnviz.ui import sentences

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from attnviz.capture import UnreadLayer
    from attnviz.outcome import Effect
    from attnviz.ui.heads import WhichHead
    from attnviz.ui.surgery import Of

NEAR = 1.5  # times as much or as little is still near
LEVEL = 0.05  # nats per token; what differs less is called level
ADDED = (
    "What this model adds to q·k, such as terms of position, stays as it is, even where its own "
    "scale divides it too."
)
TRAINED = (
    "The model was trained with its own divisor: this shows what this trained model needs, not how "
    "a training with another divisor would have gone."
)
UNTOUCHED = (
    "Queries are multiplied on their way into the attention, in one run: the model itself, which "
    "all visitors share, is never changed."
)
MASKED = (
    "A masked language model predicts no next token: each token is predicted while it is masked, "
    "in {runs} runs, each with about 15 % of the tokens masked, as drawn with seed {seed}."
)
NOTHING_PREDICTED = (
    "This model predicts no tokens, so there is no loss: what it puts out is compared, as "
    "‖after − before‖ / ‖before‖."
)
OF_THE_TARGET = (
    "The loss is that of the {n:,} tokens of the target after the first that the decoder reads."
)
ONE_TOKEN = "One token alone has no loss, since nothing comes before it. Write more."
LOSS, CHANGE = "mean loss, nats per token", "relative change of the output"
TOKEN_LOSS, TOKEN_CHANGE = "loss, nats", "relative change of the vector"


def done(factor: float, divisor: str | None) -> str:
    """What was done to the scores, in the fewest words."""
    if divisor:
        return "undivided" if divisor == "1" else f"as if divided by {divisor}"
    return f"times {factor_of(factor)}"


def as_factor(what: str, factor: float, several: bool) -> str:
    """By how much a divisor multiplies the model's own scores; "" where it is its own."""
    if factor == 1:
        return ""
    about = "on average about " if several else ""
    return f"{what[0].upper()}{what[1:]}, q·k is {about}{factor:.3g} times the model’s own."


def factor_of(factor: float) -> str:
    """A factor to two digits, 1 and 0 as they are."""
    return f"{factor:.2g}"


def headline(effect: Effect, what: str) -> str:
    """What a change does, in one line."""
    what = what[0].upper() + what[1:]
    if effect.mean_losses is not None:
        before, after = effect.mean_losses
        if before == after:
            return f"{what}: {_nats(after)} per token, as before"
        if f"{before:.2f}" == f"{after:.2f}":
            return f"{what}: {_nats(after)} per token, as before to a hundredth"
        return f"{what}: {_nats(after)} per token instead of {before:.2f}"
    if effect.change is None:
        return f"{what}: nothing to compare"
    if effect.change == 0:
        return f"{what}: the output stays as it is"
    return f"{what}: the output changes by {share(effect.change)} of its length"


def _nats(value: float) -> str:
    return f"{value:.2f} nats"


def share(value: float) -> str:
    """A share in per cent, to two digits."""
    return f"{100 * value:.2g}\u00a0%" if value < 0.995 else f"{100 * value:,.0f}\u00a0%"


def what_comes_next(effect: Effect, labels: list[str]) -> str:
    """Entropy of the next token and the likeliest one, before and after; "" where none comes."""
    if effect.entropies is None:
        return ""
    before, after = effect.entropies
    names = [
        (labels[at].strip("␣") or "␣", effect.next_tokens[at][1 + side])
        for side in (0, 1)
        for at in [max(range(len(labels)), key=lambda i: effect.next_tokens[i][1 + side])]
    ]
    (first, chance), (now, chance_now) = names
    if before == after and chance == chance_now:
        return (
            f"What comes next is as uncertain as before, as {_tokens(after)}; the likeliest is "
            f"“{now}” ({_chance(chance)})."
        )
    likeliest = (
        f"“{now}” stays the likeliest, {_chance(chance)} before and {_chance(chance_now)} after."
        if first == now
        else f"The likeliest is “{now}” ({_chance(chance_now)}) instead of “{first}” "
        f"({_chance(chance)})."
    )
    if _count(before) == _count(after):
        return f"What comes next is about as uncertain as before, as {_tokens(after)}. {likeliest}"
    return (
        f"What comes next is as uncertain as {_tokens(after)} instead of {_count(before)}: an "
        f"entropy of {after:.2f} nats instead of {before:.2f}. {likeliest}"
    )


def _chance(value: float) -> str:
    return sentences.weight(value) if value >= 1e-4 else "less than 0.0001"


def _count(entropy: float) -> str:
    """How many equally likely tokens have that entropy."""
    return sentences.figure(exp(entropy))


def _tokens(entropy: float) -> str:
    count = _count(entropy)
    return "a single token" if count == "1" else f"{count} equally likely tokens"


def lowest(points: pd.DataFrame) -> str:
    """Where on the curve the loss is lowest, and how far it is level there."""
    value = points["value"]
    if value.max() - value.min() < LEVEL:
        return (
            f"All {len(points)} points differ by less than {LEVEL} nats: on this text, this much "
            "attention more or less hardly matters."
        )
    best = points.loc[value.idxmin()]
    own = best["value"] - best["difference"]
    against = f", against {own:.2f} at its own" if own - best["value"] > LEVEL else ""
    level = points.loc[value <= value.min() + LEVEL, "factor"]
    low, high = factor_of(level.min()), factor_of(level.max())
    within = f"; from {low} to {high} it is less than {LEVEL} nats more" if low != high else ""
    return (
        f"Of these {len(points)} points the loss is lowest {_where(float(best['factor']))}: "
        f"{_nats(best['value'])}{against}{within}."
    )


def _where(factor: float) -> str:
    if factor == 0:
        return "without any scores, at the factor 0"
    if isclose(factor, 1, rel_tol=1e-6):
        return "at the model’s own scale"
    if max(factor, 1 / factor) <= NEAR:
        return f"near the model’s own scale, at {factor_of(factor)} times it"
    return f"at {factor_of(factor)} times the model’s own scale"


def by_divisor(points: pd.DataFrame) -> str:
    """What each of the four divisors does, from the weakest to the strongest."""
    four = points[points["divisor"] != ""].sort_values("factor", ascending=False)
    loss = "difference" in points
    each = ", ".join(
        f"{_named(row['divisor'], row['factor'])}: "
        + (f"{row['value']:.2f}" if loss else share(row["value"]))
        for _, row in four.iterrows()
    )
    if loss:
        return f"Loss in nats per token, divided by {each}."
    return f"By how much the output changes, divided by {each}."


def _named(divisor: str, factor: float) -> str:
    return f"{divisor} (its own)" if isclose(factor, 1, rel_tol=1e-6) else divisor


def own_divisor(head: WhichHead, several: bool) -> str:
    """What the model itself divides by, and what the four divisors are to it."""
    if head.d_k is None or head.scale is None:
        return ""
    told = f"Its own scale: {sentences.scale(head)}, d_k = {head.d_k}."
    own = 1 / head.scale
    divisors = {"1": 1.0, "d_k": float(head.d_k), "d_k²": float(head.d_k) ** 2}
    same = next((name for name, x in divisors.items() if isclose(own, x, rel_tol=1e-4)), None)
    if same and head.d_k > 1:
        told += f" So “÷ {same}” changes nothing, and “÷ √d_k” is a change as the others are."
    elif not isclose(own, head.d_k**0.5, rel_tol=1e-4):
        told += f" That is as a divisor of {own:.4g}, and “÷ √d_k” is a change as the others are."
    if several:
        told += (
            " Layers differ in d_k or in scale: a divisor means another factor in each, and stands "
            "at their geometric mean."
        )
    return told


def not_changed(unread: Iterable[UnreadLayer]) -> str:
    """Which layers could not be read, and so are not changed; "" where there are none."""
    towers: dict[str, list[int]] = {}
    for layer in unread:
        towers.setdefault(layer.tower, []).append(layer.layer)
    if not towers:
        return ""
    named = [
        sentences.layer_ranges(numbers) + (f" ({tower})" if len(towers) > 1 else "")
        for tower, numbers in towers.items()
    ]
    which = named[0] + "".join(f", {name.lower()}" for name in named[1:])
    if sum(map(len, towers.values())) == 1:
        return f"{which} was not read, and stays as it is."
    return f"{which} were not read, and stay as they are."


def of_whom(of: Of, head: WhichHead) -> str:
    """Whose scores are changed."""
    if of == "head":
        return sentences.place(head)
    part = "" if head.only_part else f" ({head.part})"
    return "all heads" if of == "all" else f"all heads of layer {head.layer}{part}"


def in_blocks(table: pd.DataFrame) -> str:
    """How many tokens stand together where a text has too many; "" where each has its place."""
    step = int(table["last"].iloc[0] - table["place"].iloc[0]) + 1
    return "" if step == 1 else f"Each place is the mean of {step} tokens in a row."


def takes(seconds: float) -> str:
    """About how long something takes."""
    if seconds < 90:
        count = max(1, round(seconds))
        return f"about {count} second" + ("s" if count > 1 else "")
    return f"about {round(seconds / 60)} minutes"


def too_long(seconds: float, most: float) -> str:
    """Why something is not worked out."""
    return (
        f"This would take {takes(seconds)} on this machine, and at most {takes(most)} are spent. "
        "Shorten the text."
    )
