"""How symmetric a head's scores are, and the two products that its four matrices are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui import circuits, downloads, heads, look, sentences
from attnviz.ui import circuits_sentences as told
from attnviz.ui import selection as selected
from attnviz.ui.circuits import DRAWN_TOKENS, DRAWS, IN_VIEW, SEED, Product, Products, Symmetry
from attnviz.ui.fields import held
from attnviz.ui.readings import NotServed, Reading
from attnviz.ui.source import show_code
from attnviz.ui.views import Place

if TYPE_CHECKING:
    from attnviz.ui.heads import WhichHead
    from attnviz.ui.look import Drawing

MOST_DISTANCE = 63  # of the slider
PRODUCTS = r"W_{QK} = W_Q^\top W_K \qquad\qquad W_{OV} = W_O\, W_V"
CODE = (
    "attnviz.circuits.QueryKey",
    "attnviz.circuits.OutputValue",
    "attnviz.circuits.at_distance",
)


def symmetry(place: Place, reading: Reading) -> None:
    """S beside Sᵀ, and the share of the scores that does not know who looks at whom."""
    with look.panel("real", "symmetry"):
        try:
            _symmetry(place, reading)
        except NotServed as problem:
            st.info(look.plain(str(problem)))


def _symmetry(place: Place, reading: Reading) -> None:
    head = heads.which(reading, place.part, place.layer, place.head)
    start = _start(head.n[0])
    found = circuits.symmetry(place, start)
    st.subheader(look.plain(told.share(found)))
    st.markdown(look.plain(told.BOTH))
    drawn = _both(found, head)
    if view := told.in_view(start, len(found.tokens), head.n[0]):
        st.caption(look.plain(view))
    st.markdown(look.plain(_pair(found)))
    st.markdown(look.plain(told.LOST))
    drawn += _shares(found, head)
    show_code("symmetry", "attnviz.circuits.symmetric_share", "attnviz.equation.scores")
    _take_home(place, reading, "symmetry of scores", "symmetry", drawn)


def _start(n: int) -> int:
    """The first token in view, where there are more than have room."""
    if n <= IN_VIEW:
        return 0
    last = n - IN_VIEW
    start = min(held("symmetry_start", selected.current().symmetry_start), last)
    st.session_state["symmetry_start"] = start
    start = st.slider("First token in view", 0, last, key="symmetry_start")
    selected.change(symmetry_start=start)
    return start


def _both(found: Symmetry, head: WhichHead) -> list[Drawing]:
    """Two pictures in the same colours, and their scale."""
    from attnviz import circuits_frames as frames
    from attnviz.charts import circuits as charts
    from attnviz.charts import matrix

    first = int(found.tokens["position"].iloc[0])
    pair = (found.pair.query, found.pair.key) if found.pair else (first, first)
    names = {"S": "Scores of every token looking at every other", "Sᵀ": "The same turned about"}
    drawn: list[Drawing] = []
    for place, (name, described) in zip(look.sides(name="symmetry"), names.items(), strict=True):
        with place:
            st.markdown(f"**{name}**")
            drawn.append(charts.scores(found.scores, found.tokens, pair, found.top, name != "S"))
            look.chart(drawn[-1], described, square=True)
    signed = bool((found.scores < 0).any().any())
    drawn.append(matrix.weight_scale(found.top, "score q·k", signed))
    look.chart(drawn[-1], "Scale of colours for scores", square=True)
    st.caption(look.plain(sentences.caption(head, "scores before the mask")))
    pairs = frames.pairs(found.scores, found.tokens)
    look.numbers("All pairs in view as a table", pairs, "symmetry_pairs")
    return drawn


def _pair(found: Symmetry) -> str:
    if found.pair is None:
        return told.pair(None, ("", ""))
    words = (
        sentences.word(found.tokens, found.pair.query),
        sentences.word(found.tokens, found.pair.key),
    )
    return told.pair(found.pair, words)


def _shares(found: Symmetry, head: WhichHead) -> list[Drawing]:
    """The head's share among those of others, and of random vectors."""
    from attnviz.charts import circuits as charts

    n, d_k = min(head.n[0], DRAWN_TOKENS), head.d_k or 1
    compared = told.compared(found, n, d_k, DRAWS, SEED)
    drawn = charts.shares(found.shares)
    look.chart(drawn, f"Symmetric shares on one axis. {compared}")
    st.markdown(look.plain(compared))
    st.caption(look.plain(sentences.caption(head, f"random vectors: synthetic, seed {SEED}")))
    look.numbers("These shares as a table", found.shares, "symmetry_shares")
    return [drawn]


# --- products


def products(place: Place, reading: Reading) -> None:
    """That W_QK and W_OV are all that matters, and of what rank they are."""
    with look.panel("real", "products"):
        try:
            _products(place, reading)
        except NotServed as problem:
            st.info(look.plain(str(problem)))


def _products(place: Place, reading: Reading) -> None:
    head = heads.which(reading, place.part, place.layer, place.head)
    st.markdown(look.plain(told.ONLY_TWO))
    st.latex(PRODUCTS)
    found = circuits.products(place)
    left, right = look.sides(name="products")
    with left:
        st.subheader("W_QK: what is matched")
        shown = _query_key(found, place)
    with right:
        st.subheader("W_OV: what is returned")
        shown |= _output_value(found)
    if shown:
        st.markdown(look.plain(told.FACTORS_ALONE))
    st.caption(look.plain(sentences.caption(head, told.read_from(found))))
    if shown:
        _tables(shown)
    show_code("products", *CODE)
    if shown:
        drawn = [_spectrum(product, name) for name, product in shown.items()]
        _take_home(place, reading, "singular values", "products", drawn)


def _query_key(found: Products, place: Place) -> dict[str, Product]:
    """W_QK with its singular values, those at one distance where queries and keys are rotated."""
    plain = found.query_key
    if isinstance(plain, str):
        st.info(look.plain(plain))
        return {}
    if not found.rotated or found.tokens < 2:
        _product(plain, told.scores_from(plain, found.rotated), "d_k")
        return {"W_QK": plain}
    st.markdown(look.plain(told.ROTATED))
    st.markdown(look.plain(told.scores_from(plain, rotated=True)))
    distance = _distance(min(found.tokens - 1, MOST_DISTANCE))
    turned = circuits.at_distance(place, distance)
    if isinstance(turned, str):
        st.info(look.plain(turned))
        _product(plain, "", "d_k")
        return {"W_QK before rotation": plain}
    _product(turned, told.scores_at(turned, distance), "d_k")
    return {"W_QK before rotation": plain, f"W_QK at a distance of {distance}": turned}


def _distance(most: int) -> int:
    """How far the query is behind the key."""
    distance = min(held("products_distance", selected.current().products_distance), most)
    st.session_state["products_distance"] = distance
    distance = st.slider("Distance of the two tokens", 0, most, key="products_distance")
    selected.change(products_distance=distance)
    return distance


def _output_value(found: Products) -> dict[str, Product]:
    if isinstance(found.output_value, str):
        st.info(look.plain(found.output_value))
        return {}
    _product(found.output_value, told.outputs_from(found.output_value), "d_v")
    return {"W_OV": found.output_value}


def _product(product: Product, comes: str, width: str) -> None:
    """What comes of a product, how much it holds, and its singular values."""
    if comes:
        st.markdown(look.plain(comes))
    saving = told.saving(product, width)
    st.markdown(look.plain(saving))
    look.chart(_spectrum(product), f"Singular values, largest first: {saving}")
    st.caption(look.plain(told.made_of(product)))


def _spectrum(product: Product, name: str = "") -> Drawing:
    from attnviz import circuits_frames as frames
    from attnviz.charts import circuits as charts

    table = frames.spectra({name: product.spectrum})
    return charts.spectrum(table, product.spectrum.rank_bound, min(product.sizes), name)


def _tables(shown: Mapping[str, Product]) -> None:
    from attnviz import circuits_frames as frames

    spectra = {name: product.spectrum for name, product in shown.items()}
    look.numbers("Ranks and parameters as a table", frames.products(spectra), "products")
    look.numbers("Singular values as a table", frames.spectra(spectra), "products_spectra")


def _take_home(
    place: Place, reading: Reading, made: str, name: str, drawn: Sequence[Drawing]
) -> None:
    """What is drawn, as files; the tables have its numbers."""
    from attnviz import export

    call = reading.calls(place.part)[place.layer]
    shown = export.head_shown(reading, call, place.head, made)
    downloads.downloads(downloads.figure(shown, lambda: drawn), f"{name}_downloads")
