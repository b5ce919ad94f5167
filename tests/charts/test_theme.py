"""Colours keep apart for a colour-blind viewer, and from both backgrounds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from attnviz.charts import theme
from attnviz.projections import VARIANTS

BACKGROUNDS = {"light": "#FFFFFF", "dark": "#0F1319"}
# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
COLOUR_BLINDNESS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


@pytest.mark.parametrize("mode", BACKGROUNDS)
def test_marks_stand_out(mode: str):
    marks = [theme.REAL, theme.SYNTHETIC, *theme.DIVISOR_COLOURS.values()]
    assert min(contrast(mark, BACKGROUNDS[mode]) for mark in marks) >= 2.8


@pytest.mark.parametrize("blindness", COLOUR_BLINDNESS)
def test_colours_keep_apart_for_a_colour_blind_viewer(blindness: str):
    matrix = np.array(COLOUR_BLINDNESS[blindness])
    for group in (theme.DIVISOR_COLOURS.values(), (theme.REAL, theme.SYNTHETIC)):
        seen = [np.clip(matrix @ linear(colour), 0, 1) ** (1 / 2.2) for colour in group]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 0.15


def test_no_two_divisors_share_colour_and_dash():
    looks = [
        (theme.DIVISOR_COLOURS[name], tuple(theme.DIVISOR_DASHES[name]))
        for name in theme.DIVISOR_COLOURS
    ]
    assert len(set(looks)) == 4


def test_every_way_to_project_has_a_colour_a_dash_and_a_sign_of_its_own():
    looks = (theme.VARIANT_COLOURS, theme.VARIANT_DASHES, theme.VARIANT_SIGNS)
    for look in looks:
        assert list(look) == list(VARIANTS)
    assert len(set(theme.VARIANT_COLOURS.values())) == len(VARIANTS)
    assert len(set(theme.VARIANT_SIGNS.values())) == len(VARIANTS)
    # The two that the claim compares are told apart by colour and sign; both are solid.
    dashes = [tuple(dash) for dash in theme.VARIANT_DASHES.values()]
    assert len(set(dashes)) == len(VARIANTS) - 1


def test_every_power_has_a_look_and_others_than_the_four_have_their_own():
    assert theme.divisor_look("d_k²") == ("#CC79A7", [2, 4])
    assert theme.divisor_look("d_k^0.75") == theme.divisor_look("d_k^3") == theme.OTHER_POWER
    colour, dash = theme.OTHER_POWER
    assert colour not in {*theme.DIVISOR_COLOURS.values(), theme.REAL, theme.SYNTHETIC}
    assert dash not in theme.DIVISOR_DASHES.values()
    assert min(contrast(colour, page) for page in ("#FFFFFF", "#0E1117")) >= 3


@pytest.mark.parametrize("blindness", COLOUR_BLINDNESS)
def test_another_power_keeps_apart_from_all_colours(blindness: str):
    matrix = np.array(COLOUR_BLINDNESS[blindness])
    others = [*theme.DIVISOR_COLOURS.values(), theme.REAL, theme.SYNTHETIC]
    own, *seen = (
        np.clip(matrix @ linear(colour), 0, 1) ** (1 / 2.2)
        for colour in (theme.OTHER_POWER[0], *others)
    )
    assert min(float(np.linalg.norm(own - other)) for other in seen) > 0.15
