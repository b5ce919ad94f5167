"""Padding is told by the attention masks, for the tokens that a call works on."""

import torch

from attnviz.padding import Padding

READ = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
WRITTEN = torch.tensor([[1, 1, 0], [1, 1, 1]])
BOTH = {"attention_mask": READ, "decoder_attention_mask": WRITTEN}


def test_a_text_without_padding_has_none():
    whole = Padding.of({"attention_mask": torch.ones(2, 5)}, has_encoder=False)
    assert whole.at("decoder", "self", 2, (5, 5)) == (None, None)


def test_queries_and_keys_of_one_sequence():
    padding = Padding.of({"attention_mask": READ}, has_encoder=False)
    queries, keys = padding.at("decoder", "self", 2, (5, 5))
    assert torch.equal(queries, READ == 0)
    assert torch.equal(keys, READ == 0)


def test_cross_attention_has_one_of_each():
    queries, keys = Padding.of(BOTH, has_encoder=True).at("decoder", "cross", 2, (3, 5))
    assert torch.equal(queries, WRITTEN == 0)
    assert torch.equal(keys, READ == 0)
    queries, keys = Padding.of(BOTH, has_encoder=True).at("encoder", "self", 2, (5, 5))
    assert torch.equal(queries, READ == 0)


def test_other_rows_than_tokens_have_none():
    padding = Padding.of({"attention_mask": READ}, has_encoder=False)
    assert padding.at("vision", "self", 2, (5, 5)) == (None, None)
    assert padding.at("encoder", "self", 8, (3, 3)) == (None, None)


def test_what_a_decoder_writes_is_not_padded_where_what_it_reads_is():
    padding = Padding.of({"attention_mask": READ}, has_encoder=True)
    assert padding.at("decoder", "self", 2, (5, 5)) == (None, None)


def test_states_from_outside_have_a_mask_of_their_own():
    given = {"attention_mask": READ, "encoder_attention_mask": READ.flip(1)}
    padding = Padding.of(given, has_encoder=False)
    queries, keys = padding.at("decoder", "cross", 2, (5, 5))
    assert torch.equal(queries, READ == 0)
    assert torch.equal(keys, READ.flip(1) == 0)
    assert Padding.of({"attention_mask": READ}, False).at("decoder", "cross", 2, (5, 5))[1] is None


def test_masks_of_other_forms_tell_nothing():
    assert Padding.of({"attention_mask": {"full": READ}}, has_encoder=False).read is None
