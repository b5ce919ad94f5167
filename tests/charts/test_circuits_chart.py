"""Charts of a head's products: the marks that are drawn."""

from __future__ import annotations

import base64
import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rendered import Rendered
from test_matrix import parameters

from attnviz import circuits_frames as frames
from attnviz.charts import circuits, theme
from attnviz.circuits import Spectrum

WORDS = ["[CLS]", "the", "cat", "the", "[SEP]"]
TOKENS = pd.DataFrame({"position": range(7, 12), "token": WORDS}).set_index("position", drop=False)
SCORES = pd.DataFrame(
    torch.randn(5, 5, generator=torch.Generator().manual_seed(3)).numpy(),
    TOKENS.index,
    TOKENS.index,
)
TOP = float(SCORES.abs().max().max())
SHARES = frames.shares(
    {(0, 0): (0.25, 0.3), (0, 1): (0.75, 0.7), (1, 0): (0.9, 0.8)},
    (0, 1),
    [(0.45, 0.5), (0.55, 0.5)],
)
SPECTRUM = frames.spectra({"": Spectrum(torch.tensor([5.0, 3.0, 2.0]).double(), 66, 121)})


def scores(turned: bool) -> dict:
    return circuits.scores(SCORES, TOKENS, (8, 11), TOP, turned).to_dict()


def cells(spec: dict) -> np.ndarray:
    """One pixel of each cell, with its opacity."""
    layer = spec["layer"][0]
    url = spec["datasets"][layer["data"]["name"]][0]["picture"]
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    return picture[:: len(picture) // 5, :: len(picture) // 5][:5, :5]


def test_turned_scores_are_the_same_picture_across_the_diagonal():
    plain, turned = cells(scores(False)), cells(scores(True))
    assert np.array_equal(turned, plain.transpose(1, 0, 2))
    assert not np.array_equal(turned, plain)


def test_axes_of_turned_scores_change_places():
    for turned, x, y in ((False, "key", "query"), (True, "query", "key")):
        encoding = scores(turned)["layer"][0]["encoding"]
        assert encoding["x"]["title"].startswith(f"{x}: the token")
        assert encoding["y"]["title"].startswith(f"{y}: the token")


def test_the_pair_is_told_at_rest_in_both_directions():
    """Of S the score of 8 looking at 11, of Sᵀ that of 11 looking at 8."""
    for turned, told, value in (
        (False, "query 8 the  →  key 11 [SEP]", SCORES.loc[8, 11]),
        (True, "query 11 [SEP]  →  key 8 the", SCORES.loc[11, 8]),
    ):
        title = next(
            text.words
            for text in Rendered(scores(turned))._texts("role-title-text")
            if "→" in text.words
        )
        written = title.removeprefix(f"{told}:  ").replace("−", "-")
        assert float(written) == pytest.approx(value, abs=0.006)


def test_both_cells_of_the_pair_are_framed():
    spec = scores(False)
    layer = spec["layer"][-1]
    framed = spec["datasets"][layer["data"]["name"]]
    assert [(cell["top"], cell["left"]) for cell in framed] == [(1, 4), (4, 1)]
    assert parameters(spec)["key_at"].endswith(": 4")


def test_shares_stand_where_they_are():
    rendered = Rendered(circuits.shares(SHARES).to_dict())
    (zero, half, one) = (x for x, *_ in rendered.rules(0))
    (this,), others = rendered.points(4), rendered.points(5)
    assert this[0] == pytest.approx(zero + 0.75 * (one - zero), abs=0.01)
    assert sorted(x for x, _ in others) == pytest.approx(
        [zero + share * (one - zero) for share in (0.25, 0.9)], abs=0.01
    )
    drawn = [rect.middle for rect in rendered.rects(6)]
    assert drawn == pytest.approx([half - 0.05 * (one - zero), half + 0.05 * (one - zero)], abs=1)
    assert {rect.looks["fill"] for rect in rendered.rects(6)} == {theme.SYNTHETIC}
    words = rendered.words()
    for name in ("this head", "other heads", "random vectors", "1: Q = K", "½: nothing shared"):
        assert name in words


def test_a_model_of_one_head_has_no_others():
    alone = SHARES[SHARES["of"] != "other heads"]
    assert "other heads" not in Rendered(circuits.shares(alone).to_dict()).words()


def test_singular_values_and_the_bound_of_the_rank():
    rendered = Rendered(circuits.spectrum(SPECTRUM, 3, 11).to_dict(), 700)
    points = rendered.points(0)
    across, down = np.array(points).T
    assert np.corrcoef(down, SPECTRUM["value"])[0, 1] == pytest.approx(-1)
    ((bound, *_),) = rendered.rules(1)
    assert bound == pytest.approx(across[2] + (across[2] - across[1]) / 2, abs=0.01)
    ((start, zero, length, _),) = rendered.rules(3)
    assert start > bound
    assert length > 0
    slope, origin = np.polyfit(SPECTRUM["value"], down, 1)
    assert zero == pytest.approx(origin, abs=0.01)
    assert slope < 0
    words = rendered.words()
    assert "rank at most 3" in words
    assert "0, up to number 11" in words


def test_a_name_stands_above():
    assert "W_OV" in Rendered(circuits.spectrum(SPECTRUM, 3, 11, "W_OV").to_dict()).words()


def test_a_head_as_wide_as_the_model_has_nothing_beyond():
    words = Rendered(circuits.spectrum(SPECTRUM, 3, 3).to_dict()).words()
    assert "up to number" not in words


@pytest.mark.parametrize(
    "chart",
    [
        circuits.scores(SCORES, TOKENS, (8, 11), TOP),
        circuits.scores(SCORES, TOKENS, (8, 8), TOP, turned=True),
        circuits.shares(SHARES),
        circuits.spectrum(SPECTRUM, 3, 11),
    ],
)
def test_specs_are_those_of_the_schema(chart):
    assert chart.to_dict(validate=True)
