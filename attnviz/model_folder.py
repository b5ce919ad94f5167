"""A model as a folder in Hugging Face format: what it must hold, and how it is read.

No code that comes with a model is run, no pickle file is opened, and no weight is shown that
was not in a file.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.refusals import gigabytes, quoted, refusal

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PICKLED = re.compile(r".*\.(bin|pt|pth|ckpt|h5|msgpack)")
VOCABULARY = re.compile(
    r"tokenizer\.json|tekken\.json|vocab.*\.(json|txt|bpe)|.*\.(model|spm|tiktoken)"
)
CONTAINER_LIMITS = (  # of control groups, version 2 and 1
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
HEADROOM = 1.2  # what a run needs on top of the weights
OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def check_folder(name: str, folder: Path) -> None:
    """Raise `ModelNotLoaded` if the folder cannot be read, before its weights are."""
    if not os.path.isdir(folder):
        raise refusal("no folder", name)
    check_files(name, file_names(folder))
    check_config(name, _json(name, folder / CONFIG))
    check_memory(name, sum(_parameters(name, file) for file in weight_files(name, folder)))


def file_names(folder: Path) -> set[str]:
    """Return the names of the files in a folder, without links that lead nowhere."""
    return {path.name for path in folder.iterdir() if path.is_file()}


def check_files(name: str, files: Collection[str]) -> None:
    """Raise `ModelNotLoaded` unless these files are a model with safe weights and a tokenizer."""
    safe = WEIGHTS in files or WEIGHTS_INDEX in files
    if "adapter_config.json" in files and not safe:
        raise refusal("adapter", name)
    if CONFIG not in files:
        raise refusal("no config", name)
    if not safe:
        pickled = any(map(PICKLED.fullmatch, files))
        raise refusal("pickle" if pickled else "no weights", name)
    if not ("tokenizer_config.json" in files or any(map(VOCABULARY.fullmatch, files))):
        raise refusal("no tokenizer", name)


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
    if config.get("quantization_config"):
        raise refusal("quantised", name)


def check_memory(name: str, parameters: int) -> None:
    """Raise `ModelNotLoaded` if so many parameters in float32 do not fit into free memory."""
    needed, free = int(4 * parameters * HEADROOM), free_memory()
    if free is not None and needed > free:
        raise refusal("too large", name, needed=gigabytes(needed), free=gigabytes(free))


def free_memory() -> int | None:
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


def _parameters(name: str, weights: Path) -> int:
    """Return the number of parameters in a safetensors file, read from its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, "np") as tensors:
            return sum(prod(tensors.get_slice(key).get_shape()) for key in tensors.offset_keys())
    except (SafetensorError, FileNotFoundError) as error:
        raise refusal("broken", name, file=weights.name) from error


_reading = threading.Lock()


@contextmanager
def quiet_and_alone() -> Iterator[None]:
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


def read_model(name: str, folder: Path) -> PreTrainedModel:
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
    raise refusal("misfit", name, weight=absent[0])


def _own_class(config: PretrainedConfig) -> list[Any]:
    """Return the class that the configuration names, if it is one of transformers."""
    import transformers

    cls = getattr(transformers, (config.architectures or [""])[0], None)
    return [cls] if getattr(cls, "config_class", None) is type(config) else []


def _random_weights(report: dict[str, Any]) -> list[str]:
    """Return the weights that no file holds, but for the pooler's: no attention reads those."""
    names = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    return sorted(name for name in names if "pooler" not in name.split("."))


def read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    """Read the tokenizer; raise `ModelNotLoaded` if it is broken or came up empty."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **OFFLINE)
    except Exception as error:  # from a missing package to a broken file, the remedy is one
        raise refusal("tokenizer", name) from error
    # Without a vocabulary a fast tokenizer comes up empty; one that reads bytes needs none.
    if tokenizer.is_fast and not any(map(VOCABULARY.fullmatch, file_names(folder))):
        raise refusal("no tokenizer", name)
    return tokenizer
