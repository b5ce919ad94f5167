"""What the page “What was read” says of a model's layers, made from what was read of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.anatomy import Heads, LayerAnatomy, LayerGroup, Scale
    from attnviz.ui.cards import Card

TOWERS = {
    "decoder": "a decoder",
    "encoder": "an encoder",
    "vision": "an encoder of pictures",
    "audio": "an encoder of sound",
    "text": "an encoder of text",
}
POSITIONS = {
    "rotary": "rotary: queries and keys are turned by their position",
    "relative bias": "relative bias: a number for each distance, added to the logits",
    "position terms": "further products of content and position, added to the logits",
    "ALiBi": "ALiBi: logits fall evenly with the distance, in each head at its own rate",
    "learned": "learned vectors, added to the input",
    "fixed": "fixed waves (sines), added to the input",
    "convolution": "a convolution over the input",
    "not known": "not known",
    "none": "none",
}
PROJECTIONS = {
    "split": "three matrices",
    "fused": "one matrix for q, k and v",
    "partly fused": "two of q, k and v share a matrix",
    "latent": "k and v from one short latent vector",
    None: "not known",
}
UNREAD_KINDS = {
    "linear": "linear attention",
    "none": "no attention",
    "sparse": "sparse attention",
    "local": "local attention",
    "chunked": "attention in chunks",
}


PRODUCTS = {"1/√(2 · d_k)": 2, "1/√(3 · d_k)": 3}
GROUP_COLUMNS = ("layers", "each token sees", "heads", "verified to")


# --- the model


def what_it_is(card: Card) -> str:
    """The model in one sentence, and how much of it was read."""
    towers = dict.fromkeys(layer.tower for layer in card.layers)
    kind = listed([TOWERS[tower] for tower in towers]) if towers else "a model"
    read = sum(layer.heads is not None for layer in card.layers)
    size = f"{kind} of the family {card.model_type} with {count(card.parameters)} parameters"
    where = "" if card.placement == "memory" else f" Its weights are in {card.placement}."
    same = card.stored_dtype in ("", card.dtype)
    kept = "" if same else f" They are stored in {card.stored_dtype} and run in {card.dtype}."
    kept = kept if where else kept.replace("They", "Its weights")
    return f"{size[0].upper()}{size[1:]}. {_how_many_read(card, read)}{where}{kept}"


def _how_many_read(card: Card, read: int) -> str:
    known = len(card.layers)
    if not known:
        return "Nothing is known of its layers."
    if read == known:
        whole = "Its one layer was" if known == 1 else f"All of its {known} layers were"
        return f"{whole} {_was_read(card)}."
    if not read:
        return f"None of its {known} layers was read here."
    return f"{read} of its {known} layers {'was' if read == 1 else 'were'} {_was_read(card)}."


def _d_model(card: Card) -> str:
    """The width of what a layer hands on; of each part, where they differ."""
    if len(set(card.d_models.values())) > 1:
        return ", ".join(f"{width:,} {part}" for part, width in card.d_models.items())
    return "not stated" if card.d_model is None else f"{card.d_model:,}"


def key_figures(card: Card) -> list[tuple[str, str]]:
    """The model's sizes, each with its name."""
    read = [layer for layer in card.layers if layer.heads]
    errors = [layer.max_error for layer in read if layer.max_error is not None]
    figures = [
        ("parameters", count(card.parameters)),
        ("d_model", _d_model(card)),
        ("layers read", f"{len(read)} of {len(card.layers)}"),
        ("run in", card.dtype),
    ]
    return [*figures, ("equals the model to", small(max(errors)))] if errors else figures


def count(number: int) -> str:
    """A large number in three digits and a word."""
    for power, word in ((9, " billion"), (6, " million"), (3, " thousand")):
        if number >= 0.9995 * 10**power:
            value = number / 10**power
            digits = sum(value < limit for limit in (9.995, 99.95))
            return f"{value:.{digits}f}{word}"
    return str(number)


def small(number: float) -> str:
    """A difference in one digit and a power of ten."""
    return f"{number:.0e}" if number else "0"


def verification(card: Card) -> str:
    """How what is shown was compared with the model, and how close it came."""
    return (
        f"Of each layer, {card.rows_checked} rows of every head (all, where there are fewer) were "
        f"computed again in float32 from what was read, and compared with the layer's own output, "
        f"which the model computes in {card.dtype}. A layer that differs by more than "
        f"{card.tolerance:.0e} of the values that it mixes is not shown. "
        f"{_effect_of_watching(card)}"
    )


def _effect_of_watching(card: Card) -> str:
    if card.recording_difference == 0:
        return "Watching the model does not change its output: the difference is 0."
    return (
        f"But watching the model changes its output by {card.recording_difference:.1g}, so nothing "
        "here is verified."
    )


def _was_read(card: Card) -> str:
    """What can be said of the layers that have calls."""
    return "read and verified" if card.recording_difference == 0 else "read, but not verified"


def layers_described(card: Card) -> str:
    """The picture of the layers in words."""
    parts = [f"{group_name(group)}: {_state(group.first)}" for group in card.groups]
    return f"The layers of {card.title}. {'; '.join(parts)}."


def _state(layer: LayerAnatomy) -> str:
    return "read" if layer.heads else "not read"


def legend(card: Card) -> str:
    """How to read the marks that are in the picture of the layers."""
    parts = [f"filled: {_was_read(card)}"] if any(x.heads for x in card.layers) else []
    if any(layer.heads is None for layer in card.layers):
        parts.append("empty, with a line across: not read")
    if any(layer.window for layer in card.layers):
        parts.append("half as high: sees a window, a chunk or a tile only")
    if len(card.groups) > 1:
        parts.append("underlined: described below")
    return " · ".join(parts)


# --- a group of like layers


def group_name(group: LayerGroup) -> str:
    """Which layers a group holds, and what sets them apart."""
    return _place(group) + _special(group.first)


def _place(group: LayerGroup) -> str:
    layer = group.first
    part = f"{layer.tower}, cross-attention" if layer.kind == "cross" else layer.tower
    several = "layers" if len(group.layers) > 1 else "layer"
    return f"{part}, {several} {numbers(group.numbers)}"


def group_title(group: LayerGroup) -> str:
    """The name of a group as a heading."""
    name = group_name(group)
    return f"{name[0].upper()}{name[1:]}"


def _special(layer: LayerAnatomy) -> str:
    if layer.heads is None:
        return f" ({UNREAD_KINDS.get(layer.reach or '', 'not read')})"
    if layer.tiled:
        return f" (tiles of {layer.window})"
    size = {"local": "window", "chunked": "chunk"}.get(layer.reach or "")
    return f" (a {size} of {layer.window})" if size else ""


def numbers(layers: Sequence[int]) -> str:
    """Numbers of layers, runs in brief: 0 to 4, 6 and 8."""
    step = layers[1] - layers[0] if len(layers) > 1 else 0
    if (
        len(layers) > 3
        and step > 1
        and list(layers) == list(range(layers[0], layers[-1] + 1, step))
    ):
        return f"{layers[0]}, {layers[1]}, … {layers[-1]}"
    runs: list[list[int]] = []
    for number in layers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in _run(run)]
    return listed(parts)


def listed(parts: Sequence[str]) -> str:
    """One or more things as a sentence lists them."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def _run(run: list[int]) -> list[str]:
    return [f"{run[0]} to {run[-1]}"] if len(run) > 2 else list(map(str, run))


def group_row(group: LayerGroup) -> tuple[str, ...]:
    """A group in few words, under `GROUP_COLUMNS`."""
    layer, heads = group.first, group.first.heads
    name = _place(group)
    if heads is None or group.max_error is None:
        return name, UNREAD_KINDS.get(layer.reach or "", "told below"), "", "not read"
    shared = f"{heads.heads} on {heads.kv_heads}"
    count = shared if heads.heads != heads.kv_heads else str(heads.heads)
    return name, sees(layer, heads), count, small(group.max_error)


def facts(group: LayerGroup) -> list[tuple[str, str]]:
    """All that is known of a group, as names and values."""
    layer, heads = group.first, group.first.heads
    if heads is None:
        return [("not read because", layer.unread or "not known")]
    return [
        ("each token sees", sees(layer, heads)),
        ("heads", who_reads_whom(heads)),
        ("d_k, d_v", f"{'not known' if heads.d_k is None else heads.d_k}, {heads.d_v}"),
        ("scale", scale(heads)),
        ("position", position(heads)),
        ("soft cap", "none" if heads.softcap is None else f"{heads.softcap:g}"),
        ("learned sink", "one logit a head" if heads.sinks else "none"),
        ("norm of q and k", "yes" if heads.norm else "none"),
        ("projections", PROJECTIONS[heads.projections]),
        ("computed in", heads.dtype),
        ("equals the model to", error(group)),
    ]


def sees(layer: LayerAnatomy, heads: Heads) -> str:
    """Which tokens a token of this layer looks at."""
    if layer.kind == "cross":
        return "all tokens of the source"
    if layer.tiled:
        return f"the {layer.window} patches of its own tile"
    if layer.reach == "local":
        before = f": itself and {(layer.window or 1) - 1} before it"
        return f"a window of {layer.window}{before if heads.causal else ' around it'}"
    if layer.reach == "chunked":
        return f"itself and the earlier tokens of its chunk of {layer.window}"
    if layer.reach == "sparse":
        return "the tokens that an index chose for it"
    return "itself and all before it" if heads.causal else "all tokens"


def position(heads: Heads) -> str:
    """How these layers know the order of tokens."""
    if heads.rotated and heads.d_k and heads.rotated < heads.d_k:
        return (
            f"rotary: {heads.rotated} of the {heads.d_k} dimensions of queries and keys are "
            "turned by their position"
        )
    return POSITIONS[heads.position]


def who_reads_whom(heads: Heads) -> str:
    """How many query heads share a key and value head."""
    if heads.heads == heads.kv_heads:
        return f"{heads.heads}, each with keys and values of its own"
    group = heads.heads // heads.kv_heads
    if heads.kv_heads == 1:
        return f"{heads.heads} query heads, all on one key and value head"
    return f"{heads.heads} query heads, {group} on each of {heads.kv_heads} key and value heads"


def scale(heads: Heads) -> str:
    """The factor on q·k, and what it would be if it followed d_k."""
    value, width, rule = heads.scale.value, heads.d_k, heads.scale.rule
    if width is None:
        return "not known"
    usual = f"1/√{width} = {width**-0.5:.4g}"
    if rule == "1/√d_k":
        return usual
    if value is None:
        return f"1/(√{width} · (layer + 1))"
    told = f"1/{width} = {value:.4g}" if rule == "1/d_k" else f"{value:.4g}"
    return f"{told}, not {usual}"


def error(group: LayerGroup) -> str:
    """How close the recomputed output came, the worst of the group."""
    if group.max_error is None:
        return "not read"
    of_all = f", the largest of {len(group.layers)} layers" if len(group.layers) > 1 else ""
    return f"{small(group.max_error)}{of_all}"


def remarks(group: LayerGroup) -> list[str]:
    """What is unusual in these layers, each in a sentence or two."""
    heads = group.first.heads
    if heads is None:
        return []
    told = [about_scale(heads)]
    if heads.softcap is not None:
        cap = f"{heads.softcap:g}"
        told.append(
            f"Before the softmax the logits z become {cap} · tanh(z / {cap}): none can be larger "
            f"than {cap}."
        )
    if heads.sinks:
        told.append(
            "A learned sink takes a share of every row, and gives it to no token: the weights of a "
            "row sum to less than 1."
        )
    if heads.norm and heads.scale.reason != "norm":
        told.append(
            "Queries and keys pass a norm before the product, so that their lengths cannot grow in "
            "training until one key takes all (QK-norm)."
        )
    if group.first.twice:
        told.append(
            "These layers attend twice with the same weights, over two parts of the values; what "
            "the model makes of the two outputs is not shown."
        )
    return [sentence for sentence in told if sentence]


def about_scale(heads: Heads) -> str:
    """Why a model's scale is not 1/√d_k, or where it is hidden; nothing where it is usual."""
    scale, width = heads.scale, heads.d_k
    if width is None:
        return (
            "This attention offers no queries and keys whose product is the score: the weights "
            "shown are the model's own, and no scale can be told."
        )
    if scale.rule == "1":
        return _about_no_division(scale, width)
    if scale.rule == "1/(√d_k · (layer + 1))":
        return (
            f"Besides √{width}, each layer divides by its number, counted from 1: the third by "
            f"3 · √{width} (an option of GPT-2)."
        )
    if scale.rule == "1/√d_k":
        if scale.reason != "query":
            return ""
        return (
            f"This model divides the query by √{width} before the product, not the product after "
            "it. The weights are the same."
        )
    return _about_another_factor(scale, width)


def _about_no_division(scale: Scale, width: int) -> str:
    if scale.reason == "start values":
        return (
            f"This model does not divide by √{width}. Its family, T5, gives the query projection "
            f"start values smaller by √{width} instead: the same when training starts, but not "
            "after it, since Adam's steps do not shrink with the start values."
        )
    if scale.reason == "norm":
        return (
            f"This model does not divide by √{width}: queries and keys pass a norm first, and the "
            "gain learned in it takes the place of the divisor."
        )
    return f"This model does not divide by √{width}: q·k enters the softmax at its full size."


def _about_another_factor(scale: Scale, width: int) -> str:
    root = f"√{width} = {width**0.5:.3g}"
    name, setting = scale.setting or ("", 0.0)
    if scale.rule == "1/d_k":
        origin = f", by the {name} of its configuration" if name else ""
        return (
            f"This model divides by d_k = {width}, not by {root}{origin}. It was trained that way: "
            "dividing by d_k weakens a start, it does not forbid learning."
        )
    if name == "query_pre_attn_scalar":
        return (
            f"This model divides by √{setting:g}, the {name} of its configuration, not by {root}. "
            "The divisor is a setting here and does not follow d_k."
        )
    if name:
        return (
            f"This model multiplies by {setting:.4g}, the {name} of its configuration: it divides "
            f"by {1 / setting:.3g} where the usual divisor would be {root}."
        )
    value = scale.value or 0.0
    if terms := PRODUCTS.get(scale.rule):
        return (
            f"This model adds {terms} products to one score, of content and of position, and "
            f"divides by √({terms} · {width}): a sum of {terms} has {terms} times the variance."
        )
    return (
        f"This model multiplies by {value:.4g}, which is {value * width**0.5:.3g} times the usual "
        f"1/√{width}."
    )


def group_caption(card: Card, group: LayerGroup) -> str:
    """The line under the drawing of a group."""
    layer, heads = group.first, group.first.heads
    parts = ["real", card.title, group_name(group)]
    if heads is None or layer.n is None:
        return " · ".join([*parts, "not read"])
    queries, keys = layer.n
    parts.append(f"n = {keys}" if queries == keys else f"n = {queries} queries, {keys} keys")
    parts.append(f"d_k = {'not known' if heads.d_k is None else heads.d_k}")
    return " · ".join([*parts, badge(card, group)])


def badge(card: Card, group: LayerGroup) -> str:
    """How well a group was verified, with a tick only where recording changed nothing."""
    if card.recording_difference == 0:
        error = small(group.max_error or 0.0)
        return f"✓ equals the model to {error}, recording changes its output by 0"
    return "✗ not verified: recording changes the model's output"


def tree_described(heads: Heads) -> str:
    """The drawing of query heads over key and value heads in words."""
    return f"Query heads above, key and value heads below: {who_reads_whom(heads)}."


def tree_caption(heads: Heads) -> str:
    """What the drawing of the heads says, with an example."""
    if heads.heads == heads.kv_heads:
        return "Each query head has its own keys and values."
    group = heads.heads // heads.kv_heads
    return f"Query heads {numbers(range(group))} read key and value head 0" + (
        ", and so on." if heads.kv_heads > 1 else ": there is only one."
    )


def unread_groups(card: Card) -> list[str]:
    """For each group that was not read: which layers, and the reason."""
    if not card.was_read:
        return []  # one and the same for all, and told above
    return [
        f"{group_name(group)}. {_reason(group)}"
        for group in card.groups
        if group.first.heads is None
    ]


def _reason(group: LayerGroup) -> str:
    """Why a group was not read; what is said of one layer, said of each."""
    reason = group.first.unread or ""
    reason = f"{reason[:1].upper()}{reason[1:]}"
    if len(group.layers) == 1:
        return reason
    reason = re.sub(r"^Its attention\b", "The attention of each", reason)
    return re.sub(r"^It\b", "Each", reason)
