"""What fits into this machine: the precision of a model's weights, and where they lie."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attnviz.refusals import gigabytes

CONTAINER_LIMITS = (  # of control groups, version 2 and 1
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
HEADROOM = 1.2  # what a run needs on top of the weights
HALVES = {"BF16": "bfloat16", "F16": "float16"}  # by their names in safetensors


@dataclass(frozen=True)
class Placement:
    """The dtype in which weights are read, and whether all of them fit into memory."""

    dtype: str
    in_memory: bool


def placement(parameters: int, stored: str) -> Placement:
    """Choose float32 where it fits, else the dtype in which the weights are stored.

    float32 is what a lecture wants: half precision blurs the very variances that it shows.
    """
    for dtype in ("float32", stored):
        if fits(parameters, dtype):
            return Placement(dtype, in_memory=True)
    return Placement(stored, in_memory=False)


def stored_dtype(counts: Mapping[str, int]) -> str:
    """Return the dtype of most of the numbers in safetensors files, counted by its name there."""
    return HALVES.get(max(counts, key=lambda name: counts[name], default=""), "float32")


def needed_memory(parameters: int, dtype: str) -> int:
    """Return the bytes that a run with so many parameters takes."""
    return int((4 if dtype == "float32" else 2) * parameters * HEADROOM)


def fits(parameters: int, dtype: str) -> bool:
    """Whether so many parameters fit into the memory that is free."""
    free = free_memory()
    return free is None or needed_memory(parameters, dtype) <= free


def account(parameters: int, dtype: str) -> dict[str, str]:
    """Return what is needed and what is free, as a sentence tells it."""
    needed, free = needed_memory(parameters, dtype), free_memory() or 0
    return {"needed": gigabytes(needed), "free": gigabytes(free), "dtype": dtype}


def free_memory() -> int | None:
    """Return the bytes that this process may still take, None where nothing says."""
    limits = []
    with suppress(OSError, AttributeError):  # each of these is missing on some system
        page = os.sysconf("SC_PAGE_SIZE")
        limits.append(os.sysconf("SC_PHYS_PAGES") * page)
        available = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        limits += [1024 * int(available[1])] if available else []
        used = int(Path("/proc/self/statm").read_text().split()[1]) * page
        for file in filter(os.path.exists, CONTAINER_LIMITS):
            limit = Path(file).read_text().strip()
            limits.append(int(limit) - used if limit.isdecimal() else limits[0])
    return min(limits, default=None)


def shares() -> dict[int | str, int]:
    """Return the bytes of weights that each GPU and the memory may hold, for accelerate."""
    from accelerate.utils import get_max_memory

    free: dict[int | str, int] = {"cpu": free_memory() or 0}
    free |= {place: size for place, size in get_max_memory().items() if isinstance(place, int)}
    return {place: int(size / HEADROOM) for place, size in free.items()}
