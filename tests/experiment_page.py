"""Ways to project in training on a little page of its own."""

import streamlit as st

st.set_page_config(layout="wide")
st.session_state["through_app"] = True


@st.fragment
def page() -> None:
    """As on the page of the projections: all fields in one fragment, one section in view."""
    from attnviz.ui import experiment_figures, look

    look.apply()
    if st.query_params.get("section") == "widths":
        experiment_figures.widths()
    else:
        experiment_figures.experiment()


page()
