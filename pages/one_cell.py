"""One cell: one weight worked out, from two tokens' vectors to what their head writes (claim 1)."""

import streamlit as st

from attnviz.ui import look, selection

look.apply()
st.title("One cell, worked out")
st.markdown(
    "A query **q** asks, a key **k** answers; the better they match, the more of the value **v** "
    "comes back. Here is one number of a trained model from beginning to end, with nothing made "
    "up and nothing left out. Click a cell; then Next, or the arrow keys outside of the matrix, go "
    "through it step by step."
)

from attnviz.ui import cell_equations as equations  # noqa: E402 - after the first text
from attnviz.ui import cell_figures as figures  # noqa: E402
from attnviz.ui import cell_sentences as sentences  # noqa: E402
from attnviz.ui import cells, controls, heads  # noqa: E402
from attnviz.ui.cells import Worked  # noqa: E402
from attnviz.ui.readings import Asked, Reading  # noqa: E402


def chosen_cell(asked: Asked, reading: Reading) -> Worked:
    """Which cell of which head: by a click, from lists, or by arrow keys."""
    part = controls.part(reading)
    matrix, fields = look.sides(2, 3, "cell")
    with fields:
        places = look.row_of_fields(tokens=2)
        head = heads.head(asked, part, *controls.layer_and_head(reading, part, places))
        query = controls.query(head, places[2])
        key = controls.key(head, query, places[3])
        with st.spinner("The cell is worked out"):
            worked = cells.worked(asked, head, query, key)
        st.subheader(look.plain(sentences.headline(worked)))
        figures.boxes(worked)
        st.markdown(f"**{look.plain(sentences.badge(worked))}**")
    with matrix:
        figures.picker(head, query, key)
    return worked


def three_roles(worked: Worked) -> None:
    """What W_Q, W_K and W_V make of the tokens' vectors x."""
    figures.three_roles(worked)


def position(worked: Worked) -> None:
    """What the places of the two tokens do to the score."""
    figures.position(worked)


def match(worked: Worked) -> None:
    """q·k, the sum of d_k products, for this key and for all."""
    figures.products(worked, controls.by_place())


def scale(worked: Worked) -> None:
    """The model's own factor, and all that it adds before the softmax."""
    figures.chain(worked)


def softmax(worked: Worked) -> None:
    """The exponential over the row's sum."""
    figures.row_of_weights(worked)


def retrieve(worked: Worked) -> None:
    """Σ weight · value, and which tokens it is made of."""
    figures.retrieved(worked)


def into_the_stream(worked: Worked) -> None:
    """W_O, and where the head's output goes."""
    figures.into_stream(worked)


STEPS = (three_roles, position, match, scale, softmax, retrieve, into_the_stream)


def steps(worked: Worked) -> None:
    """The lecture: one step at a time, or all at once."""
    shown = controls.step(sentences.STEPS)
    for number, show in enumerate(STEPS, start=1):
        if shown not in (0, number):
            continue
        with st.container(key=f"step_{number}"):
            st.subheader(f"{number} {sentences.STEPS[number - 1]}")
            formula, words = look.sides(2, 3, f"step_{number}")
            if equation := equations.equation(worked, number - 1):
                formula.latex(equation)
            for told in sentences.told(worked, number - 1):
                words.markdown(look.plain(told))
            show(worked)


def one_cell() -> None:
    """The cell, its steps, and what to take home of it."""
    read = controls.read()
    if read is None:
        return
    asked, reading = read
    worked = chosen_cell(asked, reading)
    steps(worked)
    figures.caption(worked)
    figures.by_hand(worked)
    figures.code(asked, worked)
    st.subheader("How far the claim goes")
    for limit in sentences.limits():
        st.markdown(look.plain(limit))


@st.fragment
def lecture() -> None:
    """All fields stand in one fragment: of two changes at once, a browser sends both."""
    for complaint in selection.complaints():
        st.warning(look.plain(complaint))
    controls.model_and_text()
    with look.panel("real", "cell"):
        one_cell()


lecture()
