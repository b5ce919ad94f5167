"""A model as a folder in Hugging Face format: what it must hold, and how it is read.

No code that comes with a model is run, and no pickle file is opened.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.loading import OFFLINE, Stored, build
from attnviz.memory import stored_dtype
from attnviz.refusals import quoted, refusal

if TYPE_CHECKING:
    from transformers import (
        BaseImageProcessor,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

CONFIG = "config.json"
PROCESSORS = {"preprocessor_config.json", "processor_config.json"}
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PICKLED = re.compile(r".*\.(bin|pt|pth|ckpt|h5|msgpack)")
VOCABULARY = re.compile(
    r"tokenizer\.json|tekken\.json|vocab.*\.(json|txt|bpe)|.*\.(model|spm|tiktoken)"
)
LAYERS = re.compile(r"(.*_)?(layers?|depths?)")
MANY_LAYERS = 1000  # no model has more, whatever number of tensors it has


def check_folder(name: str, folder: Path) -> None:
    """Raise `ModelNotLoaded` if the folder cannot be read, before its weights are."""
    if not os.path.isdir(folder):
        raise refusal("no folder", name)
    files = file_names(folder)
    check_files(name, files)
    config = _json(name, folder / CONFIG)
    check_config(name, config)
    check_tokenizer(name, files, config)


def file_names(folder: Path) -> set[str]:
    """Return the names of the files in a folder, without links that lead nowhere."""
    return {path.name for path in folder.iterdir() if path.is_file()}


def check_files(name: str, files: Collection[str]) -> None:
    """Raise `ModelNotLoaded` unless these files are a model with safe weights."""
    safe = WEIGHTS in files or WEIGHTS_INDEX in files
    if "adapter_config.json" in files and not safe:
        raise refusal("adapter", name)
    if CONFIG not in files:
        raise refusal("no config", name)
    if not safe:
        pickled = any(map(PICKLED.fullmatch, files))
        raise refusal("pickle" if pickled else "no weights", name)


def check_tokenizer(name: str, files: Collection[str], config: dict[str, Any]) -> None:
    """Raise `ModelNotLoaded` if a model that reads text has no tokenizer."""
    if not _has_tokenizer(files) and _reads_text(config):
        raise refusal("no tokenizer", name)


def _has_tokenizer(files: Collection[str]) -> bool:
    return "tokenizer_config.json" in files or any(map(VOCABULARY.fullmatch, files))


def _reads_text(config: dict[str, Any]) -> bool:
    """Whether text is what the model's class takes first; pictures and sounds need no words."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    named = (config.get("architectures") or [""])[0]
    usual = MODEL_MAPPING_NAMES.get(str(config.get("model_type")), "")
    cls = getattr(transformers, named, None) or getattr(transformers, str(usual), None)
    return getattr(cls, "main_input_name", "input_ids") == "input_ids"


def check_config(name: str, config: dict[str, Any]) -> None:
    """Raise `ModelNotLoaded` unless transformers alone can build this model."""
    import transformers

    kind = str(config.get("model_type") or "unnamed")
    classes = config.get("architectures") or [""]
    known = kind in transformers.CONFIG_MAPPING
    if "auto_map" in config and not (known and hasattr(transformers, classes[0])):
        raise refusal("code", name)
    if not known:
        raise refusal("type", name, kind=quoted(kind), version=transformers.__version__)
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    if any(part.get("quantization_config") for part in parts):
        raise refusal("quantised", name)


def _json(name: str, file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError(content)
    except (ValueError, TypeError) as error:
        raise refusal("not json", name, file=file.name) from error
    return content


def weight_files(name: str, folder: Path) -> list[Path]:
    """Return the file or files that hold the weights, whether they exist or not."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    parts = _json(name, folder / WEIGHTS_INDEX).get("weight_map")
    if not (isinstance(parts, dict) and all(isinstance(file, str) for file in parts.values())):
        raise refusal("index", name, file=WEIGHTS_INDEX)
    return [folder / file for file in sorted(set(parts.values()))]


def stored(name: str, folder: Path) -> Stored:
    """Return what the safetensors files hold, read from their headers."""
    counts: dict[str, int] = {}
    dtypes: Counter[str] = Counter()
    for weights in weight_files(name, folder):
        for key, dtype, shape in _tensors(name, weights):
            counts[key] = prod(shape)
            dtypes[dtype] += prod(shape)
    return Stored(counts, stored_dtype(dtypes), parts=True)


def _tensors(name: str, weights: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Yield name, dtype and shape of each tensor of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, "np") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.offset_keys()}
            yield from ((key, part.get_dtype(), part.get_shape()) for key, part in slices.items())
    except (SafetensorError, FileNotFoundError) as error:
        raise refusal("broken", name, file=weights.name) from error


def _check_depth(name: str, config: dict[str, Any], stored: Stored) -> None:
    """Raise `ModelNotLoaded` if the layers, which are built one by one, would never end."""
    limit = max(MANY_LAYERS, len(stored.counts))
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    for layers in (part[key] for part in parts for key in part if LAYERS.fullmatch(key)):
        if isinstance(layers, int) and layers > limit:
            raise refusal("too deep", name, layers=f"{layers:,}", held=f"{len(stored.counts):,}")


def read_model(name: str, folder: Path) -> PreTrainedModel:
    """Read the model in its own class, or without its head if the head has no weights."""
    from transformers import AutoConfig, AutoModel

    held = stored(name, folder)
    _check_depth(name, _json(name, folder / CONFIG), held)
    config = AutoConfig.from_pretrained(folder, **OFFLINE)
    classes = [*own_class(config), AutoModel]
    return build(name, folder, classes, config, held, use_safetensors=True)


def own_class(config: PretrainedConfig) -> list[Any]:
    """Return the class that the configuration names, if it is one of transformers."""
    import transformers

    cls = getattr(transformers, (config.architectures or [""])[0], None)
    return [cls] if getattr(cls, "config_class", None) is type(config) else []


def read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase | None:
    """Read the tokenizer, if there is one; raise `ModelNotLoaded` if it is broken or empty."""
    from transformers import AutoTokenizer

    if not _has_tokenizer(file_names(folder)):
        return None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **OFFLINE)
    except Exception as error:  # from a missing package to a broken file, the remedy is one
        raise refusal("tokenizer", name) from error
    # Without a vocabulary a fast tokenizer comes up empty; one that reads bytes needs none.
    if tokenizer.is_fast and not any(map(VOCABULARY.fullmatch, file_names(folder))):
        raise refusal("no tokenizer", name)
    return tokenizer


def read_image_processor(folder: Path) -> BaseImageProcessor | None:
    """Read what prepares pictures for the model, None if there is none that works here."""
    from transformers import AutoImageProcessor

    if not PROCESSORS & file_names(folder):
        return None
    try:
        return AutoImageProcessor.from_pretrained(folder, **OFFLINE)
    except Exception:  # such as one for sounds, or one that needs a package that is not here
        return None
