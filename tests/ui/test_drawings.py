"""Pictures that come with the app: the same ones every time, and not all of them square."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.ui.drawings import DRAWINGS


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_always_the_same(name: str):
    first, second = DRAWINGS[name].draw(), DRAWINGS[name].draw()
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    assert first.mode == "RGB"
    colours = {tuple(colour) for colour in np.asarray(first)[::16, ::16].reshape(-1, 3)}
    assert len(colours) > 10


def test_the_disc_is_red_and_round():
    disc = np.asarray(DRAWINGS["disc"].draw()).astype(int)
    red = (disc[..., 0] - disc[..., 2]) > 100
    rows, columns = red.any(1).sum(), red.any(0).sum()
    assert rows == columns == 71
    assert red.sum() == pytest.approx(np.pi * 71**2 / 4, rel=0.02)


def test_one_drawing_is_not_square():
    assert any(image.width != image.height for image in (d.draw() for d in DRAWINGS.values()))
