"""What the committed weights must show, measured after loading them as the app does."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest
import torch

from attnviz import attention
from attnviz.capture import capture
from attnviz.head_statistics import first_token, induction, previous_token
from attnviz.models import LoadedModel, load
from attnviz.tokens import model_inputs, tokenize

FOLDER = Path(__file__).parent.parent / "attnviz" / "bundled"
SEEDS = range(41, 47)  # none of them used in training


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load("bundled")


def repeats(length: int, vocabulary: int) -> torch.Tensor:
    rows = []
    for seed in SEEDS:
        dice = torch.Generator().manual_seed(seed)
        r = torch.randint(1, vocabulary, (length,), generator=dice)
        rows.append(torch.cat([torch.tensor([0]), r, r]))
    return torch.stack(rows)


def heads_of(bundled: LoadedModel, tokens: torch.Tensor) -> dict[tuple[int, int], torch.Tensor]:
    """Weights of shape (batch, query, key) of every (layer, head)."""
    calls = capture(bundled.model, {"input_ids": tokens}).calls
    return {
        (call.layer, head): torch.stack(
            [attention.weights(call, head, row) for row in range(len(tokens))]
        )
        for call in calls
        for head in range(call.heads)
    }


def test_previous_token_head(bundled: LoadedModel):
    heads = heads_of(bundled, repeats(50, bundled.model.config.vocab_size))
    assert max(float(previous_token(weights).mean()) for weights in heads.values()) >= 0.70


@pytest.mark.parametrize("length", [50, 100])
def test_two_induction_heads(bundled: LoadedModel, length: int):
    heads = heads_of(bundled, repeats(length, bundled.model.config.vocab_size))
    following = sorted(float(induction(weights, length).mean()) for weights in heads.values())
    assert following[-2] >= 0.70


@pytest.mark.parametrize(("length", "least"), [(50, 0.95), (100, 0.90)])
def test_second_copy_is_foretold(bundled: LoadedModel, length: int, least: float):
    tokens = repeats(length, bundled.model.config.vocab_size)
    with torch.no_grad():
        logits = bundled.model(tokens).logits
    foretold = logits[:, length + 1 : -1].argmax(-1) == tokens[:, length + 2 :]
    assert float(foretold.float().mean()) >= least


def test_first_token_sink_on_a_story_sentence(bundled: LoadedModel):
    text = "Once upon a time there was a king who had a daughter, and she was very beautiful."
    tokens = model_inputs(tokenize(bundled.tokenizer, text))["input_ids"]
    heads = heads_of(bundled, tokens)
    assert max(float(first_token(weights).mean()) for weights in heads.values()) >= 0.60


def test_everyday_words_are_single_tokens(bundled: LoadedModel):
    sentence = tokenize(bundled.tokenizer, "The cat sat on the mat because it was tired.")
    assert len(sentence) <= 14
    for word in ("king", "daughter", "because", "tired", "house", "water", "mother", "key"):
        assert len(tokenize(bundled.tokenizer, word)) == 2, word
    assert 1024 <= bundled.model.config.vocab_size <= 4096


def test_every_text_begins_with_bos(bundled: LoadedModel):
    tokens = tokenize(bundled.tokenizer, "A cat")
    assert tokens.ids[0] == bundled.tokenizer.bos_token_id == 0
    assert tokens.special == (True, False, False)


def test_folder_is_small_and_holds_no_pickle():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 3 * 2**20
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md", ".csv"}
    assert 200_000 <= load("bundled").card.parameters <= 1_000_000


def test_log_shows_the_phase_change():
    """Induction comes within a few hundred steps, and with it the repeats are foretold."""
    with (FOLDER / "training_log.csv").open() as file:
        rows = [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]
    low = next(i for i, row in enumerate(rows) if row["induction"] > 0.1)
    high = next(i for i, row in enumerate(rows) if row["induction"] > 0.6)
    assert rows[high]["step"] - rows[low]["step"] <= 500
    before = statistics.mean(row["repeat_loss"] for row in rows[:low])
    after = statistics.mean(row["repeat_loss"] for row in rows[high + 8 : high + 16])
    assert before > 6 > 1 > after


def test_card_says_what_it_is_and_is_not():
    card = (FOLDER / "README.md").read_text()
    for word in ("Project Gutenberg", "licence", "induction", "not", "float16"):
        assert word in card
