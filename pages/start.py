"""Start: one real head beside the variance playground (claims 1 and 4)."""

import streamlit as st

from attnviz.ui import look, selection

look.apply()
st.title("Attention is a search")
st.markdown(
    "Each token asks with its query **q** what it is looking for; every key **k** says what is "
    "there to find; the values **v** are what comes back, weighted by how well they match."
)
st.latex(r"\mathrm{weights}=\mathrm{softmax}\left(\frac{q\cdot k}{\sqrt{d_k}}\right)")

from attnviz.ui import controls, draws, figures, sentences  # noqa: E402 - after the first text
from attnviz.ui.draws import Draw  # noqa: E402
from attnviz.ui.heads import Head, head  # noqa: E402


def real_head() -> Head | None:
    """What a head of a real model does with what it reads."""
    read_now = controls.read()
    if read_now is None:
        return None
    asked, reading = read_now
    with st.container():
        part = controls.part(reading)
        places = look.row_of_fields()
        whole = head(asked, part, *controls.layer_and_head(reading, part, places))
        shown = controls.without_first(whole)
        query = controls.query(shown, places[2])
    st.subheader(look.plain(sentences.headline(shown, query)))
    with st.container():
        if told := sentences.against_the_column(shown, query):
            st.markdown(look.plain(told))
    figures.head_picture(shown, query)
    with st.container(horizontal=True):
        st.page_link("pages/one_cell.py", label="Work out one cell of this head")
        st.page_link("pages/heads.py", label="See all heads")
    with st.container():
        controls.hide_first(whole)
        for told in sentences.about(shown, query):
            st.markdown(look.plain(told))
    figures.head_tables(asked, shown, query)
    return shown


def playground(head: Head | None) -> Draw:
    """How the variance of q·k grows with d_k."""
    st.subheader("The variance of $q \\cdot k$ is $d_k$")
    st.markdown(
        "Two random vectors with $d_k$ independent entries of variance 1: their product adds "
        "$d_k$ terms, and so their variances. Dividing by $\\sqrt{d_k}$ brings it back to 1."
    )
    d_k = controls.d_k_slider(head)
    n, seed = controls.keys_and_seed()
    draw = draws.draw(d_k, n, seed)
    figures.score_histogram(draw)
    figures.variance_curve(seed, head)
    if head:
        st.markdown(look.plain(sentences.why_not_d_k(head)))
    return draw


def softmax(draw: Draw) -> None:
    """What becomes of one draw under the four divisors."""
    st.subheader("What the softmax makes of it")
    st.markdown(
        "One and the same draw under four divisors. Undivided, the fewer keys take nearly all the "
        "larger $d_k$ is; divided by $d_k$ or $d_k^2$, all keys come to look alike; "
        "$\\sqrt{d_k}$ keeps the difference."
    )
    figures.softmax_rows(draw)


@st.fragment
def side_by_side() -> None:
    """The two sides talk: the head's d_k is where the playground starts.

    All fields stand in one fragment: of two changes at once, a browser sends both.
    """
    with st.container():
        for complaint in selection.complaints():
            st.warning(look.plain(complaint))
    controls.model_and_text()
    left, right = look.sides()
    with left, look.panel("real", "head"):
        shown = real_head()
    with right, look.panel("synthetic", "playground"):
        draw = playground(shown)
    with look.panel("synthetic", "softmax"):
        softmax(draw)


side_by_side()
