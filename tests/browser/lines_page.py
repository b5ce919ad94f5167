"""A page with lines and a text in reading order that share a choice; the link says which.

Run by the browser tests, which import `weights` and `words` to know what must be drawn.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import streamlit as st

from attnviz import frames
from attnviz.ui.lines import token_lines
from attnviz.ui.reading_order import reading_order

USUAL = {"queries": 7, "keys": 11, "causal": 0, "heads": 1, "cross": 0, "busy": 0, "show": 3}
USUAL |= {"chosen": 1, "right": 0}
ODD = ("<b>it</b>", "␣cat", "unquestionablyindivisible", "`:)`$x$", "שלום", "", "␣end⏎")
FROM_RIGHT = ("كان", "هناك", "رجل", "عجوز", "يصطاد", "وحده", "في", "قارب")


def weights(queries: int, keys: int, causal: bool = False, head: int = 0) -> np.ndarray:
    """The same seeded softmax rows for test and page, NaN where a key is hidden."""
    logits = np.random.default_rng(queries * 1009 + keys + head).normal(0, 2, (queries, keys))
    if causal:
        logits[~np.tril(np.ones(logits.shape, bool))] = -np.inf
    exponentials = np.exp(logits)
    softmax = exponentials / exponentials.sum(1, keepdims=True)
    return np.where(np.isinf(logits), np.nan, softmax)


def words(count: int, from_right: bool = False) -> list[str]:
    """Words of different lengths, those first that a page may stumble over; many are equal."""
    if from_right:
        return [FROM_RIGHT[at % len(FROM_RIGHT)] for at in range(count)]
    return [*ODD, *("␣the" if at % 3 else f"␣word{at}" for at in range(len(ODD), count))][:count]


def choose(axis: str, position: int) -> None:
    st.session_state[axis] = position
    st.session_state["told"] = st.session_state.get("told", 0) + 1


def press(name: str) -> None:
    st.session_state[name] = st.session_state.get(name, 0) + 1


@st.fragment
def page() -> None:
    asked = {name: int(st.query_params.get(name, usual)) for name, usual in USUAL.items()}
    size = (asked["queries"], asked["keys"], bool(asked["causal"]))
    queries, keys = (
        frames.token_axis(words(count, bool(asked["right"])), [at == 0 for at in range(count)])
        for count in size[:2]
    )
    first = int(st.toggle("Another head"))
    heads = [
        (f"layer 5, head {head}", pd.DataFrame(weights(*size, head)))
        for head in range(first, first + asked["heads"])
    ]
    st.session_state.setdefault("query", None if asked["chosen"] < 0 else asked["chosen"])
    chosen = st.session_state["query"]
    time.sleep(asked["busy"] / 1000)  # before the answer goes out, as a page that reckons
    if asked["show"] & 1:
        token_lines(
            heads,
            queries,
            keys,
            chosen,
            label="Weights of layer 5, head 0",
            key="lines",
            on_choose=choose,
            cross=bool(asked["cross"]),
            chosen_key=st.session_state.get("key"),
        )
    if asked["show"] & 2:
        reading_order(
            heads[0][1].iloc[chosen or 0],
            keys,
            chosen,
            label="Weights of layer 5, head 0",
            key="text",
            on_choose=lambda position: choose("query", position),
        )
    st.number_input("Query", 0, size[0] - 1, key="query")
    st.button("Previous", shortcut="Left", on_click=press, args=("left",))
    st.button("Next", shortcut="Right", on_click=press, args=("right",))
    held = {name: st.session_state.get(name) for name in ("query", "key", "told")}
    st.text(f"Python holds {held['query']}, {held['key']}, told {held['told'] or 0} times")
    st.text(f"pressed {[st.session_state.get(name, 0) for name in ('left', 'right')]}")


page()
