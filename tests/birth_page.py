"""The birth of an induction head on a little page of its own."""

import streamlit as st

st.set_page_config(layout="wide")
st.session_state["through_app"] = True


@st.fragment
def page() -> None:
    """As on the page of the projection lab: all fields in one fragment."""
    from attnviz.ui import birth_figures, look

    look.apply()
    birth_figures.birth()


page()
