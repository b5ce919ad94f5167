"""Matrices as a string that a browser reads: 65,535 levels between the ends of their scale.

The numbers travel with every picture, so that a reading under the pointer is a number of the
head and not a colour read back. `ui/levels.js` is the other side.
"""

from __future__ import annotations

import base64
from typing import TypedDict

import numpy as np
from jaxtyping import Bool, Float

HIDDEN = 2**16 - 1
LEVELS = HIDDEN - 1


class Levels(TypedDict):
    """`cells` is base 64 of 16 bits a cell, low byte first, row after row; level 0 is `low`."""

    cells: str
    low: float
    high: float


def levels(
    values: Float[np.ndarray, "row column"], hidden: Bool[np.ndarray, "row column"] | None = None
) -> Levels:
    """Return numbers to 1/65,534 of their scale: from 0, or about 0 where some are negative.

    What is hidden, infinite or no number has no level.
    """
    shown = np.isfinite(values)
    if hidden is not None:
        shown &= ~hidden
    seen = values[shown]
    high = float(np.abs(seen).max(initial=0.0)) or 1.0
    low = -high if (seen < 0).any() else 0.0
    finite = np.where(shown, values, 0.0).astype(np.float64)
    steps = np.rint((finite - low) / (high - low) * LEVELS)
    cells = np.where(shown, steps, HIDDEN).astype("<u2")
    return {"cells": base64.b64encode(cells.tobytes()).decode(), "low": low, "high": high}
