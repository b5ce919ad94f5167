"""Why √d_k: the scale lab, on random vectors and on the real head beside them (claims 4 and 5)."""

import streamlit as st

from attnviz.ui import look, selection

look.apply()
st.title("Why divide by $\\sqrt{d_k}$?")
st.markdown(
    "The score $q \\cdot k$ adds $d_k$ products. What must it be divided by before the softmax: "
    "by nothing, by $\\sqrt{d_k}$, by $d_k$, by $d_k^2$? Random vectors at the left, a trained "
    "head at the right, under the same divisor."
)

from attnviz.ui import controls, lab_controls, published_tables  # noqa: E402 - after the text
from attnviz.ui import lab_figures as figures  # noqa: E402
from attnviz.ui import lab_sentences as sentences  # noqa: E402
from attnviz.ui.heads import head  # noqa: E402
from attnviz.ui.lab_figures import Lab  # noqa: E402
from attnviz.ui.readings import Asked, Reading  # noqa: E402
from attnviz.ui.surgery_figures import on_the_whole_model  # noqa: E402
from attnviz.ui.training_figures import in_training  # noqa: E402

Part = tuple[Asked, Reading, str]


def the_lab() -> tuple[Lab, Part | None]:
    """What is set on both sides: random vectors, and the head that stands beside them."""
    left, right = look.sides(name="lab")
    place = shown = query = None
    with right, look.panel("real", "lab_fields"):
        part = controls.read_part()
        if part:
            places = look.row_of_fields()
            place = controls.place(*part, places)
            shown = head(place.asked, place.part, place.layer, place.head)
            query = controls.query(shown, places[2])
    d_k, power = lab_controls.bar(shown)
    with left, look.panel("synthetic", "lab_fields"):
        setting = lab_controls.setting(d_k, power)
    return figures.lab(setting, place, shown, query), part


def chain(lab: Lab) -> None:
    """From the scores to the gradient, stage by stage."""
    stages = {
        "scores": figures.scores,
        "logits": figures.logits,
        "weights": figures.weights,
        "saturation": figures.saturation,
        "gradient": figures.gradient,
    }
    for name, show in stages.items():
        title, said = sentences.STAGES[name]
        st.subheader(title)
        st.markdown(look.plain(said))
        show(lab)
    figures.numbers(lab)


def whole_model(lab: Lab | None, part: Part | None) -> None:
    """One model run with other divisors; the lab's head where the lab is shown too."""
    if part is None:
        return
    place = lab.place if lab else None
    if place is None:
        place = controls.place(*part, look.row_of_fields(tokens=0))
    on_the_whole_model(place, part[1])


LAB = {1: chain, 2: figures.variance, 3: figures.saturation_maps, 4: figures.gradients}
WHOLE_MODEL, TRAINING, REAL_MODELS = 5, 6, 7


def of_the_lab(shown: int, lab: Lab) -> bool:
    """The sections in which the divisor is moved, once they are revealed."""
    if not lab_controls.is_in_view(lab.question):
        st.markdown(look.plain(sentences.question(lab.setting)))
        st.caption(sentences.HIDDEN)
        return False
    st.markdown(look.plain(sentences.CLAIM))
    for number, show in LAB.items():
        if shown in (0, number):
            title(number)
            show(lab)
    return True


def title(number: int) -> None:
    """The heading of a section."""
    st.header(f"{number} {sentences.SECTIONS[number - 1]}")


def sections() -> None:
    """One section of the lecture, or all of them."""
    shown = controls.step(sentences.SECTIONS, "section")
    lab = part = None
    if shown in (0, *LAB):
        lab, part = the_lab()
        if not of_the_lab(shown, lab):
            return
    elif shown != TRAINING:
        part = controls.read_part()
    if shown in (0, WHOLE_MODEL):
        title(WHOLE_MODEL)
        whole_model(lab, part)
    if shown in (0, TRAINING):
        title(TRAINING)
        in_training()
    if shown in (0, REAL_MODELS):
        title(REAL_MODELS)
        if part:
            published_tables.scales(part[0], part[2])


@st.fragment
def page() -> None:
    """All fields stand in one fragment: of two changes at once, a browser sends both."""
    for complaint in selection.complaints():
        st.warning(look.plain(complaint))
    controls.model_and_text()
    sections()


page()
