"""Matrices as a string that a browser reads: each number rounded as it will be written.

The numbers travel with every picture, so that a reading under the pointer is a number of the
head and not a colour read back. `ui/levels.js` is the other side.
"""

from __future__ import annotations

import base64
from math import ceil, log10
from typing import TypedDict

import numpy as np
from jaxtyping import Bool, Float

HIDDEN = 2**16 - 1
USUAL_DECIMALS, MOST_DECIMALS = 3, 7


class Levels(TypedDict):
    """`cells` is base 64 of 16 bits a cell, low byte first, row after row.

    Level 0 is `low`, each further one 10^−decimals more; `high` is the largest number, or the
    largest distance from 0 where some numbers are negative.
    """

    cells: str
    low: float
    high: float
    decimals: int


def levels(
    values: Float[np.ndarray, "row column"], hidden: Bool[np.ndarray, "row column"] | None = None
) -> Levels:
    """Return numbers to three or four digits of the largest, those below 1 to three decimals.

    What is hidden, infinite or no number has no level.
    """
    shown = np.isfinite(values)
    if hidden is not None:
        shown &= ~hidden
    seen = values[shown]
    high = float(np.abs(seen).max(initial=0.0)) or 1.0
    decimals = decimals_of(high)
    reach = ceil(high * 10.0**decimals) if (seen < 0).any() else 0
    steps = np.rint(np.where(shown, values, 0.0).astype(np.float64) * 10.0**decimals) + reach
    cells = np.where(shown, steps, HIDDEN).astype("<u2")
    text = base64.b64encode(cells.tobytes()).decode()
    return {"cells": text, "low": -reach / 10.0**decimals, "high": high, "decimals": decimals}


def decimals_of(reach: float) -> int:
    """How many decimals numbers deserve that are up to so large."""
    return min(max(USUAL_DECIMALS - ceil(log10(reach)), 0), MOST_DECIMALS)
