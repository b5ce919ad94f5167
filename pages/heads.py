"""Heads: all at a glance, any one in detail, and which of them to look at (claim 1)."""

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.ui import look, selection

look.apply()
st.title("Heads")
st.markdown(
    "A layer has several heads, each with queries, keys and values of its own: each searches the "
    "text for something else. Here are all of them at a glance, and any of them as a matrix, as "
    "lines, in the text, or as a ranking. Click a head to open it."
)

from attnviz.ui import controls, finder_figures  # noqa: E402 - after the first text
from attnviz.ui import head_controls as fields  # noqa: E402
from attnviz.ui import view_figures as figures  # noqa: E402
from attnviz.ui.readings import NotServed, Reading  # noqa: E402
from attnviz.ui.views import Place  # noqa: E402


def at_a_glance(place: Place, reading: Reading) -> None:
    """Every head of every layer; of a long text once it is asked for."""
    short = figures.is_short(reading)
    fold = look.fold("All heads", "overview" if short else "long_overview", opened=short)
    if fold:
        with fold:
            figures.all_heads(place, reading)


def which_head(place: Place, reading: Reading) -> None:
    """The finder: heads by what they look at."""
    fold = look.fold("Which head should I look at?", "finder")
    if fold:
        with fold:
            open_head = partial(fields.take_head, place.part)
            finder_figures.finder(place.asked, reading, place.part, open_head)


def in_detail(place: Place, reading: Reading, right: DeltaGenerator, left: DeltaGenerator) -> None:
    """The head that is open, and those beside it, as the fields at the right have it."""
    with right:
        how = fields.how(reading, place.part)
        query, key = fields.cell(place, how)
        places = fields.places(place, reading)
    with left:
        form = fields.form()
        zoom = fields.zoom(figures.size(place, how)) if form == "matrix" else 0
        drawn = figures.drawing(form, places, how, query, key, zoom)
        figures.caption(drawn, form)
    with right:
        figures.said(drawn, query)
        figures.take_home(form, drawn, query)


def heads() -> None:
    """All heads above, one of them below."""
    read = controls.read(limit=None, pairs=True)
    if read is None:
        return
    asked, reading = read
    above = st.container()
    part = controls.part(reading)
    left, right = look.sides(3, 2, "head")
    layer, head = controls.layer_and_head(reading, part, right.columns(2))
    place = Place(asked, part, layer, head)
    with above:
        at_a_glance(place, reading)
        which_head(place, reading)
    try:
        in_detail(place, reading, right, left)
    except NotServed as problem:
        left.error(look.plain(str(problem)))


@st.fragment
def page() -> None:
    """All fields stand in one fragment: of two changes at once, a browser sends both."""
    for complaint in selection.complaints():
        st.warning(look.plain(complaint))
    controls.model_and_text()
    with look.panel("real", "heads"):
        heads()


page()
