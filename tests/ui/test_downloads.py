"""The fold of files: what each button gives, and that none is made before it is asked for."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
import tiny_models
import torch
from PIL import Image
from safetensors.torch import load

from attnviz import frames
from attnviz.capture import capture
from attnviz.charts import matrix
from attnviz.export import Shown
from attnviz.ui import downloads
from attnviz.ui.downloads import Item

WORDS = frames.token_axis(["the", "cat", "sat", "the", "."])
SHOWN = Shown("Tiny", "L1H2", None, (5, 5), 16, "ab" * 32)


@pytest.fixture
def weights() -> pd.DataFrame:
    return frames.weight_matrix(torch.rand(5, 5, generator=torch.Generator().manual_seed(4)))


class Fold:
    """Stands for the fold, open or closed, and keeps what is put into it."""

    def __init__(self, is_open: bool) -> None:
        self.open = is_open
        self.buttons: dict[str, dict[str, Any]] = {}
        self.said: list[str] = []

    def container(self, **_: Any) -> Fold:
        return self

    def caption(self, words: str) -> None:
        self.said.append(words)

    def download_button(self, label: str, **given: Any) -> None:
        self.buttons[label] = given


def folded(monkeypatch: pytest.MonkeyPatch, items: list[Item], is_open: bool = True) -> Fold:
    fold = Fold(is_open)
    monkeypatch.setattr(st, "expander", lambda *_, **__: fold)
    downloads.downloads(items)
    return fold


def never() -> Any:
    pytest.fail("made before it was asked for")


def with_tokens(count: int) -> Shown:
    return Shown("Tiny", "L1H2", None, (count, count), 16, "ab" * 32)


def test_nothing_is_made_before_a_click(monkeypatch: pytest.MonkeyPatch):
    items = [
        *downloads.figure(SHOWN, never),
        *downloads.numbers(SHOWN, never),
        *downloads.vectors(SHOWN, never, 2),
    ]
    assert folded(monkeypatch, items, is_open=False).buttons == {}
    fold = folded(monkeypatch, items)
    assert list(fold.buttons) == ["PNG", "SVG", "HTML", "CSV", "NPY", "Q, K, V"]
    assert all(callable(given["data"]) for given in fold.buttons.values())
    assert not any(given["disabled"] for given in fold.buttons.values())
    assert fold.said == []


def test_the_picture_as_files(monkeypatch: pytest.MonkeyPatch, weights: pd.DataFrame):
    picture = matrix.weight_picture(weights, WORDS, WORDS, 1)
    buttons = folded(monkeypatch, downloads.figure(SHOWN, lambda: [picture])).buttons
    assert Image.open(io.BytesIO(buttons["PNG"]["data"]())).format == "PNG"
    assert buttons["PNG"]["file_name"] == "attnviz_Tiny_L1H2_abababab.png"
    assert buttons["PNG"]["mime"] == "image/png"
    for label, start in (("SVG", "<svg "), ("HTML", "<!DOCTYPE html>")):
        assert buttons[label]["data"]().startswith(start)
        assert SHOWN.caption in buttons[label]["data"]()


def test_the_numbers_as_files(monkeypatch: pytest.MonkeyPatch, weights: pd.DataFrame):
    buttons = folded(monkeypatch, downloads.numbers(SHOWN, lambda: (weights, WORDS, WORDS))).buttons
    table = io.StringIO(buttons["CSV"]["data"]())
    read = pd.read_csv(table, comment="#", index_col="query")
    np.testing.assert_array_equal(read.to_numpy(np.float32), weights.to_numpy())
    array = np.load(io.BytesIO(buttons["NPY"]["data"]()))
    np.testing.assert_array_equal(array, weights.to_numpy())


def test_the_vectors_as_a_file(monkeypatch: pytest.MonkeyPatch):
    inputs = tiny_models.inputs_for("gpt2", length=7)
    call = capture(tiny_models.build("gpt2"), inputs).calls[1]
    buttons = folded(monkeypatch, downloads.vectors(SHOWN, lambda: call, 1)).buttons
    assert call.query is not None
    torch.testing.assert_close(load(buttons["Q, K, V"]["data"]())["query"], call.query[0, 1])


@pytest.mark.parametrize(
    ("tokens", "refused"), [(1000, []), (1001, ["CSV"]), (4096, ["CSV"]), (4097, ["CSV", "NPY"])]
)
def test_what_is_too_large_is_refused_beforehand_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tokens: int, refused: list[str]
):
    fold = folded(monkeypatch, downloads.numbers(with_tokens(tokens), never))
    assert [label for label, given in fold.buttons.items() if given["disabled"]] == refused
    assert [said.split(":")[0].replace("\\", "") for said in fold.said] == refused
    for said in fold.said:
        assert f"{tokens:,} tokens" in said.replace("\\", "")


def test_what_is_said_shows_signs_as_they_are(monkeypatch: pytest.MonkeyPatch):
    fold = folded(monkeypatch, [Item("CSV", "a.csv", "", never, "not *this*")])
    assert fold.said == [r"CSV\: not \*this\*"]
