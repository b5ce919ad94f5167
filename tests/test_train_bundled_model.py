"""The training script: its batches, and that a stopped run goes on as if it had not stopped."""

from __future__ import annotations

import pytest
import torch

from scripts import train_bundled_model as script
from scripts.train_bundled_model import Batches, Run, Stage

STAGES = (Stage(steps=3, context=17, batch=5, rate=1e-2), Stage(3, 23, 3, 1e-3))
STORIES = torch.randint(1, script.VOCABULARY, (997,), generator=torch.Generator().manual_seed(1))


def test_repeats_are_learnt_after_the_first_copy_only():
    row, labels = script.repeated(torch.tensor([5, 6, 7]), torch.tensor([9, 9]), context=11)
    assert row.tolist() == [0, 9, 9, 5, 6, 7, 5, 6, 7, 5, 6]
    assert labels.tolist() == [script.IGNORED] * 6 + [5, 6, 7, 5, 6]


def test_batches_depend_on_their_step_alone():
    batches = Batches(STORIES)
    first, _ = batches.draw(7, STAGES[0])
    again, _ = batches.draw(7, STAGES[0])
    other, _ = batches.draw(8, STAGES[0])
    assert first.shape == (5, 17)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (first[:, 0] == 0).all()


def test_evaluation_repeats_a_random_segment():
    tokens = script.repeats(length=13, seeds=3)
    assert tokens.shape == (3, 27)
    assert torch.equal(tokens[:, 1:14], tokens[:, 14:])
    assert not torch.equal(tokens[0], tokens[1])


def new_run(folder) -> Run:
    held_out = STORIES[:46].reshape(2, 23)
    return Run(script.new_model(), Batches(STORIES), held_out, folder, STAGES, save_every=2)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    (tmp_path / "stopped").mkdir()
    whole = new_run(tmp_path / "whole")
    whole.train()

    stopped, step = new_run(tmp_path / "stopped"), Run.step

    def stopping(self: Run, number: int, stage: Stage, rate: float) -> None:
        if number == 5:
            raise KeyboardInterrupt
        step(self, number, stage, rate)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            stopped.train()
    resumed = new_run(tmp_path / "stopped")
    resumed.train()

    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
    assert resumed.log == whole.log
    assert [row.step for row in resumed.log] == [0, 6]


def test_log_is_a_table(tmp_path):
    row = script.LogRow(25, 64, 5.123456, 7.0, 0.5, 0.25, 0.125, 0.0625)
    script.write_log([row], tmp_path / "log.csv")
    header, line = (tmp_path / "log.csv").read_text().splitlines()
    assert header.startswith("step,context,story_loss")
    assert line == "25,64,5.1235,7.0,0.5,0.25,0.125,0.0625"
