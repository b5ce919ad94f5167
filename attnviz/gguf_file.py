"""A GGUF file, as llama.cpp reads them: unpacked by transformers' own loader."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.loading import OFFLINE, Stored, build
from attnviz.memory import stored_dtype
from attnviz.model_folder import WEIGHTS, WEIGHTS_INDEX, file_names, own_class
from attnviz.refusals import refusal

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

GGUF = ".gguf"
PLAIN = {"F64", "F32", "F16", "BF16"}  # what is not packed


def gguf_at(name: str, path: Path) -> Path | None:
    """Return the GGUF file that is meant: this one, or a folder's only weights; None if none."""
    if path.name.endswith(GGUF) and os.path.isfile(path):
        return path
    names = file_names(path) if os.path.isdir(path) else set()
    files = [file for file in names if file.endswith(GGUF)]
    if not files or names & {WEIGHTS, WEIGHTS_INDEX}:
        return None
    if len(files) > 1:
        raise refusal("several gguf", name)
    return path / files[0]


def read_gguf(name: str, file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read the model, unpacked, and the tokenizer from one file."""
    if importlib.util.find_spec("gguf") is None:
        raise refusal("no gguf", name)
    from transformers import AutoConfig, AutoTokenizer, GgufConfig

    stored = _stored(name, file)
    folder, whole = file.parent, str(file.absolute())  # a name alone is looked for elsewhere first
    config = AutoConfig.from_pretrained(folder, gguf_file=whole, **OFFLINE)
    with _without_bar():
        model = build(
            name,
            folder,
            _classes(config),
            config,
            stored,
            gguf_file=whole,
            quantization_config=GgufConfig(dequantize=True),  # plain weights, no kernels
        )
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=whole, **OFFLINE)


def _stored(name: str, file: Path) -> Stored:
    """Return what the file holds, read from its header; what is packed is unpacked to bfloat16."""
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(file).tensors
    except Exception as error:  # cut short or another format, in whatever way it shows
        raise refusal("broken", name, file=file.name) from error
    counts = {str(tensor.name): int(tensor.n_elements) for tensor in tensors}
    dtypes: Counter[str] = Counter()
    for tensor in tensors:
        kind = tensor.tensor_type.name
        dtypes[kind if kind in PLAIN else "BF16"] += int(tensor.n_elements)
    return Stored(counts, stored_dtype(dtypes), parts=False)


def _classes(config: PretrainedConfig) -> list[Any]:
    """Return the classes to try; a GGUF file rarely names its own."""
    import transformers as hf

    with_head = (
        (hf.AutoModelForCausalLM, hf.MODEL_FOR_CAUSAL_LM_MAPPING),
        (hf.AutoModelForSeq2SeqLM, hf.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING),
    )
    heads = [auto for auto, known in with_head if type(config) in known]
    return [*own_class(config), *heads, hf.AutoModel]


@contextmanager
def _without_bar() -> Iterator[None]:
    """Take the bar away that transformers always shows while it unpacks."""
    from transformers import modeling_gguf_pytorch_utils as unpacking

    bar = unpacking.tqdm
    unpacking.tqdm = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        unpacking.tqdm = bar
