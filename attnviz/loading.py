"""Build a model from its weights: in memory where they fit, else layer by layer from disk.

What is larger than the machine goes through accelerate, which moves each layer to where it
runs and away again. No weight is shown that was not in a file.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.memory import Placement, account, fits, placement, shares
from attnviz.refusals import refusal

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class Stored:
    """What the files of a model hold: numbers in each tensor, and the dtype of most of them."""

    counts: Mapping[str, int]
    dtype: str
    parts: bool  # whether a part can be read without unpacking the whole

    @property
    def parameters(self) -> int:
        """Number of numbers in all tensors."""
        return sum(self.counts.values())


def build(
    name: str,
    folder: Path,
    classes: Sequence[Any],
    config: PretrainedConfig,
    stored: Stored,
    **options: Any,
) -> PreTrainedModel:
    """Read a model in the first of these classes for which every weight is stored."""
    absent: list[str] = []
    for cls in classes:
        skeleton = _skeleton(cls, config)
        misfits = _misfits(skeleton, stored)
        if not misfits:
            _check_size(name, skeleton, stored)
            where = _placement(name, skeleton, stored)
            parts = None if where.in_memory else _parts(skeleton, where)
            model, report = _read(cls, folder, parts, dtype=where.dtype, config=config, **options)
            misfits = _random_weights(report)
            if not misfits:
                _check_parts(name, model)
                return model.eval()
        absent = absent or misfits
    raise refusal("misfit", name, weight=absent[0])


def _skeleton(cls: Any, config: PretrainedConfig) -> PreTrainedModel:
    """Return the model without memory for its weights, as from_pretrained builds it first."""
    import torch
    from transformers import PreTrainedModel
    from transformers.utils.generic import ContextManagers

    with ContextManagers(PreTrainedModel.get_init_context(torch.float32, False, False, None)):
        skeleton = getattr(cls, "from_config", None) or cls._from_config
        skeleton = skeleton(config)
    skeleton.tie_weights()
    return skeleton


def _misfits(skeleton: PreTrainedModel, stored: Stored) -> list[str]:
    """Return the weights that are stored with another number of numbers.

    Known before any memory is taken. Shapes may differ: some weights are turned while loading.
    """
    prefix = f"{skeleton.base_model_prefix}."
    misfits = []
    for key, weight in skeleton.state_dict().items():
        names = (key, prefix + key, key.removeprefix(prefix))
        held = next((stored.counts[name] for name in names if name in stored.counts), None)
        if held not in (None, weight.numel()):
            misfits.append(key)
    return _that_matter(misfits)


def _that_matter(weights: list[str]) -> list[str]:
    """Leave out the pooler's weights: no attention reads those."""
    return sorted(weight for weight in weights if "pooler" not in weight.split("."))


def _random_weights(report: dict[str, Any]) -> list[str]:
    """Return the weights that no file holds."""
    return _that_matter([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])


def _check_size(name: str, skeleton: PreTrainedModel, stored: Stored) -> None:
    """Raise `ModelNotLoaded` if what is not stored would alone fill the memory."""
    described = sum(part.numel() for part in (*skeleton.parameters(), *skeleton.buffers()))
    if not fits(described - stored.parameters, "float32"):
        raise refusal("too wide", name, described=f"{described:,}", held=f"{stored.parameters:,}")


def _placement(name: str, skeleton: PreTrainedModel, stored: Stored) -> Placement:
    """Choose dtype and place; raise `ModelNotLoaded` if not even one weight would fit."""
    where = placement(stored.parameters, stored.dtype)
    largest = max((weight.numel() for weight in skeleton.parameters()), default=0)
    if not where.in_memory and not (stored.parts and fits(largest, where.dtype)):
        raise refusal("too large", name, **account(stored.parameters, where.dtype))
    return where


def _parts(skeleton: PreTrainedModel, where: Placement) -> dict[str, Any]:
    """Say which modules go to which GPU, to memory and to disk."""
    from accelerate import infer_auto_device_map

    sizes = {"max_memory": shares(), "dtype": where.dtype}
    whole_blocks = list(skeleton._no_split_modules or ())
    try:
        parts = infer_auto_device_map(skeleton, no_split_module_classes=whole_blocks, **sizes)
    except IndexError:  # its search for a place for shared weights may run past the end
        return {"": "disk"}
    modules = dict(skeleton.named_modules())
    # Only modules come back from disk when they run: a weight alone would come up random.
    alone = {
        name: "cpu" for name, place in parts.items() if name not in modules and place == "disk"
    }
    return {**parts, **alone}


def _read(
    cls: Any, folder: Path, parts: dict[str, Any] | None, **options: Any
) -> tuple[Any, dict[str, Any]]:
    options |= {
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported, and refused above
        **OFFLINE,
    }
    if parts is None:
        return cls.from_pretrained(folder, **options)
    return _read_in_parts(cls, folder, parts, **options)


def _read_in_parts(
    cls: Any, folder: Path, parts: dict[str, Any], **options: Any
) -> tuple[Any, dict[str, Any]]:
    from accelerate import dispatch_model

    rewritten = tempfile.mkdtemp(prefix="attnviz-")  # weights that must be changed while loading
    options |= {"device_map": parts, "offload_folder": rewritten}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights alone in the map
            model, report = cls.from_pretrained(folder, **options)
            if not hasattr(model, "_hf_hook"):  # on one device, where inputs must follow it
                dispatch_model(model, parts, force_hooks=True)
    except BaseException:
        shutil.rmtree(rewritten, ignore_errors=True)
        raise
    weakref.finalize(model, shutil.rmtree, rewritten, ignore_errors=True)
    _one_run_at_a_time(model)
    return model, report


def _check_parts(name: str, model: PreTrainedModel) -> None:
    """Raise `ModelNotLoaded` unless every weight that should be on disk is found there.

    Some are computed, not stored, and lost when they are sent away; one that stayed here
    although its place is on disk was never read.
    """
    hooks = (getattr(module, "_hf_hook", None) for module in model.modules())
    maps = (getattr(hook, "weights_map", None) for hook in hooks)
    held = {key for weights in maps if weights is not None for key in weights.dataset.all_keys}
    shared = {name for pair in model.all_tied_weights_keys.items() for name in pair}
    for key, weight in model.named_parameters():
        unread = key not in shared and _place_of(key, model) == "disk"
        if (key not in held) if weight.is_meta else unread:
            raise refusal("not in parts", name, weight=key)


def _place_of(weight: str, model: PreTrainedModel) -> Any:
    """Return the place of the innermost part of the map that holds a weight, None if none does."""
    places = getattr(model, "hf_device_map", {})
    while weight and weight not in places:
        weight = weight.rpartition(".")[0]
    return places.get(weight)


def _one_run_at_a_time(model: PreTrainedModel) -> None:
    """Let other threads wait: the weights of a layer come and go with the run that needs them."""
    from transformers import PreTrainedModel

    running = threading.RLock()
    for part in model.modules():
        if isinstance(part, PreTrainedModel):  # an encoder may also be run by itself
            part.forward = _behind(running, part.forward)


def _behind(lock: Any, forward: Any) -> Any:
    @functools.wraps(forward)
    def alone(*inputs: Any, **named: Any) -> Any:
        with lock:
            return forward(*inputs, **named)

    return alone
