"""What a head may look for: kinds of head, each told in a sentence, a formula and its targets.

A kind says of each query which keys it aims at. A head's score is the weight that its rows put
on their targets, averaged over the rows that have one:

    mean over i with T(i) not empty of  Σ_{j in T(i)} weights[i, j].

Keys that a query cannot see are no targets of it, so one definition serves models that look
back only and models that look both ways. The definitions follow Olsson et al. 2022 (previous
token; induction, with the follower that its erratum names), Clark et al. 2019 (delimiter, next
token) and Gu et al. 2024 (first token); `broad` has no targets and is the entropy of the rows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnviz.tokens import MARKS, Tokens

FARTHEST = 16  # tokens, for a fixed offset: beyond it an induction head on repeats looks fixed
NEAR = 4  # tokens, for a local head


@dataclass(frozen=True)
class Axes:
    """The tokens of a call as kinds see them: those that look, and those looked at.

    `first` is the position of the first token that stands for something. `cross` is True where
    queries and keys are different tokens.
    """

    query_ids: Int[Tensor, " query"]
    key_ids: Int[Tensor, " key"]
    query_special: Bool[Tensor, " query"]
    key_special: Bool[Tensor, " key"]
    punctuation: Bool[Tensor, " key"]
    first: int = 0
    cross: bool = False


Targets = Callable[[Axes, slice, slice], Bool[Tensor, "query key"]]


@dataclass(frozen=True)
class Kind:
    """A kind of head.

    `looks` goes on after "layer 0, head 2", `nothing` says why no token of a text can tell.
    `targets` gives the targets of some queries among some keys, hidden ones too; None for
    `broad`, whose score is the entropy of the rows. With `each_offset` the score is the largest
    one of any single distance between query and key.
    """

    name: str
    looks: str
    definition: str
    formula: str
    nothing: str
    targets: Targets | None
    each_offset: bool = False


def axes(queries: Tokens, keys: Tokens, *, cross: bool = False, first: int = 0) -> Axes:
    """The tokens of a call, ready to be compared."""
    return Axes(
        torch.tensor(queries.ids),
        torch.tensor(keys.ids),
        torch.tensor(queries.special),
        torch.tensor(keys.special),
        torch.tensor([is_punctuation(label) for label in keys.labels]),
        first,
        cross,
    )


def is_punctuation(label: str) -> bool:
    """Whether a token's label shows signs of punctuation and nothing else."""
    shown = "".join(character for character in label if character not in MARKS.values())
    return bool(shown) and all(unicodedata.category(sign).startswith("P") for sign in shown)


def kinds(queries: Tokens, keys: Tokens, *, cross: bool = False) -> tuple[Kind, ...]:
    """The kinds that make sense among these tokens.

    Patches and whatever else stands for no text have no words and no order of reading. Between
    two texts there is no distance.
    """
    if not (_of_text(queries) and _of_text(keys)):
        return (FIRST, BROAD) if cross else (FIRST, SELF, BROAD)
    if cross:
        return FIRST, SAME, DELIMITER, BROAD
    return PREVIOUS, NEXT, FIRST, SELF, DUPLICATE, INDUCTION, OFFSET, DELIMITER, LOCAL, BROAD


def _of_text(tokens: Tokens) -> bool:
    return any(word is not None for word in tokens.words)


# --- targets


def _places(queries: slice, keys: slice) -> tuple[Int[Tensor, "query 1"], Int[Tensor, " key"]]:
    return (
        torch.arange(queries.start, queries.stop)[:, None],
        torch.arange(keys.start, keys.stop),
    )


def _between_words(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    """Special tokens stand at the edges and are no neighbours: their rows and keys are left out."""
    return ~tokens.query_special[queries, None] & ~tokens.key_special[keys]


def _at(offset: int) -> Targets:
    """The key so many tokens after the query."""

    def targets(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
        query, key = _places(queries, keys)
        return (key == query + offset) & _between_words(tokens, queries, keys)

    return targets


def _within(reach: int) -> Targets:
    """All keys at most so many tokens away, the query itself among them."""

    def targets(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
        query, key = _places(queries, keys)
        return ((key - query).abs() <= reach) & _between_words(tokens, queries, keys)

    return targets


def _later(tokens: Axes, query: Int[Tensor, "query 1"]) -> Bool[Tensor, "query 1"]:
    """The first token is left out among its own: often it sees nothing but itself."""
    return (query > tokens.first) | tokens.cross


def _first(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    query, key = _places(queries, keys)
    return (key == tokens.first) & _later(tokens, query)


def _self(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    query, key = _places(queries, keys)
    return (key == query) & _later(tokens, query)


def _same(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    equal = tokens.query_ids[queries, None] == tokens.key_ids[keys]
    return equal & _between_words(tokens, queries, keys)


def _duplicate(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    query, key = _places(queries, keys)
    return _same(tokens, queries, keys) & (key != query)


def _induction(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    """Keys whose token before is the query's, but stands elsewhere."""
    query, key = _places(queries, keys)
    before, word_before = tokens.key_ids.roll(1)[keys], ~tokens.key_special.roll(1)[keys]
    follows = (tokens.query_ids[queries, None] == before) & word_before & (key > 0)
    return follows & (key != query + 1) & _between_words(tokens, queries, keys)


def _delimiter(tokens: Axes, queries: slice, keys: slice) -> Bool[Tensor, "query key"]:
    _, key = _places(queries, keys)
    special = tokens.key_special[keys] & (key != tokens.first)
    return (special | tokens.punctuation[keys]).expand(queries.stop - queries.start, -1)


# --- kinds

PREVIOUS = Kind(
    "previous token",
    "looks at the token before",
    "The weight that each token puts on the one before it, averaged over the tokens. Special "
    "tokens such as [CLS] and [SEP] neither look nor are looked at here.",
    r"\frac{1}{|I|}\sum_{i \in I} A_{i,\,i-1}",
    "No two words stand side by side.",
    _at(-1),
)
NEXT = Kind(
    "next token",
    "looks at the token after",
    "The weight that each token puts on the one after it, averaged over the tokens. Special "
    "tokens such as [CLS] and [SEP] neither look nor are looked at here.",
    r"\frac{1}{|I|}\sum_{i \in I} A_{i,\,i+1}",
    "No token sees one that comes after it.",
    _at(1),
)
FIRST = Kind(
    "first token",
    "looks at the first token",
    "The weight on the very first token, averaged over all tokens that look, without the first "
    "one itself where it is one of them. A head that puts much there rests: an attention sink.",
    r"\frac{1}{n-1}\sum_{i \geq 1} A_{i,\,0}",
    "There is only one token.",
    _first,
)
SELF = Kind(
    "self",
    "looks at the token itself",
    "The weight that each token but the first puts on itself, averaged over these tokens.",
    r"\frac{1}{n-1}\sum_{i \geq 1} A_{i,\,i}",
    "No token but the first sees itself.",
    _self,
)
DUPLICATE = Kind(
    "duplicate token",
    "looks at the same token elsewhere",
    "The weight that each token puts on all other places of the same token, averaged over the "
    "tokens that see such a place. Special tokens are left out.",
    r"\frac{1}{|I|}\sum_{i \in I}\ \sum_{j \neq i,\ t_j = t_i} A_{i,\,j}",
    "No token comes twice.",
    _duplicate,
)
INDUCTION = Kind(
    "induction",
    "looks at what followed the same token elsewhere",
    "The weight that each token puts on the tokens that follow the other places of the same "
    "token, averaged over the tokens that see one: what came after this the last time? Special "
    "tokens are left out (prefix matching, Olsson et al. 2022).",
    r"\frac{1}{|I|}\sum_{i \in I}\ \sum_{j \neq i+1,\ t_{j-1} = t_i} A_{i,\,j}",
    "No token comes twice with another after it.",
    _induction,
)
OFFSET = Kind(
    "fixed offset",
    "looks a fixed number of tokens away",
    f"The weight at one and the same distance, averaged over the tokens that see a key there; the "
    f"largest such mean of all distances up to {FARTHEST} tokens at which at least half as many "
    "tokens see a key as see themselves. Special tokens are left out.",
    rf"\max_{{|\Delta| \leq {FARTHEST}}}\ \frac{{1}}{{|I_\Delta|}}"
    r"\sum_{i \in I_\Delta} A_{i,\,i-\Delta}",
    "There are no words.",
    _within(FARTHEST),
    each_offset=True,
)
DELIMITER = Kind(
    "delimiter",
    "looks at separators and punctuation",
    "The weight that each token puts on all special tokens but the first, such as [SEP], and on "
    "all tokens that are punctuation only, averaged over the tokens that see one.",
    r"\frac{1}{|I|}\sum_{i \in I}\ \sum_{j \in \mathrm{delimiters}} A_{i,\,j}",
    "There is no separator and no punctuation.",
    _delimiter,
)
LOCAL = Kind(
    "local",
    "looks at the tokens close by",
    f"The weight that each token puts on itself and on the tokens at most {NEAR} away that it "
    "sees, averaged over the tokens. Special tokens are left out.",
    rf"\frac{{1}}{{|I|}}\sum_{{i \in I}}\ \sum_{{|i-j| \leq {NEAR}}} A_{{i,\,j}}",
    "There are no words.",
    _within(NEAR),
)
SAME = Kind(
    "same token",
    "looks at the same token in the source",
    "The weight that each token of the target puts on all places of the same token in the source, "
    "averaged over the tokens that have one. Special tokens are left out.",
    r"\frac{1}{|I|}\sum_{i \in I}\ \sum_{j:\ t_j = t_i} A_{i,\,j}",
    "No token of the target is in the source.",
    _same,
)
BROAD = Kind(
    "broad",
    "looks everywhere alike",
    "The entropy of each row, divided by that of even weights over the keys that it sees, "
    "averaged over the rows that see several: 1 if all keys get the same, 0 if one gets all.",
    r"\frac{1}{|I|}\sum_{i \in I} \frac{-\sum_j A_{i,\,j} \ln A_{i,\,j}}{\ln m_i}",
    "No token sees two keys.",
    None,
)
