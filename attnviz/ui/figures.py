"""The figures of the pages: a reading goes in, a chart with its caption comes out on screen."""

from __future__ import annotations

import streamlit as st

from attnviz.charts import matrix, overlay, playground, variance
from attnviz.ui import draws, heads, look, sentences
from attnviz.ui.draws import Draw
from attnviz.ui.heads import Head
from attnviz.ui.readings import MAX_TOKENS, Asked

REMARK = (
    "Attention weights are not an explanation: they say where this head looks, not what the "
    "model's answer rests on (Jain and Wallace 2019; Wiegreffe and Pinter 2019)."
)


def head_picture(head: Head, query: int) -> None:
    """One head's weights, with the scale of colours and the line that says what it is."""
    if max(head.matrix.shape) <= MAX_TOKENS:
        look.chart(
            matrix.weight_picture(head.matrix, head.queries, head.keys, query, cross=head.cross),
            f"Weights of {sentences.place(head)}: queries down, keys across. "
            f"{sentences.headline(head, query)}.",
            square=True,
        )
        look.chart(
            matrix.weight_scale(float(head.matrix.to_numpy().max())),
            "Colour scale of the weights, from 0 to the largest.",
            square=True,
        )
    else:
        st.markdown(look.plain(sentences.too_many_cells(head)))
    if head.picture is not None:
        picture_overlay(head, query)
    st.caption(look.plain(sentences.head_caption(head)))


def picture_overlay(head: Head, query: int) -> None:
    """One query's weights over the picture that the model looked at."""
    from attnviz import frames

    if head.picture is None or head.grid is None:
        return
    said = sentences.overlay(head, query)
    st.markdown(look.plain(said))
    patches = frames.patch_weights(head.matrix.loc[query], head.keys, head.grid)
    place = heads.patch_of(head, query)
    look.chart(overlay.patch_overlay(head.picture, patches, head.grid, place), said, square=True)


def head_tables(asked: Asked, head: Head, query: int) -> None:
    """Where the query looks and why, term by term, and the head's statistics, as tables."""
    remark = f"{sentences.HIDDEN_FIRST} {REMARK}" if head.hidden else REMARK
    row = heads.row(asked, head, query)
    look.numbers("This row as a table", row, key="row", remark=remark)
    look.numbers("This head in numbers", head.statistics, key="statistics")


def score_histogram(draw: Draw) -> None:
    """Scores before and after dividing, measured and predicted."""
    for quantity, said in zip(("q·k", "q·k / √d_k"), sentences.measured(draw), strict=True):
        st.markdown(f"**{look.plain(said)}**")
        look.chart(playground.score_histogram(draw.histogram, quantity), f"Histogram. {said}.")
    st.caption(look.plain(sentences.draw_caption(draw, draws.PAIRS)))


def variance_curve(seed: int, head: Head | None) -> None:
    """Variance against d_k under each divisor, with the real head's place."""
    look.chart(
        variance.curve(draws.curve(seed), heads.marks(head)),
        "Variance of the logits against d_k on log axes: divisor 1 rises with d_k, the root of "
        "d_k stays at 1, d_k and its square fall.",
    )
    st.caption(look.plain(sentences.curve_caption(draws.PAIRS, seed, head)))


def softmax_rows(draw: Draw) -> None:
    """The weights of one and the same draw under each divisor."""
    grid = st.columns(4)
    rows = draw.rows.groupby("divisor", sort=False)
    for place, (name, row) in zip(grid, rows, strict=True):
        largest, effective = row["largest"].iloc[0], row["effective_keys"].iloc[0]
        divisor = sentences.divisor_value(str(name), draw.d_k)
        said = f"largest {largest:.2f} · like {effective:.1f} of {draw.n} keys"
        with place:
            st.markdown(f"**{divisor}**  \n{said}")
            look.chart(playground.softmax_row(row), f"Weights of {draw.n} keys, {divisor}: {said}.")
    st.caption(look.plain(sentences.rows_caption(draw)))
