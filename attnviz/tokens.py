"""Text to tokens, each with a label that a person can read.

A tokenizer cuts bytes, not characters: a token may be a word, a word with a space in front, or
a third of an emoji. Labels say what a token holds, with the invisible made visible.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnviz.limits import share_to_cut

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

MAX_CHARACTERS = 100_000  # some 16,000 tokens and more in any language; a book is refused at once
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
# Characters that show nothing, or nothing of their own, beyond those whose category says so.
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc\ufffd]")
BLANK_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
# Decoding with surrogateescape turns each byte that fits no character into one of these.
PROBE = "a"  # any text, to see how a tokenizer joins two
UNITS = re.compile("[\udc80-\udcff]+|.", re.DOTALL)


class UnusableText(ValueError):  # noqa: N818 - the text is the person's, the message for them
    """A text cannot be shown to a model; the message says why and what to do."""


@dataclass(frozen=True)
class Tokens:
    """A text as a model sees it; all tuples have one element per token.

    A token is identified by its position: equal words stay apart. `words` numbers the words
    that the tokens are parts of, None for special tokens. `pieces` holds the bytes that are
    only a part of a character, in hexadecimal, "" where there are none. `segments` tells the
    first text of a pair (0) from the second (1), None for special tokens; `types` are the numbers
    by which the model itself tells them apart (Devlin et al. 2019, segment embeddings).
    """

    text: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    words: tuple[int | None, ...]
    special: tuple[bool, ...]
    unknown: tuple[bool, ...]
    pieces: tuple[str, ...]
    segments: tuple[int | None, ...]
    types: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def positions(self) -> tuple[int, ...]:
        """0-based positions, what tells equal tokens apart."""
        return tuple(range(len(self)))

    @property
    def paired(self) -> bool:
        """Whether these are two texts, one after the other."""
        return 1 in self.segments


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    max_tokens: int | None = None,
    *,
    pair: str = "",
    as_target: bool = False,
) -> Tokens:
    """Cut a text into tokens, with the special tokens that the tokenizer itself adds.

    A `pair` is a second text that is read after the first, as the tokenizer joins the two; where
    it is blank there is none. `Tokens.text` then holds both, a line each. Some tokenizers cut
    what an encoder–decoder shall write in a way of its own: `as_target`. Half a surrogate pair,
    which only a browser can send, becomes U+FFFD in `Tokens.text`. Raises `UnusableText` if there
    is nothing to read, more than `MAX_CHARACTERS` characters, or more than `max_tokens` tokens.
    """
    called = "target text" if as_target else "text"
    texts = [_checked(text, called)]
    if pair.strip():
        texts.append(_checked(pair, "second text"))
    encoding = _encode(tokenizer, texts, "text_target" if as_target else "text")
    ids = tuple(encoding.input_ids)
    check_length(len(ids), max_tokens, called if len(texts) == 1 else "pair of texts")
    lost = _unknown_id(tokenizer)
    unknown = tuple(i == lost for i in ids)
    special = _special(tokenizer, encoding, unknown)
    spellings = _spellings(tokenizer, ids)
    labels, pieces = _labels(spellings)
    words = _words(tokenizer, encoding, spellings, special)
    segments = _segments(tokenizer, encoding, special, len(texts) > 1)
    types = tuple(encoding.token_type_ids) if len(texts) > 1 else (0,) * len(ids)
    joined = "\n".join(texts)
    return Tokens(joined, ids, labels, words, special, unknown, pieces, segments, types)


def joins_pairs(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts its separator between two texts, as BERT and its kin do."""
    if tokenizer.sep_token_id is None:
        return False
    try:
        tokens = tokenize(tokenizer, PROBE, pair=PROBE)
    except UnusableText:
        return False
    if not tokens.paired:
        return False
    end = len(tokens) - tokens.segments[::-1].index(0)
    between = tokens.ids[end : tokens.segments.index(1)]
    return tokenizer.sep_token_id in between


def from_ids(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> Tokens:
    """Return tokens that a model wrote or was given, not cut from a text."""
    lost, reserved = _unknown_id(tokenizer), set(tokenizer.all_special_ids)
    unknown = tuple(i == lost for i in ids)
    special = tuple(i in reserved and i != lost for i in ids)
    spellings = _spellings(tokenizer, ids)
    labels, pieces = _labels(spellings)
    known = len(tokenizer)
    written = [i for i, apart in zip(ids, special, strict=True) if not apart and i < known]
    return Tokens(
        text=str(tokenizer.decode(written)),
        ids=tuple(ids),
        labels=labels,
        words=tuple(_words_between_spaces(spellings, special)),
        special=special,
        unknown=unknown,
        pieces=pieces,
        segments=_one_segment(special),
        types=(0,) * len(ids),
    )


def named(labels: Sequence[str], special: Sequence[bool] | None = None) -> Tokens:
    """Return positions that stand for no text, such as patches of a picture, under these names."""
    size = len(labels)
    flags = tuple(special or [False] * size)
    return Tokens(
        text="",
        ids=tuple(range(size)),
        labels=tuple(labels),
        words=(None,) * size,
        special=flags,
        unknown=(False,) * size,
        pieces=("",) * size,
        segments=_one_segment(flags),
        types=(0,) * size,
    )


def model_inputs(tokens: Tokens) -> dict[str, torch.Tensor]:
    """Return `input_ids` and `attention_mask`, for a pair `token_type_ids`, all (1, token)."""
    import torch

    ids = torch.tensor([tokens.ids])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return inputs | ({"token_type_ids": torch.tensor([tokens.types])} if tokens.paired else {})


def _checked(text: str, called: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise UnusableText(
            f"This {called} has {len(text):,} characters; at most {MAX_CHARACTERS:,} can be read "
            "at once. Choose a part of it."
        )
    if not text.strip():
        raise UnusableText("There is no text to read yet. Type a sentence.")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], given_as: str) -> Any:
    """Run the tokenizer; some files ask for cutting and padding, which would show as tokens."""
    unreadable = "This model's tokenizer finds nothing to read in this text. Try other words."
    try:
        encoding = tokenizer(
            **dict(zip((given_as, "text_pair"), texts, strict=False)),
            return_special_tokens_mask=True,
            return_token_type_ids=len(texts) > 1,
            truncation=False,
            padding=False,
            verbose=False,
        )
    except Exception as error:  # whatever a vocabulary without a token for the unknown raises
        raise UnusableText(unreadable) from error
    if all(encoding.special_tokens_mask):
        raise UnusableText(unreadable)
    return encoding


def check_length(length: int, limit: int | None, called: str = "text") -> None:
    """Raise `UnusableText` for more tokens than a model takes, None being no limit."""
    if limit is None or length <= limit:
        return
    raise UnusableText(
        f"This {called} has {length:,} tokens; this model reads at most {limit:,}. "
        f"Shorten it by {share_to_cut(length, limit)}, or choose another model."
    )


# --- what kind of token


def _unknown_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the id of words that have no token; GPT-2 has none, and names its end mark."""
    unknown = tokenizer.unk_token_id
    return None if unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id) else unknown


def _special(
    tokenizer: PreTrainedTokenizerBase, encoding: Any, unknown: Sequence[bool]
) -> tuple[bool, ...]:
    """Tell special tokens, added or typed, from those that stand for text."""
    reserved = set(tokenizer.all_special_ids)
    flags = zip(encoding.special_tokens_mask, encoding.input_ids, unknown, strict=True)
    return tuple(bool(added) or (i in reserved and not lost) for added, i, lost in flags)


def _words(
    tokenizer: PreTrainedTokenizerBase,
    encoding: Any,
    spellings: Sequence[bytes],
    special: Sequence[bool],
) -> tuple[int | None, ...]:
    """Return the number of each token's word.

    SentencePiece models may take the whole text as one word; there, spaces divide it.
    """
    if tokenizer.is_fast and _spelling(tokenizer) is not _from_metaspace:
        own = list(zip(encoding.word_ids(), encoding.sequence_ids(), special, strict=True))
        first = (word for word, segment, _ in own if word is not None and segment == 0)
        shift = (0, 1 + max(first, default=-1))  # the second text's words begin at 0 again
        return tuple(
            None if apart or word is None else word + shift[segment or 0]
            for word, segment, apart in own
        )
    return tuple(_words_between_spaces(spellings, special))


def _segments(
    tokenizer: PreTrainedTokenizerBase, encoding: Any, special: Sequence[bool], pair: bool
) -> tuple[int | None, ...]:
    """Return which text of a pair each token belongs to, None for special tokens.

    Tokenizers written in Python do not say: there, the first separator after text divides.
    """
    if not pair:
        return _one_segment(special)
    if tokenizer.is_fast:
        own = zip(encoding.sequence_ids(), special, strict=True)
        return tuple(None if apart else segment for segment, apart in own)
    segment = 0
    segments: list[int | None] = []
    for i, apart in zip(encoding.input_ids, special, strict=True):
        if i == tokenizer.sep_token_id and any(known is not None for known in segments):
            segment = 1
        segments.append(None if apart else segment)
    return tuple(segments)


def _one_segment(special: Sequence[bool]) -> tuple[int | None, ...]:
    return tuple(None if apart else 0 for apart in special)


def _words_between_spaces(
    spellings: Sequence[bytes], special: Sequence[bool]
) -> Iterator[int | None]:
    word, before = -1, True
    for spelling, apart in zip(spellings, special, strict=True):
        word += not apart and (before or spelling[:1].isspace())
        yield None if apart else word
        before = apart


# --- what a token holds


def _spellings(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[bytes]:
    """Return the UTF-8 bytes that each token stands for; added tokens stand for themselves."""
    spelling = _spelling(tokenizer)
    added = tokenizer.added_tokens_decoder
    known = list(dict.fromkeys(ids))
    tokens: list[str | None] = tokenizer.convert_ids_to_tokens(known)  # type: ignore[assignment]
    spelled = {
        # A model may know more numbers than its tokenizer, and write one of them.
        i: f"#{i}".encode() if token is None else str(added.get(i, "")).encode() or spelling(token)
        for i, token in zip(known, tokens, strict=True)
    }
    return [spelled[i] for i in ids]


def _spelling(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], bytes]:
    """Return the function that turns a token of this tokenizer into bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = _described(getattr(backend, "decoder", None))
    parts = parts or _described(getattr(backend, "pre_tokenizer", None))
    if "ByteLevel" in parts:
        suffix = getattr(backend.model, "end_of_word_suffix", None) if backend else None
        return lambda token: _from_byte_level(token, suffix)
    if "▁" in parts:
        return _from_metaspace
    if "WordPiece" in parts:
        return _from_wordpiece
    return lambda token: _decoded(tokenizer, token)


def _described(part: Any) -> str:
    """Return a decoder or pre-tokenizer as JSON, "" if there is none or it is Python code."""
    try:
        return part.__getstate__().decode()
    except Exception:  # the binding raises a plain Exception for what it cannot serialise
        return ""


def _byte_alphabet() -> dict[str, int]:
    """Return the 256 characters in which GPT-2 and its kin write bytes.

    Bytes that print stand for themselves, the others are numbered from 256 (Radford et al.
    2019, `bytes_to_unicode`).
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    shifted = {chr(256 + number): byte for number, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


BYTE_ALPHABET = _byte_alphabet()


def _from_byte_level(token: str, suffix: str | None) -> bytes:
    end = b""
    if suffix and token.endswith(suffix):  # CLIP writes the end of a word, not its beginning
        token, end = token.removesuffix(suffix), b" "
    if not set(token) <= BYTE_ALPHABET.keys():
        return token.encode() + end
    return bytes(BYTE_ALPHABET[character] for character in token) + end


def _from_metaspace(token: str) -> bytes:
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


def _from_wordpiece(token: str) -> bytes:
    """Return the bytes of a WordPiece token; what goes on with a word begins with an ellipsis."""
    return re.sub(r"^##(?=.)", "…", token).encode()


def _decoded(tokenizer: PreTrainedTokenizerBase, token: str) -> bytes:
    text = tokenizer.convert_tokens_to_string([token])
    if not text and len(token) == 1 and ord(token) < 256:  # a byte of ByT5, which hides parts
        return bytes([ord(token)])
    return (text or token).encode()


# --- what a token is called


def _labels(spellings: Sequence[bytes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a label for each token, and the bytes that are only a part of a character.

    A character that several tokens share is named in each, with the token's place among them.
    """
    labels, pieces = [""] * len(spellings), [""] * len(spellings)
    owners = [token for token, spelling in enumerate(spellings) for _ in spelling]
    whole = b"".join(spellings)
    start = 0
    for unit in UNITS.findall(whole.decode("utf-8", "surrogateescape")):
        stop = start + len(unit.encode("utf-8", "surrogateescape"))
        sharing = sorted(set(owners[start:stop]))
        for place, token in enumerate(sharing, 1):
            held = (whole[at] for at in range(start, stop) if owners[at] == token)
            code = " ".join(f"0x{byte:02X}" for byte in held)
            label, piece = _name(unit, code, f"{place}/{len(sharing)}", not labels[token])
            labels[token] += label
            pieces[token] = f"{pieces[token]} {piece}".strip()
        start = stop
    return tuple(labels), tuple(pieces)


@lru_cache(maxsize=4096)  # a long text holds the same characters again and again
def _name(unit: str, code: str, place: str, first: bool) -> tuple[str, str]:
    """Return what one token shows of a character, and its bytes if it has only a part."""
    if "\udc80" <= unit[0] <= "\udcff":
        return f"‹{code}›", code
    if place != "1/1":
        return f"‹{_visible(unit, True)} {place}›", code
    return _visible(unit, first), ""


def _visible(character: str, first: bool) -> str:
    """Return a character as something to see; an accent gets a circle to stand on."""
    if character in MARKS:
        return MARKS[character]
    category = unicodedata.category(character)
    if category in BLANK_CATEGORIES or BLANK.match(character):
        return f"U+{ord(character):04X}"
    return f"◌{character}" if first and category.startswith("M") else character
