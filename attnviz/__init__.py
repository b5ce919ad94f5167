"""Attention, from the equation to real pretrained models.

In a notebook: `reading = attnviz.read("minilm", "The cat sat.")`, then a view of it such as
`attnviz.matrix(reading, layer=4, head=5)`. What is heavy is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz import attention, capture
    from attnviz.models import catalogue, load
    from attnviz.notebook import lines, matrix, overview, ranking, read, read_with, save

__all__ = [
    "attention",
    "capture",
    "catalogue",
    "lines",
    "load",
    "matrix",
    "overview",
    "ranking",
    "read",
    "read_with",
    "save",
]

MODULES = {"attention", "capture"}
OF_MODELS = {"catalogue", "load"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attnviz' has no attribute {name!r}")
    if name in MODULES:
        return import_module(f"attnviz.{name}")
    return getattr(import_module(f"attnviz.{'models' if name in OF_MODELS else 'notebook'}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
