"""Weights times the length of what each key brings: ‖weight · value · W_O‖.

Kobayashi et al. 2020, "Attention is not only a weight: analyzing transformers with vector norms":
a large weight on a short vector moves little. W_O is that of `wiring`, and so is what the model
multiplies the output by before it (a gate).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz import equation
from attnviz.attention_call import AttentionCall
from attnviz.surroundings import Mixing, Wiring
from attnviz.windows import ALL, window, within

SAME = 1e-5  # relative to the largest number: one vector computed in two ways
TRIED = 5  # rows of a head that tell whether it is gated


def refusal(wiring: Wiring) -> str | None:
    """Why weights cannot be weighed by what they bring, in one sentence; None if they can."""
    if wiring.output is None:
        return (
            "What this layer does with its heads' outputs could not be followed to a matrix W_O, "
            "so that the length of what a key brings is not known."
        )
    columns = wiring.output.column[0]
    if not bool((columns == columns[:, :1]).all()):
        return "W_O takes the output of a head in another order for other tokens of this layer."
    return None


def weighed(
    call: AttentionCall, wiring: Wiring, head: int, queries: slice = ALL, keys: slice = ALL
) -> Float[Tensor, "query key"]:
    """‖weight · value · W_O‖ of some rows and columns of one head; NaN where a key is hidden.

    Of the first sequence of the batch, in the unit of the stream: rows sum to no 1. Raises
    `ValueError` with the sentence of `refusal`.
    """
    lengths = brought_lengths(call, wiring, head, queries)
    return window(call, head, queries, keys) * lengths[:, keys]


def brought_lengths(
    call: AttentionCall, wiring: Wiring, head: int, queries: slice = ALL
) -> Float[Tensor, "#query key"]:
    """‖value · W_O‖ of each key, what it would bring to a query with weight 1.

    One row for all queries, unless a gate treats them differently. Raises `ValueError` with the
    sentence of `refusal`.
    """
    mixing, value = _mixing(wiring), call.value[0, call.kv_head(head)].float()
    # As long as W_O · value, but of width d_v: W_O = Q · R, and Q keeps lengths.
    matrix = torch.linalg.qr(w_o(mixing, head), mode="r").R
    if not is_gated(call, mixing, head):
        return lengths(value, matrix)[None]
    rows = range(call.n[0])[within(queries, call.n[0])]
    factors = [_factor_of_row(call, mixing, head, query) for query in rows]
    return torch.stack([lengths(value, matrix, factor) for factor in factors])


def is_gated(call: AttentionCall, mixing: Mixing, head: int) -> bool:
    """Whether the model multiplies the head's output by something before W_O, told by some rows."""
    last = call.n[0] - 1
    tried = {round(last * place / (TRIED - 1)) for place in range(TRIED)}
    return any(_factor_of_row(call, mixing, head, row) is not None for row in sorted(tried))


def lengths(
    value: Float[Tensor, "key d_v"],
    matrix: Float[Tensor, "d_out d_v"],
    factor: Float[Tensor, " d_v"] | None = None,
) -> Float[Tensor, " key"]:
    """‖factor · value · matrix‖ of each key."""
    carried = value if factor is None else factor * value
    return (carried @ matrix.mT).norm(dim=-1)


def w_o(mixing: Mixing, head: int, query: int = 0) -> Float[Tensor, "d_model d_v"]:
    """The columns of W_O that take the output of one head for one query of the first sequence.

    A view where they lie side by side, as they do in most models: all heads are W_O.
    """
    weight, column = mixing.projection.weight, mixing.column[0, head, query]
    first, width = int(column[0]), len(column)
    if torch.equal(column, torch.arange(first, first + width)):
        return weight[:, first : first + width].float()
    return weight[:, column].float()


def given_to_w_o(mixing: Mixing, head: int, query: int) -> Float[Tensor, " d_v"]:
    """What those columns are given."""
    places = mixing.row[0, head, query], mixing.column[0, head, query]
    return mixing.projection.source[places].float()


def gate(
    call: AttentionCall, given: Float[Tensor, " d_v"], output: Float[Tensor, " d_v"]
) -> Float[Tensor, " d_v"] | None:
    """What the model multiplied the output by before W_O, None if by nothing.

    The output is only known as exactly as rows of the call were confirmed, and a number that is
    not told apart from 0 tells no factor.
    """
    inexact = max(SAME * float(output.abs().max()), 4 * call.max_error)
    if not bool(output.any()) or float((given - output).abs().max()) <= inexact:
        return None
    return torch.where(output.abs() > inexact, given / output, 0.0)


def _mixing(wiring: Wiring) -> Mixing:
    reason = refusal(wiring)
    if wiring.output is None or reason is not None:
        raise ValueError(reason)
    return wiring.output


def _factor_of_row(
    call: AttentionCall, mixing: Mixing, head: int, query: int
) -> Float[Tensor, " d_v"] | None:
    weights = window(call, head, slice(query, query + 1)).nan_to_num(0.0)
    output = equation.output(weights, call.value[0, call.kv_head(head)].float())[0]
    return gate(call, given_to_w_o(mixing, head, query), output)
