"""Distributions of gradients: bars by share, mean and median where the axis has them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from rendered import Rendered

from attnviz import lab_frames, synthetic
from attnviz.charts import gradients, theme
from attnviz.moments import Vectors

QUANTITY = lab_frames.QUERY_GRADIENT
NAMES = ("1", "d_k²", "d_k^0.75")
EDGES = 10.0 ** np.arange(-10, 3)


def by_hand(first: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three divisors, a bin each decade; the first bin holds a share of the first divisor's."""
    parts, marks = [], []
    for at, name in enumerate(NAMES):
        share = np.zeros(12)
        share[[3 + at, 4 + at]] = 0.2, 0.8
        share[0], share[3 + at] = (first, 0.2 - first) if at == 0 else (0.0, 0.2)
        parts.append(
            pd.DataFrame(
                {
                    "divisor": name,
                    "quantity": QUANTITY,
                    "left": EDGES[:-1],
                    "right": EDGES[1:],
                    "share": share,
                    "least": EDGES[:-1] == EDGES[0],
                }
            )
        )
        marks.append((name, QUANTITY, 10.0 ** (at - 5), 10.0 ** (at - 6.5), 1.0))
    columns = ["divisor", "quantity", "mean", "median", "rms"]
    return pd.concat(parts, ignore_index=True), pd.DataFrame(marks, columns=columns)


def drawn(frames: tuple[pd.DataFrame, pd.DataFrame], width: int = 1000) -> Rendered:
    return Rendered(gradients.distribution(*frames, QUANTITY).to_dict(), width)


@pytest.mark.parametrize("width", [330, 1000])
def test_bars_stand_in_one_row_a_divisor_over_one_axis_as_high_as_their_share(width: int):
    rects = drawn(by_hand(), width).rects(0)
    assert len(rects) == 6
    decade = rects[0].width
    for at in range(3):
        low, high = rects[2 * at : 2 * at + 2]
        assert low.height / high.height == pytest.approx(0.25, abs=1e-3)
        assert low.left == pytest.approx((3 + at) * decade, abs=0.01)
        assert (
            low.bottom
            == high.bottom
            == pytest.approx(theme.GRADIENT_ROW * (at + 1) - gradients.BELOW_BARS)
        )
        assert {low.looks["fill"], high.looks["fill"]} == {theme.divisor_look(NAMES[at])[0]}
    assert 12 * decade == pytest.approx(width, abs=30)


def test_mean_and_median_are_two_shapes_at_their_places():
    rendered = drawn(by_hand())
    decade = rendered.rects(0)[0].width
    discs, triangles = rendered.points(3), rendered.points(4)
    assert [x / decade for x, _ in discs] == pytest.approx([5, 6, 7], abs=1e-3)
    assert [x / decade for x, _ in triangles] == pytest.approx([3.5, 4.5, 5.5], abs=1e-3)
    for at, ((_, above), (_, below)) in enumerate(zip(discs, triangles, strict=True)):
        top, bottom = theme.GRADIENT_ROW * at, theme.GRADIENT_ROW * (at + 1)
        assert top < above < bottom - gradients.BELOW_BARS < below < bottom
    spec = gradients.distribution(*by_hand(), QUANTITY).to_dict()
    shapes = [layer["mark"].get("shape") for layer in spec["layer"][3:5]]
    assert shapes == [None, "triangle-up"]
    assert [layer["mark"]["filled"] for layer in spec["layer"][3:5]] == [True, False]


def test_each_row_is_named_with_its_mean_and_median():
    words = [text.words.split() for text in drawn(by_hand()).texts(5)]
    assert [" ".join(word[:2]) for word in words] == [f"÷ {name}" for name in NAMES]
    assert " ".join(words[0][2:]) == "● mean 1.0·10⁻⁵ △ median 3.2·10⁻⁷"


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (0.0, "0"),
        (0.01, "0.0100"),
        (1.36, "1.36"),
        (123.4, "123"),
        (2.4e-4, "2.4·10⁻⁴"),
        (math.nan, "nan"),
    ],
)
def test_lengths_have_three_digits_or_a_power_of_ten(length: float, said: str):
    assert gradients._short(length) == said


def test_the_first_bin_is_an_outline_and_said_to_hold_what_is_less():
    rendered = drawn(by_hand(first=0.1))
    first, *others = rendered.rects(0)
    assert first.left == pytest.approx(0)
    assert float(first.looks["fill-opacity"]) == 0
    assert float(first.looks["stroke-width"]) > 1
    assert {float(rect.looks["fill-opacity"]) for rect in others} == {0.9}
    assert rendered.labels()[0].words == "≤ 10⁻¹⁰"


def test_a_median_of_zero_stands_at_the_end_of_the_axis():
    bins, marks = by_hand()
    marks.loc[0, "median"] = 0.0
    rendered = drawn((bins, marks))
    assert rendered.points(4)[0][0] == pytest.approx(0, abs=0.01)
    assert rendered.texts(5)[0].words.endswith("median 0")


@pytest.mark.parametrize("quantity", lab_frames.LENGTHS)
def test_the_drawn_shares_are_those_of_the_simulation(quantity: str):
    draw = synthetic.draw(Vectors(), 13, 5, 200, 3)
    simulations = {
        name: synthetic.measured(draw, synthetic.divisor(13, power))
        for name, power in synthetic.POWERS.items()
    }
    bins, marks = lab_frames.gradients(simulations), lab_frames.gradient_marks(simulations)
    spec = gradients.distribution(bins, marks, quantity).to_dict()
    rows = next(rows for rows in spec["datasets"].values() if "share" in rows[0])
    by_divisor = pd.DataFrame(rows).groupby("divisor", sort=False)["share"].sum()
    assert [*by_divisor.index] == [*synthetic.POWERS]
    assert by_divisor.to_numpy() == pytest.approx(1)
    assert quantity in Rendered(spec).words()


def test_equal_input_gives_equal_charts():
    one, other = (gradients.distribution(*by_hand(), QUANTITY).to_dict() for _ in range(2))
    assert one == other
