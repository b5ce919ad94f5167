"""What is on screen, as one value that lives in the URL.

A link may hold anything. `Selection.parse` keeps what makes sense, and says in a sentence what
it left out; the widgets of the session start from it, and write it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import streamlit as st

from attnviz.ui.drawings import DRAWINGS
from attnviz.ui.examples import EXAMPLES, OPENING

D_KS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
N_KEYS = (2, 4, 8, 12, 16, 32, 64, 128)
MAX_SEED = 9999
STEPS = 7  # of a cell that is worked out
LONGEST_IN_URL = 2000  # characters; a longer text stays in the session
NOWHERE: tuple[None, None] = (None, None)


@dataclass(frozen=True)
class Selection:
    """Model and what it is given, the cell on screen, and the playground's numbers.

    `target` is the text for a decoder to read, "" while the model writes it itself; `picture`
    is the name of a drawing. `part`, `layer`, `head`, `query` and `key` are None for the
    model's own: the first that can be read, or what an example opens. `step` is how far a cell is
    worked out, 0 for all at once, and `by_place` lists dimensions by number, not by size.
    `hide_first` takes the first key out
    of the picture. `d_k` is None while the playground follows the head on screen.
    """

    model: str = "bundled"
    text: str = EXAMPLES[0].text
    target: str = ""
    picture: str = "disc"
    part: str | None = None
    layer: int | None = OPENING["bundled"][0]
    head: int | None = OPENING["bundled"][1]
    query: int | None = None
    key: int | None = None
    step: int = 1
    by_place: int = 0
    hide_first: int = 0
    d_k: int | None = None
    n: int = 12
    seed: int = 7

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> tuple[Selection, tuple[str, ...]]:
        """Read a link; the second value has a sentence for each part that was not taken."""
        complaints: list[str] = []
        model = parameters.get("model", cls.model).strip()
        if not model:
            complaints.append(_not_taken("model", model, "the name or path of a model"))
            model = cls.model
        taken: dict[str, Any] = {"model": model}
        taken["layer"], taken["head"] = OPENING.get(model, NOWHERE)
        taken |= {name: parameters[name] for name in ("text", "target") if name in parameters}
        for name, known in NAMES.items():
            if name in parameters and parameters[name] in known:
                taken[name] = parameters[name]
            elif name in parameters:
                complaints.append(_not_taken(name, parameters[name], f"one of {', '.join(known)}"))
        for name, (least, most) in LIMITS.items():
            if name not in parameters:
                continue
            number = _whole_number(parameters[name])
            if number is None or not least <= number <= most:
                numbers = f"a whole number from {least} to {most}"
                wanted = "0 or 1" if (least, most) == (0, 1) else numbers
                complaints.append(_not_taken(name, parameters[name], wanted))
            else:
                taken[name] = number
        return cls(**taken), tuple(complaints)

    def parameters(self) -> dict[str, str]:
        """What goes into the URL: everything that differs from the defaults of this model."""
        layer, head = OPENING.get(self.model, NOWHERE)
        usual = replace(Selection(), layer=layer, head=head)
        differing = {
            name: str(value)
            for name, value in asdict(self).items()
            if value is not None and value != getattr(usual, name)
        }
        for name in ("text", "target"):
            if len(differing.get(name, "")) > LONGEST_IN_URL:
                del differing[name]
        return differing


NAMES = {
    "picture": tuple(DRAWINGS),
    "part": ("decoder", "encoder", "cross", "text", "vision", "audio"),
}
LIMITS = {
    "layer": (0, 999),
    "head": (0, 999),
    "query": (0, 99_999),
    "key": (0, 99_999),
    "step": (0, STEPS),
    "by_place": (0, 1),
    "hide_first": (0, 1),
    "d_k": (1, 1024),
    "n": (2, 512),
    "seed": (0, MAX_SEED),
}


def _not_taken(name: str, value: str, wanted: str) -> str:
    return (
        f"The link asks for {name} = {value[:40]!r}, which is not {wanted}; the usual value "
        "stands instead."
    )


def current() -> Selection:
    """The selection of this session; the first time it is read from the URL."""
    if "selection" not in st.session_state:
        selection, complaints = Selection.parse(st.query_params.to_dict())
        st.session_state["selection"] = selection
        st.session_state["complaints"] = complaints
    return st.session_state["selection"]


def complaints() -> tuple[str, ...]:
    """What of the link could not be taken, told once."""
    current()
    return st.session_state.pop("complaints", ())


def change(**changes: Any) -> Selection:
    """Replace parts of the selection, here and in the URL."""
    selection = replace(current(), **changes)
    st.session_state["selection"] = selection
    parameters = selection.parameters()
    if st.query_params.to_dict() != parameters:
        st.query_params.from_dict(parameters)
    return selection


def _whole_number(text: str) -> int | None:
    """The number that a text spells in at most nine digits, None if it spells none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
