"""Products with a matrix in every form that models write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnviz.matrix_products import MatrixProduct, counted, matrix_product, whole
from attnviz.trace import Step, Trace

BATCH, TOKENS, HEADS, D_K, D_IN = 2, 5, 3, 7, 11
D_OUT = HEADS * D_K


def random(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def parameter(*sizes: int, seed: int = 1) -> nn.Parameter:
    return nn.Parameter(random(*sizes, seed=seed), requires_grad=False)


X = random(BATCH, TOKENS, D_IN)
W, B = parameter(D_OUT, D_IN), parameter(D_OUT, seed=2)
PLAIN = torch.einsum("btd,od->bto", X, W)


def step_of(compute: Callable[[], Tensor]) -> tuple[Step, Tensor]:
    """The last step of what is computed, and its result."""
    trace = Trace(lambda step: None, everything=True)
    with trace:
        made = compute()
    step = trace.traced(made)
    assert isinstance(step, Step)
    return step, made


def product_of(compute: Callable[[], Tensor]) -> MatrixProduct | None:
    return matrix_product(step_of(compute)[0])


def assert_is_product(compute: Callable[[], Tensor], data: Tensor, biased: bool) -> None:
    """The result stands, at `place`, as row by row of the data times the matrix, and the bias."""
    step, made = step_of(compute)
    product = matrix_product(step)
    assert product is not None
    assert product.place.shape == made.shape
    assert torch.equal(product.place.flatten().sort()[0], torch.arange(made.numel()))
    rows = product.by_rows(data)
    assert rows.shape[1] == product.weight.shape[1]
    result = torch.einsum("rd,od->ro", rows, product.weight)
    assert (product.bias is not None) == biased
    if product.bias is not None:
        result = result + product.bias
    torch.testing.assert_close(result.flatten()[product.place], made, atol=1e-5, rtol=0)


CHANNELS = X.mT.contiguous()  # (batch, d_in, token)
W_T, W_1 = parameter(D_IN, D_OUT, seed=3), parameter(D_OUT, D_IN, 1, seed=4)
W_HEADS = parameter(D_IN, HEADS, D_K, seed=5)
TOKENS_FIRST = X.transpose(0, 1).contiguous()
BY_HEAD = random(TOKENS, BATCH, HEADS, D_K, seed=6)
W_O = parameter(D_IN, HEADS, D_K, seed=7)
FORMS: dict[str, tuple[Callable[[], Tensor], Tensor, bool]] = {
    "linear": (lambda: nn.functional.linear(X, W, B), X, True),
    "linear by name": (lambda: nn.functional.linear(X, W, bias=None), X, False),
    "linear without bias": (lambda: nn.functional.linear(X, W), X, False),
    "Conv1D of GPT-2": (lambda: torch.addmm(B, X.view(-1, D_IN), W_T), X.view(-1, D_IN), True),
    "x @ W.T": (lambda: X @ W.T, X, False),
    "x @ W.T + b": (lambda: X @ W.T + B, X, True),
    "matmul": (lambda: torch.matmul(X, W_T), X, False),
    "mm": (lambda: torch.mm(X[0], W_T), X[0], False),
    "one row": (lambda: nn.functional.linear(X[:1, :1], W, B), X[:1, :1], True),
    "convolution of width 1": (lambda: nn.functional.conv1d(CHANNELS, W_1, B), CHANNELS, True),
    "einsum with heads": (
        lambda: torch.einsum("ibh,hnd->ibnd", TOKENS_FIRST, W_HEADS),
        TOKENS_FIRST,
        False,
    ),
    "einsum that moves heads": (
        lambda: torch.einsum("ibh,hnd->bnid", TOKENS_FIRST, W_HEADS),
        TOKENS_FIRST,
        False,
    ),
    "einsum that sums over heads": (
        lambda: torch.einsum("ibnd,hnd->ibh", BY_HEAD, W_O),
        BY_HEAD,
        False,
    ),
    "einsum of a list": (
        lambda: torch.einsum("b t d, d o -> b t o", [X, W_T]),
        X,
        False,
    ),
    "a part of a matrix": (lambda: nn.functional.linear(X, W[D_K : 2 * D_K], B[D_K:14]), X, True),
    "another precision": (lambda: nn.functional.linear(X.double(), W.double()).float(), X, False),
}
NAMES = [name for name in FORMS if name != "another precision"]


@pytest.mark.parametrize("form", NAMES)
def test_a_product_says_what_was_multiplied_by_what(form: str):
    assert_is_product(*FORMS[form])


def test_a_matrix_in_another_precision_is_the_models():
    product = product_of(lambda: nn.functional.linear(X.double(), W.double()))
    assert product is not None
    torch.testing.assert_close(product.weight, W.double())


def test_rows_are_tokens_in_the_order_of_the_data():
    product = product_of(lambda: nn.functional.linear(X, W, B))
    assert product is not None
    assert torch.equal(product.by_rows(X)[TOKENS + 3], X[1, 3])
    assert product.place.tolist()[1][3][4] == (TOKENS + 3) * D_OUT + 4


def test_channels_before_tokens_are_turned():
    product = product_of(lambda: nn.functional.conv1d(CHANNELS, W_1, B))
    assert product is not None
    assert torch.equal(product.by_rows(CHANNELS)[TOKENS + 3], X[1, 3])
    assert product.place.tolist()[1][4][3] == (TOKENS + 3) * D_OUT + 4


def test_heads_of_an_einsum_stand_one_after_the_other():
    product = product_of(lambda: torch.einsum("ibh,hnd->ibnd", TOKENS_FIRST, W_HEADS))
    assert product is not None
    assert torch.equal(product.by_rows(TOKENS_FIRST)[3 * BATCH + 1], X[1, 3])
    assert product.place.tolist()[3][1][2][4] == (3 * BATCH + 1) * D_OUT + 2 * D_K + 4
    torch.testing.assert_close(product.weight[2 * D_K + 4], W_HEADS[:, 2, 4])


@pytest.mark.parametrize(
    "compute",
    [
        lambda: X @ random(D_IN, D_OUT),  # not the model's own
        lambda: X @ X.mT,
        lambda: nn.functional.linear(X, random(D_OUT, D_IN)),
        lambda: torch.addmm(B, X[0], W_T, beta=0.5),
        lambda: torch.addmm(B, X[0], W_T, alpha=2),
        lambda: nn.functional.conv1d(CHANNELS, parameter(D_OUT, D_IN, 3)),
        lambda: nn.functional.conv1d(CHANNELS, W_1, stride=2),
        lambda: nn.functional.conv1d(CHANNELS, W_1, padding=1),
        lambda: nn.functional.conv1d(CHANNELS, parameter(D_IN, 1, 1), groups=D_IN),
        lambda: torch.einsum("btd,d->btd", X, parameter(D_IN)),
        lambda: torch.einsum("bto,bto->bt", PLAIN, PLAIN),
        lambda: torch.einsum("bhd,hod->bho", X[:, :HEADS], parameter(HEADS, D_OUT, D_IN)),
        lambda: X + parameter(D_IN),
        lambda: (X @ W.T) + PLAIN,
        lambda: (X @ W.T) + parameter(TOKENS, D_OUT),
        lambda: (X @ W.T + B) + B,
        lambda: X * 2,
        lambda: torch.relu(X @ W.T),
    ],
)
def test_what_is_no_product_with_a_matrix_and_nothing_else(compute: Callable[[], Tensor]):
    assert product_of(compute) is None


def test_a_product_that_was_written_over_is_none():
    def compute() -> Tensor:
        made = X @ W.T
        made += B
        return made

    assert product_of(compute) is None


def test_a_tensor_is_no_product():
    assert matrix_product(X) is None
    assert matrix_product(None) is None


def test_what_a_part_was_cut_from():
    assert whole(W) is W
    assert whole(W[2:5]) is W
    assert whole("text") == "text"
    trace = Trace(lambda step: None, everything=True)
    with trace:
        made = W.T.view(D_IN, HEADS, D_K)[:, 1].contiguous()
        other = (W * 2).T
    assert whole(trace.traced(made)) is W
    assert whole(trace.traced(other)).operation == "mul"


def test_numbers_are_counted_through():
    assert counted(torch.zeros(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
