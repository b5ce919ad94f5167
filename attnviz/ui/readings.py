"""What models read, cached: models and captures, keyed by names, texts and pictures.

Entries are shared by all sessions and never changed. torch and transformers are imported
here, inside the functions, so that a page has painted its first text before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import streamlit as st

from attnviz.limits import beyond_training, most_places, refusal, share_to_cut
from attnviz.models import fingerprint
from attnviz.reading import Reading
from attnviz.ui.drawings import DRAWINGS

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from attnviz.inputs import Inputs, Needs
    from attnviz.models import LoadedModel

MAX_TOKENS = 512  # what the page draws; a model may take fewer
BEGINNING = 63  # tokens of a longer text on which recording is tried
MAX_LONG = 2  # readings of longer texts that are kept: hundreds of megabytes each
MAX_PATCHES = 2500  # of a picture: its matrix is not drawn, a row of it is

_long_run = threading.Lock()


class NotServed(Exception):  # noqa: N818 - what a person is told, not a mistake
    """What was asked cannot be shown; the message is the sentence for the person."""


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """A model's reason why something cannot be done with it becomes one for the person."""
    from attnviz.capture import UnreadableModel

    try:
        yield
    except UnreadableModel as problem:
        raise NotServed(str(problem)) from problem


@dataclass(frozen=True)
class Asked:
    """A model, and what it shall read: a text, a target for its decoder, a picture.

    `pair` is a second text for models that read two at once, "" for none. `picture` names a
    drawing, "" for none; a visitor's own picture, as the bytes of its file, goes before.
    """

    model: str
    text: str
    target: str = ""
    picture: str = ""
    own_picture: bytes | None = field(default=None, repr=False)
    pair: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells one question from another, and a model from an older one of that name."""
        own = "" if self.own_picture is None else sha256(self.own_picture).hexdigest()
        model = (self.model, fingerprint(self.model))
        return (*model, self.text, self.pair, self.target, self.picture, own)


def loaded(name: str) -> LoadedModel:
    """A model with its tokenizer and card; one that was saved again is read again."""
    trouble()  # before anything is read
    return _loaded(name, fingerprint(name))


@st.cache_resource(show_spinner=False)
def trouble() -> str | None:
    """What is wrong with observing the installed transformers, in a sentence."""
    from attnviz.self_test import self_test

    return self_test(_loaded("bundled", fingerprint("bundled")).model)


def warning(model: LoadedModel) -> str | None:
    """What a person should know before she believes what she sees of a model."""
    return " ".join(filter(None, [trouble(), model.card.warning])) or None


def needs(name: str) -> Needs:
    """What a model must be given; raises `NotServed` if it cannot be given here."""
    from attnviz import inputs
    from attnviz.models import ModelNotLoaded

    try:
        model = loaded(name)
        return inputs.needs(model.model, model.tokenizer)
    except (ModelNotLoaded, inputs.UnusableModel) as problem:
        raise NotServed(str(problem)) from problem


def served(asked: Asked, limit: int | None = MAX_TOKENS) -> Reading:
    """What the model read, where every reason why it cannot be done becomes `NotServed`.

    `limit` is how many tokens of a text the page can show; without one, a text may be as long as
    the model and this machine can read.
    """
    from attnviz.capture import UnreadableModel
    from attnviz.inputs import UnusableModel
    from attnviz.models import ModelNotLoaded
    from attnviz.pictures import UnusablePicture
    from attnviz.tokens import UnusableText

    try:
        if limit is not None:
            _check_lengths(asked, limit)
        longest = max(_lengths(asked).values(), default=0)
        return _read(asked) if longest <= MAX_TOKENS else _read_long(asked)
    except UnreadableModel as problem:
        # What is wrong with the tokenizer explains more than where the model stumbled.
        raise NotServed(loaded(asked.model).card.warning or str(problem)) from problem
    except (ModelNotLoaded, UnusableModel, UnusableText, UnusablePicture) as problem:
        raise NotServed(str(problem)) from problem


@st.cache_resource(max_entries=2, show_spinner=False)
def _loaded(name: str, version: str) -> LoadedModel:
    import torch

    from attnviz.models import load

    # With a thread on every core, those of two visitors wait for each other many times over.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    return load(name)


@st.cache_resource(max_entries=2, show_spinner=False)
def _difference(name: str, version: str, _inputs: Inputs) -> float:
    """By how much recording changes a model's output: found once, on what it first reads.

    Of a long text its beginning and its end mark are enough, or this would take longer than the
    reading itself.
    """
    from attnviz.capture import recording_difference

    return recording_difference(
        loaded(name).model, {name: _cut(tensor) for name, tensor in _inputs.tensors.items()}
    )


def _cut(tensor: Tensor) -> Tensor:
    """A long text's first tokens and its last; any other input as it is."""
    if tensor.is_floating_point() or tensor.shape[1] <= MAX_TOKENS:
        return tensor
    return tensor[:, [*range(BEGINNING), -1]]


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _lengths(asked: Asked) -> dict[str, int]:
    """How many tokens the texts of a question have, cut without running the model."""
    from attnviz.inputs import lengths

    return lengths(loaded(asked.model), asked.text, asked.target, asked.pair)


def _check_lengths(asked: Asked, limit: int) -> None:
    """Refuse what the page cannot show, and say which page can, if any."""
    from attnviz.tokens import check_length

    model = loaded(asked.model)
    places = most_places(model.model, model.card.max_tokens)
    for called, length in _lengths(asked).items():
        if length <= limit:
            continue
        check_length(length, places, called)
        raise NotServed(
            refusal(model.model, length, called)
            or f"This {called} has {length:,} tokens; this page shows at most {limit:,}. Shorten "
            f"it by {share_to_cut(length, limit)}, or open it on the page “Heads”, which reads "
            "longer texts."
        )


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key})
def _read(asked: Asked) -> Reading:
    return _run(asked)


# Long readings take much memory: fewer are kept, and one at a time is made.
@st.cache_resource(
    max_entries=MAX_LONG, show_spinner=False, hash_funcs={Asked: lambda asked: asked.key}
)
def _read_long(asked: Asked) -> Reading:
    with _long_run:
        return _run(asked)


def _run(asked: Asked) -> Reading:
    """Run a model on what it is given and keep what its attention used."""
    from attnviz.capture import capture
    from attnviz.inputs import inputs_for

    model = loaded(asked.model)
    places = most_places(model.model, model.card.max_tokens)
    inputs = inputs_for(model, asked.text, asked.target, _image(asked), places, pair=asked.pair)
    _check_patches(inputs)
    captured = capture(model.model, inputs.tensors)
    difference = _difference(asked.model, fingerprint(asked.model), inputs)
    longest = max(
        len(tokens) for tokens in (inputs.source, inputs.target, ()) if tokens is not None
    )
    beyond = beyond_training(longest, model.card.max_tokens)
    told = " ".join(filter(None, [warning(model), beyond])) or None
    return Reading(model.card.title, told, inputs, captured, difference)


def _image(asked: Asked) -> Image | None:
    from attnviz.pictures import opened

    if asked.own_picture is not None:
        return opened(asked.own_picture)
    return DRAWINGS[asked.picture].draw() if asked.picture else None


def _check_patches(inputs: Inputs) -> None:
    from attnviz.pictures import UnusablePicture

    if inputs.picture is None:
        return
    rows, columns = inputs.picture.grid
    if rows * columns > MAX_PATCHES:
        raise UnusablePicture(
            f"This model cuts its picture into {rows} × {columns} patches; at most "
            f"{MAX_PATCHES:,} can be shown. Choose another model."
        )
