"""The training log drawn: curves at their values, and the phase change where it is."""

from __future__ import annotations

import pytest
from rendered import Rendered

from attnviz import training_log
from attnviz.charts import birth as charts

LOG = training_log.log()
CHANGE = (1025, 1275)
WIDTH = 500


def drawn(quantity: str, steps: int) -> dict:
    curves, stages = training_log.curves(LOG), training_log.stages(LOG)
    return charts.birth(curves, quantity, steps, CHANGE, stages).to_dict()


def marks(spec: dict) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


@pytest.mark.parametrize("quantity", charts.TITLES)
@pytest.mark.parametrize("steps", [2000, 8000])
def test_points_stand_at_their_steps_and_values(quantity, steps):
    spec = drawn(quantity, steps)
    points = Rendered(spec, WIDTH).points(len(spec["layer"]) - 1)
    curves = training_log.curves(LOG)
    shown = curves[(curves["quantity"] == quantity) & (curves["step"] <= steps)]
    across = [x for x, _ in points]
    assert across == pytest.approx([WIDTH * step / steps for step in shown["step"]], abs=0.1)
    heights, values = [y for _, y in points], shown["value"].tolist()
    slope = (heights[-1] - heights[0]) / (values[-1] - values[0])
    expected = [heights[0] + slope * (value - values[0]) for value in values]
    assert heights == pytest.approx(expected, abs=0.1)
    assert slope < 0


@pytest.mark.parametrize("steps", [2000, 8000])
def test_the_phase_change_is_shaded_over_its_steps(steps):
    spec = drawn("score", steps)
    assert marks(spec)[0] == "rect"
    drawing = Rendered(spec, WIDTH)
    (shade,) = drawing.rects(0)
    assert shade.left == pytest.approx(WIDTH * CHANGE[0] / steps, abs=0.1)
    assert shade.left + shade.width == pytest.approx(WIDTH * CHANGE[1] / steps, abs=0.1)
    (name,) = drawing.texts(1)
    assert name.words == "phase change"
    assert name.x >= shade.left + shade.width


def test_longer_contexts_are_marked_where_they_are_in_view():
    assert "rule" not in marks(drawn("loss", 2000))
    spec = drawn("loss", 8000)
    (rule,) = Rendered(spec, WIDTH).rules(marks(spec).index("rule"))
    assert rule[0] == pytest.approx(WIDTH * 5000 / 8000, abs=1)
    assert "contexts of 256" in Rendered(spec, WIDTH).words()


def test_copying_looks_alike_in_both_charts():
    looks = {}
    for quantity in charts.TITLES:
        line = drawn(quantity, 2000)["layer"][2]["encoding"]
        scale = line["color"]["scale"]
        looks |= dict(zip(scale["domain"], scale["range"], strict=True))
    assert looks["induction"] == looks["on repeats"]
    assert len(set(looks.values())) == 3


def test_legend_names_every_curve():
    names = {"score": ("induction", "previous token"), "loss": ("on repeats", "on stories")}
    for quantity, curves in names.items():
        words = Rendered(drawn(quantity, 2000), 250).words()
        assert all(name in words for name in curves)
