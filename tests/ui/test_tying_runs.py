"""Runs with shared projections as pages ask for them: cached, refused in sentences, and apart."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import saved_models
import streamlit as st
import torch
from roles_on_a_model_page import TEXT
from transformers import PreTrainedModel

from attnviz import attention
from attnviz import outcome as measuring
from attnviz.capture import capture
from attnviz.ui import tying
from attnviz.ui.readings import Asked, NotServed, loaded, served
from attnviz.ui.tying import Change
from attnviz.ui.views import Place

ASKED = Asked("bundled", TEXT)
PLACE = Place(ASKED, "decoder", 1, 2)
WORDS = "the cat sat on the mat because it was tired"
D_K = 32
PROJECTIONS = {"K := V": ("k_proj", "v_proj"), "V := K": ("v_proj", "k_proj")}
PROJECTIONS |= {"Q := K": ("q_proj", "k_proj")}


def overwritten(way: str, of: str) -> PreTrainedModel:
    """A copy of the bundled model, whose parameters are other ones; each head has its own."""
    model = copy.deepcopy(loaded("bundled").model)
    rows = slice(2 * D_K, 3 * D_K) if of == "head" else slice(None)
    for number, layer in enumerate(model.model.layers):
        if of != "all" and number != 1:
            continue
        target, source = (getattr(layer.self_attn, name) for name in PROJECTIONS[way])
        target.weight.data[rows] = source.weight.data[rows]
        target.bias.data[rows] = source.bias.data[rows]
    return model


def by_hand(model: PreTrainedModel) -> measuring.Outcome:
    return measuring.outcome(replace(loaded("bundled"), model=model), served(ASKED).inputs)


@pytest.mark.parametrize("of", ["all", "layer", "head"])
@pytest.mark.parametrize("way", PROJECTIONS)
def test_losses_and_patterns_are_those_of_a_copy_that_was_overwritten(way: str, of: tying.Of):
    change = Change(PLACE, way, of)
    model = overwritten(way, of)
    found, pattern = tying.effect(change), tying.pattern(change)
    untouched = loaded("bundled").model
    assert found.mean_losses == (by_hand(untouched).mean_loss, by_hand(model).mean_loss)
    torch.testing.assert_close(found.losses[1], by_hand(model).loss, equal_nan=True)
    assert pattern is not None
    inputs = served(ASKED).inputs.tensors
    weights = [
        attention.weights(capture(one, inputs).calls[1], 2).numpy() for one in (untouched, model)
    ]
    for shown, real in zip((pattern.before, pattern.after), weights, strict=True):
        np.testing.assert_allclose(shown.fillna(0).to_numpy(), real, atol=1e-6)
    moved = abs(weights[0] - weights[1]).sum(1) / 2
    assert pattern.moved == pytest.approx(moved.mean(), abs=1e-6)
    assert pattern.most_moved == pytest.approx(moved.max(), abs=1e-6)
    assert pattern.most == moved.argmax() or pattern.most_moved == 0
    assert pattern.top == pytest.approx(max(x.max() for x in weights), abs=1e-6)


def test_values_make_no_pattern():
    """In the layer that is changed; a later one is given something else."""
    for way in ("V := K", "values shuffled"):
        assert tying.pattern(Change(PLACE, way, "layer")).moved == 0
        assert tying.pattern(Change(PLACE, way, "all")).moved > 0.05
        first = replace(PLACE, layer=0)
        assert tying.pattern(Change(first, way, "all")).moved == 0


def test_seeds_shuffle():
    losses = {
        seed: tying.effect(Change(PLACE, "values shuffled", "all", seed)).mean_losses[1]
        for seed in range(4)
    }
    assert len(set(losses.values())) > 1


def test_what_was_run_once_is_not_run_again(monkeypatch: pytest.MonkeyPatch):
    place = Place(Asked("bundled", "Every run is made once."), "decoder", 0, 0)
    runs, run = [], measuring.outcome
    monkeypatch.setattr(measuring, "outcome", lambda *given: runs.append(given) or run(*given))
    for head in (0, 1, 0):
        tying.effect(Change(replace(place, head=head), "V := K", "all"))
    assert len(runs) == 2  # with the untouched one


def test_ten_sessions_do_not_see_each_other():
    """Each asks for another change and its pattern, and one for the untouched model, at once."""
    changes = [
        Change(PLACE, way, of)
        for of in ("all", "layer", "head")
        for way in ("K := V", "Q := K", "Q and K swapped")
    ]
    untouched = by_hand(loaded("bundled").model).mean_loss
    expected = [(tying.effect(x).mean_losses, tying.pattern(x).moved) for x in changes]
    model = loaded("bundled").model
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    together = Barrier(10)

    def session(number: int) -> bool:
        together.wait(timeout=60)
        if number == 9:
            return all(by_hand(model).mean_loss == untouched for _ in range(5))
        change = changes[number]
        found = tying.effect(change).mean_losses, tying.pattern(change).moved
        return found == expected[number]

    for _ in range(3):
        st.cache_resource.clear()
        served(ASKED)
        with ThreadPoolExecutor(10) as pool:
            assert all(pool.map(session, range(10)))
    assert all(torch.equal(state[name], x) for name, x in model.state_dict().items())


def test_a_reading_after_a_change_is_the_same():
    before = served(ASKED).capture.calls[1].query.clone()
    tying.effect(Change(PLACE, "K := V", "all"))
    st.cache_resource.clear()
    assert torch.equal(served(ASKED).capture.calls[1].query, before)


# --- grouped queries, and what cannot be done


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Six heads, three keys and values."""
    asked = Asked(saved_models.save(tmp_path_factory.mktemp("llama"), "llama"), WORDS)
    return Place(asked, "decoder", 1, 3)


def test_a_group_changes_together(grouped: Place):
    for way, beside in (("K := V", (2,)), ("Q and K swapped", (2,)), ("Q := K", ())):
        assert tying.beside(Change(grouped, way, "head")) == beside
        assert tying.beside(Change(grouped, way, "layer")) == ()
    both = [
        tying.effect(Change(replace(grouped, head=head), "K := V", "head")).mean_losses
        for head in (2, 3)
    ]
    assert both[0] == both[1]


def test_why_not_is_told_before_a_run(grouped: Place):
    assert tying.why_not(Change(grouped, "K := V", "all")) is None
    told = tying.why_not(Change(grouped, "Q and K swapped", "layer"))
    assert told is not None
    assert told.endswith("one head alone can be changed.")
    with pytest.raises(NotServed, match="one head alone can be changed"):
        tying.effect(Change(grouped, "Q and K swapped", "layer"))


def test_latent_attention_is_refused(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "deepseek_v3"), WORDS)
    change = Change(Place(asked, "decoder", 0, 1), "V := K", "head")
    assert "cannot be changed as asked: in layer 0, its" in str(tying.why_not(change))
    shuffled = replace(change, way="values shuffled")
    assert tying.why_not(shuffled) is None
    assert tying.effect(shuffled).mean_losses is not None


def test_a_pattern_that_is_no_longer_confirmed_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tying, "_read_after", lambda *_: None)
    asked = Asked("bundled", "No pattern can be read after this.")
    assert tying.pattern(Change(Place(asked, "decoder", 0, 0), "K := V", "all")) is None


def test_cross_attention_alone(tmp_path: Path):
    """Its queries are of the target, its keys of the source: the pattern is not square."""
    asked = Asked(saved_models.save(tmp_path, "t5"), WORDS, target="the king")
    change = Change(Place(asked, "cross", 1, 2), "Q := K", "head")
    pattern = tying.pattern(change)
    assert pattern is not None
    assert pattern.before.shape == pattern.after.shape == (len(pattern.queries), len(pattern.keys))
    assert len(pattern.queries) < len(pattern.keys)
    assert 0 < pattern.moved <= 1
