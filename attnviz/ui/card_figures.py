"""The figures of the page “What was read”: a card goes in, drawings and facts come out."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from attnviz.charts import family_tree, layer_strips
from attnviz.ui import card_sentences as sentences
from attnviz.ui import cards, look
from attnviz.ui.cards import Card


def key_figures(card: Card) -> None:
    """The sizes of the model in a row."""
    with st.container(horizontal=True, gap="medium"):
        for name, value in sentences.key_figures(card):
            st.metric(name, value, width="content")


def layer_group(card: Card) -> int:
    """Let the visitor choose the group of like layers to describe; at first one that was read."""
    groups = range(len(card.groups))
    held = st.session_state.get("layer_group")
    if held not in groups:
        held = next((group for group in groups if card.groups[group].first.heads), 0)
    st.session_state["layer_group"] = held
    if len(groups) == 1:
        return 0
    return st.selectbox(
        "Layers",
        groups,
        format_func=lambda group: sentences.group_name(card.groups[group]),
        key="layer_group",
        help="Layers that differ in nothing but their number stand together.",
    )


def layers_picture(card: Card, group: int) -> None:
    """Every layer as a mark, tower by tower."""
    drawing = layer_strips.layer_strips(cards.marks(card, group))
    look.chart(drawing, sentences.layers_described(card))
    st.caption(look.plain(sentences.legend(card)))


def groups(card: Card) -> None:
    """Like layers in one row each."""
    st.markdown(_table(sentences.GROUP_COLUMNS, map(sentences.group_row, card.groups)))


def facts(card: Card, group: int) -> None:
    """What is known of one group of layers."""
    st.markdown(_table(("", "in these layers"), sentences.facts(card.groups[group])))


def heads_tree(card: Card, group: int) -> None:
    """Which key and value head each query head of a group reads."""
    heads, tree = card.groups[group].first.heads, cards.family_tree(card, group)
    if heads is None or tree is None:
        return
    look.chart(family_tree.family_tree(tree), sentences.tree_described(heads))
    st.caption(look.plain(sentences.tree_caption(heads)))


def every_layer(card: Card) -> None:
    """All layers as a table."""
    look.numbers("Every layer as a table", card.table, key="layers")


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, which a screen reader reads and a narrow screen breaks into lines."""
    written = [" | ".join(map(look.plain, row)) for row in (columns, *rows)]
    rule = "|".join("---" for _ in columns)
    return "\n".join(f"| {line} |" for line in [written[0], rule, *written[1:]])
