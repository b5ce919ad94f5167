"""The page “One cell” as a visitor sees it, in headless Chromium against the running app."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from attnviz.ui.cell_sentences import STEPS
from browser.visiting import Scheme, Visitor, bundled_model_on, words
from scripts.running_app import wait_until_cell_drawn

pytestmark = pytest.mark.browser

TEXT = "The cat sat on the mat because it was tired."
LAYER, HEAD = 1, 2
SCREEN = 660  # px of a projector's 720 that a step may take
SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
NOT_THERE = "Failed to load resource: the server responded with a status of 404"
STEP = "[data-testid=stVerticalBlock][class*=st-key-step_]"
# Top and bottom of a step, but for a fold that ends it, and what of it lies on what.
LAYOUT = """step => {
    const box = place => place.getBoundingClientRect();
    const parts = [...step.children];
    if (parts.at(-1).querySelector('[data-testid=stExpander]')) parts.pop();
    const equations = [...step.querySelectorAll('.katex-display')].map(place => box(place));
    const others = [...step.querySelectorAll('p, table, [data-testid=stVegaLiteChart]')]
        .map(place => box(place));
    const charts = [...step.querySelectorAll('[data-testid=stVegaLiteChart]')].map(chart => {
        const svg = chart.querySelector('svg');
        const marks = chart.querySelectorAll('.role-mark :is(path, image, text, line)');
        const cut = [...svg.querySelectorAll('text')].filter(text => {
            const [inner, outer] = [box(text), box(svg)];
            return inner.width && getComputedStyle(text).opacity !== '0'
                && (inner.left < outer.left - 4 || inner.right > outer.right + 4
                    || inner.top < outer.top - 4 || inner.bottom > outer.bottom + 4);
        });
        return { left: box(svg).left, right: box(svg).right, marks: marks.length,
            cut: cut.map(text => text.textContent) };
    });
    const share = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
        && one.top < other.bottom - 1 && other.top < one.bottom - 1;
    return {
        height: box(parts.at(-1)).bottom - box(step).top,
        left: box(step).left,
        right: box(step).right,
        charts,
        overlaid: equations.filter(one => others.some(other => share(one, other))).length,
        scrolls: Math.max(document.documentElement.scrollWidth,
            document.querySelector('[data-testid=stMain]').scrollWidth),
    };
}"""


def opened(
    visitor: Visitor, width: int = 1280, scheme: Scheme = "light", **asked: int | str
) -> Page:
    """A cell's page, all drawn."""
    parameters = {"text": TEXT, "layer": LAYER, "head": HEAD} | asked
    link = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
    return followed(visitor, f"one_cell?{link}", width, scheme)


def followed(visitor: Visitor, link: str, width: int = 1280, scheme: Scheme = "light") -> Page:
    page = visitor.page(width, scheme)
    page.set_viewport_size({"width": width, "height": 720})
    page.goto(f"{visitor.app.address}/{link}")
    wait_until_cell_drawn(page)
    # Below the root, Streamlit first asks for its own files where they are not.
    visitor.complaints[:] = [told for told in visitor.complaints if NOT_THERE not in told]
    return page


def headline(page: Page) -> Locator:
    return page.get_by_role("heading", name=re.compile("^How much does"))


def badge(page: Page) -> Locator:
    return page.get_by_text(re.compile("^recomputed here"))


def weight_box(page: Page) -> Locator:
    return page.get_by_test_id("stMetric").last.get_by_test_id("stMetricValue")


def click(page: Page, query: int, key: int) -> None:
    """Click in the middle of a cell, worked out from the picture's corners."""
    plot, size = page.locator(".plot"), len(bundled_model_on(TEXT).words)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    across, down = ((place + 0.5) / size for place in (key, query))
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])


def expect_cell(page: Page, query: int, key: int, weights: torch.Tensor | None = None) -> None:
    """Wait until headline, badge, box and link say what transformers itself computes."""
    reference = bundled_model_on(TEXT)
    weights = reference.weights[LAYER, HEAD] if weights is None else weights
    looks, looked_at = (f"“{reference.words[place]}”" for place in (query, key))
    question = f"look at {'itself' if query == key else looked_at}"
    expect(headline(page)).to_have_text(f"How much does {looks} {question}?")
    weight = float(weights[query, key])
    expect(badge(page)).to_have_text(re.compile(r"^recomputed here [\d.]+ · the model .* · ✓"))
    expect(badge(page)).to_contain_text(f"recomputed here {weight:.7f}"[:-1])
    here, own = re.findall(r"\b[01]\.\d{7}", badge(page).inner_text())
    assert [float(here), float(own)] == pytest.approx([weight, weight], abs=3e-7)
    told = float(weight_box(page).inner_text())
    assert told == pytest.approx(weight, rel=6e-3, abs=1e-7)
    expect(page).to_have_url(re.compile(rf"[?&]query={query}&key={key}(&|$)"))


def expect_step(page: Page, number: int) -> None:
    """Wait until this step and no other is there, with all its charts."""
    expect(page.locator(STEP)).to_have_count(1)
    title = f"{number} {STEPS[number - 1]}"
    expect(page.locator(STEP).get_by_role("heading", name=title)).to_be_visible()
    wait_until_cell_drawn(page)


def focused(page: Page, place: Locator, key: str = "Tab") -> Locator:
    """Press a key until the focus is there."""
    for _ in range(40):
        if place.evaluate("place => place.matches(':focus')"):
            return place
        page.keyboard.press(key)
    raise AssertionError("the keyboard does not get there")


# --- one cell


def test_a_click_on_a_cell_tells_its_weight(visitor: Visitor) -> None:
    size = len(bundled_model_on(TEXT).words)
    page = opened(visitor, query=9, key=8)
    expect_cell(page, 9, 8)
    for cell in ((7, 2), (size - 1, 0), (5, 5), (3, 8)):  # the last is hidden
        click(page, *cell)
        expect_cell(page, *cell)


def test_charts_are_those_of_the_cell(visitor: Visitor) -> None:
    weights = bundled_model_on(TEXT).weights[LAYER, HEAD]
    page = opened(visitor, query=9, key=8, step=5)
    chart = page.locator("[data-testid=stVegaLiteChart][aria-label^='Weights of the row of']")
    spoken = bundled_model_on(TEXT).words
    for query, key in ((9, 8), (11, 3), (6, 2)):
        click(page, query, key)
        expect_cell(page, query, key)
        bold = chart.locator(".role-axis-label text[font-weight=bold]")
        expect(bold).to_have_text(re.compile(f"^␣?{re.escape(spoken[key])}$"))
        number = chart.locator(".mark-text.role-mark text")
        assert float(number.text_content() or "") == pytest.approx(
            float(weights[query, key]), rel=6e-3
        )


def test_the_link_shows_the_same_cell_and_step_to_another(visitor: Visitor) -> None:
    page = opened(visitor, query=9, key=8)
    click(page, 10, 4)
    expect_cell(page, 10, 4)
    page.get_by_role("button", name=f"3 {STEPS[2]}").click()
    expect_step(page, 3)
    expect(page.get_by_text("In the order of the dimensions")).to_be_visible()
    said = f"{STEP} [data-testid=stMarkdownContainer]"
    expect(page.locator(STEP).get_by_text("In the order of the dimensions")).to_be_visible()
    told = page.locator(said).all_inner_texts()
    again = followed(visitor, page.url.removeprefix(f"{visitor.app.address}/"))
    expect_cell(again, 10, 4)
    expect_step(again, 3)
    expect(again.get_by_text("In the order of the dimensions")).to_be_visible()
    expect(again.locator(said)).to_have_text(told, use_inner_text=True)


def test_the_keyboard_is_enough(visitor: Visitor) -> None:
    page = opened(visitor, query=9, key=8)
    plot = focused(page, page.locator(".plot"))
    for key, cell in (("ArrowUp", (8, 8)), ("ArrowLeft", (8, 7)), ("ArrowLeft", (8, 6))):
        plot.press(key)
        expect_cell(page, *cell)
    expect_step(page, 1)  # arrows in the matrix turn no page
    page.get_by_role("heading", name="One cell, worked out").click()  # no field has the focus
    for number in range(2, len(STEPS) + 1):
        page.keyboard.press("ArrowRight")
        expect_step(page, number)
    page.keyboard.press("ArrowLeft")
    expect_step(page, len(STEPS) - 1)
    expect_cell(page, 8, 6)
    focused(page, page.get_by_role("button", name=f"2 {STEPS[1]}")).press("Enter")
    expect_step(page, 2)
    page.keyboard.press("ArrowRight")  # a step's button that has the focus keeps no arrow
    expect_step(page, 3)
    focused(page, page.locator("summary", has_text="By hand")).press("Enter")
    expect(page.locator(".st-key-by_hand").get_by_test_id("stCode").first).to_be_visible()


def test_two_visitors_at_once_do_not_see_each_other(visitor: Visitor) -> None:
    weights = bundled_model_on(TEXT).weights[LAYER]
    pages = [opened(visitor, query=9, key=8, head=head) for head in (0, 3)]
    cells = [[(7, 2), (4, 4), (11, 6)], [(10, 1), (12, 12), (5, 3)]]
    for one, other in zip(*cells, strict=True):
        for page, cell in zip(pages, (one, other), strict=True):
            click(page, *cell)
        for page, cell, head in zip(pages, (one, other), (0, 3), strict=True):
            expect_cell(page, *cell, weights[head])


def test_the_browser_asks_nobody_but_the_server(visitor: Visitor) -> None:
    page = opened(visitor, step=0)
    click(page, 7, 2)
    expect_cell(page, 7, 2)
    asked = {url for url in visitor.asked if not url.startswith(("data:", "blob:"))}
    server = visitor.app.address.removeprefix("http")
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((f"http{server}/", f"ws{server}/"))] == []


# --- on a projector, on a phone


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_step_can_be_read(visitor: Visitor, width: int, scheme: Scheme) -> None:
    page = opened(visitor, width, scheme, query=9, key=8)
    page.get_by_role("heading", name="One cell, worked out").click()
    for number, name in enumerate(STEPS, start=1):
        expect_step(page, number)
        step = page.locator(STEP)
        layout = step.evaluate(LAYOUT)
        assert layout["scrolls"] <= width, name
        assert layout["height"] <= SCREEN or width < 1280, name
        assert layout["overlaid"] == 0, f"{name}: the equation lies on something"
        assert layout["charts"], name
        for chart in layout["charts"]:
            assert chart["marks"] > 0, name
            assert chart["left"] >= layout["left"] - 1, name
            assert chart["right"] <= layout["right"] + 1, name
            assert chart["cut"] == [], name
        for drawn in step.get_by_test_id("stVegaLiteChart").all():
            found = words(drawn)
            assert [(word.text, word.contrast) for word in found if word.contrast < 4.5] == []
        page.keyboard.press("ArrowRight")


def top_of(place: Locator) -> float:
    box = place.bounding_box()
    assert box
    return box["y"]


def test_nothing_jumps_when_another_cell_is_chosen(visitor: Visitor) -> None:
    page = opened(visitor, query=9, key=8, step=5)
    tops = []
    for cell in ((12, 1), (5, 5), (3, 8)):
        click(page, *cell)
        expect_cell(page, *cell)
        wait_until_cell_drawn(page)
        tops.append([top_of(page.locator(place)) for place in (".plot", STEP)])
    assert all(before == after for before, after in pairwise(tops)), tops


def test_a_step_comes_in_the_place_of_the_one_before(visitor: Visitor) -> None:
    page = opened(visitor, query=9, key=8)
    page.get_by_role("button", name=f"1 {STEPS[0]}").evaluate("step => step.scrollIntoView()")
    before = top_of(page.locator(STEP))
    assert 0 < before < 120
    for number in range(2, len(STEPS) + 1):
        page.keyboard.press("ArrowRight")
        expect_step(page, number)
        assert top_of(page.locator(STEP)) == before
