"""Symmetry and the two products as pages ask for them, against NumPy and the model's parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import saved_models
from heads_reference import long_text
from roles_on_a_model_page import TEXT

from attnviz.ui import circuits
from attnviz.ui.readings import Asked, NotServed, loaded, served
from attnviz.ui.views import Place

PLACES = {
    "bundled": Place(Asked("bundled", TEXT), "decoder", 1, 2),
    "minilm": Place(
        Asked("minilm", "The cat sat on the mat, since it was tired."), "encoder", 4, 7
    ),
}
WORDS = "the cat sat on the mat because it was tired"


def scores_of(place: Place) -> np.ndarray:
    call = served(place.asked, None).calls(place.part)[place.layer]
    query = call.query[0, place.head].double().numpy()
    return query @ call.key[0, call.kv_head(place.head)].double().numpy().T


def share_of(scores: np.ndarray) -> float:
    apart = ~np.eye(len(scores), dtype=bool)
    return float((((scores + scores.T) / 2) ** 2)[apart].sum() / (scores**2)[apart].sum())


@pytest.mark.parametrize("model", PLACES)
def test_scores_before_the_mask_and_their_share(model: str):
    place = PLACES[model]
    found, real = circuits.symmetry(place, 0), scores_of(place)
    np.testing.assert_allclose(found.scores.to_numpy(), real, atol=1e-4)
    assert found.scores.notna().all().all()
    assert found.share == pytest.approx(share_of(real), abs=1e-9)
    assert found.top == pytest.approx(abs(real).max(), abs=1e-4)
    call = served(place.asked).calls(place.part)[place.layer]
    query, key = (x.double().numpy() for x in (call.query[0, place.head], call.key[0, place.head]))
    centred = (query - query.mean(0)) @ (key - key.mean(0)).T
    assert found.centred == pytest.approx(share_of(centred), abs=1e-9)


@pytest.mark.parametrize("model", PLACES)
def test_the_pair_is_that_whose_directions_differ_most(model: str):
    place = PLACES[model]
    found, real = circuits.symmetry(place, 0).pair, scores_of(place)
    assert found is not None
    apart = real - real.T
    assert (found.query, found.key) == np.unravel_index(apart.argmax(), apart.shape)
    assert found.forth == pytest.approx(real[found.query, found.key], abs=1e-4)
    assert found.back == pytest.approx(real[found.key, found.query], abs=1e-4)
    assert found.forth > found.back


def test_every_head_of_the_part_has_a_share():
    place = PLACES["bundled"]
    table = circuits.symmetry(place, 0).shares
    real = table[table["of"] != "random vectors"].set_index(["layer", "head"])["share"]
    assert len(real) == 8
    for layer, head in real.index:
        other = replace(place, layer=int(layer), head=int(head))
        assert real[layer, head] == pytest.approx(share_of(scores_of(other)), abs=1e-9)


def test_where_that_would_take_long_only_those_of_the_layer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(circuits, "MOST_PRODUCTS", 10)
    place = Place(Asked("bundled", "Only one layer is worked out."), "decoder", 1, 3)
    table = circuits.symmetry(place, 0).shares
    assert set(table.loc[table["of"] != "random vectors", "layer"]) == {1}


def test_random_vectors_give_one_half():
    mean, spread = circuits.symmetry(PLACES["bundled"], 0).drawn
    assert abs(mean - 0.5) < 4 * spread / circuits.DRAWS**0.5
    assert 0 < spread < 0.1
    dice = np.random.default_rng(1)
    by_numpy = [
        share_of(dice.standard_normal((21, 32)) @ dice.standard_normal((32, 21)))
        for _ in range(400)
    ]
    assert spread == pytest.approx(np.std(by_numpy), rel=0.3)


def test_a_long_text_is_seen_through_a_window():
    text, n = long_text(512)
    place = Place(Asked("bundled", text), "decoder", 1, 1)
    found, real = circuits.symmetry(place, 400), scores_of(place)
    assert n > 512
    assert found.tokens["position"].tolist() == list(range(400, 464))
    np.testing.assert_allclose(found.scores.to_numpy(), real[400:464, 400:464], atol=1e-3)
    assert found.share == pytest.approx(share_of(real), abs=1e-6)
    assert min(found.pair.query, found.pair.key) >= 400


def test_one_sequence_that_looks_at_another_has_no_directions(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "t5"), WORDS, target="the king")
    with pytest.raises(NotServed, match="no pair of tokens has two directions"):
        circuits.symmetry(Place(asked, "cross", 0, 1), 0)


# --- products


def parameters(place: Place) -> dict[str, np.ndarray]:
    """Of one head, from the model's own parameters."""
    model = loaded(place.asked.model).model
    if place.asked.model == "minilm":
        layer = model.encoder.layer[place.layer].attention
        found = {"q": layer.self.query, "k": layer.self.key, "v": layer.self.value}
        found["o"] = layer.output.dense
    else:
        layer = model.model.layers[place.layer].self_attn
        found = {name: getattr(layer, f"{name}_proj") for name in "qkvo"}
    rows = slice(32 * place.head, 32 * place.head + 32)
    weights = {name: x.weight.detach().double().numpy() for name, x in found.items()}
    return {name: x[:, rows] if name == "o" else x[rows] for name, x in weights.items()}


@pytest.mark.parametrize("model", PLACES)
def test_products_give_what_the_model_has_to_a_millionth(model: str):
    place = PLACES[model]
    found, w = circuits.products(place), parameters(place)
    assert not isinstance(found.query_key, str)
    assert not isinstance(found.output_value, str)
    assert 0 < found.query_key.error < 1e-6
    assert 0 < found.output_value.error < 1e-6
    d_model = w["q"].shape[1]
    for product, made in (
        (found.query_key, w["q"].T @ w["k"]),
        (found.output_value, w["o"] @ w["v"]),
    ):
        values = np.linalg.svd(made, compute_uv=False)
        np.testing.assert_allclose(product.spectrum.values.numpy(), values[:32], rtol=1e-9)
        assert values[32] < 1e-10
        assert product.sizes == (d_model, d_model)
        assert product.spectrum.in_factors == 2 * 32 * d_model
    assert found.rotated == (model == "bundled")
    assert not found.cut


@pytest.mark.parametrize("distance", [0, 1, 20])
def test_scores_of_one_distance(distance: int):
    made = circuits.at_distance(PLACES["bundled"], distance)
    assert not isinstance(made, str)
    assert made.error < 2e-6
    assert made.spectrum.rank_bound == 32


def test_of_a_long_text_the_beginning_is_measured():
    text, _ = long_text(512)
    found = circuits.products(Place(Asked("bundled", text), "decoder", 1, 1))
    assert found.cut
    assert found.tokens == circuits.CUT
    assert found.query_key.error < 1e-6
    again = circuits.at_distance(Place(Asked("bundled", text), "decoder", 1, 1), 9)
    assert again.error < 2e-6


def test_what_cannot_be_had_is_a_sentence(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path / "a", "qwen3"), WORDS)
    found = circuits.products(Place(asked, "decoder", 0, 1))
    assert "queries are more than the matrix makes of x: a norm" in str(found.query_key)
    assert found.output_value.error < 1e-6
    asked = Asked(saved_models.save(tmp_path / "b", "deepseek_v3"), WORDS)
    found = circuits.products(Place(asked, "decoder", 0, 1))
    assert "made from a latent vector, by two matrices" in str(found.query_key)
    assert "made from a latent vector, by two matrices" in str(found.output_value)
    assert "made from a latent vector" in str(
        circuits.at_distance(Place(asked, "decoder", 0, 1), 1)
    )
