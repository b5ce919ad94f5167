"""One class of every model type that a tiny configuration builds: read, or refused with a reason.

Whether a class executes softmax attention is judged from the operators of a plain run, without
attnviz; its weights are compared with the softmax of the same model under eager attention. The
sweep over all classes is `python -m benchmarks.every_model`.
"""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from torch import nn

from attnviz import attention
from benchmarks import every_model
from benchmarks.every_model import Finding, Judge

TYPES_BUILT = 590
READ_AT_LEAST = 0.9


@pytest.fixture(scope="session")
def findings() -> list[Finding]:
    return every_model.sweep(workers=2, one_per_type=True)


@pytest.fixture(scope="session")
def attending(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.attentions]


def told(findings: list[Finding], what: str) -> str:
    return "\n".join(f"{finding.name}: {getattr(finding, what)}" for finding in findings)


def test_builder_still_builds(findings: list[Finding]):
    built = {finding.model_type for finding in findings if finding.built}
    failed = [finding for finding in findings if finding.model_type not in built]
    assert len(built) >= TYPES_BUILT, told(failed, "reason")


def test_nothing_but_unreadable_model_is_raised(findings: list[Finding]):
    raised = [finding for finding in findings if finding.status == "raised"]
    assert not raised, told(raised, "reason")


def test_most_types_that_attend_are_read(attending: list[Finding]):
    refused = [finding for finding in attending if finding.status != "read"]
    assert len(refused) <= (1 - READ_AT_LEAST) * len(attending), told(refused, "reason")


def test_nothing_is_drawn_unverified(findings: list[Finding]):
    """Finite rows that sum to 1, errors in tolerance, weights of eager attention, no traces."""
    wrong = [finding for finding in findings if finding.problems]
    assert not wrong, told(wrong, "problems")


def test_most_calls_were_compared_with_eager_attention(attending: list[Finding]):
    """The guard of the test above: a comparison that never happens would find nothing."""
    calls = sum(finding.calls for finding in attending)
    assert sum(finding.compared for finding in attending) >= 0.8 * calls > 0


def test_what_does_not_attend_is_refused(findings: list[Finding]):
    idle = [finding for finding in findings if finding.built and not finding.attentions]
    read = [finding for finding in idle if finding.status == "read"]
    assert idle
    assert not read, told(read, "layers")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda weights: 0.9 * weights, "does not sum to 1"),
        (lambda weights: weights.roll(1, -1), "differ from the model's own"),
        (lambda weights: weights / 0, "not finite"),
    ],
)
def test_checks_notice_wrong_weights(monkeypatch: pytest.MonkeyPatch, wrong, said: str):
    right = attention.weights
    monkeypatch.setattr(attention, "weights", lambda *others: wrong(right(*others)))
    finding = every_model.examined("BertModel", hf.BertModel)
    assert said in "\n".join(finding.problems)


class Attention(nn.Module):
    """One head by hand, with a choice of what happens to its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.router = (nn.Linear(6, 5) for _ in range(4))

    def forward(self, states: torch.Tensor, kind: str) -> torch.Tensor:
        query, key, value = self.query(states), self.key(states), self.value(states)
        if kind == "fused":
            return nn.functional.scaled_dot_product_attention(query, key, value)
        if kind == "router":
            return self.router(states).softmax(-1) @ value.transpose(1, 2) @ value
        weights = (query @ key.transpose(1, 2) / 5**0.5).softmax(-1)
        return weights @ value if kind == "by hand" else weights * states[..., :1]


@pytest.mark.parametrize(
    ("kind", "attentions"), [("fused", 1), ("by hand", 1), ("router", 0), ("gate", 0)]
)
def test_judge_counts_products_of_weights_and_values(kind: str, attentions: int):
    module = Attention()
    with torch.no_grad(), Judge(module) as judge:
        module(torch.randn(2, 5, 6), kind)
    assert judge.attentions == attentions
