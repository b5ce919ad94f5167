"""What the page “One cell” says of a cell, step by step, made from the cell's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attnviz.ui import sentences
from attnviz.ui.card_sentences import listed
from attnviz.ui.cell_chain import number, scale_remark, scale_sign, seven, three
from attnviz.ui.cell_equations import is_latent, is_used_as_made, roles, rotated, seen
from attnviz.ui.sentences import word

if TYPE_CHECKING:
    from attnviz.cell import Cell, IntoStream, Logit, Role, Softmax
    from attnviz.distance import DistanceCurve
    from attnviz.ui.cells import Worked

STEPS = ("Three roles", "Position", "Match", "Scale", "Softmax", "Retrieve", "Into the stream")
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
MATCHES = 1e-4  # how near a recomputed weight must come for a tick; captures must come as near
NEARER = 3  # tokens by which a key is moved in thought
HALF_KNOWN = (
    "Queries and keys are rotated by their places, but only of one of the two could it be followed "
    "what it was before."
)
NO_Q_AND_K = (
    "This model offers no queries and keys whose product is the score: its weights are shown as "
    "it computes them, and this step cannot be."
)


# --- the cell as a whole


def headline(worked: Worked) -> str:
    """The question that the page answers."""
    query, key = _tokens(worked)
    if worked.kind == "cross":
        return f"How much does {query} of the target look at {key} of the source?"
    if _is_one_token(worked):
        return f"How much does {query} look at itself?"
    return f"How much does {query} look at {key}?"


def _is_one_token(worked: Worked) -> bool:
    """Whether the query's token is the key's; a learned query before a sequence is none of it."""
    queries, keys = worked.head.n
    return worked.kind == "self" and worked.query == worked.key and queries == keys


def badge(worked: Worked) -> str:
    """The weight as it was recomputed, that of the model, and how far they are apart."""
    cell, head = worked.cell, worked.head
    here = f"recomputed here {seven(cell.weight)}"
    if cell.match is None:
        here = f"the model's own weight {seven(cell.weight)}, not recomputed"
    elif cell.model_weight is not None:
        here = f"{here} · the model {seven(cell.model_weight)}"
    if head.recording_difference != 0:
        changes = f"recording changes the model's output by {head.recording_difference:.1g}"
        return f"✗ not verified: {here}, but {changes}"
    if cell.model_weight is None or cell.match is None:
        return f"{here}; {_confirmed(worked)}"
    return f"{here} · {_difference(worked)}"


def _confirmed(worked: Worked) -> str:
    """What speaks for a weight where the model's own cannot be had."""
    error, own = worked.head.max_error, "the model's own weights cannot be had, "
    equal = f"to {error:.0e}" if error else "exactly"
    return f"{own if worked.cell.match else ''}its output is confirmed {equal}"


def _difference(worked: Worked) -> str:
    """How far the weights of the head are apart, with a tick where that is what it should be."""
    largest, precision = worked.cell.largest_difference, worked.head.precision
    if largest is None:
        return "no row of this head can be compared"
    told = f"largest difference in this head {f'{largest:.0e}' if largest else '0'}"
    if precision != "float32":
        return f"computed in {precision}, recomputed in float32, {told}"
    return f"{'✓' if largest <= MATCHES else '✗'} {told}"


def caption(worked: Worked) -> str:
    """The line under the pictures of a cell."""
    head, (query, key) = worked.head, _tokens(worked)
    d_v = len(worked.cell.value.used)
    widths = [] if head.d_k is None else [f"d_k = {head.d_k}"]
    widths += [] if head.d_k == d_v else [f"d_v = {d_v}"]
    where = ["real", head.title, sentences.place(head), f"{query} → {key}"]
    size = f"n = {sentences.size(head)}"
    return " · ".join([*where, size, *widths, sentences.scale(head), sentences.badge(head)])


def limits() -> tuple[str, str, str]:
    """The claim that attention is a search, and what it does not say."""
    return (
        "That the scores come from q·k, the weights from the scores, and the output from the "
        "weights and v is true by definition; that a token “searches” is a picture, and in "
        "self-attention q, k and v are all made from the same vectors x.",
        "Only two products of the matrices matter, W_QK = W_Qᵀ W_K and W_OV = W_O W_V (Elhage et "
        "al. 2021): replace W_Q by M W_Q and W_K by (M⁻¹)ᵀ W_K, or W_V by M W_V and W_O by "
        "W_O M⁻¹, with any invertible matrix M, and neither q·k nor what the head adds to the "
        "stream changes, as long as no bias, no rotation and no norm stands between the two.",
        "A weight is not an importance: what a token brings is its weight times its value, which "
        "may be short or long (Kobayashi et al. 2020), and how far weights explain what a model "
        "says is disputed (Jain and Wallace 2019; Wiegreffe and Pinter 2019).",
    )


def told(worked: Worked, step: int) -> tuple[str, ...]:
    """What a step shows, in one to three sentences made from its numbers."""
    return tuple(sentence for sentence in TOLD[step](worked) if sentence)


# --- 1 Three roles


def _told_of_roles(worked: Worked) -> list[str]:
    return [_from_which(worked), _by_which(worked), f"{_sharing(worked)}{_after(worked)}".strip()]


def _from_which(worked: Worked) -> str:
    """Whose vectors are used for what."""
    query, key = _tokens(worked)
    if worked.cell.query is None:
        return f"The vector of {key} makes the value v. {NO_Q_AND_K}"
    if worked.kind == "cross":
        return (
            f"The query q is made from the vector of {query} in the target, the key k and the "
            f"value v from that of {key} in the source: two sequences, so two kinds of "
            "vectors, x and y."
        )
    if _is_one_token(worked) and _made_of_one(worked, "q", "k"):
        told = f"One vector, that of {query}, makes the query q, the key k and the value v."
    elif _is_one_token(worked):
        told = (
            f"{query} stands for one vector on the side of the queries, which makes q, and for "
            "another one on that of the keys, which makes k and v."
        )
    else:
        told = (
            f"The vector of {query} makes the query q, the vector of {key} makes the key k and "
            "the value v; each token has all three."
        )
    if _made_of_one(worked, "k", "v"):
        return told
    return f"{told} k and v are made from two different vectors of that token."


def _made_of_one(worked: Worked, one: str, other: str) -> bool:
    """Whether two roles of one token are made from the same vector, as far as that is known."""
    made = roles(worked)
    a, b = made[one].x, made[other].x
    return a is None or b is None or a.tolist() == b.tolist()


def _by_which(worked: Worked) -> str:
    """Which matrices make them, of how many numbers, and what of it is shown."""
    made = {name: role for name, role in roles(worked).items() if role.matrix is not None}
    lost = [name for name in roles(worked) if name not in made]
    unknown = f"how {listed(lost)} {_were(lost)} made cannot be followed" if lost else ""
    if not made:
        return f"{_capital(unknown)}."
    by_matrix: dict[str, list[str]] = {}
    for name, role in made.items():
        by_matrix.setdefault(role.matrix or "", []).append(f"W_{name.upper()}")
    where, short = _shared_path([m for matrix in by_matrix for m in matrix.split(" and ")])
    clauses = [_are(names, short(matrix)) for matrix, names in by_matrix.items()]
    shown = f"shown are the rows of head {worked.cell.head}"
    parts = [f"{where}{listed(clauses)}", _of_how_many(made), unknown, shown]
    return f"{_capital('; '.join(filter(None, parts)))}."


def _are(names: list[str], matrix: str) -> str:
    """Which matrix of the model stands for W_Q, W_K or W_V."""
    if len(names) > 1:
        return f"{listed(names)} are one matrix, {matrix}"
    return f"{names[0]} is {matrix}{' together' if ' and ' in matrix else ''}"


def _of_how_many(made: dict[str, Role]) -> str:
    """How many numbers x has, and a latent vector where there is one."""
    sizes = {len(role.x) for role in made.values() if role.x is not None}
    size = f" of {sizes.pop():,} numbers" if len(sizes) == 1 else ""
    latent: dict[int, list[str]] = {}
    for name, role in made.items():
        if role.entering is not None and is_latent(role):
            latent.setdefault(len(role.entering), []).append(name)
    if not latent:
        return f"x has {size.removeprefix(' of ')}" if size else ""
    each = [f"one of {width:,} for {listed(names)}" for width, names in latent.items()]
    return f"x{size} makes a short latent vector first, {listed(each)}"


def _shared_path(matrices: Sequence[str]) -> tuple[str, Callable[[str], str]]:
    """Where in the model these matrices are, and what one calls them there."""
    paths = {_path(name).rpartition(".")[0] for name in matrices}
    if len(paths) > 1 or "" in paths:
        return "", _path
    path = paths.pop()
    return f"in {path}, ", lambda name: " and ".join(
        _path(one).removeprefix(f"{path}.") for one in name.split(" and ")
    )


def _were(things: Sequence[str]) -> str:
    return "were" if len(things) > 1 else "was"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _sharing(worked: Worked) -> str:
    if worked.group == 1:
        return ""
    first = worked.cell.kv_head * worked.group
    last = first + worked.group - 1
    heads = f"{first} to {last}" if worked.group > 2 else f"{first} and {last}"
    return f"Heads {heads} share key and value head {worked.cell.kv_head}. "


def _after(worked: Worked) -> str:
    """What happens between the matrix and the use."""
    changed = [
        name
        for name, role in roles(worked).items()
        if role.made is not None
        and not is_used_as_made(worked, role, worked.query_factor if name == "q" else 1.0)
    ]
    if worked.norm:
        also = " The value is changed as well, by a norm or a factor." if "v" in changed else ""
        return f"Queries and keys then pass a norm of their own (QK-norm).{also}"
    if not changed:
        return ""
    return (
        f"The model changes {listed(changed)} further before use, by a term or a factor that is "
        "not in the equation; shown is what was used."
    )


# --- 2 Position


def _told_of_position(worked: Worked) -> list[str]:
    said = [_of_rotation(worked), _of_bias(worked), _of_added(worked), _of_measured(worked)]
    if any(said):
        return said
    if worked.kind == "cross":
        return [
            "The two tokens are of two sequences, so there is no distance between them, and no "
            "term that stands for one."
        ]
    return [
        "No term for the places of the two tokens was seen in this layer, and no rotation: what "
        "it can know of their order is already in their vectors."
    ]


def _of_rotation(worked: Worked) -> str:
    """The score before and after the rotation, and as it would be at another distance."""
    cell = worked.cell
    if not (cell.query and cell.key and cell.match):
        return ""
    if not rotated(worked):
        one_known = not (cell.query.unrotated is None and cell.key.unrotated is None)
        return HALF_KNOWN if one_known else ""
    assert cell.query.unrotated is not None
    assert cell.key.unrotated is not None
    query, key = cell.query.unrotated.tolist(), cell.key.unrotated.tolist()
    before = math.fsum(one * other for one, other in zip(query, key, strict=True))
    score, moved = number(cell.match.score), _moved(worked, "rotation")
    told = (
        f"Queries and keys are rotated by their places: before, the score is {number(before)}, "
        f"afterwards, {_apart(worked)}, it is {score}."
    )
    if moved is None:
        return told
    how, value, _ = moved
    _, name = _tokens(worked)
    return f"{told} Were {name} {how}, it would be {number(value)}."


def _of_bias(worked: Worked) -> str:
    logit = worked.cell.logit
    if logit is None or logit.bias is None:
        return ""
    told = f"The model adds {number(logit.bias)} to the logit of this cell, a position bias"
    moved = _moved(worked, "bias")
    if moved is None:
        return f"{told}."
    how, value, place = moved
    return (
        f"{told}; to that of {word(worked.head.keys, place)}, which is {how}, it adds "
        f"{number(value)}."
    )


def _of_added(worked: Worked) -> str:
    """Vectors added to the tokens, with their lengths."""
    added = worked.added_positions
    if added is None:
        return ""
    query, key = _tokens(worked)
    if added.query is None:
        return (
            f"The model adds vectors for places, from {_path(added.name)}, to its tokens before "
            "the first layer, if not to all of them: there word and place are in one vector, and "
            "no score can be split into the two."
        )
    one = _is_one_token(worked)
    vectors = [x for x in (added.query, added.key)[: 1 if one else 2] if x is not None]
    lengths = listed([number(math.hypot(*x.tolist())) for x in vectors]) if vectors else ""
    what = "A vector for its place" if one else "Vectors for their places"
    size = f", of length{'' if one else 's'} {lengths}, from" if lengths else " from"
    origin = f"{size} {_path(added.name)}{',' if lengths else ''}"
    return (
        f"{what}{origin} {'was' if one else 'were'} added to "
        f"{query if one else f'{query} and {key}'} before the first layer: word and place are in "
        "one vector, and no score can be split into the two."
    )


def _of_measured(worked: Worked) -> str:
    curve = _curve(worked, "measured")
    if curve is None:
        return ""
    values = dict(zip(curve.distance.tolist(), curve.value.tolist(), strict=True))
    here = values.get(worked.query - worked.key)
    moved = _moved(worked, "measured")
    if here is None or moved is None or worked.cell.logit is None:
        return ""
    _, value, place = moved
    return (
        f"Measured over this head, keys {_where(worked.query - worked.key)} have {number(here)} on "
        f"average for scale · q·k, keys {_where(worked.query - place)} {number(value)}; this cell "
        f"has {number(worked.cell.logit.scaled)}."
    )


def _curve(worked: Worked, kind: str) -> DistanceCurve | None:
    return next((curve for curve in worked.curves if curve.kind == kind), None)


def _moved(worked: Worked, kind: str) -> tuple[str, float, int] | None:
    """Another place of the key: how far off in words, what the curve has there, and the place.

    Nearer by a few tokens, on the same side of the query; further off where nothing is nearer.
    """
    curve = _curve(worked, kind)
    if curve is None:
        return None
    here = worked.query - worked.key
    values = dict(zip(curve.distance.tolist(), curve.value.tolist(), strict=True))
    side = [d for d in values if d * (here or 1) >= 0 and d != here]
    nearer = [d for d in side if abs(here) - NEARER <= abs(d) < abs(here)]
    further = [d for d in side if abs(here) < abs(d) <= abs(here) + NEARER]
    if not nearer and not further:
        return None
    there = min(nearer, key=abs) if nearer else max(further, key=abs)
    by = abs(abs(here) - abs(there))
    how = f"{_tokens_of(by)} {'nearer' if nearer else 'further off'}"
    return how, values[there], worked.query - there


def _apart(worked: Worked) -> str:
    distance = abs(worked.query - worked.key)
    return f"{_tokens_of(distance)} apart" if distance else "at one place"


def _where(distance: int) -> str:
    """Where a key stands that is so far before its query."""
    if not distance:
        return "at their query's own place"
    return f"{_tokens_of(abs(distance))} {'before' if distance > 0 else 'after'} their query"


def _tokens_of(count: int) -> str:
    return f"{count} token{'s' if count > 1 else ''}"


# --- 3 Match


def _told_of_match(worked: Worked) -> list[str]:
    if worked.cell.match is None:
        return [NO_Q_AND_K]
    return [_deciding(worked), _rank(worked)]


def _deciding(worked: Worked) -> str:
    """The dimensions that decide, with what they make together."""
    from attnviz.cell_frames import deciding

    match = worked.cell.match
    assert match is not None
    products, score = match.products.tolist(), match.score
    chosen = deciding(match.products, score)
    if not chosen:
        return f"The score is {number(score)}: no dimension decides it."
    made = math.fsum(products[d] for d in chosen)
    which = ", ".join(map(str, chosen))
    who = f"{NUMBERS[len(chosen)]} of {len(products)} dimensions make {number(made)}"
    if len(chosen) == 1:
        who, which = f"Dimension {chosen[0]} alone makes {number(made)}", ""
    which = f": {which}" if which else ""
    if abs(made) <= abs(score):
        return f"{who} of the score {number(score)}{which}."
    others = "The others, which together speak against it, bring the score to"
    return f"{who}{which}. {others} {number(score)}."


def _rank(worked: Worked) -> str:
    """Where the score stands among those of all keys that the query sees."""
    match, logit = worked.cell.match, worked.cell.logit
    assert match is not None
    assert logit is not None
    query, key = _tokens(worked)
    if not logit.visible:
        return (
            f"The mask hides {key} from {query}, so the score, whatever it is, counts for nothing."
        )
    row = match.row.tolist()
    scores = {j: row[j] for j in seen(worked)}
    if len(scores) == 1:
        return f"{query} sees no other key."
    larger = sum(score > row[worked.key] for score in scores.values())
    least, most = min(scores, key=row.__getitem__), max(scores, key=row.__getitem__)
    place = _ordinal(larger, len(scores), "largest", "smallest")
    return (
        f"Of the scores of the {len(scores)} keys that {query} sees, this one is the {place}; they "
        f"go from {number(row[least])} ({word(worked.head.keys, least)}) to {number(row[most])} "
        f"({word(worked.head.keys, most)})."
    )


# --- 4 Scale


def _told_of_scale(worked: Worked) -> list[str]:
    match, logit = worked.cell.match, worked.cell.logit
    if match is None or logit is None:
        return [NO_Q_AND_K]
    d_k, (query, key) = len(match.products), _tokens(worked)
    told = (
        f"The score {number(match.score)} times {scale_sign(logit, d_k)} is "
        f"{number(logit.scaled)}: {scale_remark(logit, d_k, worked.query_factor)}."
    )
    then = []
    if logit.capped is not None:
        then.append(f"the soft cap makes {number(logit.capped)} of it")
    if logit.bias is not None and logit.visible:
        then.append(f"the position bias adds {number(logit.bias)}")
    if not logit.visible:
        then.append(f"the mask hides {key} from {query}, which makes the logit −∞")
    more = f"{listed(then)[:1].upper()}{listed(then)[1:]}." if then else ""
    if logit.visible and not then:
        more = (
            "That is the logit: there is no soft cap and no position bias, and the key is visible."
        )
    elif logit.visible:
        more += f" The logit is {number(logit.logit)}."
    return [told, more]


# --- 5 Softmax


def _told_of_softmax(worked: Worked) -> list[str]:
    cell = worked.cell
    if cell.softmax is None or cell.logit is None:
        return [f"{NO_Q_AND_K} {_against_even(worked)}"]
    if not cell.logit.visible:
        query, key = _tokens(worked)
        return [f"{key} is hidden from {query}: exp(−∞) = 0, and so is the weight."]
    return [_share(worked, cell.logit, cell.softmax), _sink(cell), _against_even(worked)]


def _share(worked: Worked, logit: Logit, softmax: Softmax) -> str:
    own = number(float(softmax.exponentials[worked.key]), 4)
    told = f"The logit {three(logit.logit)}"
    if softmax.shift:
        told = (
            f"All logits of the row are lowered by m = {three(softmax.shift)} first, which keeps "
            f"the exponentials readable and the weights as they are: {three(logit.logit)} becomes "
            f"{three(logit.logit - softmax.shift)}. It"
        )
    return (
        f"{told} has the exponential {own}, and those of the whole row sum to "
        f"{number(softmax.total, 4)}: the weight is {number(worked.cell.weight)}."
    )


def _sink(cell: Cell) -> str:
    if cell.sink_share is None:
        return ""
    return (
        f"A learned sink, a logit without a key, takes {number(cell.sink_share)} of the row, so "
        "the weights sum to less than 1."
    )


def _against_even(worked: Worked) -> str:
    """The weight beside that of weights spread evenly over the keys that can be seen."""
    query, _ = _tokens(worked)
    visible = len(seen(worked))
    if visible < 2:
        return f"{query} sees no other key." if visible else f"{query} sees no key."
    times = worked.cell.weight * visible
    told = f"{number(times)} times that" if times >= 1 else f"only {number(times)} of that"
    told = "just that" if abs(times - 1) < 0.01 else told
    return (
        f"{query} sees {visible} keys; spread evenly, each would have {number(1 / visible)}, and "
        f"this weight is {told}."
    )


# --- 6 Retrieve


def _told_of_retrieving(worked: Worked) -> list[str]:
    query, _ = _tokens(worked)
    if not any(worked.cell.weights.tolist()):
        return [f"{query} sees no key, so nothing comes back."]
    return [_who_brings_most(worked), _cancelled(worked.cell), NOT_IMPORTANCE]


NOT_IMPORTANCE = (
    "What comes back is weight times value (Kobayashi et al. 2020); how far that explains what "
    "the model says is disputed."
)


def _who_brings_most(worked: Worked) -> str:
    """The token with the largest weight against the one that brings most."""
    cell, keys = worked.cell, worked.head.keys
    weights, brought = cell.weights.tolist(), cell.retrieved.brought.tolist()
    total = math.fsum(brought)
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    most = max(range(len(brought)), key=brought.__getitem__)
    if not total:
        return "All values have length 0, so nothing comes back."
    where = "" if cell.retrieved.through_w_o else ", before W_O, which could not be followed"
    share = f"{number(brought[most] / total)} of all lengths{where}"
    if heaviest == most:
        told = f"{word(keys, most)} has the largest weight, {number(weights[most])}, and brings"
        return f"{told} most to the output as well: {share}.{_this_one(worked, [most], total)}"
    return (
        f"{word(keys, heaviest)} has the largest weight, {number(weights[heaviest])}, but "
        f"{word(keys, most)}, with {number(weights[most])}, brings most to the output: {share}, "
        f"against {number(brought[heaviest] / total)}."
        f"{_this_one(worked, [most, heaviest], total)}"
    )


def _this_one(worked: Worked, named: list[int], total: float) -> str:
    """The key of the cell, where it is none of those that were named."""
    if worked.key in named:
        return ""
    _, key = _tokens(worked)
    brought = float(worked.cell.retrieved.brought[worked.key])
    return f" {key}, with {number(worked.cell.weight)}, brings {number(brought / total)}."


def _cancelled(cell: Cell) -> str:
    """How much of the lengths is lost where vectors point apart."""
    through, into = cell.retrieved.through_w_o, cell.into_stream
    if through and into is None:
        return ""
    vector = into.part if through and into is not None else cell.retrieved.output
    left, total = math.hypot(*vector.tolist()), math.fsum(cell.retrieved.brought.tolist())
    if not total:
        return ""
    lost = max(0.0, 1 - left / total)
    share = f"{100 * lost:.0f} % of it cancels" if lost >= 0.005 else "hardly any of it cancels"
    return (
        f"The lengths of all that is brought add up to {number(total)}, their sum has length "
        f"{number(left)}: {share}."
    )


# --- 7 Into the stream


def _told_of_stream(worked: Worked) -> list[str]:
    into = worked.cell.into_stream
    if into is None:
        return [
            "How this model mixes the outputs of its heads could not be followed, so it is not "
            "shown where this one goes."
        ]
    return [_through_w_o(worked, into), _added(worked, into)]


def _through_w_o(worked: Worked, into: IntoStream) -> str:
    """The head's part, and how long it is among all heads."""
    lengths, head = into.heads.tolist(), worked.cell.head
    gate = ", multiplied number by number first (a gate or a norm)" if into.gated else ""
    told = (
        f"From the {len(worked.cell.retrieved.output)} numbers of this head's output{gate}, W_O "
        f"({_path(into.matrix)}) makes a vector of {len(into.part):,} numbers and of length "
        f"{number(math.hypot(*into.part.tolist()))}"
    )
    if len(lengths) == 1:
        return f"{told}; there is no other head."
    longer = sum(length > lengths[head] for length in lengths)
    rank = _ordinal(longer, len(lengths), "longest", "shortest")
    return (
        f"{told}, the {rank} among the {len(lengths)} heads (from {number(min(lengths))} to "
        f"{number(max(lengths))})."
    )


def _added(worked: Worked, into: IntoStream) -> str:
    """All heads against the stream that they are added to, and who reads it."""
    query, _ = _tokens(worked)
    later = "from there all that follows reads it"
    if into.added is None or into.before is None:
        return (
            f"All heads together make the layer's part for {query}, the token that looks; where "
            "it is added to the stream was not found."
        )
    added, before = (math.hypot(*x.tolist()) for x in (into.added, into.before))
    changed = ", after a norm or a factor," if into.changed else ""
    beside = (
        f", with {into.others:,} numbers of another kind that W_O takes," if into.others else ""
    )
    return (
        f"All heads together{beside} add{changed} a vector of length {number(added)} to the stream "
        f"at {query}, the token that looks, which has length {number(before)} before; {later}."
    )


# --- numbers and names


def _ordinal(before: int, count: int, most: str, least: str) -> str:
    """The place in an order: largest, 2nd largest, …, smallest."""
    if before == 0:
        return most
    if before == count - 1:
        return least
    place = before + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th") if place % 100 // 10 != 1 else "th"
    return f"{place}{ending} {most}"


def _tokens(worked: Worked) -> tuple[str, str]:
    return word(worked.head.queries, worked.query), word(worked.head.keys, worked.key)


def _path(name: str) -> str:
    """The path of a matrix, or of several, without the word that all of them end in."""
    return " and ".join(one.removesuffix(".weight") for one in name.split(" and "))


TOLD: tuple[Callable[[Worked], list[str]], ...] = (
    _told_of_roles,
    _told_of_position,
    _told_of_match,
    _told_of_scale,
    _told_of_softmax,
    _told_of_retrieving,
    _told_of_stream,
)
