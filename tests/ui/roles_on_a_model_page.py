"""A page with nothing but what is shown of a real model's roles; the link says what is read.

Run by the tests of tying, of symmetry and of the two products, in a session and in a browser.
"""

from __future__ import annotations

import streamlit as st

from attnviz.ui import circuits_figures, look, tying_figures
from attnviz.ui.readings import Asked, NotServed, served
from attnviz.ui.views import Place

TEXT = "Once upon a time there was a king who had a daughter, and the king loved the daughter."
SECTIONS = {
    "tying": tying_figures.tying,
    "symmetry": circuits_figures.symmetry,
    "products": circuits_figures.products,
}


@st.fragment
def page() -> None:
    link = st.session_state.setdefault("link", st.query_params.to_dict())
    asked = Asked(
        link.get("model", "bundled"),
        link.get("text", TEXT),
        link.get("target", ""),
        link.get("picture", ""),
    )
    try:
        reading = served(asked, None)
    except NotServed as problem:
        st.error(look.plain(str(problem)))
        return
    part = link.get("part", reading.parts[0])
    layer = int(link.get("layer", next(iter(reading.calls(part)))))
    place = Place(asked, part, layer, int(link.get("head", 0)))
    for name in link.get("show", "tying symmetry products").split():
        SECTIONS[name](place, reading)


st.set_page_config(layout="wide")
st.html(look.STYLE)
page()
