"""Charts of visitors who come at once are the charts of each alone."""

import json
import re
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from attnviz import frames
from attnviz.charts import (
    chain,
    distance,
    family_tree,
    gradients,
    key_bars,
    layer_strips,
    match,
    matrix,
    overlay,
    playground,
    saturation,
    strips,
    variance,
)

MODULES = (family_tree, layer_strips, matrix, overlay, playground)
MODULES += (distance, key_bars, match, strips)
MODULES += (chain, gradients, saturation, variance)
TOKENS = pd.DataFrame({"position": range(3), "token": list("abc")})
WEIGHTS = pd.DataFrame(np.eye(3)).rename_axis(index="query", columns="key")
ROW = pd.DataFrame({"divisor": "1", "key": range(3), "weight": [0.5, 0.3, 0.2]})
CURVE = frames.variance_curve((1, 2, 4), pairs=50, seed=1)
BUILT = {
    "picture": lambda: matrix.weight_picture(WEIGHTS, TOKENS, TOKENS, 1),
    "row": lambda: playground.softmax_row(ROW),
    "curve": lambda: variance.curve(CURVE, frames.head_marks(2, 3.0, 4.0)),
}


def drawn(name: str) -> str:
    """What a chart draws, without the names that Altair counts up."""
    spec = json.dumps(BUILT[name]().to_dict(validate=False), sort_keys=True)
    return re.sub(r"(param|view)_\d+", "counted", spec)


def test_charts_that_are_built_at_once_do_not_mix():
    alone = {name: drawn(name) for name in BUILT}
    mixed: list[str] = []

    def build(name: str) -> None:
        mixed.extend(name for _ in range(30) if drawn(name) != alone[name])

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=build, args=(name,)) for name in [*BUILT, *BUILT]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert mixed == []


@pytest.mark.parametrize("module", MODULES)
def test_every_chart_waits_for_its_turn(module):
    own = [f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__]
    public = [f for f in own if callable(f) and not f.__name__.startswith("_")]
    built = [f for f in public if "alt." in str(f.__annotations__.get("return"))]
    assert built
    assert all(hasattr(function, "__wrapped__") for function in built)
