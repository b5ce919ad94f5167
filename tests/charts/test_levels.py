from __future__ import annotations

import base64

import numpy as np
import pytest

from attnviz.charts.levels import levels


def read_back(sent) -> np.ndarray:
    steps = np.frombuffer(base64.b64decode(sent["cells"]), "<u2").astype(float)
    steps[steps == 65535] = np.nan
    return sent["low"] + steps / 65534 * (sent["high"] - sent["low"])


def test_weights_come_back_row_after_row():
    weights = np.random.default_rng(3).dirichlet(np.ones(7), size=5)
    sent = levels(weights)
    assert sent["low"] == 0
    np.testing.assert_allclose(read_back(sent).reshape(5, 7), weights, atol=weights.max() / 65534)


def test_signed_numbers_have_zero_in_the_middle_of_their_scale():
    sent = levels(np.array([[-3.0, 0.0, 2.0]]))
    assert (sent["low"], sent["high"]) == (-3.0, 3.0)
    assert read_back(sent) == pytest.approx([-3.0, 0.0, 2.0], abs=1e-4)


def test_what_is_hidden_or_infinite_has_no_level():
    values = np.array([[1.0, -np.inf, 4.0]])
    hidden = np.array([[False, False, True]])
    sent = levels(values, hidden)
    assert sent["high"] == 1.0
    np.testing.assert_equal(read_back(sent), [1.0, np.nan, np.nan])


def test_zeros_only():
    assert (read_back(levels(np.zeros((2, 3)))) == 0).all()
