"""Padding is told by the attention masks, for the tokens that a call works on."""

import torch

from attnviz.padding import Padding

READ = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
WRITTEN = torch.tensor([[1, 1, 0], [1, 1, 1]])
BOTH = {"attention_mask": READ, "decoder_attention_mask": WRITTEN, "decoder_input_ids": WRITTEN}


def test_a_text_without_padding_has_none():
    whole = Padding.of({"attention_mask": torch.ones(2, 5)})
    assert whole.at("decoder", "self", 2, (5, 5)) == (None, None)


def test_queries_and_keys_of_one_sequence():
    queries, keys = Padding.of({"attention_mask": READ}).at("decoder", "self", 2, (5, 5))
    assert torch.equal(queries, READ == 0)
    assert torch.equal(keys, READ == 0)


def test_cross_attention_has_one_of_each():
    queries, keys = Padding.of(BOTH).at("decoder", "cross", 2, (3, 5))
    assert torch.equal(queries, WRITTEN == 0)
    assert torch.equal(keys, READ == 0)
    queries, keys = Padding.of(BOTH).at("encoder", "self", 2, (5, 5))
    assert torch.equal(queries, READ == 0)


def test_other_rows_than_tokens_have_none():
    padding = Padding.of({"attention_mask": READ})
    assert padding.at("vision", "self", 2, (5, 5)) == (None, None)
    assert padding.at("encoder", "self", 8, (3, 3)) == (None, None)
