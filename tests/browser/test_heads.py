"""The page “Heads” as a visitor sees it, in headless Chromium against the running app."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect
from transformers import AutoTokenizer

from attnviz.models import BUNDLED, load
from attnviz.tokens import tokenize
from browser.visiting import Scheme, Visitor, bundled_model_on, suspicious_lines
from scripts.running_app import RunningApp

pytestmark = pytest.mark.browser

TEXT = "The cat sat on the mat because it was tired."
SENTENCE = "Alice gave the key to the king and the old king thanked Alice by the door . "
LAYER, HEAD = 1, 2
FORMS = {
    "Matrix": ".picker .plot",
    "Lines": ".column.key .token",
    "Text": ".text .token",
    "Ranking": ".st-key-sides_head [data-testid=stDataFrame]",
}
SCREENS: list[tuple[int, Scheme]] = [(1400, "dark"), (390, "light")]
NOT_THERE = "Failed to load resource: the server responded with a status of 404"
SCROLLS = """() => Math.max(document.documentElement.scrollWidth,
    document.querySelector('[data-testid=stMain]').scrollWidth)"""
AT_REST = """() =>
    document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"""
# What is wider than the page, and is not scrolled within something that is not.
STICKS_OUT = """() => {
    const found = [];
    const look = (root, scrolled) => {
        for (const place of root.children) {
            const inner = scrolled || ['auto', 'scroll', 'hidden', 'clip'].includes(
                getComputedStyle(place).overflowX) && place.matches('[data-testid=stMain] *');
            const box = place.getBoundingClientRect();
            if (!scrolled && box.width && box.right > innerWidth + 1) found.push(place.className);
            look(place, inner);
            if (place.shadowRoot) look(place.shadowRoot, inner);
        }
    };
    look(document.querySelector('[data-testid=stMain]'), false);
    return found;
}"""


@pytest.fixture(scope="module")
def guest(browser: Browser, app: RunningApp) -> Iterator[Visitor]:
    """A visitor who stays for all tests, whose browser has nothing to complain of."""
    before = len(app.log())
    someone = Visitor(browser, app)
    yield someone
    someone.leave()
    assert [told for told in someone.complaints if NOT_THERE not in told] == []
    assert suspicious_lines(app.log()[before:]) == []


def opened(guest: Visitor, width: int = 1400, scheme: Scheme = "light", **asked: int | str) -> Page:
    """A head's page, its picture drawn; without the pages that were open before."""
    guest.leave()
    guest.contexts.clear()
    parameters = {"text": TEXT, "layer": LAYER, "head": HEAD} | asked
    link = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
    page = guest.open(f"heads?{link}", width, scheme)
    form = str(asked.get("view", "matrix")).capitalize()
    expect(page.locator(FORMS[form]).first).to_be_visible(timeout=60_000)
    at_rest(page)
    return page


def at_rest(page: Page) -> None:
    page.wait_for_function(AT_REST, timeout=60_000)


def switch(page: Page, form: str) -> None:
    page.get_by_role("radio", name=form).or_(
        page.get_by_role("button", name=form, exact=True)
    ).click()
    expect(page.locator(FORMS[form]).first).to_be_visible()
    at_rest(page)


def box_of(place: Locator) -> FloatRect:
    box = place.bounding_box()
    assert box
    return box


def click_cell(page: Page, query: int, key: int, size: int) -> None:
    """Click in the middle of a cell, worked out from the picture's corners."""
    plot = page.locator(FORMS["Matrix"])
    plot.scroll_into_view_if_needed()
    box = box_of(plot)
    across, down = ((place + 0.5) / size for place in (key, query))
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])


def expect_link(page: Page, **parts: int) -> None:
    for name, value in parts.items():
        expect(page).to_have_url(re.compile(rf"[?&]{name}={value}(&|$)"))


def headline(page: Page) -> Locator:
    return page.locator(".st-key-sides_head").get_by_role("heading")


def expect_looks(page: Page, query: int, layer: int = LAYER, head: int = HEAD) -> None:
    """Wait until the headline says where the token looks, by transformers' own weights."""
    reference = bundled_model_on(TEXT)
    row = reference.weights[layer, head, query]
    key = int(row.argmax())
    looked_at = re.escape(reference.words[key])
    expect(headline(page)).to_have_text(
        re.compile(
            rf"“{re.escape(reference.words[query])}”.* looks most at “{looked_at}”.*: "
            rf"{float(row[key]):.2f} of its attention"
        )
    )


def focused(page: Page, place: Locator, key: str = "Tab", most: int = 60) -> Locator:
    """Press a key until the focus is there."""
    for _ in range(most):
        if place.evaluate("place => place.matches(':focus')"):
            return place
        page.keyboard.press(key)
    raise AssertionError("the keyboard does not get there")


# --- from all heads to a head to a token


def test_a_click_on_a_head_and_one_on_a_cell(guest: Visitor) -> None:
    page = opened(guest, layer=0, head=1, query=9, key=8)
    mosaic = page.locator(".mosaic .plot")
    box = box_of(mosaic.locator(".chosen"))
    tile = (box["width"] + 2, box["height"] + 2)
    page.mouse.click(
        box["x"] + box["width"] / 2 + 2 * tile[0], box["y"] + box["height"] / 2 + tile[1]
    )
    expect_link(page, layer=1, head=3, query=9)
    expect_looks(page, 9, 1, 3)
    n = len(bundled_model_on(TEXT).words)
    for query, key in ((7, 2), (n - 1, 0), (3, 8)):
        click_cell(page, query, key, n)
        expect_link(page, query=query, key=key)
        expect_looks(page, query, 1, 3)


def test_one_token_is_chosen_in_all_forms(guest: Visitor) -> None:
    page = opened(guest, query=9, key=8, view="lines")
    page.locator(".column.query .token").nth(7).click()
    expect_link(page, query=7, key=8)
    page.locator(".column.key .token").nth(2).click()
    expect_link(page, query=7, key=2)
    expect_looks(page, 7)
    switch(page, "Text")
    page.locator(".text .token").nth(11).click()
    expect_link(page, query=11, key=2)
    expect_looks(page, 11)
    switch(page, "Matrix")
    reading = page.locator(".picker .reading")
    words = bundled_model_on(TEXT).words
    weight = float(bundled_model_on(TEXT).weights[LAYER, HEAD, 11, 2])
    expect(reading).to_have_text(
        re.compile(rf"query 11 ␣?{words[11]} +→ +key 2 ␣?{words[2]}: +{weight:.3f}"[:-1])
    )
    page.get_by_role("link", name="Work out this cell").click()
    question = f"How much does “{words[11]}” look at “{words[2]}”?"
    expect(page.get_by_role("heading", name=question)).to_be_visible()


def test_the_keyboard_is_enough(guest: Visitor) -> None:
    page = opened(guest, layer=0, head=1, query=9, key=8)
    mosaic = focused(page, page.locator(".mosaic .plot"))
    mosaic.press("ArrowRight")
    mosaic.press("ArrowDown")
    mosaic.press("Enter")
    expect_link(page, layer=1, query=9)
    expect_looks(page, 9, 1, 2)
    plot = focused(page, page.locator(".picker .plot"))
    for key, cell in (("ArrowUp", (8, 8)), ("ArrowLeft", (8, 7)), ("Home", (8, 0))):
        plot.press(key)
        expect_link(page, query=cell[0], key=cell[1])
    expect_looks(page, 8, 1, 2)
    chosen = page.get_by_role("radio", checked=True)
    focused(page, chosen.first, "Shift+Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".column.query .token").first).to_be_visible()
    token = focused(page, page.locator(".column.query .token").nth(8))
    token.press("ArrowDown")
    page.keyboard.press("Enter")
    expect_link(page, query=9, key=0)


def test_the_finder_opens_a_head(guest: Visitor) -> None:
    page = opened(guest, query=9, key=8)
    page.get_by_text("Which head should I look at?").click()
    expect(page.get_by_test_id("stDataFrame").first).to_be_visible(timeout=60_000)
    at_rest(page)
    expect(page.get_by_text("looks at the token before, 0.70 of the time")).to_be_visible()
    table = box_of(page.get_by_test_id("stDataFrame").first)
    page.mouse.click(table["x"] + 15, table["y"] + 35 + 17)
    expect_looks(page, 9, 0, 2)


# --- what the browser asks for, and what it is given


def test_the_browser_asks_nobody_but_the_server(guest: Visitor) -> None:
    guest.asked.clear()
    page = opened(guest, query=9)
    for form in FORMS:
        switch(page, form)
    server = guest.app.address.removeprefix("http")
    asked = {url for url in guest.asked if not url.startswith(("data:", "blob:"))}
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((f"http{server}/", f"ws{server}/"))] == []


def test_the_numbers_on_screen_can_be_taken_home(guest: Visitor) -> None:
    page = opened(guest, query=9)
    home = page.locator(".st-key-sides_head").get_by_text("Take it home")
    home.click()
    with page.expect_download() as waited:
        page.get_by_role("button", name="NPY", exact=True).last.click()
    array = np.load(io.BytesIO(Path(waited.value.path()).read_bytes()))
    np.testing.assert_allclose(
        np.nan_to_num(array), bundled_model_on(TEXT).weights[LAYER, HEAD].numpy(), atol=2e-6
    )


# --- on a projector, on a phone


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_form_fits_its_window(guest: Visitor, width: int, scheme: Scheme) -> None:
    page = opened(guest, width, scheme, query=9, beside="0.3 1.0")
    for form in FORMS:
        switch(page, form)
        assert page.evaluate(SCROLLS) <= width, form
        assert page.evaluate(STICKS_OUT) == [], form


# --- long texts


def long_text(tokens: int) -> str:
    tokenizer, text = AutoTokenizer.from_pretrained(BUNDLED), ""
    while len(tokenizer(text).input_ids) < tokens:
        text += SENTENCE
    return text.strip()


def test_a_text_that_other_pages_refuse_is_shown_and_zoomed(guest: Visitor) -> None:
    page = opened(guest, query=9)
    page.get_by_role("textbox", name="Text").fill(long_text(600))
    page.get_by_role("textbox", name="Text").press("Control+Enter")
    expect(page.get_by_text("each is the largest of its block")).to_be_visible(timeout=60_000)
    at_rest(page)
    picture = page.locator(".picker canvas").first
    assert box_of(picture)["width"] > 300
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_text("tokens about the chosen cell")).to_be_visible()
    at_rest(page)
    page.get_by_role("link", name="One cell").first.click()
    told = page.get_by_text(re.compile("this page shows at most 512.*“Heads”"))
    expect(told).to_be_visible()
    page.get_by_role("link", name="Heads").first.click()
    expect(page.locator(FORMS["Matrix"])).to_be_visible()
    expect(page.get_by_text("tokens about the chosen cell")).to_be_visible()


# --- labels of every kind

TEXTS = {
    "line breaks, tabs, signs": "Seán\n  done\ta\n\n\t<b>it</b> $x$ :) `c`",
    "Chinese and emoji": "这是 po(💩) 👩‍👩‍👧",
    "from right to left": "שלום עולם مرحبا the the",
    "two hundred equal words": "the " * 199 + "the",
}


def labels_of(text: str) -> list[str]:
    model = load("bundled")
    return list(tokenize(model.tokenizer, text, 1000).labels)


def shown_in(places: Locator) -> list[str]:
    return places.evaluate_all("all => all.map(one => one.textContent)")


def expect_apart(places: Locator) -> None:
    """No two of them lie on each other."""
    boxes = places.evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
    boxes = [box for box in boxes if box["width"] and box["height"]]
    for at, one in enumerate(boxes):
        for other in boxes[at + 1 :]:
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            assert across <= 1 or down <= 1, (one, other)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_labels_are_right_and_apart_in_each_form(guest: Visitor, text: str) -> None:
    labels = labels_of(text)
    page = opened(guest, text=text)
    written = page.locator(".picker .query-labels .label")
    found = shown_in(written)
    if len(labels) < 36:
        assert found == labels
    else:
        assert set(found) <= set(labels)
        assert 10 < len(found) <= 45
    expect_apart(written)
    switch(page, "Lines")
    for axis in ("query", "key"):
        tokens = page.locator(f".column.{axis} .token")
        words = shown_in(tokens.locator(".word"))
        at = [int(place) for place in shown_in(tokens.locator(".position"))]
        assert at == list(range(at[0], at[0] + len(words)))
        assert words == [labels[place] for place in at]
        expect_apart(tokens)
    switch(page, "Text")
    assert shown_in(page.locator(".text .token .word")) == labels
    expect_apart(page.locator(".text .token .word"))
    switch(page, "Ranking")
    assert page.evaluate(SCROLLS) <= 1400


def test_a_head_that_is_chosen_right_after_a_text_was_typed_is_opened(guest: Visitor) -> None:
    page = opened(guest, layer=0, head=2)
    head = page.get_by_role("spinbutton", name="Head", exact=True)
    for typed, step, expected in (("Dogs ran home.", "Up", 3), ("The king saw.", "Down", 2)):
        page.get_by_role("textbox", name="Text", exact=True).fill(typed)
        page.get_by_test_id(f"stNumberInputStep{step}").first.click()
        expect(page).to_have_url(re.compile(typed.split()[1]))
        at_rest(page)
        expect(head).to_have_value(str(expected))
        expect(page.get_by_text(f"layer 0, head {expected} ·").first).to_be_visible()
        expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value(typed)
