"""The training log of the bundled model, and where its induction heads appear."""

from __future__ import annotations

from dataclasses import fields

import pandas as pd
import pytest

from attnviz import training_log
from attnviz.training_log import PhaseChange
from scripts.train_bundled_model import STAGES, LogRow


def test_log_is_what_the_training_wrote():
    log = training_log.log()
    assert log.columns.tolist() == [field.name for field in fields(LogRow)]
    assert log["step"].is_monotonic_increasing
    assert log["step"].iloc[-1] == sum(stage.steps for stage in STAGES)
    assert log.notna().all(axis=None)


def test_phase_change_by_hand():
    """Largest 0.8: a tenth is passed at step 7, nine tenths, 0.72, at step 13."""
    scores = [0.02, 0.05, 0.09, 0.7, 0.75, 0.8, 0.6]
    log = pd.DataFrame({"step": [0, 3, 7, 11, 13, 17, 19], "induction": scores})
    assert training_log.phase_change(log) == PhaseChange(7, 13)


def test_phase_change_of_the_bundled_model():
    """As the file reads: 0.0547, then 0.1110; 0.8048, then 0.8646; the largest is 0.9307."""
    log = training_log.log()
    found = training_log.phase_change(log)
    assert found == PhaseChange(1025, 1275)
    before, after = (log[log["step"] < step]["induction"] for step in (found.begin, found.end))
    assert before.max() < 0.09307 < training_log.at(log, 1025)["induction"]
    assert after.max() < 0.9 * 0.9307 < training_log.at(log, 1275)["induction"]


def test_numbers_at_a_step():
    found = training_log.at(training_log.log(), 1100)
    assert found["repeat_loss"] == 6.1319
    assert found["previous_token"] == 0.3183


def test_curves_hold_each_number_once():
    log = training_log.log()
    curves = training_log.curves(log)
    assert len(curves) == 4 * len(log)
    chosen = curves[(curves["name"] == "on stories") & (curves["step"] == 50)]
    assert chosen[["quantity", "value"]].to_numpy().tolist() == [["loss", 6.4852]]
    assert set(curves.loc[curves["quantity"] == "score", "name"]) == {"previous token", "induction"}


def test_stages_are_those_of_the_recipe():
    found = training_log.stages(training_log.log())
    assert found.to_numpy().tolist() == [[STAGES[0].steps, STAGES[1].context]]


def test_a_step_that_was_not_measured_is_an_error():
    with pytest.raises(KeyError):
        training_log.at(training_log.log(), 1)
