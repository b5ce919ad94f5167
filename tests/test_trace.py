"""What a trace keeps, what it lets go, and that it changes nothing."""

import threading

import torch
from torch import nn

from attnviz.trace import LONGEST, WIDEST, Step, Trace

X = torch.randn(2, 3, 5, 7)


def names(made) -> list[str]:
    """Operations behind a tensor, the last first, along first operands."""
    found = []
    while isinstance(made, Step):
        found.append(made.operation)
        made = made.operands[0]
    return found


def silent() -> Trace:
    return Trace(lambda step: None, lambda wide: None)


def test_spellings_of_an_operation_are_one():
    trace = silent()
    with trace:
        made = [X * 2, torch.mul(X, 2), X.clone().mul_(2), torch.multiply(X, 2)]
        ways = [names(trace.traced(tensor))[0] for tensor in made]
    assert ways == ["mul"] * 4


def test_steps_lead_back_in_order():
    trace = silent()
    with trace:
        made = nn.functional.softmax((X @ X.mT) / 2 + 1, dim=-1).transpose(1, 2)
    assert names(trace.traced(made)) == ["transpose", "softmax", "add", "div", "matmul"]


def test_operands_by_name_take_their_places():
    trace = silent()
    bias, left, right = torch.randn(3, 5, 5), torch.randn(3, 5, 7), torch.randn(3, 7, 5)
    with trace:
        made = bias.baddbmm(batch1=left, batch2=right, beta=2, alpha=0.5)
    step = trace.traced(made)
    assert all(a is b for a, b in zip(step.operands, (bias, left, right), strict=True))
    assert step.options["alpha"] == 0.5


def test_a_step_can_be_done_again():
    trace = silent()
    with trace:
        made = X.split([2, 5], dim=-1)[1]
    other = torch.randn_like(X)
    torch.testing.assert_close(trace.traced(made).again(other), other[..., 2:])


def test_at_rest_nothing_is_seen():
    trace = silent()
    with trace, trace.rest():
        made = X * 2
    assert trace.traced(made) is made


def test_two_ages_are_kept():
    trace = silent()
    with trace:
        made = X * 2
        trace.age()
        assert isinstance(trace.traced(made), Step)
        trace.age()
        assert trace.traced(made) is made


def test_a_long_run_without_attention_is_let_go():
    trace = silent()
    with trace:
        for _ in range(5 * LONGEST):
            X * 2
    assert len(trace.steps) + len(trace.older) <= 2 * (LONGEST + 1)


def test_wide_tensors_are_not_kept_and_a_wide_softmax_is_told():
    told = []
    trace = Trace(lambda step: None, told.append)
    wide = torch.randn(1, 2, 3, WIDEST + 1)
    with trace:
        made = (wide * 2).softmax(-1)
    assert trace.traced(made) is made
    assert [tuple(tensor.shape) for tensor in told] == [(1, 2, 3, WIDEST + 1)]


def test_the_parts_of_multihead_attention_are_seen():
    seen = []
    trace = Trace(lambda step: seen.append(step.operation), lambda wide: None)
    attention = nn.MultiheadAttention(10, 5, batch_first=True).eval()
    x = torch.randn(2, 3, 10)
    plain = attention(x, x, x)[0]
    with trace, torch.no_grad():
        traced = attention(x, x, x)[0]
    torch.testing.assert_close(traced, plain)
    assert "softmax" in seen


def test_other_threads_are_not_seen():
    trace, made = silent(), []
    with trace:
        thread = threading.Thread(target=lambda: made.append(X * 2))
        thread.start()
        thread.join()
    assert trace.traced(made[0]) is made[0]
