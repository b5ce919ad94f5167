"""A curve over distance: its points, its zero, and the distance of the cell."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from rendered import Rendered

from attnviz import cell_frames
from attnviz.charts import distance, theme
from attnviz.distance import DistanceCurve

VALUES = [0.5, -2.0, 3.0, 1.0, -0.25]


def frame(values: list[float] = VALUES, chosen: int = 2, kind: str = "rotation") -> pd.DataFrame:
    distances = torch.arange(len(values)).flip(0) - 1  # as keys stand from left to right
    return cell_frames.curve(DistanceCurve(kind, distances, torch.tensor(values)), chosen)


def drawn(numbers: pd.DataFrame) -> dict:
    return distance.curve(numbers).to_dict()


def test_points_stand_at_their_distance_and_number():
    numbers = frame()
    rendered = Rendered(drawn(numbers))
    points = rendered.points(5)
    assert len(points) == 5
    across, down = np.array(points).T
    assert np.corrcoef(across, numbers["distance"])[0, 1] == pytest.approx(1)
    assert np.corrcoef(down, numbers["value"])[0, 1] == pytest.approx(-1)
    assert np.array(rendered.line(0)) == pytest.approx(np.array(points), abs=0.01)
    (zero,) = {round(y, 2) for _, y, *_ in rendered.rules(1)}
    order = np.argsort(numbers["value"])
    expected = np.interp(0, numbers["value"].to_numpy()[order], down[order])
    assert zero == pytest.approx(expected, abs=0.02)


def test_the_distance_of_the_cell_is_a_strong_point_with_its_number():
    numbers = frame(chosen=0)
    rendered = Rendered(drawn(numbers))
    place = numbers["distance"].tolist().index(0)
    (strong,) = rendered.points(4)
    assert strong == pytest.approx(rendered.points(5)[place], abs=0.01)
    (label,) = rendered.texts(3)
    assert label.words == f"{numbers['value'][place]:.5g}".replace("-", "−")
    assert label.y < min(y for _, y in rendered.points(5))


@pytest.mark.parametrize(("chosen", "anchor"), [(-1, "start"), (3, "end")])
def test_the_number_stays_inside_at_both_ends(chosen: int, anchor: str):
    (label,) = Rendered(drawn(frame(chosen=chosen)), 330).texts(3)
    assert label.looks["text-anchor"] == anchor
    assert 0 <= label.x <= 330


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("rotation", "score, were the key at that distance"),
        ("bias", "bias added to the logit"),
        ("measured", "mean of scale · score at that distance in this text"),
    ],
)
def test_words_say_what_is_drawn(kind: str, title: str):
    words = Rendered(drawn(frame(kind=kind))).words()
    assert title in words
    assert "distance, in tokens: query place − key place" in words


def test_a_distance_that_the_curve_has_not_is_not_marked():
    rendered = Rendered(drawn(frame(chosen=40)))
    assert rendered.points(4) == []
    assert rendered.texts(3) == []


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [2.0], [-3.0, -1.0]])
def test_flat_short_and_negative_curves_are_drawn(values: list[float]):
    rendered = Rendered(drawn(frame(values, chosen=0)))
    points = rendered.points(5)
    assert len(points) == len(values)
    assert all(0 <= y <= theme.DISTANCE_HEIGHT for _, y in points)
    assert all(0 <= y <= theme.DISTANCE_HEIGHT for _, y, *_ in rendered.rules(1))


def test_tooltips_tell_distance_and_number():
    points = drawn(frame())["layer"][5]
    assert [x["field"] for x in points["encoding"]["tooltip"]] == ["distance", "value"]


def test_long_texts_are_cheap():
    assert len(json.dumps(drawn(frame(np.sin(np.arange(128.0)).tolist())))) < 10_000


def test_equal_input_gives_equal_charts():
    assert drawn(frame()) == drawn(frame())
