"""What changed scores do, as drawn: points where their numbers are, before and after apart."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from rendered import Rendered

from attnviz.charts import losses, theme

DIVISORS = [*theme.DIVISOR_COLOURS]
POINTS = pd.DataFrame(
    {
        "factor": [0.0, 32**-1.5, 32**-0.5, 0.5, 1.0, 2.0, 32**0.5],
        "divisor": ["", "d_k²", "d_k", "", "√d_k", "", "1"],
        "value": [8.1, 8.0, 6.0, 2.3, 2.4, 2.7, 2.9],
    }
).assign(difference=lambda table: table["value"] - 2.4)
TOKENS = pd.DataFrame(
    {
        "place": range(5),
        "last": range(5),
        "token": ["<s>", "<b>it</b>", "␣cat", "猫", "`$x$`"],
        "before": [math.nan, 1.0, 2.0, 3.0, 4.0],
        "after": [math.nan, 2.0, 1.0, 3.0, 5.0],
    }
)
NEXT = pd.DataFrame(
    {
        "row": range(3),
        "id": [7, 3, 5],
        "token": ["␣a", "<b>", "␣a"],
        "before": [0.5, 0.2, 0.01],
        "after": [0.1, 0.3, 0.2],
    }
)


def in_line(drawn: list[float], numbers: pd.Series) -> float:
    return float(np.corrcoef(drawn, numbers)[0, 1])


def test_points_stand_at_their_factor_on_a_log_axis():
    rendered = Rendered(losses.against_factor(POINTS, "loss").to_dict())
    across, down = np.array(rendered.points(4)).T
    seen = POINTS[POINTS["factor"] > 0]
    assert in_line(across, np.log(seen["factor"])) == pytest.approx(1)
    assert in_line(down, seen["value"]) == pytest.approx(-1)
    assert np.array(rendered.line(3)) == pytest.approx(np.array(rendered.points(4)), abs=0.01)


def test_the_four_divisors_keep_colour_and_dash():
    rendered = Rendered(losses.against_factor(POINTS, "loss").to_dict())
    four = POINTS[POINTS["divisor"] != ""]["divisor"].tolist()
    lines, points = rendered._group("layer_0_marks"), rendered._group("layer_5_marks")
    assert [x.get("stroke") for x in lines] == [theme.DIVISOR_COLOURS[name] for name in four]
    assert [x.get("fill") for x in points] == [theme.DIVISOR_COLOURS[name] for name in four]
    dashes = {name: ",".join(map(str, dash)) for name, dash in theme.DIVISOR_DASHES.items()}
    assert [x.get("stroke-dasharray") for x in lines] == [dashes[name] for name in four]
    names = [text.words for layer in (6, 7) for text in rendered.texts(layer)]
    assert sorted(names) == sorted(["÷ 1", "÷ d_k", "÷ d_k²", "÷ √d_k: its own"])


def test_the_factor_0_is_a_line_across():
    rendered = Rendered(losses.against_factor(POINTS, "loss").to_dict())
    ((_, y, *_),) = rendered.rules(1)
    down = [y for _, y in rendered.points(4)]
    slope, start = np.polyfit(POINTS["value"][1:], down, 1)
    assert y == pytest.approx(start + slope * 8.1, abs=0.01)
    (name,) = rendered.texts(2)
    assert name.words == "× 0: without q·k"
    without = losses.against_factor(POINTS.iloc[1:], "loss").to_dict()
    assert "without q·k" not in Rendered(without).words()


def test_noise_is_no_finding():
    """Values that differ by less than 0.1 stand close together."""
    points = POINTS.assign(value=4.3 + POINTS["value"] * 1e-6)
    rendered = Rendered(losses.against_factor(points, "loss").to_dict())
    down = [y for _, y in rendered.points(4)]
    assert max(down) - min(down) < 0.1  # px
    assert 0.3 * losses.PLOT_HEIGHT < down[0] < 0.7 * losses.PLOT_HEIGHT


@pytest.mark.parametrize(("value", "below"), [(6.0, False), (9.0, True)])
def test_the_name_of_even_weights_stands_beside_the_curve(value: float, below: bool):
    points = POINTS.assign(value=[8.1, 8.1, value, 2.3, 2.4, 2.7, 2.9])
    rendered = Rendered(losses.against_factor(points, "loss").to_dict())
    ((_, line, *_),) = rendered.rules(1)
    (name,) = rendered.texts(2)
    assert (name.y > line) == below


def test_the_change_that_is_looked_at_has_a_ring():
    rendered = Rendered(losses.against_factor(POINTS, "loss", (2.0, 2.7)).to_dict())
    (ring,) = rendered.points(8)
    assert ring == pytest.approx(rendered.points(4)[4], abs=0.01)
    for chosen in (None, (0.0, 8.1)):
        layers = losses.against_factor(POINTS, "loss", chosen).to_dict()["layer"]
        assert len(layers) == 8


def test_an_own_scale_that_is_none_of_the_divisors_is_named():
    """As Gemma's scalar: √d_k lies at another factor than 1."""
    points = POINTS.assign(factor=POINTS["factor"] * 1.25)
    rendered = Rendered(losses.against_factor(points, "loss").to_dict())
    assert "÷ √d_k: its own" not in rendered.words()
    assert [text.words for text in rendered.texts(9)] == ["its own"]


def test_tokens_have_a_disc_before_and_a_diamond_after():
    rendered = Rendered(losses.of_tokens(TOKENS, "loss", "undivided", "1").to_dict())
    before, after = rendered.points(1), rendered.points(2)
    assert len(before) == len(after) == 4
    assert [x for x, _ in before] == pytest.approx([x for x, _ in after])
    both = [*TOKENS["before"][1:], *TOKENS["after"][1:]]
    assert in_line([y for _, y in before + after], pd.Series(both)) == pytest.approx(-1)
    assert [label.words for label in rendered.labels()][:5] == TOKENS["token"].tolist()
    words = rendered.words()
    assert "● before: untouched" in words
    assert "◆ after: undivided" in words
    (colour,) = {x.get("fill") for x in rendered._group("layer_2_marks")}
    assert colour == theme.DIVISOR_COLOURS["1"]


def test_vectors_have_no_before():
    rendered = Rendered(
        losses.of_tokens(TOKENS.drop(columns="before"), "change", "times 2").to_dict()
    )
    assert "before" not in rendered.words()
    assert len(rendered.points(0)) == 4


def test_places_of_a_long_text_stand_in_order():
    table = pd.DataFrame({"place": range(0, 384, 3), "last": range(2, 386, 3), "token": "a …"})
    table = table.assign(before=1.0, after=np.linspace(1, 2, 128))
    rendered = Rendered(losses.of_tokens(table, "loss", "times 2").to_dict(), 400)
    across = np.array(rendered.points(2))[:, 0]
    assert np.diff(across) == pytest.approx(400 / 128, abs=0.5)
    assert len(rendered.labels()) < 40


def test_next_tokens_stand_in_rows():
    rendered = Rendered(losses.next_tokens(NEXT, "undivided", "1").to_dict())
    before, after = np.array(rendered.points(1)), np.array(rendered.points(2))
    assert before[:, 1].tolist() == after[:, 1].tolist()
    assert np.diff(before[:, 1]) == pytest.approx(losses.ROW)
    numbers = pd.concat([NEXT["before"], NEXT["after"]])
    assert in_line([*before[:, 0], *after[:, 0]], numbers) == pytest.approx(1)
    assert " ".join(NEXT["token"]) in rendered.words()


@pytest.mark.parametrize(
    "chart",
    [
        losses.against_factor(POINTS, "loss", (2.0, 2.7)),
        losses.against_factor(POINTS.drop(columns="difference"), "change"),
        losses.of_tokens(TOKENS, "loss", "times 2"),
        losses.next_tokens(NEXT, "times 2"),
    ],
)
def test_specs_are_those_of_the_schema(chart):
    assert chart.to_dict(validate=True)
