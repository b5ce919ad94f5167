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

from attnviz.ui.examples import EXAMPLES, OPENING

D_KS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
N_KEYS = (2, 4, 8, 12, 16, 32, 64, 128)
MAX_SEED = 9999
LONGEST_IN_URL = 2000  # characters; a longer text stays in the session


@dataclass(frozen=True)
class Selection:
    """Model, text, layer, head and query token, and the playground's d_k, n and seed.

    `query` is a position, None for the example's own; `d_k` is None while the playground
    follows the head on screen.
    """

    model: str = "bundled"
    text: str = EXAMPLES[0].text
    layer: int = OPENING["bundled"][0]
    head: int = OPENING["bundled"][1]
    query: int | None = None
    d_k: int | None = None
    n: int = 12
    seed: int = 7

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> tuple[Selection, tuple[str, ...]]:
        """Read a link; the second value has a sentence for each part that was not taken."""
        complaints: list[str] = []
        model = parameters.get("model", cls.model).strip()
        taken: dict[str, Any] = {"model": model, "text": parameters.get("text", cls.text)}
        taken["layer"], taken["head"] = OPENING.get(model, (0, 0))
        for name, (least, most) in LIMITS.items():
            if name not in parameters:
                continue
            number = _whole_number(parameters[name])
            if number is None or not least <= number <= most:
                complaints.append(
                    f"The link asks for {name} = {parameters[name][:40]!r}, which is not a whole "
                    f"number from {least} to {most}; the usual value stands instead."
                )
            else:
                taken[name] = number
        return cls(**taken), tuple(complaints)

    def parameters(self) -> dict[str, str]:
        """What goes into the URL: everything that differs from the defaults of this model."""
        layer, head = OPENING.get(self.model, (0, 0))
        usual = replace(Selection(), layer=layer, head=head)
        differing = {
            name: str(value)
            for name, value in asdict(self).items()
            if value is not None and value != getattr(usual, name)
        }
        if len(self.text) > LONGEST_IN_URL:
            differing.pop("text", None)
        return differing


LIMITS = {
    "layer": (0, 999),
    "head": (0, 999),
    "query": (0, 99_999),
    "d_k": (1, 1024),
    "n": (2, 512),
    "seed": (0, MAX_SEED),
}


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
