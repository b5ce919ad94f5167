"""The fields of the scale lab: what is drawn, what it is divided by, and when one sees it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.ui import controls, look
from attnviz.ui import selection as selected
from attnviz.ui.fields import held, keep, key_of, new_key
from attnviz.ui.lab import POWER_NAMES, Setting
from attnviz.ui.selection import MANY_KEYS, NAMES

if TYPE_CHECKING:
    from attnviz.ui.heads import WhichHead

STEP = 5  # hundredths, of the power of d_k
DIVISORS = {round(100 * power): name for power, name in POWER_NAMES.items()}
PLAIN = {"entries": "Gaussian", "query_std": 100, "key_std": 100, "query_mean": 0, "key_mean": 0}
PLAIN |= {"correlation": 0}
SATURATION = {
    "largest": "largest weight",
    "entropy": "entropy, relative to even weights",
    "effective": "effective number of keys",
}
GRADIENT = {"jacobian": "‖J‖", "logit": "‖dL/dz‖", "query": "‖dL/dq‖"}
ENTRIES_HELP = (
    "All have mean 0 and variance 1 before what stands below is applied. Normalised vectors have "
    "length √d_k, as after QK-norm; its gain is then σ."
)


def setting(d_k: int, power: float) -> Setting:
    """What is drawn, beside what stands in the bar."""
    n, seed = controls.keys_and_seed(MANY_KEYS)
    _vectors()
    now = selected.current()
    return Setting(
        d_k,
        n,
        seed,
        power,
        now.entries,  # type: ignore[arg-type] # a link was held against the names
        now.query_std / 100,
        now.key_std / 100,
        now.query_mean / 100,
        now.key_mean / 100,
        now.correlation / 100,
    )


def _vectors() -> None:
    """What queries and keys are drawn from, folded away."""
    fold = look.fold("What q and k are drawn from", "vectors")
    if not fold:
        return
    now = selected.current()
    with fold:
        keep(key_of("entries"), now.entries)
        entries = st.selectbox(
            "Entries", NAMES["entries"], key=key_of("entries"), help=ENTRIES_HELP
        )
        left, right = st.columns(2)
        with left:
            query_std = _hundredths("query_std", "σ_q: standard deviation of q", 0, 400)
            query_mean = _hundredths("query_mean", "μ_q: mean of q", -200, 200)
        with right:
            key_std = _hundredths("key_std", "σ_k: standard deviation of k", 0, 400)
            key_mean = _hundredths("key_mean", "μ_k: mean of k", -200, 200)
        correlation = _hundredths("correlation", "ρ: correlation of qᵢ with kᵢ", -100, 100)
        st.button("As in the paper: mean 0, variance 1, independent", on_click=_plain)
    selected.change(
        entries=entries,
        query_std=query_std,
        key_std=key_std,
        query_mean=query_mean,
        key_mean=key_mean,
        correlation=correlation,
    )


def _hundredths(name: str, label: str, least: int, most: int) -> int:
    """A slider, whose number is kept in hundredths."""
    keep(key_of(name), getattr(selected.current(), name) / 100)
    chosen = st.slider(label, least / 100, most / 100, step=0.05, key=key_of(name))
    return round(100 * chosen)


def _plain() -> None:
    for name in PLAIN:
        new_key(name)
    selected.change(**PLAIN)


# --- what it is divided by


def bar(head: WhichHead | None) -> tuple[int, float]:
    """d_k, and the power of it that divides q·k: what one moves while one looks at the charts.

    Wide windows keep it in view.
    """
    with st.container(key="lab_bar"):
        left, middle, right = st.columns([3, 2, 3])
        with left:
            d_k = controls.d_k_slider(head)
        return d_k, _divisor(middle, right) / 100


def _divisor(named: DeltaGenerator, any_other: DeltaGenerator) -> int:
    """Fields for the power of d_k in hundredths: four that have a name, or any."""
    chosen = held(key_of("power"), selected.current().power)
    st.session_state["divisor"] = DIVISORS.get(chosen)
    named.segmented_control(
        "Divide q·k by", list(DIVISORS.values()), key="divisor", on_change=_take_divisor
    )
    st.session_state[key_of("power")] = chosen
    any_other.select_slider(
        "… or by any power of d_k",
        sorted({*range(0, 201, STEP), chosen}),
        format_func=lambda hundredths: f"d_k^{hundredths / 100:g}",
        key=key_of("power"),
    )
    selected.change(power=chosen)
    return chosen


def _take_divisor() -> None:
    name = st.session_state["divisor"]
    power = next((power for power, known in DIVISORS.items() if known == name), None)
    if power is not None:
        new_key("power", power)
        selected.change(power=power)


# --- predict, then reveal


def is_in_view(of: Hashable) -> bool:
    """Whether the answer is shown: at once, or when it was asked for of this very question."""
    keep("ask", bool(selected.current().ask))
    with st.container(horizontal=True, vertical_alignment="center"):
        ask = st.toggle(
            "Predict first",
            key="ask",
            help="Whenever something is changed, the answer stays hidden until you reveal it.",
        )
        if not ask:
            st.session_state.pop("revealed", None)
            selected.change(ask=0, revealed=0)
            return True
        opening = of if selected.current().revealed else None
        shown = st.session_state.setdefault("revealed", opening) == of
        st.button("Reveal", on_click=_reveal, args=(of,), disabled=shown, type="primary")
    selected.change(ask=1, revealed=int(shown))
    return shown


def _reveal(of: Hashable) -> None:
    st.session_state["revealed"] = of


# --- what is drawn of it


def saturation() -> str:
    """Which number says how sharp the rows are."""
    return _one_of("saturation", "How sharp the rows are", SATURATION)


def gradient() -> str:
    """Which length says what comes back."""
    return _one_of("gradient", "What is measured", GRADIENT)


def _one_of(name: str, label: str, options: dict[str, str]) -> str:
    keep(name, getattr(selected.current(), name))
    chosen = controls.one_of(st.container(), label, list(options), name, options.__getitem__)
    selected.change(**{name: chosen})
    return options[chosen]
