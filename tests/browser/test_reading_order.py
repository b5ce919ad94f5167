"""A text in reading order, shaded by a query's weights, in headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from attnviz.charts import theme
from browser import lines_page
from browser.visiting import Scheme, Visitor, Word, rgb, suspicious_lines
from scripts.running_app import RunningApp, running_app

pytestmark = pytest.mark.browser

REAL = tuple(bytes.fromhex(theme.REAL[1:]))


@pytest.fixture(scope="module")
def app(browser: Browser) -> Iterator[RunningApp]:
    """The page as a server of its own, whose log must be clean when it has stopped."""
    with running_app(lines_page.__file__) as started:
        started.wait()
        yield started
        started.stop()
        assert suspicious_lines(started.log()) == []


def opened(
    visitor: Visitor, width: int = 1400, scheme: Scheme = "light", touch: bool = False, **asked: int
) -> Page:
    """A page whose text is shaded."""
    asked = {"show": 2, "queries": 11} | asked
    link = "?" + "&".join(f"{name}={value}" for name, value in asked.items())
    page = visitor.open(link, width, scheme, touch)
    expect(page.locator(".text .token").first).to_have_attribute("aria-label", re.compile("."))
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    return page


def token(page: Page, place: int) -> Locator:
    return page.locator(".text .token").nth(place)


def expect_python_holds(page: Page, query: int) -> None:
    expect(page.get_by_text(re.compile(f"^Python holds {query}, "))).to_be_visible()
    expect(page.locator(".drawing.waiting")).to_have_count(0)


def words(page: Page) -> list[Word]:
    """The words, each with its own colour and what it stands on."""
    found = page.locator(".text .word").evaluate_all(
        """all => all.map(word => {
            const { color, backgroundColor } = getComputedStyle(word);
            const page = document.querySelector('[data-testid=stApp]');
            const plain = backgroundColor === 'rgba(0, 0, 0, 0)';
            const behind = plain ? getComputedStyle(page).backgroundColor : backgroundColor;
            const parts = color.startsWith('color')
                ? color.match(/[\\d.]+/g).map(x => Math.round(255 * x)).join() : color;
            return [word.textContent, parts, behind];
        })"""
    )
    return [Word(text, rgb(colour), rgb(behind)) for text, colour, behind in found]


def expect_shaded(page: Page, row: np.ndarray) -> None:
    """Each token stands on the page's colour, mixed with the real one by its weight."""
    page_colour = rgb(
        page.locator("[data-testid=stApp]").evaluate("app => getComputedStyle(app).backgroundColor")
    )
    strength = np.nan_to_num(row / np.nanmax(row))[:, None]
    expected = np.array(page_colour) * (1 - strength) + np.array(REAL) * strength
    np.testing.assert_allclose([word.behind for word in words(page)], expected, atol=2)


# --- what is drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_token_is_shaded_by_its_weight_and_readable(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, scheme=scheme, chosen=4, keys=97)
    expect_shaded(page, lines_page.weights(11, 97)[4])
    assert min(word.contrast for word in words(page)) >= 4.5
    assert [word.text for word in words(page)] == lines_page.words(97)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hidden_tokens_are_told_apart_and_readable(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, scheme=scheme, chosen=4, causal=1)
    row = lines_page.weights(11, 11, causal=True)[4]
    expect_shaded(page, row)
    expect(page.locator(".token.masked")).to_have_count(6)
    assert min(word.contrast for word in words(page)) >= 4.5
    expect(page.locator(".scale").get_by_text("hidden by the mask")).to_be_visible()
    expect(token(page, 7)).to_have_attribute("aria-label", re.compile("hidden by the mask$"))


def test_the_strongest_have_their_numbers_and_others_when_pointed_at(visitor: Visitor) -> None:
    page = opened(visitor, keys=97)
    row = lines_page.weights(11, 97)[1]
    order = np.argsort(-row)
    for place in order[:5].tolist():
        number = token(page, place).locator(".number")
        expect(number).to_be_visible()
        assert float(number.inner_text()) == pytest.approx(row[place], abs=0.0056)
    expect(page.locator(".number:visible")).to_have_count(5)
    places = page.locator(".token").evaluate_all("all => all.map(one => one.offsetLeft)")
    weak = token(page, int(order[50]))
    weak.hover()
    expect(weak.locator(".number")).to_be_visible()
    expect(page.locator(".number:visible")).to_have_count(6)
    assert float(weak.locator(".number").inner_text()) == pytest.approx(row[order[50]], abs=6e-4)
    now = page.locator(".token").evaluate_all("all => all.map(one => one.offsetLeft)")
    assert now == places  # nothing has moved
    expect(page.locator(".scale .top")).to_have_text(f"{row.max():.3g}")


def test_the_text_keeps_its_lines_and_its_words_are_never_html(visitor: Visitor) -> None:
    page = opened(visitor)
    tops = page.locator(".token").evaluate_all("all => all.map(one => one.offsetTop)")
    assert len(set(tops[:7])) == 1  # the seventh ends a line
    assert tops[7] > tops[6]
    assert page.locator(".drawing b").count() == 0


def test_a_text_from_the_right_runs_from_the_right(visitor: Visitor) -> None:
    page = opened(visitor, right=1)
    lefts = page.locator(".token").evaluate_all("all => all.map(one => one.offsetLeft)")
    assert lefts == sorted(lefts, reverse=True)
    token(page, 1).focus()
    page.keyboard.press("ArrowLeft")
    expect_python_holds(page, 2)
    assert opened(visitor).locator(".text").get_attribute("dir") == "ltr"


def test_of_3000_tokens_a_thousand_are_shown_with_what_is_left_out(visitor: Visitor) -> None:
    page = opened(visitor, queries=3, keys=3001, chosen=0)
    expect(page.get_by_text("1,000 of 3,001 tokens")).to_be_visible()
    expect(page.locator(".token")).to_have_count(1000)
    expect(page.locator(".token.chosen")).to_have_count(1)
    assert page.locator(".gap").count() >= 1
    positions = page.locator(".token").evaluate_all("all => all.map(one => one.dataset.position)")
    strongest = int(lines_page.weights(3, 3001)[0].argmax())
    expect(token(page, positions.index(str(strongest))).locator(".number")).to_be_visible()


# --- choosing


def test_a_click_chooses_the_token_that_looks(visitor: Visitor) -> None:
    page = opened(visitor)
    for place in (4, 9, 0):
        token(page, place).click()
        expect_python_holds(page, place)
        expect(page.locator(".token.chosen")).to_have_count(1)
        expect(token(page, place)).to_have_class(re.compile("chosen"))
        page.mouse.move(5, 5)
        expect_shaded(page, lines_page.weights(11, 11)[place])


def test_a_tap_chooses_on_a_phone(visitor: Visitor) -> None:
    page = opened(visitor, 390, touch=True)
    token(page, 3).tap()
    expect_python_holds(page, 3)


def test_arrow_keys_choose_in_reading_order_and_between_lines(visitor: Visitor) -> None:
    page = opened(visitor)
    token(page, 1).focus()
    for key, place in (
        *(("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 10)),
        *(("ArrowRight", 10), ("Home", 0), ("ArrowLeft", 0), ("ArrowDown", 7), ("ArrowUp", 0)),
    ):
        page.keyboard.press(key)
        expect(token(page, place)).to_be_focused()
        expect_python_holds(page, place)
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    expect(page.locator(".token[tabindex='0']")).to_have_count(1)


def test_quick_arrows_while_python_is_busy_never_move_back(visitor: Visitor) -> None:
    page = opened(visitor, busy=400)
    token(page, 1).focus()
    page.locator(".text").evaluate(
        """text => {
            window.seen = [];
            new MutationObserver(() => {
                const now = text.querySelector('.chosen')?.dataset.position;
                if (now && seen.at(-1) !== now) seen.push(now);
            }).observe(text, { attributes: true, subtree: true });
        }"""
    )
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(60)
    expect_python_holds(page, 6)
    page.wait_for_timeout(600)
    assert page.evaluate("seen") == ["2", "3", "4", "5", "6"]
    expect_shaded(page, lines_page.weights(11, 11)[6])


def test_the_text_follows_python(visitor: Visitor) -> None:
    page = opened(visitor)
    number = page.get_by_role("spinbutton", name="Query")
    number.fill("8")
    number.press("Enter")
    expect(token(page, 8)).to_have_class(re.compile("chosen"))
    expect_shaded(page, lines_page.weights(11, 11)[8])


def test_the_focus_of_the_keyboard_is_visible(visitor: Visitor) -> None:
    page = opened(visitor)
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.locator(".token:focus").count():
            break
    expect(token(page, 1)).to_be_focused()
    expect(token(page, 1).locator(".word")).to_have_css("outline-width", "3px")


@pytest.mark.parametrize("asked", [{}, {"keys": 97}, {"right": 1}, {"causal": 1}], ids=str)
def test_a_phone_need_not_scroll_sideways(visitor: Visitor, asked: dict[str, int]) -> None:
    page = opened(visitor, 390, **asked)
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
    text = page.locator(".text")
    assert text.evaluate("text => text.scrollWidth - text.clientWidth") <= 0
