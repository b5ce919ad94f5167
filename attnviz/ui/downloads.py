"""What is on screen as files: a fold of buttons, none of which has worked before its click."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import look

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.attention_call import AttentionCall
    from attnviz.export import Drawing, Shown

    Matrix = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]  # weights, queries, keys

ARRAY_TOKENS = 4096  # of an axis: 64 MB of float32
KINDS = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "html": "text/html",
    "csv": "text/csv",
    "npy": "application/octet-stream",
    "safetensors": "application/octet-stream",
}


@dataclass(frozen=True)
class Item:
    """A file that can be had: `make` is called when, and only when, it is asked for.

    `make` should look up what it needs where that is cached, since it is kept as long as its
    button is on screen. What it raises ends in Streamlit's line that there is no file: what can
    be known before is told before. `refused` says why the file cannot be had, "" if it can.
    """

    label: str
    file_name: str
    about: str
    make: Callable[[], bytes | str]
    refused: str = ""

    @property
    def kind(self) -> str:
        """The media type, by the ending of the file's name."""
        return KINDS[self.file_name.rpartition(".")[2]]


def downloads(items: Sequence[Item], key: str = "downloads") -> None:
    """A fold with a button for each file, and a sentence for each that cannot be had."""
    fold = st.expander("Take it home", on_change="rerun", key=key)
    if not fold.open:
        return
    row = fold.container(horizontal=True)
    for item in items:
        row.download_button(
            item.label,
            data=item.make,
            file_name=item.file_name,
            mime=item.kind,
            help=item.about,
            disabled=bool(item.refused),
            on_click="ignore",  # a run would withdraw the files of the buttons still on screen
            key=f"{key}_{item.label}",
        )
    for item in items:
        if item.refused:
            fold.caption(look.plain(f"{item.label}: {item.refused}"))


def figure(shown: Shown, charts: Callable[[], Sequence[Drawing]]) -> list[Item]:
    """The picture on screen: `charts` builds it, one chart below the other."""

    def made(ending: str) -> bytes | str:
        from attnviz.export import PICTURES

        return PICTURES[ending](charts(), shown.caption)

    about = {
        "png": "The picture with its caption.",
        "svg": "The same, sharp at any size.",
        "html": "One file that answers the pointer, without a network.",
    }
    return [
        Item(ending.upper(), shown.file_name(ending), said, partial(made, ending))
        for ending, said in about.items()
    ]


def numbers(shown: Shown, matrix: Callable[[], Matrix]) -> list[Item]:
    """The numbers on screen: `matrix` gives a `weight_matrix` with its two `token_axis`."""
    from attnviz import export

    tokens = max(shown.n or (0,))
    return [
        Item(
            "CSV",
            shown.file_name("csv"),
            "The weights as a table, tokens with their positions at its sides.",
            lambda: export.table(*matrix(), shown.caption),
            export.too_long_for_a_table(tokens) if tokens > export.CSV_TOKENS else "",
        ),
        Item(
            "NPY",
            shown.file_name("npy"),
            "The weights as an array of NumPy, rows are queries.",
            lambda: export.array(matrix()[0].to_numpy()),
            _too_large(tokens) if tokens > ARRAY_TOKENS else "",
        ),
    ]


def vectors(shown: Shown, call: Callable[[], AttentionCall], head: int) -> list[Item]:
    """Queries, keys and values of a head."""

    def make() -> bytes:
        from attnviz import export

        return export.vectors(call(), head, shown)

    about = "Queries, keys and values of this head, from which every weight can be computed."
    return [Item("Q, K, V", shown.file_name("safetensors"), about, make)]


def _too_large(tokens: int) -> str:
    return (
        f"{tokens:,} tokens make an array of {4 * tokens**2 / 2**20:,.0f} MB; at most "
        f"{4 * ARRAY_TOKENS**2 / 2**20:,.0f} MB are handed out. Take Q, K, V, or a window."
    )
