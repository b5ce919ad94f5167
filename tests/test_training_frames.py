"""Frames of training runs, by hand on a few rows and on the data file."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch

from attnviz import training, training_frames
from attnviz.training import Recipe

SMALL = Recipe(5, 1.0, "SGD", (1e-2, 1e6), (3, 4, 7), 11, (0, 2, 4), batch=13, held_out=17)


def by_hand(accuracies: dict[int, list[float]], divisor: str = "1") -> pd.DataFrame:
    """Rows of seeds that were looked at every ten steps; NaN where one has diverged."""
    rows = [
        (64, "Adam", divisor, 1e-3, seed, 10 * place, 1 - accuracy, accuracy)
        for seed, values in accuracies.items()
        for place, accuracy in enumerate(values)
    ]
    columns = [*training_frames.SCALE_CELL, *training_frames.REPLICA, "step", "loss", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def test_rows_hold_the_records():
    records = list(training.train(SMALL))
    rows = training_frames.rows_of(SMALL, records)
    kept = rows[rows["rate"] == 1e-2]
    assert kept["step"].tolist() == [0, 0, 0, 2, 2, 2, 4, 4, 4, 11, 11, 11]
    assert kept["seed"].tolist() == [3, 4, 7] * 4
    for name in training_frames.NUMBERS:
        expected = torch.cat([getattr(record, name)[:3] for record in records])
        assert kept[name].tolist() == expected.tolist()


def test_a_replica_that_diverged_ends_with_one_row_without_numbers():
    rows = training_frames.rows_of(SMALL, training.train(SMALL))
    for _, seed in rows[rows["rate"] == 1e6].groupby("seed"):
        assert seed["loss"].isna().tolist()[-1]
        assert seed["loss"].isna().sum() == 1


def test_curves_are_medians_between_the_least_and_the_largest():
    found = training_frames.curves(by_hand({0: [0.1, 0.5], 1: [0.3, 1.0]}), ["accuracy"])
    assert found["step"].tolist() == [0, 10]
    assert found["median"].tolist() == pytest.approx([0.2, 0.75])
    assert found["low"].tolist() == [0.1, 0.5]
    assert found["high"].tolist() == [0.3, 1.0]
    assert found["seeds"].tolist() == [2, 2]


def test_curves_go_on_without_a_seed_that_diverged():
    found = training_frames.curves(by_hand({0: [0.1, 0.5], 1: [0.3, math.nan]}), ["accuracy"])
    assert found["median"].tolist() == pytest.approx([0.2, 0.5])
    assert found["seeds"].tolist() == [2, 1]


def test_outcomes_by_hand():
    rows = by_hand({0: [0.1, 0.92, 0.98], 1: [0.2, 0.5, 0.94], 2: [0.1, 0.95, 0.99]})
    (row,) = training_frames.outcomes(rows).to_dict("records")
    assert (row["reached"], row["steps_to_90"], row["diverged"], row["seeds"]) == (3, 10, 0, 3)
    assert row["accuracy"] == pytest.approx(0.97)
    assert row["accuracy_std"] == pytest.approx(math.sqrt(0.0007))
    assert row["loss"] == pytest.approx(0.03)


def test_steps_are_not_told_where_most_seeds_never_get_there():
    rows = by_hand({0: [0.1, 0.92], 1: [0.2, 0.5], 2: [0.1, math.nan]})
    (row,) = training_frames.outcomes(rows).to_dict("records")
    assert (row["reached"], row["diverged"]) == (1, 1)
    assert math.isnan(row["steps_to_90"])
    assert row["accuracy"] == pytest.approx(0.71)


def test_outcomes_where_all_diverged():
    (row,) = training_frames.outcomes(by_hand({0: [0.1, math.nan]})).to_dict("records")
    assert (row["diverged"], row["seeds"]) == (1, 1)
    assert math.isnan(row["accuracy"])
    assert math.isnan(row["loss"])


def test_divisors_keep_their_order():
    rows = pd.concat([by_hand({0: [0.5]}, "√d_k"), by_hand({0: [0.5]}, "1")])
    assert training_frames.outcomes(rows)["divisor"].tolist() == ["√d_k", "1"]
    assert training_frames.curves(rows, ["loss"])["divisor"].tolist() == ["√d_k", "1"]


def test_curves_of_variants_have_their_names():
    rows = by_hand({0: [0.1, 0.95], 1: [0.3, 0.95]}).rename(columns={"divisor": "variant"})
    assert training_frames.curves(rows, ["loss"], by="variant")["variant"].tolist() == ["1", "1"]
    assert training_frames.outcomes(rows, by="variant")["variant"].tolist() == ["1"]
    assert training_frames.lost(rows, by="variant").empty


def projections_by_hand() -> pd.DataFrame:
    rows = [
        ("same", variant, width, 3e-3, seed, step, step / 800 * accuracy, 0.5)
        for variant, width, accuracies in (("Q K V", 4, (0.9, 1.0)), ("K = V", 6, (0.2, 0.4)))
        for seed, accuracy in enumerate(accuracies)
        for step in (0, 800)
    ]
    cell = [*training_frames.PROJECTIONS_CELL, *training_frames.REPLICA]
    return pd.DataFrame(rows, columns=[*cell, "step", "accuracy", "target_weight"])


def test_what_each_width_came_to_and_what_it_costs():
    three, two = training_frames.by_width(projections_by_hand()).to_dict("records")
    assert (three["variant"], three["d_k"], three["weights"], three["kept"]) == ("Q K V", 4, 832, 8)
    assert (two["variant"], two["d_k"], two["weights"], two["kept"]) == ("K = V", 6, 864, 6)
    assert three["accuracy"] == pytest.approx(0.95)
    assert (three["low"], three["high"], three["seeds"]) == (0.9, 1.0, 2)
    assert two["accuracy_std"] == pytest.approx(0.02**0.5)
    assert two["target_weight"] == 0.5
