"""Lines between two columns of tokens in headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from attnviz.charts import theme
from browser import lines_page
from browser.visiting import Scheme, Visitor, Word, rgb, suspicious_lines
from scripts.running_app import RunningApp, running_app

pytestmark = pytest.mark.browser


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
    """A page whose lines are drawn."""
    asked = {"show": 1} | asked
    link = "?" + "&".join(f"{name}={value}" for name, value in asked.items())
    page = visitor.open(link, width, scheme, touch)
    expect(page.locator(".column.key .token").first).to_be_visible()
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    return page


def token(page: Page, axis: str, place: int) -> Locator:
    return page.locator(f".column.{axis} .token").nth(place)


def expect_python_holds(page: Page, query: int | None, key: int | None, told: int) -> None:
    expect(page.get_by_text(f"Python holds {query}, {key}, told {told} times")).to_be_visible()


RECORD = """() => {
    window.strokes = [];
    const { stroke } = CanvasRenderingContext2D.prototype;
    const { moveTo, lineTo } = Path2D.prototype;
    Path2D.prototype.moveTo = new Proxy(moveTo, { apply(real, path, [x, y]) {
        (path.ends ??= []).push([x, y]);
        return real.call(path, x, y);
    } });
    Path2D.prototype.lineTo = new Proxy(lineTo, { apply(real, path, [x, y]) {
        path.ends.at(-1).push(x, y);
        return real.call(path, x, y);
    } });
    CanvasRenderingContext2D.prototype.stroke = function (path) {
        for (const [x, from, end, to] of path.ends ?? []) {
            strokes.push({ canvas: this.canvas.className, x, from, end, to,
                alpha: this.globalAlpha, colour: this.strokeStyle, dash: this.getLineDash() });
        }
        return stroke.call(this, path);
    };
}"""


def drawn(page: Page, canvas: str) -> dict[tuple[int, int, int], tuple[float, str]]:
    """Opacity and colour of the lines that were drawn, by head, query and key."""
    found = {}
    heads = page.locator(".legend .head").count() or 1
    for line in page.evaluate("strokes"):
        if line["canvas"] != canvas:
            continue
        query, key = (int(line[end] // theme.TOKEN_ROW) for end in ("from", "to"))
        offset = line["from"] - (query + 0.5) * theme.TOKEN_ROW
        head = round(offset / 3 + (heads - 1) / 2)
        assert line["x"] < line["end"]
        found[head, query, key] = (line["alpha"], line["colour"].upper())
    return found


def recording(visitor: Visitor, **asked: int) -> Page:
    """A page on which all strokes are kept."""
    page = visitor.page()
    page.add_init_script(f"({RECORD})()")
    link = "&".join(f"{name}={value}" for name, value in ({"show": 1} | asked).items())
    page.goto(f"{visitor.app.address}/?{link}")
    expect(page.locator(".column.key .token").first).to_be_visible()
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    page.wait_for_timeout(300)
    return page


# --- what is drawn


@pytest.mark.parametrize("causal", [0, 1])
def test_every_weight_has_a_line_as_strong_as_it(visitor: Visitor, causal: int) -> None:
    page = recording(visitor, chosen=-1, causal=causal)
    weights = lines_page.weights(7, 11, bool(causal))
    strength = weights / np.nanmax(weights)
    found = drawn(page, "all")
    seen = {(0, *cell) for cell in np.argwhere(strength >= 1 / 60).tolist()}
    assert seen <= found.keys() <= {(0, *cell) for cell in np.argwhere(strength > 0.01).tolist()}
    for (_, query, key), (alpha, colour) in found.items():
        assert abs(alpha - strength[query, key]) <= 1 / 32
        assert colour == theme.REAL.upper()
    assert drawn(page, "own") == {}


def test_a_token_pointed_at_has_its_own_lines_and_numbers_only(visitor: Visitor) -> None:
    page = recording(visitor, chosen=-1)
    weights = lines_page.weights(7, 11)
    for axis, other, place, row in (
        ("query", "key", 4, weights[4]),
        ("key", "query", 9, weights[:, 9]),
    ):
        page.evaluate("strokes.length = 0")
        token(page, axis, place).hover()
        expect(page.locator("canvas.all")).to_be_hidden()
        cells = {(query, key) for _, query, key in drawn(page, "own")}
        expected = {at for at in range(len(row)) if row[at] >= weights.max() / 60}
        on = 0 if axis == "query" else 1
        assert {cell[on] for cell in cells} == {place}
        assert expected <= {cell[1 - on] for cell in cells}
        for (_, query, key), (alpha, _) in drawn(page, "own").items():
            assert alpha == pytest.approx(weights[query, key] / weights.max(), abs=2e-3)
        expect_numbers(page, other, row)
    page.mouse.move(5, 5)
    expect(page.locator("canvas.all")).to_be_visible()
    expect(page.locator(".numbers .at")).to_have_count(0)


def expect_numbers(page: Page, other: str, row: np.ndarray) -> None:
    """The weights of the strongest stand at the tokens that they belong to."""
    strongest = set(np.argsort(-row)[:5].tolist()) | set(np.flatnonzero(row >= 0.05).tolist())
    labels = page.locator(f".numbers.at-{other} .at")
    expect(labels).to_have_count(len(strongest))
    for at in range(len(strongest)):
        place = int(labels.nth(at).get_attribute("data-place") or -1)
        strongest.remove(place)
        assert float(labels.nth(at).inner_text()) == pytest.approx(row[place], abs=0.0056)
        box, beside = labels.nth(at).bounding_box(), token(page, other, place).bounding_box()
        assert box
        assert beside
        assert box["y"] == pytest.approx(beside["y"], abs=1)


def test_at_rest_the_chosen_query_stands_out(visitor: Visitor) -> None:
    page = recording(visitor, chosen=2)
    assert {query for _, query, _ in drawn(page, "own")} == {2}
    expect(page.locator("canvas.all")).to_have_css("opacity", "0.3")
    expect(token(page, "query", 2)).to_have_class(re.compile("chosen"))
    expect(page.locator(".reading")).to_have_text("query 2 unquestionablyindivisible looks at")
    expect_numbers(page, "key", lines_page.weights(7, 11)[2])


def test_several_heads_lie_beside_each_other_under_their_names(visitor: Visitor) -> None:
    page = recording(visitor, chosen=3, heads=3)
    heads = [lines_page.weights(7, 11, head=head) for head in range(3)]
    largest = max(head.max() for head in heads)
    found = drawn(page, "own")
    for (head, query, key), (alpha, colour) in found.items():
        assert query == 3
        assert colour == theme.HEAD_COLOURS[head]
        assert alpha == pytest.approx(heads[head][query, key] / largest, abs=2e-3)
    assert {head for head, *_ in found} == {0, 1, 2}
    strong = [line for line in page.evaluate("strokes") if line["alpha"] >= 0.1]
    dashes = {line["colour"].upper(): line["dash"] for line in strong}
    assert [dashes[colour] for colour in theme.HEAD_COLOURS[:3]] == [[], [8, 4], [2, 3]]
    names = page.locator(".legend .name").all_inner_texts()
    assert names == [f"layer 5, head {head}" for head in range(3)]
    expect(page.locator("#told")).to_have_text(re.compile(r"layer 5, head 1: key \d+ "))


def test_tokens_are_rows_of_their_own_and_never_html(visitor: Visitor) -> None:
    page = opened(visitor, queries=200, keys=211)
    for axis, count in (("query", 200), ("key", 211)):
        words = page.locator(f".column.{axis} .word").all_inner_texts()
        assert words == lines_page.words(count)
        tops = page.locator(f".column.{axis} .token").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().top)"
        )
        assert np.diff(tops) == pytest.approx(theme.TOKEN_ROW)
    assert page.locator(".drawing b").count() == 0
    box = page.locator(".scroll").bounding_box()
    assert box
    assert box["height"] <= 41 * theme.TOKEN_ROW


def test_the_columns_are_named(visitor: Visitor) -> None:
    page = opened(visitor, cross=1)
    expect(page.locator(".titles .query")).to_have_text("query: the token that looks (target)")
    expect(page.locator(".titles .key")).to_have_text("key: the token looked at (source)")
    expect(page.get_by_role("listbox", name="query: the token that looks (target)")).to_be_visible()


# --- choosing


def test_a_click_chooses_a_token_of_either_column(visitor: Visitor) -> None:
    page = opened(visitor)
    token(page, "query", 5).click()
    expect_python_holds(page, 5, None, 1)
    expect(token(page, "query", 5)).to_have_attribute("aria-selected", "true")
    token(page, "key", 8).click()
    expect_python_holds(page, 5, 8, 2)
    expect(page.locator(".token.chosen")).to_have_count(2)
    expect(page.get_by_role("spinbutton", name="Query")).to_have_value("5")


def test_a_tap_chooses(visitor: Visitor) -> None:
    page = opened(visitor, 390, touch=True)
    token(page, "query", 6).tap()
    expect_python_holds(page, 6, None, 1)


def test_keys_move_the_focus_and_enter_chooses(visitor: Visitor) -> None:
    page = opened(visitor)
    token(page, "query", 1).focus()
    for key, axis, place in (
        *(("ArrowDown", "query", 2), ("ArrowDown", "query", 3), ("ArrowUp", "query", 2)),
        *(("ArrowRight", "key", 2), ("End", "key", 10), ("ArrowDown", "key", 10)),
        *(("ArrowLeft", "query", 6), ("Home", "query", 0), ("ArrowUp", "query", 0)),
    ):
        page.keyboard.press(key)
        expect(token(page, axis, place)).to_be_focused()
        expect(token(page, axis, place)).to_have_class(re.compile("pointed"))
        expect(page.locator("#told")).to_have_text(re.compile(f"^{axis} {place} "))
    expect_python_holds(page, 1, None, 0)
    page.keyboard.press("Enter")
    expect_python_holds(page, 0, None, 1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    expect_python_holds(page, 0, 0, 2)
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    expect(page.locator("[tabindex='0'].token")).to_have_count(2)


def test_the_lines_follow_python(visitor: Visitor) -> None:
    page = opened(visitor, queries=97, keys=97)
    number = page.get_by_role("spinbutton", name="Query")
    number.fill("80")
    number.press("Enter")
    expect(token(page, "query", 80)).to_have_class(re.compile("chosen"))
    expect(token(page, "query", 80)).to_be_in_viewport()
    expect(token(page, "query", 1)).not_to_be_in_viewport()


def test_another_head_leaves_the_tokens_where_they_are(visitor: Visitor) -> None:
    page = opened(visitor, queries=97, keys=97, chosen=-1)
    scroll = page.locator(".scroll")
    scroll.evaluate("scroll => { scroll.scrollTop = 500; }")
    strongest = page.locator(".scale").inner_text()
    page.get_by_test_id("stCheckbox").filter(has_text="Another head").click()
    expect(page.locator(".scale")).not_to_have_text(strongest)
    assert scroll.evaluate("scroll => scroll.scrollTop") == 500
    top = lines_page.weights(97, 97, head=1).max()
    expect(page.locator(".scale")).to_have_text(f"strongest line: {top:.3g}")
    token(page, "query", 30).hover()
    expect_numbers(page, "key", lines_page.weights(97, 97, head=1)[30])


def test_quick_choices_while_python_is_busy_never_move_back(visitor: Visitor) -> None:
    page = opened(visitor, busy=400)
    page.locator(".scroll").evaluate(
        """scroll => {
            window.seen = [];
            new MutationObserver(() => {
                const now = scroll.querySelector('.query .chosen')?.dataset.place;
                if (now && seen.at(-1) !== now) seen.push(now);
            }).observe(scroll, { attributes: true, subtree: true });
        }"""
    )
    for place in (2, 3, 4, 5):
        token(page, "query", place).click()
        page.wait_for_timeout(60)
    expect(page.get_by_text(re.compile("^Python holds 5, "))).to_be_visible()
    page.wait_for_timeout(800)
    assert page.evaluate("seen") == ["1", "2", "3", "4", "5"]


# --- room, colours, time


@pytest.mark.parametrize(
    "asked",
    [{}, {"heads": 3}, {"queries": 120, "keys": 120}, {"right": 1}, {"queries": 3}],
    ids=str,
)
def test_a_phone_need_not_scroll_sideways(visitor: Visitor, asked: dict[str, int]) -> None:
    page = opened(visitor, 390, **asked)
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
    inside = page.locator(".drawing").bounding_box()
    between = page.locator(".between").bounding_box()
    assert inside
    assert between
    assert between["width"] >= 90
    boxes = page.locator(".drawing :is(.token, .word, .titles span, .head)").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().toJSON())"
    )
    for box in boxes:
        assert box["left"] >= inside["x"] - 1
        assert box["right"] <= inside["x"] + inside["width"] + 1


def test_words_from_the_right_stand_beside_their_positions(visitor: Visitor) -> None:
    page = opened(visitor, right=1)
    for axis in ("query", "key"):
        words = page.locator(f".column.{axis} .word").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().toJSON())"
        )
        edge = {"query": "right", "key": "left"}[axis]
        assert len({round(box[edge]) for box in words}) == 1
        for above, below in pairwise(words):
            assert above["top"] < below["top"]


TEXTS = """drawing => [...drawing.querySelectorAll('*')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    .map(e => [e.textContent, getComputedStyle(e).color.startsWith('color')
        ? getComputedStyle(e).color.match(/[\\d.]+/g).map(x => Math.round(255 * x)).join()
        : getComputedStyle(e).color,
        getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_readable(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, scheme=scheme, heads=2)
    found = page.locator(".drawing").evaluate(TEXTS)
    texts = [Word(text, rgb(colour), rgb(behind)) for text, colour, behind in found]
    assert len(texts) > 40
    assert min(text.contrast for text in texts) >= 4.5


def test_pointing_at_a_token_of_120_is_drawn_within_30_ms(visitor: Visitor) -> None:
    page = opened(visitor, queries=120, keys=120)
    page.wait_for_timeout(1000)
    taken = page.locator(".scroll").evaluate(
        """async scroll => {
            const tokens = scroll.querySelectorAll('.column.query .token');
            const taken = [];
            for (let at = 0; at < 25; at += 1) {
                await new Promise(requestAnimationFrame);
                const start = performance.now();
                const event = { bubbles: true, composed: true, pointerType: 'mouse' };
                tokens[(7 * at) % 120].dispatchEvent(new PointerEvent('pointermove', event));
                scroll.offsetHeight;
                taken.push(performance.now() - start);
            }
            return taken;
        }"""
    )
    assert np.median(taken) < 30
