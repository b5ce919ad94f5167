"""A visitor of the app, and what the app should show, worked out without it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import torch
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnviz.models import BUNDLED
from scripts.running_app import HEAD_CHART, HEAD_PICTURE, RunningApp

Scheme = Literal["light", "dark"]
SUSPICIOUS = re.compile("Traceback|Error|[Ww]arn")


@dataclass
class Visitor:
    """Opens pages, and keeps what the browser complained of and whom it asked."""

    browser: Browser
    app: RunningApp
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(
        self, link: str = "", width: int = 1400, scheme: Scheme = "light", touch: bool = False
    ) -> Page:
        """Follow a link, in a browser profile of its own."""
        page = self.page(width, scheme, touch)
        page.goto(f"{self.app.address}/{link}")
        return page

    def page(self, width: int = 1400, scheme: Scheme = "light", touch: bool = False) -> Page:
        """Give an empty page whose every complaint and request is kept."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 1000}, color_scheme=scheme, has_touch=touch
        )
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("websocket", lambda socket: self.asked.append(socket.url))
        return page

    def leave(self) -> None:
        """Close all pages."""
        for context in self.contexts:
            context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")


def suspicious_lines(log: str) -> list[str]:
    """Lines of a server's log that should not be there."""
    return [line for line in log.splitlines() if SUSPICIOUS.search(line)]


@dataclass(frozen=True)
class Reference:
    """What transformers itself computes with eager attention: no code of attnviz takes part."""

    words: list[str]
    d_k: int
    weights: torch.Tensor  # layer, head, query, key


@cache
def bundled_model_on(text: str) -> Reference:
    """Read a text with the bundled model."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, attn_implementation="eager", dtype=torch.float32
    )
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        attentions = model.eval()(**inputs, output_attentions=True).attentions
    words = [str(tokenizer.decode(i)).strip() for i in inputs.input_ids[0]]
    return Reference(words, model.config.head_dim, torch.cat(attentions))


# --- what is on the page


def headline(page: Page) -> Locator:
    """Where the query looks most."""
    return page.locator("[class*=st-key-real_]").get_by_role("heading", name="looks")


def number(page: Page, name: str) -> Locator:
    """A number field."""
    return page.get_by_role("spinbutton", name=name, exact=True)


def choose(field: Locator, value: int) -> None:
    """Type a number and confirm it."""
    field.fill(str(value))
    field.press("Enter")


def pick(page: Page, name: str, option: str) -> list[str]:
    """Open a menu and take one of its options; gives all that it offered."""
    page.get_by_role("combobox", name=name).click()
    offered = page.get_by_role("option")
    expect(offered.first).to_be_visible()
    texts = offered.all_inner_texts()
    page.get_by_role("option", name=option, exact=True).click()
    return texts


def picture(page: Page) -> str:
    """The head's picture, as the data URL that is on the page."""
    return page.locator(HEAD_PICTURE).evaluate("image => image.href.baseVal")


def expect_reading(page: Page, query: int, key: int, weight: torch.Tensor) -> None:
    """Wait until this cell and its weight, to a thousandth, stand above the picture."""
    near = {f"{float(weight) + rounding:.3f}" for rounding in (-1e-5, 0, 1e-5)}
    told = rf"query {query} \S+ +→ +key {key} \S+: +({'|'.join(map(re.escape, near))})"
    title = page.locator(f"{HEAD_CHART} .role-title text")
    expect(title).to_have_text(re.compile(told))


def point_at(page: Page, query: int, key: int, size: int) -> None:
    """Move the pointer into a cell, in steps as a hand does."""
    image = page.locator(HEAD_PICTURE)
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box
    x = box["x"] + (key + 0.5) * box["width"] / size
    y = box["y"] + (query + 0.5) * box["height"] / size
    page.mouse.move(x - 3, y - 3, steps=4)
    page.mouse.move(x, y, steps=3)


def alerts(page: Page) -> list[str]:
    """What the app told in boxes; each must be sentences and no dump."""
    boxes = page.get_by_test_id("stAlert")
    expect(boxes.first).to_be_visible()
    told = boxes.all_inner_texts()
    for text in told:
        assert re.fullmatch(r"[A-Z“].*[.]", text, re.DOTALL), text
        assert not re.search("Traceback|Error|Exception", text), text
    expect(page.get_by_test_id("stException")).to_have_count(0)
    return told


@dataclass(frozen=True)
class Word:
    """A word of a chart, and its colour and that behind it, each as red, green and blue."""

    text: str
    colour: tuple[int, int, int]
    behind: tuple[int, int, int]

    @property
    def contrast(self) -> float:
        """The contrast ratio of WCAG 2.2, 1 to 21."""
        light, dark = sorted(map(_luminance, (self.colour, self.behind)), reverse=True)
        return (light + 0.05) / (dark + 0.05)


WORDS = """chart => [...chart.querySelectorAll('svg text')].map(text => {
    let place = text;
    const background = () => getComputedStyle(place).backgroundColor;
    while (background() === 'rgba(0, 0, 0, 0)') place = place.parentElement;
    return [text.textContent, getComputedStyle(text).fill, background()];
})"""


def words(chart: Locator) -> list[Word]:
    """The words of a chart."""
    return [Word(text, rgb(fill), rgb(behind)) for text, fill, behind in chart.evaluate(WORDS)]


def rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = map(int, re.findall(r"\d+", colour))
    return red, green, blue


def _luminance(colour: tuple[int, int, int]) -> float:
    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value / 255) for value in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
