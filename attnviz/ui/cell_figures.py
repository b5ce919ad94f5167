"""The figures of a cell's page: a worked-out cell goes in, charts with their numbers come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from attnviz import cell_frames as frames
from attnviz.charts import distance, key_bars, match, strips, theme
from attnviz.ui import as_code, blackboard, cell_chain, look, sentences
from attnviz.ui import cell_sentences as told
from attnviz.ui.cell_equations import is_latent, roles
from attnviz.ui.cell_picker import cell_picker
from attnviz.ui.cells import Worked
from attnviz.ui.controls import take_cell
from attnviz.ui.readings import MAX_TOKENS, Asked

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attnviz.ui.heads import Head


def picker(head: Head, query: int, key: int) -> None:
    """The head's matrix, in which another cell is chosen by a click or by arrow keys."""
    if max(head.matrix.shape) > MAX_TOKENS:
        st.markdown(look.plain(sentences.too_many_cells(head)))
        return
    cell_picker(
        head.matrix,
        head.queries,
        head.keys,
        (query, key),
        label=f"Weights of {sentences.place(head)}",
        key="cell_picker",
        on_change=take_cell,
        visible=head.visible,
        cross=head.cross,
    )


def boxes(worked: Worked) -> None:
    """From the score to the weight in a row of numbers."""
    with st.container(horizontal=True, gap="small", key="boxes"):
        for label, value in cell_chain.boxes(worked):
            st.metric(look.plain(label), look.plain(value), border=True, width="content")


def three_roles(worked: Worked) -> None:
    """The vectors of the two tokens, and what the matrices make of them."""
    query, key = _words(worked)
    made = roles(worked)
    words = {"q": query, "k": key, "v": key}
    _vectors(_given(worked, words), "what the matrices are given")
    latent = {f"latent for {name}": r.entering for name, r in made.items() if is_latent(r)}
    _vectors(latent, "the latent vectors")
    normed = {"q", "k"} if worked.norm else set()
    vectors = {
        f"{letter} of {words[letter]}{' before its norm' if letter in normed else ''}": (
            role.used if role.made is None else role.made
        )
        for letter, role in made.items()
    }
    _vectors(vectors, "what the matrices make", numbers="roles")


def position(worked: Worked) -> None:
    """Query and key before and after the model puts their places in, and what that does."""
    query, key = _words(worked)
    cell, added = worked.cell, worked.added_positions
    if cell.query and cell.key and cell.query.unrotated is not None:
        vectors = {
            "q before": cell.query.unrotated,
            "q after": cell.query.used,
            "k before": cell.key.unrotated,
            "k after": cell.key.used,
        }
        _vectors(vectors, "query and key before and after rotation", numbers="rotation")
    if added and added.query is not None:
        vectors = {f"added to {query}": added.query, f"added to {key}": added.key}
        _vectors(vectors, "what is added to the two tokens for their places")
    for curve in worked.curves:
        frame = frames.curve(curve, worked.query - worked.key)
        look.chart(distance.curve(frame), f"A curve over distance, {curve.kind}.")


def products(worked: Worked, by_place: bool) -> None:
    """The products of query and key, dimension by dimension, and the scores of the whole row."""
    if worked.cell.match is None:
        return
    query, key = _words(worked)
    frame = frames.match(worked.cell, "dimension" if by_place else "size")
    written = len(frame) <= theme.WRITTEN_CELLS  # else a legend says what the colours mean
    look.chart(
        match.match(frame, (f"q of {query}", f"k of {key}"), legend=not written),
        "The numbers of query and key, their products, and the running sum to the score.",
    )
    look.chart(key_bars.scores(_row(worked)), f"The scores of {query} with all keys.")
    look.numbers("Dimension by dimension", frames.match_numbers(frame), key="match")


def chain(worked: Worked) -> None:
    """From the score to what enters the softmax, each term a line, and the whole row."""
    import pandas as pd

    lines = [map(look.plain, line) for line in cell_chain.chain(worked)]
    st.table(pd.DataFrame(lines, columns=["", "number", "what it is"]).set_index(""))
    if worked.cell.logit is not None:
        said = f"What enters the softmax, for {_words(worked)[0]} and all keys."
        look.chart(key_bars.logits(_row(worked)), said)


def row_of_weights(worked: Worked) -> None:
    """The whole row as bars."""
    row = _row(worked, with_sink=True)
    look.chart(key_bars.weights(row), f"Weights of the row of {_words(worked)[0]}, key by key.")
    look.numbers("This row as a table", frames.key_numbers(row), key="weights")


def retrieved(worked: Worked) -> None:
    """What each key brings to the output, and the output, dimension by dimension."""
    cell, key = worked.cell, _words(worked)[1]
    what = "‖weight · value · W_O‖" if cell.retrieved.through_w_o else "‖weight · value‖"
    row = _row(worked, with_sink=True)
    look.chart(key_bars.brought(row, what), "What each key brings, and its weight.")
    vectors = {
        f"v of {key}": cell.value.used,
        "weight × v": cell.retrieved.share,
        "output": cell.retrieved.output,
    }
    _vectors(vectors, "value, what is taken of it, and the output", numbers="output")


def into_stream(worked: Worked) -> None:
    """The head's part of what its layer adds to the stream."""
    into = worked.cell.into_stream
    if into is None:
        return
    vectors = {
        "this head's part": into.part,
        "all heads": into.added,
        "stream before": into.before,
    }
    _vectors(vectors, "what the head writes, all heads together, and the stream before")
    frame = frames.heads(into, worked.cell.head)
    look.chart(key_bars.heads(frame), "How long the part of each head of this layer is.")
    look.numbers("Head by head", frame[["head", "length"]], key="heads")


def by_hand(worked: Worked) -> None:
    """The same numbers rounded for the blackboard, to copy."""
    with st.expander("By hand", on_change="rerun", key="by_hand") as fold:
        if fold.open:
            st.code(blackboard.as_text(worked), language=None)
            st.code(blackboard.as_latex(worked), language="latex")


def code(asked: Asked, worked: Worked) -> None:
    """The lines of Python that give this number in a notebook."""
    with st.expander("As code", on_change="rerun", key="as_code") as fold:
        if fold.open:
            st.code(as_code.as_code(asked, worked), language="python")


def caption(worked: Worked) -> None:
    """The line that says what all this is of."""
    st.caption(look.plain(told.caption(worked)))


def _given(worked: Worked, words: Mapping[str, str]) -> Mapping[str, Tensor | None]:
    """The vectors x by the words of their tokens and the roles that they are for."""
    given: dict[str, Tensor] = {}
    for letter, role in roles(worked).items():
        of = f"x of {words[letter]}"
        if role.x is None or any(n.startswith(of) and x.equal(role.x) for n, x in given.items()):
            continue
        several = any(name.startswith(of) for name in given)
        given[f"{of}, for {letter}" if several else of] = role.x
    return given


def _words(worked: Worked) -> tuple[str, str]:
    head = worked.head
    return sentences.word(head.queries, worked.query), sentences.word(head.keys, worked.key)


def _row(worked: Worked, *, with_sink: bool = False) -> pd.DataFrame:
    return frames.keys(worked.cell, list(worked.head.keys["token"]), with_sink=with_sink)


def _vectors(vectors: Mapping[str, Tensor | None], said: str, numbers: str = "") -> None:
    """Vectors as strips on one scale, those of one width together; None is left out."""
    known = {name: vector for name, vector in vectors.items() if vector is not None}
    widths = dict.fromkeys(len(vector) for vector in known.values())
    reach = max((float(vector.abs().max()) for vector in known.values()), default=0.0)
    for place, width in enumerate(widths):
        frame = frames.strips({n: v for n, v in known.items() if len(v) == width})
        last = place == len(widths) - 1
        look.chart(strips.strips(frame, reach=reach, legend=last), f"Strips of colour: {said}.")
        if numbers:
            table = frames.dimension_numbers(frame)
            look.numbers(
                f"Dimension by dimension, {', '.join(table.columns[1:])}",
                table,
                key=f"{numbers}_{width}",
            )
