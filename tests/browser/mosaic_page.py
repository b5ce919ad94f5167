"""A page with nothing but a mosaic and the choice that it shares; the link says which.

Run by the browser tests, which import `parts` to know what must be drawn.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from attnviz.charts.mosaic import PartOfHeads
from attnviz.ui.mosaic import mosaic

STATISTICS = ("weight on the previous token", "weight on itself", "effective number of keys")
CHOSEN = ("decoder", 1, 2)


def part(
    name: str, layers: int, heads: int, kv_heads: int, side: int, unread: tuple[int, ...] = ()
) -> PartOfHeads:
    """Seeded weights whose upper triangle is hidden."""
    dice = np.random.default_rng(layers * 1009 + heads)
    read = [layer for layer in range(layers) if layer not in unread]
    above = np.triu(np.ones((side, side), bool), 1)
    thumbnails = {
        layer: np.where(above, np.nan, dice.random((heads, side, side)) ** 3).astype(np.float32)
        for layer in read
    }
    rows = [(layer, head, head // (heads // kv_heads)) for layer in read for head in range(heads)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kv_head"])
    for statistic in STATISTICS:
        table[statistic] = dice.random(len(table)).round(3)
    return PartOfHeads(name, f"{name}: tokens among themselves", thumbnails, table, unread)


def parts(asked: dict[str, int]) -> tuple[PartOfHeads, ...]:
    """One part of that many layers and heads, and a small second one if asked for."""
    layers, heads, side = asked["layers"], asked["heads"], asked["side"]
    unread = (layers - 1,) if asked["unread"] else ()
    first = part("decoder", layers, heads, asked["kv_heads"] or heads, side, unread)
    return (first, part("cross", 2, 3, 3, 7)) if asked["two"] else (first,)


USUAL = {"layers": 5, "heads": 6, "kv_heads": 0, "side": 8, "unread": 0, "two": 0}


def choose(part: str, layer: int, head: int) -> None:
    st.session_state["chosen"] = (part, layer, head)
    st.session_state["told"] = st.session_state.get("told", 0) + 1


asked = {name: int(st.query_params.get(name, usual)) for name, usual in USUAL.items()}
colour = st.selectbox("Colour", STATISTICS, index=None, key="colour", bind="query-params")
order = st.selectbox("Order", STATISTICS, index=None, key="order", bind="query-params")
chosen = st.session_state.setdefault("chosen", CHOSEN)
mosaic(
    parts(asked),
    chosen,
    label="All heads",
    key="mosaic",
    on_choose=choose,
    colour=colour,
    order=order,
)
if st.button("Choose the first"):
    st.session_state["chosen"] = ("decoder", 0, 0)
    st.rerun()
st.text(f"Python holds {chosen}, told {st.session_state.get('told', 0)} times")
