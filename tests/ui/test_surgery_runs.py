"""Changed runs as pages ask for them: cached, refused in sentences, and never on the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
import saved_models
import streamlit as st
import torch
from surgery_page import TEXT
from test_outcome import masked_language_model

from attnviz import outcome as measuring
from attnviz.surgery import Scaling, as_if_divided
from attnviz.ui import surgery
from attnviz.ui.readings import Asked, NotServed, loaded, served
from attnviz.ui.surgery import CURVE, NO_SCORES, Change, factor_of
from attnviz.ui.views import Place

ASKED = Asked("bundled", TEXT)
PLACE = Place(ASKED, "decoder", 1, 2)
WORDS = "the cat sat on the mat because it was tired"


def alone(scalings: tuple[Scaling, ...]) -> measuring.Outcome:
    return measuring.outcome(loaded("bundled"), served(ASKED).inputs, scalings)


def quiet(share: float, doing: str) -> None:
    """A page that shows no progress."""


def test_an_effect_is_that_of_the_run():
    found = surgery.effect(Change(PLACE, "all", 2.0))
    expected = alone((Scaling(2.0),))
    assert found.mean_losses == (alone(()).mean_loss, expected.mean_loss)
    assert found.entropies == (alone(()).entropy, expected.entropy)


@pytest.mark.parametrize(
    ("of", "scaling"),
    [("layer", Scaling(3.0, layer=1)), ("head", Scaling(3.0, layer=1, head=2))],
)
def test_a_layer_or_a_head_alone(of: surgery.Of, scaling: Scaling):
    found = surgery.effect(Change(PLACE, of, 3.0))
    assert found.mean_losses[1] == alone((scaling,)).mean_loss
    assert found.mean_losses[1] != surgery.effect(Change(PLACE, "all", 3.0)).mean_losses[1]


def test_another_divisor_is_the_factor_that_it_means():
    """d_k is 32: as if divided by 32, all scores are 1/√32 of what they were."""
    by_divisor = Change(PLACE, "all", divisor="d_k")
    assert surgery.mean_factor(by_divisor) == pytest.approx(32**-0.5)
    expected = alone(as_if_divided(served(ASKED).capture.calls, float))
    assert surgery.effect(by_divisor).mean_losses[1] == expected.mean_loss
    assert (
        surgery.effect(Change(PLACE, "all", divisor="√d_k")).mean_losses
        == (alone(()).mean_loss,) * 2
    )


def test_steps_of_the_slider_go_from_one_over_the_root_to_the_root():
    steps = range(NO_SCORES, surgery.STRONGEST + 1)
    factors = [factor_of(step, 32) for step in steps]
    assert factors[:2] == pytest.approx([0.0, 32**-0.5])
    assert factors[-1] == pytest.approx(32**0.5)
    assert factor_of(0, 32) == 1.0
    assert factors == sorted(factors)


def test_the_curve_has_the_divisors_and_as_many_factors_as_are_others():
    told = []
    points = surgery.curve(PLACE, "all", lambda share, doing: told.append(share))
    assert points["divisor"].tolist()[1:3] == ["d_k²", "d_k"]
    assert points["divisor"].iloc[-1] == "1"
    assert len(points) == len(CURVE) + 2 == 13
    assert points.loc[points["factor"] == 1, "difference"].tolist() == [0.0]
    assert told == [done / 13 for done in range(13)]
    row = points[points["factor"] == 32 ** (4 / 20)].iloc[0]
    assert row["value"] == alone((Scaling(32 ** (4 / 20)),)).mean_loss


def test_what_was_run_once_is_not_run_again(monkeypatch: pytest.MonkeyPatch):
    asked = Asked("bundled", "Every run is made once.")
    place = Place(asked, "decoder", 0, 0)
    runs, run = [], surgery._run
    monkeypatch.setattr(surgery, "_run", lambda *given: runs.append(given) or run(*given))
    surgery.curve(place, "all", quiet)
    assert len(runs) == 14  # with the untouched one
    surgery.curve(replace(place, layer=1, head=3), "all", quiet)
    surgery.effect(Change(place, "all", divisor="d_k²"))
    assert len(runs) == 14


def test_ten_sessions_do_not_see_each_other():
    """Each asks for other factors, and one for the untouched model, all at once."""
    factors = [0.0, 0.1, 0.3, 0.5, 1.0, 1.3, 2.0, 4.0, 7.0]
    expected = [alone((Scaling(factor),)).mean_loss for factor in factors]
    untouched = alone(()).mean_loss
    model = loaded("bundled").model
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = model.config.to_json_string()
    together = Barrier(10)

    def session(number: int) -> bool:
        together.wait(timeout=60)
        if number == 9:
            return all(alone(()).mean_loss == untouched for _ in range(5))
        found = surgery.effect(Change(PLACE, "all", factors[number]))
        return found.mean_losses == (untouched, expected[number])

    for _ in range(3):
        st.cache_resource.clear()
        served(ASKED)
        with ThreadPoolExecutor(10) as pool:
            assert all(pool.map(session, range(10)))
    assert all(torch.equal(state[name], x) for name, x in model.state_dict().items())
    assert model.config.to_json_string() == settings


def test_a_reading_after_a_change_is_the_same():
    before = served(ASKED).capture.calls[0].query.clone()
    surgery.effect(Change(PLACE, "all", 0.0))
    surgery._effect.clear()
    st.cache_resource.clear()
    assert torch.equal(served(ASKED).capture.calls[0].query, before)


def test_layers_of_different_scales_stand_at_the_mean(tmp_path: Path):
    """GPT-2 here divides by √11, 2√11 and 3√11: undivided, that is the factor of each layer."""
    asked = Asked(saved_models.save(tmp_path, "gpt2_by_layer"), WORDS)
    place = Place(asked, "decoder", 0, 0)
    undivided = Change(place, "all", divisor="1")
    assert surgery.mean_factor(undivided) == pytest.approx(11**0.5 * 6 ** (1 / 3))
    assert surgery.several_factors(place, "all")
    assert not surgery.several_factors(place, "layer")
    assert surgery.mean_factor(replace(undivided, of="layer")) == pytest.approx(11**0.5)


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path):
    """XLNet adds a second product to its scores, head by head in one step."""
    asked = Asked(saved_models.save(tmp_path, "xlnet"), WORDS)
    part = served(asked).parts[0]
    with pytest.raises(NotServed, match=r"its heads cannot be told apart\.$"):
        surgery.effect(Change(Place(asked, part, 0, 1), "head", 2.0))


def test_a_masked_model_costs_as_many_runs_as_it_takes(tmp_path: Path):
    model = masked_language_model()
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    asked = Asked(str(tmp_path), WORDS)
    reading = served(asked)
    assert surgery.runs(asked, reading) == 7
    assert surgery.seconds(asked, reading) > surgery.seconds(ASKED, served(ASKED))


def test_likeliest_tokens_are_named_each_by_itself():
    """Two bytes of one character are no character here: neither comes after the other."""
    ids = loaded("bundled").tokenizer("é", add_special_tokens=False).input_ids[-2:]
    assert surgery.labels(ASKED, ids) == ["‹0xC3›", "‹0xA9›"]
    assert surgery.labels(ASKED, []) == []
