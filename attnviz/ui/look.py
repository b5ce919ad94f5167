"""What every page looks like: the two colours, panels, and charts with their numbers."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.charts import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from streamlit.elements.lib.column_types import ColumnConfig

    Drawing = alt.Chart | alt.LayerChart | alt.FacetChart
    Spec = dict[str, Any]

DIGITS = {"i": 4, "f": 10}  # characters of a number: -0.0000123 has most
SHORT = 8  # characters
APP = str(Path(__file__).parents[2] / "app.py")
STYLE = f"""
<style>
[class*="st-key-real"] {{ border-top: 6px solid {theme.REAL}; padding-top: .6rem; }}
[class*="st-key-synthetic"] {{ border-top: 6px solid {theme.SYNTHETIC}; padding-top: .6rem; }}
[data-testid="stCaptionContainer"] :is(p, strong) {{ color: inherit; }}
[data-testid="stCaptionContainer"] {{ color: inherit; opacity: .8; }}
/* Words in charts follow the theme when it is switched: no colour of theirs is in the spec. */
[data-testid="stVegaLiteChart"] svg text {{ fill: currentColor; }}
@media (max-width: {theme.STACKED_BELOW}px) {{
  [class*="st-key-sides"] > [data-testid="stLayoutWrapper"] > [data-testid="stHorizontalBlock"] {{
    flex-direction: column; gap: 1rem;
  }}
  [class*="st-key-sides"] > * > * > [data-testid="stColumn"] {{ width: 100%; flex: none; }}
}}
@media (min-width: {theme.STACKED_BELOW}px) {{
  [data-testid="stLayoutWrapper"]:has(> .st-key-lab_bar) {{
    position: sticky; top: 3.75rem; z-index: 9; background: {theme.PAGE}; padding: .5rem 0;
  }}
}}
[class*="st-key-step_"], [class*="st-key-step_"] [data-testid="stVerticalBlock"] {{ gap: .5rem; }}
[class*="st-key-step_"] .katex-display {{ margin: 0 0 .5rem; }}
.st-key-steps button {{ padding: .25rem .55rem; }}
.st-key-boxes [data-testid="stMetric"] {{ padding: 0; }}
.st-key-boxes [data-testid="stMetric"] > div {{ padding: .3rem .7rem; }}
.st-key-boxes [data-testid="stMetricValue"] {{ font-size: 1.35rem; font-weight: 600; }}
.block-container {{ padding-top: 4.5rem; padding-bottom: 3rem; }}
</style>
"""


def apply() -> None:
    """Set the style of the page.

    Until app.py has run once, Streamlit takes every file in pages/ for a page of its own. The
    first visitor of a fresh server may come by a link to one: then app.py runs it after all.
    """
    if "through_app" not in st.session_state:
        runpy.run_path(APP)
        st.stop()
    st.html(STYLE)


@contextmanager
def panel(kind: Literal["real", "synthetic"], name: str) -> Iterator[None]:
    """A part of the page that is wholly real or wholly synthetic, and says so."""
    with st.container(key=f"{kind}_{name}"):
        st.caption(f"**{kind.upper()}**")
        yield


def fold(title: str, name: str, opened: bool = False) -> DeltaGenerator | None:
    """A part of the page that is worked out only while it is open: None while it is not."""
    place = st.expander(title, expanded=opened, on_change="rerun", key=f"fold_{name}")
    return place if place.open else None


def sides(left: int = 1, right: int = 1, name: str = "") -> Sequence[DeltaGenerator]:
    """Two columns as wide as these shares, one above the other where the window is narrow.

    `name` tells several such pairs on a page apart.
    """
    with st.container(key=f"sides_{name}"):
        return st.columns([left, right], gap="large")


def row_of_fields(tokens: int = 1) -> Sequence[DeltaGenerator]:
    """Two narrow places for numbers, and so many wide ones for tokens beside them."""
    return st.container().columns([1, 1] + [2] * tokens)


def plain(text: str) -> str:
    """Text that Markdown shows as it is: tokens and names may hold any sign.

    Addresses and arrows are made from plain signs after escapes are read: a word joiner,
    which shows nothing, keeps them apart.
    """
    text = re.sub(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[-<=])(?=[->])", "\u2060", text)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def chart(drawing: Drawing | Spec, description: str, *, square: bool = False) -> None:
    """Draw a chart; a square one keeps its own width, others fill the width they get."""
    made = drawing if isinstance(drawing, dict) else spec(drawing)
    st.vega_lite_chart(made, width="content" if square else "stretch", alt=description)


def spec(drawing: Drawing) -> Spec:
    """What a chart is for a browser; to be kept where it will be drawn again."""
    # The tests validate every chart against its schema; here it would take half the time.
    return drawing.to_dict(validate=False)


def numbers(title: str, table: pd.DataFrame, key: str, remark: str = "") -> None:
    """The numbers of a chart as a table that can be read aloud and downloaded."""
    fold = st.expander(title, on_change="rerun", key=f"numbers_{key}")
    if fold.open:
        fold.dataframe(table, hide_index=True, width="stretch", column_config=columns(table))
        if remark:
            fold.caption(remark)


def columns(table: pd.DataFrame) -> dict[str, ColumnConfig]:
    """Columns as wide as their names and three digits, those that name a row kept in view."""
    names = table.columns[:2] if len(table.columns) > 3 else ()
    return {
        str(name): st.column_config.NumberColumn(
            format="%d" if table[name].dtype.kind == "i" else "%.3g",
            width=_width(str(name), DIGITS[table[name].dtype.kind]),
            alignment="left",  # beside what it is called, and first in view
            pinned=name in names,
        )
        if table[name].dtype.kind in DIGITS
        else st.column_config.Column(width=_words(str(name), table[name]), pinned=name in names)
        for name in table.columns
    }


def _words(name: str, words: pd.Series) -> int | None:
    """A width for words that are all short; None leaves it to what they take."""
    longest = max((len(str(word)) for word in words), default=0)
    return _width(name, longest) if longest <= SHORT else None


def _width(name: str, characters: int) -> int:
    return 24 + 7 * max(len(name), characters)
