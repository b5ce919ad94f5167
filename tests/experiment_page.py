"""Ways to project in training on a little page of its own."""

import streamlit as st

st.set_page_config(layout="wide")
st.session_state["through_app"] = True


@st.fragment
def page() -> None:
    """As on the page of the projections: all fields in one fragment, a section or both."""
    from attnviz.ui import experiment_figures, look

    look.apply()
    link = st.session_state.setdefault("link", st.query_params.to_dict())
    section = link.get("section", "experiment")
    if section in ("experiment", "both"):
        experiment_figures.experiment()
    if section in ("widths", "both"):
        experiment_figures.widths()


page()
