"""The playground's charts: the drawn data, the axes and the names."""

from __future__ import annotations

import pytest
import torch
import vl_convert

from attnviz import frames, synthetic
from attnviz.charts import playground, theme

CURVE = frames.variance_curve([1, 5, 32], pairs=500, seed=3)
MARKS = frames.head_marks(32, 86.0, 2.7)


def layers(chart) -> list[dict]:
    return chart.to_dict()["layer"]


def rows_of(spec: dict) -> list[dict]:
    name = spec["data"]["name"] if "data" in spec else spec["layer"][0]["data"]["name"]
    return spec["datasets"][name]


def test_curve_draws_measured_points_and_predicted_lines():
    lines, points, *_ = layers(playground.variance_curve(CURVE, None))
    assert (lines["mark"]["type"], lines["encoding"]["y"]["field"]) == ("line", "predicted")
    assert (points["mark"]["type"], points["encoding"]["y"]["field"]) == ("point", "variance")
    for layer in (lines, points):
        assert {layer["encoding"][axis]["scale"]["type"] for axis in "xy"} == {"log"}


def test_curve_holds_the_frame():
    spec = playground.variance_curve(CURVE, None).to_dict()
    drawn = next(rows for rows in spec["datasets"].values() if len(rows) == len(CURVE))
    assert drawn == CURVE.to_dict("records")


def test_each_divisor_has_its_colour_and_its_dash():
    encoding = layers(playground.variance_curve(CURVE, None))[0]["encoding"]
    names = list(synthetic.DIVISORS)
    for channel, looks in (
        ("color", theme.DIVISOR_COLOURS),
        ("strokeDash", theme.DIVISOR_DASHES),
    ):
        scale = encoding[channel]["scale"]
        assert scale["domain"] == names == list(looks)
        assert scale["range"] == list(looks.values())


def test_real_head_is_a_diamond_at_its_d_k_and_variance():
    spec = playground.variance_curve(CURVE, MARKS).to_dict()
    diamond = next(x for x in spec["layer"] if x["mark"].get("shape") == "diamond")
    assert spec["datasets"][diamond["data"]["name"]] == MARKS.to_dict("records")
    assert diamond["mark"]["stroke"] == theme.REAL


def test_the_marks_of_a_head_are_named_with_their_variance():
    svg = vl_convert.vegalite_to_svg(playground.variance_curve(CURVE, MARKS).to_dict())
    for name in ("◆ this head’s scores: 86<", "◇ this head’s logits: 2.7<"):
        assert name in svg
    large = frames.head_marks(4, 12_345.6, 0.00123)
    svg = vl_convert.vegalite_to_svg(playground.variance_curve(CURVE, large).to_dict())
    for name in ("scores: 12,346<", "logits: 0.0012<"):
        assert name in svg


def test_curve_without_a_head_has_no_diamond():
    assert all(
        x["mark"].get("shape") is None for x in layers(playground.variance_curve(CURVE, None))
    )


def test_curve_renders_with_names_at_the_lines():
    svg = vl_convert.vegalite_to_svg(playground.variance_curve(CURVE, MARKS).to_dict())
    for word in ("÷ 1", "÷ √d_k", "÷ d_k", "÷ d_k²", "this head’s scores", "this head’s logits"):
        assert word in svg
    for power in ("10⁻⁹", "10⁻⁶", "10⁻³", "10³"):
        assert power in svg


@pytest.mark.parametrize("quantity", playground.QUANTITY_COLOURS)
def test_histograms_of_both_quantities_share_their_axis(quantity: str):
    bins = frames.score_histogram(synthetic.sample_scores(9, 1, 500, 1)[:, 0], 9)
    spec = playground.score_histogram(bins, quantity).to_dict()
    bars, line = spec["layer"]
    assert bars["encoding"]["x"]["scale"]["domain"] == [-12, 12]
    assert bars["encoding"]["y"]["field"] == "density"
    assert line["encoding"]["y"]["field"] == "predicted"
    expected = bins[bins["quantity"] == quantity].to_dict("records")
    assert next(iter(spec["datasets"].values())) == expected


def test_softmax_row_draws_its_weights_from_0_to_1():
    rows = frames.softmax_rows(torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64), 4)
    row = rows[rows["divisor"] == "d_k"]
    spec = playground.softmax_row(row).to_dict()
    assert spec["encoding"]["y"]["scale"]["domain"] == [0, 1]
    assert spec["mark"]["color"] == theme.DIVISOR_COLOURS["d_k"]
    assert [r["weight"] for r in rows_of(spec)] == row["weight"].tolist()


def test_equal_input_gives_equal_charts():
    first, second = (playground.variance_curve(CURVE, MARKS).to_dict() for _ in range(2))
    assert first == second
