"""The toy in training on a little page of its own."""

import streamlit as st

st.set_page_config(layout="wide")
st.session_state["through_app"] = True


@st.fragment
def page() -> None:
    """As on the page of the scale lab: all fields in one fragment."""
    from attnviz.ui import look, training_figures

    look.apply()
    training_figures.in_training()


page()
