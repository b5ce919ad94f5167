"""Accuracy against width and cost: where signs, bars and level lines stand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rendered import Rendered

from attnviz import training_frames
from attnviz.charts import theme, training, widths

RULE, NAME, SPREAD, LINE, POINTS = range(5)
ACCURACY = training.QUANTITIES["accuracy"]


def cells(*variants: str, task: str = "same") -> pd.DataFrame:
    found = training_frames.by_width(training_frames.projection_cells())
    found = found[found["task"] == task]
    return pd.concat([found[found["variant"] == name] for name in variants])


def drawn(frame: pd.DataFrame, cost: widths.Cost = "d_k") -> dict:
    known = training_frames.references("same")
    return widths.widths(frame, cost, ACCURACY, known).to_dict()


def test_layers():
    spec = drawn(cells("Q K V", "K = V"))
    marks = [layer["mark"]["type"] for layer in spec["layer"]]
    assert marks == ["rule", "text", "rule", "line", "point"]


def test_signs_stand_at_their_accuracies():
    frame = cells("Q K V", "K = V")
    ys = [y for _, y in Rendered(drawn(frame)).points(POINTS)]
    expected = frame["accuracy"].to_numpy()
    slope, zero = np.polyfit(expected, ys, 1)
    assert slope < 0
    np.testing.assert_allclose(ys, zero + slope * expected, atol=0.2)


def test_variants_of_one_width_stand_side_by_side():
    frame = cells("Q K V", "K = V", "Q = V")
    xs = np.array([x for x, _ in Rendered(drawn(frame)).points(POINTS)]).reshape(3, 4)
    assert (np.diff(xs, axis=0) > 2).all()
    # In the middle of those of a width is the width: equal steps for 4, 8 and 16.
    middle = xs[1]
    assert middle[2] - middle[0] == pytest.approx(middle[3] - middle[2], abs=0.2)


@pytest.mark.parametrize("cost", ["weights", "kept"])
def test_costs_are_drawn_where_they_are(cost):
    frame = cells("Q K V", "K = V", "x as key")
    xs = [x for x, _ in Rendered(drawn(frame, cost)).points(POINTS)]
    slope, zero = np.polyfit(np.log2(frame[cost]), xs, 1)
    assert slope > 0
    np.testing.assert_allclose(xs, zero + slope * np.log2(frame[cost]), atol=0.2)
    assert widths.COSTS[cost] in Rendered(drawn(frame, cost)).words()


def test_equal_cache_stands_at_one_place():
    """Q K V of width 4 and K = V of width 8 both keep 8 numbers."""
    frame = cells("Q K V", "K = V")
    points = Rendered(drawn(frame, "kept")).points(POINTS)
    names = list(zip(frame["variant"], frame["d_k"], strict=True))
    three = points[names.index(("Q K V", 4))]
    two = points[names.index(("K = V", 8))]
    assert three[0] == pytest.approx(two[0])
    assert three[1] < two[1]


def test_spread_is_from_the_least_to_the_largest_seed():
    spec = drawn(cells("K = V"))
    encoding = spec["layer"][SPREAD]["encoding"]
    assert (encoding["y"]["field"], encoding["y2"]["field"]) == ("low", "high")
    rows = spec["datasets"][spec["data"]["name"]]
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)


def test_level_lines_are_named():
    words = Rendered(drawn(cells("Q K V", "K = V"))).words()
    assert "guessing" in words
    assert "the most frequent content, always" in words


@pytest.mark.parametrize("width", [260, 1100])
def test_legend_names_every_variant_once(width):
    names = list(theme.VARIANT_COLOURS)
    groups = Rendered(drawn(cells(*names)), width).root.iter()
    found = ["".join(g.itertext()) for g in groups if "role-legend-label" in g.get("class", "")]
    assert sorted(found) == sorted(names)


def test_looks_are_those_of_the_variants():
    encoding = drawn(cells("K = V", "+ query gate"))["layer"][POINTS]["encoding"]
    names = ["K = V", "+ query gate"]
    assert encoding["color"]["scale"]["range"] == [theme.VARIANT_COLOURS[n] for n in names]
    assert encoding["shape"]["scale"]["range"] == [theme.VARIANT_SIGNS[n] for n in names]
