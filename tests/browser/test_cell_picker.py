"""The picker of a cell in headless Chromium, on a page that holds little else."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect

from attnviz.charts import matrix as picture
from browser import picker_page
from browser.visiting import Scheme, Visitor, Word, rgb, suspicious_lines
from scripts.running_app import RunningApp, running_app

pytestmark = pytest.mark.browser

SIZES = [(5, 7), (128, 128)]


@pytest.fixture(scope="module")
def app(browser: Browser) -> Iterator[RunningApp]:
    """The page as a server of its own, whose log must be clean when it has stopped."""
    with running_app(picker_page.__file__) as started:
        started.wait()
        yield started
        started.stop()
        assert suspicious_lines(started.log()) == []


def opened(
    visitor: Visitor,
    queries: int = 5,
    keys: int = 7,
    *,
    width: int = 1400,
    scheme: Scheme = "light",
    touch: bool = False,
    **asked: int,
) -> Page:
    """A page whose picker is drawn."""
    asked |= {"queries": queries, "keys": keys}
    link = "?" + "&".join(f"{name}={value}" for name, value in asked.items())
    page = visitor.open(link, width, scheme, touch)
    expect(page.locator(".plot .chosen")).to_be_visible()
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    return page


def plot(page: Page) -> Locator:
    return page.locator(".plot")


def box_of(place: Locator) -> FloatRect:
    box = place.bounding_box()
    assert box
    return box


def boxes_of(places: Locator) -> list[FloatRect]:
    """Where all of them are at one moment: labels are made anew with each choice."""
    return places.evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")


def middle(page: Page, cell: tuple[int, int], size: tuple[int, int]) -> tuple[float, float]:
    """Where a cell is on screen, worked out from the picture's corners."""
    plot(page).scroll_into_view_if_needed()
    box = box_of(plot(page))
    down, across = (np.array(cell) + 0.5) / size
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def click(page: Page, cell: tuple[int, int], size: tuple[int, int]) -> None:
    page.mouse.click(*middle(page, cell, size))


def expect_python_holds(page: Page, query: int, key: int) -> None:
    expect(page.get_by_text(re.compile(f"^Python holds {query}, {key}, "))).to_be_visible()


def expect_framed(page: Page, cell: tuple[int, int], size: tuple[int, int]) -> None:
    """The strong frame lies round the cell, the thin ones round its row and its column."""
    whole = box_of(plot(page))
    down, across = (whole["height"] / size[0], whole["width"] / size[1])
    top, left = whole["y"] + cell[0] * down, whole["x"] + cell[1] * across
    expected = {
        ".chosen": (left, top, across, down),
        ".row": (whole["x"], top, whole["width"], down),
        ".column": (left, whole["y"], across, whole["height"]),
    }
    for frame, corners in expected.items():
        box = box_of(page.locator(f".plot {frame}"))
        found = (box["x"], box["y"], box["width"], box["height"])
        np.testing.assert_allclose(found, corners, atol=0.5, err_msg=frame)


def reading(page: Page) -> Locator:
    return page.locator(".reading")


def told_of(query: str, key: str, weight: float) -> re.Pattern[str]:
    """What the reading says of a cell, to a thousandth."""
    near = {f"{weight + rounding:.3f}" for rounding in (-1e-6, 0, 1e-6)}
    numbers = "|".join(map(re.escape, near))
    return re.compile(rf"query {re.escape(query)} +→ +key {re.escape(key)}: +({numbers})")


# --- choosing


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_click_chooses_the_cell_under_it(visitor: Visitor, size: tuple[int, int]) -> None:
    page = opened(visitor, *size)
    last = (size[0] - 1, size[1] - 1)
    for cell in ((3, 2), (0, 0), last, (0, last[1]), (last[0], 0), (size[0] // 2, 5)):
        click(page, cell, size)
        expect_python_holds(page, *cell)
        expect_framed(page, cell, size)
        expect(page.get_by_role("spinbutton", name="Query")).to_have_value(str(cell[0]))
    expect(page.get_by_text("told 6 times")).to_be_visible()


def test_a_cell_reaches_to_its_edges(visitor: Visitor) -> None:
    page = opened(visitor)
    x, y = middle(page, (2, 3), (5, 7))
    half = box_of(plot(page))["width"] / 7 / 2
    for across, down, cell in (
        (1, 1, (2, 3)),
        (-1, -1, (2, 3)),
        (1.1, 0, (2, 4)),
        (0, 1.1, (3, 3)),
    ):
        page.mouse.click(x + 0.97 * half * across, y + 0.97 * half * down)
        expect_python_holds(page, *cell)


def test_a_tap_chooses(visitor: Visitor) -> None:
    page = opened(visitor, width=390, touch=True)
    page.touchscreen.tap(*middle(page, (4, 5), (5, 7)))
    expect_python_holds(page, 4, 5)
    expect(page.locator(".plot .pointed")).to_be_hidden()


def test_positions_are_told_where_the_first_token_is_hidden(visitor: Visitor) -> None:
    page = opened(visitor, first=1)
    click(page, (0, 5), (4, 6))
    expect_python_holds(page, 1, 6)
    expect(reading(page)).to_contain_text("query 1 ␣cat")


def test_arrow_keys_move_within_the_picture_and_leave_the_page_alone(visitor: Visitor) -> None:
    page = opened(visitor)
    plot(page).focus()
    for key, cell in (
        *(("ArrowRight", (1, 2)), ("ArrowDown", (2, 2)), ("ArrowLeft", (2, 1))),
        *(("ArrowUp", (1, 1)), ("End", (1, 6)), ("ArrowRight", (1, 6)), ("ArrowUp", (0, 6))),
        *(("ArrowUp", (0, 6)), ("Home", (0, 0)), ("ArrowLeft", (0, 0))),
    ):
        scrolled = page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop")
        page.keyboard.press(key)
        expect_python_holds(page, *cell)
        expect_framed(page, cell, (5, 7))
        assert scrolled == page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop")
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    expect(plot(page)).to_be_focused()


def test_other_keys_are_left_to_the_page(visitor: Visitor) -> None:
    page = opened(visitor)
    page.evaluate(
        """() => {
            window.reached = [];
            document.addEventListener('keydown', e => reached.push([e.key, e.defaultPrevented]));
        }"""
    )
    plot(page).focus()
    for key in ("PageDown", "PageUp", "Control+ArrowRight", "Shift+End", "x"):
        page.keyboard.press(key)
    reached = dict(page.evaluate("reached"))
    for name in ("Control", "Shift"):
        reached.pop(name)
    wanted = ("PageDown", "PageUp", "ArrowRight", "End", "x")
    assert reached == dict.fromkeys(wanted, False)
    expect_python_holds(page, 1, 1)
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(200)  # Streamlit hangs its listener anew once a field lost the focus
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("pressed [0, 1]")).to_be_visible()


WATCH = """plot => {
    window.seen = [];
    const note = () => {
        const { left, top } = plot.querySelector('.chosen').style;
        const now = `${parseFloat(top)} ${parseFloat(left)}`;
        if (seen.at(-1) !== now) seen.push(now);
    };
    note();
    new MutationObserver(note).observe(plot, { attributes: true, subtree: true });
}"""


def places(page: Page, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Where the frame has been, one cell after the other."""
    shares = [tuple(map(float, place.split())) for place in page.evaluate("seen")]
    return [(round(top * size[0] / 100), round(left * size[1] / 100)) for top, left in shares]


@pytest.mark.parametrize(("busy", "pause"), [(500, 0), (500, 200), (100, 60), (60, 100)])
def test_quick_arrows_while_python_is_busy_never_move_back(
    visitor: Visitor, busy: int, pause: int
) -> None:
    page = opened(visitor, busy=busy)
    plot(page).focus()
    plot(page).evaluate(WATCH)
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(pause)
    page.keyboard.press("ArrowDown")
    assert places(page, (5, 7))[-1] == (2, 5)  # at once, whatever Python does
    expect_python_holds(page, 2, 5)
    page.wait_for_timeout(800)
    expect_python_holds(page, 2, 5)
    assert places(page, (5, 7)) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5)]


def test_of_a_quick_series_few_are_told_and_the_last_is(visitor: Visitor) -> None:
    page = visitor.page()
    told: list[str | bytes] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: told.append(frame)))
    page.goto(f"{visitor.app.address}/?queries=128&keys=128")
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    plot(page).focus()
    told.clear()
    plot(page).evaluate(
        """async plot => { for (let i = 0; i < 25; i += 1) {
            const key = 'ArrowRight';
            plot.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
            await new Promise(done => setTimeout(done, 30));
        } }"""
    )
    expect_python_holds(page, 1, 26)
    assert 2 <= len(told) <= 5  # two, where the browser keeps the pace


# --- Python chooses


def test_the_frame_follows_python(visitor: Visitor) -> None:
    page = opened(visitor)
    for name, value, cell in (("Query", 4, (4, 1)), ("Key", 6, (4, 6))):
        number = page.get_by_role("spinbutton", name=name)
        number.fill(str(value))
        number.press("Enter")
        expect_python_holds(page, *cell)
        expect(page.locator("#told")).to_contain_text(f"query {cell[0]} ")
        expect_framed(page, cell, (5, 7))
    plot(page).press("ArrowUp")
    expect_python_holds(page, 3, 6)


def test_a_cell_can_be_chosen_again_after_python_has_left_it(visitor: Visitor) -> None:
    page = opened(visitor)
    number = page.get_by_role("spinbutton", name="Key")
    for _ in range(2):
        click(page, (2, 4), (5, 7))
        expect_python_holds(page, 2, 4)
        number.fill("0")
        number.press("Enter")
        expect_python_holds(page, 2, 0)
        expect_framed(page, (2, 0), (5, 7))


def switch(page: Page, name: str) -> None:
    page.get_by_test_id("stCheckbox").filter(has_text=name).click()


def test_other_tokens_take_the_choice_of_python_with_them(visitor: Visitor) -> None:
    page = opened(visitor)
    click(page, (4, 6), (5, 7))
    expect_python_holds(page, 4, 6)
    switch(page, "Hide the first token")
    expect(page.locator(".key-labels .label")).to_have_count(6)
    expect(page.locator(".key-labels .bold")).to_have_text("ko6")
    expect_framed(page, (3, 5), (4, 6))
    plot(page).press("ArrowUp")
    expect_python_holds(page, 3, 6)
    click(page, (0, 0), (4, 6))
    expect_python_holds(page, 1, 1)
    switch(page, "Hide the first token")
    expect(page.locator(".key-labels .label")).to_have_count(7)
    expect_framed(page, (1, 1), (5, 7))


def test_a_choice_of_another_picture_is_left_to_it(visitor: Visitor) -> None:
    page = opened(visitor)
    hear = """changes => {
        const choice = { ...attnvizChoices.get('picker'), ...changes };
        attnvizChoices.set('picker', choice);
        document.dispatchEvent(new CustomEvent('attnviz-choice', { detail: 'picker' }));
    }"""
    own = page.evaluate("attnvizChoices.get('picker').of")
    page.evaluate(hear, {"of": "another", "chosen": [4, 4]})
    expect_framed(page, (1, 1), (5, 7))
    page.evaluate(hear, {"of": own, "chosen": [3, 4]})
    expect_framed(page, (3, 4), (5, 7))


def test_a_picker_that_comes_back_is_used_like_a_new_one(visitor: Visitor) -> None:
    page = opened(visitor)
    for cell in ((3, 3), (2, 5)):
        click(page, cell, (5, 7))
        expect_python_holds(page, *cell)
    switch(page, "Show the picture")
    expect(plot(page)).to_have_count(0)
    page.get_by_role("spinbutton", name="Query").fill("4")
    page.get_by_role("spinbutton", name="Query").press("Enter")
    expect_python_holds(page, 4, 5)
    switch(page, "Show the picture")
    expect(page.locator("#told")).to_contain_text("query 4 ")
    expect_framed(page, (4, 5), (5, 7))
    for cell in ((2, 5), (3, 3), (0, 1)):
        click(page, cell, (5, 7))
        expect_python_holds(page, *cell)
        expect_framed(page, cell, (5, 7))


# --- reading


def test_the_reading_is_the_weight_under_the_pointer_else_that_of_the_chosen(
    visitor: Visitor,
) -> None:
    page = opened(visitor)
    weights, queries, keys = picker_page.weights(5, 7, False), *map(picker_page.words, (5, 7), "qk")
    at_rest = told_of("1 ␣cat", "1 ␣cat", weights[1, 1])
    expect(reading(page)).to_have_text(at_rest)
    height = box_of(reading(page))["height"]
    for query, key in np.ndindex(5, 7):
        page.mouse.move(*middle(page, (query, key), (5, 7)))
        named = (f"{query} {queries[query]}", f"{key} {keys[key]}")
        if queries[query] and keys[key]:
            expect(reading(page)).to_have_text(told_of(*named, weights[query, key]))
        assert box_of(reading(page))["height"] == height
    expect(page.locator(".plot .pointed")).to_be_visible()
    expect_python_holds(page, 1, 1)
    page.mouse.move(5, 5)
    expect(reading(page)).to_have_text(at_rest)
    expect(page.locator(".plot .pointed")).to_be_hidden()


def test_the_weight_is_readable_beside_long_words_on_a_phone(visitor: Visitor) -> None:
    page = opened(visitor, width=390)
    page.mouse.move(*middle(page, (2, 2), (5, 7)))
    expect(reading(page)).to_contain_text("unquestionablyindivisible")
    weight = box_of(reading(page).locator(".weight"))
    assert weight["x"] + weight["width"] <= 390
    assert weight["width"] > 40


def test_arrows_are_read_though_the_pointer_rests_on_the_picture(visitor: Visitor) -> None:
    page = opened(visitor)
    click(page, (3, 1), (5, 7))
    page.keyboard.press("ArrowDown")
    expect(reading(page)).to_contain_text("query 4 猫")
    expect(page.locator("#told")).to_have_text(
        re.compile(r"query 4 猫, key 1 ␣cat, weight 0\.\d{3}")
    )


# --- what is drawn


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("causal", [0, 1])
def test_every_cell_has_the_colour_of_its_weight(
    visitor: Visitor, size: tuple[int, int], causal: int
) -> None:
    page = opened(visitor, *size, causal=causal)
    weights = picker_page.weights(*size, bool(causal))
    hidden = ~picker_page.visible(*size, bool(causal))
    dots = np.array(
        plot(page)
        .locator("canvas")
        .evaluate(
            """canvas => [...canvas.getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height).data]"""
        )
    ).reshape(*size, 4)
    assert ((dots[..., 3] == 0) == hidden).all()
    shades = np.round(weights / weights.max() * 255).astype(int)
    near = [picture._viridis()[np.clip(shades + step, 0, 255)] for step in (-1, 0, 1)]
    lowest, highest = np.min(near, axis=0), np.max(near, axis=0)  # thousandths may round a shade
    seen = ~hidden
    assert (dots[seen][:, :3] >= lowest[seen]).all()
    assert (dots[seen][:, :3] <= highest[seen]).all()


def shot(page: Page) -> np.ndarray:
    page.mouse.move(5, 5)
    pixels = Image.open(io.BytesIO(plot(page).screenshot())).convert("RGB")
    return np.array(pixels, dtype=int)


def test_the_screen_shows_the_cells_in_their_places(visitor: Visitor) -> None:
    page = opened(visitor, 3, 5)
    shades = picker_page.weights(3, 5, False)
    shades = np.round(shades / shades.max() * 255).astype(int)
    pixels = shot(page)
    rows, columns = (
        ((np.arange(count) + 0.5) * length / count).astype(int)
        for count, length in zip((3, 5), pixels.shape[:2], strict=True)
    )
    colours = pixels[rows][:, columns]
    assert np.abs(colours - picture._viridis()[shades]).max() <= 6


def test_the_chosen_cell_is_framed_in_the_colour_of_what_is_real(visitor: Visitor) -> None:
    page = opened(visitor)
    box, whole = box_of(page.locator(".plot .chosen")), box_of(plot(page))
    left, top = round(box["x"] - whole["x"]), round(box["y"] - whole["y"])
    pixels = shot(page)
    beside = pixels[top + 10, left - 6 : left].tolist()
    assert [0x1F, 0x6F, 0xB8] in beside
    assert [255, 255, 255] in beside
    row = pixels[top - 3 : top + 1, left + 150]
    assert row.min(1).max() > 200  # a light line
    assert row.max(1).min() < 40  # and a dark one


@pytest.mark.parametrize(
    ("size", "cross"), [((5, 7), 0), ((23, 23), 0), ((128, 128), 0), ((23, 11), 1)], ids=str
)
@pytest.mark.parametrize("width", [1400, 390])
def test_cells_are_square(visitor: Visitor, size: tuple[int, int], cross: int, width: int) -> None:
    page = opened(visitor, *size, cross=cross, width=width)
    box = box_of(plot(page))
    assert box["height"] / size[0] == pytest.approx(box["width"] / size[1], rel=0.01)
    assert max(box["height"], box["width"]) <= 441
    if width == 1400:
        assert max(box["height"], box["width"]) == pytest.approx(440, abs=1)


def test_a_flat_picture_is_high_enough_and_its_axes_are_named(visitor: Visitor) -> None:
    for width in (1400, 390):
        page = opened(visitor, 2, 29, cross=1, width=width)
        box = box_of(plot(page))
        assert box["height"] / box["width"] == pytest.approx(0.3, abs=0.01)
        for title, said in (
            (".query-title", "query: the token that looks (target)"),
            (".key-title", "key: the token looked at (source)"),
        ):
            place = page.locator(title)
            expect(place).to_have_text(said)
            overflow = "e => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight]"
            assert max(place.evaluate(overflow)) <= 1
            assert box_of(place)["x"] >= 0
            assert box_of(place)["x"] + box_of(place)["width"] <= width


def labels(page: Page, axis: str) -> list[str]:
    return page.locator(f".{axis}-labels .label").all_text_contents()


def test_tokens_are_labels_and_never_html(visitor: Visitor) -> None:
    page = opened(visitor)
    assert labels(page, "query") == picker_page.words(5, "q")
    assert labels(page, "key") == picker_page.words(7, "k")
    assert page.locator(".picker b").count() == 0
    for axis in ("query", "key"):
        expect(page.locator(f".{axis}-labels .bold")).to_have_text("␣cat")


def test_labels_are_thinned_and_do_not_overlap_the_chosen_one(visitor: Visitor) -> None:
    page = opened(visitor, 128, 128)
    click(page, (81, 47), (128, 128))
    expect(page.locator(".query-labels .bold")).to_have_text(picker_page.words(128, "q")[81])
    expect(page.locator(".key-labels .bold")).to_have_text(picker_page.words(128, "k")[47])
    for axis, side, length in (("query", "y", "height"), ("key", "x", "width")):
        found = boxes_of(page.locator(f".{axis}-labels .label"))
        boxes = sorted(found, key=lambda box: box[side])
        assert 15 < len(boxes) <= 40
        for before, after in pairwise(boxes):
            assert before[side] + before[length] <= after[side] + 2


def test_nothing_jumps_when_another_cell_is_chosen(visitor: Visitor) -> None:
    page = opened(visitor, 128, 128)
    places = [box_of(plot(page)), box_of(page.locator(".scale"))]
    for cell in ((2, 2), (0, 127), (127, 0)):
        click(page, cell, (128, 128))
        expect_python_holds(page, *cell)
        assert [box_of(plot(page)), box_of(page.locator(".scale"))] == places


def test_the_scale_names_both_ends(visitor: Visitor) -> None:
    page = opened(visitor)
    top = picker_page.weights(5, 7, False).max()
    expect(page.locator(".scale .ends")).to_have_text(re.compile(rf"weight 0\s*{top:.3g}"))


def test_hidden_cells_are_named_and_can_be_chosen(visitor: Visitor) -> None:
    page = opened(visitor)
    expect(page.get_by_text("hidden by the mask")).to_be_hidden()
    page = opened(visitor, 7, 7, causal=1)
    expect(page.locator(".scale").get_by_text("hidden by the mask")).to_be_visible()
    click(page, (2, 6), (7, 7))
    expect_python_holds(page, 2, 6)
    expect(reading(page)).to_have_text(re.compile(r"key 6 ko6:\s+hidden\s*$"))
    expect(page.locator("#told")).to_have_text(re.compile("key 6 ko6, hidden by the mask$"))


def test_more_cells_than_dots_keep_the_largest_and_say_so(visitor: Visitor) -> None:
    page = opened(visitor, 300, 300, width=390)
    expect(page.get_by_text("each dot: the largest of its cells")).to_be_visible()
    read = """canvas => [canvas.width, ...canvas.getContext('2d')
        .getImageData(0, 0, canvas.width, canvas.height).data]"""
    width, *dots = plot(page).locator("canvas").evaluate(read)
    assert 100 < width < 300
    weights = picker_page.weights(300, 300, False)
    place = np.arange(300) * width // 300
    largest = np.zeros((width, width))
    np.maximum.at(largest, (place[:, None], place), weights)
    shades = np.round(largest / weights.max() * 255).astype(int)
    colours = np.reshape(dots, (width, width, 4))[..., :3]
    assert np.abs(colours - picture._viridis()[shades].astype(int)).max() <= 4  # half a shade
    page = opened(visitor, 300, 300)
    expect(page.get_by_text("each dot: the largest of its cells")).to_be_hidden()


# --- room, colours, keyboard


@pytest.mark.parametrize("size", [(5, 7), (40, 40), (128, 128), (2, 29), (29, 2)], ids=str)
def test_a_phone_need_not_scroll_sideways(visitor: Visitor, size: tuple[int, int]) -> None:
    page = opened(visitor, *size, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
    inside = box_of(page.locator(".picker"))
    for box in boxes_of(page.locator(".picker :is(.label, .plot, .top)")):
        assert box["x"] >= inside["x"] - 1
        assert box["x"] + box["width"] <= inside["x"] + inside["width"] + 1


def test_the_picture_follows_its_window(visitor: Visitor) -> None:
    page = opened(visitor, 23, 23)
    wide = box_of(plot(page))
    page.set_viewport_size({"width": 390, "height": 900})
    expect(plot(page)).not_to_have_css("width", f"{wide['width']}px")
    narrow = box_of(plot(page))
    assert 180 < narrow["width"] < 340
    assert narrow["height"] == narrow["width"]
    click(page, (20, 3), (23, 23))
    expect_python_holds(page, 20, 3)
    expect_framed(page, (20, 3), (23, 23))
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(plot(page)).to_have_css("width", f"{wide['width']:g}px")


def test_a_picture_that_is_shown_later_is_drawn_then(visitor: Visitor) -> None:
    page = visitor.page()
    page.add_init_script(
        """document.addEventListener('DOMContentLoaded', () => {
            const sheet = document.createElement('style');
            sheet.textContent = '.stBidiComponent { display: none }';
            sheet.id = 'closed';
            document.head.append(sheet);
        })"""
    )
    page.goto(visitor.app.address)
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    expect(plot(page)).to_be_hidden()
    page.wait_for_timeout(500)
    page.evaluate("document.getElementById('closed').remove()")
    expect(page.locator(".plot .chosen")).to_be_visible()
    expect_framed(page, (1, 1), (5, 7))
    expect(page.locator(".key-labels .label")).to_have_count(7)


TEXTS = """picker => [...picker.querySelectorAll('*')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    .map(e => [e.textContent, getComputedStyle(e).color,
        getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_readable(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, 7, 7, causal=1, scheme=scheme)
    found = page.locator(".picker").evaluate(TEXTS)
    texts = [Word(text, rgb(colour), rgb(behind)) for text, colour, behind in found]
    assert len(texts) > 14
    assert {text.behind for text in texts} == {
        (255, 255, 255) if scheme == "light" else (15, 19, 25)
    }
    assert min(text.contrast for text in texts) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_focus_of_the_keyboard_is_visible(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, scheme=scheme)
    without = box_of(plot(page))
    for _ in range(10):
        page.keyboard.press("Tab")
        if plot(page).evaluate("plot => plot.matches(':focus')"):
            break
    expect(plot(page)).to_be_focused()
    expect(plot(page)).to_have_css("outline-style", "solid")
    expect(plot(page)).to_have_css("outline-width", "3px")
    ring, behind = plot(page).evaluate(
        """plot => [getComputedStyle(plot).outlineColor,
            getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor]"""
    )
    assert Word("", rgb(ring), rgb(behind)).contrast >= 3
    assert box_of(plot(page)) == without


def test_it_says_what_it_is_and_how_it_is_used(visitor: Visitor) -> None:
    page = opened(visitor)
    named = page.get_by_role("application", name=re.compile("^Weights of layer 5, head 11: "))
    expect(named).to_have_accessible_name(re.compile("Arrow keys choose .*, Home and End "))
    expect(named).to_have_accessible_description(re.compile(r"^query 1 ␣cat, key 1 ␣cat, weight 0"))
    expect(page.locator("#told")).to_have_attribute("aria-live", "polite")


# --- cost


def test_a_click_does_not_send_the_picture_again(visitor: Visitor) -> None:
    page = visitor.page()
    received: list[int] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))),
    )
    page.goto(f"{visitor.app.address}/?queries=128&keys=128")
    expect(page.get_by_text("pressed [0, 0]")).to_be_visible()
    page.wait_for_timeout(500)
    received.clear()
    click(page, (77, 13), (128, 128))
    expect_python_holds(page, 77, 13)
    page.wait_for_timeout(500)
    assert 1_000 < sum(received) < 8_000  # 16,384 cells alone would be 32 kB
