"""The controls that several pages share; each returns the selection as it now is."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.models import catalogue
from attnviz.ui import selection as selected
from attnviz.ui.examples import EXAMPLES, OPENING, Example, example_of
from attnviz.ui.readings import Head, Reading
from attnviz.ui.selection import D_KS, LONGEST_IN_URL, MAX_SEED, N_KEYS, Selection

UNFOLLOWED_D_K = 64  # where the playground stands while no head is on screen
TEXT_HELP = "Type a sentence of your own; Ctrl + Enter reads it."
MODEL_HELP = (
    "Choose one, or type the name of a model on the Hugging Face hub, or the path of a folder."
)


def model_and_text() -> None:
    """Draw the fields that say which model reads which text; `chosen` says what is in them."""
    now = selected.current()
    titles = {entry.name: entry.title for entry in catalogue()}
    left, middle, right = st.columns([3, 3, 6])
    st.session_state.setdefault("model", now.model)
    st.session_state.setdefault("text", now.text)
    left.selectbox(
        "Model",
        list(dict.fromkeys([*titles, now.model])),
        format_func=lambda name: titles.get(name, name),
        key="model",
        accept_new_options=True,
        help=MODEL_HELP,
    )
    _examples(middle)
    right.text_area("Text", key="text", height=88, help=TEXT_HELP)
    if len(st.session_state["text"]) > LONGEST_IN_URL:
        st.caption(f"A text of more than {LONGEST_IN_URL:,} characters is not kept in the link.")


def chosen() -> Selection:
    """The selection, with model and text as their fields have them now.

    A rerun of a part of the page may come before that of the whole: both ask here.
    """
    now = selected.current()
    model = st.session_state.get("model") or now.model
    text = st.session_state.get("text", now.text)
    return now if (model, text) == (now.model, now.text) else _open(model, text)


def _examples(place: DeltaGenerator) -> None:
    """A menu that fills in the text; it shows the example that the text is, if it is one."""
    shown = example_of(st.session_state["text"])
    st.session_state["example"] = shown.title if shown else None
    place.selectbox(
        "Example",
        [example.title for example in EXAMPLES],
        index=None,
        key="example",
        placeholder="your own text",
        on_change=_take_example,
    )


def _take_example() -> None:
    example = next((e for e in EXAMPLES if e.title == st.session_state["example"]), None)
    if example is not None:
        st.session_state["text"] = example.text
        _open(selected.current().model, example.text)


def _open(model: str, text: str) -> Selection:
    """Change model or text, and open the head in which something can be seen."""
    now, example = selected.current(), example_of(text)
    layer, head = (now.layer, now.head) if model == now.model else OPENING.get(model, (0, 0))
    if example:
        layer, head = example.heads.get(model, (layer, head))
    for name in ("layer", "head", "query"):
        st.session_state.pop(name, None)
    return selected.change(model=model, text=text, layer=layer, head=head, query=None)


def layer_head_and_query(reading: Reading) -> tuple[int, int, int]:
    """Which head is on screen, and which query's row."""
    layer, head, query = _within(reading)
    st.session_state.update(layer=layer, head=head, query=query)
    left, middle, right = st.columns([1, 1, 2])
    left.number_input("Layer", 0, len(reading.calls) - 1, key="layer")
    middle.number_input("Head", 0, reading.calls[layer].heads - 1, key="head")
    right.selectbox(
        "Query: the token that looks",
        range(len(reading.tokens)),
        format_func=lambda position: f"{position} {reading.tokens.labels[position]}",
        key="query",
    )
    selected.change(layer=layer, head=head, query=query)
    return layer, head, query


def _within(reading: Reading) -> tuple[int, int, int]:
    """Layer, head and query as the widgets or the link have them, if model and text do too."""
    now = selected.current()
    layer, head, query = (_held(name, getattr(now, name)) for name in ("layer", "head", "query"))
    if layer >= len(reading.calls) or head >= reading.calls[layer].heads:
        asked = f"layer {layer}, head {head}"
        layer, head = OPENING.get(now.model, (0, 0))
        st.warning(
            f"There is no {asked} in this model: its layers are 0 to {len(reading.calls) - 1}, "
            f"its heads 0 to {reading.calls[0].heads - 1}. Here is layer {layer}, head {head}."
        )
    if query is None or query >= len(reading.tokens):
        query = opening_query(reading, example_of(now.text))
    return layer, head, query


def _held(name: str, otherwise: Any) -> Any:
    """The number that a widget holds; while its options change it may hold something else."""
    value = st.session_state.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise


def opening_query(reading: Reading, example: Example | None) -> int:
    """The last token that says the example's word, else the last that is not special."""
    tokens = reading.tokens
    word = example.word.lower() if example else None
    spoken = [p for p, label in enumerate(tokens.labels) if label.strip("␣").lower() == word]
    ordinary = [p for p, special in enumerate(tokens.special) if not special]
    return (spoken or ordinary or [len(tokens) - 1])[-1]


def d_k_slider(head: Head | None) -> int:
    """d_k of the playground; it follows the head on screen until it is moved."""
    now, followed = selected.current(), st.session_state.get("followed")
    follows = head.d_k if head else followed or UNFOLLOWED_D_K
    held = _held("d_k", now.d_k or follows)
    if held == followed:
        held = follows
    st.session_state.update(d_k=held, followed=follows)
    options = sorted({*D_KS, follows, held})
    d_k = st.select_slider("d_k: the width of one query or key", options, key="d_k")
    selected.change(d_k=None if d_k == follows else d_k)
    return d_k


def keys_and_seed() -> tuple[int, int]:
    """Number of keys in the softmax row, and the seed of the draw."""
    now = selected.current()
    st.session_state.setdefault("n", now.n)
    st.session_state.setdefault("seed", now.seed)
    left, middle, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    n = left.select_slider("n: the keys in a row", sorted({*N_KEYS, now.n}), key="n")
    seed = middle.number_input("Seed", 0, MAX_SEED, key="seed")
    right.button("New draw", on_click=_next_seed, width="stretch")
    selected.change(n=n, seed=seed)
    return n, seed


def _next_seed() -> None:
    st.session_state["seed"] = (_held("seed", 0) + 1) % (MAX_SEED + 1)
