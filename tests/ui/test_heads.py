"""One head at a time: its numbers against what transformers computes itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import saved_models
import tiny_models
import torch

from attnviz import attention
from attnviz.ui import heads
from attnviz.ui.heads import Head, can_hide_first, head, marks, patch_of, row, without_first
from attnviz.ui.readings import Asked, served

TEXT = "The cat sat on the mat because it was tired"


def asked(folder: Path, family: str, **given: str) -> Asked:
    return Asked(saved_models.save(folder / family, family), TEXT, **given)


@pytest.mark.parametrize(
    ("family", "part", "terms"),
    [
        ("gpt2", "decoder", ["score", "scale", "logit"]),
        ("llama", "decoder", ["score before rotation", "score", "scale", "logit"]),
        ("gemma2", "decoder", ["score before rotation", "score", "scale", "soft cap", "logit"]),
        ("t5", "encoder", ["score", "scale", "bias", "logit"]),
        ("t5", "cross", ["score", "scale", "logit"]),
    ],
)
def test_the_terms_of_a_row_add_up_to_its_logits_and_weights(
    tmp_path: Path, family: str, part: str, terms: list[str]
):
    question = asked(tmp_path, family, target="the king was tired")
    shown = head(question, part, 1, 2)
    table = row(question, shown, 3)
    assert list(table.columns) == ["key", "token", "weight", "logit", *terms[:-1]]
    added = table["score"] * table["scale"]
    for term in ("soft cap", "bias"):
        added += table.get(term, 0.0)
    np.testing.assert_allclose(added, table["logit"], rtol=1e-4, atol=1e-5)
    exponentials = np.exp(table["logit"])
    np.testing.assert_allclose(table["weight"], exponentials / exponentials.sum(), atol=1e-5)


def test_t5_does_not_divide_and_its_bias_is_that_of_the_model(tmp_path: Path):
    question = asked(tmp_path, "t5", target="the king")
    shown = head(question, "encoder", 1, 2)
    model = tiny_models.build("t5")
    bias = model.encoder.block[0].layer[0].SelfAttention.compute_bias(11, 11)[0, 2, 3]
    table = row(question, shown, 3).set_index("key").sort_index()
    assert set(table["scale"]) == {1.0}
    np.testing.assert_allclose(table["bias"], bias.detach().numpy(), atol=1e-5)


def test_cross_attention_is_the_models_own(tmp_path: Path):
    question = asked(tmp_path, "bart", target="the king was tired")
    shown = head(question, "cross", 1, 3)
    model = tiny_models.build("bart", "eager")
    with torch.no_grad():
        own = model(**served(question).inputs.tensors, output_attentions=True)
    np.testing.assert_allclose(shown.matrix, own.cross_attentions[1][0, 3].numpy(), atol=1e-5)
    assert shown.n == shown.matrix.shape == (5, 11)
    assert shown.cross
    assert shown.first_share == pytest.approx(float(shown.matrix[0].mean()))
    assert shown.first_even == pytest.approx(1 / 11)


def test_even_weights_on_the_first_token_are_those_of_later_tokens(tmp_path: Path):
    shown = head(asked(tmp_path, "gpt2"), "decoder", 0, 0)
    assert shown.first_even == pytest.approx(np.mean([1 / keys for keys in range(2, 12)]))
    assert shown.first_share == pytest.approx(float(shown.matrix[0].iloc[1:].mean()))


def test_each_statistic_says_over_which_queries_it_is_averaged(tmp_path: Path):
    shown = head(asked(tmp_path, "gpt2"), "decoder", 1, 2)
    table = shown.statistics.set_index("statistic")
    later = table[table["queries"] == "all but the first token"]["mean over queries"]
    matrix = shown.matrix.to_numpy()
    assert later.to_dict() == pytest.approx(
        {
            "weight on the first token": matrix[1:, 0].mean(),
            "weight on the previous token": np.diagonal(matrix, -1).mean(),
            "weight on itself": np.diagonal(matrix)[1:].mean(),
        },
        rel=1e-5,
    )
    whole = table[table["queries"] == "all"]["mean over queries"]
    entropies = -(matrix * np.log(np.where(matrix > 0, matrix, 1))).sum(1)
    assert whole["effective number of keys"] == pytest.approx(np.exp(entropies).mean(), rel=1e-5)
    assert table["queries"]["entropy, relative to uniform"] == "all that see several keys"
    assert shown.evenness == pytest.approx((entropies[1:] / np.log(range(2, 12))).mean(), rel=1e-5)


def test_a_hybrid_keeps_true_layer_numbers(tmp_path: Path):
    reading = served(asked(tmp_path, "jamba"))
    assert list(reading.calls("decoder")) == [1, 4]
    assert sorted(reading.unread("decoder")) == [0, 2, 3]
    assert reading.calls("decoder")[4].module == "model.layers.4.self_attn"


def test_a_head_with_a_learned_sink_says_so(tmp_path: Path):
    shown = head(asked(tmp_path, "gpt_oss"), "decoder", 1, 2)
    assert shown.learned_sink
    assert shown.matrix.sum(axis=1).max() < 1


def test_without_its_first_token_a_row_is_the_softmax_of_the_other_logits(tmp_path: Path):
    question = asked(tmp_path, "llama")
    whole = head(question, "decoder", 1, 2)
    hidden = without_first(whole)
    assert list(hidden.matrix.index) == list(hidden.matrix.columns) == list(range(1, 11))
    logits = row(question, whole, 6).set_index("key")["logit"].sort_index().loc[1:]
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(hidden.matrix.loc[6, 1:6], expected, atol=1e-5)
    assert not whole.hidden
    assert hidden.hidden
    table = row(question, hidden, 6)
    assert sorted(table["key"]) == [1, 2, 3, 4, 5, 6]
    assert table["weight"].sum() == pytest.approx(1)


def test_in_cross_attention_only_the_key_is_hidden(tmp_path: Path):
    hidden = without_first(head(asked(tmp_path, "bart", target="the king"), "cross", 0, 0))
    assert hidden.matrix.shape == (3, 10)
    np.testing.assert_allclose(hidden.matrix.sum(axis=1), 1, atol=1e-6)


def test_a_single_token_cannot_be_hidden(tmp_path: Path):
    folder = saved_models.save(tmp_path / "model", "gpt2")
    alone = head(Asked(folder, "cat"), "decoder", 0, 0)
    assert alone.matrix.shape == (2, 2)  # the tokenizer adds an end
    assert can_hide_first(alone)
    one = replace(alone, matrix=alone.matrix.iloc[:1, :1])
    assert without_first(one) is one


def test_a_model_saved_again_under_its_name_is_read_again(tmp_path: Path):
    question = asked(tmp_path, "gpt2")
    before = head(question, "decoder", 0, 0)
    other = tiny_models.spread(tiny_models.build("gpt2"), seed=5)
    saved_models.save(tmp_path / "gpt2", other)
    after = head(question, "decoder", 0, 0)
    assert np.abs(before.matrix - after.matrix).to_numpy().max() > 0.05


def test_weights_alone_are_shown_without_scores_and_variances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    question = asked(tmp_path, "gpt2")
    reading = served(question)
    call = reading.calls("decoder")[1]
    own = torch.stack([attention.weights(call, index) for index in range(call.heads)])[None]
    alone = replace(call, query=None, key=None, mask=None, observed_weights=own)
    only = replace(reading, capture=replace(reading.capture, calls=(alone,)))
    monkeypatch.setattr(heads, "served", lambda asked: only)
    shown = head(replace(question, text="another key of the cache"), "decoder", 1, 2)
    np.testing.assert_array_equal(shown.matrix, own[0, 2].numpy())
    np.testing.assert_array_equal(shown.visible, np.tri(11, dtype=bool))
    assert (shown.d_k, shown.scale, shown.score_variance, shown.logit_variance) == (None,) * 4
    assert marks(shown) is None
    assert list(row(question, shown, 3).columns) == ["key", "token", "weight"]


def grid_head(**changes) -> Head:
    from ui.test_sentences import axis
    from ui.test_sentences import head as written

    words = axis("[CLS]", "[REG0]", *(f"r{r}c{c}" for r in range(2) for c in range(3)))
    tokens = words.assign(special=words["token"].str.startswith("["))
    return written(queries=tokens, keys=tokens, grid=(2, 3), **changes)


def test_patches_know_their_place():
    assert patch_of(grid_head(), 1) is None
    assert [patch_of(grid_head(), query) for query in (2, 4, 5)] == [(0, 0), (0, 2), (1, 0)]
    hidden = replace(grid_head(), queries=grid_head().queries.iloc[1:])
    assert patch_of(hidden, 5) == (1, 0)
