"""An exported page, opened where there is no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from attnviz import export, frames
from attnviz.charts import matrix

QUERIES = frames.token_axis(["the", "<img src=x onerror=alert(1)>", "cat", "sat", "the"])
KEYS = frames.token_axis(["the", "</script>", "cat", "⏎", "the", "猫", ","])
CAPTION = "real · <i>Tiny</i> · L1H4 · n = 5 × 7"

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[tuple[Page, torch.Tensor]]:
    """The page with a head's picture and scale, and its weights; nothing may go wrong in it."""
    weights = torch.rand(5, 7, generator=torch.Generator().manual_seed(2))
    frame = frames.weight_matrix(weights)
    charts = [matrix.weight_picture(frame, QUERIES, KEYS, 3), matrix.weight_scale(0.9)]
    file = tmp_path / "head.html"
    file.write_text(export.page(charts, CAPTION), encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(file.as_uri())
    yield page, weights
    context.close()
    assert [said for said in complaints if not said.startswith(("data:", file.as_uri()))] == []


def test_it_draws_without_a_network_and_answers_the_pointer(opened: tuple[Page, torch.Tensor]):
    page, weights = opened
    expect(page.locator("#chart1 svg image")).to_be_visible()
    picture = page.locator("#chart0 svg image")
    place = picture.bounding_box()
    assert place
    for query, key in ((1, 4), (4, 1)):
        across, down = (key + 0.5) / 7 * place["width"], (query + 0.5) / 5 * place["height"]
        page.mouse.move(place["x"] + across, place["y"] + down)
        said = page.locator("#chart0 .role-title text").first
        expect(said).to_contain_text(f"{weights[query, key]:.3f}")
        expect(said).to_contain_text(f"query {query} {QUERIES['token'][query]}")
        expect(said).to_contain_text(f"key {key} {KEYS['token'][key]}")


def test_its_pixels_are_the_weights(opened: tuple[Page, torch.Tensor]):
    page, weights = opened
    shades = page.locator("#chart0 svg image").evaluate(
        """async (image) => {
            const drawn = new Image();
            drawn.src = image.href.baseVal;
            await drawn.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [drawn.width, drawn.height];
            const pen = canvas.getContext("2d");
            pen.drawImage(drawn, 0, 0);
            const { data } = pen.getImageData(0, 0, drawn.width, drawn.height);
            const at = (i, cells, side) => Math.floor(((i + 0.5) / cells) * side);
            return [...Array(35).keys()].map((cell) => {
                const row = at(Math.floor(cell / 7), 5, drawn.height);
                const start = 4 * (row * drawn.width + at(cell % 7, 7, drawn.width));
                return [...data.slice(start, start + 3)];
            });
        }"""
    )
    colours = bytes.fromhex(matrix.palette())
    step = len(colours) // 256
    places = [[*colours[i * step : i * step + 3]] for i in range(256)]
    expected = (weights / weights.max() * 255).round().int().flatten().tolist()
    assert shades == [places[shade] for shade in expected]


def test_its_caption_is_words(opened: tuple[Page, torch.Tensor]):
    page, _ = opened
    assert page.locator("figcaption").text_content() == CAPTION
    assert page.title() == CAPTION
