"""Histogram, weights of one row, saturation: each bar as long as its number."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from rendered import Rendered

from attnviz import lab_frames, synthetic
from attnviz.charts import chain, theme
from attnviz.moments import Vectors

D_K, N = 7, 5
DRAW = synthetic.draw(Vectors(), D_K, N, 300, 11)
POWERS = synthetic.POWERS | {"d_k^0.75": 0.75}
CHAIN = lab_frames.chain(
    {name: synthetic.measured(DRAW, synthetic.divisor(D_K, p)) for name, p in POWERS.items()}
)
QUANTITIES = [*chain.ENDS]
EVEN = dict(zip(QUANTITIES, (1 / N, 1.0, float(N)), strict=True))
CURVE = lab_frames.normal_curve(0.0, float(D_K), 1.0, (-12.0, 12.0))
NOTHING = lab_frames.normal_curve(0.0, 0.0, 1.0, (-12.0, 12.0))
ROW = pd.DataFrame(
    {
        "key": [0, 1, 2, 3, 4],
        "score": [2.0, -1.0, 0.5, 7.0, 0.0],
        "logit": [1.0, -0.5, 0.25, 3.5, 0.0],
        "weight": [0.25, 0.05, 0.1, 0.6, 0.0],
    }
)
WORDS = ["<s>", "the", "cat", "the", "cat"]


def bins_of(divisor: float, variance: float = D_K) -> pd.DataFrame:
    return lab_frames.histogram(DRAW.scores, divisor, 0.0, float(variance))


@pytest.mark.parametrize("divisor", ["1", "d_k²", "d_k^0.75"])
def test_bars_of_a_histogram_are_as_high_as_the_density(divisor: str):
    bins = bins_of(1.0)
    rects = Rendered(chain.histogram(bins, CURVE, "q·k", divisor, (-12.0, 12.0)).to_dict()).rects(0)
    seen = bins[bins["density"] > 0]
    assert len(rects) == len(seen)
    heights = np.array([rect.height for rect in rects])
    assert heights / heights.max() == pytest.approx(
        seen["density"] / seen["density"].max(), abs=1e-3
    )
    assert {rect.looks["fill"] for rect in rects} == {theme.divisor_look(divisor)[0]}


def test_the_axis_reaches_as_far_whatever_the_bins():
    widths = []
    for divisor in (1.0, 4.0):
        spec = chain.histogram(bins_of(divisor), CURVE, "q·k", "1", (-12.0, 13.0)).to_dict()
        x = spec["layer"][0]["encoding"]["x"]
        assert x["scale"]["domain"] == [-12, 13]
        assert x["title"] == "q·k"
        widths.append(Rendered(spec).rects(0)[0].width)
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)


def test_the_predicted_line_is_left_out_where_nothing_is_predicted():
    with_line = chain.histogram(bins_of(1.0), CURVE, "q·k", "d_k", (-9.0, 9.0)).to_dict()
    assert [layer["mark"]["type"] for layer in with_line["layer"]] == ["rect", "line"]
    assert with_line["layer"][1]["mark"]["strokeDash"] == theme.DIVISOR_DASHES["d_k"]
    without = chain.histogram(bins_of(1.0, 0.0), NOTHING, "q·k", "d_k", (-9.0, 9.0)).to_dict()
    assert [layer["mark"]["type"] for layer in without["layer"]] == ["rect"]
    assert Rendered(without).rects(0)


def test_a_histogram_narrower_than_a_pixel_is_still_seen():
    spec = chain.histogram(bins_of(4096.0), CURVE, "q·k", "d_k²", (-12.0, 12.0)).to_dict()
    rects = Rendered(spec).rects(0)
    assert max(rect.width for rect in rects) < 0.1
    assert {float(rect.looks["stroke-width"]) for rect in rects} == {chain.THINNEST}
    wide = Rendered(
        chain.histogram(bins_of(1.0), CURVE, "q·k", "1", (-12.0, 12.0)).to_dict()
    ).rects(0)
    assert {float(rect.looks["stroke-width"]) for rect in wide} == {0}


def test_tooltips_of_a_histogram_tell_measured_and_predicted():
    bars = chain.histogram(bins_of(1.0), CURVE, "q·k", "1", (-9.0, 9.0)).to_dict()["layer"][0]
    fields = [x["field"] for x in bars["encoding"]["tooltip"]]
    assert fields == ["left", "right", "density", "predicted"]


def test_cosines_are_bars_of_the_real_colour_from_minus_1_to_1():
    shares = lab_frames.cosines(torch.tensor([-1.0, 0.02, 0.03, 0.99, 1.0], dtype=torch.float64))
    spec = chain.cosines(shares).to_dict()
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [-1, 1]
    rendered = Rendered(spec)
    bars = [rect for rect in rendered.rects(0) if rect.height > 0]
    assert [bar.height / bars[0].height for bar in bars] == pytest.approx([1, 2, 2])
    assert {bar.looks["fill"] for bar in bars} == {theme.REAL}
    (zero,) = rendered.rules(1)
    assert zero[0] == pytest.approx(bars[1].left, abs=0.1)


@pytest.mark.parametrize("width", [330, 900])
def test_weights_are_bars_on_a_scale_from_0_to_1(width: int):
    rects = Rendered(chain.weights(ROW, "√d_k").to_dict(), width).rects(0)
    heights = [rect.height / theme.KEY_BARS_HEIGHT for rect in rects]
    assert heights == pytest.approx(ROW["weight"].tolist(), abs=1e-3)
    assert {rect.looks["fill"] for rect in rects} == {theme.DIVISOR_COLOURS["√d_k"]}
    assert np.ptp(np.diff([rect.middle for rect in rects])) < 0.01


def test_equal_words_stay_apart_at_their_places():
    rendered = Rendered(chain.weights(ROW.assign(token=WORDS), "1").to_dict())
    labels = rendered.labels()[: len(WORDS)]
    assert [label.words for label in labels] == WORDS
    assert np.ptp(np.diff([label.x for label in labels])) < 0.01


def test_keys_that_are_not_seen_leave_their_place_free():
    seen = ROW.assign(token=WORDS, key=[3, 4, 7, 8, 9])
    rendered = Rendered(chain.weights(seen, "1").to_dict())
    middles = np.array([rect.middle for rect in rendered.rects(0)])
    assert np.diff(middles) / (middles[1] - middles[0]) == pytest.approx([1, 3, 1, 1], abs=1e-3)
    assert [label.words for label in rendered.labels()[:5]] == WORDS


def test_many_keys_are_numbered_and_not_named():
    scores = torch.linspace(-3, 9, 512, dtype=torch.float64)
    row = lab_frames.row(scores, 1.0).assign(token="word")
    spec = chain.weights(row, "d_k").to_dict()
    rendered = Rendered(spec, 330)
    assert len(rendered.rects(0)) == 512
    assert [label.words for label in rendered.labels()[:4]] == ["0", "64", "128", "192"]
    assert len(json.dumps(spec)) < 80_000


def test_a_strong_weight_among_many_keys_is_still_seen():
    row = lab_frames.row(torch.tensor([9.0] + 511 * [0.0], dtype=torch.float64), 1.0)
    strong, *rest = Rendered(chain.weights(row, "1").to_dict(), 330).rects(0)
    assert strong.width < 1
    assert float(strong.looks["stroke-width"]) == chain.THINNEST
    assert {float(rect.looks["stroke-width"]) for rect in rest} == {0}


def test_words_of_a_text_cannot_break_out_of_the_chart():
    words = ["</script>", '"quoted"', "back\\slash", "'", "${x}"]
    labels = Rendered(chain.weights(ROW.assign(token=words), "1").to_dict(), 900).labels()
    assert [label.words for label in labels[:5]] == words


def test_one_key_alone_is_drawn():
    rects = Rendered(chain.weights(ROW.iloc[:1].assign(weight=1.0), "1").to_dict()).rects(0)
    assert [rect.height for rect in rects] == pytest.approx([theme.KEY_BARS_HEIGHT])


def test_a_query_that_sees_no_key_has_an_empty_row():
    nothing = Rendered(chain.weights(ROW.assign(token=WORDS).iloc[:0], "1").to_dict())
    assert nothing.rects(0) == []


def rows_of(quantity: str) -> pd.DataFrame:
    return CHAIN[(CHAIN["stage"] == "saturation") & (CHAIN["quantity"] == quantity)]


def along(quantity: str, values: pd.Series) -> np.ndarray:
    """How far along its axis a number is, from 0 to 1."""
    counted = quantity == "effective number of keys"
    return np.log(values.to_numpy()) / math.log(N) if counted else values.to_numpy()


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("width", [330, 900])
def test_each_divisor_has_a_bar_up_to_its_mean_and_a_line_at_its_median(quantity: str, width: int):
    rows = rows_of(quantity)
    spec = chain.saturation(CHAIN, quantity, EVEN[quantity], N).to_dict()
    rendered = Rendered(spec, width)
    rects = rendered.rects(0)
    whole = max(
        rect.width / far for rect, far in zip(rects, along(quantity, rows["mean"]), strict=True)
    )
    assert [rect.width / whole for rect in rects] == pytest.approx(
        along(quantity, rows["mean"]), abs=2e-3
    )
    medians = [(x - rects[0].left) / whole for x, *_ in rendered.rules(2)]
    assert medians == pytest.approx(along(quantity, rows["median"]), abs=2e-3)
    errors = [(x - rects[0].left, across) for x, _, across, _ in rendered.rules(1)]
    ends = np.sort([(x / whole, (x + across) / whole) for x, across in errors])
    assert ends[:, 0] == pytest.approx(
        along(quantity, rows["mean"] - rows["standard_error"]), abs=2e-3
    )
    assert ends[:, 1] == pytest.approx(
        along(quantity, rows["mean"] + rows["standard_error"]), abs=2e-3
    )
    assert [rect.looks["fill"] for rect in rects] == [
        theme.divisor_look(name)[0] for name in rows["divisor"]
    ]
    assert np.all(np.diff([rect.middle_y for rect in rects]) > 0)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_names_numbers_and_ends_are_written(quantity: str):
    rows = rows_of(quantity)
    rendered = Rendered(chain.saturation(CHAIN, quantity, EVEN[quantity], N).to_dict())
    numbers = [text.words for text in rendered.texts(3)]
    assert numbers == list(map(chain.written, rows["mean"], rows["standard_error"]))
    words = rendered.words()
    for name in POWERS:
        assert f"÷ {name}" in words
    assert quantity in words
    assert {"largest weight": "0.2: even", "effective number of keys": "5: even"}.get(
        quantity, "1: even"
    ) in words


@pytest.mark.parametrize(
    ("mean", "error", "said"),
    [
        (0.79112, 0.0014, "0.791 ± 0.001"),
        (0.0157, 1e-7, "0.0157"),
        (39.96, 1.2, "40 ± 1"),
        (63.99998, 1e-7, "64.00"),
        (313.2, 0.7, "313.2 ± 0.7"),
        (0.5, math.nan, "0.5"),
        (1.0, 0.0, "1"),
        (0.0, 0.02, "0.00 ± 0.02"),
        (1234.5, 20.0, "1234 ± 20"),
    ],
)
def test_means_have_the_digits_that_their_error_leaves_them(mean: float, error: float, said: str):
    assert chain.written(mean, error) == said


def test_a_single_row_has_a_bar_but_no_error():
    frame = CHAIN.assign(standard_error=np.nan)
    rendered = Rendered(chain.saturation(frame, "largest weight", 1 / N, N).to_dict())
    assert len(rendered.rects(0)) == 5
    assert "NaN" not in rendered.words()


def test_one_key_alone_has_an_axis():
    frame = CHAIN.assign(mean=1.0, median=1.0, standard_error=0.0)
    spec = chain.saturation(frame, "effective number of keys", 1.0, 1).to_dict()
    assert {rect.width for rect in Rendered(spec).rects(0)} == {0}


def test_equal_input_gives_equal_charts():
    for build in (
        lambda: chain.histogram(bins_of(1.0), CURVE, "q·k", "1", (-9.0, 9.0)),
        lambda: chain.weights(ROW, "1"),
        lambda: chain.saturation(CHAIN, QUANTITIES[0], 1 / N, N),
    ):
        assert build().to_dict() == build().to_dict()
