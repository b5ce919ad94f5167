"""The controls that several pages share; each returns the selection as it now is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.models import catalogue
from attnviz.ui import heads, look, readings, sentences
from attnviz.ui import selection as selected
from attnviz.ui.drawings import DRAWINGS
from attnviz.ui.examples import EXAMPLES, OPENING, example_of, hint
from attnviz.ui.fields import held, keep, key_of, new_key
from attnviz.ui.heads import Head, WhichHead
from attnviz.ui.readings import MAX_TOKENS, Asked, Reading
from attnviz.ui.selection import D_KS, LONGEST_IN_URL, MAX_SEED, N_KEYS, NOWHERE, Selection
from attnviz.ui.views import Place

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.inputs import Needs

Option = TypeVar("Option")

UNFOLLOWED_D_K = 64  # where the playground stands while no head is on screen
QUERY_LABEL, KEY_LABEL = "Query: the token that looks", "Key: the token looked at"
LISTED = 1000  # tokens; of more, the position of one is typed
TEXT_HELP = "Type a sentence of your own; Ctrl + Enter reads it."
MODEL_HELP = (
    "Choose one, or type the name of a model on the Hugging Face hub, or the path of a folder. "
    "What you type replaces the name that stands there."
)
TARGET_HELP = "What the decoder reads. Empty: the model writes it itself."
PAIR_HELP = "This model reads two texts at once, with a mark between them. Empty: only the first."
PICTURE_HELP = "A PNG or JPEG of your own; it is not kept in the link."
# In front of a shown name, where it shows nothing: Streamlit takes the name on screen away from
# what is pasted over it, and would make "-medium" of "gpt2-medium" over "gpt2".
WORD_JOINER = "\u2060"
MAX_UPLOAD = 5  # MB, as attnviz.pictures allows


# --- what is read


def model_and_text() -> None:
    """Draw the fields that say which model reads which text; `chosen` says what is in them."""
    now = selected.current()
    titles = {entry.name: entry.title for entry in catalogue()}
    left, middle, right = st.columns([3, 3, 6])
    st.session_state["model"] = _model_held(now)
    keep(key_of("text"), now.text)
    left.selectbox(
        "Model",
        list(dict.fromkeys([*titles, now.model])),
        format_func=lambda name: f"{WORD_JOINER}{titles.get(name, name)}",
        key="model",
        accept_new_options=True,
        help=MODEL_HELP,
    )
    _examples(middle)
    right.text_area("Text", key=key_of("text"), height=88, help=TEXT_HELP)
    _tell_if_not_in_link("text", st.session_state[key_of("text")])


def _model_held(now: Selection) -> str:
    """What the model's field holds, without the sign in front of the name that it showed."""
    shown = st.session_state.get("model") or now.model
    return shown.strip(f"{WORD_JOINER} ") or now.model


def _tell_if_not_in_link(called: str, text: str) -> None:
    if len(text) > LONGEST_IN_URL:
        st.caption(
            f"A {called} of more than {LONGEST_IN_URL:,} characters is not kept in the link."
        )


def chosen() -> Selection:
    """The selection, with model and text as their fields have them now."""
    now = selected.current()
    model = _model_held(now)
    text = st.session_state.get(key_of("text"), now.text)
    return now if (model, text) == (now.model, now.text) else _open(model, text)


def asked(needs: Needs, pairs: bool = False) -> Asked:
    """The whole question, with fields for a target text and a picture where a model wants them.

    `pairs` offers a second text to a model that reads two.
    """
    if not needs.text:
        st.caption("This model reads no text: the field above is left aside.")
    if needs.target:
        keep("target", selected.current().target)
        target = st.text_input("Target text", key="target", help=TARGET_HELP)
        _tell_if_not_in_link("target text", target)
        selected.change(target=target)
    if needs.pair and (pairs or selected.current().pair):
        keep("pair", selected.current().pair)
        pair = st.text_input("Second text", key="pair", help=PAIR_HELP)
        _tell_if_not_in_link("second text", pair)
        selected.change(pair=pair)
    own = _picture() if needs.picture else None
    now = selected.current()
    return Asked(
        now.model,
        now.text if needs.text else "",
        now.target if needs.target else "",
        now.picture if needs.picture else "",
        own,
        now.pair if needs.pair else "",
    )


def _picture() -> bytes | None:
    """Fields for a drawing and for a visitor's own picture."""
    keep("picture", selected.current().picture)
    left, right = st.columns(2)
    picture = left.selectbox(
        "Picture", list(DRAWINGS), format_func=lambda name: DRAWINGS[name].title, key="picture"
    )
    file = right.file_uploader(
        "Your own picture",
        type=["png", "jpg", "jpeg"],
        help=PICTURE_HELP,
        key="own_picture",
        max_upload_size=MAX_UPLOAD,
    )
    selected.change(picture=picture)
    return file.getvalue() if file else None


def _examples(place: DeltaGenerator) -> None:
    """A menu that fills in the text; it shows the example that the text is, if it is one.

    Its key goes with what it shows: what a browser still sends of the example that a typed text
    has replaced is no choice.
    """
    shown = example_of(st.session_state[key_of("text")])
    key = f"example_{shown.title if shown else ''}"
    st.session_state["example_key"] = key
    st.session_state[key] = shown.title if shown else None
    place.selectbox(
        "Example",
        [example.title for example in EXAMPLES],
        index=None,
        key=key,
        placeholder="your own text",
        on_change=_take_example,
        args=(key,),
    )


def _take_example(key: str) -> None:
    example = next((e for e in EXAMPLES if e.title == st.session_state[key]), None)
    if example is not None and key == st.session_state["example_key"]:
        new_key("text", example.text)
        _open(selected.current().model, example.text)


def _open(model: str, text: str) -> Selection:
    """Change model or text, and open the head in which something can be seen."""
    now, example = selected.current(), example_of(text)
    part, layer, head = now.part, now.layer, now.head
    if model != now.model:
        part, (layer, head) = None, OPENING.get(model, NOWHERE)
    if example:
        layer, head = example.heads.get(model, (layer, head))
    wanted = {"part": part, "layer": layer, "head": head}
    for name, value in wanted.items():
        if model != now.model or value != getattr(now, name):
            new_key(name)
    for name in ("query", "key"):  # places in another text
        new_key(name)
    return selected.change(model=model, text=text, query=None, key=None, **wanted)


def read(limit: int | None = MAX_TOKENS, pairs: bool = False) -> tuple[Asked, Reading] | None:
    """Let the chosen model read what it takes; where it cannot, say why.

    `limit` is how many tokens the page can show, None where that is not its matter.
    """
    now = chosen()
    try:
        with st.spinner("The model is loaded"):
            needs = readings.needs(now.model)
        question = asked(needs, pairs)
        with st.spinner("The model reads"):
            reading = readings.served(question, limit)
    except readings.NotServed as problem:
        st.error(look.plain(str(problem)))
        return None
    with st.container():  # which keeps its place on the page, whatever is in it
        if reading.warning:
            st.warning(look.plain(reading.warning))
        for remark in sentences.remarks(reading):
            st.caption(look.plain(remark))
        if see := hint(question.text, question.model):
            st.caption(f"What to look for: {see}")
    return question, reading


# --- which head of it


def read_part(limit: int | None = MAX_TOKENS) -> tuple[Asked, Reading, str] | None:
    """What is read, and the part of it on screen; None where it cannot be read."""
    found = read(limit)
    return None if found is None else (*found, part(found[1]))


def place(asked: Asked, reading: Reading, part: str, places: Sequence[DeltaGenerator]) -> Place:
    """The head on screen, with its fields."""
    return Place(asked, part, *layer_and_head(reading, part, places))


def part(reading: Reading) -> str:
    """The part of the model on screen, with a control where there is more than one."""
    asked_for = st.session_state.get(key_of("part"), selected.current().part)
    part = asked_for if asked_for in reading.parts else reading.parts[0]
    if asked_for not in (None, part):
        st.warning(
            f"Nothing was read in a part “{look.plain(asked_for)}” of this model; here is “{part}”."
        )
    st.session_state[key_of("part")] = part
    if len(reading.parts) > 1:
        st.radio(
            "Part",
            reading.parts,
            format_func=lambda name: sentences.PART_NAMES[name],
            horizontal=True,
            key=key_of("part"),
            on_change=_leave_part,
        )
    selected.change(part=None if part == reading.parts[0] else part)
    return part


def _leave_part() -> None:
    part = st.session_state[key_of("part")]
    for name in ("layer", "head", "query", "key"):
        new_key(name)
    selected.change(part=part, layer=None, head=None, query=None, key=None)


def layer_and_head(
    reading: Reading, part: str, places: Sequence[DeltaGenerator]
) -> tuple[int, int]:
    """Which head is on screen; the layers offered are those that were read, by true number."""
    layer, head = _within(reading, part)
    calls = reading.calls(part)
    st.session_state.update({key_of("layer"): layer, key_of("head"): head})
    places[0].selectbox("Layer", list(calls), key=key_of("layer"))
    places[1].number_input("Head", 0, calls[layer].heads - 1, key=key_of("head"))
    usual = _opening(reading, part)
    selected.change(
        layer=None if layer == usual[0] else layer,
        head=None if head == usual[1] else head,
    )
    return layer, head


def _opening(reading: Reading, part: str) -> tuple[int, int]:
    """The head to open where none was asked for."""
    calls = reading.calls(part)
    layer, head = OPENING.get(selected.current().model, (next(iter(calls)), 0))
    return (layer, head) if layer in calls and head < calls[layer].heads else (next(iter(calls)), 0)


def _within(reading: Reading, part: str) -> tuple[int, int]:
    """Layer and head as the widgets or the link have them, if the model does too."""
    calls, now = reading.calls(part), selected.current()
    usual = _opening(reading, part)
    layer = held(key_of("layer"), now.layer)
    head = held(key_of("head"), now.head)
    layer = usual[0] if layer is None else layer
    head = usual[1] if head is None else head
    if layer in calls and head < calls[layer].heads:
        return layer, head
    why = sentences.why_not_there(reading, part, layer, head)
    st.warning(look.plain(f"{why} Here is layer {usual[0]}, head {usual[1]}."))
    return usual


def without_first(head: Head) -> Head:
    """The head as the switch of `hide_first` wants it, which stands below its picture."""
    hidden = st.session_state.get("hide_first", bool(selected.current().hide_first))
    return heads.without_first(head) if hidden else head


def hide_first(head: Head) -> None:
    """Explain a first token that takes much of the attention, and offer to take it out."""
    hidden = bool(selected.current().hide_first)
    if not heads.can_hide_first(head) or not (head.sink or hidden):
        return
    st.session_state.setdefault("hide_first", hidden)
    if head.sink:
        st.markdown(look.plain(sentences.sink(head)))
    hidden = st.toggle("Hide the first token and renormalise", key="hide_first")
    if hidden:
        st.caption(look.plain(sentences.HIDDEN_FIRST))
    selected.change(hide_first=int(hidden))


def query(head: Head, place: DeltaGenerator) -> int:
    """Which query's row is looked at, by its position."""
    of_a_picture = head.picture is not None and not head.cross

    def opening() -> int:
        return opening_query(head.queries, of_a_picture)

    return token("query", QUERY_LABEL, head.queries, opening, place)


def token(
    name: str, label: str, tokens: pd.DataFrame, opening: Callable[[], int], place: DeltaGenerator
) -> int:
    """A token of an axis, by its position: what its field or the link has, if it is there.

    The field is a list, or a number where the list would be long.
    """
    asked_for = held(key_of(name), getattr(selected.current(), name))
    at = None if asked_for is None else holding(tokens, asked_for)
    if at is None:
        at = opening()
        if key_of(name) not in st.session_state and asked_for is not None:
            st.warning(look.plain(sentences.no_such_token(name, tokens, asked_for, at)))
    st.session_state[key_of(name)] = at
    words = dict(zip(tokens.index, tokens["token"], strict=True))
    if len(tokens) > LISTED:
        place.number_input(label, int(tokens.index[0]), int(tokens.index[-1]), key=key_of(name))
    else:
        place.selectbox(
            label,
            list(words),
            format_func=lambda at: f"{at} {words[at]}",
            key=key_of(name),
        )
    selected.change(**{name: at})
    return at


def holding(tokens: pd.DataFrame, position: int) -> int | None:
    """The row of an axis in which a token of the text lies, by its first token's position."""
    last = tokens["last"] if "last" in tokens else tokens["position"]
    inside = (tokens["position"] <= position) & (position <= last)
    return int(tokens.index[inside][0]) if inside.any() else None


def opening_query(tokens: pd.DataFrame, of_a_picture: bool = False) -> int:
    """The last token that says the example's word, else the last that is not special.

    Of a picture it is its first token: [CLS], where there is one, gathers what is seen.
    """
    if of_a_picture:
        return int(tokens.index[0])
    example = example_of(selected.current().text)
    word = example.word.lower() if example else None
    spoken = [p for p, label in tokens["token"].items() if label.strip("␣").lower() == word]
    ordinary = list(tokens.index[~tokens["special"]])
    return int((spoken or ordinary or [tokens.index[-1]])[-1])


def one_of(
    place: DeltaGenerator,
    label: str,
    options: Sequence[Option],
    key: str,
    named: Callable[[Option], str] = str,
) -> Option:
    """One of a few in view, always."""
    chosen = place.segmented_control(label, options, format_func=named, key=key, required=True)
    assert chosen is not None
    return chosen


# --- one cell of it


def key(head: Head, query: int, place: DeltaGenerator) -> int:
    """Which key a query is matched with, by its position: at first the one it looks at most."""
    return token("key", KEY_LABEL, head.keys, lambda: int(head.matrix.loc[query].idxmax()), place)


def take_cell(query: int, key: int) -> None:
    """Show another cell, whatever the lists hold."""
    new_key("query", query)
    new_key("key", key)
    selected.change(query=query, key=key)


def step(names: Sequence[str], field: str = "step") -> int:
    """Which step of the lecture is on screen, counted from 1, or 0 for all at once.

    `field` is where the selection keeps it. Steps are buttons, as the arrow keys would move
    within a group of choices that has the focus.
    """
    now, last = getattr(selected.current(), field), len(names)
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key="steps"):
        for at in (*range(1, last + 1), 0):
            label = f"{at} {names[at - 1]}" if at else "All at once"
            _step_button(label, field, at, chosen=at == now)
        _step_button("Back", field, (now or last + 1) - 1, disabled=now == 1, shortcut="Left")
        _step_button("Next", field, now + 1, disabled=now == last, shortcut="Right")
    return now


def _step_button(
    label: str,
    field: str,
    step: int,
    *,
    chosen: bool = False,
    disabled: bool = False,
    shortcut: str | None = None,
) -> None:
    st.button(
        label,
        key=f"{field} {label}",
        on_click=_go,
        args=(field, step),
        type="primary" if chosen else "secondary",
        disabled=disabled,
        shortcut=shortcut,
    )


def _go(field: str, step: int) -> None:
    selected.change(**{field: step})


def by_place() -> bool:
    """Whether dimensions are listed by their number, else by the size of their product."""
    now = selected.current()
    keep("by_place", bool(now.by_place))
    chosen = st.toggle("In the order of the dimensions", key="by_place")
    selected.change(by_place=int(chosen))
    return chosen


# --- the playground


def d_k_slider(head: WhichHead | None) -> int:
    """d_k of the playground; it follows the head on screen until it is moved."""
    now, followed = selected.current(), st.session_state.get("followed")
    follows = head.d_k if head and head.d_k else followed or UNFOLLOWED_D_K
    chosen = held("d_k", now.d_k or follows)
    if chosen == followed:
        chosen = follows
    st.session_state.update(d_k=chosen, followed=follows)
    options = sorted({*D_KS, follows, chosen})
    d_k = st.select_slider("d_k: the width of one query or key", options, key="d_k")
    selected.change(d_k=None if d_k == follows else d_k)
    return d_k


def keys_and_seed(n_keys: Sequence[int] = N_KEYS) -> tuple[int, int]:
    """Number of keys in the softmax row, one of these, and the seed of the draw."""
    now = selected.current()
    st.session_state.setdefault("n", now.n)
    st.session_state.setdefault("seed", now.seed)
    left, middle, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    n = left.select_slider("n: the keys in a row", sorted({*n_keys, now.n}), key="n")
    seed = middle.number_input("Seed", 0, MAX_SEED, key="seed")
    right.button("New draw", on_click=_next_seed, width="stretch")
    selected.change(n=n, seed=seed)
    return n, seed


def _next_seed() -> None:
    st.session_state["seed"] = (held("seed", 0) + 1) % (MAX_SEED + 1)
