"""Start: one real head beside the variance playground (claims 1 and 4)."""

import streamlit as st

from attnviz.ui import look, selection
from attnviz.ui.examples import example_of

look.apply()
st.title("Attention is a search")
st.markdown(
    "Each token asks with its query **q** what it is looking for; every key **k** says what is "
    "there to find; the values **v** are what comes back, weighted by how well they match."
)
st.latex(r"\mathrm{weights}=\mathrm{softmax}\left(\frac{q\cdot k}{\sqrt{d_k}}\right)")

for complaint in selection.complaints():
    st.warning(look.plain(complaint))

from attnviz.ui import controls, figures, readings, sentences  # noqa: E402 - after the first text


def real_head(model: str, text: str) -> readings.Head | None:
    """What a head of a real model does with the text."""
    try:
        with st.spinner("The model reads the text"):
            reading = readings.served(model, text)
    except readings.NotServed as problem:
        st.error(look.plain(str(problem)))
        return None
    if reading.warning:
        st.warning(look.plain(reading.warning))
    if example := example_of(text):
        st.caption(f"What to look for: {example.see}")
    layer, index, query = controls.layer_head_and_query(reading)
    head = readings.head(model, text, layer, index)
    st.subheader(look.plain(sentences.headline(head, query)))
    st.markdown(look.plain(sentences.against_the_column(head, query)))
    figures.head_picture(head, query)
    figures.head_tables(head, query)
    return head


def playground(head: readings.Head | None) -> readings.Draw:
    """How the variance of q·k grows with d_k."""
    st.subheader("The variance of $q \\cdot k$ is $d_k$")
    st.markdown(
        "Two random vectors with $d_k$ independent entries of variance 1: their product adds "
        "$d_k$ terms, and so their variances. Dividing by $\\sqrt{d_k}$ brings it back to 1."
    )
    d_k = controls.d_k_slider(head)
    n, seed = controls.keys_and_seed()
    draw = readings.draw(d_k, n, seed)
    figures.score_histogram(draw)
    figures.variance_curve(seed, head)
    if head:
        st.markdown(look.plain(sentences.why_not_d_k(head)))
    return draw


def softmax(draw: readings.Draw) -> None:
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
    """The two sides talk: the head's d_k is where the playground starts."""
    left, right = look.sides()
    with left, look.panel("real", "head"):
        chosen = controls.chosen()
        head = real_head(chosen.model, chosen.text)
    with right, look.panel("synthetic", "playground"):
        draw = playground(head)
    with look.panel("synthetic", "softmax"):
        softmax(draw)


controls.model_and_text()
side_by_side()
