"""The figures of the page of heads: which heads and how go in, drawings come out on screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from attnviz import head_frames as frames
from attnviz.ui import downloads, heads, look, overview, sentences, views
from attnviz.ui import head_controls as controls
from attnviz.ui import view_sentences as told
from attnviz.ui.cell_picker import cell_picker
from attnviz.ui.controls import take_cell
from attnviz.ui.lines import token_lines
from attnviz.ui.mosaic import mosaic
from attnviz.ui.reading_order import reading_order
from attnviz.ui.readings import MAX_TOKENS, NotServed, Reading, served
from attnviz.ui.views import How, Place, View

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.ui.look import Drawing

LINED = 120  # tokens of a long text that have lines
RANKED = 500  # keys of a ranking
ONE_SIDE, SMALL_SIDE = 560, 400  # px of a picture alone, and of several
SIDE_BY_SIDE = 2  # pictures in a row

Drawn = list[tuple[Place, View]]  # the first is the head that is open


def is_short(reading: Reading) -> bool:
    """Whether all heads are worked out in a moment."""
    return all(max(call.n) <= MAX_TOKENS for call in reading.capture.calls)


def size(place: Place, how: How) -> tuple[int, int]:
    """How many rows and columns there are in all."""
    found = views.axes(place, how)
    return len(found.queries), len(found.keys)


def all_heads(place: Place, reading: Reading) -> None:
    """Every head of the model as one picture; a click opens one."""
    from attnviz import export
    from attnviz.charts import mosaic as charts

    parts = overview.overview(place.asked)
    colour, order = controls.colour_and_order(overview.statistics(parts))
    mosaic(
        parts,
        (place.part, place.layer, place.head),
        label=f"All heads of {reading.title}",
        key="mosaic",
        on_choose=controls.take_head,
        colour=colour,
        order=order,
    )
    downloads.downloads(
        downloads.figure(
            export.many_shown(reading, None, "overview", colour or "patterns of weights"),
            lambda: [charts.mosaic(parts, colour=colour, order=order)],
        ),
        "overview_downloads",
    )


def drawing(form: str, places: Sequence[Place], how: How, query: int, key: int, zoom: int) -> Drawn:
    """The heads in the form that is chosen; the first is the one that is open."""
    drawn = [(places[0], views.view(places[0], how, zoom, query, key))]
    for place in places[1:]:
        try:
            drawn.append((place, views.view(place, how, zoom, query, key)))
        except NotServed as problem:
            st.warning(look.plain(told.not_beside(place.layer, place.head, str(problem))))
    FORMS[form](drawn, query, key)
    return drawn


def _matrices(drawn: Drawn, query: int, key: int) -> None:
    """Pictures on the same scale of colours, side by side."""
    top = _top(drawn)
    side = ONE_SIDE if len(drawn) == 1 else SMALL_SIDE
    columns = _columns(len(drawn))
    for at, ((place, view), column) in enumerate(zip(drawn, columns, strict=True)):
        with column:
            if len(drawn) > 1:
                st.markdown(f"**{look.plain(_name(view, place, drawn[0][0]))}**")
            cell_picker(
                view.numbers,
                view.queries,
                view.keys,
                (view.query, view.key),
                label=f"{told.QUANTITIES[view.how.weighed]} of {told.place(view)}",
                key=f"matrix_{at}",
                on_change=partial(_take, place, view),
                cross=view.cross,
                side=side,
                quantity=told.QUANTITIES[view.how.weighed],
                hidden="hidden, or nothing left",
                downsampled=view.downsampled,
                top=top,
            )


def _top(drawn: Drawn) -> float | None:
    """The number in view that is farthest from 0, None where all is hidden."""
    largest = [float(view.numbers.abs().max().max()) for _, view in drawn]
    return max((number for number in largest if number > 0), default=None)


def _take(place: Place, view: View, query: int, key: int) -> None:
    take_cell(*views.strongest(place, view, query, key))


def _columns(count: int) -> list:
    wide = min(count, SIDE_BY_SIDE)
    return [column for _ in range(0, count, wide) for column in st.columns(wide)][:count]


def _name(view: View, place: Place, first: Place) -> str:
    """Which head it is, and of which model and text where that differs from the first."""
    name = told.place(view)
    if place.asked.model != first.asked.model:
        name = f"{view.head.title}, {name}"
    texts = [
        " / ".join(filter(None, (a.text, a.pair, a.target))) for a in (place.asked, first.asked)
    ]
    if texts[0] != texts[1]:
        name = f"{name}, on “{texts[0][:40]}{'…' if len(texts[0]) > 40 else ''}”"
    return name


def _lines(drawn: Drawn, query: int, key: int) -> None:
    """Heads on the same tokens in one drawing, others below it."""
    if _signed(drawn[0][1]):
        return
    nearby = [(place, _near(place, view, query, key)) for place, view in drawn]
    groups: dict[str, list[tuple[str, View]]] = {}
    for (place, near), (_, view) in zip(nearby, drawn, strict=True):
        if near is not view:
            st.caption(told.window_of_lines(LINED, max(view.head.n)))
        words = repr([near.queries["token"].tolist(), near.keys["token"].tolist()])
        groups.setdefault(words, []).append((_name(near, place, drawn[0][0]), near))
    top = _top(nearby)
    for at, group in enumerate(groups.values()):
        view = group[0][1]
        token_lines(
            [(name, one.numbers) for name, one in group],
            view.queries,
            view.keys,
            view.query,
            chosen_key=view.key,
            label=", ".join(name for name, _ in group),
            key=f"lines_{at}",
            on_choose=controls.take_token,
            cross=view.cross,
            top=top,
        )


def _texts(drawn: Drawn, query: int, key: int) -> None:
    """The text in reading order, shaded by what the chosen token looks at."""
    if _signed(drawn[0][1]):
        return
    rows = [_row(view, place, query) for place, view in drawn]
    top = max(float(row.max(skipna=True)) for row, _ in rows)
    for at, (place, view) in enumerate(drawn):
        if len(drawn) > 1:
            st.markdown(f"**{look.plain(_name(view, place, drawn[0][0]))}**")
        row, found = rows[at]
        reading_order(
            row,
            found.keys,
            None if view.cross else views.nearest(found.queries, query),
            label=f"Text shaded by {told.QUANTITIES[view.how.weighed]}, {told.place(view)}",
            key=f"text_{at}",
            on_choose=partial(controls.take_token, "key" if view.cross else "query"),
            quantity=told.QUANTITIES[view.how.weighed],
            top=top if top > 0 else None,
        )


def _signed(view: View) -> bool:
    """Tell why what may be negative has no lines and no shades, where that is so."""
    signed = view.how.weighed in ("scores", "logits")
    if signed:
        st.info(told.SIGNED)
    return signed


def _rankings(drawn: Drawn, query: int, key: int) -> None:
    """The keys that a token looks at, most first, as tables."""
    for (place, view), column in zip(drawn, _columns(len(drawn)), strict=True):
        if len(drawn) > 1:
            column.markdown(f"**{look.plain(_name(view, place, drawn[0][0]))}**")
        table = _ranking(view, place, query, terms=len(drawn) == 1)
        column.dataframe(table, hide_index=True, width="stretch", column_config=look.columns(table))


def _ranking(view: View, place: Place, query: int, terms: bool) -> pd.DataFrame:
    """One row, with the terms of each logit where they are the model's own tokens."""
    row, found = _row(view, place, query)
    if terms and view.how.own and max(view.head.n) <= MAX_TOKENS:
        whole = heads.head(place.asked, place.part, place.layer, place.head)
        return heads.row(place.asked, whole, views.nearest(found.queries, query))
    return frames.ranking(row, found.keys, told.QUANTITIES[view.how.weighed]).head(RANKED)


def _row(view: View, place: Place, query: int) -> tuple[pd.Series, views.Axes]:
    return views.row(place, view.how, query), views.axes(place, view.how)


FORMS = {"matrix": _matrices, "lines": _lines, "text": _texts, "ranking": _rankings}


# --- what is said of them, and what can be taken home


def caption(drawn: Drawn, form: str) -> None:
    """What of a long text is drawn, and the line under every drawing."""
    place, view = drawn[0]
    if form == "matrix" and (sampled := told.sampled(view, size(place, view.how))):
        st.caption(sampled)
    st.caption(look.plain(sentences.caption(view.head, told.made(view.how), told.place(view))))


def said(drawn: Drawn, query: int) -> None:
    """Where the chosen token looks, and what was made of the weights."""
    place, view = drawn[0]
    row, found = _row(view, place, query)
    st.subheader(look.plain(told.headline(view.how, query, row, found)))
    for sentence in told.about(view.how, view.sinks):
        st.markdown(look.plain(sentence))
    st.caption(told.REMARK)
    if max(view.head.n) <= MAX_TOKENS:
        st.page_link("pages/one_cell.py", label="Work out this cell, number by number")


def take_home(form: str, drawn: Drawn, query: int) -> None:
    """The drawing as files, the numbers of the open head, and its queries, keys and values."""
    from attnviz import export

    place, view = drawn[0]
    reading = served(place.asked, None)
    call = reading.calls(place.part)[place.layer]
    made = told.made(view.how) or "weights"
    whole = replace(
        export.head_shown(reading, call, place.head, made),
        place=told.file_place(view),
        n=size(place, view.how),
    )
    seen = replace(whole, note=_seen(form, drawn, query))
    items = downloads.figure(seen, lambda: _charts(form, drawn, query))
    items += downloads.numbers(whole, lambda: views.everything(place, view.how))
    if call.query is not None:
        items += downloads.vectors(whole, lambda: call, place.head)
    downloads.downloads(items, "head_downloads")


def _seen(form: str, drawn: Drawn, query: int) -> str:
    """What a caption says besides of the picture: the tokens in it, and the heads beside."""
    place, view = drawn[0]
    if form in ("text", "ranking"):
        looking = views.axes(place, view.how).queries
        return f"where {sentences.word(looking, views.nearest(looking, query))} looks"
    names = [_name(view, place, drawn[0][0]) for place, view in drawn]
    from_above = f"from above: {'; '.join(names)}" if len(names) > 1 else ""
    return " · ".join(filter(None, [told.in_view(view) if form == "matrix" else "", from_above]))


def _charts(form: str, drawn: Drawn, query: int) -> list[Drawing]:
    """What is on screen as charts, one below the other; a shaded text as its ranking."""
    from attnviz.charts import lines, matrix, ranking

    place, view = drawn[0]
    quantity = told.QUANTITIES[view.how.weighed]
    if form == "matrix":
        top = _top(drawn) or 1.0
        signed = any(bool((view.numbers < 0).any().any()) for _, view in drawn)
        pictures = [
            matrix.weight_picture(
                view.numbers, view.queries, view.keys, view.query, cross=view.cross, top=top
            )
            for _, view in drawn
        ]
        return [*pictures, matrix.weight_scale(top, quantity, signed)]
    if form == "lines":
        near = [(place, _near(place, view, query, view.key)) for place, view in drawn]
        return [
            lines.token_lines(
                [(_name(view, place, drawn[0][0]), view.numbers)],
                view.queries,
                view.keys,
                cross=view.cross,
            )
            for place, view in near
        ]
    row, found = _row(view, place, query)
    return [ranking.ranking(frames.ranking(row, found.keys, quantity), quantity)]


def _near(place: Place, view: View, query: int, key: int) -> View:
    """As many tokens about the chosen ones as have lines."""
    if not view.downsampled and max(view.numbers.shape) <= LINED:
        return view
    return views.view(place, view.how, LINED, query, key)
