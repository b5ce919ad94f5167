"""What is known of the surroundings of an attention call: matrices before and after, the stream."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Projection:
    """A product with one of the model's matrices: result[row] = weight · source[row] + bias.

    `name` is the path of the matrix in the model. `inner` is the product within the same
    attention that made the source, as for queries and keys from a latent vector, else None.
    """

    name: str
    source: Float[Tensor, "row d_in"]
    weight: Float[Tensor, "d_out d_in"]
    bias: Float[Tensor, " d_out"] | None
    inner: Projection | None = None


@dataclass(frozen=True)
class Origin:
    """Where the vectors of one role come from, each number by itself.

    Number (batch, head, token, width) is number `column` of row `row` of the result of
    `projections[which]`; `which` is -1 where no product with a matrix was found.
    """

    projections: tuple[Projection, ...]
    which: Int[Tensor, "batch head token width"]
    row: Int[Tensor, "batch head token width"]
    column: Int[Tensor, "batch head token width"]


@dataclass(frozen=True)
class Mixing:
    """W_O: the product that mixes the heads' outputs.

    Number (batch, head, query, d_v) of the output of the call, times what the model multiplies it
    by in between (a gate), is number `column` of row `row` of the projection's source.
    """

    projection: Projection
    row: Int[Tensor, "batch head query d_v"]
    column: Int[Tensor, "batch head query d_v"]


@dataclass(frozen=True)
class Stream:
    """Where the heads' sum is added; rows are those of W_O's result.

    `before` is the residual stream, `added` W_O's result, or what a norm or a factor made of it:
    `changed` is True then.
    """

    before: Float[Tensor, "row d_model"]
    added: Float[Tensor, "row d_model"]
    changed: bool


@dataclass(frozen=True)
class AddedPositions:
    """The vectors that the model adds to its tokens for their places; `name` is their table.

    None where they are not one for each token of the call.
    """

    name: str
    vectors: Float[Tensor, "token d_model"] | None


@dataclass(frozen=True)
class Wiring:
    """What surrounds one attention call; None where it could not be followed.

    `weights` are the model's own: what its attention function itself gives the keys, told by
    calling it with values that are 1 for one key and 0 for all others.
    """

    query: Origin | None = None
    key: Origin | None = None
    value: Origin | None = None
    output: Mixing | None = None
    stream: Stream | None = None
    positions: AddedPositions | None = None
    weights: Float[Tensor, "batch head query key"] | None = None
