"""A page with nothing but the section on the whole model; the link says what is read.

Run by the tests of this section, in a session and in a browser.
"""

from __future__ import annotations

import streamlit as st

from attnviz.ui import look, surgery_figures
from attnviz.ui.readings import Asked, NotServed, served
from attnviz.ui.views import Place

TEXT = "Once upon a time there was a king who had a daughter, and the king loved the daughter."


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
    surgery_figures.on_the_whole_model(place, reading)


st.html(look.STYLE)
page()
