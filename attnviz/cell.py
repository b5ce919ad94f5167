"""One cell of an attention matrix worked out: from two tokens' vectors to one weight and on.

Vaswani et al. 2017, equation 1, for one query and one key of one head of a real model, every
number on the way kept. The equation itself is `equation`'s.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import attention, equation
from attnviz.capture import AttentionCall
from attnviz.weighing import gate, given_to_w_o, lengths, w_o
from attnviz.wiring import Mixing, Origin, Projection, Stream, Wiring

WRITABLE = 20.0  # e^20 and e^-20 are numbers that can still be read on a page


@dataclass(frozen=True)
class Role:
    """How one token's vector became its query, key or value.

    `entering` is what the matrix named `matrix` is given: the vector of the token, x, or, where
    `x` is another one, a latent vector made from it. `made` is W · entering + b; `unrotated` is
    after the model's norms and before its rotation; `used` is what the attention used. All but
    `used` are None where they cannot be told; `unrotated` also where nothing is rotated, and
    `bias`, which is b, where there is none.
    """

    token: int
    used: Float[Tensor, " width"]
    matrix: str | None = None
    x: Float[Tensor, " d_model"] | None = None
    entering: Float[Tensor, " d_in"] | None = None
    made: Float[Tensor, " width"] | None = None
    unrotated: Float[Tensor, " width"] | None = None
    bias: Float[Tensor, " width"] | None = None


@dataclass(frozen=True)
class Match:
    """q·k, dimension by dimension, and for all keys of the row."""

    products: Float[Tensor, " d_k"]
    score: float
    row: Float[Tensor, " key"]


@dataclass(frozen=True)
class Logit:
    """From the score to what enters the softmax; None for what the model does not do.

    `scaled` = scale · score, `capped` = softcap · tanh(scaled / softcap), and `logit` is that
    plus `bias`, or −∞ where the key is hidden. `row` has the logits of all keys.
    """

    scale: float
    scaled: float
    softcap: float | None
    capped: float | None
    bias: float | None
    visible: bool
    logit: float
    row: Float[Tensor, " key"]


@dataclass(frozen=True)
class Softmax:
    """exp(logit − shift) over the row's sum; `sink` is the term of a learned sink in that sum.

    `shift` is the row's largest logit where exponentials would get too large or too small to
    be written, else 0.
    """

    shift: float
    exponentials: Float[Tensor, " key"]
    sink: float | None
    total: float


@dataclass(frozen=True)
class Retrieved:
    """What comes back: output = Σ weight · value, and how much of it each key brings.

    `brought` is ‖weight · value · W_O‖ (Kobayashi et al. 2020), without W_O where `through_w_o`
    is False. `share` is weight · value of the cell's key.
    """

    share: Float[Tensor, " d_v"]
    output: Float[Tensor, " d_v"]
    brought: Float[Tensor, " key"]
    through_w_o: bool


@dataclass(frozen=True)
class IntoStream:
    """The head's part of the vector that its layer adds to the stream.

    `part` is W_O of this head times its output; `bias` is W_O's own, shared by all heads. `heads`
    has the length of every head's part. `added` is what the layer adds, all heads together;
    `changed` says that a norm made it of their sum. `before` is the stream before that. These
    three are None where the addition was not found. `gated` says that the output was multiplied by
    something before W_O, and `others` how many numbers W_O takes that are no head's, as those of a
    convolution: they are in `added` too.
    """

    matrix: str
    part: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | None
    heads: Float[Tensor, " head"]
    added: Float[Tensor, " d_model"] | None = None
    before: Float[Tensor, " d_model"] | None = None
    changed: bool | None = None
    gated: bool = False
    others: int = 0


@dataclass(frozen=True)
class Cell:
    """Every number of one cell.

    `query`, `key`, `match`, `logit` and `softmax` are None where the model offers no queries and
    keys as such. `kv_head` is the key and value head that the head reads. `weight` is recomputed
    here, `model_weight` what the model's own attention gives, and `largest_difference` how far
    the two are apart at most in this head; None where the model's own cannot be had.
    """

    head: int
    kv_head: int
    query: Role | None
    key: Role | None
    value: Role
    match: Match | None
    logit: Logit | None
    softmax: Softmax | None
    weights: Float[Tensor, " key"]
    sink_share: float | None
    retrieved: Retrieved
    into_stream: IntoStream | None
    model_weight: float | None
    largest_difference: float | None

    @property
    def weight(self) -> float:
        """The weight of the cell."""
        return float(self.weights[self.value.token])


def cell(call: AttentionCall, wiring: Wiring, head: int, query: int, key: int) -> Cell:
    """Work out one cell of the first sequence of a batch, in float32."""
    kv_head = call.kv_head(head)
    weights = attention.weights(call, head)
    match = logit = softmax = None
    if call.query is not None and call.key is not None:
        match = _match(call, head, query, key)
        logit = _logit(call, head, query, key, match.score)
        softmax = _softmax(logit.row, None if call.sinks is None else float(call.sinks[head]))
    retrieved, into_stream = _retrieved_and_mixed(call, wiring, weights, head, query, key)
    own = None if wiring.weights is None else wiring.weights[0, head].float()
    return Cell(
        head=head,
        kv_head=kv_head,
        query=_role(call.query, call.query_unrotated, wiring.query, head, query),
        key=_role(call.key, call.key_unrotated, wiring.key, kv_head, key),
        value=_role_of(call.value, None, wiring.value, kv_head, key),
        match=match,
        logit=logit,
        softmax=softmax,
        weights=weights[query],
        sink_share=None if softmax is None else _sink_share(softmax),
        retrieved=retrieved,
        into_stream=into_stream,
        model_weight=None if own is None else float(own[query, key]),
        largest_difference=None if own is None else _largest_difference(call, weights, own),
    )


def _role(
    used: Tensor | None, unrotated: Tensor | None, origin: Origin | None, head: int, token: int
) -> Role | None:
    return None if used is None else _role_of(used, unrotated, origin, head, token)


def _role_of(
    used: Tensor, unrotated: Tensor | None, origin: Origin | None, head: int, token: int
) -> Role:
    """One vector of (batch head token width) tensors, and what it was made of."""
    role = Role(
        token=token,
        used=used[0, head, token].float(),
        unrotated=None if unrotated is None else unrotated[0, head, token].float(),
    )
    return role if origin is None else _with_origin(role, origin, head)


def _with_origin(role: Role, origin: Origin, head: int) -> Role:
    """The vector that most of its numbers were made of stands for what entered."""
    which, row, column = (
        places[0, head, role.token] for places in (origin.which, origin.row, origin.column)
    )
    found = Counter(which[which >= 0].tolist())
    if not found:
        return role
    main = found.most_common(1)[0][0]
    projection, token_row = origin.projections[main], _only(row[which == main])
    bias = _bias(origin.projections, which, column)
    return replace(
        role,
        matrix=" and ".join(dict.fromkeys(origin.projections[index].name for index in found)),
        bias=bias,
        made=_made(origin.projections, which, row, column, bias),
        entering=None if token_row is None else projection.source[token_row].float(),
        x=None if token_row is None else _x(projection, token_row),
    )


def _only(rows: Tensor) -> int | None:
    """The one row that all numbers belong to, None if they belong to several."""
    return int(rows[0]) if bool((rows == rows[0]).all()) else None


def _x(projection: Projection, row: int) -> Tensor | None:
    """What entered the innermost product; None where its rows are not those of the outer one."""
    while projection.inner is not None:
        if len(projection.inner.source) != len(projection.source):
            return None
        projection = projection.inner
    return projection.source[row].float()


def _bias(projections: tuple[Projection, ...], which: Tensor, column: Tensor) -> Tensor | None:
    """The b of each number, None where no product has one."""
    biases = {index: projections[index].bias for index in which.unique().tolist() if index >= 0}
    if bool((which < 0).any()) or all(bias is None for bias in biases.values()):
        return None
    found = torch.zeros(len(which))
    for index, bias in biases.items():
        if bias is not None:
            found[which == index] = bias[column[which == index]].float()
    return found


def _made(
    projections: tuple[Projection, ...],
    which: Tensor,
    row: Tensor,
    column: Tensor,
    bias: Tensor | None,
) -> Tensor | None:
    """W · source + b, each number from the product that it belongs to."""
    if bool((which < 0).any()):
        return None
    made = torch.empty(len(which))
    for index in which.unique().tolist():
        here, projection = which == index, projections[index]
        weight = projection.weight[column[here]].float()
        made[here] = (weight * projection.source[row[here]].float()).sum(-1)
    return made if bias is None else made + bias


def _match(call: AttentionCall, head: int, query: int, key: int) -> Match:
    assert call.query is not None
    assert call.key is not None
    row = attention.scores(call, head)[query]
    products = call.query[0, head, query].float() * call.key[0, call.kv_head(head), key].float()
    return Match(products, float(row[key]), row)


def _logit(call: AttentionCall, head: int, query: int, key: int, score: float) -> Logit:
    """The equation gives each step when it is called with the terms that are done by then."""
    row, bias = attention.logits(call, head)[query], attention.bias(call, head)
    alone = torch.tensor([[score]])
    capped = None
    if call.softcap is not None:
        capped = float(equation.logits(alone, call.scale, softcap=call.softcap))
    return Logit(
        scale=call.scale,
        scaled=float(equation.logits(alone, call.scale)),
        softcap=call.softcap,
        capped=capped,
        bias=None if bias is None else float(bias[query, key]),
        visible=float(row[key]) > -math.inf,
        logit=float(row[key]),
        row=row,
    )


def _softmax(row: Tensor, sink: float | None) -> Softmax:
    shift = _shift(float(row.max()), sink)
    exponentials = (row - shift).exp()
    total = float(exponentials.double().sum())
    if sink is None:
        return Softmax(shift, exponentials, None, total)
    term = math.exp(sink - shift)
    return Softmax(shift, exponentials, term, total + term)


def _shift(largest: float, sink: float | None) -> float:
    """The largest logit where it is beyond what can be written, or a sink that towers above it."""
    if sink is not None and sink > largest + WRITABLE:
        largest = sink
    return largest if WRITABLE < abs(largest) < math.inf else 0.0


def _sink_share(softmax: Softmax) -> float | None:
    return None if softmax.sink is None else softmax.sink / softmax.total


def _largest_difference(call: AttentionCall, weights: Tensor, own: Tensor) -> float | None:
    """Rows that stand for no token or see no key are what the model's code left there."""
    seen = weights.any(-1)
    if call.query_padding is not None:
        seen = seen & ~call.query_padding[0]
    return float((weights - own)[seen].abs().max()) if bool(seen.any()) else None


def _retrieved_and_mixed(
    call: AttentionCall, wiring: Wiring, weights: Tensor, head: int, query: int, key: int
) -> tuple[Retrieved, IntoStream | None]:
    value = call.value[0, call.kv_head(head)].float()
    output = equation.output(weights[query : query + 1], value)[0]
    row, share = weights[query], weights[query, key] * value[key]
    parts = None if wiring.output is None else _parts(wiring.output, query)
    if wiring.output is None or parts is None:
        return Retrieved(share, output, row * value.norm(dim=-1), through_w_o=False), None
    matrix, given = parts[head]
    factor = gate(call, given, output)
    brought = row * lengths(value, matrix, factor)
    retrieved = Retrieved(share, output, brought, through_w_o=True)
    place = int(wiring.output.row[0, head, query, 0])
    into_stream = _into_stream(wiring.output.projection, wiring.stream, place, parts, head)
    return retrieved, replace(into_stream, gated=factor is not None)


def _parts(mixing: Mixing, query: int) -> list[tuple[Tensor, Tensor]] | None:
    """W_O of each head and what it is given; None where heads do not meet in one row."""
    if _only(mixing.row[0, :, query].flatten()) is None:
        return None
    heads = range(mixing.row.shape[1])
    return [(w_o(mixing, head, query), given_to_w_o(mixing, head, query)) for head in heads]


def _into_stream(
    projection: Projection,
    stream: Stream | None,
    row: int,
    parts: list[tuple[Tensor, Tensor]],
    head: int,
) -> IntoStream:
    """One row of W_O's result, by heads, and of the addition to the stream."""
    added = [weight @ given for weight, given in parts]
    return IntoStream(
        matrix=projection.name,
        part=added[head],
        bias=None if projection.bias is None else projection.bias.float(),
        heads=torch.stack(added).norm(dim=-1),
        added=None if stream is None else stream.added[row].float(),
        before=None if stream is None else stream.before[row].float(),
        changed=None if stream is None else stream.changed,
        others=projection.weight.shape[1] - sum(len(given) for _, given in parts),
    )
