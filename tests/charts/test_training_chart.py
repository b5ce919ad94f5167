"""The curves of training: what is drawn of whom, and that all of it is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rendered import Rendered

from attnviz import training_frames
from attnviz.charts import theme, training

STEPS = 20
VALUES = {"1": [0.06, 0.1, 0.3], "√d_k": [0.06, 0.95, 1.0]}


def rows(seeds: int = 3) -> pd.DataFrame:
    """Each seed a little above the one before."""
    found = [
        (divisor, seed, 10 * place, 1 - value / 2, min(1.0, value + seed / 100))
        for divisor, values in VALUES.items()
        for seed in range(seeds)
        for place, value in enumerate(values)
    ]
    return pd.DataFrame(found, columns=["divisor", "seed", "step", "loss", "accuracy"])


def drawn(rows: pd.DataFrame, quantity: str = "accuracy") -> dict:
    found = training_frames.curves(rows, ["accuracy", "loss"])
    lost = training_frames.lost(rows)
    return training.curves(found, quantity, STEPS, lost, training_frames.references()).to_dict()


def marks(spec: dict) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


def data_of(spec: dict, layer: dict | None = None) -> list[dict]:
    return spec["datasets"][(layer or spec)["data"]["name"]]


def test_lines_between_bands_and_what_to_compare_with():
    spec = drawn(rows())
    assert marks(spec) == ["rule", "text", "area", "line", "point"]
    assert {row["quantity"] for row in data_of(spec)} == {"accuracy"}
    (first,) = [r for r in data_of(spec) if r["divisor"] == "1" and r["step"] == 10]
    assert (first["low"], first["high"]) == (0.1, pytest.approx(0.12))
    assert first["median"] == pytest.approx(0.11)


def test_one_seed_has_no_band():
    assert "area" not in marks(drawn(rows(seeds=1)))


def test_each_divisor_has_its_colour_and_its_dash():
    line = drawn(rows())["layer"][3]["encoding"]
    assert line["color"]["scale"]["domain"] == list(theme.DIVISOR_COLOURS)
    assert line["color"]["scale"]["range"] == list(theme.DIVISOR_COLOURS.values())
    assert line["strokeDash"]["scale"]["range"] == list(theme.DIVISOR_DASHES.values())


def test_accuracy_is_compared_with_chance_and_the_bag():
    spec = drawn(rows())
    assert [row["value"] for row in data_of(spec, spec["layer"][0])] == [1 / 16, 0.192]
    assert "the most frequent content, always" in Rendered(spec).words()


def test_loss_is_compared_with_guessing():
    spec = drawn(rows(), "loss")
    assert [row["value"] for row in data_of(spec, spec["layer"][0])] == [np.log(16)]


def test_where_seeds_diverged_is_a_cross():
    gone = rows()
    gone.loc[(gone["divisor"] == "1") & (gone["step"] == 20), ["loss", "accuracy"]] = np.nan
    spec = drawn(gone)
    assert data_of(spec, spec["layer"][-1]) == [{"divisor": "1", "step": 20, "seeds": 3}]
    assert spec["layer"][-1]["mark"]["shape"] == training.CROSS
    assert len(Rendered(spec).points(len(spec["layer"]) - 1)) == 1


def test_curves_stand_at_their_values():
    spec = drawn(rows(seeds=1))
    points = Rendered(spec).points(3)
    heights = [y for _, y in points]
    expected = [value for values in VALUES.values() for value in values]
    slope = (heights[5] - heights[0]) / (expected[5] - expected[0])
    for height, value in zip(heights, expected, strict=True):
        assert height == pytest.approx(heights[0] + slope * (value - expected[0]), abs=0.1)


def test_legend_names_the_divisors():
    for width in (250, 600):
        words = Rendered(drawn(rows()), width).words()
        assert all(f"÷ {divisor} " in f"{words} " for divisor in theme.DIVISOR_COLOURS)


def of_variants(seeds: int = 3) -> pd.DataFrame:
    """The same numbers, of two ways to project."""
    found = rows(seeds).rename(columns={"divisor": "variant"})
    return found.replace({"variant": {"1": "K = V", "√d_k": "+ query gate"}})


def test_variants_have_their_looks_and_the_legend_names_those_shown():
    frame = training_frames.curves(of_variants(), ["accuracy"], "variant")
    lost = training_frames.lost(of_variants(), "variant")
    spec = training.curves(
        frame, "accuracy", STEPS, lost, training_frames.references("partner"), "variant"
    ).to_dict()
    line = spec["layer"][3]["encoding"]
    names = ["K = V", "+ query gate"]
    assert line["color"]["scale"]["domain"] == line["strokeDash"]["scale"]["domain"] == names
    assert line["color"]["scale"]["range"] == [theme.VARIANT_COLOURS[name] for name in names]
    assert line["strokeDash"]["scale"]["range"] == [theme.VARIANT_DASHES[name] for name in names]
    words = Rendered(spec).words()
    assert "K = V" in words
    assert "+ query gate" in words
    assert "Q = K" not in words
    assert "one of each pair, the other guessed" in words


def test_answers_that_are_vectors_have_axes_of_their_own():
    frame = training_frames.curves(of_variants(), ["accuracy"], "variant")
    frame.loc[0, "median"] = -0.1
    lost = training_frames.lost(of_variants(), "variant")
    known = training_frames.references("copy a vector")
    spec = training.curves(
        frame, "accuracy", STEPS, lost, known, "variant", training.OF_VECTORS
    ).to_dict()
    words = Rendered(spec).words()
    assert "R²" in words
    assert "always the mean" in words
    assert "right answers" not in words
    assert len(Rendered(spec).points(len(spec["layer"]) - 1)) == len(frame)


def test_weight_on_the_right_item_is_drawn():
    found = training_frames.projection_cells()
    chosen = found[(found["task"] == "same") & (found["d_k"] == 6)]
    frame = training_frames.curves(chosen, ["target_weight"], "variant")
    lost = training_frames.lost(chosen, "variant")
    known = training_frames.references("same")
    spec = training.curves(frame, "target_weight", 800, lost, known, "variant").to_dict()
    drawn_points = Rendered(spec).points(len(spec["layer"]) - 1)
    assert len(drawn_points) == len(theme.VARIANT_COLOURS) * 7


@pytest.mark.parametrize("quantity", sorted({*training.QUANTITIES} - {"target_weight"}))
def test_every_quantity_of_the_data_file_is_drawn(quantity):
    found = training_frames.scale_cells()
    chosen = training_frames.cell(found, 64, "SGD", 1.0)
    frame = training_frames.curves(chosen, [quantity])
    lost = training_frames.lost(chosen)
    spec = training.curves(frame, quantity, 1000, lost, training_frames.references()).to_dict()
    assert Rendered(spec).points(len(spec["layer"]) - 2)


def test_probe_draws_every_weight():
    weights = torch.eye(3)
    spec = training.probe(training_frames.attention("1", weights)).to_dict()
    found = data_of(spec)
    assert [row["weight"] for row in found] == weights.flatten().tolist()
    assert [(row["query"], row["item"]) for row in found[:4]] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert spec["width"] == spec["height"] == theme.PROBE_SIDE
    assert "title" not in spec


def test_probe_bears_the_name_of_whom_it_shows():
    frame = training_frames.attention("K = V", torch.eye(3), "variant")
    assert set(frame["variant"]) == {"K = V"}
    assert "K = V" in Rendered(training.probe(frame, "K = V").to_dict(), 130).words()
