"""Scores of all heads against loops over single weights, and repeated random tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import saved_models
import torch
from calls_by_hand import plain_call
from tiny import wordpiece

from attnviz import attention, finder, weight_blocks
from attnviz.attention_call import AttentionCall, Capture
from attnviz.call_statistics import of_all_heads
from attnviz.capture import capture
from attnviz.finder import Scores, best_kind, by_chance, repeated, scores
from attnviz.head_statistics import induction, previous_token
from attnviz.inputs import Inputs, inputs_for
from attnviz.models import LoadedModel, load
from attnviz.patterns import BROAD, FIRST, OFFSET, Axes, kinds
from attnviz.reading import Reading
from attnviz.tokens import from_ids
from attnviz.ui.drawings import DRAWINGS

HEADS, KV_HEADS, N, D_K, D_V, BATCH = 6, 2, 13, 7, 11, 3
IDS = (2, 17, 23, 9, 17, 23, 31, 9, 9, 40, 17, 23, 3)
SPECIAL = tuple(i in (2, 3) for i in IDS)
PUNCTUATION = tuple(i == 9 for i in IDS)
CAUSAL = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
TOKENS = Axes(*(torch.tensor(flags) for flags in (IDS, IDS, SPECIAL, SPECIAL, PUNCTUATION)))
TEXT = kinds(from_ids(wordpiece(), [10, 11]), from_ids(wordpiece(), [10, 11]))


@pytest.fixture(params=[2**20, 100, 1], ids=["one block", "blocks", "rows"])
def block(request, monkeypatch):
    monkeypatch.setattr(weight_blocks, "BLOCK_WEIGHTS", request.param)
    monkeypatch.setattr(weight_blocks, "BLOCK_ROWS", 5 if request.param == 100 else 128)


def call(n: int = N, **changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(1)
    fields = {
        "query": torch.randn(BATCH, HEADS, n, D_K, generator=dice),
        "key": torch.randn(BATCH, KV_HEADS, n, D_K, generator=dice),
        "value": torch.randn(BATCH, KV_HEADS, n, D_V, generator=dice),
        "scale": 0.9,
    }
    return plain_call(**(fields | changes))


def aims_at(name: str, i: int, j: int) -> bool:
    """The definitions once more, a pair at a time."""
    words = not SPECIAL[i] and not SPECIAL[j]
    return {
        "previous token": words and j == i - 1,
        "next token": words and j == i + 1,
        "first token": j == 0 and i > 0,
        "self": j == i and i > 0,
        "duplicate token": words and j != i and IDS[j] == IDS[i],
        "induction": words and j > 0 and not SPECIAL[j - 1] and IDS[j - 1] == IDS[i] and j - 1 != i,
        "delimiter": (SPECIAL[j] and j > 0) or PUNCTUATION[j],
        "local": words and abs(i - j) <= 4,
    }[name]


def visible(of: AttentionCall, batch: int, i: int) -> list[int]:
    if of.query_padding is not None and of.query_padding[batch, i]:
        return []
    mask = torch.ones(of.n, dtype=torch.bool) if of.mask is None else of.mask[0].any(0)
    return [j for j in range(of.n[1]) if mask[i, j]]


def by_loops(of: AttentionCall, batch: int, head: int, name: str) -> tuple[float, float]:
    """Score and what even weights would get, summed in float64 row by row."""
    weights = attention.weights(of, head, batch).double().tolist()
    rows, even = [], []
    for i in range(of.n[0]):
        keys = visible(of, batch, i)
        aimed = [j for j in keys if aims_at(name, i, j)]
        if aimed:
            rows.append(math.fsum(weights[i][j] for j in aimed))
            even.append(len(aimed) / len(keys))
    mean = (math.fsum(values) / len(values) if values else math.nan for values in (rows, even))
    return next(mean), next(mean)


PADDING = torch.zeros(BATCH, N, dtype=torch.bool)
PADDING[1, 10:] = True
CALLS = {
    "both ways": {},
    "causal": {"mask": CAUSAL},
    "sliding window": {"mask": CAUSAL.triu(-3)},
    "sinks": {"mask": CAUSAL, "sinks": torch.arange(6.0)},
    "padded": {"mask": CAUSAL, "query_padding": PADDING},
}
NAMES = [kind.name for kind in TEXT if kind not in (OFFSET, BROAD)]


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.usefixtures("block")
def test_scores_are_those_of_single_weights(case: str):
    of = call(**CALLS[case])
    found = scores(of, TOKENS, TEXT, batch=1)
    for name in NAMES:
        expected = [by_loops(of, 1, head, name) for head in range(HEADS)]
        score, even = zip(*expected, strict=True)
        np.testing.assert_allclose(found[name].score, score, atol=1e-6, err_msg=name)
        assert found[name].even == pytest.approx(even[0], abs=1e-9, nan_ok=True), name
    assert found["next token"].score.isfinite().all() == (case == "both ways")


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.usefixtures("block")
def test_fixed_offset_is_the_best_of_the_diagonals(case: str):
    of = call(**CALLS[case])
    found = scores(of, TOKENS, [OFFSET], batch=1)["fixed offset"]
    assert found.offset is not None
    for head in range(HEADS):
        weights, means = attention.weights(of, head, 1).double(), {}
        rows = {d: [(i, i + d) for i in range(1, 12) if 1 <= i + d < 12] for d in range(-10, 11)}
        for offset, pairs in rows.items():
            seen = [pair for pair in pairs if pair[1] in visible(of, 1, pair[0])]
            if 2 * len(seen) >= (9 if case == "padded" else 11):
                means[offset] = np.mean([float(weights[pair]) for pair in seen])
        best = max(means, key=lambda offset: means[offset])
        assert int(found.offset[head]) == best
        assert float(found.score[head]) == pytest.approx(means[best], abs=1e-6)


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.usefixtures("block")
def test_moved_targets_are_turned_round_the_visible_keys(case: str):
    of = call(**CALLS[case])
    found = scores(of, TOKENS, TEXT, batch=1)
    turns = torch.rand(finder.DRAWS, N, generator=torch.Generator().manual_seed(0))
    for name in NAMES:
        if found[name].rows == 0:
            assert found[name].moved.isnan().all()
            continue
        best = []
        for turn in turns:
            means = []
            for head in range(HEADS):
                weights, rows = attention.weights(of, head, 1), []
                for i in range(N):
                    keys = visible(of, 1, i)
                    places = [place for place, j in enumerate(keys) if aims_at(name, i, j)]
                    by = int(turn[i] * len(keys))
                    moved = [keys[(place + by) % len(keys)] for place in places]
                    rows += [sum(float(weights[i, j]) for j in moved)] if moved else []
                means.append(np.mean(rows))
            best.append(max(means))
        np.testing.assert_allclose(found[name].moved, best, atol=1e-6, err_msg=name)


def test_of_a_long_text_the_targets_of_some_rows_are_moved(monkeypatch):
    monkeypatch.setattr(finder, "MOVED_ROWS", 5)  # of 13 rows every third: 0, 3, 6, 9, 12
    of = call(mask=CAUSAL)
    found = scores(of, TOKENS, [FIRST])["first token"]
    turns = torch.rand(finder.DRAWS, N, generator=torch.Generator().manual_seed(0))
    weights = torch.stack([attention.weights(of, head) for head in range(HEADS)])
    rows, best = [3, 6, 9, 12], []
    for turn in turns:
        keys = [int(turn[i] * (i + 1)) for i in rows]
        best.append(float(weights[:, rows, keys].mean(1).max()))
    np.testing.assert_allclose(found.moved, best, atol=1e-6)
    assert found.rows == 12


def test_two_by_two_by_hand():
    """Logits of head 0: row 1 is (ln 3, 0), so it puts 3/4 on token 0 and 1/4 on itself."""
    key = torch.tensor([[[[1.0], [0.0]]]])
    of = plain_call(query=torch.full((1, 1, 2, 1), math.log(3)), key=key, value=key, scale=1.0)
    flags = torch.zeros(2, dtype=torch.bool)
    tokens = Axes(torch.tensor([4, 5]), torch.tensor([4, 5]), flags, flags, flags)
    found = scores(of, tokens, TEXT)
    by_hand = {
        "previous token": 3 / 4,
        "next token": 1 / 4,
        "first token": 3 / 4,
        "self": 1 / 4,
        "local": 1.0,
        "fixed offset": 3 / 4,
        "broad": (0.75 * math.log(4 / 3) + 0.25 * math.log(4)) / math.log(2),
    }
    for name, value in by_hand.items():
        assert found[name].score.tolist() == pytest.approx([value]), name
        assert found[name].even == pytest.approx({"local": 1, "broad": 1}.get(name, 1 / 2)), name
    assert found["fixed offset"].offset == -1
    for name in ("duplicate token", "induction", "delimiter"):
        assert math.isnan(float(found[name].score)), name
        assert math.isnan(found[name].even), name
        assert found[name].rows == 0


def test_rows_are_averaged_not_entries():
    """A token that comes three times has two others to look at, and is one row."""
    flat = torch.zeros(1, 1, 5, 1)
    of = plain_call(query=flat, key=flat, value=flat, scale=1.0)
    flags = torch.zeros(5, dtype=torch.bool)
    ids = torch.tensor([4, 4, 4, 6, 6])
    found = scores(of, Axes(ids, ids, flags, flags, flags), TEXT)["duplicate token"]
    assert found.score.tolist() == pytest.approx([(3 * 2 / 5 + 2 * 1 / 5) / 5])


def test_a_head_that_looks_back_is_no_head_that_looks_ahead():
    eye = 50 * torch.eye(N).expand(1, 1, -1, -1)
    query = 50 * torch.eye(N)[[0, *range(N - 1)]].expand(1, 1, -1, -1)  # row i asks for i − 1
    found = scores(plain_call(query=query, key=eye, value=eye, scale=1.0), TOKENS, TEXT)
    assert float(found["previous token"].score) == pytest.approx(1.0)
    assert float(found["next token"].score) == pytest.approx(0.0)
    assert float(found["self"].score) == pytest.approx(0.0)
    assert int(found["fixed offset"].offset) == -1


def test_padding_before_a_text_changes_nothing():
    before, of = 4, call(n=N + 4)
    padding = torch.zeros(BATCH, N + before, dtype=torch.bool)
    padding[:, :before] = True
    mask = torch.ones(1, 1, N + before, N + before, dtype=torch.bool).tril()
    padded = replace(of, mask=mask & ~padding[:1, None, None], query_padding=padding)
    inside = slice(before, None)
    alone = replace(
        of,
        mask=CAUSAL,
        query=of.query[:, :, inside],
        key=of.key[:, :, inside],
        value=of.value[:, :, inside],
    )
    assert finder._first_key(padded, 0) == before
    assert finder._first_key(alone, 0) == 0
    ids = torch.tensor([0] * before + list(IDS))
    special = torch.tensor([True] * before + list(SPECIAL))
    point = torch.tensor([False] * before + list(PUNCTUATION))
    shifted = scores(padded, Axes(ids, ids, special, special, point, before), TEXT)
    for name, expected in scores(alone, TOKENS, TEXT).items():
        torch.testing.assert_close(shifted[name].score, expected.score, equal_nan=True, msg=name)
        assert shifted[name].even == pytest.approx(expected.even, nan_ok=True)


def test_broad_is_the_entropy_of_the_statistics():
    for case in CALLS:
        of = call(**CALLS[case])
        found = scores(of, TOKENS, [BROAD], batch=1)["broad"]
        torch.testing.assert_close(found.score, of_all_heads(of, 1).relative_entropy)
        assert found.even == 1
        assert math.isnan(by_chance([found]))


def test_a_models_own_weights_score_as_its_queries_and_keys():
    whole = call(mask=CAUSAL, scale=0.3)
    weights = torch.stack(
        [torch.stack([attention.weights(whole, h, b) for h in range(HEADS)]) for b in range(BATCH)]
    )
    own = replace(whole, query=None, key=None, mask=None, observed_weights=weights)
    expected = scores(whole, TOKENS, TEXT, batch=2)
    for name, found in scores(own, TOKENS, TEXT, batch=2).items():
        torch.testing.assert_close(found.score, expected[name].score, equal_nan=True)
        torch.testing.assert_close(found.moved, expected[name].moved, equal_nan=True)


# --- chance, and what a head is best at


def made(*score: float, even: float = 0.1, moved: float = 0.2) -> Scores:
    return Scores(torch.tensor(score), even, torch.full((20,), moved), 9)


def test_chance_is_the_best_of_all_layers_in_19_of_20_draws():
    one, other = torch.linspace(0, 0.19, 20), torch.linspace(0.38, 0, 20)
    of_layers = [replace(made(0.0), moved=one), replace(made(0.0), moved=other)]
    expected = np.quantile(torch.maximum(one, other).numpy(), 0.95)
    assert by_chance(of_layers) == pytest.approx(float(expected))
    assert math.isnan(by_chance([made(0.5, moved=math.nan)]))


def test_a_head_is_named_by_what_exceeds_even_weights_most():
    found = {
        "previous token": made(0.9, 0.15, 0.1, math.nan),
        "local": made(1.0, 0.6, 0.5, math.nan, even=0.5, moved=0.7),
        "broad": made(0.2, 0.3, 0.95, 0.5, even=1.0, moved=math.nan),
    }
    chance = {name: by_chance([of]) for name, of in found.items()}
    assert [best_kind(found, head, chance) for head in range(4)] == [
        "previous token",
        "",
        "broad",
        "",
    ]


# --- random tokens, repeated


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load("bundled")


def read(loaded: LoadedModel, inputs: Inputs) -> Reading:
    return Reading("a model", None, inputs, capture(loaded.model, inputs.tensors), 0.0)


@pytest.mark.parametrize("seed", [0, 4])
def test_bundled_model_reads_its_start_and_fifty_words_twice(bundled: LoadedModel, seed: int):
    again = repeated(bundled, inputs_for(bundled, "A cat."), seed)
    assert again is not None
    ids = again.tensors["input_ids"][0].tolist()
    assert ids[0] == bundled.tokenizer.bos_token_id
    assert ids[1:51] == ids[51:]
    assert len(set(ids)) == 51
    assert again.source is not None
    assert list(again.source.ids) == ids
    assert again.source.special == (True, *[False] * 100)
    assert all(label.strip("␣").isalpha() for label in again.source.labels[1:])
    assert again.tensors["attention_mask"].tolist() == [[1] * 101]


def test_seeds_differ_and_stay_the_same(bundled: LoadedModel):
    given = inputs_for(bundled, "A cat.")
    texts = [repeated(bundled, given, seed).source.ids for seed in (0, 1, 0)]
    assert texts[0] == texts[2] != texts[1]


def test_scores_on_repeats_are_those_of_the_statistics(bundled: LoadedModel):
    again = finder.read_repeated(bundled, read(bundled, inputs_for(bundled, "A cat.")), 0)
    assert again is not None
    for layer, of in again.calls("decoder").items():
        found = finder.of_layer(again, "decoder", layer)
        weights = torch.stack([attention.weights(of, head) for head in range(of.heads)])
        torch.testing.assert_close(found["induction"].score, induction(weights, 50))
        expected = previous_token(weights[:, 1:, 1:])
        torch.testing.assert_close(found["previous token"].score, expected)
        copies = weights.diagonal(-50, -2, -1)[:, 1:]  # without [BOS] and the end of the first copy
        torch.testing.assert_close(found["duplicate token"].score, copies.mean(-1))


def loaded_tiny(folder: Path, family: str) -> LoadedModel:
    return load(saved_models.save(folder / family, family))


def test_an_encoder_decoder_reads_them_on_both_sides(tmp_path: Path):
    bart = loaded_tiny(tmp_path, "bart")
    again = finder.read_repeated(bart, read(bart, inputs_for(bart, "the cat sat", "the dog")), 1)
    assert again is not None
    r = again.inputs.source.ids[1:-1]  # </s> behind, <s> before though the tokenizer adds none
    assert r[: len(r) // 2] == r[len(r) // 2 :]
    assert (again.inputs.source.ids[0], again.inputs.source.ids[-1]) == (1, 2)
    assert again.inputs.target.ids == (2, *r)
    found = finder.of_layer(again, "cross", 1)
    assert list(found) == ["first token", "same token", "delimiter", "broad"]
    assert found["same token"].rows == len(r)
    assert found["same token"].even == pytest.approx(2 / (len(r) + 2))


def test_a_short_model_repeats_fewer_tokens(bundled: LoadedModel):
    short = replace(bundled, card=replace(bundled.card, max_tokens=24))
    again = repeated(short, inputs_for(bundled, "A cat."), 0)
    assert again is not None
    assert len(again.source.ids) == 1 + 2 * 11
    tiny = replace(bundled, card=replace(bundled.card, max_tokens=10))
    assert repeated(tiny, inputs_for(bundled, "A cat."), 0) is None


def test_a_picture_is_not_repeated(tmp_path: Path):
    vit = load(saved_models.save(tmp_path / "vit", "vit", text=False))
    reading = read(vit, inputs_for(vit, "", image=next(iter(DRAWINGS.values())).draw()))
    assert finder.read_repeated(vit, reading, 0) is None
    found = finder.of_layer(reading, "vision", 0)
    assert list(found) == ["first token", "self", "broad"]
    assert all(of.score.isfinite().all() for of in found.values())


def test_a_layer_that_was_not_read_is_missed(bundled: LoadedModel):
    reading = read(bundled, inputs_for(bundled, "A cat."))
    empty = replace(reading, capture=Capture("llama", ()))
    with pytest.raises(KeyError):
        finder.of_layer(empty, "decoder", 0)
