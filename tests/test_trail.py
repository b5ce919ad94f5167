"""Numbers followed back through what models do to them, against the same done to marked numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnviz.trace import Trace
from attnviz.trail import FACTORS, Trail

BATCH, TOKENS, HEADS, D_K = 2, 5, 3, 14
WIDTH = HEADS * D_K
ROOT = torch.arange(BATCH * TOKENS * WIDTH, dtype=torch.float).view(BATCH, TOKENS, WIDTH)
OTHER = torch.arange(BATCH * TOKENS * 17, dtype=torch.float).view(BATCH, TOKENS, 17)
functional = nn.functional


def followed(
    make: Callable[[Tensor, Tensor], Tensor], *roots: Tensor, **options
) -> tuple[Tensor, Tensor | None, Trail]:
    """What is made of the two tensors, and the addresses of its numbers."""
    one, other = ROOT.clone(), OTHER.clone()
    trace = Trace(lambda step: None, everything=True)
    with trace:
        made = make(one, other)
    marked = roots or (one,)
    marked = tuple({id(ROOT): one, id(OTHER): other}.get(id(root), root) for root in marked)
    trail = Trail(lambda step: any(step is root for root in marked), **options)
    return made, trail.follow(trace.traced(made)), trail


# --- moves: the numbers of ROOT are their own addresses

MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "view and transpose": lambda x: x.view(BATCH, TOKENS, HEADS, D_K).transpose(1, 2),
    "unflatten and permute": lambda x: x.unflatten(-1, (HEADS, D_K)).permute(2, 0, 3, 1),
    "folded batch and head": lambda x: (
        x.view(BATCH, TOKENS, HEADS, D_K).transpose(1, 2).reshape(-1, TOKENS, D_K)
    ),
    "turned for the product": lambda x: x.unflatten(-1, (HEADS, D_K)).permute(0, 2, 3, 1),
    "a chunk": lambda x: x.chunk(3, dim=-1)[1],
    "a split": lambda x: x.split([5, 7, 30], dim=-1)[1],
    "unbind": lambda x: x.unflatten(-1, (HEADS, D_K)).unbind(dim=2)[2],
    "interleaved heads": lambda x: x.view(BATCH, TOKENS, 7, 3, 2)[..., 1, :],
    "a slice": lambda x: x[:, 1:4, ::2],
    "an index": lambda x: x[..., torch.tensor([4, 2, 7])],
    "narrow and squeeze": lambda x: x.narrow(1, 2, 1).squeeze(1),
    "expand": lambda x: x[:, :, None].expand(-1, -1, 7, -1).flatten(1, 2),
    "broadcast_to": lambda x: torch.broadcast_to(x[:, None], (BATCH, 3, TOKENS, WIDTH)),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "precision and back": lambda x: x.double().float().contiguous().clone(),
    "mT and T": lambda x: x.mT[0].T,
    "roll": lambda x: torch.roll(x, shifts=(2, -1), dims=(1, 2)),
    "windows": lambda x: x.roll(1, 1)[:, 1:].reshape(BATCH, 2, 2, WIDTH).flatten(0, 1),
    "dropout at rest": lambda x: functional.dropout(x, 0.5, training=False),
    "joined again": lambda x: torch.cat([x[..., 20:], x[..., :20]], dim=-1),
    "stacked": lambda x: torch.stack([x[:, 0], x[:, 3]], dim=1),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_number_that_only_moves_keeps_its_address(move: str):
    made, addresses, _ = followed(lambda x, _: MOVES[move](x))
    assert addresses is not None
    assert torch.equal(addresses.float(), made)


# --- changes where the numbers stand


def rms_norm(x: Tensor) -> Tensor:
    weight = nn.Parameter(torch.rand(x.shape[-1]))
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "a factor": lambda x: 0.3 * x,
    "divided": lambda x: x / 7**0.5,
    "a factor in place": lambda x: x.clone().mul_(3),
    "layer norm": lambda x: functional.layer_norm(x, (WIDTH,)),
    "norm of each head": lambda x: functional.layer_norm(x.unflatten(-1, (HEADS, D_K)), (D_K,)),
    "RMS norm by hand": rms_norm,
    "RMS norm of torch": lambda x: functional.rms_norm(x, (WIDTH,)),
    "RMS norm in another precision": lambda x: rms_norm(x.double()).float(),
    "length 1": lambda x: functional.normalize(x, dim=-1),
    "a bias": lambda x: x + torch.rand(WIDTH),
    "a bias before": lambda x: torch.rand(WIDTH) + x,
    "a cap": lambda x: 5 * torch.tanh(x / 5),
    "clamped": lambda x: x.clamp(min=-3, max=3),
    "padding set to 0": lambda x: x.masked_fill(torch.ones(BATCH, TOKENS, 1) < 0, 0.0),
    "a gate": lambda x: x * torch.sigmoid(torch.rand(BATCH, TOKENS, WIDTH)),
    "a gate before": lambda x: torch.sigmoid(torch.rand(BATCH, TOKENS, WIDTH)) * x,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_number_that_is_changed_where_it_stands_keeps_its_address(change: str):
    made, addresses, _ = followed(lambda x, _: CHANGES[change](x))
    assert addresses is not None
    expected = torch.arange(made.numel())
    assert torch.equal(addresses.flatten(), expected)
    assert addresses.shape == made.shape


@pytest.mark.parametrize(
    ("change", "there"),
    [("a factor", True), ("RMS norm by hand", True), ("a bias", False), ("layer norm", False)],
)
def test_only_what_is_allowed_is_gone_through(change: str, there: bool):
    addresses = followed(lambda x, _: CHANGES[change](x), through=FACTORS)[1]
    assert (addresses is not None) is there


def test_a_smaller_factor_is_not_what_is_followed():
    """A mean is made of the root too, but its numbers are not where those of the result are."""
    _, addresses, _ = followed(lambda x, _: x[:, :1] * 2 + x)
    assert torch.equal(addresses, torch.arange(ROOT.numel()).view(ROOT.shape))


# --- rotations


def angles(pairs: int) -> tuple[Tensor, Tensor]:
    theta = torch.arange(TOKENS)[:, None] * 0.7 ** torch.arange(pairs)
    return theta.cos(), theta.sin()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, D_K)).transpose(1, 2)


def by_halves(x: Tensor) -> Tensor:
    cos, sin = (torch.cat([part, part], -1) for part in angles(x.shape[-1] // 2))
    half = x.shape[-1] // 2
    return (x * cos) + (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin)


def with_the_sine_first(x: Tensor) -> Tensor:
    cos, sin = (torch.cat([part, part], -1) for part in angles(D_K // 2))
    return torch.cat((-x[..., D_K // 2 :], x[..., : D_K // 2]), -1) * sin + x * cos


def by_parts(x: Tensor) -> Tensor:
    cos, sin = angles(D_K // 2)
    first, second = torch.chunk(x, 2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def by_neighbours(x: Tensor) -> Tensor:
    cos, sin = (part.repeat_interleave(2, -1) for part in angles(D_K // 2))
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * cos + turned * sin


def by_pairs(x: Tensor) -> Tensor:
    cos, sin = angles(D_K // 2)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def by_complex_numbers(x: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(*angles(D_K // 2))).flatten(-2)


def in_part(x: Tensor) -> Tensor:
    return torch.cat((by_halves(x[..., :6]), x[..., 6:]), dim=-1)


@pytest.mark.parametrize(
    "rotate",
    [
        by_halves,
        with_the_sine_first,
        by_parts,
        by_neighbours,
        by_pairs,
        by_complex_numbers,
        in_part,
        lambda x: by_halves(2 * x) / 2,
    ],
)
def test_a_rotated_number_has_the_address_of_the_one_that_stood_there(rotate: Callable):
    _, addresses, _ = followed(lambda x, _: rotate(heads(x)))
    assert torch.equal(addresses, heads(ROOT).long())


def test_a_rotation_that_puts_even_dimensions_first():
    """As DeepSeek's: what stands there is the even, then the odd ones, turned."""

    def rotate(x: Tensor) -> Tensor:
        cos, sin = angles(D_K // 2)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.cat((even * cos - odd * sin, odd * cos + even * sin), -1)

    _, addresses, _ = followed(lambda x, _: rotate(heads(x)))
    order = [*range(0, D_K, 2), *range(1, D_K, 2)]
    assert torch.equal(addresses, heads(ROOT).long()[..., order])


def test_a_sum_of_two_factors_is_no_rotation():
    """The second summand is followed where the first leads nowhere."""
    noise = torch.rand(BATCH, TOKENS, WIDTH)
    _, addresses, _ = followed(lambda x, _: torch.sigmoid(noise) * 0.3 + x * 0.7)
    assert torch.equal(addresses, ROOT.long())


# --- several roots, and parts from nowhere


def test_two_roots_are_told_apart():
    _, addresses, trail = followed(
        lambda x, y: torch.cat([y[..., 3:8], 2 * x[..., :4]], dim=-1), ROOT, OTHER
    )
    which, place = trail.root_of(addresses)
    assert [root.shape[-1] for root, _ in trail.roots] == [17, WIDTH]
    assert torch.equal(which[..., :5], torch.zeros(BATCH, TOKENS, 5).long())
    assert torch.equal(which[..., 5:], torch.ones(BATCH, TOKENS, 4).long())
    assert torch.equal(place[..., :5], OTHER[..., 3:8].long())
    assert torch.equal(place[..., 5:], ROOT[..., :4].long())
    assert trail.size == ROOT.numel() + OTHER.numel()


def test_a_root_met_twice_is_one():
    _, addresses, trail = followed(lambda x, _: torch.stack([x, x + 1]))
    assert len(trail.roots) == 1
    assert torch.equal(addresses[0], addresses[1])


def test_a_joined_part_from_nowhere_has_no_address():
    cls = torch.rand(BATCH, 1, WIDTH)
    _, addresses, trail = followed(lambda x, _: torch.cat([cls, x], dim=1))
    assert bool((addresses[:, 0] == -1).all())
    assert torch.equal(addresses[:, 1:], ROOT.long())
    which, place = trail.root_of(addresses)
    assert bool((which[:, 0] == -1).all())
    assert bool((place[:, 0] == -1).all())
    assert torch.equal(place[:, 1:], ROOT.long())


def test_padding_has_no_address():
    _, addresses, _ = followed(lambda x, _: functional.pad(x, (0, 0, 2, 1)))
    assert addresses.shape == (BATCH, TOKENS + 3, WIDTH)
    assert torch.equal(addresses[:, 2:-1], ROOT.long())
    outside = torch.cat([addresses[:, :2], addresses[:, -1:]], dim=1)
    assert bool((outside == -1).all())


def test_a_tensor_that_is_filled_part_by_part():
    """As DeepSeek's keys."""

    def make(x: Tensor, y: Tensor) -> Tensor:
        whole = x.new_empty(BATCH, TOKENS, 9)
        whole[..., :4].copy_(x[..., 10:14])
        whole[..., 4:].copy_(y[..., :5])
        return whole

    made, addresses, trail = followed(make, ROOT, OTHER)
    which, place = trail.root_of(addresses)
    assert torch.equal(place, made.long())
    assert which[0, 0].tolist() == [0] * 4 + [1] * 5


@pytest.mark.parametrize(
    "make",
    [
        lambda x, _: torch.relu(x),
        lambda x, _: x @ torch.rand(WIDTH, 7),
        lambda x, _: x.sort(-1)[0],
        lambda x, _: x.flip(-1),
        lambda x, _: x.softmax(-1),
        lambda x, _: x.mean(-1, keepdim=True),
        lambda x, _: x.cumsum(-1),
        lambda x, _: torch.rand(BATCH, TOKENS, WIDTH),
        lambda _, y: 2 * y,
        lambda x, y: torch.cat([torch.relu(x), y], dim=-1),
        lambda x, _: x.mean(-1, keepdim=True) * torch.rand(BATCH, TOKENS, WIDTH),
    ],
)
def test_what_cannot_be_followed_has_no_addresses(make: Callable):
    assert followed(make)[1] is None


def test_what_no_step_made_is_not_followed():
    trail = Trail(lambda made: False)
    assert [trail.follow(made) for made in (ROOT, None, 3.0)] == [None, None, None]
    root = Trail(lambda made: made is ROOT)
    assert torch.equal(root.follow(ROOT), ROOT.long())
