"""What is kept of a run: one frozen value for each attention call, and for each unread layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from attnviz.families import Kind, Tower


class UnreadableModel(Exception):  # noqa: N818 - the word that the design gives it
    """The attention of a model cannot be shown faithfully; the message says why."""


@dataclass(frozen=True)
class AttentionCall:
    """One call of one attention module: everything that entered its softmax.

    `query` and `key` are as the product used them, after rotation, norm and splitting;
    `query_unrotated` and `key_unrotated` are before a rotary position encoding, None where
    nothing was rotated. `mask` is True where a key is visible, None where all are; `bias` was
    added to the logits; `sinks` holds one learned logit per head. Padding is True at positions
    that stand for no token: their rows are hidden. `window` is the number of tokens that a
    local layer sees. `max_error` is the largest absolute difference between the rows
    recomputed from these fields and the model's own output.

    `observed_weights` are the model's own, kept only where queries and keys cannot be had as
    such; `query` and `key` are None then. `query_factor` is what the model multiplied the query
    by before the product: it is in `query` already, and part of the scale that a paper means.
    `read_at` says whether transformers' attention interface was observed, or the operations of
    a model that computes attention by itself.
    """

    module: str
    layer: int
    tower: Tower
    kind: Kind
    query: Float[Tensor, "batch head query d_k"] | None
    key: Float[Tensor, "batch kv_head key d_k"] | None
    value: Float[Tensor, "batch kv_head key d_v"]
    scale: float
    softcap: float | None
    sinks: Float[Tensor, " head"] | None
    bias: Float[Tensor, "#batch #head query key"] | None
    mask: Bool[Tensor, "#batch #head query key"] | None
    max_error: float
    query_unrotated: Float[Tensor, "batch head query d_k"] | None = None
    key_unrotated: Float[Tensor, "batch kv_head key d_k"] | None = None
    query_padding: Bool[Tensor, "batch query"] | None = None
    key_padding: Bool[Tensor, "batch key"] | None = None
    observed_weights: Float[Tensor, "batch head query key"] | None = None
    window: int | None = None
    query_factor: float = 1.0
    read_at: Literal["interface", "operations"] = "interface"

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self._by_query.shape[1]

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads, at most the number of query heads."""
        return self.value.shape[1]

    @property
    def d_k(self) -> int | None:
        """Width of one query or key vector, None where there are none as such."""
        return None if self.query is None else self.query.shape[-1]

    @property
    def d_v(self) -> int:
        """Width of one value vector."""
        return self.value.shape[-1]

    @property
    def n(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self._by_query.shape[2], self.value.shape[2]

    @property
    def _by_query(self) -> Tensor:
        """Queries or weights, whichever there are."""
        rows = self.observed_weights if self.query is None else self.query
        assert rows is not None
        return rows

    def kv_head(self, head: int) -> int:
        """The key and value head that a query head reads (Ainslie et al. 2023)."""
        return head // (self.heads // self.kv_heads)


@dataclass(frozen=True)
class UnreadLayer:
    """A layer that shows nothing, and the reason in one sentence."""

    layer: int
    tower: Tower
    module: str
    reason: str


@dataclass(frozen=True)
class Capture:
    """All attention calls of one run of a model, in the order of execution.

    `unread` names the layers that have no call here: those without softmax attention, and
    those whose recomputed output did not confirm what was read.
    """

    model_type: str
    calls: tuple[AttentionCall, ...]
    unread: tuple[UnreadLayer, ...] = ()
