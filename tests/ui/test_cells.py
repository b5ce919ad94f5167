"""What is shown of one cell, and that it is worked out once."""

from __future__ import annotations

import saved_models
import torch

from attnviz import attention
from attnviz.ui import cells, heads
from attnviz.ui.readings import Asked, loaded, served

ASKED = Asked("bundled", "The king gave the key to the king.")


def shown(asked: Asked, layer: int, index: int, part: str = "decoder") -> heads.Head:
    return heads.head(asked, part, layer, index)


def test_the_cell_is_that_of_the_head_on_screen():
    found = cells.worked(ASKED, shown(ASKED, 1, 3), query=6, key=2)
    call = served(ASKED).calls("decoder")[1]
    assert found.cell.weight == float(attention.weights(call, 3)[6, 2])
    assert (found.query, found.key, found.cell.head) == (6, 2, 3)
    assert (found.kind, found.tower, found.group, found.query_factor) == ("self", "decoder", 1, 1)
    assert [curve.kind for curve in found.curves] == ["rotation"]
    assert not found.norm
    assert found.added_positions is None


def test_a_head_without_its_first_token_is_worked_out_whole():
    whole = shown(ASKED, 0, 1)
    found = cells.worked(ASKED, heads.without_first(whole), query=6, key=2)
    assert found.head.matrix.shape == whole.matrix.shape


def test_a_cell_is_worked_out_once_and_the_model_run_once_a_layer():
    first = cells.worked(ASKED, shown(ASKED, 1, 0), 5, 3)
    assert cells.worked(ASKED, shown(ASKED, 1, 0), 5, 3) is first
    assert cells.wiring(ASKED, "decoder", 1) is cells.wiring(ASKED, "decoder", 1)


def test_vectors_of_places_are_those_of_the_two_tokens(tmp_path):
    path = saved_models.save(tmp_path / "gpt2", "gpt2")
    asked = Asked(path, "the cat sat on the mat")
    found = cells.worked(asked, shown(asked, 0, 0), query=4, key=1)
    table = dict(loaded(path).model.named_parameters())["transformer.wpe.weight"]
    assert found.added_positions is not None
    assert found.added_positions.name == "transformer.wpe.weight"
    assert torch.equal(found.added_positions.query, table[4])
    assert torch.equal(found.added_positions.key, table[1])


def test_cross_attention_and_grouped_queries_say_so(tmp_path):
    path = saved_models.save(tmp_path / "bart", "bart")
    asked = Asked(path, "the cat sat on the mat", "king gave key")
    found = cells.worked(asked, shown(asked, 0, 0, "cross"), query=2, key=5)
    assert found.kind == "cross"
    assert found.curves == ()
    path = saved_models.save(tmp_path / "llama", "llama")
    asked = Asked(path, "the cat sat on the mat")
    call = served(asked).calls("decoder")[0]
    found = cells.worked(asked, shown(asked, 0, call.heads - 1), query=3, key=0)
    assert found.group == call.heads // call.kv_heads > 1
    assert found.cell.kv_head == call.kv_heads - 1
