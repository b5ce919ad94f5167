"""The Start page as a visitor sees it, in headless Chromium against the running app."""

from __future__ import annotations

import io
import re
import time
from urllib.parse import quote

import numpy as np
import pytest
import saved_models
import tiny_models
import torch
from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, expect
from transformers import GPT2Config, GPT2LMHeadModel

from browser.visiting import (
    Scheme,
    Visitor,
    alerts,
    bundled_model_on,
    choose,
    expect_reading,
    headline,
    number,
    pick,
    picture,
    point_at,
    suspicious_lines,
    words,
)
from scripts.running_app import (
    HEAD_CHART,
    HEAD_PICTURE,
    running_app,
    wait_until_drawn,
)

pytestmark = pytest.mark.browser

TEXT = "The cat sat on the mat because it was tired."
TITLE = "Attention is a search"
LAYER, HEAD, QUERY = 1, 2, 8
LINK = f"?model=bundled&text={quote(TEXT)}&layer={LAYER}&head={HEAD}&query={QUERY}"

# Notes when the title and the first chart came into the page.
WATCH = f"""() => {{
    window.seen = {{}};
    const note = (name, there) => {{ if (there) window.seen[name] ??= performance.now(); }};
    new MutationObserver(() => {{
        note('title', document.querySelector('h1')?.textContent.includes({TITLE!r}));
        note('chart', document.querySelector('[data-testid=stVegaLiteChart] .role-mark'));
    }}).observe(document, {{ childList: true, subtree: true }});
}}"""


def drawn(
    visitor: Visitor,
    link: str = LINK,
    width: int = 1400,
    scheme: Scheme = "light",
    touch: bool = False,
) -> Page:
    """A page on which everything is drawn."""
    page = visitor.open(link, width, scheme, touch)
    wait_until_drawn(page)
    return page


def test_text_is_there_before_any_chart(browser: Browser) -> None:
    with running_app() as fresh:
        fresh.wait()
        visitor = Visitor(browser, fresh)
        page = visitor.page()
        page.add_init_script(f"({WATCH})()")
        page.goto(fresh.address)
        expect(page.get_by_role("heading", name=TITLE)).to_be_visible()
        wait_until_drawn(page)
        seen = page.evaluate("window.seen")
        visitor.leave()
        fresh.stop()
        assert seen["chart"] > 2 * seen["title"]  # most of the wait is for torch, after the text
        assert visitor.complaints == []
        assert suspicious_lines(fresh.log()) == []


def test_the_head_is_drawn_as_the_model_computes_it(visitor: Visitor) -> None:
    expected = bundled_model_on(TEXT)
    page = drawn(visitor)
    labels = page.locator(f"{HEAD_CHART} .role-axis-label text").all_text_contents()
    spoken = [label.strip("␣") for label in labels]
    assert spoken == expected.words + expected.words[::-1] or spoken == 2 * expected.words
    weights = expected.weights[LAYER, HEAD].numpy()
    colours = cell_colours(page, len(weights))
    lightness = colours @ [0.2126, 0.7152, 0.0722]  # viridis is told apart by it alone
    largest = np.unravel_index(weights.argmax(), weights.shape)
    assert lightness[largest] == lightness.max()
    assert np.ptp(colours[weights == 0], axis=0).max() == 0
    assert lightness[weights == 0].max() == lightness.min()
    assert np.corrcoef(lightness.ravel(), weights.ravel())[0, 1] > 0.95


def cell_colours(page: Page, size: int) -> np.ndarray:
    """The colour in the middle of each cell, as the screen shows it: query, key, RGB."""
    page.mouse.move(0, 0)
    shot = page.locator(HEAD_PICTURE).screenshot()
    pixels = np.array(Image.open(io.BytesIO(shot)).convert("RGB"), dtype=float)
    rows, columns = (((np.arange(size) + 0.5) * n / size).astype(int) for n in pixels.shape[:2])
    return pixels[rows][:, columns]


def test_the_playground_is_drawn(visitor: Visitor) -> None:
    page = drawn(visitor)
    charts = page.locator("[class*=st-key-synthetic_]").get_by_test_id("stVegaLiteChart")
    for chart in charts.all():
        marks = chart.locator(".role-mark path, .role-mark text")
        assert marks.count() > 1
        box = chart.bounding_box()
        assert box
        assert min(box["width"], box["height"]) > 100
    curve = charts.and_(page.get_by_label("Variance of the logits against d_k"))
    said = {word.text for word in words(curve)}
    assert {"÷ 1", "÷ √d_k", "÷ d_k", "÷ d_k²"} <= said
    assert any(name.startswith("◆ this head’s scores: ") for name in said)
    assert any(name.startswith("◇ this head’s logits: ") for name in said)


def test_the_browser_asks_nobody_but_the_server(visitor: Visitor) -> None:
    page = drawn(visitor)
    choose(number(page, "Head"), 0)
    expect(page.get_by_text("layer 1, head 0").first).to_be_visible()
    asked = {url for url in visitor.asked if not url.startswith(("data:", "blob:"))}
    server = visitor.app.address.removeprefix("http")
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((f"http{server}/", f"ws{server}/"))] == []


def test_another_head(visitor: Visitor) -> None:
    expected = bundled_model_on(TEXT)
    page = drawn(visitor)
    before, link = picture(page), page.url
    choose(number(page, "Head"), 3)
    row = expected.weights[LAYER, 3, QUERY]
    key = int(row.argmax())
    told = f"“{expected.words[QUERY]}” looks most at “{expected.words[key]}”: {row[key]:.2f}"
    expect(headline(page)).to_contain_text(told)
    expect(page.get_by_text(f"layer {LAYER}, head 3").first).to_be_visible()
    page.wait_for_function(
        f'before => document.querySelector("{HEAD_PICTURE}")?.href.baseVal !== before', arg=before
    )
    wait_until_drawn(page)
    expect_largest(page, expected.weights[LAYER, 3])
    assert page.url != link
    again = drawn(visitor, page.url.removeprefix(f"{visitor.app.address}/"))
    expect(headline(again)).to_contain_text(told)
    assert number(again, "Head").input_value() == "3"
    assert picture(again) == picture(page)


def test_another_d_k_from_the_keyboard(visitor: Visitor) -> None:
    d_k = bundled_model_on(TEXT).d_k
    page = drawn(visitor)
    said = page.get_by_text(re.compile("^q·k has variance"))
    expect(said).to_contain_text(f"predicted {d_k}")
    slider = page.get_by_role("slider", name="d_k")
    slider.focus()
    slider.press("ArrowRight")
    expect(said).to_contain_text(f"predicted {2 * d_k}")
    expect(page).to_have_url(re.compile(f"d_k={2 * d_k}"))
    measured = re.search(r"variance ([\d.]+) ± ([\d.]+)", said.inner_text())
    assert measured
    assert abs(float(measured[1]) - 2 * d_k) < 4 * float(measured[2])
    again = drawn(visitor, page.url.removeprefix(f"{visitor.app.address}/"))
    expect(again.get_by_text(re.compile("^q·k has variance"))).to_have_text(said.inner_text())


@pytest.mark.parametrize("width", [1400, 390])
def test_the_pointer_reads_the_cell_under_it(visitor: Visitor, width: int) -> None:
    weights = bundled_model_on(TEXT).weights[LAYER, HEAD]
    page = drawn(visitor, width=width)
    expect_largest(page, weights)
    last = len(weights) - 1
    for query, key in [(0, 0), (5, 2), (2, 5), (last, 0), (last, last), (7, 6)]:
        point_at(page, query, key, len(weights))
        expect_reading(page, query, key, weights[query, key])


def test_a_tap_reads_the_cell_under_it(visitor: Visitor) -> None:
    weights = bundled_model_on(TEXT).weights[LAYER, HEAD]
    page = drawn(visitor, width=390, touch=True)
    image = page.locator(HEAD_PICTURE)
    image.scroll_into_view_if_needed()
    for query, key in [(5, 2), (12, 0)]:
        box = image.bounding_box()
        assert box
        cell = box["width"] / len(weights)
        page.touchscreen.tap(box["x"] + (key + 0.5) * cell, box["y"] + (query + 0.5) * cell)
        expect_reading(page, query, key, weights[query, key])


def test_no_picture_is_read_aloud_as_data(visitor: Visitor) -> None:
    page = drawn(visitor)
    expect(page.locator("[aria-label*='base64']")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_words_of_charts_can_be_read(visitor: Visitor, scheme: Scheme) -> None:
    page = drawn(visitor, scheme=scheme)
    for chart in page.get_by_test_id("stVegaLiteChart").all():
        found = words(chart)
        assert found
        assert [(word.text, word.contrast) for word in found if word.contrast < 4.5] == []


@pytest.mark.parametrize("width", [1400, 390])
def test_the_picture_is_square_and_the_page_no_wider_than_the_screen(
    visitor: Visitor, width: int
) -> None:
    page = drawn(visitor, width=width)
    box = page.locator(HEAD_PICTURE).bounding_box()
    assert box
    assert abs(box["width"] - box["height"]) <= 1
    assert box["width"] >= 170
    wide, room = page.get_by_test_id("stMain").evaluate("main => [main.scrollWidth, innerWidth]")
    assert wide <= room == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_bad_link_is_told_in_sentences(visitor: Visitor) -> None:
    page = visitor.open("?layer=99&head=abc&model=nosuch%2Fmodel")
    expect(page.get_by_test_id("stAlert").filter(has_text="“nosuch/model”")).to_be_visible()
    assert any("head = 'abc'" in told for told in alerts(page))
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="Bundled storyteller").click()
    wait_until_drawn(page)
    expect(page.get_by_test_id("stAlert")).to_have_count(0)


def test_a_head_that_the_model_has_not(visitor: Visitor) -> None:
    page = drawn(visitor, "?layer=99&head=abc")
    told = alerts(page)
    assert any("head = 'abc'" in text for text in told)
    assert any("no layer 99" in text for text in told)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "There is no text to read yet"), ("word " * 40_000, "This text has 200,000 characters")],
    ids=["empty", "200,000 characters"],
)
def test_a_text_that_cannot_be_read(visitor: Visitor, text: str, sentence: str) -> None:
    page = drawn(visitor)
    field = page.get_by_role("textbox", name="Text")
    field.fill(text)
    start = time.monotonic()
    field.press("Control+Enter")
    expect(page.get_by_test_id("stAlert").filter(has_text=sentence)).to_be_visible()
    assert time.monotonic() - start < 3  # a second, and room for a busy machine
    assert len(alerts(page)) == 1
    assert field.input_value() == text
    assert len(page.url) < 2000
    field.fill("Alice gave the key to the king.")
    field.press("Control+Enter")
    wait_until_drawn(page)
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    expect(page.locator(f"{HEAD_CHART} .role-axis-label text").first).to_be_visible()
    expect(page.locator(HEAD_CHART)).to_contain_text("king")


def test_two_visitors_at_once_do_not_see_each_other(visitor: Visitor) -> None:
    weights = bundled_model_on(TEXT).weights
    one, other = visitor.page(), visitor.page()
    for page, head in ((one, 0), (other, 1)):
        link = f"?layer={LAYER}&head={head}&query={QUERY}"
        page.goto(f"{visitor.app.address}/{link}", wait_until="commit")
    for page, head in ((one, 0), (other, 1)):
        expect_largest(page, weights[LAYER, head])
        expect(number(page, "Head")).to_have_value(str(head))
    choose(number(one, "Head"), 3)
    pick(other, "Layer", str(1 - LAYER))
    expect_largest(one, weights[LAYER, 3])
    expect_largest(other, weights[1 - LAYER, 1])


def expect_largest(page: Page, weights: torch.Tensor) -> None:
    """At rest the largest weight of the chosen row stands above the picture."""
    row = weights[QUERY]
    expect_reading(page, QUERY, int(row.argmax()), row.max())


# --- models of every kind


def narrow() -> GPT2LMHeadModel:
    """A model whose d_k is 2, at the left end of the variance curve."""
    sizes = {"n_embd": 10, "n_head": 5, "n_layer": 1, "n_positions": 97}
    config = GPT2Config(vocab_size=tiny_models.VOCABULARY, bos_token_id=1, eos_token_id=2, **sizes)
    return tiny_models.spread(GPT2LMHeadModel(config))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny models that a visitor opens by their path."""
    root = tmp_path_factory.mktemp("models")
    return {
        "bart": saved_models.save(root / "bart", "bart"),
        "vit": saved_models.save(root / "vit", "vit", text=False),
        "vit_again": saved_models.save(root / "vit-again", "vit", text=False),
        "narrow": saved_models.save(root / "narrow", narrow()),
        "jamba": saved_models.save(root / "jamba", "jamba"),
    }


def test_a_name_pasted_over_its_beginning_is_taken_whole(
    visitor: Visitor, folders: dict[str, str]
) -> None:
    """Streamlit takes the label that stands in the field away from a text that begins with it."""
    short, longer = folders["vit"], folders["vit_again"]
    assert longer.startswith(short)
    page = drawn(visitor, f"?model={short}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    field = page.get_by_role("combobox", name="Model")
    for name in (longer, short):
        field.click()
        field.press("Control+a")
        page.evaluate("text => navigator.clipboard.writeText(text)", name)
        field.press("Control+v")
        expect(page.get_by_role("option").first).to_have_text(f"Add: {name}")
        field.press("Enter")
        expect(page).to_have_url(re.compile(f"model={quote(name, safe='')}(&|$)"))
        wait_until_drawn(page)
        expect(page.get_by_test_id("stAlert")).to_have_count(0)


def test_a_name_that_is_shortened_by_hand_is_taken(
    visitor: Visitor, folders: dict[str, str]
) -> None:
    short, longer = folders["vit"], folders["vit_again"]
    page = drawn(visitor, f"?model={longer}")
    field = page.get_by_role("combobox", name="Model")
    field.click()
    field.press("End")
    for _ in range(len(longer) - len(short)):
        field.press("Backspace")
    field.press("Enter")
    expect(page).to_have_url(re.compile(f"model={quote(short, safe='')}(&|$)"))
    wait_until_drawn(page)
    expect(page.get_by_test_id("stAlert")).to_have_count(0)


@pytest.mark.parametrize("width", [1400, 390])
def test_no_words_of_the_curve_lie_on_each_other(
    visitor: Visitor, folders: dict[str, str], width: int
) -> None:
    page = drawn(visitor, f"?model={folders['narrow']}&text=the+cat+sat+on+the+mat", width)
    curve = page.locator("[data-testid=stVegaLiteChart][aria-label^='Variance of the logits']")
    expect(curve.get_by_text("this head’s scores")).to_be_visible()
    boxes = [box for word in curve.locator("svg text").all() if (box := word.bounding_box())]
    points = [
        box for mark in curve.locator(".mark-symbol path").all() if (box := mark.bounding_box())
    ]
    assert len(points) > 40
    named = [box for box in boxes if box["width"] > 100]
    assert len(named) == 2
    for box in named:
        others = [other for other in [*boxes, *points] if other is not box]
        assert [other for other in others if overlap(box, other)] == []


def overlap(one: FloatRect, other: FloatRect) -> bool:
    """Whether two boxes share more than a pixel each way."""
    return all(
        min(one[at] + one[size], other[at] + other[size]) - max(one[at], other[at]) > 1
        for at, size in (("x", "width"), ("y", "height"))
    )


@pytest.mark.parametrize("width", [1400, 390])
def test_cross_attention_is_a_rectangle_of_target_and_source(
    visitor: Visitor, folders: dict[str, str], width: int
) -> None:
    text, target = "the cat sat on the mat because it", "the king was tired"
    link = f"?model={folders['bart']}&text={quote(text)}&target={quote(target)}&part=cross"
    page = drawn(visitor, link, width)
    labels = page.locator(f"{HEAD_CHART} .role-axis-label text").all_text_contents()
    source = [*text.split(), "</s>"]
    assert labels[:9] == source or labels[5:] == source
    box = page.locator(HEAD_PICTURE).bounding_box()
    assert box
    assert box["width"] / box["height"] == pytest.approx(9 / 5, rel=0.02)
    expect(page.locator(HEAD_CHART)).to_contain_text("key: the token looked at (source)")
    expect(page.locator(HEAD_CHART)).to_contain_text("query: the token that looks (target)")
    page.get_by_text("encoder: tokens among themselves").click()
    expect(page.get_by_text("layer 0, head 0 (encoder) · n = 9").first).to_be_visible()
    expect(page).not_to_have_url(re.compile("part="))
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_weights_lie_over_the_picture(
    visitor: Visitor, folders: dict[str, str], width: int, scheme: Scheme
) -> None:
    page = drawn(visitor, f"?model={folders['vit']}&picture=shapes&query=6", width, scheme)
    overlay = page.locator("[data-testid=stVegaLiteChart][aria-label^='Where “r1c1” looks']")
    expect(overlay.locator(".role-mark.mark-rect path")).to_have_count(16 + 1)
    box = overlay.locator(".mark-image image").bounding_box()
    assert box
    assert abs(box["width"] - box["height"]) <= 1
    assert box["x"] + box["width"] <= width
    assert [word.text for word in words(overlay) if word.contrast < 4.5] == []
    told = page.get_by_text("on tokens that are no place in it: [CLS]")
    expect(told).to_be_visible()


def test_a_picture_of_ones_own(visitor: Visitor, folders: dict[str, str]) -> None:
    page = drawn(visitor, f"?model={folders['vit']}")
    before = picture(page)
    buffer = io.BytesIO()
    Image.fromarray((np.indices((40, 90)).sum(0) * 2).astype(np.uint8)).save(buffer, "PNG")
    upload = page.locator("input[type=file]")
    upload.set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": buffer.getvalue()})
    page.wait_for_function(
        f'before => document.querySelector("{HEAD_PICTURE}")?.href.baseVal !== before', arg=before
    )
    upload.set_input_files({"name": "b.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.get_by_test_id("stAlert")).to_contain_text("cannot be read as a PNG or JPEG")


def test_layers_keep_their_true_numbers(visitor: Visitor, folders: dict[str, str]) -> None:
    page = drawn(visitor, f"?model={folders['jamba']}&text=the+cat+sat")
    expect(page.get_by_text("Layers 0, 2, 3 have nothing to show.")).to_be_visible()
    assert pick(page, "Layer", "4") == ["1", "4"]
    expect(page.get_by_text("layer 4, head 0").first).to_be_visible()
    expect(page).to_have_url(re.compile("layer=4"))


# --- the first token, and two actions at once


def test_one_click_hides_the_first_token(visitor: Visitor) -> None:
    weights = bundled_model_on(TEXT).weights[1, 1]
    page = drawn(visitor, f"?text={quote(TEXT)}&layer=1&head=1&query={QUERY}")
    expect(page.get_by_text("An attention sink")).to_be_visible()
    page.get_by_text("Hide the first token and renormalise").click()
    expect(headline(page)).to_contain_text("of what is left of its attention")
    rest = weights[QUERY, 1:] / weights[QUERY, 1:].sum()
    key = int(rest.argmax())
    expect_reading(page, QUERY, key + 1, rest[key])
    expect(
        page.locator(f"{HEAD_CHART} .role-axis-label text").filter(has_text="bos")
    ).to_have_count(0)
    expect(page).to_have_url(re.compile("hide_first=1"))


def test_an_action_right_after_an_example_does_not_undo_it(visitor: Visitor) -> None:
    page = drawn(visitor, "?text=My+own+words&layer=0&head=3")
    page.get_by_role("combobox", name="Example").click()
    button = page.get_by_role("button", name="New draw")
    page.get_by_role("option", name="A list that repeats").click()
    button.dispatch_event("click")
    expect(page.get_by_role("textbox", name="Text")).to_have_value(re.compile("^seven wolf door"))
    expect(page.get_by_text("seed 8").first).to_be_visible()
    expect(headline(page)).to_contain_text("“door” (position 11) looks most at “gold” (position 4)")
    page.wait_for_timeout(1500)  # whatever is still on its way
    expect(page.get_by_role("textbox", name="Text")).to_have_value(re.compile("^seven wolf door"))
    expect(headline(page)).to_contain_text("“door” (position 11) looks most at “gold” (position 4)")
    assert "seven" in page.url


def test_typing_and_pressing_at_once_are_both_kept(visitor: Visitor) -> None:
    page = drawn(visitor)
    page.get_by_role("textbox", name="Text").fill("Alice gave the king a golden key.")
    page.get_by_role("button", name="New draw").click()
    expect(page.get_by_text("seed 8").first).to_be_visible()
    expect(page.locator(HEAD_CHART)).to_contain_text("Alice")
    page.wait_for_timeout(1500)
    expect(page.get_by_role("textbox", name="Text")).to_have_value(
        "Alice gave the king a golden key."
    )
    expect(page).to_have_url(re.compile("Alice"))


def test_a_typed_text_is_kept_when_the_next_thing_is_a_click_on_another_field(
    visitor: Visitor,
) -> None:
    page = drawn(visitor, "")
    text = page.get_by_role("textbox", name="Text", exact=True)
    expect(page.get_by_role("combobox", name="Example")).to_have_value("A pronoun")
    for typed in ("Dogs ran home.", "The king saw the queen.", "Two wolves met a hare."):
        text.fill(typed)
        page.get_by_role("button", name="New draw").click()
        expect(page).to_have_url(re.compile(typed.split()[1]))
        wait_until_drawn(page)
        expect(text).to_have_value(typed)
        expect(page.get_by_role("combobox", name="Example")).to_have_value("")
