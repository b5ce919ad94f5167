"""Roles: a lookup by hand, in which one sees what is matched and what is returned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.charts import roles as charts
from attnviz.ui import look
from attnviz.ui import roles_sentences as told
from attnviz.ui import selection as selected
from attnviz.ui.controls import one_of
from attnviz.ui.fields import keep
from attnviz.ui.source import show_code

if TYPE_CHECKING:
    from attnviz.roles import Lookup, Variant

SHARPNESS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CODE = (
    *("attnviz.roles.lookup", "attnviz.roles.vectors", "attnviz.roles.output_matrix"),
    *("attnviz.equation.scores", "attnviz.equation.logits", "attnviz.equation.weights"),
)


@dataclass(frozen=True)
class Shown:
    """Which question is worked out, and how the roles are given."""

    name: str
    asked: int
    sharpness: float

    @property
    def variant(self) -> Variant:
        """What is matched and what is returned."""
        from attnviz.roles import VARIANTS

        return VARIANTS[self.name]

    @cached_property
    def lookup(self) -> Lookup:
        """All six questions, worked out."""
        from attnviz import roles

        return roles.lookup(self.variant, self.sharpness)

    @property
    def symbol(self) -> str:
        """The key symbol that is asked for."""
        from attnviz.roles import TABLE

        return TABLE[self.asked].symbol


def roles() -> None:
    """The section: one table, asked under each way of giving the roles."""
    st.markdown(look.plain(told.TASK))
    with look.panel("synthetic", "roles"):
        left, right = look.sides(2, 3, "roles_table")
        with left:
            _items()
        with right:
            shown = _choice()
            st.markdown(look.plain(told.VERDICTS[shown.name]))
        left, right = look.sides(name="roles_chain")
        with left:
            _match(shown)
        with right:
            _return(shown)
        left, right = look.sides(name="roles_read")
        with left:
            _read(shown)
        with right:
            _all_questions(shown)
        st.caption(look.plain(told.caption(shown.lookup, shown.sharpness)))
        _tables(shown)
        show_code("roles", *CODE)
    st.markdown(look.plain(told.ROOM))


def _choice() -> Shown:
    from attnviz.roles import TABLE, VARIANTS

    now = selected.current()
    keep("role_variant", now.role_variant)
    keep("role_asked", now.role_asked)
    keep("role_sharpness", float(now.role_sharpness))
    name = st.pills(
        "What is matched, and what is returned",
        list(VARIANTS),
        key="role_variant",
        required=True,
        wrap=True,
    )
    row = st.container(horizontal=True)
    symbols = [item.symbol for item in TABLE]
    asked = one_of(row, "The query asks for", symbols, "role_asked")
    sharpness = row.select_slider(
        "Sharpness",
        SHARPNESS,
        format_func="{:g}".format,
        key="role_sharpness",
        help=told.SHARPNESS,
        width=220,
    )
    assert name is not None
    selected.change(role_variant=name, role_asked=asked, role_sharpness=str(sharpness))
    return Shown(name, symbols.index(asked), sharpness)


def _items() -> None:
    from attnviz import roles_frames

    table = roles_frames.table()
    st.markdown(_table([list(table.columns), *table.to_numpy().tolist()]))


def _match(shown: Shown) -> None:
    from attnviz import roles_frames

    found = shown.lookup
    query = roles_frames.vector(found.query[shown.asked].tolist())
    frame = roles_frames.matched(found, shown.asked)
    said = told.match(frame, found.d_k)
    st.markdown(f"**{look.plain(told.matching(shown.variant, query))}**")
    look.chart(charts.matched(frame, found.d_k), f"Score, logit and weight of each item. {said}")
    st.markdown(look.plain(said))


def _return(shown: Shown) -> None:
    from attnviz import roles_frames

    found = shown.lookup
    output = roles_frames.output(found, shown.variant, shown.asked)
    said = told.output(output)
    st.markdown(f"**{look.plain(told.returning(shown.variant))}**")
    brought = roles_frames.returned(found, shown.asked)
    look.chart(charts.returned(brought, output), f"What each item brings, and the sum. {said}")
    st.markdown(look.plain(said))


def _read(shown: Shown) -> None:
    from attnviz import roles_frames

    frame = roles_frames.read(shown.lookup, shown.asked)
    said = told.answer(frame, shown.symbol)
    st.markdown(f"**{look.plain(told.READING)}**")
    look.chart(charts.read(frame), f"The output's product with each content. {said}")
    st.markdown(look.plain(said))


def _all_questions(shown: Shown) -> None:
    from attnviz import roles_frames

    st.markdown("**All six questions**")
    outcomes = roles_frames.outcomes(shown.sharpness)
    st.markdown(_table(told.outcomes(outcomes), strong=shown.name))
    st.caption(look.plain(told.COLUMNS))


def _tables(shown: Shown) -> None:
    """What the charts draw, as tables."""
    from attnviz import roles_frames

    found, asked = shown.lookup, shown.asked
    look.numbers("The match as a table", roles_frames.matched(found, asked), "roles_matched")
    returned = roles_frames.returned(found, asked)
    look.numbers("What is returned, as a table", returned, "roles_returned")
    look.numbers("What is read, as a table", roles_frames.read(found, asked), "roles_read")


def _table(rows: Iterable[Sequence[str]], strong: str = "") -> str:
    """A table in Markdown, its first row the heads; the row of this name is bold."""
    lines = [[look.plain(cell) for cell in row] for row in rows]
    bold = [
        [f"**{cell}**" for cell in line] if strong and line[0] == look.plain(strong) else line
        for line in lines
    ]
    heads, *others = bold
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *others))
