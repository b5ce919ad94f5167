"""The scale lab's frames: columns, hand-worked cases and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from calls_by_hand import plain_call

from attnviz import head_moments, lab_frames, moments, synthetic
from attnviz.moments import DISTRIBUTIONS, Distribution, Vectors

D_K, N, TRIALS = 6, 11, 2000


@pytest.fixture(scope="module")
def drawn() -> synthetic.Draw:
    return synthetic.draw(Vectors(), D_K, N, TRIALS, seed=61)


@pytest.fixture(scope="module")
def simulations(drawn: synthetic.Draw) -> dict[str, synthetic.Simulation]:
    return {
        name: synthetic.measured(drawn, synthetic.divisor(D_K, power))
        for name, power in synthetic.POWERS.items()
    }


# --- histogram


def test_histogram_counts_the_scores_under_their_divisor(drawn: synthetic.Draw):
    divisor = D_K**0.5
    bins = lab_frames.histogram(drawn.scores, divisor, 0.0, float(D_K))
    assert list(bins) == ["left", "right", "density", "predicted"]
    assert bins["right"].max() == -bins["left"].min() == pytest.approx(4.0)
    logits = drawn.scores.numpy().ravel() / divisor
    third = bins.iloc[20]
    inside = ((logits >= third["left"]) & (logits < third["right"])).mean()
    width = third["right"] - third["left"]
    assert third["density"] * width == pytest.approx(inside)
    left, right = (0.5 * (1 + math.erf(third[end] / 2**0.5)) for end in ("left", "right"))
    assert third["predicted"] * width == pytest.approx(right - left)


def test_histogram_is_the_same_picture_under_every_divisor(drawn: synthetic.Draw):
    plain = lab_frames.histogram(drawn.scores, 1.0, 1.5, 6.0)
    divided = lab_frames.histogram(drawn.scores, 4.0, 1.5, 6.0)
    for name, factor in (("left", 1 / 4), ("right", 1 / 4), ("density", 4), ("predicted", 4)):
        np.testing.assert_allclose(divided[name], factor * plain[name])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_at_many_entries_every_histogram_follows_the_normal_one(distribution: Distribution):
    vectors, d_k = Vectors(distribution, 1.5, 0.5), 64
    scores = synthetic.pair_scores(vectors, d_k, 40_000, seed=62)
    bins = lab_frames.histogram(
        scores, 2.0, 0.0, moments.variance(vectors, d_k), lab_frames.step_of(vectors)
    )
    width = (bins["right"] - bins["left"]).to_numpy()
    share, predicted = bins["density"] * width, bins["predicted"] * width
    assert predicted.sum() == pytest.approx(1, abs=0.002)
    assert float((share - predicted).abs().sum()) < 0.08


@pytest.mark.parametrize("d_k", [1, 2, 5, 64, 1024])
def test_bins_of_steps_hold_equally_many_steps(d_k: int):
    vectors = Vectors("Rademacher", 0.5, 3.0)
    bins = lab_frames.histogram(
        torch.full((1,), 1.5 * d_k, dtype=torch.float64),  # all signs agree
        1.0,
        0.0,
        moments.variance(vectors, d_k),
        lab_frames.step_of(vectors),
    )
    possible = 1.5 * np.arange(-d_k - 60, d_k + 61, 2)
    within = possible[(possible > bins["left"].min()) & (possible < bins["right"].max())]
    counts, _ = np.histogram(within, [*bins["left"], bins["right"].iloc[-1]])
    assert len(set(counts)) == 1
    edges = np.array([*bins["left"], bins["right"].iloc[-1]])
    assert np.abs(edges[:, None] - possible).min() > 0.1
    assert bins["left"].min() <= -4 * 1.5 * d_k**0.5 + 1.5
    assert len(bins) <= lab_frames.BINS + 2


def test_scores_that_can_be_anything_have_no_step():
    assert lab_frames.step_of(Vectors("Rademacher", 2.0, 3.0)) == 12.0
    assert lab_frames.step_of(Vectors("Rademacher", query_mean=0.5)) == 0.0
    assert lab_frames.step_of(Vectors("uniform")) == 0.0


def test_without_variance_nothing_is_predicted():
    bins = lab_frames.histogram(torch.full((3,), 5.0, dtype=torch.float64), 2.0, 5.0, 0.0)
    assert bins["predicted"].isna().all()
    assert float((bins["density"] * (bins["right"] - bins["left"])).sum()) == pytest.approx(1)


# --- rows and the chain


def test_row_by_hand():
    row = lab_frames.row(torch.tensor([0.0, 2.0], dtype=torch.float64), divisor=2.0)
    assert row.to_dict("list") == {
        "key": [0, 1],
        "score": [0.0, 2.0],
        "logit": [0.0, 1.0],
        "weight": pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)]),
    }


def test_few_values_have_few_bins():
    values = torch.arange(5000.0, dtype=torch.float64)
    assert len(lab_frames.histogram(values[:91], 1.0, 45.0, 700.0)) == lab_frames.FEWEST_BINS
    assert len(lab_frames.histogram(values, 1.0, 2500.0, 2e6)) == 34  # 2 ∛5000 = 34.2


def test_bins_may_lie_elsewhere_than_what_is_predicted():
    values = torch.tensor([[5.0, 7.0, 9.0]], dtype=torch.float64)
    bins = lab_frames.histogram(values, 1.0, 0.0, 4.0, around=(7.0, 2.0))
    assert (bins["left"].min(), bins["right"].max()) == (-1.0, 15.0)
    first = bins.iloc[0]
    share = (first["right"] - first["left"]) * first["predicted"]
    below = [0.5 * (1 + math.erf(first[end] / 8**0.5)) for end in ("left", "right")]
    assert share == pytest.approx(below[1] - below[0])


@pytest.mark.parametrize("d_k", [1, 2, 4, 101])
def test_bars_of_steps_stand_about_their_values(d_k: int):
    signs = Vectors("Rademacher")
    scores = synthetic.pair_scores(signs, d_k, 4000, seed=3)
    bins = lab_frames.histogram(scores, 1.0, 0.0, float(d_k), lab_frames.step_of(signs))
    middles = (bins["left"] + bins["right"]) / 2
    assert set(middles[bins["density"] > 0] % 2) == {d_k % 2}  # as many odd terms as there are
    assert (bins["density"] * (bins["right"] - bins["left"])).sum() == pytest.approx(1, abs=1e-3)


def test_the_normal_curve_is_as_high_as_its_density():
    curve = lab_frames.normal_curve(3.0, 4.0, 2.0, (-100.0, 100.0))
    top = curve.loc[curve["predicted"].idxmax()]
    assert top["x"] == pytest.approx(1.5)
    assert top["predicted"] == pytest.approx(1 / math.tau**0.5)  # standard deviation 1
    area = np.trapezoid(curve["predicted"], curve["x"])
    assert area == pytest.approx(1, abs=1e-4)
    assert lab_frames.normal_curve(3.0, 4.0, 2.0, (0.0, 2.0))["x"].between(0, 2).all()
    assert lab_frames.normal_curve(3.0, 0.0, 2.0, (0.0, 2.0)).empty


def test_keys_of_a_text_have_their_labels():
    logits = torch.tensor([1.0, -math.inf, 2.0], dtype=torch.float64)
    row = lab_frames.row_of(logits, logits, logits.softmax(-1), ["a", "b", "a"])
    assert list(row["token"]) == ["a", "a"]
    assert list(row["key"]) == [0, 2]


def test_row_of_a_head_leaves_hidden_keys_out():
    numbers = torch.tensor([[3.0, 4.0, 5.0], [1.0, -torch.inf, 2.0], [0.3, 0.0, 0.7]])
    row = lab_frames.row_of(*numbers.double())
    assert row["key"].tolist() == [0, 2]
    assert row["score"].tolist() == [3.0, 5.0]
    assert row["weight"].tolist() == pytest.approx([0.3, 0.7])


def test_chain_is_the_mean_of_the_rows(simulations: dict[str, synthetic.Simulation]):
    chain = lab_frames.chain(simulations)
    assert list(chain["divisor"].unique()) == list(synthetic.POWERS)
    assert list(chain["stage"].unique()) == ["logits", "saturation", "gradient"]
    one = chain[(chain["divisor"] == "√d_k") & (chain["quantity"] == "largest weight")].iloc[0]
    values = simulations["√d_k"].max_weight
    assert one["mean"] == pytest.approx(values.mean())
    assert one["median"] == pytest.approx(np.median(values))
    assert one["standard_error"] == pytest.approx(values.std(ddof=1) / TRIALS**0.5)


def test_chain_of_one_row_has_no_error():
    chain = lab_frames.chain({"1": synthetic.simulate(3, 5, 1.0, 1, seed=1)})
    assert chain["standard_error"].isna().all()


# --- variance against d_k


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_variance_curve_agrees_with_its_closed_form(distribution: Distribution):
    vectors = Vectors(distribution, 1.5, 0.7, 0.4, -0.3, 0.6)
    curve = lab_frames.variance_curve(vectors, [1, 3, 16], 4000, 63, synthetic.POWERS)
    assert len(curve) == 12
    off = (curve["variance"] - curve["predicted"]) / curve["standard_error"]
    assert off.abs().max() < 4
    one = curve[(curve["d_k"] == 16) & (curve["divisor"] == "d_k")].iloc[0]
    assert one["predicted"] == pytest.approx(moments.variance(vectors, 16) / 16**2)
    assert one["row_variance"] == pytest.approx(moments.row_variance(vectors, 16) / 16**2)
    assert one["predicted_kurtosis"] == moments.excess_kurtosis(vectors, 16)
    assert abs(one["kurtosis"] - one["predicted_kurtosis"]) < 5 * one["kurtosis_error"]


def test_at_d_k_1_every_divisor_has_the_same_variance():
    curve = lab_frames.variance_curve(Vectors(), [1], 100, 64, synthetic.POWERS)
    for name in ("variance", "standard_error", "predicted"):
        assert curve[name].nunique() == 1


def test_without_variance_the_curve_has_no_kurtosis():
    curve = lab_frames.variance_curve(Vectors(query_std=0.0), [3], 100, 65, {"1": 0.0})
    assert curve[["variance", "predicted"]].to_numpy().tolist() == [[0.0, 0.0]]
    assert curve["kurtosis"].isna().all()


# --- saturation


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_saturation_map_agrees_with_the_simulation(power: float):
    vectors = Vectors("Gaussian", 1.2, 0.9, 0.4, 0.8, 0.5)
    table = lab_frames.saturation_map(vectors, [1, 6], [2, 11], power, 4000, seed=66)
    assert table[["d_k", "n"]].to_numpy().tolist() == [[1, 2], [1, 11], [6, 2], [6, 11]]
    for cell in table.itertuples():
        drawn = synthetic.draw(vectors, cell.d_k, cell.n, 4000, seed=67)
        simulated = synthetic.measured(drawn, synthetic.divisor(cell.d_k, power))
        for ours, theirs in (
            (cell.largest_weight, simulated.max_weight),
            (cell.entropy, simulated.relative_entropy),
        ):
            error = theirs.std() / 4000**0.5
            assert ours == pytest.approx(theirs.mean(), abs=4 * 2**0.5 * error + 1e-9)
        within = (moments.row_variance(vectors, cell.d_k) ** 0.5) / cell.d_k**power
        assert cell.std == pytest.approx(within)


def test_saturation_of_rows_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]], dtype=torch.float64)
    largest, entropy = lab_frames._saturation(logits)
    assert largest == pytest.approx((0.75 + 0.5) / 2)
    of_first = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert entropy == pytest.approx((of_first + 1) / 2)
    one_hot = torch.tensor([[0.0, 1e5]], dtype=torch.float64)
    assert lab_frames._saturation(one_hot) == (1.0, 0.0)
    assert lab_frames._saturation(one_hot[:, :1]) == (1.0, 0.0)


def test_freezing_line():
    line = lab_frames.freezing_line(Vectors(), [8, 64], 0.0)
    assert line["d_k"].tolist() == pytest.approx([2 * math.log(8), 2 * math.log(64)])
    assert lab_frames.freezing_line(Vectors(), [8, 64], 0.5).empty
    assert lab_frames.freezing_line(Vectors(), [1], 0.0).empty


# --- gradients


def test_gradient_bins_count_every_row_once(simulations: dict[str, synthetic.Simulation]):
    bins = lab_frames.gradients(simulations)
    shares = bins.groupby(["divisor", "quantity"], sort=False)["share"].sum()
    assert len(shares) == 12
    np.testing.assert_allclose(shares, 1)
    ratio = bins["right"] / bins["left"]
    np.testing.assert_allclose(ratio, 10 ** (1 / lab_frames.BINS_PER_DECADE))
    values = simulations["d_k"].query_gradient_norm
    of_d_k = bins[(bins["divisor"] == "d_k") & (bins["quantity"] == lab_frames.QUERY_GRADIENT)]
    fullest = of_d_k.loc[of_d_k["share"].idxmax()]
    inside = (values >= fullest["left"]) & (values < fullest["right"])
    assert fullest["share"] == pytest.approx(inside.mean())
    assert of_d_k["least"].sum() == 1


def test_gradients_of_nothing_are_in_the_first_bin():
    still = synthetic.measured(synthetic.draw(Vectors(), 3, 1, 7, seed=1), 1.0)
    bins = lab_frames.gradients({"1": still})
    assert (bins["share"] == bins["least"]).all()


def test_marks_are_mean_median_and_root_mean_square(simulations: dict[str, synthetic.Simulation]):
    marks = lab_frames.gradient_marks(simulations).set_index(["divisor", "quantity"])
    one, values = marks.loc[("1", "‖J‖")], simulations["1"].jacobian_norm
    assert one["mean"] == pytest.approx(values.mean())
    assert one["median"] == pytest.approx(np.median(values))
    assert one["rms"] == pytest.approx(np.linalg.norm(values) / TRIALS**0.5)


# --- a real head


def test_frames_of_a_real_head():
    query = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]])
    rows = head_moments.rows_of(plain_call(query=query, key=query, value=query, scale=1.0), 0)
    table = lab_frames.head_moments(head_moments.moments_of(rows))
    assert list(table) == ["of", "quantity", "value"]
    values = dict(zip(table["quantity"], table["value"], strict=True))
    # Scores are 1, 0 / 0, 4: mean 1.25, variances ½ and 8 within the rows.
    assert values["mean"] == 1.25
    assert values["variance, pooled"] == pytest.approx(17 / 4 - 1.25**2)
    assert values["unbiased variance within a row, mean over rows"] == pytest.approx(4.25)
    assert values["of it between rows"] == pytest.approx(0.75**2)
    assert values["mean ‖q‖"] == 1.5
    assert values["mean cosine"] == 0.5
    assert values["variance, if entries were independent of variance 1"] == 2.0
    bins = lab_frames.cosines(head_moments.cosines(rows))
    assert bins["share"].sum() == 1
    assert bins["share"].iloc[-1] == 0.5
    assert bins.loc[bins["left"].abs() < 1e-9, "share"].item() == 0.5


def test_layers_have_the_mean_and_the_range_of_their_heads():
    dice = torch.Generator().manual_seed(68)
    query, key = torch.randn(2, 1, 3, 5, 7, generator=dice)
    call = plain_call(query=query, key=key, value=key, scale=0.5)
    heads = [head_moments.moments_of(head_moments.rows_of(call, head)) for head in range(3)]
    table = lab_frames.layer_variances({4: heads, 9: heads[:1]})
    assert table["layer"].tolist() == [4, 4, 9, 9]
    assert table["d_k"].unique().tolist() == [7]
    scores, logits = table.iloc[0], table.iloc[1]
    within = (query[0].double() @ key[0].double().mT).var(-1).mean(-1)
    assert scores["variance"] == pytest.approx(float(within.mean()))
    assert [scores["low"], scores["high"]] == pytest.approx(
        [float(within.min()), float(within.max())]
    )
    assert logits["variance"] == pytest.approx(scores["variance"] / 4)
    pooled = (query[0].double() @ key[0].double().mT).flatten(1).var(-1, correction=0).mean()
    assert logits["pooled"] == pytest.approx(float(pooled) / 4)
