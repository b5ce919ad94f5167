"""Rotations of every layout, undone; other sums of products are not taken for one."""

import pytest
import torch
from torch import Tensor

from attnviz.rotation import before_rotation
from attnviz.trace import Trace

BATCH, HEADS, TOKENS, WIDTH = 2, 3, 5, 14


def angles(width: int = WIDTH) -> tuple[Tensor, Tensor]:
    """Cosine and sine per token and pair, the pairs' angles twice over."""
    theta = torch.arange(TOKENS)[:, None] * 0.7 ** torch.arange(width // 2)
    return theta.cos(), theta.sin()


def by_halves(x: Tensor) -> Tensor:
    cos, sin = (torch.cat([part, part], -1) for part in angles(x.shape[-1]))
    half = x.shape[-1] // 2
    return (x * cos) + (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin)


def by_parts(x: Tensor) -> Tensor:
    cos, sin = angles()
    first, second = torch.chunk(x, 2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def by_pairs(x: Tensor) -> Tensor:
    cos, sin = angles()
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def by_complex_numbers(x: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(*angles())).flatten(-2)


def in_part(x: Tensor) -> Tensor:
    return torch.cat((by_halves(x[..., :6]), x[..., 6:]), dim=-1)


def stretched(x: Tensor) -> Tensor:
    cos, sin = (1.3 * torch.cat([part, part], -1) for part in angles())
    return x * cos + torch.cat((-x[..., 7:], x[..., :7]), -1) * sin


def filled_in(x: Tensor) -> Tensor:
    whole = x.new_empty(x.shape)
    whole[..., :6].copy_(by_halves(x[..., :6]))
    whole[..., 6:].copy_(x[..., 6:])
    return whole


def traced(make) -> tuple[Tensor, Tensor, Tensor | None]:
    """A random query, what was made of it, and what is found before the rotation."""
    torch.manual_seed(3)
    x = torch.randn(BATCH, HEADS, TOKENS, WIDTH)
    trace = Trace(lambda step: None, lambda wide: None)
    with trace:
        made = make(x)
    return x, made, before_rotation(trace.traced(made))


@pytest.mark.parametrize(
    "rotate",
    [by_halves, by_parts, by_pairs, by_complex_numbers, in_part, stretched, filled_in],
)
def test_the_query_before_its_rotation_is_found(rotate):
    x, rotated, found = traced(rotate)
    assert not torch.allclose(rotated[:, :, 1:], x[:, :, 1:], atol=0.1)
    torch.testing.assert_close(found, x)


def test_what_comes_after_the_rotation_is_done_to_the_unrotated_too():
    x, _, found = traced(lambda x: (2 * by_halves(x).transpose(1, 2)).float())
    torch.testing.assert_close(found, 2 * x.transpose(1, 2))


def test_a_norm_after_the_rotation_is_kept():
    def make(x: Tensor) -> Tensor:
        turned = by_halves(x)
        return turned * torch.rsqrt(turned.pow(2).mean(-1, keepdim=True))

    x, _, found = traced(make)
    torch.testing.assert_close(found, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.transpose(1, 2),
        lambda x: x * 0.5 + x.roll(1, -1) * 0.9,  # a mixture that keeps no length
        lambda x: x + 1,
        lambda x: torch.relu(by_halves(x)),  # no way back is known
    ],
)
def test_nothing_is_made_up(make):
    assert traced(make)[2] is None


def with_the_sine_first(x: Tensor) -> Tensor:
    cos, sin = (torch.cat([part, part], -1) for part in angles())
    return torch.cat((-x[..., 7:], x[..., :7]), -1) * sin + x * cos


def in_float32(x: Tensor) -> Tensor:
    cos, sin = (torch.cat([part, part], -1) for part in angles())
    halves = x.double()
    return x.double() * cos + torch.cat((-halves[..., 7:], halves[..., :7]), -1) * sin


@pytest.mark.parametrize("rotate", [with_the_sine_first, in_float32])
def test_the_rotated_copy_is_not_taken_for_the_query(rotate):
    x, _, found = traced(rotate)
    torch.testing.assert_close(found, x.to(found.dtype))


def test_a_step_in_place_is_not_done_to_the_models_own_tensor():
    kept = []

    def make(x: Tensor) -> Tensor:
        kept.append(x.clone())
        turned = by_halves(x)
        turned *= 2
        return turned

    x, _, found = traced(make)
    torch.testing.assert_close(x, kept[0])
    torch.testing.assert_close(found, 2 * x)


def test_a_query_that_was_overwritten_is_not_had_any_more():
    def make(x: Tensor) -> Tensor:
        cos, sin = (torch.cat([part, part], -1) for part in angles())
        turned = torch.cat((-x[..., 7:], x[..., :7]), -1) * sin
        return x.mul_(cos).add_(turned)

    assert traced(make)[2] is None


def test_tokens_are_all_rotated_or_none():
    """As where a cache holds keys that were rotated in another run."""
    assert traced(lambda x: torch.cat((x, by_halves(x)), dim=-2))[2] is None
    x, _, found = traced(lambda x: torch.cat((by_halves(x), by_halves(x)), dim=2))
    torch.testing.assert_close(found, torch.cat((x, x), dim=2))


def test_an_empty_cache_before_the_tokens_hides_no_rotation():
    x, _, found = traced(lambda x: torch.cat((torch.tensor([]), by_halves(x)), dim=-2))
    torch.testing.assert_close(found, x)


def test_a_mixture_with_something_else_is_no_rotation():
    assert traced(lambda x: x * 1.0 + torch.zeros_like(x) * 0.5)[2] is None
