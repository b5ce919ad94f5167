"""What a model makes of its inputs, against the same worked out from its logits."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import tiny
import torch
import transformers as hf
from test_surgery import FACTOR, model_of
from tiny_models import inputs_for, spread
from torch import Tensor

from attnviz.inputs import Inputs
from attnviz.inputs import inputs_for as inputs_of_text
from attnviz.models import load
from attnviz.outcome import Outcome, effect, likeliest, outcome, relative_change, runs
from attnviz.surgery import Scaling, scaled
from attnviz.tokens import tokenize

STORY = "Once upon a time there was a king who had a daughter, and the king loved the daughter."


def loaded(model: hf.PreTrainedModel, tokenizer: object = None) -> SimpleNamespace:
    return SimpleNamespace(model=model, tokenizer=tokenizer)


def test_loss_and_next_token_of_a_decoder():
    model, inputs = model_of("gpt2"), inputs_for("gpt2", 7)
    found = outcome(loaded(model), Inputs(inputs, None), [Scaling(FACTOR)])
    logits = scaled(model, inputs, [Scaling(FACTOR)]).logits[0].double()
    ids = inputs["input_ids"][0].tolist()
    by_hand = [
        math.log(sum(math.exp(x) for x in logits[i - 1].tolist())) - float(logits[i - 1, ids[i]])
        for i in range(1, 7)
    ]
    assert found.predicted == "from before"
    assert math.isnan(found.loss[0])
    assert found.loss[1:].tolist() == pytest.approx(by_hand, abs=1e-5)
    assert found.mean_loss == pytest.approx(sum(by_hand) / 6, abs=1e-5)
    exponentials = [math.exp(x) for x in logits[-1].tolist()]
    chances = [x / sum(exponentials) for x in exponentials]
    assert found.next_token.tolist() == pytest.approx(chances, abs=1e-6)
    assert found.entropy == pytest.approx(-sum(p * math.log(p) for p in chances), abs=1e-5)


def test_one_token_alone_has_no_loss():
    found = outcome(loaded(model_of("llama")), Inputs(inputs_for("llama", 1), None))
    assert found.mean_loss is None
    assert float(found.next_token.sum()) == pytest.approx(1, abs=1e-5)


def test_an_encoder_decoder_is_asked_for_its_target():
    inputs = inputs_for("t5")
    found = outcome(loaded(model_of("t5")), Inputs(inputs, None))
    assert found.loss.shape == (7,)
    assert int(found.loss.isnan().sum()) == 1


def masked_language_model() -> SimpleNamespace:
    """A tiny BERT of whole words that fills in its mask."""
    tokenizer = tiny.wordpiece()
    config = hf.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=55,
        intermediate_size=31,
        num_hidden_layers=2,
        num_attention_heads=5,
        max_position_embeddings=97,
    )
    return loaded(spread(hf.BertForMaskedLM(config)).eval(), tokenizer)


@pytest.fixture(scope="module")
def masked() -> SimpleNamespace:
    return masked_language_model()


def inputs_of(tokenizer: object, text: str) -> Inputs:
    tokens = tokenize(tokenizer, text)
    return Inputs({"input_ids": torch.tensor([tokens.ids])}, tokens)


def test_masked_loss_of_few_tokens_masks_each_alone(masked: SimpleNamespace):
    inputs = inputs_of(masked.tokenizer, "the cat sat on the mat")
    ids = inputs.tensors["input_ids"]
    found = outcome(masked, inputs, [Scaling(FACTOR)])
    assert found.predicted == "masked"
    for place in range(1, 7):
        hidden = ids.clone()
        hidden[0, place] = masked.tokenizer.mask_token_id
        logits = scaled(masked.model, {"input_ids": hidden}, [Scaling(FACTOR)]).logits[0, place]
        expected = logits.double().logsumexp(0) - logits[ids[0, place]]
        assert float(found.loss[place]) == pytest.approx(float(expected), abs=1e-5)
    assert found.loss.isnan().tolist() == [True, *[False] * 6, True]
    assert found.next_token is None
    assert found.entropy is None


def test_masked_loss_of_a_longer_text_masks_each_token_once_in_seven_runs(
    masked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    inputs, seen = inputs_of(masked.tokenizer, "the cat sat on the mat, " * 5), []
    forward = masked.model.forward

    def noting(input_ids: Tensor, **others: object) -> object:
        seen.append(input_ids[0] == masked.tokenizer.mask_token_id)
        return forward(input_ids, **others)

    first = outcome(masked, inputs)
    monkeypatch.setattr(masked.model, "forward", noting)
    again = outcome(masked, inputs)
    assert torch.equal(first.loss[1:-1], again.loss[1:-1])
    assert torch.stack(seen).sum(0).tolist() == [0, *[1] * (len(inputs.source) - 2), 0]
    shares = [float(hidden.sum()) / (len(inputs.source) - 2) for hidden in seen]
    assert len(seen) == 7
    assert all(0.1 < share < 0.2 for share in shares)


def test_without_a_loss_the_output_is_compared():
    model, inputs = model_of("bert"), Inputs(inputs_for("bert"), None)
    before, same = outcome(loaded(model), inputs), outcome(loaded(model), inputs, [Scaling(1.0)])
    after = outcome(loaded(model), inputs, [Scaling(FACTOR)])
    assert (before.predicted, before.mean_loss) == ("not", None)
    assert relative_change(before, same) == 0
    a, b = before.output.double().flatten(), after.output.double().flatten()
    assert relative_change(before, after) == pytest.approx(
        math.sqrt(float(((a - b) ** 2).sum() / (a**2).sum())), rel=1e-4
    )
    assert likeliest(before, after) == ()


@pytest.mark.parametrize("family", ["clip", "vit", "wav2vec2", "whisper"])
def test_any_model_has_an_outcome(family: str):
    model, inputs = model_of(family), Inputs(inputs_for(family), None)
    before, after = outcome(loaded(model), inputs), outcome(loaded(model), inputs, [Scaling(0.5)])
    if family == "whisper":
        assert before.mean_loss != after.mean_loss
    else:
        assert relative_change(before, after) > 1e-3


def test_likeliest_before_or_after():
    def predicting(*chances: float) -> Outcome:
        return Outcome("from before", None, torch.tensor(chances), None)

    before, after = predicting(0.5, 0.3, 0.15, 0.05), predicting(0.1, 0.05, 0.2, 0.65)
    assert likeliest(before, after, 3) == (3, 0, 1)
    assert likeliest(before, after) == (3, 0, 1, 2)
    assert relative_change(before, after) is None


def test_the_bundled_model_is_at_its_best_near_its_own_scale():
    """And dividing by d_k or d_k² costs a trained model more than not dividing at all."""
    bundled = load("bundled")
    inputs = inputs_of_text(bundled, STORY)

    def loss(factor: float) -> float:
        return outcome(bundled, inputs, [Scaling(factor)]).mean_loss

    assert min([0.0, 0.1, 0.3, 1.0, 3.0, 10.0], key=loss) == 1.0
    d_k = 32
    own, undivided, by_d_k, by_square = (loss(d_k**p) for p in (0.0, 0.5, -0.5, -1.5))
    assert own + 0.2 < undivided < by_d_k < by_square


# --- before and after


def test_an_effect_of_two_outcomes_by_hand():
    def predicting(losses: list[float], chances: list[float]) -> Outcome:
        return Outcome("from before", torch.tensor(losses), torch.tensor(chances), None)

    before = predicting([math.nan, 1.0, 2.5], [0.25, 0.75])
    found = effect(before, predicting([math.nan, 2.0, 2.5], [0.5, 0.5]))
    assert found.mean_losses == pytest.approx((1.75, 2.25))
    assert found.amount == pytest.approx(2.25)
    assert [x[1:].tolist() for x in found.losses] == [[1.0, 2.5], [2.0, 2.5]]
    assert found.entropies == pytest.approx((0.5623351, math.log(2)))
    assert found.next_tokens == ((1, 0.75, 0.5), (0, 0.25, 0.5))
    assert (found.moved, found.change) == (None, None)


def test_an_effect_on_vectors_by_hand():
    """Of lengths 5 and 10 one stays and one turns by a right angle."""

    def vectors(*numbers: list[float]) -> Outcome:
        return Outcome("not", None, None, torch.tensor([numbers]))

    found = effect(vectors([3.0, 4.0], [10.0, 0.0]), vectors([3.0, 4.0], [0.0, 10.0]))
    assert found.moved.tolist() == pytest.approx([0.0, math.sqrt(2)])
    assert found.amount == found.change == pytest.approx(math.sqrt(200 / 125))
    assert (found.losses, found.mean_losses, found.entropies) == (None, None, None)
    assert found.next_tokens == ()


def test_one_output_of_no_tokens_has_no_vector_for_each():
    pooled = Outcome("not", None, None, torch.ones(1, 7))
    assert effect(pooled, pooled).moved is None
    assert effect(pooled, pooled).change == 0


def test_runs_of_one_outcome(masked: SimpleNamespace):
    short, long = (inputs_of(masked.tokenizer, "the cat sat on " * n) for n in (1, 5))
    assert (runs(masked, short), runs(masked, long)) == (4, 7)
    assert runs(loaded(model_of("gpt2")), Inputs(inputs_for("gpt2"), None)) == 1
