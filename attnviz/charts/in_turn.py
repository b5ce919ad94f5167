"""Charts are built by one thread at a time.

Altair's method syntax (`alt.Y("weight:Q").title("weight")`) notes the object at hand on its
class for a moment: two visitors' charts that are built at once would get each other's fields.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_building = threading.RLock()


Given = ParamSpec("Given")
Drawing = TypeVar("Drawing")


def in_turn(build: Callable[Given, Drawing]) -> Callable[Given, Drawing]:
    """Let a function that builds a chart wait until no other thread builds one."""

    @functools.wraps(build)
    def built(*args: Given.args, **kwargs: Given.kwargs) -> Drawing:
        with _building:
            return build(*args, **kwargs)

    return built
