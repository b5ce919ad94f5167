"""Tokens folded into words, taken out, or only those of one of two sentences.

Each function takes a matrix as `Blocks` and gives another whose rows and columns still say which
tokens they stand for; what is given by token (words, segments) is so for all tokens of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.windows import Blocks

Pair = Literal["AA", "AB", "BA", "BB"]
Positions = tuple[tuple[int, ...], ...]
GOES_ON = "…"  # how a label of WordPiece begins that goes on with a word
# A character that several tokens share, in as many of its parts as follow each other.
SHARED = re.compile(r"‹(\S+) 1/(\d+)›(?:‹\1 (?!1/)\d+/\2›)*")


def of_tokens(
    matrix: Float[Tensor, "query key"], first_query: int = 0, first_key: int = 0
) -> Blocks:
    """A matrix whose rows and columns are one token each, from these positions on."""
    queries, keys = matrix.shape
    return Blocks(
        matrix,
        tuple((first_query + row,) for row in range(queries)),
        tuple((first_key + column,) for column in range(keys)),
    )


def fold_words(
    blocks: Blocks, query_words: Sequence[int | None], key_words: Sequence[int | None]
) -> Blocks:
    """Words instead of their pieces: sums over a key's pieces, means over a query's.

    Words are numbered by token (`Tokens.words`); tokens without a number stay by themselves, and
    so do words that stand side by side no more. A piece that is hidden counts as 0 beside others
    that are seen, and a query's piece that sees no key is left out of the mean: rows of weights
    still sum to 1. For weights; scores and logits of a word are not defined by those of its
    pieces.
    """
    rows, columns = _runs(blocks.queries, query_words), _runs(blocks.keys, key_words)
    shown = (~blocks.values.isnan()).float()
    sees = shown.amax(1, keepdim=True)
    sums, seen, counted = (
        _summed(numbers, rows, 0) for numbers in (blocks.values.nan_to_num(0.0), shown, sees)
    )
    values = _summed(sums, columns, 1) / counted
    values = values.masked_fill(_summed(seen, columns, 1) == 0, torch.nan)
    return Blocks(values, _joined(blocks.queries, rows), _joined(blocks.keys, columns))


def leave_out(
    blocks: Blocks, keys: Collection[int], queries: Collection[int] = (), *, divide: bool = True
) -> Blocks:
    """Take tokens out: columns and rows that hold one of them, and divide rows by what is left.

    What a learned sink takes goes too: rows then sum to 1. A row with nothing left is all NaN.
    Without `divide` the numbers stay as they are, as they must where some are negative
    (`ValueError`).
    """
    rows, columns = _without(blocks.queries, queries), _without(blocks.keys, keys)
    values = blocks.values[rows][:, columns]
    if divide:
        if bool((values < 0).any()):
            raise ValueError("Only weights can be shared out anew: some of these are negative.")
        left = values.nansum(1, keepdim=True)
        values = (values / left).masked_fill(left == 0, torch.nan)
    return Blocks(values, _chosen(blocks.queries, rows), _chosen(blocks.keys, columns))


def segment(
    blocks: Blocks,
    query_segments: Sequence[int | None],
    key_segments: Sequence[int | None],
    pair: Pair,
) -> Blocks:
    """The rows of one sentence and the columns of one: "AB" is how A looks at B.

    Segments are 0 for A, 1 for B, None for tokens of neither. Nothing is divided: a row sums to
    the share that its query gives to that sentence.
    """
    wanted = ["AB".index(letter) for letter in pair]
    rows, columns = (
        [at for at, span in enumerate(spans) if {segments[token] for token in span} == {number}]
        for spans, segments, number in (
            (blocks.queries, query_segments, wanted[0]),
            (blocks.keys, key_segments, wanted[1]),
        )
    )
    values = blocks.values[rows][:, columns]
    return Blocks(values, _chosen(blocks.queries, rows), _chosen(blocks.keys, columns))


def labels(spans: Positions, token_labels: Sequence[str]) -> tuple[str, ...]:
    """What the tokens of each row or column are called together."""
    return tuple(_word([token_labels[token] for token in span]) for span in spans)


def _word(pieces: Sequence[str]) -> str:
    """The pieces of a word as one, without what says that it goes on or shares a character."""
    first, *more = pieces
    if all(piece.startswith(GOES_ON) and piece != GOES_ON for piece in more):
        more = [piece.removeprefix(GOES_ON) for piece in more]
    return SHARED.sub(_whole, "".join([first, *more]))


def _whole(shared: re.Match[str]) -> str:
    """The character itself where all its parts are there."""
    return shared[1] if shared[0].count("‹") == int(shared[2]) else shared[0]


def _runs(spans: Positions, words: Sequence[int | None]) -> list[list[int]]:
    """Indices of the spans that belong together."""
    keys: list[tuple[str, int]] = []
    for at, span in enumerate(spans):
        numbers = {words[token] for token in span}
        number = next(iter(numbers)) if len(numbers) == 1 else None
        keys.append(("alone", at) if number is None else ("word", number))
    return [list(run) for _, run in groupby(range(len(spans)), key=keys.__getitem__)]


def _summed(
    numbers: Float[Tensor, "row column"], runs: Sequence[Sequence[int]], axis: int
) -> Float[Tensor, "run_or_row run_or_column"]:
    """Sums of the rows (axis 0) or the columns (axis 1) of each run."""
    sizes = torch.tensor([len(run) for run in runs], dtype=torch.long)
    owner = torch.arange(len(runs)).repeat_interleave(sizes)
    shape = [len(runs), numbers.shape[1]] if axis == 0 else [numbers.shape[0], len(runs)]
    return torch.zeros(shape).index_add(axis, owner, numbers)


def _joined(spans: Positions, runs: Sequence[Sequence[int]]) -> Positions:
    return tuple(tuple(token for at in run for token in spans[at]) for run in runs)


def _without(spans: Positions, tokens: Collection[int]) -> list[int]:
    left_out = set(tokens)
    return [at for at, span in enumerate(spans) if left_out.isdisjoint(span)]


def _chosen(spans: Positions, indices: Sequence[int]) -> Positions:
    return tuple(spans[at] for at in indices)
