"""The finder on the page: choose what to look for, read which heads do it, open one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import finder as finding
from attnviz.ui import finder_sentences as sentences
from attnviz.ui import look
from attnviz.ui.finder import Found
from attnviz.ui.readings import Asked, Reading

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.patterns import Kind

PATIENCE = 0.3  # seconds, before a bar shows how far it is
SHOWN_ROWS = 10


def finder(asked: Asked, reading: Reading, part: str, on_open: Callable[[int, int], None]) -> None:
    """Find heads by what they look at; `on_open` is called with layer and head of a chosen row."""
    from attnviz.head_frames import heads_of_kind

    found = _found(asked, reading, part)
    kind = _kind(found, part)
    table = heads_of_kind(found.table, kind.name)
    told = [*sentences.best(found, kind, table), sentences.on_repeats(found, kind, table)]
    for sentence in filter(None, told):
        st.markdown(look.plain(sentence))
    ordinary = sentences.ORDINARY if kind.name in sentences.ORDINARY_ONLY else ""
    told = [sentences.compared(found, kind, table), ordinary, sentences.OPEN]
    st.caption(look.plain(" ".join(filter(None, told))))
    # A row is chosen in one table: of another text it would be another head.
    _heads(table, f"finder_heads_{part}_{kind.name}_{hash(asked.key)}", on_open)


def _found(asked: Asked, reading: Reading, part: str) -> Found:
    """All scores; a bar says how far they are once that takes longer than a moment."""
    place, start = st.empty(), monotonic()

    def progress(share: float, doing: str) -> None:
        if monotonic() - start > PATIENCE:
            place.progress(share, look.plain(doing))

    found = finding.found(asked, reading, part, progress)
    place.empty()
    return found


def _kind(found: Found, part: str) -> Kind:
    """Let the visitor say what to look for, and read how that is scored."""
    names = {kind.name: kind for kind in found.kinds}
    key = f"finder_kind_{part}"
    if st.session_state.get(key) not in names:  # chosen for a model with other kinds
        st.session_state.pop(key, None)
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    name = left.selectbox(
        "What to look for",
        list(names),
        format_func=lambda name: f"{name}: {names[name].looks}",
        key=key,
    )
    kind = names[name]
    with right.popover("How this is scored"):
        st.markdown(look.plain(kind.definition))
        st.latex(kind.formula)
        st.markdown(sentences.HOW)
        st.markdown(look.plain(sentences.COMPARED))
        st.markdown(look.plain(sentences.RANDOM))
    return kind


def _heads(table: pd.DataFrame, key: str, on_open: Callable[[int, int], None]) -> None:
    """The heads, best first, of which one can be opened."""
    heads = list(zip(table["layer"], table["head"], strict=True))
    st.dataframe(
        table,
        hide_index=True,
        width="stretch",
        height=35 * (min(SHOWN_ROWS, len(table)) + 1) + 3,
        column_config={
            name: st.column_config.NumberColumn(format="%.3f")
            for name in table.columns
            if table[name].dtype.kind == "f"
        },
        key=key,
        on_select=partial(_open, key, heads, on_open),
        selection_mode="single-row",
    )


def _open(key: str, heads: Sequence[tuple[int, int]], on_open: Callable[[int, int], None]) -> None:
    rows = st.session_state[key].selection.rows
    if rows:
        layer, head = heads[rows[0]]
        on_open(int(layer), int(head))
