"""The figures of the scale lab: random vectors and a real head by the same charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import streamlit as st

from attnviz.charts import chain as chain_charts
from attnviz.charts import gradients as gradient_charts
from attnviz.charts import saturation as saturation_charts
from attnviz.charts import variance as variance_charts
from attnviz.ui import heads, lab_controls, lab_draws, lab_heads, look, sentences
from attnviz.ui import lab_sentences as told
from attnviz.ui.draws import PAIRS
from attnviz.ui.source import show_code

if TYPE_CHECKING:
    from attnviz.ui.heads import Head
    from attnviz.ui.lab import Setting, Side
    from attnviz.ui.lab_heads import RealHead
    from attnviz.ui.look import Drawing, Spec
    from attnviz.ui.views import Place


MAPS = {
    "largest_weight": "Mean largest weight",
    "entropy": "Mean entropy, relative to even weights",
}
_specs: WeakKeyDictionary[Side, dict[tuple[str, str], Spec]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Lab:
    """All that the sections show: what is set, what was drawn, and the head beside it.

    `place`, `head` and `query` are None where no model can be read, `vectors` and `read` where
    its queries and keys cannot be had as such.
    """

    setting: Setting
    drawn: Side
    place: Place | None = None
    head: Head | None = None
    query: int | None = None
    vectors: RealHead | None = None
    read: Side | None = None

    @property
    def question(self) -> tuple[object, ...]:
        """What tells one prediction from another."""
        return self.setting, self.place.key if self.place else None, self.query


def lab(setting: Setting, place: Place | None, head: Head | None, query: int | None) -> Lab:
    """Both sides under the divisor that is set."""
    drawn = lab_draws.drawn(setting)
    if place is None or head is None or query is None:
        return Lab(setting, drawn)
    return Lab(
        setting,
        drawn,
        place,
        head,
        query,
        lab_heads.real_head(place),
        lab_heads.read(place, setting.power, query, setting.seed),
    )


# --- the chain, synthetic left, real right


def scores(lab: Lab) -> None:
    """What q·k is, and why a trained head's variance is not d_k."""

    def picture(side: Side) -> Drawing:
        return chain_charts.histogram(side.scores, side.scores_curve, "q·k", "1", side.reach)

    drawn = told.scores_drawn(lab.drawn)
    _stage(lab, "scores", picture, drawn, told.scores_read, why_not_d_k)


def why_not_d_k(lab: Lab) -> None:
    """Means, lengths, dependence: each as a measured number."""
    fold = look.fold("Why this head's variance is not d_k", "why_not_d_k")
    if not fold or lab.vectors is None:
        return
    with fold:
        for sentence in told.why_not_d_k(lab.vectors):
            st.markdown(look.plain(sentence))
        st.markdown("**Cosines of q and k over all visible pairs**")
        look.chart(
            chain_charts.cosines(lab.vectors.cosines),
            "Histogram of the cosines of queries and keys, from −1 to 1.",
        )
        look.numbers("These numbers as a table", lab.vectors.numbers, key="head_moments")


def logits(lab: Lab) -> None:
    """The same, divided."""

    def picture(side: Side) -> Drawing:
        curve = side.logits_curve
        return chain_charts.histogram(side.logits, curve, "logit", side.name, side.reach)

    def read(side: Side) -> str:
        return told.logits(side, lab.setting.power)

    _stage(lab, "logits", picture, read(lab.drawn), read, own_divisor)


def own_divisor(lab: Lab) -> None:
    """What the model itself divides by."""
    if lab.vectors:
        st.markdown(look.plain(told.own_divisor(lab.vectors, lab.setting.power)))


def weights(lab: Lab) -> None:
    """One row after the softmax."""

    def picture(side: Side) -> Drawing:
        return chain_charts.weights(side.row, side.name)

    def read(side: Side) -> str:
        assert lab.head is not None
        assert lab.query is not None
        return told.row_read(side, lab.head, lab.query)

    _stage(lab, "weights", picture, told.row_drawn(lab.drawn), read)


def saturation(lab: Lab) -> None:
    """How sharp all rows are under each divisor."""
    quantity = lab_controls.saturation()

    def picture(side: Side) -> Drawing:
        even = side.even_weight if quantity == "largest weight" else side.even_keys
        return chain_charts.saturation(side.chain, quantity, even, side.most_keys)

    def read(side: Side) -> str:
        return told.saturation(side, quantity)

    _stage(lab, "saturation", picture, read(lab.drawn), read, quantity=quantity)


def gradient(lab: Lab, quantity: str = "‖dL/dq‖", stage: str = "gradient") -> None:
    """What reaches a query of a gradient on its weights."""

    def picture(side: Side) -> Drawing:
        return gradient_charts.distribution(side.gradients, side.marks, quantity)

    def read(side: Side) -> str:
        return told.gradient(side, quantity)

    _stage(lab, stage, picture, read(lab.drawn), read, random_loss, quantity)


def random_loss(lab: Lab) -> None:
    """That no loss of the model's own is asked."""
    st.caption(look.plain(told.RANDOM_LOSS))


def _stage(
    lab: Lab,
    name: str,
    picture: Callable[[Side], Drawing],
    drawn: str,
    read: Callable[[Side], str],
    also: Callable[[Lab], None] | None = None,
    quantity: str = "",
) -> None:
    """One stage of the chain on both sides, of a quantity where there are several to choose."""
    drawing = name, quantity
    left, right = look.sides(name=f"lab_{name}")
    with left, look.panel("synthetic", f"lab_{name}"):
        _picture(_spec(lab.drawn, drawing, picture), drawn, _drawn_caption(lab))
    with right, look.panel("real", f"lab_{name}"):
        if lab.read is None or lab.head is None:
            st.markdown(look.plain(told.NO_VECTORS if lab.head else "No model is read."))
            return
        caption = told.read_caption(lab.head, lab.setting.power)
        _picture(_spec(lab.read, drawing, picture), read(lab.read), caption)
        if also:
            also(lab)


def _spec(side: Side, drawing: tuple[str, str], picture: Callable[[Side], Drawing]) -> Spec:
    """A side's chart, made once: while one side moves, the other is only sent again."""
    kept = _specs.setdefault(side, {})
    if drawing not in kept:
        kept[drawing] = look.spec(picture(side))
    return kept[drawing]


def _picture(drawing: Spec, said: str, caption: str) -> None:
    st.markdown(f"**{look.plain(said)}**")
    look.chart(drawing, f"{said}.")
    st.caption(look.plain(caption))


def _drawn_caption(lab: Lab) -> str:
    return told.drawn_caption(lab.setting, lab_draws.trials(lab.setting))


def numbers(lab: Lab) -> None:
    """Both sides of the chain as tables, and the functions that made them."""
    look.numbers("Synthetic: these numbers as a table", lab.drawn.chain, key="chain_drawn")
    if lab.read is not None:
        look.numbers("Real: these numbers as a table", lab.read.chain, key="chain_read")
    show_code(
        "chain",
        "attnviz.equation.scores",
        "attnviz.equation.logits",
        "attnviz.equation.weights",
        "attnviz.synthetic.draw",
        "attnviz.synthetic.measured",
        "attnviz.synthetic.of_rows",
        "attnviz.head_moments.measured",
    )


# --- variance against d_k


def variance(lab: Lab) -> None:
    """The curve that the claim is about, with the chosen model's layers on it."""
    curve = lab_draws.curve(lab.setting)
    layers = None
    if lab.place is not None and lab.read is not None:
        layers = lab_heads.layers(lab.place.asked, lab.place.part)
    st.markdown(look.plain(told.variance_seen(lab.setting)))
    look.chart(
        variance_charts.curve(curve, heads.marks(lab.head), layers),
        "Variance of q·k against d_k on log axes under each divisor, measured and in closed form.",
    )
    st.caption(look.plain(told.curve_caption(lab.setting, PAIRS)))
    if lab.head is not None and layers is not None:
        st.caption(look.plain(told.layers_caption(lab.head)))
        st.markdown(look.plain(sentences.why_not_d_k(lab.head)))
    st.markdown(f"**{look.plain('How near to normal: excess kurtosis of q·k')}**")
    st.markdown(look.plain(told.kurtosis_seen(lab.setting)))
    look.chart(
        variance_charts.kurtosis(curve),
        "Excess kurtosis of q·k against d_k, measured and in closed form.",
    )
    st.caption(look.plain(told.curve_caption(lab.setting, PAIRS)))
    look.numbers("These curves as a table", curve, key="curve")
    if layers is not None:
        look.numbers("All layers as a table", layers, key="layers")
    show_code(
        "variance",
        "attnviz.moments.variance",
        "attnviz.moments.row_variance",
        "attnviz.moments.excess_kurtosis",
        "attnviz.synthetic.pair_scores",
        "attnviz.synthetic.variance",
        "attnviz.head_moments.moments_of",
    )


# --- saturation map


def saturation_maps(lab: Lab) -> None:
    """Largest weight and entropy over d_k and n, and the line where rows freeze."""
    with st.spinner("Rows are drawn for each square"):
        cells, lines = lab_draws.saturation(lab_draws.of_maps(lab.setting))
    place = None
    if lab.head is not None and lab.head.d_k is not None:
        place = (lab.head.d_k, lab.head.n[1])
    for quantity, title in MAPS.items():
        st.markdown(f"**{title}**")
        look.chart(
            saturation_charts.maps(cells, lines, quantity, place),
            f"{title} over d_k and n, one map for each divisor, with the line where rows freeze.",
        )
    st.caption(look.plain(told.map_caption(lab.setting, lab_draws.MAP_TRIALS, lab.head)))
    for sentence in told.freezing(lab.setting):
        st.markdown(look.plain(sentence))
    look.numbers("These maps as a table", cells, key="maps")
    show_code(
        "maps",
        "attnviz.lab_frames.saturation_map",
        "attnviz.moments.freezing_std",
        "attnviz.moments.freezing_d_k",
    )


# --- gradient


def gradients(lab: Lab) -> None:
    """Distributions of three lengths, with mean and median, and what is true of them."""
    for sentence in told.gradient_seen(lab.drawn, lab.setting):
        st.markdown(look.plain(sentence))
    quantity = lab_controls.gradient()
    gradient(lab, quantity, "gradients")
    if lab.read is not None:
        st.markdown(look.plain(told.gradient_read(lab.read)))
    look.numbers("Synthetic: mean, median and root mean square", lab.drawn.marks, key="marks_drawn")
    if lab.read is not None:
        look.numbers("Real: mean, median and root mean square", lab.read.marks, key="marks_read")
    show_code(
        "gradient",
        "attnviz.synthetic.pulled",
        "attnviz.synthetic.jacobian_norm",
        "attnviz.synthetic.NormalKeys",
        "attnviz.moments.gradient_rms",
        "attnviz.moments.saturated_gradient",
    )
