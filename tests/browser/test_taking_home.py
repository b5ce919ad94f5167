"""Files by real clicks, one right after the other, from a server whose log stays clean."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from safetensors.torch import load

from browser import downloads_page
from browser.visiting import Visitor, suspicious_lines
from scripts.running_app import RunningApp, running_app

pytestmark = pytest.mark.browser

LOADING = 90_000  # ms: torch and the model are read first


@pytest.fixture(scope="module")
def app(browser: Browser) -> Iterator[RunningApp]:
    """The page as a server of its own, whose log must be clean when it has stopped."""
    with running_app(downloads_page.__file__) as started:
        started.wait()
        yield started
        started.stop()
        assert suspicious_lines(started.log()) == []


def opened(visitor: Visitor) -> Page:
    page = visitor.open("")
    expect(page.get_by_text("Take it home").last).to_be_visible(timeout=LOADING)
    return page


def taken(page: Page, label: str) -> bytes:
    with page.expect_download() as waited:
        page.get_by_role("button", name=label, exact=True).click()
    name = waited.value.suggested_filename
    assert name.startswith("attnviz_Bundled-storyteller_L1H2_")
    return Path(waited.value.path()).read_bytes()


def test_each_button_gives_its_file(visitor: Visitor):
    page = opened(visitor)
    assert page.get_by_role("button", name="PNG").count() == 0
    page.get_by_text("Take it home").first.click()
    weights, words, _ = downloads_page.numbers()
    assert Image.open(io.BytesIO(taken(page, "PNG"))).width > 800
    assert b"Bundled storyteller" in taken(page, "SVG")
    assert b"vegaEmbed" in taken(page, "HTML")
    table = pd.read_csv(io.BytesIO(taken(page, "CSV")), comment="#", index_col="query")
    assert [name.split(" ", 1)[1] for name in table.index] == words["token"].to_list()
    np.testing.assert_allclose(table.to_numpy(), weights.to_numpy(), atol=1e-6)
    array = np.load(io.BytesIO(taken(page, "NPY")))
    np.testing.assert_allclose(array, weights.to_numpy(), atol=1e-6)
    assert load(taken(page, "Q, K, V"))["query"].shape == (len(words), downloads_page.call().d_k)


def test_what_cannot_be_had_is_told(visitor: Visitor):
    page = opened(visitor)
    page.get_by_text("Take it home").last.click()
    expect(page.get_by_role("button", name="CSV", exact=True)).to_be_disabled()
    expect(page.get_by_text("1,013 tokens make a table of 1,026,169 numbers")).to_be_visible()
