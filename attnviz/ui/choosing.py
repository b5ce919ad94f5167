"""What components share in which a token is chosen: the choice that goes out, and what comes back.

The choice is Python's: lists and links change it too. The browser shows its own newest choice at
once, numbers it and tells it; what Python sends says which number it has heard last, so that an
answer to an older choice does not move anything back. `choosing.js` is the other side.

Drawing and choice are two components: Streamlit sends what has not changed only once, and so a
choice does not send the drawing again. `drawing.js` and `drawing.css` are what drawings share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd

# Leaves the choice where the drawing's script finds it, and says that it is there.
CHOICE = """
export default function ({ data }) {
  globalThis.attnvizChoices ??= new Map();
  globalThis.attnvizChoices.set(data.picker, data);
  document.dispatchEvent(new CustomEvent("attnviz-choice", { detail: data.picker }));
}
"""
mount_choice = st.components.v2.component("attnviz_choice", js=CHOICE)


def drawing(name: str, html: str) -> Callable[..., Any]:
    """A component for `mount`, with what it shares with others before its script and style."""
    script = _joined("levels.js", "choosing.js", "drawing.js", f"{name}.js")
    style = _joined("drawing.css", f"{name}.css")
    return st.components.v2.component(f"attnviz_{name}", html=html, css=style, js=script)


def mount(
    drawing: Callable[..., Any],
    key: str,
    *,
    of: str,
    data: Mapping[str, Any],
    choice: Mapping[str, Any],
    told: Callable[[object], tuple[Any, ...] | None],
    on_choose: Callable[..., None],
) -> None:
    """Draw `data` and send the choice beside it; `of` names what can be chosen.

    When a visitor chooses something else, `on_choose` is called, before the script runs again,
    with what `told` makes of the state that the browser sent; not if that is None.
    """
    names = {"picker": key, "of": of}
    heard = {"answered": answered(st.session_state.get(key))}

    def tell() -> None:
        chosen = told(st.session_state.get(key))
        if chosen is not None:
            on_choose(*chosen)

    with st.container(gap=None):
        mount_choice(key=f"{key}_choice", data={**choice, **names, **heard})
        drawing(key=key, data={**data, **names}, on_choice_change=tell)


def message(state: object) -> Mapping[str, Any]:
    """What a browser has sent, which may be anything."""
    choice = state.get("choice") if isinstance(state, Mapping) else None
    return choice if isinstance(choice, Mapping) else {}


def answered(state: object) -> int:
    """The number of the choice that was heard last; 0 before the first."""
    number = message(state).get("number")
    return number if type(number) is int and 0 < number < 2**53 else 0


def position(said: object, tokens: pd.DataFrame) -> int | None:
    """What was said, if it is a token's position; True and 1.0 are none, though they equal 1."""
    return said if type(said) is int and said in set(tokens["position"]) else None


def place(position: int | None, tokens: pd.DataFrame) -> int | None:
    """The row of a position among the tokens; None where there is none."""
    positions = tokens["position"].tolist()
    return positions.index(position) if position in positions else None


def digest(*axes: pd.DataFrame) -> str:
    """A name for the tokens: a choice among others says nothing of these."""
    columns = [tokens[name].tolist() for tokens in axes for name in ("position", "token")]
    return f"{crc32(repr(columns).encode()):08x}"


def _joined(*names: str) -> str:
    """Files that lie beside this one, one after the other."""
    here = Path(__file__)
    return "\n".join(here.with_name(name).read_text(encoding="utf-8") for name in names)
