"""The match: products as high as they are, columns in line, and a sum that ends at the score."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from rendered import Rendered

from attnviz import cell_frames
from attnviz.cell import Cell, Match, Retrieved, Role
from attnviz.charts import match, theme

FEW, MANY = 7, 43  # dimensions with and without numbers in their cells
TALLEST = 330  # px with axis and legend, so that a step fits a projector


def frame(width: int, order: str = "dimension", seed: int = 3) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(width, generator=generator) for _ in range(2))
    cell = Cell(
        head=0,
        kv_head=0,
        query=Role(0, query),
        key=Role(0, key),
        value=Role(0, torch.zeros(2)),
        match=Match(query * key, float(query @ key), torch.zeros(3)),
        logit=None,
        softmax=None,
        weights=torch.zeros(3),
        sink_share=None,
        retrieved=Retrieved(torch.zeros(2), torch.zeros(2), torch.zeros(3), True),
        into_stream=None,
        model_weight=None,
        largest_difference=None,
    )
    return cell_frames.match(cell, order)


def drawn(numbers: pd.DataFrame, **options) -> dict:
    return match.match(numbers, ("q of “it”", "k of “cat”"), **options).to_dict()


def bars_of(numbers: pd.DataFrame) -> int:
    """The layer of the bars."""
    return 3 if len(numbers) == FEW else 1


@pytest.mark.parametrize("order", ["dimension", "size"])
def test_what_is_drawn_is_the_frame(order: str):
    numbers = frame(FEW, order)
    spec = drawn(numbers)
    (drawn_data,) = (rows for rows in spec["datasets"].values() if "product" in rows[0])
    assert drawn_data == numbers.to_dict("records")


@pytest.mark.parametrize("width", [1000, 330])
@pytest.mark.parametrize("count", [FEW, MANY])
def test_bars_are_as_high_as_the_products_and_stand_on_one_line(count: int, width: int):
    numbers = frame(count)
    rendered = Rendered(drawn(numbers), width)
    bars = rendered.rects(bars_of(numbers))
    products = numbers["product"].to_numpy()
    heights = np.array([bar.height for bar in bars])
    tallest = np.abs(products).argmax()
    expected = np.abs(products) / np.abs(products[tallest]) * heights[tallest]
    assert heights == pytest.approx(expected, abs=0.02)
    zero = rendered.rules(bars_of(numbers) + 1)[0][1]
    for bar, product in zip(bars, products, strict=True):
        assert (bar.bottom if product > 0 else bar.top) == pytest.approx(zero, abs=0.02)
        assert bar.looks["fill"] == (theme.POSITIVE if product > 0 else theme.NEGATIVE)
    assert min(bar.top for bar in bars) >= match.PRODUCTS
    assert max(bar.bottom for bar in bars) <= match.RUNNING


@pytest.mark.parametrize("count", [FEW, MANY])
def test_cells_and_bars_of_a_dimension_are_in_one_column(count: int):
    numbers = frame(count, "size")
    rendered = Rendered(drawn(numbers))
    cells, bars = rendered.rects(0), rendered.rects(bars_of(numbers))
    queries = [cell for cell in cells if cell.top < theme.STRIP_HEIGHT]
    keys = [cell for cell in cells if cell.top > theme.STRIP_HEIGHT]
    assert len(queries) == len(keys) == len(bars) == count
    for one, other, bar in zip(queries, keys, bars, strict=True):
        assert one.middle == pytest.approx(other.middle) == pytest.approx(bar.middle)
    signs = [theme.POSITIVE if x > 0 else theme.NEGATIVE for x in numbers["query"]]
    hues = [cell.looks["fill"].startswith("rgba(204, 85, 0") for cell in queries]
    assert hues == [sign == theme.POSITIVE for sign in signs]


@pytest.mark.parametrize("seed", [1, 3])  # scores of both signs
@pytest.mark.parametrize("width", [1000, 330])
def test_the_running_sum_ends_at_the_score(seed: int, width: int):
    numbers = frame(MANY, seed=seed)
    rendered = Rendered(drawn(numbers), width)
    line = rendered.line(4)
    sums = np.cumsum(numbers["product"])
    heights = np.array([-y for _, y in line])
    assert np.corrcoef(heights, sums)[0, 1] == pytest.approx(1, abs=1e-6)
    assert rendered.points(5) == [pytest.approx(line[-1], abs=0.01)]
    assert min(y for _, y in line) > match.RUNNING + match.LINE
    assert max(y for _, y in line) < match.HEIGHT
    score = f"score {sums.iloc[-1]:.5g}".replace("-", "−")
    assert [text.words for text in rendered.texts(6)] == [score]
    slope, at_zero = np.polyfit(sums, heights, 1)
    assert slope > 0
    assert -rendered.rules(3)[0][1] == pytest.approx(at_zero, abs=0.02)


def test_scores_of_both_signs_were_tried():
    assert {np.sign(frame(MANY, seed=seed)["product"].sum()) for seed in (1, 3)} == {-1, 1}


def test_deciding_dimensions_are_framed_bold_and_not_pale():
    numbers = frame(MANY, "size")
    rendered = Rendered(drawn(numbers))
    decides = numbers["decides"].tolist()
    assert 1 < sum(decides) < 7
    bars = rendered.rects(1)
    assert [bar.looks.get("fill-opacity", "1") == "1" for bar in bars] == decides
    queries = [cell for cell in rendered.rects(0) if cell.top < theme.STRIP_HEIGHT]
    assert [cell.looks.get("stroke-opacity", "1") == "1" for cell in queries] == decides
    bold = {label.words for label in rendered.labels() if label.looks.get("font-weight") == "bold"}
    assert bold == {str(d) for d in numbers.loc[numbers["decides"], "dimension"]}


@pytest.mark.parametrize("width", [1000, 330])
@pytest.mark.parametrize("count", [FEW, MANY, 64, 256])
def test_numbers_of_dimensions_stand_at_their_columns_and_keep_apart(count: int, width: int):
    numbers = frame(count, "size")
    rendered = Rendered(drawn(numbers), width)
    bars = rendered.rects(bars_of(numbers))
    places = dict(zip(numbers["dimension"], (bar.middle for bar in bars), strict=True))
    labels = rendered.labels()
    assert len(labels) > 2
    for label in labels:
        assert label.x == pytest.approx(places[int(label.words)], abs=0.1)
    gaps = np.diff(sorted(label.x for label in labels))
    assert gaps.min() >= 7 * len(str(count - 1))


def test_all_is_low_enough_for_a_projector():
    for count in (FEW, MANY):
        rendered = Rendered(drawn(frame(count)), 1100)
        assert float(rendered.root.get("height", "0").removesuffix("px")) <= TALLEST


def test_few_dimensions_have_their_numbers_written():
    numbers = frame(FEW)
    rendered = Rendered(drawn(numbers))
    written = {text.words for text in rendered.texts(1)}
    assert written == {f"{x:.1f}".replace("-", "−") for x in (*numbers["query"], *numbers["key"])}
    products = [text.words for text in rendered.texts(2)]
    assert products == [f"{x:.1f}".replace("-", "−") for x in numbers["product"]]


def test_rows_have_their_names():
    words = Rendered(drawn(frame(FEW))).words()
    for name in ("q of “it”", "k of “cat”", "product", "running sum"):
        assert name in words


def test_products_that_are_all_zero_are_drawn():
    numbers = frame(FEW).assign(query=0.0, product=0.0, running=0.0, decides=False)
    assert {bar.height for bar in Rendered(drawn(numbers)).rects(3)} == {0.0}


def test_sixty_four_dimensions_are_cheap():
    assert len(json.dumps(drawn(frame(64)))) < 18_000


def test_equal_input_gives_equal_charts():
    assert drawn(frame(FEW)) == drawn(frame(FEW))
