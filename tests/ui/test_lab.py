"""Both sides of the scale lab against computations of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import saved_models
import torch

from attnviz import attention, head_moments, moments, synthetic
from attnviz.ui import lab_draws, lab_heads
from attnviz.ui.lab import POWER_NAMES, Setting, divisor_name, powers
from attnviz.ui.readings import Asked, Reading, served
from attnviz.ui.views import Place

TEXT = "The cat sat on the mat because it was tired."
PLACES = {
    "bundled": Place(Asked("bundled", TEXT), "decoder", 0, 2),
    "minilm": Place(Asked("minilm", TEXT), "encoder", 5, 11),
}
OF_A_ROW = ("positions", "query", "scores", "visible")
SETTING = Setting(d_k=13, n=7, seed=3)


# --- names


def test_the_four_divisors_are_those_of_the_simulation():
    assert {name: power for power, name in POWER_NAMES.items()} == synthetic.POWERS


def test_a_power_without_a_name_is_spelt_out():
    assert divisor_name(0.75) == "d_k^0.75"
    assert list(powers(0.75)) == ["1", "√d_k", "d_k", "d_k²", "d_k^0.75"]
    assert list(powers(1.0)) == ["1", "√d_k", "d_k", "d_k²"]


# --- what is drawn


def test_one_draw_serves_every_divisor():
    sides = {
        power: lab_draws.drawn(replace(SETTING, power=power)) for power in (0.0, 0.5, 0.85, 2.0)
    }
    row = sides[0.0].row
    for power, side in sides.items():
        np.testing.assert_array_equal(side.row["score"], row["score"])
        np.testing.assert_allclose(side.row["logit"], row["score"] / 13**power)
        assert side.variance == sides[0.0].variance
        assert side.reach == sides[0.0].reach


def test_at_d_k_1_all_divisors_draw_the_same_picture():
    """The widest promise of the page: nothing but the divisor makes the difference."""
    chain = lab_draws.drawn(Setting(d_k=1, n=11, seed=5, power=1.35)).chain
    by_divisor = chain.pivot(index="quantity", columns="divisor", values="mean")
    assert by_divisor.shape[1] == 5
    for name in by_divisor:
        np.testing.assert_array_equal(by_divisor[name], by_divisor["1"])


def test_seeds_make_the_draw():
    scores = lab_draws.drawn(SETTING).row["score"]
    assert scores.equals(lab_draws.drawn(replace(SETTING, power=1.0)).row["score"])
    assert not scores.equals(lab_draws.drawn(replace(SETTING, seed=4)).row["score"])


@pytest.mark.parametrize("entries", ["Gaussian", "Rademacher", "uniform", "Laplace", "normalised"])
def test_variances_are_those_of_the_closed_forms(entries):
    setting = replace(SETTING, entries=entries, query_std=1.5, key_mean=0.5, query_mean=0.25)
    side = lab_draws.drawn(setting)
    assert side.predicted == moments.variance(setting.vectors, 13)
    assert side.predicted_row == moments.row_variance(setting.vectors, 13)
    for measured, predicted in (
        (side.variance, side.predicted),
        (side.row_variance, side.predicted_row),
    ):
        assert measured[0] == pytest.approx(predicted, abs=4.5 * measured[1])


def test_the_chain_is_that_of_simulate():
    """The reference table's own definitions (theory: trials of q, keys and a loss gradient)."""
    found = lab_draws.drawn(replace(SETTING, d_k=64, n=8)).chain.set_index(["divisor", "quantity"])
    again = synthetic.simulate(64, 8, 8.0, lab_draws.TRIALS, 3)
    assert found.loc[("√d_k", "largest weight"), "mean"] == again.max_weight.mean()
    assert found.loc[("√d_k", "‖dL/dq‖"), "median"] == np.median(again.query_gradient_norm)
    error = found.loc[("√d_k", "largest weight"), "standard_error"]
    assert again.max_weight.mean() == pytest.approx(0.3607, abs=4 * np.hypot(error, 8.4e-4))


def test_maps_do_not_hang_on_what_they_have_all_of():
    wide = replace(SETTING, d_k=64, n=5, entries="Laplace")
    assert lab_draws.of_maps(wide) == lab_draws.of_maps(SETTING)
    assert lab_draws.of_maps(replace(wide, key_std=2.0)) != lab_draws.of_maps(SETTING)


# --- the head on screen


def vectors_of(place: Place) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Queries and keys as they were captured, which keys are seen, and the model's scale."""
    call = served(place.asked).calls(place.part)[place.layer]
    query = call.query[0, place.head].double().numpy()
    key = call.key[0, call.kv_head(place.head)].double().numpy()
    n = len(query)
    seen = np.tri(n, dtype=bool) if place.part == "decoder" else np.ones((n, n), dtype=bool)
    return query, key, seen, call.scale


@pytest.mark.parametrize("model", PLACES)
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.4])
def test_a_real_head_equals_an_independent_computation(model: str, power: float):
    place = PLACES[model]
    query, key, seen, _ = vectors_of(place)
    scores = query @ key.T
    d_k, n = query.shape[1], len(query)
    side = lab_heads.read(place, power, 8, seed=7)
    assert side is not None
    assert side.variance[0] == pytest.approx(scores[seen].var())
    rows = [scores[i][seen[i]] for i in range(n) if seen[i].sum() > 1]
    assert side.row_variance[0] == pytest.approx(np.mean([row.var(ddof=1) for row in rows]))
    logits = scores / d_k**power
    exponentials = np.where(seen, np.exp(logits - logits.max(1, keepdims=True, where=seen,
                                                             initial=-np.inf)), 0)  # fmt: skip
    weights = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(side.row["weight"], weights[8][seen[8]], atol=1e-12)
    np.testing.assert_allclose(side.row["score"], scores[8][seen[8]])
    several = seen.sum(1) > 1  # in a row of one key no divisor changes anything
    weights, seen = weights[several], seen[several]
    found = side.chain.set_index(["divisor", "quantity"])["mean"]
    assert found[(side.name, "largest weight")] == pytest.approx(weights.max(1).mean())
    assert side.even_weight == pytest.approx((1 / seen.sum(1)).mean())
    assert (side.even_keys, side.most_keys) == (seen.sum(1).mean(), n)
    entropy = -np.sum(np.where(weights > 0, weights * np.log(np.maximum(weights, 1e-300)), 0), 1)
    keys = seen.sum(1)
    relative = entropy / np.log(keys)
    name = (side.name, "entropy, relative to even weights")
    assert found[name] == pytest.approx(relative.mean())
    jacobians = [np.diag(p) - np.outer(p, p) for p in weights]
    lengths = [np.linalg.norm(jacobian) for jacobian in jacobians]
    assert found[(side.name, "‖J‖")] == pytest.approx(np.mean(lengths), rel=1e-6)
    times = -(-lab_heads.NUDGES // len(weights))
    loss = np.random.default_rng([7, times * len(weights), n]).standard_normal(
        (times, len(weights), n)
    )
    norms = [
        np.linalg.norm(key.T @ (j @ g) / d_k**power)
        for of_rows in loss
        for j, g in zip(jacobians, of_rows, strict=True)
    ]
    assert len(norms) >= lab_heads.NUDGES
    assert found[(side.name, "‖dL/dq‖")] == pytest.approx(np.mean(norms), rel=1e-6)
    median = side.marks.set_index(["divisor", "quantity"])["median"]
    assert median[(side.name, "‖dL/dq‖")] == pytest.approx(np.median(norms), rel=1e-6)


def test_gradients_of_a_head_hardly_hang_on_their_seed():
    """Thirteen rows, nudged often enough that two digits stand."""
    marks = [lab_heads.read(PLACES["bundled"], 0.5, 8, seed).marks for seed in (1, 7)]
    means = [mark.set_index(["divisor", "quantity"])["mean"]["√d_k", "‖dL/dq‖"] for mark in marks]
    assert means[0] == pytest.approx(means[1], rel=0.05)


def test_even_rows_have_all_of_their_entropy():
    chain = lab_heads.read(PLACES["bundled"], 2.0, 8, 7).chain.set_index(["divisor", "quantity"])
    assert chain.loc[("d_k²", "entropy, relative to even weights"), "mean"] > 0.999


def test_rows_of_one_key_count_only_where_there_is_no_other():
    asked = Asked("bundled", "cat")
    reading = served(asked)
    rows = head_moments.rows_of(reading.calls("decoder")[0], 1)
    first = replace(rows, **{name: getattr(rows, name)[:1] for name in OF_A_ROW})
    assert len(head_moments.of_several_keys(first).scores) == 1
    assert len(head_moments.of_several_keys(rows).scores) == len(rows.scores) - 1


@pytest.mark.parametrize("model", PLACES)
def test_why_it_is_not_d_k_by_an_independent_computation(model: str):
    place = PLACES[model]
    query, key, seen, scale = vectors_of(place)
    head = lab_heads.real_head(place)
    assert head is not None
    assert head.own_divisor == pytest.approx(1 / scale)
    found = head.moments
    assert found.query_length == pytest.approx(np.linalg.norm(query, axis=1).mean())
    assert found.key_mean_length == pytest.approx(np.linalg.norm(key.mean(0)))
    cosines = (query @ key.T) / np.outer(np.linalg.norm(query, axis=1), np.linalg.norm(key, axis=1))
    assert found.cosine == pytest.approx(cosines[seen].mean())
    assert head.cosines["share"].sum() == pytest.approx(1)


def test_the_models_own_weights_come_back_under_its_own_divisor():
    place = PLACES["minilm"]
    side = lab_heads.read(place, 0.5, 8, seed=7)
    assert side is not None

    call = served(place.asked).calls(place.part)[place.layer]
    own = attention.weights(call, place.head)[8].numpy()
    np.testing.assert_allclose(side.row["weight"], own, atol=1e-6)


def test_a_scale_that_is_none_of_the_four_has_a_row_of_its_own(tmp_path: Path):
    model = saved_models.save(tmp_path / "gemma2", "gemma2")
    place = Place(Asked(model, TEXT), "decoder", 0, 1)
    side = lab_heads.read(place, 0.5, 3, seed=1)
    assert side is not None
    *named, own = dict.fromkeys(side.chain["divisor"])
    assert named == ["1", "√d_k", "d_k", "d_k²"]
    call = served(place.asked).calls("decoder")[0]
    assert own == f"{1 / call.scale:.4g}, its own"
    four = lab_heads.read(PLACES["minilm"], 0.5, 3, seed=1)
    assert list(dict.fromkeys(four.chain["divisor"])) == named


def test_soft_cap_and_bias_are_the_models_own(tmp_path: Path):
    for family, part in (("gemma2", "decoder"), ("t5", "encoder")):
        model = saved_models.save(tmp_path / family, family)
        place = Place(Asked(model, TEXT, target="the king"), part, 1, 2)
        head = lab_heads.real_head(place)
        assert head is not None

        call = served(place.asked).calls(part)[1]
        own = attention.weights(call, 2)[4].double()
        side = lab_heads.read(place, float(np.log(head.own_divisor) / np.log(call.d_k)), 4, 1)
        assert side is not None
        np.testing.assert_allclose(side.row["weight"], own[own > 0], atol=1e-5)


def test_weights_without_queries_and_keys_have_no_side(monkeypatch: pytest.MonkeyPatch):
    place = Place(Asked("bundled", "weights only"), "decoder", 1, 3)
    reading = served(place.asked)
    calls = {1: replace(reading.calls("decoder")[1], query=None, key=None)}
    monkeypatch.setattr(Reading, "calls", lambda *_: calls)
    assert lab_heads.real_head(place) is None
    assert lab_heads.read(place, 0.5, 0, 1) is None
    assert lab_heads.layers(place.asked, "decoder").empty


@pytest.mark.parametrize("model", PLACES)
def test_layers_have_the_variances_of_their_heads(model: str):
    place = PLACES[model]
    table = lab_heads.layers(place.asked, place.part).set_index(["layer", "quantity"])
    calls = served(place.asked).calls(place.part)
    assert set(table.index.get_level_values(0)) == set(calls)
    query, key, seen, scale = vectors_of(place)
    scores = query @ key.T
    variance = np.mean([
        scores[i][seen[i]].var(ddof=1) for i in range(len(query)) if seen[i].sum() > 1
    ])  # fmt: skip
    row = table.loc[(place.layer, "scores")]
    assert row["low"] <= variance * (1 + 1e-9)
    assert variance <= row["high"] * (1 + 1e-9)
    logits = table.loc[(place.layer, "logits")]
    assert logits["variance"] == pytest.approx(row["variance"] * scale**2)
    assert torch.tensor(row["d_k"]).item() == query.shape[1]
