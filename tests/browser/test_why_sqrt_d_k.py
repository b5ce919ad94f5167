"""The page “Why √d_k” as a visitor sees it, in headless Chromium against the running app.

What it should show is worked out here with NumPy and transformers, without the page's own code.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnviz.charts.theme import DIVISOR_COLOURS, DIVISOR_DASHES
from attnviz.models import BUNDLED
from attnviz.ui.lab_sentences import SECTIONS
from browser.test_heads import AT_REST, NOT_THERE, SCROLLS, STICKS_OUT, focused
from browser.visiting import Scheme, Visitor, bundled_model_on, suspicious_lines, words
from scripts.running_app import RunningApp, wait_until_charts_drawn

pytestmark = pytest.mark.browser

TEXT = "The cat sat on the mat because it was tired."
LAYER, HEAD, QUERY = 1, 2, 9
SYNTHETIC, REAL = "synthetic", "real"
TRIALS, BINS, REACH = 2000, 64, 4  # queries; bins at most, over so many deviations to each side
ROW_HEIGHT = 115  # px, a weight of 1
POWERS = {"1": 0.0, "√d_k": 0.5, "d_k": 1.0, "d_k²": 2.0}
# What of each section is there only when it is.
CHARTS = {1: 10, 2: 2, 3: 2, 4: 2, 5: 3, 6: 2, 7: 0}
SCREENS: list[tuple[int, Scheme]] = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]
CHART = "[data-testid=stVegaLiteChart]"
BARS = ".mark-rect.role-mark path"
PATHS = f"""chart => [...chart.querySelectorAll('{BARS}')].map(bar =>
    [bar.getAttribute('d').match(/-?[\\d.]+(?:e-?\\d+)?/g).map(Number),
     bar.getAttribute('fill')])"""
LINES = """chart => [...chart.querySelectorAll('.mark-line.role-mark path')].map(line =>
    [line.getAttribute('stroke'), line.getAttribute('stroke-dasharray')])"""


@pytest.fixture(scope="module")
def guest(browser: Browser, app: RunningApp) -> Iterator[Visitor]:
    """A visitor who stays for all tests, whose browser has nothing to complain of."""
    before = len(app.log())
    someone = Visitor(browser, app)
    yield someone
    someone.leave()
    assert [told for told in someone.complaints if NOT_THERE not in told] == []
    assert suspicious_lines(app.log()[before:]) == []


@pytest.fixture(autouse=True)
def pages_are_closed(guest: Visitor) -> Iterator[None]:
    """Pages of one test are not left open for the next."""
    yield
    guest.leave()
    guest.contexts.clear()


def opened(guest: Visitor, width: int = 1400, scheme: Scheme = "light", **asked: int | str) -> Page:
    """A section of the page, all drawn."""
    parameters = {"text": TEXT, "layer": LAYER, "head": HEAD, "query": QUERY} | asked
    link = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
    page = guest.open(f"why_sqrt_d_k?{link}", width, scheme)
    expect_section(page, int(asked.get("section", 1)))
    return page


def expect_section(page: Page, number: int) -> None:
    """Wait until this section and no other is there, with all its charts."""
    title = page.get_by_role("heading", level=2)
    expect(title).to_have_text([f"{number} {SECTIONS[number - 1]}"], timeout=60_000)
    expect(page.locator(CHART)).to_have_count(CHARTS[number])
    wait_until_charts_drawn(page)


def stage(page: Page, kind: str, name: str) -> Locator:
    """A stage of the chain, on one side."""
    return page.locator(f".st-key-{kind}_lab_{name}")


def said(page: Page, kind: str, name: str) -> Locator:
    """What stands above a chart of the chain."""
    return stage(page, kind, name).locator("[data-testid=stMarkdownContainer] strong").first


def slider(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name)


def option(page: Page, name: str) -> Locator:
    """One of a few choices that stand beside each other."""
    return page.get_by_role("radio", name=name, exact=True)


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, in pixels."""

    left: float
    top: float
    width: float
    height: float
    colour: str


def bars(chart: Locator) -> list[Bar]:
    """The bars that are drawn now, from left to right or from top to bottom."""
    return [Bar(*numbers[:4], fill) for numbers, fill in chart.evaluate(PATHS)]


def eventually(page: Page, check: Callable[[], None], patience: float = 5.0) -> None:
    """Try until it holds: Vega draws a little after the words of the page have come."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            return check()
        except AssertionError:
            page.wait_for_timeout(50)
    return check()


# --- what is drawn at random


@dataclass(frozen=True)
class Rows:
    """Scores of random queries before their own keys."""

    d_k: int
    scores: np.ndarray

    def expect_on(self, page: Page, divisor: float) -> None:
        """Wait until all numbers that stand above the charts are those of these scores."""
        pooled, within = self.scores.var(), self.scores.var(1, ddof=1)
        error = within.std(ddof=1) / TRIALS**0.5
        expected = [
            pytest.approx(pooled, rel=2e-3),
            pytest.approx(error, rel=0.2),  # within rows it is nearly the same
            self.d_k,
            pytest.approx(within.mean(), rel=2e-3),
            pytest.approx(error, rel=0.06),
            self.d_k,
        ]

        def numbers_are_these() -> None:
            assert numbers_of(said(page, SYNTHETIC, "scores")) == expected

        eventually(page, numbers_are_these)
        expect(said(page, SYNTHETIC, "logits")).to_contain_text(
            f"variance {two_digits(within.mean() / divisor**2)} within a row"
        )
        weights = softmax(self.scores / divisor)
        n = self.scores.shape[1]
        largest = f"The largest of {n} weights is {weights[0].max():.2f}"
        expect(said(page, SYNTHETIC, "weights")).to_contain_text(largest)
        most = weights.max(1)
        expect(said(page, SYNTHETIC, "saturation")).to_have_text(
            f"Largest weight: mean {most.mean():.3g}, median {np.median(most):.3g}"
        )
        wait_until_charts_drawn(page)

    def expect_drawn(self, page: Page) -> None:
        """Wait until the histogram's bars stand to each other as the counts do."""
        reach = REACH * self.d_k**0.5
        bins = round(2 * self.scores.size ** (1 / 3))  # the rule of Rice
        counts, _ = np.histogram(self.scores, min(bins, BINS), (-reach, reach))
        shares = counts[counts > 0] / counts.sum()
        chart = stage(page, SYNTHETIC, "scores")

        def heights_are_shares() -> None:
            heights = [bar.height for bar in bars(chart)]
            assert np.array(heights) / sum(heights) == pytest.approx(shares, rel=1e-6)

        eventually(page, heights_are_shares)


def rows(d_k: int, n: int, seed: int) -> Rows:
    """What the page says it draws: q and k ~ N(0, I), here through ‖q‖ and a normal number."""
    dice = np.random.default_rng([seed, d_k, n])
    query = dice.standard_normal((TRIALS, d_k))
    dice.standard_normal((TRIALS, n))  # the loss's gradient comes before the keys
    zeta = dice.standard_normal((TRIALS, n))
    return Rows(d_k, np.linalg.norm(query, axis=1, keepdims=True) * zeta)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def numbers_of(place: Locator) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", place.inner_text())]


def two_digits(value: float) -> str:
    """A number as the page writes it, as 62, 0.98 or 3.7·10⁻⁶."""
    digits, _, power = (f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}").partition("e-0")
    return f"{digits}·10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[int(power)]}" if power else digits


def test_moving_d_k_by_keys_shows_another_draw(guest: Visitor) -> None:
    page = opened(guest, d_k=64, n=16, seed=41)
    for key, d_k in (("ArrowRight", 128), ("ArrowRight", 256), ("ArrowLeft", 128)):
        focused(page, slider(page, "d_k: the width")).press(key)
        draw = rows(d_k, 16, 41)
        draw.expect_on(page, d_k**0.5)
        draw.expect_drawn(page)


def test_a_divisor_changes_and_the_draw_stays(guest: Visitor) -> None:
    page = opened(guest, d_k=64, n=16, seed=41)
    draw, scores = rows(64, 16, 41), stage(page, SYNTHETIC, "scores")
    kept = bars(scores)
    for name, power in (("1", 0.0), ("d_k²", 2.0), ("d_k", 1.0), ("√d_k", 0.5)):
        option(page, name).click()
        draw.expect_on(page, 64**power)
        assert bars(scores) == kept
        weights, colour = stage(page, SYNTHETIC, "weights"), DIVISOR_COLOURS[name]
        expect(weights.locator(f"{BARS}[fill='{colour}']")).to_have_count(16)
    page.get_by_role("button", name="New draw").click()
    rows(64, 16, 42).expect_on(page, 8.0)


def test_the_divisors_keep_their_colours_and_dashes(guest: Visitor) -> None:
    page = opened(guest, d_k=64)
    colours = list(DIVISOR_COLOURS.values())
    for kind in (SYNTHETIC, REAL):
        assert [bar.colour for bar in bars(stage(page, kind, "saturation"))] == colours
    page.get_by_role("button", name="2 Variance").click()
    expect_section(page, 2)
    found = dict(page.locator(CHART).first.evaluate(LINES))
    assert list(found) == colours
    for name, colour in DIVISOR_COLOURS.items():
        dash = [float(length) for length in (found[colour] or "1,0").split(",")]
        assert dash == DIVISOR_DASHES[name]


def test_a_class_predicts_before_it_sees(guest: Visitor) -> None:
    page = opened(guest, d_k=64, n=16, seed=41)
    charts, reveal = page.locator(CHART), page.get_by_role("button", name="Reveal")
    page.get_by_text("Predict first").click()
    expect(charts).to_have_count(0)
    expect(page.get_by_text("The answer is hidden until you reveal it.")).to_be_visible()
    expect(page.get_by_text(re.compile("^q·k has variance"))).to_have_count(0)
    reveal.click()
    rows(64, 16, 41).expect_on(page, 8.0)
    option(page, "1").click()
    expect(charts).to_have_count(0)
    expect(page.get_by_text("What is the variance of q·k? And of q·k ÷ 1?")).to_be_visible()
    reveal.click()
    rows(64, 16, 41).expect_on(page, 1.0)
    expect(page).to_have_url(re.compile("[?&]ask=1&revealed=1"))
    page.get_by_text("Predict first").click()
    expect(reveal).to_have_count(0)
    expect(charts).to_have_count(CHARTS[1])


# --- the real head beside it


def test_a_row_of_the_real_head_is_what_transformers_computes(guest: Visitor) -> None:
    reference = bundled_model_on(TEXT)
    row = reference.weights[LAYER, HEAD, QUERY, : QUERY + 1].double()
    page = opened(guest)
    own = stage(page, REAL, "logits").get_by_text("This is the model's own divisor, √32 = 5.657")
    for name in ("√d_k", "1", "d_k", "d_k²"):
        option(page, name).click()
        expected = (row.log() * reference.d_k ** (0.5 - POWERS[name])).softmax(-1).numpy()
        at, held = int(expected.argmax()), expected[expected > 0]
        expect(said(page, REAL, "weights")).to_contain_text(
            f"“{reference.words[QUERY]}” has {expected[at]:.2f} on “{reference.words[at]}”"
        )
        keys = np.exp(-(held * np.log(held)).sum())
        told = numbers_of(said(page, REAL, "weights"))
        assert told[-2:] == [pytest.approx(keys, abs=0.051), QUERY + 1]

        def bars_are_the_weights() -> None:
            found = bars(stage(page, REAL, "weights"))
            assert {bar.colour for bar in found} == {DIVISOR_COLOURS[name]}  # noqa: B023
            heights = np.array([bar.height for bar in found]) / ROW_HEIGHT
            assert heights == pytest.approx(expected, abs=2e-5)  # noqa: B023

        eventually(page, bars_are_the_weights)
        expect(own).to_have_count(int(name == "√d_k"))


# --- the whole model under another divisor


@cache
def loss(factor: float, only: tuple[int, int] | None = None) -> float:
    """Nats per token of a copy of the model with all scores, or those of a head, multiplied."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, attn_implementation="eager", dtype=torch.float32
    ).eval()
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        for layer, block in enumerate(model.model.layers):
            if only is None:
                block.self_attn.scaling *= factor
            elif layer == only[0]:
                width = model.config.head_dim
                head = slice(only[1] * width, (only[1] + 1) * width)
                for entries in block.self_attn.q_proj.parameters():
                    entries[head] *= factor
        return float(model(**inputs, labels=inputs.input_ids).loss)


def test_surgery_gives_the_loss_of_a_model_that_is_scaled_so(guest: Visitor) -> None:
    page = opened(guest, section=5)
    told = page.locator(".st-key-real_surgery").get_by_role("heading", level=3)
    own = loss(1.0)
    factors = {name: 32 ** (0.5 - power) for name, power in POWERS.items()}
    choose = page.get_by_test_id("stRadio").get_by_text
    choose("√d_k", exact=True).click()
    expect(told).to_have_text(f"As if divided by √d_k: {own:.2f} nats per token, as before")
    named = {"1": "Undivided", "d_k": "As if divided by d_k", "d_k²": "As if divided by d_k²"}
    for name, what in named.items():
        after = loss(factors[name])
        assert abs(after - own) > 0.05
        choose(name, exact=True).click()
        expect(told).to_have_text(f"{what}: {after:.2f} nats per token instead of {own:.2f}")
    wait_until_charts_drawn(page)
    curve = page.get_by_text(re.compile("^Loss in nats per token, divided by")).inner_text()
    losses = [float(number) for number in re.findall(r": (\d+\.\d\d)", curve)]
    assert losses == [pytest.approx(loss(factor), abs=0.00501) for factor in factors.values()]
    choose(f"layer {LAYER}, head {HEAD}", exact=True).click()
    expect(told).to_have_text(
        re.compile(f"^As if divided by d_k²: {loss(factors['d_k²'], (LAYER, HEAD)):.2f} nats")
    )


# --- a toy in training


def test_a_toy_trains_before_ones_eyes_and_is_stopped(guest: Visitor) -> None:
    page = opened(guest, section=6)
    page.locator("summary", has_text="Train it now").click()
    page.get_by_role("button", name=re.compile("^Train with Adam")).click()
    live = page.locator(".st-key-sides_training_live")
    bar = page.get_by_test_id("stProgress")
    expect(bar).to_have_text(re.compile("Step [1-9]\\d* of 600"))
    lines = live.locator(CHART).first.locator(".mark-line.role-mark path")
    expect(lines.first).to_be_attached()
    early = drawn_points(lines)
    expect(bar).to_have_text(re.compile("Step ([5-9]\\d|[1-9]\\d\\d) of 600"))
    page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop").click()
    expect(bar).to_have_text(re.compile(r"Stopped at step \d+ of 600"))
    expect(
        page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
    ).to_have_count(0)
    page.wait_for_function(AT_REST)
    wait_until_charts_drawn(page)
    stopped = bar.inner_text()
    assert drawn_points(lines) > early
    expect(page.get_by_role("button", name=re.compile("^Train with Adam"))).to_be_enabled()
    page.wait_for_timeout(1000)
    assert bar.inner_text() == stopped


def drawn_points(lines: Locator) -> int:
    """How many corners some curves have together."""
    return sum(
        len(re.findall("[MLC]", line))
        for line in lines.evaluate_all("all => all.map(line => line.getAttribute('d'))")
    )


# --- links, keys, two at once


def test_every_section_opens_by_its_link_its_button_and_the_arrow_keys(guest: Visitor) -> None:
    page = opened(guest, section=6)
    for number in (5, 4, 3, 2, 1):
        page.keyboard.press("ArrowLeft")
        expect_section(page, number)
    for number, name in enumerate(SECTIONS[1:], start=2):
        page.get_by_role("button", name=f"{number} {name}", exact=True).click()
        expect_section(page, number)
        expect(page).to_have_url(re.compile(f"[?&]section={number}(&|$)"))


def test_two_visitors_at_once_do_not_see_each_other(guest: Visitor) -> None:
    pages = [opened(guest, d_k=64, n=16, seed=seed) for seed in (1, 2)]
    for mine, yours in (("1", "d_k"), ("d_k²", "1")):
        for page, name in zip(pages, (mine, yours), strict=True):
            option(page, name).click()
        for page, seed, name in zip(pages, (1, 2), (mine, yours), strict=True):
            rows(64, 16, seed).expect_on(page, 64 ** POWERS[name])


# --- on a projector, on a phone


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_section_fits_its_window_and_can_be_read(
    guest: Visitor, width: int, scheme: Scheme
) -> None:
    guest.asked.clear()
    page = opened(guest, width, scheme)
    for number, name in enumerate(SECTIONS, start=1):
        expect_section(page, number)
        assert page.evaluate(SCROLLS) <= width, name
        assert page.evaluate(STICKS_OUT) == [], name
        for chart in page.locator(CHART).all():
            faint = [(word.text, word.contrast) for word in words(chart) if word.contrast < 4.5]
            assert faint == [], name
        page.keyboard.press("ArrowRight")
    assert_only_the_server_was_asked(guest)


def assert_only_the_server_was_asked(guest: Visitor) -> None:
    server = guest.app.address.removeprefix("http")
    asked = {url for url in guest.asked if not url.startswith(("data:", "blob:"))}
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((f"http{server}/", f"ws{server}/"))] == []
