"""What models really do: the chosen one as it was read, then the families, with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from attnviz import published
from attnviz.published import Example, HalfTruth, Practice, Source
from attnviz.ui import look, published_rows
from attnviz.ui.published_rows import Own
from attnviz.ui.readings import Asked
from attnviz.ui.source import show_code

READ = {
    "account": "as others tell it",
    "abstract": "abstract",
    "configuration": "configuration",
    "results": "results",
}
HOW_READ = (
    f"Code was read in transformers {published.TRANSFORMERS}, or where the link leads; of a paper, "
    "what the bracket says. What no source confirmed was left out."
)


def scales(asked: Asked, part: str) -> None:
    """What q·k is multiplied by: in the layers of a part, in other families, and half-truths.

    Raises `NotServed` where the model cannot be read.
    """
    own = published_rows.scales(asked, part)
    _chosen(own, published_rows.caption(asked, part), "scales")
    _families("q·k is multiplied by", published.SCALES, own)
    _half_truths(published.SCALE_HALF_TRUTHS)
    show_code("scales", "attnviz.published.scale_names")


def projections(asked: Asked, part: str) -> None:
    """What makes q, k and v: in the layers of a part, in other families, and half-truths.

    Raises `NotServed` where the model cannot be read.
    """
    own = published_rows.projections(asked, part)
    _chosen(own, published_rows.caption(asked, part), "projections")
    _families("q, k and v are made by", published.PROJECTIONS, own)
    _half_truths(published.PROJECTION_HALF_TRUTHS)
    show_code("projections", "attnviz.published.projection_names", "attnviz.wiring.wiring")


def _chosen(own: Sequence[Own], caption: str, name: str) -> None:
    """The chosen model: a column for the layers that do the same."""
    with look.panel("real", f"published_{name}"):
        st.markdown("**The chosen model**")
        facts = zip(*(column.facts for column in own), strict=True)
        rows = [(same[0][0], *(value for _, value in same)) for same in facts]
        heads = ("", *(column.layers for column in own))
        st.markdown(_table(map(look.plain, row) for row in (heads, *rows)))
        for column in own:
            if column.remark:
                told = f"{column.layers}: {column.remark}" if len(own) > 1 else column.remark
                st.markdown(look.plain(f"{told[0].upper()}{told[1:]}"))
        st.caption(look.plain(caption))


def _families(what: str, practices: Iterable[Practice], own: Sequence[Own]) -> None:
    """One row for each way of doing it, those of the chosen model marked and first."""
    heads = (what, "in which models, and what to know")
    names = {name for column in own for name in column.names}
    first = sorted(practices, key=lambda row: row.name not in names)
    rows = [(_marked(row.name, own), _told(row)) for row in first]
    st.markdown("**This and other models**")
    st.markdown(_table((heads, *rows)))
    st.caption(look.plain(HOW_READ))


def _marked(name: str, own: Sequence[Own]) -> str:
    """The name of a way of doing it, and whether the chosen model does it so, in which layers."""
    layers = [column.layers for column in own if name in column.names]
    here = " :blue-badge[this model]" if layers else ""
    where = f" {look.plain(', '.join(layers))}" if 0 < len(layers) < len(own) else ""
    return f"**{look.plain(name)}**{here}{where}"


def _told(row: Practice) -> str:
    models, remark = look.plain(row.models), look.plain(row.remark)
    examples = "".join(f" {look.plain(_example(x))}." for x in row.examples)
    return f"*{models}.* {remark}{examples} {_sources(row.sources)}"


def _example(example: Example) -> str:
    """A checkpoint in numbers, beside the usual scale of its width."""
    told = f"{example.checkpoint}: {example.factor:.3g} at d_k = {example.d_k}"
    if abs(example.multiple - 1) < 1e-6:
        return told
    return f"{told}, {example.multiple:.3g} times 1/√{example.d_k}"


def _half_truths(half_truths: Iterable[HalfTruth]) -> None:
    st.markdown("**Half true**")
    st.markdown(
        "\n".join(
            f"- *{look.plain(x.claim)}* {look.plain(x.truth)} {_sources(x.sources)}"
            for x in half_truths
        )
    )


def _sources(sources: Iterable[Source]) -> str:
    return f"[{'; '.join(map(_source, sources))}]"


def _source(source: Source) -> str:
    """A link to where a fact stands, and what was read of it where that is not the whole."""
    title = look.plain(source.title)
    link = title if source.address is None else f"[{title}]({source.address})"
    return f"{link} ({READ[source.read]})" if source.read in READ else link


def _table(rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, its first row the heads: screen readers read it, narrow ones wrap it."""
    heads, *written = [list(row) for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *written))
