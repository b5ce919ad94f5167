"""Which head should I look at: scores of all heads of a part, cached layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.ui.readings import Asked, Reading, loaded

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.finder import Scores
    from attnviz.patterns import Kind

    Layers = Mapping[int, Mapping[str, Scores]]

OF_ASKED: dict[str | type, Callable] = {Asked: lambda asked: asked.key}


@dataclass(frozen=True)
class Found:
    """The heads of one part by every kind that makes sense there.

    `table` is `head_frames.found_heads`. `chance` is what the best head would get by chance on
    the text, `chance_on_repeats` the mean of that over the draws of random tokens. `repeated` is
    how many tokens each draw had, 0 where there was none, and `draws` how many draws.
    """

    kinds: tuple[Kind, ...]
    table: pd.DataFrame
    chance: Mapping[str, float]
    chance_on_repeats: Mapping[str, float]
    repeated: int
    draws: int


def found(
    asked: Asked, reading: Reading, part: str, progress: Callable[[float, str], None]
) -> Found:
    """Score all heads on what was read and on repeated random tokens.

    `progress` is told the share that is done and what comes next. Each layer and each draw is
    kept, so that little is lost where a visitor leaves in between.
    """
    from attnviz.finder import SEEDS

    layers = list(reading.calls(part))
    steps = len(layers) + len(SEEDS)
    on_text, on_repeats = {}, []
    for done, layer in enumerate(layers):
        progress(done / steps, f"Layer {layer} on this text")
        on_text[layer] = _layer(asked, part, layer, reading)
    for done, seed in enumerate(SEEDS, len(layers)):
        progress(done / steps, f"Random tokens, draw {seed + 1} of {len(SEEDS)}")
        on_repeats.append(_repeats(_whatever_the_text(asked), part, seed, reading))
    return _together(asked, part, reading, on_text, on_repeats)


def _whatever_the_text(asked: Asked) -> Asked:
    return replace(asked, text="", target="", pair="")


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs=OF_ASKED)
def _layer(asked: Asked, part: str, layer: int, _reading: Reading) -> Mapping[str, Scores]:
    from attnviz.finder import of_layer

    return of_layer(_reading, part, layer)


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=OF_ASKED)
def _repeats(asked: Asked, part: str, seed: int, _reading: Reading) -> tuple[int, Layers] | None:
    """How many tokens were repeated, and the scores; None where the model does not read them."""
    from attnviz.capture import UnreadableModel
    from attnviz.finder import of_layer, read_repeated

    try:
        again = read_repeated(loaded(asked.model), _reading, seed)
    except UnreadableModel:
        return None
    if again is None or not _comparable(_reading, again, part):
        return None
    return _repeated(again), {layer: of_layer(again, part, layer) for layer in again.calls(part)}


def _comparable(reading: Reading, again: Reading, part: str) -> bool:
    """Whether the same layers were read, of tokens that the repeats are among.

    A part that sees a picture is given the same one again.
    """
    calls, once_more = reading.calls(part), again.calls(part)
    if set(calls) != set(once_more):
        return False
    first = next(iter(calls))
    return reading.queries(calls[first]) != again.queries(once_more[first])


def _repeated(reading: Reading) -> int:
    """How many different tokens were read twice."""
    written = reading.inputs.source or reading.inputs.target
    return written.special.count(False) // 2 if written else 0


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_ASKED)
def _together(
    asked: Asked,
    part: str,
    _reading: Reading,
    _on_text: Layers,
    _on_repeats: Iterable[tuple[int, Layers] | None],
) -> Found:
    from attnviz.head_frames import found_heads
    from attnviz.patterns import kinds

    call = next(iter(_reading.calls(part).values()))
    queries, keys = _reading.queries(call), _reading.keys(call)
    drawn = [draw for draw in _on_repeats if draw is not None]
    layers = [of_layers for _, of_layers in drawn]
    chances = [_chance(of_layers) for of_layers in layers]
    return Found(
        kinds=kinds(queries, keys, cross=call.kind == "cross"),
        table=found_heads(_on_text, layers),
        chance=_chance(_on_text),
        chance_on_repeats={
            kind: sum(chance[kind] for chance in chances) / len(chances) for kind in chances[0]
        }
        if chances
        else {},
        repeated=drawn[0][0] if drawn else 0,
        draws=len(drawn),
    )


def _chance(of_layers: Layers) -> dict[str, float]:
    from attnviz.finder import by_chance

    kinds = next(iter(of_layers.values()))
    return {kind: by_chance(scores[kind] for scores in of_layers.values()) for kind in kinds}
