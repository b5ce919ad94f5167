"""Several heads or layers in one matrix, and attention rollout, with what each of them hides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.attention_call import AttentionCall
from attnviz.windows import ALL, What, window

How = Literal["mean", "maximum"]
LONGEST = 512  # tokens that a rollout multiplies matrices of
HIDES = {
    "mean": (
        "A mean hides which head looks where: two heads that each look at one token look like "
        "one head that is undecided between two."
    ),
    "maximum": (
        "A maximum hides how many heads look there: one of many is enough, and its rows are "
        "shares of nothing."
    ),
    "layers": (
        "Over layers, heads are averaged within each layer first, since head 3 of one layer has "
        "nothing to do with head 3 of another; and deeper layers look at vectors in which tokens "
        "are mixed already."
    ),
    "rollout": (
        "Rollout treats attention as if it were all that happens: every layer counts one half "
        "for the stream and one half for the mean of its heads, and the lengths of values, W_O, "
        "norms, feed-forward layers and attention to another text are left out."
    ),
}


def pooled(
    matrices: Iterable[Float[Tensor, "query key"]], how: How, what: What = "weights"
) -> Float[Tensor, "query key"]:
    """The mean or the maximum of matrices, of which two at a time are held.

    NaN where a key is hidden in all of them. One that is hidden in some has a weight of 0 there,
    so that rows of a mean still sum to 1; scores and logits are averaged over the others. Of
    signed numbers the maximum is the one of largest magnitude.
    """
    whole = seen = None
    number = 0
    for matrix in matrices:
        number += 1
        shown, filled = ~matrix.isnan(), matrix.nan_to_num(0.0)
        if whole is None or seen is None:
            whole, seen = filled, shown.float()
            continue
        seen += shown
        if how == "mean":
            whole += filled
        else:
            whole = torch.where(filled.abs() > whole.abs(), filled, whole)
    if whole is None or seen is None:
        raise ValueError("There is nothing to take the mean or the maximum of.")
    if how == "mean":
        whole = whole / (number if what == "weights" else seen)
    return whole.masked_fill(seen == 0, torch.nan)


def over_heads(
    call: AttentionCall,
    how: How,
    queries: slice = ALL,
    keys: slice = ALL,
    what: What = "weights",
    heads: Sequence[int] | None = None,
    batch: int = 0,
) -> Float[Tensor, "query key"]:
    """The mean or maximum over the heads of a layer, or over some; rows and columns as asked."""
    chosen = range(call.heads) if heads is None else heads
    return pooled((window(call, head, queries, keys, what, batch) for head in chosen), how, what)


def over_layers(
    calls: Mapping[int, AttentionCall], how: How, queries: slice = ALL, keys: slice = ALL
) -> Float[Tensor, "query key"]:
    """The mean or maximum over the layers of a part of the mean over the heads of each.

    `calls` are by layer. Weights of the first sequence of the batch. Raises `ValueError` where
    layers have different tokens.
    """
    _check_tokens(calls)
    return pooled((over_heads(call, "mean", queries, keys) for call in calls.values()), how)


def rollout(
    calls: Mapping[int, AttentionCall], unread: Collection[int] = ()
) -> Float[Tensor, "query key"]:
    """Attention rollout: how much of each token's vector comes from which token of the input.

    Abnar and Zuidema 2020, "Quantifying attention flow in transformers": the product over layers
    of ½ A + ½ I with rows divided by their sum, A the mean over the heads; rows are tokens after
    the last layer. NaN where no path leads, and for rows that stand for no token. `calls` are all
    of a part by layer, `unread` the layers of it that were not read. Raises `ValueError` with a
    sentence where it is not defined.
    """
    _check_rollout(calls, unread)
    whole: Tensor | None = None
    reached: Tensor | None = None
    for _, call in sorted(calls.items()):
        weights = over_heads(call, "mean")
        step = _with_stream(weights.nan_to_num(0.0))
        path = _with_stream((~weights.isnan()).float())
        whole = step if whole is None else step @ whole
        reached = path if reached is None else path @ reached
    assert whole is not None
    assert reached is not None
    hidden = reached == 0
    if call.query_padding is not None:
        hidden = hidden | call.query_padding[0, :, None]
    return whole.masked_fill(hidden, torch.nan)


def _with_stream(weights: Float[Tensor, "query key"]) -> Float[Tensor, "query key"]:
    """½ A + ½ I, rows divided by their sum: a learned sink or a blind row takes from them."""
    mixed = (weights + torch.eye(len(weights))) / 2
    return mixed / mixed.sum(-1, keepdim=True)


def _check_rollout(calls: Mapping[int, AttentionCall], unread: Collection[int]) -> None:
    if not calls or any(call.kind != "self" for call in calls.values()):
        raise ValueError(
            "Attention rollout needs queries and keys that are the same tokens; this is "
            "attention to another text."
        )
    missing = sorted(set(range(max(calls))) - set(calls) | set(unread))
    if missing:
        named = ", ".join(map(str, missing))
        raise ValueError(
            f"Attention rollout multiplies all layers, and these could not be read: {named}."
        )
    _check_tokens(calls)
    n = next(iter(calls.values())).n
    if n[0] != n[1]:
        raise ValueError(
            f"Attention rollout needs as many queries as keys; here they are {n[0]} and {n[1]}."
        )
    if n[0] > LONGEST:
        raise ValueError(
            f"Attention rollout is worked out for texts of at most {LONGEST} tokens; this one "
            f"has {n[0]:,}."
        )


def _check_tokens(calls: Mapping[int, AttentionCall]) -> None:
    if len({call.n for call in calls.values()}) > 1:
        raise ValueError("The layers of this part do not have the same tokens.")
