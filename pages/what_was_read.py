"""What was read: the chosen model's card, layer by layer, and how well it was verified."""

import streamlit as st

from attnviz.ui import look, selection

look.apply()
st.title("What was read")
st.markdown(
    "Every number in this app that is marked *real* was read while a model ran, computed again, "
    "and compared with the model's own output. Here is what that gave for the chosen model, layer "
    "by layer, and what could not be read."
)

for complaint in selection.complaints():
    st.warning(look.plain(complaint))

from attnviz.ui import card_figures as figures  # noqa: E402 - after the first text
from attnviz.ui import card_sentences as sentences  # noqa: E402
from attnviz.ui import cards, controls, readings  # noqa: E402


def card_of(model: str) -> cards.Card | None:
    """Read the model; if it cannot be read, say why, and give what is known all the same."""
    try:
        with st.spinner("The model is loaded"):
            needs = readings.needs(model)
        asked = controls.asked(needs)
        with st.spinner("The model reads"):
            return cards.card(asked)
    except readings.NotServed as problem:
        st.error(look.plain(str(problem)))
        return cards.unread_card(model, problem)


def whole_model(card: cards.Card) -> None:
    """The model in a sentence and its sizes."""
    if card.warning:
        st.warning(look.plain(card.warning))
    st.subheader(look.plain(card.title))
    st.markdown(look.plain(sentences.what_it_is(card)))
    figures.key_figures(card)


def layers(card: cards.Card) -> int:
    """Every layer at a glance; returns which group of like layers is to be described."""
    group = figures.layer_group(card)
    figures.layers_picture(card, group)
    if len(card.groups) > 1:
        figures.groups(card)
    for told in sentences.unread_groups(card):
        st.caption(look.plain(told))
    return group


def layer_group(card: cards.Card, index: int) -> None:
    """What the layers of one group do, and what is unusual in it."""
    group = card.groups[index]
    st.subheader(look.plain(sentences.group_title(group)))
    for remark in sentences.remarks(group):
        st.markdown(look.plain(remark))
    left, right = look.sides()
    with left:
        figures.facts(card, index)
    with right:
        figures.heads_tree(card, index)
    st.caption(look.plain(sentences.group_caption(card, group)))


controls.model_and_text()
with look.panel("real", "card"):
    known = card_of(controls.chosen().model)
    if known:
        whole_model(known)
    if known and known.layers:
        chosen = layers(known)
        if known.was_read:
            layer_group(known, chosen)
        figures.every_layer(known)
    if known and known.was_read:
        st.subheader("How far this can be trusted")
        st.markdown(look.plain(sentences.verification(known)))
selection.change()  # so that the link of this page, too, names what is on screen
