"""All heads of a model as one picture, from which a head is opened by pointer, finger or keys.

Picture and choice are two components, see `choosing`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnviz.charts import mosaic as picture
from attnviz.charts import theme
from attnviz.charts.mosaic import PartOfHeads
from attnviz.ui import choosing

HOW_TO = "Arrow keys move from head to head, Enter opens one."
SHARES = ("weight on the previous token", "weight on the first token", "weight on itself")
HTML = """
<div class="drawing mosaic">
  <div class="reading" aria-hidden="true"></div>
  <div class="parts"></div>
  <div class="scale">
    <span class="ramp"><canvas></canvas><span class="ticks"></span></span>
    <span class="title"></span>
    <span class="hidden"><span class="swatch"></span><span></span></span>
  </div>
  <div id="told" aria-live="polite"></div>
</div>
"""
_drawing = choosing.drawing("mosaic", HTML)


def mosaic(
    parts: Sequence[PartOfHeads],
    chosen: tuple[str, int, int] | None,
    *,
    label: str,
    key: str,
    on_choose: Callable[[str, int, int], None],
    colour: str | None = None,
    order: str | None = None,
) -> None:
    """Draw all heads and frame the chosen one: its part, layer and head.

    `colour` and `order` are statistics of the tables; None is for patterns, and for layers.
    When a visitor opens a head, `on_choose` is called with its part, layer and head before the
    script runs again, as callbacks of widgets are. `label` says what is drawn.
    """
    choosing.mount(
        _drawing,
        key,
        of=_digest(parts),
        data=_drawn(parts, colour, order) | {"label": f"{label}. {HOW_TO}"},
        choice={"chosen": list(chosen) if chosen else None},
        told=lambda state: told(state, parts),
        on_choose=on_choose,
    )


def told(state: object, parts: Sequence[PartOfHeads]) -> tuple[str, int, int] | None:
    """The head that a browser has told of, None where that is none of these."""
    message = choosing.message(state)
    part, layer, head = (message.get(name) for name in ("part", "layer", "head"))
    if message.get("of") != _digest(parts) or type(layer) is not int or type(head) is not int:
        return None
    for one in parts:
        if one.part == part and 0 <= head < len(one.thumbnails.get(layer, ())):
            return one.part, layer, head
    return None


def _digest(parts: Sequence[PartOfHeads]) -> str:
    """A name for the heads: a choice among others says nothing of these."""
    return f"{zlib.crc32(repr([_structure(part) for part in parts]).encode()):08x}"


def _structure(part: PartOfHeads) -> tuple[str, list[tuple[int, int]]]:
    return part.part, [(layer, len(part.thumbnails.get(layer, ()))) for layer in part.layers]


def _drawn(parts: Sequence[PartOfHeads], colour: str | None, order: str | None) -> dict[str, Any]:
    """What the picture shows, whichever head is chosen."""
    scale = picture.shading(parts, colour)
    shades = [picture.shaded(part, scale, colour) for part in parts]
    ticks = scale.ticks
    return {
        "parts": [_part(*each, order) for each in zip(parts, shades, strict=True)],
        "cells": _packed(shades),
        "readings": _readings(parts, colour or order),
        "palette": picture.palette().tobytes().hex(),
        "scale": {
            "title": scale.title,
            "places": list(ticks),
            "words": list(ticks.values()),
            "hidden": "hidden by the mask" if colour is None else "says nothing here",
        },
        "look": {
            "font_size": theme.FONT_SIZE,
            "title_size": theme.TITLE_SIZE,
            "small_font": theme.SMALL_FONT,
            "real": theme.REAL,
            "covered": f"rgb({' '.join(map(str, theme.COVERED[:3]))} / {theme.COVERED[3] / 255})",
            "gap": theme.MOSAIC_GAP,
        },
    }


def _part(part: PartOfHeads, shades: Mapping[int, np.ndarray], order: str | None) -> dict[str, Any]:
    """A part's layers, each with its heads, key and value heads, and cells down and across."""
    kv_heads = part.table.groupby("layer")["kv_head"].nunique()
    sides = [max(cells.shape[axis] for cells in part.thumbnails.values()) for axis in (1, 2)]
    return {
        "part": part.part,
        "title": part.title,
        "aspect": float(np.clip(sides[0] / sides[1], theme.FLATTEST, 1 / theme.FLATTEST)),
        "gaps": picture.gaps(part),
        "layers": [
            [layer, shades[layer].shape[0], int(kv_heads[layer]), *shades[layer].shape[1:]]
            if layer in shades
            else [layer, 0, 0, 0, 0]
            for layer in part.layers
        ],
        "order": None if order is None else picture.ranked(part, order).tolist(),
    }


def _packed(shades: Sequence[Mapping[int, np.ndarray]]) -> str:
    """All cells, part after part and layer after layer, a byte each, deflated, in base 64."""
    cells = b"".join(of[layer].tobytes() for of in shades for layer in sorted(of))
    return base64.b64encode(zlib.compress(cells)).decode()


def _readings(parts: Sequence[PartOfHeads], statistic: str | None) -> dict[str, Any]:
    """What is read of each head: one statistic, or the largest of the shares."""
    names = [statistic] if statistic else list(SHARES)
    values = np.concatenate([part.table.reindex(columns=names).to_numpy(float) for part in parts])
    largest = np.nan_to_num(values, nan=-np.inf).argmax(1)
    found = values[np.arange(len(values)), largest]
    return {
        "names": names,
        "which": largest.tolist(),
        "values": [float(f"{value:.3g}") if np.isfinite(value) else None for value in found],
    }
