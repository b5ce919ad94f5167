"""Variance and kurtosis against d_k: points, error bars, lines and where they stand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import vl_convert
from rendered import Rendered

from attnviz import frames, lab_frames, synthetic
from attnviz.charts import theme, variance
from attnviz.moments import Distribution, Vectors

POWERS = synthetic.POWERS
CURVE = lab_frames.variance_curve(Vectors(), [1, 5, 32], 500, 3, POWERS)
HEAD = frames.head_marks(32, 86.0, 2.7)
LAYERS = pd.DataFrame(
    {
        "layer": [0, 0, 2, 2, 3, 3],
        "d_k": [16, 16, 16, 16, 64, 64],
        "quantity": ["scores", "logits"] * 3,
        "variance": [20.0, 1.25, 40.0, 2.5, 90.0, 1.4],
        "low": [10.0, 0.625, 35.0, 2.2, 80.0, 1.25],
        "high": [30.0, 1.875, 45.0, 2.8, 100.0, 1.6],
        "pooled": [25.0, 1.5, 50.0, 3.0, 95.0, 1.5],
    }
)


def curve_of(vectors: Vectors, d_ks: tuple[int, ...] = (1, 5, 32), **powers: float) -> pd.DataFrame:
    return lab_frames.variance_curve(vectors, d_ks, 500, 3, powers or POWERS)


def layers_of(spec: dict, mark: str) -> list[int]:
    return [at for at, layer in enumerate(spec["layer"]) if layer["mark"]["type"] == mark]


def test_points_and_their_errors_are_where_the_log_axes_put_them():
    spec = variance.curve(CURVE).to_dict()
    drawn = Rendered(spec)
    (points,), (rules,) = (layers_of(spec, mark) for mark in ("point", "rule"))
    encoding = spec["layer"][0]["encoding"]
    x_ends, y_ends = (np.log(encoding[axis]["scale"]["domain"]) for axis in "xy")
    found = np.array(drawn.points(points))
    across = np.log(CURVE["d_k"].to_numpy())
    up = np.log(CURVE["variance"].to_numpy())
    px = np.polyfit(across, found[:, 0], 1), np.polyfit(up, found[:, 1], 1)
    assert np.abs(np.polyval(px[0], across) - found[:, 0]).max() < 0.1
    assert np.abs(np.polyval(px[1], up) - found[:, 1]).max() < 0.1
    assert np.polyval(px[0], x_ends[0]) == pytest.approx(0, abs=0.5)
    assert np.polyval(px[1], y_ends[1]) == pytest.approx(0, abs=0.5)
    lower, upper = (
        np.polyval(px[1], np.log(CURVE["variance"] + sign * CURVE["standard_error"]))
        for sign in (-1, 1)
    )
    ends = np.sort([(y, y + down) for _, y, _, down in drawn.rules(rules)])
    assert ends[:, 0] == pytest.approx(upper, abs=0.1)
    assert ends[:, 1] == pytest.approx(lower, abs=0.1)


def test_the_lines_are_the_closed_form():
    spec = variance.curve(CURVE).to_dict()
    line = spec["layer"][0]
    assert (line["mark"]["type"], line["encoding"]["y"]["field"]) == ("line", "predicted")
    drawn = next(rows for rows in spec["datasets"].values() if len(rows) == len(CURVE))
    assert [row["predicted"] for row in drawn] == CURVE["predicted"].tolist()


def test_each_divisor_has_its_colour_and_its_dash():
    encoding = variance.curve(CURVE).to_dict()["layer"][0]["encoding"]
    for channel, looks in (
        ("color", theme.DIVISOR_COLOURS),
        ("strokeDash", theme.DIVISOR_DASHES),
    ):
        scale = encoding[channel]["scale"]
        assert scale["domain"] == list(POWERS) == list(looks)
        assert scale["range"] == list(looks.values())


def test_another_power_has_a_look_and_a_name_of_its_own():
    curve = lab_frames.variance_curve(Vectors(), [1, 64], 100, 3, POWERS | {"d_k^0.55": 0.55})
    spec = variance.curve(curve).to_dict()
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    assert (
        dict(zip(scale["domain"], scale["range"], strict=True))["d_k^0.55"]
        == (theme.OTHER_POWER[0])
    )
    names = Rendered(spec, 330).texts(len(spec["layer"]) - 1)
    assert [name.words for name in names] == ["÷ 1", "÷ √d_k", "÷ d_k^0.55", "÷ d_k", "÷ d_k²"]
    assert np.diff([name.y for name in names]).min() > theme.FONT_SIZE


@pytest.mark.parametrize("width", [330, 600, 900])
def test_the_names_stand_inside_the_chart_right_of_the_last_points(width: int):
    spec = variance.curve(CURVE).to_dict()
    drawn = Rendered(spec, width)
    last = max(x for x, _ in drawn.points(layers_of(spec, "point")[0]))
    names = drawn.texts(len(spec["layer"]) - 1)
    assert [name.words for name in names] == [f"÷ {name}" for name in POWERS]
    assert all(last < name.x < width - variance.NAME_ROOM + 40 for name in names)


def test_places_that_are_too_close_are_moved_apart_about_their_middle():
    falling = np.array([10.0, 2.1, 2.0, 1.9, -5.0])
    assert variance._apart(falling, 1.0) == pytest.approx([10, 3, 2, 1, -5])
    assert variance._apart(np.array([1.0, 1.0]), 1.0) == pytest.approx([1.5, 0.5])
    assert variance._apart(np.array([]), 1.0).size == 0


def test_a_real_head_is_a_diamond_at_its_d_k_and_variance():
    spec = variance.curve(CURVE, HEAD).to_dict()
    (at,) = (n for n, x in enumerate(spec["layer"]) if x["mark"].get("shape") == "diamond")
    assert spec["datasets"][spec["layer"][at]["data"]["name"]] == HEAD.to_dict("records")
    assert spec["layer"][at]["mark"]["stroke"] == theme.REAL
    drawn = Rendered(spec)
    scores, logits = drawn.points(at)
    points = drawn.points(layers_of(spec, "point")[0])
    own = CURVE.index[(CURVE["d_k"] == 32) & (CURVE["divisor"] == "1")][0]
    assert scores[0] == pytest.approx(points[own][0], abs=0.1)
    assert scores[1] < points[own][1] < logits[1]


def test_the_marks_of_a_head_are_named_with_their_variance():
    svg = vl_convert.vegalite_to_svg(variance.curve(CURVE, HEAD).to_dict())
    for name in ("◆ this head’s scores: 86<", "◇ this head’s logits: 2.7<"):
        assert name in svg
    large = frames.head_marks(4, 12_345.6, 0.00123)
    svg = vl_convert.vegalite_to_svg(variance.curve(CURVE, large).to_dict())
    for name in ("scores: 12,346<", "logits: 0.0012<"):
        assert name in svg


def test_a_curve_without_a_head_has_no_diamond():
    spec = variance.curve(CURVE).to_dict()
    assert all(x["mark"].get("shape") is None for x in spec["layer"])
    assert "title" not in spec


def test_every_layer_has_a_dot_for_scores_and_logits_beside_those_of_its_d_k():
    spec = variance.curve(CURVE, layers=LAYERS).to_dict()
    _, dots = layers_of(spec, "point")
    _, ranges = layers_of(spec, "rule")
    drawn = Rendered(spec)
    places = np.array(drawn.points(dots)).reshape(3, 2, 2)
    assert places[:, 0, 0] == pytest.approx(places[:, 1, 0])
    assert np.diff(places[:, 0, 0]).min() > 10
    points = dict(zip(CURVE["d_k"], drawn.points(layers_of(spec, "point")[0]), strict=True))
    octave = (points[32][0] - points[1][0]) / 5
    expected = points[1][0] + octave * np.array([4 - variance.SIDEWAYS, 4 + variance.SIDEWAYS, 6])
    assert places[:, 0, 0] == pytest.approx(expected, abs=0.2)
    for (_, y), (_, start, _, down) in zip(places.reshape(6, 2), drawn.rules(ranges), strict=True):
        assert min(start, start + down) < y < max(start, start + down)
    told = [x["field"] for x in spec["layer"][dots]["encoding"]["tooltip"]]
    assert told[:3] == ["layer", "quantity", "d_k"]
    assert variance.LAYERS_NAMED in drawn.words()


def test_thirty_layers_of_one_d_k_are_dots_apart():
    found = pd.concat([LAYERS.iloc[:2].assign(layer=layer) for layer in range(31)])
    spec = variance.curve(CURVE, layers=found).to_dict()
    places = {x for x, _ in Rendered(spec, 600).points(layers_of(spec, "point")[1])}
    assert len(places) == 31


def test_a_layer_whose_least_head_has_no_variance_is_drawn():
    spec = variance.curve(CURVE, layers=LAYERS.assign(low=0.0)).to_dict()
    assert all(math.isfinite(x) for rule in Rendered(spec).rules(4) for x in rule)


@pytest.mark.parametrize(
    ("vectors", "axis"),
    [
        (Vectors(query_std=1e4, key_std=100.0), 1),
        (Vectors(query_std=1e-4, key_std=0.01), 0),
        (Vectors(query_std=1000.0, key_std=1000.0, correlation=-0.5), 1),
    ],
)
def test_the_axis_follows_points_that_leave_it(vectors: Vectors, axis: int):
    usual = list(theme.DRAWN_VARIANCES)
    plain = variance.curve(CURVE).to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert plain == usual
    moved = variance.curve(curve_of(vectors)).to_dict()
    domain = moved["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert domain[axis] != usual[axis]
    assert domain[1 - axis] == usual[1 - axis]
    ys = [y for _, y in Rendered(moved).points(layers_of(moved, "point")[0])]
    assert min(ys) >= 0
    assert max(ys) <= theme.CURVE_HEIGHT
    labels = moved["layer"][0]["encoding"]["y"]["axis"]
    assert all(domain[0] <= value <= domain[1] for value in labels["values"])


def test_powers_of_ten_are_written_as_such():
    words = Rendered(variance.curve(CURVE).to_dict()).words()
    for power in ("10⁻⁹", "10⁻⁶", "10⁻³", "10³"):
        assert power in words


def test_a_real_head_with_a_larger_d_k_is_on_the_axis():
    spec = variance.curve(CURVE, frames.head_marks(8192, 100.0, 1.0)).to_dict()
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1] > 8192


def test_without_any_variance_the_chart_says_so():
    spec = variance.curve(curve_of(Vectors(query_std=0.0))).to_dict()
    assert "no variance: all scores are equal" in Rendered(spec).words()
    assert "no variance" not in Rendered(variance.curve(CURVE).to_dict()).words()


@pytest.mark.parametrize("distribution", ["Gaussian", "Rademacher", "Laplace", "normalised"])
def test_kurtosis_is_drawn_once_whatever_the_divisors(distribution: Distribution):
    curve = curve_of(Vectors(distribution))
    spec = variance.kurtosis(curve).to_dict()
    rows = next(rows for rows in spec["datasets"].values() if len(rows) == 3)
    assert [row["kurtosis"] for row in rows] == curve["kurtosis"].iloc[::4].tolist()
    one = variance.kurtosis(curve[curve["divisor"] == "d_k²"]).to_dict()
    rows_of_one = next(rows for rows in one["datasets"].values() if len(rows) == 3)
    assert [row["kurtosis"] for row in rows_of_one] == [row["kurtosis"] for row in rows]


def test_kurtosis_points_lie_on_either_side_of_the_normal_line():
    drawn = {}
    for distribution in ("Laplace", "normalised"):
        spec = variance.kurtosis(curve_of(Vectors(distribution), (1, 2))).to_dict()
        zero, _ = layers_of(spec, "rule")
        rendered = Rendered(spec)
        (line,) = rendered.rules(zero)
        drawn[distribution] = [y - line[1] for _, y in rendered.points(layers_of(spec, "point")[0])]
        assert "normal 0" in rendered.words()
        assert all(0 <= y <= spec["height"] for _, y in rendered.points(3))
    assert max(drawn["Laplace"]) < 0 < min(drawn["normalised"])


def test_kurtosis_without_variance_says_so():
    spec = variance.kurtosis(curve_of(Vectors(key_std=0.0))).to_dict()
    assert "no variance" in Rendered(spec).words()


def test_equal_input_gives_equal_charts():
    first, second = (variance.curve(CURVE, HEAD, LAYERS).to_dict() for _ in range(2))
    assert first == second
