"""How long a text may be: what reading it costs, estimated before anything runs.

Three limits meet: the places that a model knows, the memory that is free, and the time that a
person waits. A host may set a fourth, `MOST_TOKENS`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnviz.memory import free_memory
from attnviz.refusals import gigabytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_TOKENS: int | None = None  # of one text; a public host may set what it can bear
MOST_SECONDS = 180.0  # of one run

SHARES = {  # how much of a text to cut, and its name
    0.1: "about a tenth",
    0.25: "about a quarter",
    1 / 3: "about a third",
    0.5: "about half",
    2 / 3: "about two thirds",
    0.75: "about three quarters",
    0.9: "about nine tenths",
}


def share_to_cut(length: int, limit: int) -> str:
    """Return in words how much of a text must go."""
    cut = 1 - limit / length
    return next((SHARES[s] for s in SHARES if s >= cut), "more than nine tenths")
