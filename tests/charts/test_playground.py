"""The playground's charts: the drawn data and the axes."""

from __future__ import annotations

import pytest
import torch

from attnviz import frames, synthetic
from attnviz.charts import playground, theme


@pytest.mark.parametrize("quantity", playground.QUANTITY_COLOURS)
def test_histograms_of_both_quantities_share_their_axis(quantity: str):
    bins = frames.score_histogram(synthetic.sample_scores(9, 1, 500, 1)[:, 0], 9)
    spec = playground.score_histogram(bins, quantity).to_dict()
    bars, line = spec["layer"]
    assert bars["encoding"]["x"]["scale"]["domain"] == [-12, 12]
    assert bars["encoding"]["y"]["field"] == "density"
    assert line["encoding"]["y"]["field"] == "predicted"
    expected = bins[bins["quantity"] == quantity].to_dict("records")
    assert next(iter(spec["datasets"].values())) == expected


def test_softmax_row_draws_its_weights_from_0_to_1():
    rows = frames.softmax_rows(torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64), 4)
    row = rows[rows["divisor"] == "d_k"]
    spec = playground.softmax_row(row).to_dict()
    assert spec["encoding"]["y"]["scale"]["domain"] == [0, 1]
    assert spec["mark"]["color"] == theme.DIVISOR_COLOURS["d_k"]
    (drawn,) = spec["datasets"].values()
    assert [r["weight"] for r in drawn] == row["weight"].tolist()
