"""One number per head: how its weights are spread, and where they go.

Every function takes weights whose last two axes are query and key and averages over the
queries. A row that sees m keys is compared with the uniform row over those m: a causal row i
sees i + 1 keys, an encoder's row sees all.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def entropy(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head query"]:
    """Entropy of each row in nats: 0 if one key has all the weight, ln m if m share it."""
    # Half the time of torch.special.entr; what is below the smallest normal number adds nothing.
    tiny = torch.finfo(weights.dtype).tiny
    return (weights * weights.clamp(min=tiny).log().neg()).sum(-1)


def relative_entropy(
    weights: Float[Tensor, "*head query key"], visible: Bool[Tensor, "query key"]
) -> Float[Tensor, "*head"]:
    """Mean entropy over that of the uniform row, in 0..1; rows that see one key are left out."""
    keys = visible.sum(-1)
    several = keys > 1
    return (entropy(weights)[..., several] / keys[several].log()).mean(-1)


def effective_keys(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head"]:
    """Mean of exp(entropy): among how many keys a row could be shared evenly."""
    return entropy(weights).exp().mean(-1)


def previous_token(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head"]:
    """Mean weight from each token to the one before it, in 0..1 (Olsson et al. 2022)."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


def first_token(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head"]:
    """Mean weight from every later token to the first one, in 0..1: an attention sink."""
    return weights[..., 1:, 0].mean(-1)


def diagonal(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head"]:
    """Mean weight from each token but the first to itself, in 0..1."""
    return weights.diagonal(dim1=-2, dim2=-1)[..., 1:].mean(-1)


def distance(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head"]:
    """Mean of Σ weight · |query − key|, in tokens."""
    queries, keys = weights.shape[-2:]
    apart = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    return (weights * apart).sum(-1).mean(-1)


def induction(weights: Float[Tensor, "*head query key"], period: int) -> Float[Tensor, "*head"]:
    """Mean weight to the token that followed the last time, in 0..1, on [BOS] + r + r.

    `period` is the length of r. The mean runs over the second copy, where query i looks at key
    i − period + 1: prefix matching (Olsson et al. 2022), with the follower that its erratum
    names.
    """
    followers = weights.diagonal(offset=1 - period, dim1=-2, dim2=-1)
    return followers[..., -period:].mean(-1)


def row_variance(
    values: Float[Tensor, "*head query key"], visible: Bool[Tensor, "query key"]
) -> Float[Tensor, "*head"]:
    """Variance within a row over its visible keys (unbiased), averaged over the rows.

    This is the part of the variance of scores or logits that the softmax sees: a constant
    added to a whole row changes nothing. Rows that see fewer than two keys are left out.
    """
    keys = visible.sum(-1, keepdim=True)
    seen = values.masked_fill(~visible, 0.0)
    centred = (seen - seen.sum(-1, keepdim=True) / keys.clamp(min=1)).masked_fill(~visible, 0.0)
    several = keys.squeeze(-1) > 1
    variances = (centred**2).sum(-1) / (keys.squeeze(-1) - 1).clamp(min=1)
    return variances[..., several].mean(-1)
