from __future__ import annotations

import base64

import numpy as np
import pytest

from attnviz.charts.levels import levels


def read_back(sent) -> np.ndarray:
    steps = np.frombuffer(base64.b64decode(sent["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    return sent["low"] + steps / 10 ** sent["decimals"]


def test_weights_come_back_row_after_row():
    weights = np.random.default_rng(3).dirichlet(np.ones(7), size=5)
    sent = levels(weights)
    assert (sent["low"], sent["decimals"]) == (0, 3)
    assert (read_back(sent).reshape(5, 7) == weights.round(3)).all()


def test_signed_numbers_have_zero_in_the_middle_of_their_scale():
    sent = levels(np.array([[-3.128, 0.0, 2.0]]))
    assert (sent["low"], sent["high"], sent["decimals"]) == (-3.13, 3.128, 2)
    assert read_back(sent) == pytest.approx([-3.13, 0.0, 2.0], abs=1e-9)


@pytest.mark.parametrize(
    ("largest", "decimals"),
    [(1.0, 3), (0.2, 3), (0.0999, 4), (0.0078, 5), (1.4, 2), (58.0, 1), (1234.0, 0), (1e-9, 7)],
)
def test_small_numbers_have_more_decimals(largest: float, decimals: int):
    assert levels(np.array([[largest, largest / 3]]))["decimals"] == decimals


def test_what_is_hidden_or_infinite_has_no_level():
    values = np.array([[1.0, -np.inf, 4.0]])
    hidden = np.array([[False, False, True]])
    sent = levels(values, hidden)
    assert sent["high"] == 1.0
    np.testing.assert_equal(read_back(sent), [1.0, np.nan, np.nan])


def test_zeros_only():
    assert (read_back(levels(np.zeros((2, 3)))) == 0).all()
