"""What the page says about the numbers on it, made from those numbers."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import groupby
from math import isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.capture import UnreadLayer
    from attnviz.inputs import Inputs
    from attnviz.ui.draws import Draw
    from attnviz.ui.heads import Head, WhichHead
    from attnviz.ui.readings import Reading

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
PART_NAMES = {
    "decoder": "decoder: tokens among themselves",
    "encoder": "encoder: tokens among themselves",
    "cross": "cross: from the target to the source",
    "text": "text",
    "vision": "picture",
    "audio": "sound",
}


def word(tokens: pd.DataFrame, position: int) -> str:
    """A token as one quotes it in a sentence, with its position where others look the same."""
    labels = tokens["token"].str.strip("␣")
    place = f" (position {position})" if (labels == labels[position]).sum() > 1 else ""
    return f"{_quoted(tokens, position)}{place}"


def _quoted(tokens: pd.DataFrame, position: int) -> str:
    return f"“{tokens['token'][position].strip('␣') or '␣'}”"


def headline(head: Head, query: int) -> str:
    """Where the chosen query looks most."""
    row = head.matrix.loc[query]
    key, looking = int(row.idxmax()), word(head.queries, query)
    most = weight(float(row[key]))
    rest = "what is left of its attention" if head.hidden else "its attention"
    if row[key] == 0:
        return f"{looking} looks at nothing{' else' if head.hidden else ''}"
    if head.alike(query):
        return f"{looking} looks everywhere alike: no token has more than {most} of {rest}"
    return f"{looking} looks most at {word(head.keys, key)}: {most} of {rest}"


def against_the_column(head: Head, query: int) -> str:
    """The same key seen from all queries: a habit of the head, or a choice of this token.

    "" where there is nothing to compare. The first token's own row is left out, as it is
    where its share as a sink is told: often that row sees nothing else.
    """
    key = int(head.matrix.loc[query].idxmax())
    seen = head.matrix[key][head.visible[key]]
    first = key == head.keys.index[0] and not head.cross
    seen = seen.drop(key, errors="ignore") if first else seen
    if len(seen) < 2 or head.alike(query):
        return ""
    which = "later tokens" if first else "tokens"
    return (
        f"{word(head.keys, key)} gets {weight(float(seen.mean()))} on average over all {which} "
        f"that can see it ({len(seen):,}), so weigh the number against its column."
    )


def scale(head: WhichHead) -> str:
    """The model's own scale, in words."""
    if head.d_k is None or head.scale is None:
        return "weights as the model computed them, which offers no q and k as such"
    if abs(head.scale * head.d_k**0.5 - 1) < 1e-4:
        return f"the model divides by √{head.d_k}"
    if head.scale == 1:
        return "the model does not divide"
    return f"the model multiplies by {head.scale:.4g}"


def place(head: WhichHead) -> str:
    """Which head it is; its part is named where the model has several."""
    part = "" if head.only_part else f" ({head.part})"
    return f"layer {head.layer}, head {head.head}{part}"


def size(head: WhichHead) -> str:
    """How many tokens the model read: one number, or queries × keys where they differ."""
    queries, keys = head.n
    return f"{queries:,}" if queries == keys else f"{queries:,} × {keys:,}"


def head_caption(head: Head) -> str:
    """The line under a picture of a real head."""
    return caption(head, "first token hidden, rows renormalised" if head.hidden else "")


def caption(head: WhichHead, told: str = "", where: str = "") -> str:
    """Which head of which model on how many tokens; `told` says what was made of its weights.

    `where` stands for the head where it is not of one alone.
    """
    parts = [
        "real",
        head.title,
        where or place(head),
        f"n = {size(head)}",
        "" if head.d_k is None else f"d_k = {head.d_k}",
        scale(head),
        told,
        badge(head),
    ]
    return " · ".join(filter(None, parts))


def badge(head: WhichHead) -> str:
    """How well the head was verified, with a tick only where recording changed nothing."""
    equal = "exactly" if head.max_error == 0 else f"to {head.max_error:.0e}"
    if head.recording_difference != 0:
        return (
            f"✗ not verified: recomputed {equal}, but recording changes the model's output by "
            f"{head.recording_difference:.1g}"
        )
    if head.precision != "float32":
        return (
            f"✓ computed in {head.precision}, recomputed in float32, equal {equal}, recording "
            "changes its output by 0"
        )
    return f"✓ equals the model {equal}, recording changes its output by 0"


def sink(head: Head) -> str:
    """Why so much lies on the first token, or what hiding it does to the numbers."""
    whose = "all tokens that look" if head.cross else "all later tokens"
    return (
        f"An attention sink: {word(head.keys, 0)}, the first token, takes "
        f"{weight(head.first_share)} of the attention, on average over {whose}; weights spread "
        f"evenly over the keys they see would give it {weight(head.first_even)}. A row must sum "
        "to 1 even where a head has nothing to say; it then puts its weight where it does no harm "
        "(Xiao et al. 2023)."
    )


HIDDEN_FIRST = (
    "The first token is hidden and each row divided by what is left. The weights shown are "
    "therefore not the model's own; those are back when you show it again."
)


def learned_sink(head: Head, query: int) -> str:
    """What a learned sink takes of the chosen row."""
    share = max(0.0, 1 - float(head.matrix.loc[query].sum()))
    return (
        f"A learned sink, a logit without a key, takes {weight(share)} of this row; the weights "
        "shown are the rest."
    )


def position(head: Head) -> str:
    """How the model tells positions apart inside its attention, "" where nothing shows it."""
    told = []
    if head.rotary:
        told.append(
            "This model rotates q and k by their positions before it multiplies them (RoPE): the "
            "score before rotation says how words match, the score itself how words at these "
            "places match. They are two things, and only the second enters the softmax."
        )
    if head.biased:
        told.append(
            "This model adds a term of its own to the score, the bias; in most models it stands "
            "for the distance between the two tokens."
        )
    if head.biased and head.scale == 1:
        told.append(
            f"{head.title} does not divide by √{head.d_k}: its weights have learned that size, so "
            "the score enters as it is, and the bias is not the attention but one term of it."
        )
    return " ".join(told)


def sequences(head: Head) -> str:
    """What is shown where a model looks within windows, each on its own."""
    return (
        f"This layer looks within {head.sequences} windows, each on its own; shown is the first, "
        "its tokens numbered within it."
    )


def alike(head: Head) -> str:
    """That a head prefers nothing, and what that means."""
    return (
        f"This head looks everywhere alike: the entropy of its rows is {head.evenness:.3f} of what "
        "uniform weights have. That is what untrained or unused heads do."
    )


def unread(layers: Iterable[UnreadLayer], towers: Iterable[str] = ()) -> list[str]:
    """Which layers show nothing, and why: one sentence for each reason.

    The tower is named where the model has several; `towers` are those that show something.
    """
    ordered = sorted(layers, key=lambda layer: (layer.tower, layer.reason, layer.layer))
    several = len({*towers, *(layer.tower for layer in ordered)}) > 1
    told = []
    for (tower, reason), group in groupby(ordered, lambda layer: (layer.tower, layer.reason)):
        numbers = [layer.layer for layer in group]
        which = layer_ranges(numbers)
        which = f"{tower.capitalize()} {which.lower()}" if several else which
        verb, why = "has", reason
        if len(numbers) > 1:
            verb, why = "have", _of_several(reason)
        told.append(f"{which} {verb} nothing to show. {why}")
    return told


def _of_several(reason: str) -> str:
    """The reason of one layer, said of several."""
    return re.sub("^Its ", "Their ", re.sub("^It ", "Each ", reason))


def remarks(reading: Reading) -> list[str]:
    """What a person should know of a reading before looking at a head."""
    inputs, calls = reading.inputs, reading.capture.calls
    told = unread(reading.capture.unread, [call.tower for call in calls])
    if inputs.target_by:
        told.append(target(inputs))
    if inputs.picture:
        names = {label for call in calls for label in reading.keys(call).labels}
        told.append(prepared(inputs, names, any(len(call.value) > 1 for call in calls)))
    return told


def about(head: Head, query: int) -> list[str]:
    """What a person should know of a head once it has been seen."""
    told = [position(head)]
    if head.alike():
        told.append(alike(head))
    if head.sequences > 1:
        told.append(sequences(head))
    if head.learned_sink and not head.hidden:
        told.append(learned_sink(head, query))
    return [sentence for sentence in told if sentence]


def why_not_there(reading: Reading, part: str, layer: int, head: int) -> str:
    """Why a head that was asked for cannot be shown."""
    calls = reading.calls(part)
    unread = reading.unread(part).get(layer)
    if unread:
        return f"Layer {layer} has nothing to show. {unread.reason}"
    where = "in this model" if len(reading.parts) == 1 else f"in this part ({part}) of the model"
    if layer in calls:
        return f"There is no head {head} in layer {layer}: it has {_heads(calls[layer].heads)}."
    shown, heads = layer_ranges(calls).lower(), max(call.heads for call in calls.values())
    if head < heads:
        return f"There is no layer {layer} {where}: it shows {shown}."
    return f"There is no layer {layer}, head {head} {where}: it shows {shown}, and {_heads(heads)}."


def _heads(count: int) -> str:
    return f"heads 0 to {count - 1}" if count > 1 else "one head, 0"


def no_such_token(axis: str, tokens: pd.DataFrame, asked_for: int, shown: int) -> str:
    """Why the query or the key that a link asks for cannot be shown."""
    what = "looks" if axis == "query" else "is looked at"
    return (
        f"There is no token {asked_for:,} that {what} here: they are {tokens.index[0]} to "
        f"{tokens.index[-1]}. Here is token {shown}, {_quoted(tokens, shown)}."
    )


def layer_ranges(numbers: Iterable[int]) -> str:
    """Layer numbers with three or more neighbours drawn together, as in Layers 0 to 2, 4."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spelt = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"Layer{'s' if len(ordered) > 1 else ''} {', '.join(spelt)}"


def target(inputs: Inputs) -> str:
    """Where the tokens come from that the decoder reads."""
    written = inputs.target.text if inputs.target else ""
    if inputs.target_by == "model":
        return f"The model's own output, its likeliest token each time: {written or 'nothing'}"
    if inputs.target_by == "source":
        return "This model cannot write by itself, so its decoder reads the text again."
    return "The decoder reads this text, shifted by its start token."


def prepared(inputs: Inputs, names: Container[str], windows: bool) -> str:
    """How the picture was made ready, and what its tokens are called, which have these names."""
    picture = inputs.picture
    if picture is None:
        return ""
    height, width = picture.pixels.shape[2:]
    rows, columns = picture.grid
    how = (
        "by the model's own image processor"
        if picture.own_processor
        else "by its configuration alone (size, and colours about 0.5), as its folder says no more"
    )
    last = f"r{rows - 1}c{columns - 1}"
    seen = f"The model sees {width} × {height} pixels, made ready {how}: {rows} × {columns} patches"
    if last in names:
        return (
            f"{seen}, of which {last} is the one in row {rows - 1}, column {columns - 1}, both "
            "counted from 0."
        )
    whose = "those of the first window, numbered" if windows else "numbered"
    return f"{seen}. Its tokens are {whose}."


def overlay(head: Head, query: int) -> str:
    """What the picture under the weights shows, and what of the row it leaves out."""
    row, special = head.matrix.loc[query], head.keys[head.keys["special"]]
    shown = weight(float(row.drop(special["position"]).sum()))
    looking = word(head.queries, query)
    if special.empty:
        return f"Where {looking} looks in the picture: its patches have {shown} of the row."
    others = ", ".join(
        f"{token} {weight(float(row[at]))}"
        for at, token in zip(special["position"], special["token"], strict=True)
    )
    return (
        f"Where {looking} looks in the picture: its patches have {shown} of the row. The rest lies "
        f"on tokens that are no place in it: {others}."
    )


def too_many_cells(head: Head) -> str:
    """Why the whole matrix is not drawn."""
    return (
        f"The matrix of {size(head)} tokens is too large to draw here; below is the row of the "
        "chosen query."
    )


def why_not_d_k(head: Head) -> str:
    """Why the real head's variance is not d_k."""
    if head.d_k is None or head.score_variance is None or head.logit_variance is None:
        return "This model offers no q and k as such, so there is no variance of theirs to show."
    if not (isfinite(head.score_variance) and isfinite(head.logit_variance)):
        return "No row of this text sees two keys, so this head has no variance within a row."
    relation, why = "not", "real queries and keys are neither independent nor of that length"
    if abs(head.score_variance / head.d_k - 1) < 0.1:
        relation, why = "close to", "nothing obliges a model to keep to that, but this head does"
    return (
        f"This head's scores have variance {figure(head.score_variance)} within a row, {relation} "
        f"d_k = {head.d_k}: d_k is promised for independent entries of variance 1; {why}. "
        f"What enters the softmax, with the model's own scale and all else that it adds, has "
        f"{figure(head.logit_variance)}."
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
    if head is None or head.d_k is None:
        return line
    return f"{line} · real: ◆ ◇ {head.title}, {place(head)}, n = {size(head)}"


def divisor_value(name: str, d_k: int) -> str:
    """A divisor with d_k filled in, as ÷ √32."""
    power = {"d_k": f"{d_k:,}", "d_k²": f"{d_k**2:,}", "√d_k": f"√{d_k}"}
    return f"÷ {power.get(name, name)}"


def figure(value: float) -> str:
    """Two significant digits, without an exponent where that is readable."""
    if value >= 99.5:
        return f"{value:,.0f}"
    return tens(f"{value:.2g}")


def tens(number: str) -> str:
    """A number with its power of ten as one writes it: 9.4e-10 becomes 9.4·10⁻¹⁰."""
    digits, sign, power = number.partition("e")
    return f"{digits}·10{str(int(power)).translate(RAISED)}" if sign else number


def weight(value: float) -> str:
    """A weight to two decimals, or to two digits where those would be zeros."""
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.2g}"


def with_error(value: float, error: float) -> str:
    """A value and its standard error, to the digits that the error allows."""
    digits = max(0, 1 - int(log10(error) // 1)) if error > 0 else 2
    digits = min(digits, 4)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"
