"""What the scale lab says, against numbers worked out by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import saved_models

from attnviz.moments import saturated_gradient
from attnviz.ui import lab_draws, lab_heads, lab_sentences
from attnviz.ui.heads import head
from attnviz.ui.lab import Setting, Side
from attnviz.ui.lab_sentences import divided
from attnviz.ui.readings import Asked, served
from attnviz.ui.sentences import RAISED
from attnviz.ui.views import Place

LOWERED = {raised: lowered for lowered, raised in RAISED.items()}
SETTING = Setting(d_k=64, n=8, seed=3)
MINILM = Place(Asked("minilm", "The cat sat on the mat because it was tired."), "encoder", 5, 11)


def gradient_of(setting: Setting) -> list[str]:
    return lab_sentences.gradient_seen(lab_draws.drawn(setting), setting)


def side(weights: list[float], **changes) -> Side:
    """A drawn side whose row has these weights."""
    drawn = lab_draws.drawn(SETTING)
    row = pd.DataFrame({"key": range(len(weights)), "weight": weights})
    return replace(drawn, row=row, n=len(weights), **changes)


@pytest.mark.parametrize(
    ("power", "said"),
    [
        (0.0, "÷ 1"),
        (0.5, "÷ √64 = 8"),
        (1.0, "÷ 64"),
        (2.0, "÷ 64² = 4,096"),
        (0.75, "÷ 64^0.75 = 22.63"),
    ],
)
def test_divisors_have_their_number(power: float, said: str):
    assert divided(power, 64) == said


@pytest.mark.parametrize(
    ("weights", "keys"),
    [([0.25] * 4, "4.0 of 4"), ([1.0, 0.0, 0.0], "1.0 of 3"), ([0.5, 0.5, 0.0], "2.0 of 3")],
)
def test_sharpness_of_a_row_by_hand(weights: list[float], keys: str):
    said = lab_sentences.row_drawn(side(weights))
    assert said.endswith(f"as sharp as even weights on {keys} keys")
    assert f"is {max(weights):.2f}" in said


def test_predictions_are_the_closed_forms():
    said = lab_sentences.scores_drawn(lab_draws.drawn(replace(SETTING, key_mean=0.5)))
    assert "predicted 80; within a row" in said  # 64 (1 + ¼)
    assert said.endswith("predicted 64")


def test_one_key_has_no_variance_within_its_row():
    said = lab_sentences.scores_drawn(side([1.0]))
    assert "within a row" not in said


def test_logits_have_the_variance_of_the_scores_over_the_square_of_the_divisor():
    drawn = lab_draws.drawn(replace(SETTING, power=1.0))
    said = lab_sentences.logits(drawn, 1.0)
    found = re.fullmatch(r"÷ 64: variance ([\d.]+) within a row, predicted 0.016", said)
    assert found
    assert float(found[1]) == pytest.approx(drawn.row_variance[0] / 64**2, rel=0.05)


def test_the_models_own_divisor_is_named():
    vectors = lab_heads.real_head(MINILM)
    assert vectors is not None
    assert "own divisor, √32 = 5.657" in lab_sentences.own_divisor(vectors, 0.5)
    other = lab_sentences.own_divisor(vectors, 1.0)
    assert "multiplied by 0.177 first" in other  # √32 / 32


def test_a_rows_sentence_names_query_and_key():
    shown = lab_heads.read(MINILM, 0.5, 8, 7)
    assert shown is not None
    said = lab_sentences.row_read(shown, head(MINILM.asked, "encoder", 5, 11), 8)
    assert said.startswith("“it” has 0.71 on “cat”")


def test_where_a_heads_variance_comes_from_adds_up():
    vectors = lab_heads.real_head(MINILM)
    assert vectors is not None
    told = " ".join(lab_sentences.why_not_d_k(vectors))
    assert f"q is {vectors.moments.query_length:.3g} long" in told
    assert f"√32 = {math.sqrt(32):.3g}" in told
    assert f"cosine is {vectors.moments.cosine:.2g}" in told


def test_a_head_without_norms_says_so():
    vectors = lab_heads.real_head(MINILM)
    assert vectors is not None
    assert "this layer has none" in lab_sentences.why_not_d_k(vectors)[1]


def test_learned_norms_are_told_with_the_lengths_they_set(tmp_path: Path):
    model = saved_models.save(tmp_path / "qwen3", "qwen3")
    place = Place(Asked(model, "the cat sat on the mat"), "decoder", 1, 2)
    vectors = lab_heads.real_head(place)
    assert vectors is not None
    call = served(place.asked).calls("decoder")[1]
    lengths = call.query[0, 2].norm(dim=-1)
    told = lab_sentences.why_not_d_k(vectors)[1]
    assert "pass q_norm and k_norm (QK-norm)" in told
    assert f"‖q‖ is {float(lengths.min()):.3g} to {float(lengths.max()):.3g}" in told


def test_no_variance_is_said_in_words():
    assert "no row sees two keys" in lab_sentences.logits(side([1.0], logit_variance=math.nan), 0.5)


def test_the_freezing_line_has_its_number():
    assert "for n = 64 keys 8.32" in lab_sentences.freezing(replace(SETTING, n=64))[0]


def test_both_halves_of_the_claim_about_gradients_are_told():
    told = gradient_of(replace(SETTING, d_k=1024))
    found = re.search(r"query gets (\S+), the mean is ([\d.]+), a thousand times", told[0])
    assert found
    assert float(found[1].replace("·10⁻", "e-").translate(LOWERED)) < 1e-3 < 0.9 < float(found[2])
    assert f"√(2/π) M_n = {saturated_gradient(8):.3g} for 8 keys" in told[1]
    assert "nearly even (entropy 1.000 and 1.000 of even ones)" in told[2]


@pytest.mark.parametrize("moved", [{"query_std": 0.5}, {"query_mean": 2.0}])
def test_the_limit_of_the_gradient_moves_with_the_queries(moved: dict[str, float]):
    """The mean that is drawn is near the limit that is told."""
    setting = replace(SETTING, d_k=1024, **moved)
    told = " ".join(gradient_of(setting))
    found = re.search(r"mean is ([\d.]+).*M_n / √\(σ_q² \+ μ_q²\) = ([\d.]+) for 8", told)
    assert found
    assert float(found[1]) == pytest.approx(float(found[2]), rel=0.15)


@pytest.mark.parametrize(
    "moved", [{"correlation": 1.0}, {"key_std": 0.0}, {"query_std": 0.0}, {"correlation": -1.0}]
)
def test_where_all_keys_score_alike_nothing_else_is_claimed(moved: dict[str, float]):
    setting = replace(SETTING, **moved)
    assert gradient_of(setting) == [lab_sentences.ALIKE]
    assert lab_sentences.freezing(setting) == [lab_sentences.ALIKE]


def test_at_d_k_1_there_is_nothing_to_compare():
    assert "all four divisors are 1" in gradient_of(replace(SETTING, d_k=1))[0]


def test_weights_that_are_not_even_are_not_called_so():
    told = gradient_of(replace(SETTING, d_k=4, query_std=4.0, key_std=4.0))
    assert "nearly even" not in " ".join(told)


def test_the_freezing_line_moves_with_the_vectors():
    told = " ".join(lab_sentences.freezing(replace(SETTING, query_mean=2.0, query_std=0.0)))
    assert "d_k = 2 ln n / 4: 1.04 here, and 3.12 for 512" in told
    weak = " ".join(lab_sentences.freezing(replace(SETTING, query_std=0.1)))
    assert "416 here" in weak
    assert "far beyond" not in weak


def test_small_numbers_are_written_with_their_power():
    drawn = lab_draws.drawn(replace(SETTING, d_k=1024, power=2.0))
    said = lab_sentences.logits(drawn, 2.0)
    assert re.search(r"÷ 1024² = 1,048,576: variance 9\.\d·10⁻¹⁰ within a row, predicted", said)


@pytest.mark.parametrize(
    ("mean", "median", "said"),
    [
        (1.1, 1.0, ""),
        (3.0, 2.0, ", 1.5 times that"),
        (5.0, 1e-4, ", a thousand times that and more"),
        (1.0, 0.0, ""),
    ],
)
def test_the_ratio_of_mean_and_median(mean: float, median: float, said: str):
    lengths = {"1": (mean, median), "√d_k": (1.0, 1.0), "d_k": (1.0, 1.0), "d_k²": (1.0, 1.0)}
    marks = pd.DataFrame(
        [(name, "‖dL/dq‖", *numbers) for name, numbers in lengths.items()],
        columns=["divisor", "quantity", "mean", "median"],
    )
    told = lab_sentences.gradient_seen(side([1.0], marks=marks), SETTING)[0]
    assert f"the mean is {mean:.3g}{said}; under √d_k" in told


def test_vectors_are_told_as_they_are_set():
    assert lab_sentences.entries(SETTING).endswith("mean 0, variance 1, independent")
    other = replace(SETTING, entries="normalised", correlation=-0.5)
    assert lab_sentences.entries(other) == (
        "vectors of length √d_k, σ_q 1, σ_k 1, μ_q 0, μ_k 0, ρ -0.5"
    )
    assert "µP" in lab_sentences.variance_seen(other)
    assert "µP" not in lab_sentences.variance_seen(SETTING)


def test_captions_say_what_they_are():
    assert lab_sentences.drawn_caption(SETTING, 2000) == (
        "synthetic · Gaussian entries, mean 0, variance 1, independent · 2,000 queries × 8 keys · "
        "d_k = 64 · ÷ √64 = 8 · seed 3"
    )
    shown = head(MINILM.asked, "encoder", 5, 11)
    caption = lab_sentences.read_caption(shown, 1.0)
    assert caption.startswith("real · MiniLM")
    assert "the model divides by √32 · shown ÷ 32 · ✓ equals the model" in caption


def test_the_question_names_what_is_set():
    said = lab_sentences.question(replace(SETTING, power=2.0))
    assert "d_k = 64 entries" in said
    assert "q·k ÷ 64² = 4,096?" in said
    assert "Of 8 keys" in said
