"""Models on the Hugging Face hub: its local cache, and one request before any download."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.memory import account, fits, stored_dtype
from attnviz.model_folder import (
    WEIGHTS,
    check_config,
    check_files,
    check_tokenizer,
    file_names,
    weight_files,
)
from attnviz.quiet import quiet_and_alone
from attnviz.refusals import ModelNotLoaded, refusal

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

DOWNLOADED = re.compile(r".*\.(json|txt|model|spm|bpe|tiktoken|jinja)")
HUB_PART = r"\w([\w.-]*\w)?"
HUB_NAME = re.compile(rf"(?!.*(--|\.\.))(?=.{{1,96}}$){HUB_PART}(/{HUB_PART})?", re.ASCII)
HUB_TIMEOUT = 3.0  # seconds until a network that swallows requests counts as none


def hub_folder(name: str) -> Path:
    """Return the folder of a hub model in the local cache, downloaded if it is not there."""
    if not HUB_NAME.fullmatch(name):
        raise refusal("no name", name)
    return _cached_folder(name) or _downloaded_folder(name)


def _hub_cache() -> Path:
    """Return the cache that huggingface_hub uses, without its slow import."""
    home = os.getenv("XDG_CACHE_HOME", "~/.cache")
    home = os.getenv("HF_HOME", os.path.join(home, "huggingface"))
    older = os.getenv("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return Path(os.path.expandvars(os.path.expanduser(os.getenv("HF_HUB_CACHE", older))))


def cached_names() -> list[str]:
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
        check_files(name, file_names(folder))
        complete = all(path.is_file() for path in weight_files(name, folder))
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
    with quiet_and_alone():
        wanted = _check_offer(name, info)
    return Path(
        snapshot_download(name, cache_dir=_hub_cache(), allow_patterns=wanted, tqdm_class=SilentBar)
    )


def _check_offer(name: str, info: ModelInfo) -> list[str]:
    """Return the files to download, or raise `ModelNotLoaded` if they would be refused."""
    from huggingface_hub import get_token

    if info.gated and not get_token():
        raise refusal("gated", name)
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or () if "/" not in f.rfilename}
    check_files(name, sizes)
    # The hub's digest of config.json, which may leave out the code that the tags tell of.
    config = info.config or {}
    if "custom_code" in (info.tags or ()):
        config = {"auto_map": {}, **config}
    if config:
        check_config(name, config)
    check_tokenizer(name, sizes, config)
    weights = [file for file in sizes if re.fullmatch(r"model.*\.safetensors", file)]
    weights = [WEIGHTS] if WEIGHTS in sizes else weights
    _check_offered_size(name, info, sum(sizes[file] for file in weights))
    return weights + [file for file in sizes if DOWNLOADED.fullmatch(file)]


def _check_offered_size(name: str, info: ModelInfo, size: int) -> None:
    """Raise `ModelNotLoaded` if a download would not fit into memory as it is stored."""
    # Without the hub's own count, two bytes a parameter, as most are stored.
    counts = info.safetensors.parameters if info.safetensors else {"BF16": size // 2}
    parameters, dtype = sum(counts.values()), stored_dtype(counts)
    if not fits(parameters, dtype):
        raise refusal("too large to download", name, **account(parameters, dtype))
