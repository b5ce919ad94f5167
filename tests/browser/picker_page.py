"""A page with nothing but a picker and the fields that share its choice; the link says which.

Run by the browser tests, which import `weights` and `words` to know what must be drawn.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import streamlit as st
import torch

from attnviz import frames
from attnviz.ui.cell_picker import cell_picker

USUAL = {"queries": 5, "keys": 7, "causal": 0, "cross": 0, "first": 0, "busy": 0}
ODD = ("<b>it</b>", "␣cat", "unquestionablyindivisible", "`:)`$x$", "猫", "")


def weights(queries: int, keys: int, causal: bool) -> np.ndarray:
    """The same seeded softmax rows for test and page."""
    logits = np.random.default_rng(queries * 1009 + keys).normal(0, 2, (queries, keys))
    if causal:
        logits[~visible(queries, keys, causal)] = -np.inf
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(1, keepdims=True)


def visible(queries: int, keys: int, causal: bool) -> np.ndarray:
    """A triangle, or everything."""
    return np.tril(np.ones((queries, keys), bool)) if causal else np.ones((queries, keys), bool)


def words(count: int, kind: str) -> list[str]:
    """Words of different lengths, those first that a page may stumble over."""
    return [*ODD, *(f"{kind}{'o' * (at % 5)}{at}" for at in range(len(ODD), count))][:count]


def choose(query: int, key: int) -> None:
    st.session_state.update(query=query, key=key, told=st.session_state.get("told", 0) + 1)


def press(name: str) -> None:
    st.session_state[name] = st.session_state.get(name, 0) + 1


@st.fragment
def page() -> None:
    asked = {name: int(st.query_params.get(name, usual)) for name, usual in USUAL.items()}
    first = int(st.toggle("Hide the first token", bool(asked["first"])))
    size = (asked["queries"], asked["keys"], bool(asked["causal"]))
    queries = frames.token_axis(words(size[0], "q")).iloc[first:]
    keys = frames.token_axis(words(size[1], "k")).iloc[first:]
    st.session_state.setdefault("query", first + 1)
    st.session_state.setdefault("key", first + 1)
    with st.container():
        time.sleep(asked["busy"] / 1000)  # before the answer goes out, as a page that reckons
        if st.toggle("Show the picture", True):
            cell_picker(
                frames.weight_matrix(torch.tensor(weights(*size), dtype=torch.float32)).iloc[
                    first:, first:
                ],
                queries,
                keys,
                (st.session_state["query"], st.session_state["key"]),
                label="Weights of layer 5, head 11",
                key="picker",
                on_change=choose,
                visible=pd.DataFrame(visible(*size)).iloc[first:, first:],
                cross=bool(asked["cross"]),
            )
    st.number_input("Query", 0, size[0] - 1, key="query")
    st.number_input("Key", 0, size[1] - 1, key="key")
    st.button("Previous", shortcut="Left", on_click=press, args=("left",))
    st.button("Next", shortcut="Right", on_click=press, args=("right",))
    held = {name: st.session_state.get(name, 0) for name in ("query", "key", "told")}
    st.text(f"Python holds {held['query']}, {held['key']}, told {held['told']} times")
    pressed = [st.session_state.get(name, 0) for name in ("left", "right")]
    st.text(f"pressed {pressed}")


page()
