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
MANY_KEYS = (2, 4, 8, 12, 16, 32, 64, 128, 256, 512)
STEPS = 7  # of a cell that is worked out
SECTIONS = 7  # of the scale lab
THREE = 8  # sections of the projection lab
LONGEST_IN_URL = 2000  # characters; a longer text stays in the session
NOWHERE: tuple[None, None] = (None, None)


@dataclass(frozen=True)
class Selection:
    """Model and what it is given, the cell on screen, how it is shown, the playground's numbers.

    `target` is the text for a decoder to read, "" while the model writes it itself; `pair` is
    a second text beside the first, "" for none; `picture` is the name of a drawing. `part`,
    `layer`, `head`, `query` and `key` are None for the model's own: the first that can be
    read, or what an example opens. `step` is how far a cell is worked out, 0 for all at once,
    and `by_place` lists dimensions by number, not by size. `hide_first` takes the first key
    out of the picture on the first page, `without` on that of heads. There `view` is the form
    in which a head is drawn, `weighed` the numbers, `over` the heads they are taken of,
    `words` folds sub-words, `pairing` keeps two of two texts, `zoom` is how many tokens are in
    view, 0 for all; `colour` and `order` are those of the overview; `beside` names more heads
    as in "0.2 1.3", and `pin` one of `pin_model` on `pin_text` as in "decoder.0.2". `d_k` is
    None while the playground follows the head on screen.

    `section` is that of the scale lab, 0 for all; there `power` of d_k divides, `entries` says
    what queries and keys are drawn from, with standard deviations, means and a correlation, all
    of them in hundredths; `ask` hides the answer until it is `revealed`; `saturation` and
    `gradient` say what is drawn. The fields of `surgery` say where a whole model is changed and
    how, `surgery_step` in twentieths of a power of d_k; those of `training` which curves of the
    toy are shown. `three` is the section of the projection lab, 0 for all; there `role` is about
    the lookup by hand, `tying` about heads that share projections; `symmetry_start` is the first
    token in view, `products_distance` that of two tokens, and `birth_steps` how far the training
    log is drawn. The fields of `experiment` say what is trained, those of `widths` what is
    compared: variants by their places in the list, "" and 0 for what is usual at a task.
    """

    model: str = "bundled"
    text: str = EXAMPLES[0].text
    target: str = ""
    pair: str = ""
    picture: str = "disc"
    part: str | None = None
    layer: int | None = OPENING["bundled"][0]
    head: int | None = OPENING["bundled"][1]
    query: int | None = None
    key: int | None = None
    step: int = 1
    by_place: int = 0
    hide_first: int = 0
    view: str = "matrix"
    weighed: str = "weights"
    over: str = "head"
    without: str = "nothing"
    words: int = 0
    pairing: str = "all"
    zoom: int = 0
    colour: str = "pattern"
    order: str = "layer"
    beside: str = ""
    pin: str = ""
    pin_model: str = ""
    pin_text: str = ""
    d_k: int | None = None
    n: int = 12
    seed: int = 7
    section: int = 1
    power: int = 50
    entries: str = "Gaussian"
    query_std: int = 100
    key_std: int = 100
    query_mean: int = 0
    key_mean: int = 0
    correlation: int = 0
    ask: int = 0
    revealed: int = 0
    saturation: str = "largest"
    gradient: str = "query"
    surgery_of: str = "all"
    surgery_by: str = "1"
    surgery_step: int = 0
    training_d_k: str = "256"
    training_optimiser: str = "Adam"
    training_rate: str = "0.001"
    training_second: str = "loss"
    three: int = 1
    role_variant: str = "Q, K, V"
    role_asked: str = "B"
    role_sharpness: str = "1.0"
    tying_way: str = "K := V"
    tying_of: str = "all"
    tying_seed: int = 0
    symmetry_start: int = 0
    products_distance: int = 1
    birth_steps: str = "2000"
    experiment_task: str = "same"
    experiment_variants: str = ""
    experiment_width: int = 0
    experiment_rate: str = ""
    experiment_seed: int = 0
    experiment_second: str = "loss"
    widths_task: str = "same"
    widths_variants: str = ""
    widths_cost: str = "d_k"

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
        taken |= {name: parameters[name] for name in FREE if name in parameters}
        for name, (pattern, wanted) in SPELT.items():
            if name in parameters and re.fullmatch(pattern, parameters[name]):
                taken[name] = parameters[name]
            elif name in parameters:
                complaints.append(_not_taken(name, parameters[name], wanted))
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
        for name in FREE:
            if len(differing.get(name, "")) > LONGEST_IN_URL:
                del differing[name]
        return differing


FREE = ("text", "target", "pair", "pin_model", "pin_text")
TASKS = ("same", "partner", "copy a vector", "readout by the query")
PARTS = ("decoder", "encoder", "cross", "text", "vision", "audio")
NAMES = {
    "picture": tuple(DRAWINGS),
    "part": PARTS,
    "view": ("matrix", "lines", "text", "ranking"),
    "weighed": ("weights", "norms", "scores", "logits"),
    "over": ("head", "mean_heads", "max_heads", "mean_layers", "max_layers", "rollout"),
    "without": ("nothing", "first", "special"),
    "pairing": ("all", "AA", "AB", "BA", "BB"),
    "order": ("layer", "value"),
    "entries": ("Gaussian", "Rademacher", "uniform", "Laplace", "normalised"),
    "saturation": ("largest", "entropy", "effective"),
    "gradient": ("jacobian", "logit", "query"),
    "surgery_of": ("all", "layer", "head"),
    "surgery_by": ("1", "√d_k", "d_k", "d_k²", "factor"),
    "training_d_k": ("64", "256"),
    "training_optimiser": ("Adam", "SGD"),
    "training_rate": ("0.001", "0.003", "0.01", "0.3", "1.0", "3.0"),
    "role_variant": (
        "Q, K, V",
        "K = V: content",
        "K = V: key",
        "K = V: sum",
        "K = V: side by side",
        "K and V exchanged",
    ),
    "role_asked": tuple("ABCDEF"),
    "role_sharpness": ("0.1", "0.2", "0.5", "1.0", "2.0", "5.0"),
    "tying_way": ("K := V", "V := K", "Q := K", "Q and K swapped", "values shuffled"),
    "tying_of": ("all", "layer", "head"),
    "birth_steps": ("2000", "8000"),
    "experiment_task": TASKS,
    "experiment_rate": ("", "0.001", "0.003", "0.01", "0.03"),
    "experiment_second": ("loss", "target_weight", "entropy"),
    "widths_task": TASKS,
    "widths_cost": ("d_k", "weights", "kept"),
    "training_second": ("loss", "entropy", "jacobian_median", "query_gradient"),
}
VARIANTS = (r"[0-7]{0,8}", "places of variants as in 02")
SPELT = {
    "experiment_variants": VARIANTS,
    "widths_variants": VARIANTS,
    "colour": (r"[a-z_]{1,30}", "the name of a statistic"),
    "beside": (r"([0-9]{1,3}\.[0-9]{1,3}( (?=[0-9])|$)){0,8}", "heads as in 0.2 1.3"),
    "pin": (rf"(({'|'.join(PARTS)})\.[0-9]{{1,3}}\.[0-9]{{1,3}})?", "a head as in decoder.0.2"),
}
LIMITS = {
    "layer": (0, 999),
    "head": (0, 999),
    "query": (0, 99_999),
    "key": (0, 99_999),
    "step": (0, STEPS),
    "by_place": (0, 1),
    "hide_first": (0, 1),
    "words": (0, 1),
    "zoom": (0, 99_999),
    "d_k": (1, 1024),
    "n": (2, 512),
    "seed": (0, MAX_SEED),
    "section": (0, SECTIONS),
    "power": (0, 200),
    "query_std": (0, 400),
    "key_std": (0, 400),
    "query_mean": (-200, 200),
    "key_mean": (-200, 200),
    "correlation": (-100, 100),
    "ask": (0, 1),
    "revealed": (0, 1),
    "surgery_step": (-11, 10),
    "three": (0, THREE),
    "tying_seed": (0, MAX_SEED),
    "symmetry_start": (0, 99_999),
    "products_distance": (0, 63),
    "experiment_width": (0, 32),
    "experiment_seed": (0, MAX_SEED),
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
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
