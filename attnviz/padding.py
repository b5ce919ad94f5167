"""Which positions of a batch stand for no token, told by the inputs of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attnviz.families import Kind, Tower


@dataclass(frozen=True)
class Padding:
    """The padding of the tokens that a model reads, of those that it writes, and of others.

    All are bool (batch, token), None where there is none. `encoded` is that of states which a
    decoder is given from outside.
    """

    read: Tensor | None
    written: Tensor | None
    encoded: Tensor | None
    has_encoder: bool

    @classmethod
    def of(cls, inputs: Mapping[str, Any], has_encoder: bool) -> Padding:
        """Find it in the attention masks of the inputs."""
        return cls(
            _zeros(inputs.get("attention_mask")),
            _zeros(inputs.get("decoder_attention_mask")),
            _zeros(inputs.get("encoder_attention_mask")),
            has_encoder,
        )

    def at(
        self, tower: Tower, kind: Kind, batch: int, size: tuple[int, int]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Padding among the queries and among the keys of a call."""
        queries = self.written if tower == "decoder" and self.has_encoder else self.read
        keys = queries
        if kind == "cross":
            keys = self.read if self.has_encoder else self.encoded
        if tower in ("vision", "audio"):
            queries = keys = None
        return _fitting(queries, (batch, size[0])), _fitting(keys, (batch, size[1]))


def _zeros(mask: Any) -> Tensor | None:
    if not isinstance(mask, Tensor) or mask.dim() != 2 or bool(mask.all()):
        return None
    return mask == 0


def _fitting(padding: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """The padding, unless the call works on other rows, such as windows or picked tokens."""
    return padding if padding is not None and tuple(padding.shape) == shape else None
