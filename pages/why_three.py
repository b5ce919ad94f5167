"""Why three: the projection lab, on a toy that trains here and on a real model (claims 2 and 3)."""

import streamlit as st

from attnviz.ui import look, selection

look.apply()
st.title("Why three projections?")
st.markdown(
    "The claim: with two projections only, say **Q** and **V**, what is matched and what is "
    "returned could not be kept apart; and more than three would add nothing. Which half of it is "
    "true? By hand, in training, and on a trained model."
)
st.latex(r"q=xW_Q\qquad k=xW_K\qquad v=xW_V\qquad\mathrm{output}=\sum\mathrm{weight}\cdot v\,W_O")

from attnviz.ui import controls, published_tables  # noqa: E402 - after the first text
from attnviz.ui.birth_figures import birth  # noqa: E402
from attnviz.ui.circuits_figures import products, symmetry  # noqa: E402
from attnviz.ui.experiment_figures import experiment, widths  # noqa: E402
from attnviz.ui.roles_figures import roles  # noqa: E402
from attnviz.ui.tying_figures import tying  # noqa: E402

SECTIONS = (
    "Roles",
    "The experiment",
    "Width",
    "Surgery",
    "Symmetry",
    "Two products",
    "Real models",
    "Birth of a head",
)
TOYS = {1: roles, 2: experiment, 3: widths}
OF_A_HEAD = {4: tying, 5: symmetry, 6: products}
REAL_MODELS, BIRTH = 7, 8


def title(number: int) -> None:
    """The heading of a section."""
    st.header(f"{number} {SECTIONS[number - 1]}")


def of_the_model(shown: int) -> None:
    """The sections about the chosen model, with their fields above the first of them."""
    part = controls.read_part()
    if part is None:
        return
    if shown != REAL_MODELS:
        place = controls.place(*part, look.row_of_fields(tokens=0))
        for number, show in OF_A_HEAD.items():
            if shown in (0, number):
                title(number)
                show(place, part[1])
    if shown in (0, REAL_MODELS):
        title(REAL_MODELS)
        published_tables.projections(part[0], part[2])


@st.fragment
def page() -> None:
    """All fields stand in one fragment: of two changes at once, a browser sends both."""
    for complaint in selection.complaints():
        st.warning(look.plain(complaint))
    controls.model_and_text()
    shown = controls.step(SECTIONS, "three")
    for number, show in TOYS.items():
        if shown in (0, number):
            title(number)
            show()
    if shown in (0, REAL_MODELS, *OF_A_HEAD):
        of_the_model(shown)
    if shown in (0, BIRTH):
        title(BIRTH)
        birth()


page()
