"""The page “Why three” as a visitor sees it, in headless Chromium against the running app.

What it should show is worked out here by hand, or with transformers and parameters overwritten.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnviz.charts.theme import VARIANT_COLOURS
from attnviz.models import BUNDLED
from browser.test_heads import AT_REST, NOT_THERE, SCROLLS, STICKS_OUT, expect_looks
from browser.visiting import Scheme, Visitor, number, suspicious_lines, words
from scripts.running_app import RunningApp, wait_until_charts_drawn

pytestmark = pytest.mark.browser

TEXT = "The cat sat on the mat because it was tired."
LAYER, HEAD, QUERY = 1, 2, 9
SECTIONS = (
    "Roles",
    "The experiment",
    "Width",
    "Surgery",
    "Symmetry",
    "Two products",
    "Real models",
    "Birth of a head",
)
CHARTS = (3, 0, 1, 5, 4, 2, 0, 2)
# What is overwritten, and by what.
EXCHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (),
    "K := V": (("K", "V"),),
    "V := K": (("V", "K"),),
    "Q := K": (("Q", "K"),),
    "Q and K swapped": (("Q", "K"), ("K", "Q")),
}
STEPS = 800  # of a toy
FIRST_POINT = 8.0  # seconds; one comes after a quarter of one while nothing else is computed
SCREENS: list[tuple[int, Scheme]] = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]
CHART = "[data-testid=stVegaLiteChart]"
LINES = ".mark-line.role-mark path"


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
    page = guest.open(f"why_three?{link(**asked)}", width, scheme)
    expect_section(page, int(asked.get("three", 1)))
    return page


def link(**asked: int | str) -> str:
    parameters = {"text": TEXT, "layer": LAYER, "head": HEAD} | asked
    return "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())


def expect_section(page: Page, shown: int) -> None:
    """Wait until this section has come and the one before has gone, with all its charts."""
    named = page.get_by_role("heading", level=2, name=title(shown), exact=True)
    expect(named).to_be_visible(timeout=60_000)
    expect(page.get_by_role("heading", level=2)).to_have_count(1)
    expect(page.locator(CHART)).to_have_count(CHARTS[shown - 1])
    wait_until_charts_drawn(page)


def title(shown: int) -> str:
    return f"{shown} {SECTIONS[shown - 1]}"


def choice(page: Page, name: str) -> Locator:
    """One of several that stand beside each other as buttons."""
    return page.get_by_role("radio", name=name, exact=True)


def one_of(page: Page, name: str) -> Locator:
    """One of several that stand beside each other as round fields, by its words."""
    return page.get_by_test_id("stRadio").get_by_text(name, exact=True)


# --- by hand


def test_what_is_matched_changes_what_is_read(guest: Visitor) -> None:
    page = opened(guest)
    said = page.locator(".st-key-synthetic_roles")
    expect(said).to_contain_text("Best fit: B. 3·3 + 4·4 = 25")
    expect(said).to_contain_text("Read: rain, which stands beside B.")
    before = drawn_of(page)
    choice(page, "K = V: content").click()
    expect(said).to_contain_text("Best fit: D, not B. 3·1 + 4·2 = 11, against 10 for F")
    expect(said).to_contain_text("Read: wind. Beside B stands rain.")
    wait_until_charts_drawn(page)
    assert drawn_of(page) != before
    choice(page, "K = V: key").click()
    expect(said).to_contain_text("Best fit: B. 3·3 + 4·4 = 25")
    expect(said).not_to_contain_text("Read: rain")
    choice(page, "K = V: side by side").click()
    expect(said).to_contain_text("Read: rain, which stands beside B.")
    choice(page, "E").click()
    expect(said).to_contain_text("Read: moon, which stands beside E.")
    expect(page).to_have_url(re.compile("[?&]role_asked=E(&|$)"))


def drawn_of(page: Page) -> list[str]:
    """All that the charts say and draw."""
    outlines = "chart => [...chart.querySelectorAll('.role-mark path')].map(x => x.outerHTML)"
    return [" ".join(chart.evaluate(outlines)) for chart in page.locator(CHART).all()]


# --- a real model that shares projections


@cache
def loss(way: str = "", of: str = "all") -> float:
    """Nats per token of a copy of the model whose parameters were overwritten."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, attn_implementation="eager", dtype=torch.float32
    ).eval()
    assert model.config.num_attention_heads == model.config.num_key_value_heads
    for layer, block in enumerate(model.model.layers):
        rows = slice(HEAD * model.config.head_dim, (HEAD + 1) * model.config.head_dim)
        if of == "all" or layer == LAYER:
            overwrite(block.self_attn, way, rows if of == "head" else slice(None))
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        return float(model(**inputs, labels=inputs.input_ids).loss)


def overwrite(attention: torch.nn.Module, way: str, rows: slice) -> None:
    """Copy rows of one projection, and their bias, over those of another."""
    made_by = {"Q": "q_proj", "K": "k_proj", "V": "v_proj"}
    old = {name: [p.detach().clone() for p in part(attention, made_by[name])] for name in made_by}
    with torch.no_grad():
        for target, source in EXCHANGES[way]:
            for entries, others in zip(part(attention, made_by[target]), old[source], strict=True):
                entries[rows] = others[rows]


def part(attention: torch.nn.Module, name: str) -> list[torch.nn.Parameter]:
    return list(attention.get_submodule(name).parameters())


def expect_tied(page: Page, way: str, of: str = "all") -> None:
    """Wait until the headline has the losses of such a copy and of the model itself."""
    after, own = loss(way, of), loss()
    assert abs(after - own) > 0.005
    whom = {"all": "all heads", "layer": f"all heads of layer {LAYER}"}.get(
        of, f"layer {LAYER}, head {HEAD}"
    )
    told = page.locator(".st-key-real_tying").get_by_role("heading", level=3)
    expect(told).to_have_text(f"{way} in {whom}: {after:.2f} nats per token instead of {own:.2f}")


def test_surgery_gives_the_loss_of_a_model_that_was_overwritten(guest: Visitor) -> None:
    page = opened(guest, three=4)
    expect_tied(page, "K := V")
    for way in ("V := K", "Q := K", "Q and K swapped"):
        one_of(page, way).click()
        expect_tied(page, way)
    for of, name in (("layer", f"layer {LAYER}"), ("head", f"layer {LAYER}, head {HEAD}")):
        one_of(page, name).click()
        expect_tied(page, "Q and K swapped", of)


def test_two_visitors_tie_different_projections_at_once(guest: Visitor) -> None:
    pages = [opened(guest, three=4), opened(guest, three=4)]
    ways = ("V := K", "Q := K")
    for page, way in zip(pages, ways, strict=True):
        one_of(page, way).click()
    for page, way in zip(pages, ways, strict=True):
        expect_tied(page, way)


# --- a toy in training


def test_a_toy_trains_while_another_visitor_reads_a_head(guest: Visitor) -> None:
    page = opened(guest, three=2)
    other = guest.open(f"heads?{link(view='text', query=QUERY)}")
    expect_looks_at_any(other)
    overlay_all(page)
    page.get_by_role("button", name="Train", exact=True).click()
    started = time.monotonic()
    lines = page.locator(".st-key-sides_experiment_live").locator(CHART).first.locator(LINES)
    expect(lines.first).to_be_attached()
    assert time.monotonic() - started < FIRST_POINT
    stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
    bar = page.get_by_test_id("stProgress")
    early, step = corners(lines), step_of(bar)
    read_heads(other)
    page.wait_for_timeout(600)
    assert step_of(bar) > step
    assert corners(lines) > early
    stop.click()
    expect(stop).to_have_count(0)
    expect(bar).to_have_text(re.compile(rf"Stopped at step \d+ of {STEPS}"))
    page.wait_for_function(AT_REST)
    wait_until_charts_drawn(page)
    stopped, kept = bar.inner_text(), corners(lines)
    page.wait_for_timeout(1000)
    assert (bar.inner_text(), corners(lines)) == (stopped, kept)
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_enabled()


def overlay_all(page: Page) -> None:
    """Let every way to project be trained, which takes longer than what is looked at meanwhile."""
    described = page.locator(".st-key-synthetic_experiment")
    for name in VARIANT_COLOURS:
        if name not in ("Q K V", "K = V"):
            page.get_by_test_id("stButtonGroup").get_by_text(name, exact=True).click()
            expect(described).to_contain_text(f"{name}: ")
    page.wait_for_function(AT_REST)


def expect_looks_at_any(page: Page) -> None:
    expect(page.locator(".st-key-sides_head").get_by_role("heading")).to_contain_text("looks most")


def read_heads(page: Page) -> None:
    """Choose two other heads, each with the numbers of transformers itself."""
    for head in (3, 1):
        field = number(page, "Head")
        field.fill(str(head))
        field.press("Enter")
        expect(page).to_have_url(re.compile(f"[?&]head={head}(&|$)"))
        expect_looks(page, QUERY, LAYER, head)


def step_of(bar: Locator) -> int:
    found = re.search(r"(\d+) of", bar.inner_text())
    assert found
    return int(found[1])


def corners(lines: Locator) -> int:
    """How many corners some curves have together."""
    outlines = lines.evaluate_all("all => all.map(line => line.getAttribute('d'))")
    return sum(len(re.findall("[MLC]", outline)) for outline in outlines)


# --- sections, on a projector and on a phone


def test_every_section_opens_by_its_link_its_button_and_the_arrow_keys(guest: Visitor) -> None:
    page = opened(guest, three=3)
    for key, shown in (("ArrowLeft", 2), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.keyboard.press(key)
        expect_section(page, shown)
    for shown, name in enumerate(SECTIONS[2:], start=3):
        page.get_by_role("button", name=f"{shown} {name}", exact=True).click()
        expect_section(page, shown)
        expect(page).to_have_url(re.compile(f"[?&]three={shown}(&|$)"))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_section_fits_its_window_and_can_be_read(
    guest: Visitor, width: int, scheme: Scheme
) -> None:
    guest.asked.clear()
    page = opened(guest, width, scheme)
    for shown, name in enumerate(SECTIONS, start=1):
        expect_section(page, shown)
        assert page.evaluate(SCROLLS) <= width, name
        assert page.evaluate(STICKS_OUT) == [], name
        for chart in page.locator(CHART).all():
            faint = [(word.text, word.contrast) for word in words(chart) if word.contrast < 4.5]
            assert faint == [], name
        page.keyboard.press("ArrowRight")
    server = guest.app.address.removeprefix("http")
    asked = {url for url in guest.asked if not url.startswith(("data:", "blob:"))}
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((f"http{server}/", f"ws{server}/"))] == []
