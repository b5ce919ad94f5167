"""What a reading says of its calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import saved_models

from attnviz.capture import capture
from attnviz.inputs import inputs_for
from attnviz.models import load
from attnviz.reading import Reading
from attnviz.ui.drawings import DRAWINGS

OF_A_TEXT = {
    "bart": {"encoder": True, "decoder": True, "cross": False},
    "clip": {"text": True, "vision": False},
}


@pytest.mark.parametrize("architecture", OF_A_TEXT)
def test_distances_mean_something_among_the_words_of_one_text(tmp_path: Path, architecture: str):
    loaded = load(saved_models.save(tmp_path, architecture))
    inputs = inputs_for(loaded, "the cat sat on the mat", image=DRAWINGS["disc"].draw())
    reading = Reading("", None, inputs, capture(loaded.model, inputs.tensors), 0.0)
    found = {part: reading.of_a_text(reading.calls(part)[1]) for part in reading.parts}
    assert found == OF_A_TEXT[architecture]
