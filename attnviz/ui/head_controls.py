"""The controls of the page of heads; each returns what is chosen now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.ui import look, views
from attnviz.ui import selection as selected
from attnviz.ui import view_sentences as told
from attnviz.ui.controls import KEY_LABEL, QUERY_LABEL, opening_query, token
from attnviz.ui.fields import keep, key_of, new_key
from attnviz.ui.readings import Asked, NotServed
from attnviz.ui.views import CELLS, How, Place

if TYPE_CHECKING:
    from attnviz.reading import Reading

WEIGHED = {
    "weights": "weights",
    "norms": "weight × length of what the key brings",
    "scores": "scores q·k",
    "logits": "logits",
}
OVER = {
    "head": "this head",
    "mean_heads": "mean over the layer's heads",
    "max_heads": "maximum over the layer's heads",
    "mean_layers": "mean over all layers",
    "max_layers": "maximum over all layers",
    "rollout": "attention rollout",
}
WITHOUT = {"nothing": "no token", "first": "the first token", "special": "special tokens"}
PAIRINGS = {
    "all": "both texts",
    "AA": "first to first",
    "AB": "first to second",
    "BA": "second to first",
    "BB": "second to second",
}
VIEWS = {"matrix": "Matrix", "lines": "Lines", "text": "Text", "ranking": "Ranking"}
BESIDE = 5  # heads next to the one that is open
NEAREST = 10  # tokens in view at least


def how(reading: Reading, part: str) -> How:
    """Which numbers are shown, over which heads and tokens."""
    left, right = st.columns(2)
    over = _choice("over", "Of", _overs(reading, part), left)
    only = {"weights": WEIGHED["weights"]} if over != "head" else WEIGHED
    weighed = _choice("weighed", "What is weighed", only, right)
    left, right = st.columns(2)
    without = _choice("without", "Leave out", WITHOUT, left)
    pairing = "all"
    if _two_texts(reading, part):
        pairing = _choice("pairing", "From and to", PAIRINGS, right)
    shares = weighed in ("weights", "norms")
    words = _toggle("words", "Whole words", disabled=not shares) and shares
    chosen: Any = (weighed, over, without, words, pairing)
    return How(*chosen)


def _overs(reading: Reading, part: str) -> Mapping[str, str]:
    """What numbers may be taken over: a model of one layer has no mean of layers."""
    calls = reading.calls(part)
    several = len(calls) > 1
    return {
        name: title
        for name, title in OVER.items()
        if name in ("head", "mean_heads", "max_heads")
        or (several and (name != "rollout" or part != "cross"))
    }


def _two_texts(reading: Reading, part: str) -> bool:
    call = next(iter(reading.calls(part).values()))
    return call.kind == "self" and 1 in reading.queries(call).segments


def _choice(name: str, label: str, options: Mapping[str, str], place: DeltaGenerator) -> str:
    """One of some words of the selection; the first where what is asked for is not offered."""
    wanted = st.session_state.get(name, getattr(selected.current(), name))
    usual = next(iter(options))
    if wanted not in options and name not in st.session_state:
        named = {**WEIGHED, **OVER}.get(wanted, wanted)
        st.warning(look.plain(told.not_offered(label, named, options[usual])))
    st.session_state[name] = wanted if wanted in options else usual
    chosen = place.selectbox(label, list(options), format_func=options.__getitem__, key=name)
    selected.change(**{name: chosen})
    return chosen


def _toggle(name: str, label: str, *, disabled: bool) -> bool:
    keep(name, bool(getattr(selected.current(), name)))
    chosen = st.toggle(label, key=name, disabled=disabled)
    selected.change(**{name: int(chosen)})
    return chosen


def form() -> str:
    """In which of four forms the numbers are drawn."""
    if st.session_state.get("view") not in VIEWS:
        st.session_state["view"] = selected.current().view
    chosen = st.segmented_control(
        "Form",
        list(VIEWS),
        format_func=VIEWS.__getitem__,
        key="view",
        label_visibility="collapsed",
        required=True,
    )
    chosen = chosen or "matrix"
    selected.change(view=chosen)
    return chosen


# --- tokens


def cell(place: Place, how: How) -> tuple[int, int]:
    """The query and the key that are chosen, by the positions of their rows."""
    found = views.axes(place, how)
    left, right = st.columns(2)
    of_a_picture = views.of_a_picture(place)
    query = token(
        "query",
        QUERY_LABEL,
        found.queries,
        lambda: opening_query(found.queries, of_a_picture),
        left,
    )
    key = token("key", KEY_LABEL, found.keys, lambda: views.opening_key(place, how, query), right)
    return query, key


def take_token(axis: str, position: int) -> None:
    """Show another token, whatever the lists hold."""
    new_key(axis, position)
    selected.change(**{axis: position})


# --- how near


def zoom(size: tuple[int, int]) -> int:
    """How many rows and columns are in view, 0 for all; with buttons where there are many."""
    most, now = max(size), selected.current().zoom
    now = 0 if now >= most else now
    if most > 2 * NEAREST:
        with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key="zoom"):
            nearer, further = _nearer(now or most), _further(now)
            further = 0 if further >= most else further
            _zoom_button("Zoom in", nearer, disabled=now == NEAREST)
            _zoom_button("Zoom out", further, disabled=now == 0)
            _zoom_button("All", 0, disabled=now == 0)
            shown = f"{now:,} of {most:,}" if now else f"all {most:,}"
            st.caption(f"{shown} tokens about the chosen cell" if now else f"{shown} tokens")
    selected.change(zoom=now)
    return now


def _nearer(now: int) -> int:
    """Large steps as long as cells are blocks, then small ones."""
    return max(NEAREST, now // 4 if now > CELLS else now // 2)


def _further(now: int) -> int:
    return now * 4 if now * 2 > CELLS else now * 2


def _zoom_button(label: str, zoom: int, *, disabled: bool) -> None:
    st.button(label, key=f"zoom {label}", on_click=_zoom_to, args=(zoom,), disabled=disabled)


def _zoom_to(zoom: int) -> None:
    selected.change(zoom=zoom)


# --- which heads


def take_head(part: str, layer: int, head: int) -> None:
    """Open another head, whatever the lists hold."""
    if part != (st.session_state.get(key_of("part")) or selected.current().part or part):
        for name in ("query", "key"):
            new_key(name)
        selected.change(query=None, key=None)
    for name, value in (("part", part), ("layer", layer), ("head", head)):
        new_key(name, value)
    selected.change(part=part, layer=layer, head=head)


def places(place: Place, reading: Reading) -> list[Place]:
    """The head that is open, those that are wanted beside it, and the one that is pinned."""
    fold = look.fold("Compare", "compare", opened=bool(_compared()))
    if not fold:
        return [place]
    with fold:
        found = [place, *_beside(place, reading)]
        _pin_buttons(place)
        kept = pinned()
        try:
            return [*found, *([views.checked(kept)] if kept else [])]
        except NotServed as problem:
            st.error(look.plain(str(problem)))
            return found


def _compared() -> str:
    now = selected.current()
    return now.beside or now.pin


def _own(place: Place) -> str:
    return f"{place.layer}.{place.head}"


def _beside(place: Place, reading: Reading) -> list[Place]:
    names = {
        f"{layer}.{head}": replace(place, layer=layer, head=head)
        for layer, call in reading.calls(place.part).items()
        for head in range(call.heads)
        if (layer, head) != (place.layer, place.head)
    }
    asked_for = st.session_state.get("beside_heads")
    if asked_for is None:
        asked_for = [*dict.fromkeys(selected.current().beside.split())]
        missing = [name for name in asked_for if name not in names and name != _own(place)]
        if missing:
            st.warning(told.no_such_heads(missing))
    st.session_state["beside_heads"] = [name for name in asked_for if name in names][:BESIDE]
    chosen = st.multiselect(
        "Beside it, layer.head",
        list(names),
        key="beside_heads",
        max_selections=BESIDE,
        placeholder="other heads of this model",
    )
    selected.change(beside=" ".join(chosen))
    return [names[name] for name in chosen]


def pinned() -> Place | None:
    """The head that stays on screen while others are chosen, of its own model and text."""
    now = selected.current()
    if not now.pin:
        return None
    part, layer, head = now.pin.split(".")
    asked = st.session_state.get("pinned")
    if asked is None:
        asked = Asked(now.pin_model or now.model, now.pin_text or now.text)
    return Place(asked, part, int(layer), int(head))


def _pin_buttons(place: Place) -> None:
    """Buttons that keep this head on screen, and let a kept one go."""
    now = selected.current()
    with st.container(horizontal=True, gap="xsmall", key="pins"):
        st.button("Pin this head", key="pin this", on_click=_pin, args=(place,))
        if now.pin:
            st.button("Let the pinned head go", key="unpin", on_click=_unpin)


def _pin(place: Place) -> None:
    asked, part, layer, head = place.asked, place.part, place.layer, place.head
    st.session_state["pinned"] = asked
    selected.change(pin=f"{part}.{layer}.{head}", pin_model=asked.model, pin_text=asked.text)


def _unpin() -> None:
    st.session_state.pop("pinned", None)
    selected.change(pin="", pin_model="", pin_text="")


# --- the overview


def colour_and_order(statistics: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The statistic that colours the overview, None for patterns; and that which orders it."""
    left, right = st.columns(2)
    slugs = {slug(name): name for name in statistics}
    titles = {"pattern": "pattern of weights", **slugs}
    colour = _choice("colour", "Colour by", titles, left)
    orders = {"layer": "layer and head", "value": "falling value"}
    if colour == "pattern":
        orders = {"layer": orders["layer"]}
    order = _choice("order", "Order by", orders, right)
    statistic = slugs.get(colour)
    if statistic:
        st.caption(look.plain(f"{statistic}: {statistics[statistic]}"))
    return statistic, statistic if order == "value" else None


def slug(name: str) -> str:
    """A statistic's name as it stands in a link."""
    return "_".join("".join(c if c.isalpha() else " " for c in name).split())[:30]
