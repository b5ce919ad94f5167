"""attnviz: page configuration and navigation. Run with `streamlit run app.py`."""

import streamlit as st

START = st.Page("pages/start.py", title="Start", default=True)
ONE_CELL = st.Page("pages/one_cell.py", title="One cell")
HEADS = st.Page("pages/heads.py", title="Heads")
WHY_SQRT_D_K = st.Page("pages/why_sqrt_d_k.py", title="Why √d_k")
WHY_THREE = st.Page("pages/why_three.py", title="Why three")
WHAT_WAS_READ = st.Page("pages/what_was_read.py", title="What was read")

st.session_state["through_app"] = True
PAGES = [START, ONE_CELL, HEADS, WHY_SQRT_D_K, WHY_THREE, WHAT_WAS_READ]
page = st.navigation(PAGES, position="top")
st.set_page_config(page_title="attnviz", layout="wide", initial_sidebar_state="collapsed")
page.run()
