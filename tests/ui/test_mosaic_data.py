"""What the mosaic sends to a browser, and what it believes of what comes back."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnviz.charts.mosaic import HIDDEN, PartOfHeads
from attnviz.ui import choosing, mosaic

OWN, BEFORE, FIRST = mosaic.SHARES[2], mosaic.SHARES[0], mosaic.SHARES[1]


def part(name: str = "decoder", shape: tuple[int, int] = (7, 5)) -> PartOfHeads:
    """Layers 0 and 2 of three heads with two key and value heads; layer 1 was not read."""
    dice = np.random.default_rng(3)
    weights = {layer: dice.random((4, *shape), dtype=np.float32) for layer in (0, 2)}
    weights[0][0, 0, 1:] = np.nan
    rows = [(layer, head, head // 2) for layer in (0, 2) for head in range(4)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kv_head"])
    table[BEFORE] = [0.1, 0.2, 0.9, 0.05, 0.3, 0.4, np.nan, 0.123456]
    table[OWN] = [0.7, 0.1, 0.1, 0.01, 0.1, 0.1, np.nan, 0.1]
    return PartOfHeads(name, f"{name}: tokens", weights, table, (1,))


PARTS = (part(), part("cross", (3, 11)))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last mosaic gave to its two components."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(choosing, "mount_choice", lambda **kw: given.update(choice=kw))
    monkeypatch.setattr(mosaic, "_drawing", lambda **kw: given.update(picture=kw))
    return given


def draw(**changes: Any) -> None:
    usual: dict[str, Any] = {
        "parts": PARTS,
        "chosen": ("decoder", 2, 3),
        "label": "All heads",
        "key": "mosaic",
        "on_choose": lambda part, layer, head: None,
    }
    mosaic.mosaic(**(usual | changes))


def cells(data: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["cells"])), np.uint8)


def test_cells_are_square_roots_part_after_part_and_layer_after_layer(sent: dict[str, Any]):
    draw()
    data = sent["picture"]["data"]
    weights = np.concatenate([one.thumbnails[layer].ravel() for one in PARTS for layer in (0, 2)])
    expected = np.where(np.isnan(weights), HIDDEN, np.rint(127 * np.sqrt(weights)))
    np.testing.assert_array_equal(cells(data), expected)
    layers = [one["layers"] for one in data["parts"]]
    assert layers[0] == [[0, 4, 2, 7, 5], [1, 0, 0, 0, 0], [2, 4, 2, 7, 5]]
    assert layers[1] == [[0, 4, 2, 3, 11], [1, 0, 0, 0, 0], [2, 4, 2, 3, 11]]
    assert [one["aspect"] for one in data["parts"]] == [7 / 5, 0.3]
    assert data["parts"][0]["gaps"] == [0, 2, 8, 2]
    assert data["scale"]["words"] == ["0", "0.1", "0.25", "0.5", "1"]
    assert data["scale"]["places"] == pytest.approx([0, 0.1**0.5, 0.5, 0.5**0.5, 1])
    assert json.loads(json.dumps(data)) == data


def test_a_statistic_is_one_cell_a_head_in_the_same_room(sent: dict[str, Any]):
    draw(colour=BEFORE)
    data = sent["picture"]["data"]
    assert data["parts"][0]["layers"][0] == [0, 4, 2, 1, 1]
    assert data["parts"][0]["aspect"] == 7 / 5
    values = [0.1, 0.2, 0.9, 0.05, 0.3, 0.4, np.nan, 0.123456]
    shades = [HIDDEN if np.isnan(v) else round((v - 0.05) / 0.85 * 127) for v in values]
    assert cells(data).tolist() == shades * 2
    assert data["scale"]["words"] == ["0.05", "0.9"]


def test_what_is_read_is_the_largest_share_or_the_statistic(sent: dict[str, Any]):
    draw()
    readings = sent["picture"]["data"]["readings"]
    told = [
        (readings["names"][which], value)
        for which, value in zip(readings["which"], readings["values"], strict=True)
    ][:8]
    assert told[0] == (OWN, 0.7)
    assert told[2] == (BEFORE, 0.9)
    assert told[6][1] is None
    assert told[7] == (BEFORE, 0.123)
    draw(order=OWN)
    readings = sent["picture"]["data"]["readings"]
    assert readings["names"] == [OWN]
    assert readings["values"][:3] == [0.7, 0.1, 0.1]


def test_heads_without_a_value_come_last(sent: dict[str, Any]):
    draw(order=BEFORE)
    assert sent["picture"]["data"]["parts"][0]["order"] == [2, 5, 4, 1, 7, 0, 3, 6]
    draw()
    assert sent["picture"]["data"]["parts"][0]["order"] is None


def test_another_choice_leaves_the_picture_as_it_is(sent: dict[str, Any]):
    draw()
    before = dict(sent)
    draw(chosen=("cross", 0, 1))
    assert sent["picture"]["data"] == before["picture"]["data"]
    assert before["choice"]["data"]["chosen"] == ["decoder", 2, 3]
    assert sent["choice"]["data"]["chosen"] == ["cross", 0, 1]
    assert sent["choice"]["data"]["of"] == sent["picture"]["data"]["of"]
    assert len(json.dumps(sent["choice"]["data"])) < 120
    draw(chosen=None)
    assert sent["choice"]["data"]["chosen"] is None


def test_colour_and_order_are_about_the_same_heads(sent: dict[str, Any]):
    names = []
    for changes in ({}, {"colour": OWN}, {"order": OWN}, {"parts": PARTS[:1]}):
        draw(**changes)
        names.append(sent["choice"]["data"]["of"])
    assert names[0] == names[1] == names[2] != names[3]


def test_only_heads_of_the_picture_are_believed(sent: dict[str, Any]):
    draw()
    of = sent["choice"]["data"]["of"]

    def told(**said: Any) -> tuple[str, int, int] | None:
        return mosaic.told({"choice": {"of": of, **said}}, PARTS)

    assert told(part="cross", layer=2, head=3) == ("cross", 2, 3)
    for wrong in (
        *({"layer": 1}, {"layer": 3}, {"head": 4}, {"head": -1}, {"head": True}, {"head": 1.0}),
        *({"part": "vision"}, {"part": None}, {"layer": "2"}, {"layer": None}, {"of": "other"}),
        *({"head": [1]}, {"part": {}}, {"layer": 10**30}),
    ):
        assert told(**({"part": "cross", "layer": 2, "head": 3} | wrong)) is None
    for state in (None, {}, {"choice": None}, {"choice": [1]}, "choice", {"choice": {"of": of}}):
        assert mosaic.told(state, PARTS) is None
