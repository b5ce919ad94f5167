"""A model that is larger than the memory is read in parts, and shows the same numbers."""

import gc
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny
import tiny_models
import torch
from transformers import LlamaForCausalLM, PreTrainedModel, XLNetConfig, XLNetModel
from transformers.utils import logging

from attnviz import attention, loading, memory, models
from attnviz.capture import capture, recording_difference
from attnviz.models import ModelNotLoaded, load

FAMILIES = ("llama", "t5", "gpt_oss", "mixtral")
PARTS = ("query", "key", "value", "query_unrotated", "key_unrotated", "bias", "mask", "sinks")


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    """Whatever is written while loading lands where a test can see it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture(autouse=True)
def _silence(capfd, caplog, monkeypatch):
    yield
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", "")
    assert caplog.get_records("call") == []


def saved(model: PreTrainedModel, folder: Path) -> str:
    logging.disable_progress_bar()
    tiny.save(folder, model)
    logging.enable_progress_bar()
    return str(folder)


def built(family: str) -> PreTrainedModel:
    eager = family in tiny_models.EAGER_ONLY
    return tiny_models.build(family, "eager" if eager else "sdpa")


def leave_memory(monkeypatch, model: PreTrainedModel, share: float) -> None:
    """Let so many of the weights fit in float32 as `share` says."""
    free = int(4 * share * model.num_parameters() * memory.HEADROOM) + 1
    monkeypatch.setattr(memory, "free_memory", lambda: free)


def in_parts(monkeypatch, family: str, folder: Path, share: float = 0.6):
    whole = built(family)
    leave_memory(monkeypatch, whole, share)
    return whole, load(saved(whole, folder))


@pytest.mark.parametrize("share", [0.8, 0.4])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_are_those_of_the_whole_model(monkeypatch, tmp_path, family, share):
    whole, parts = in_parts(monkeypatch, family, tmp_path / "model", share)
    assert parts.card.placement == "memory and disk"
    assert any(weight.is_meta for weight in parts.model.parameters())
    assert (parts.card.dtype, parts.card.parameters) == ("float32", whole.num_parameters())

    inputs = tiny_models.inputs_for(family)
    expected, found = capture(whole, inputs), capture(parts.model, inputs)
    assert len(found.calls) == len(expected.calls) > 2
    for one, other in zip(expected.calls, found.calls, strict=True):
        assert (one.module, one.layer, one.tower) == (other.module, other.layer, other.tower)
        for part in PARTS:
            same_tensor(getattr(one, part), getattr(other, part))
        for head in range(one.heads):
            assert torch.equal(attention.output(one, head), attention.output(other, head))
    assert recording_difference(parts.model, inputs) == 0


def same_tensor(one: torch.Tensor | None, other: torch.Tensor | None) -> None:
    assert (one is None) == (other is None)
    assert one is None or torch.equal(one, other)


def test_an_encoder_may_run_by_itself(monkeypatch, tmp_path):
    whole, parts = in_parts(monkeypatch, "t5", tmp_path / "model")
    inputs = {"input_ids": tiny_models.inputs_for("t5")["input_ids"]}
    expected, found = (capture(m.get_encoder(), inputs) for m in (whole, parts.model))
    for one, other in zip(expected.calls, found.calls, strict=True):
        assert torch.equal(one.query, other.query)


def test_threads_take_turns(monkeypatch, tmp_path):
    """Weights come and go with a run: another in between would read none, or wrong ones."""
    whole, parts = in_parts(monkeypatch, "llama", tmp_path / "model")
    texts = [tiny_models.inputs_for("llama", 9 + n, seed=n) for n in range(16)]
    with torch.no_grad():
        expected = [whole(**text).logits for text in texts]

    def run(number: int) -> torch.Tensor:
        with torch.no_grad():
            return parts.model(**texts[number % len(texts)]).logits

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(64)))
    for number, logits in enumerate(found):
        torch.testing.assert_close(logits, expected[number % len(texts)], rtol=1e-5, atol=1e-5)


def test_what_was_written_is_freed_with_the_model(monkeypatch, tmp_path):
    """Mixtral's experts are stored one by one and run as one weight."""
    _, parts = in_parts(monkeypatch, "mixtral", tmp_path / "model")
    assert list((tmp_path / "temporary").glob("attnviz-*/*experts*"))
    del parts
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())


def test_nothing_stays_behind_when_reading_fails(monkeypatch, tmp_path):
    whole = built("llama")
    folder = saved(whole, tmp_path / "model")
    leave_memory(monkeypatch, whole, 0.6)

    def fails(*_, offload_folder, **__):
        assert Path(offload_folder).is_dir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", fails)
    with pytest.raises(ModelNotLoaded, match="No space left"):
        load(folder)
    assert not list((tmp_path / "temporary").iterdir())


def xlnet() -> PreTrainedModel:
    """It keeps q, k, v and its biases side by side in one module, which may be split."""
    sizes = {"d_model": 44, "n_layer": 3, "n_head": 4, "d_inner": 29}
    config = XLNetConfig(vocab_size=53, **sizes, bos_token_id=1, eos_token_id=2)
    return tiny_models.spread(XLNetModel(config))


@pytest.mark.parametrize("share", [0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
def test_weights_that_no_submodule_holds_are_read(monkeypatch, tmp_path, share):
    whole = xlnet()
    leave_memory(monkeypatch, whole, share)
    parts = load(saved(whole, tmp_path / "model")).model
    expected = whole.state_dict()
    here = {name: w for name, w in parts.state_dict().items() if not w.is_meta}
    assert here.keys() < expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in here.items())
    ids = torch.arange(3, 14)[None]
    with torch.no_grad():
        assert torch.equal(parts(ids)[0], whole(ids)[0])


def test_weights_that_came_up_random_are_not_shown(monkeypatch, tmp_path):
    """As happens where a weight alone is sent to disk, without a word of warning."""
    whole = xlnet()
    leave_memory(monkeypatch, whole, 0.6)
    alone = [f"layer.1.rel_attn.{name}" for name, _ in whole.layer[1].rel_attn.named_parameters()]
    places = {"mask_emb": "cpu", "word_embedding": "cpu", "layer.0": "cpu", "layer.2": "disk"}
    places |= dict.fromkeys(alone, "disk") | {"layer.1.ff": "disk", "dropout": "cpu"}
    monkeypatch.setattr(loading, "_parts", lambda *_: places)
    with pytest.raises(ModelNotLoaded, match=r"since layer\.1\.rel_attn\.q is in none"):
        load(saved(whole, tmp_path / "model"))


def test_where_accelerate_finds_no_place_all_comes_from_disk(monkeypatch, tmp_path):
    """It stumbles over some sizes of a BERT decoder; this is one."""
    whole = built("bert_decoder")
    leave_memory(monkeypatch, whole, 0.4)
    parts = load(saved(whole, tmp_path / "model"))
    assert parts.card.placement == "disk"
    inputs = tiny_models.inputs_for("bert_decoder")
    with torch.no_grad():
        assert torch.equal(parts.model(**inputs)[0], whole(**inputs)[0])


def test_buffers_are_read_too(monkeypatch, tmp_path):
    whole = built("bart")
    whole.final_logits_bias.copy_(torch.arange(tiny_models.VOCABULARY)[None])
    leave_memory(monkeypatch, whole, 0.4)
    parts = load(saved(whole, tmp_path / "model"))
    inputs = tiny_models.inputs_for("bart")
    with torch.no_grad():
        assert torch.equal(parts.model(**inputs).logits, whole(**inputs).logits)


def test_a_weight_that_is_nowhere_is_told_of(monkeypatch, tmp_path):
    """The pooler is not stored here; in memory it would be random, which no attention reads."""
    whole = built("bert")
    leave_memory(monkeypatch, whole, 0.3)
    del whole.pooler
    folder = saved(whole, tmp_path / "model")
    with pytest.raises(ModelNotLoaded, match=r"layer by layer, since pooler\.dense\.weight is in"):
        load(folder)


def test_a_head_without_weights_is_left_out(monkeypatch, tmp_path):
    whole = built("llama")
    leave_memory(monkeypatch, whole, 0.6)
    folder = saved(whole.model, tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("LlamaModel", "LlamaForCausalLM"))
    assert json.loads(config.read_text())["architectures"] == ["LlamaForCausalLM"]
    parts = load(folder)
    assert type(parts.model).__name__ == "LlamaModel"
    inputs = tiny_models.inputs_for("llama")
    with torch.no_grad():
        assert torch.equal(parts.model(**inputs)[0], whole.model(**inputs)[0])


# --- precision


@pytest.mark.parametrize(
    ("share", "dtype", "place"),
    [(1.0, "float32", "memory"), (0.9, "{}", "memory"), (0.5, "{}", "memory"), (0.4, "{}", "disk")],
)
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_float32_where_it_fits_else_as_stored(monkeypatch, tmp_path, stored, share, dtype, place):
    whole = built("llama").to(getattr(torch, stored))
    leave_memory(monkeypatch, whole, share)
    half = load(saved(whole, tmp_path / "model"))
    assert half.card.dtype == dtype.format(stored)
    assert half.card.placement.endswith(place)
    assert half.model.dtype == getattr(torch, half.card.dtype)
    in_memory = [one for one in half.model.named_parameters() if not one[1].is_meta]
    expected = whole.state_dict()
    assert all(torch.equal(one, expected[name].to(one.dtype)) for name, one in in_memory)
    calls = capture(half.model, tiny_models.inputs_for("llama")).calls
    assert {call.query.dtype for call in calls} <= {half.model.dtype, torch.float32}
    assert 0 < max(call.max_error for call in calls) < 0.1


def test_most_of_the_numbers_tell_the_dtype():
    assert memory.stored_dtype({"BF16": 70, "F32": 3}) == "bfloat16"
    assert memory.stored_dtype({"F16": 3, "F32": 70}) == "float32"
    assert memory.stored_dtype({"F64": 5}) == "float32"
    assert memory.stored_dtype({}) == "float32"


# --- devices


def test_inputs_follow_a_model_on_one_device(monkeypatch, tmp_path):
    """As on one GPU that holds the whole model, while the memory does not."""
    whole = built("llama")
    leave_memory(monkeypatch, whole, 0.9)
    monkeypatch.setattr(loading, "shares", lambda: {"cpu": 10**9})
    one = load(saved(whole, tmp_path / "model"))
    assert one.card.placement == "memory"
    assert one.model._hf_hook.io_same_device
    inputs = tiny_models.inputs_for("llama")
    with torch.no_grad():
        assert torch.equal(one.model(**inputs).logits, whole(**inputs).logits)


def test_gpus_take_what_they_have_free(monkeypatch):
    import accelerate.utils

    free = {0: 1200, 1: 600, "cpu": 10**15}
    monkeypatch.setattr(accelerate.utils, "get_max_memory", lambda: free)
    monkeypatch.setattr(memory, "free_memory", lambda: 2400)
    assert memory.shares() == {0: 1000, 1: 500, "cpu": 2000}


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([], "memory"),
        (["cpu"], "memory"),
        (["disk", "disk"], "disk"),
        (["disk", "cpu", "disk"], "memory and disk"),
        ([0], "1 GPU"),
        ([0, 1, 1], "2 GPUs"),
        ([1, 0, "cpu"], "2 GPUs and memory"),
        ([0, "disk", "cpu"], "1 GPU, memory and disk"),
    ],
)
def test_where_the_weights_are_is_said(places, said):
    model = tiny.llama()
    if places:
        model.hf_device_map = {f"layer{n}": place for n, place in enumerate(places)}
    assert models._placement(model) == said
