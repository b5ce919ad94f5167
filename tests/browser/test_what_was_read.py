"""The page “What was read” as a visitor sees it, in headless Chromium against the running app."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
import saved_models
from playwright.sync_api import Browser, Page, expect

from browser.visiting import Scheme, Visitor, number, words
from scripts.running_app import running_app, wait_until_drawn

pytestmark = pytest.mark.browser

PATH = "what_was_read"
LAYERS = "[data-testid=stVegaLiteChart][aria-label^='The layers of']"
TREE = "[data-testid=stVegaLiteChart][aria-label^='Query heads above']"
NOT_THERE = "Failed to load resource: the server responded with a status of 404"


def card(visitor: Visitor, model: str, width: int = 1400, scheme: Scheme = "light") -> Page:
    """The page of a model, all drawn."""
    page = visitor.open(f"{PATH}?model={quote(model)}", width, scheme)
    expect(page.locator(f"{LAYERS} .role-mark path").first).to_be_attached(timeout=60_000)
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    # Below the root, Streamlit first asks for its own files where they are not.
    visitor.complaints[:] = [told for told in visitor.complaints if NOT_THERE not in told]
    return page


def test_the_first_visitor_of_a_server_may_come_by_this_link(browser: Browser) -> None:
    with running_app() as fresh:
        fresh.wait()
        page = browser.new_page()
        page.goto(f"{fresh.address}/{PATH}?text=A%20dog%20ran.")
        expect(page.get_by_role("heading", name="How far this can be trusted")).to_be_visible(
            timeout=60_000
        )
        expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("A dog ran.")
        expect(page.get_by_test_id("stSidebar")).to_have_count(0)
        expect(page.get_by_role("link", name="Start")).to_be_visible()
        page.close()


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of five layers, of which the second and the last have attention."""
    return saved_models.save(tmp_path_factory.mktemp("models") / "hybrid", "qwen3_next")


def test_model_text_and_head_stay_from_page_to_page(visitor: Visitor) -> None:
    page = visitor.open("?layer=1&head=3&text=The%20king%20had%20a%20key.")
    wait_until_drawn(page)
    page.get_by_role("link", name="What was read").click()
    expect(page.get_by_role("heading", name="How far this can be trusted")).to_be_visible()
    field = page.get_by_role("textbox", name="Text", exact=True)
    expect(field).to_have_value("The king had a key.")
    expect(page).to_have_url(re.compile(r"/what_was_read\?text=The\+king"))
    field.fill("A wolf came to the door.")
    field.press("Control+Enter")
    expect(page).to_have_url(re.compile("text=A.wolf"))
    page.get_by_role("link", name="Start").click()
    wait_until_drawn(page)
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value(
        "A wolf came to the door."
    )
    expect(number(page, "Head")).to_have_value("3")
    expect(page.get_by_text("layer 1, head 3").first).to_be_visible()


def test_each_layer_is_a_mark_filled_where_it_was_read(visitor: Visitor, hybrid: str) -> None:
    page = card(visitor, hybrid)
    filled, empty = (page.locator(f"{LAYERS} .layer_{n}_marks path") for n in (0, 1))
    across = page.locator(f"{LAYERS} .layer_2_marks line")
    places = [mark.bounding_box() for mark in [*filled.all(), *empty.all(), *across.all()]]
    assert all(places)
    left = [round(box["x"] / 10) for box in places if box]
    assert len(left) == 8
    assert sorted(left[:5]) == sorted(set(left[:5]))  # no two layers in one place
    assert left[2:5] == left[5:]  # and a line across each layer that was not read
    assert {mark.get_attribute("fill") for mark in empty.all()} == {"transparent"}
    expect(page.get_by_text("layers 0, 2 and 3 (linear attention)").first).to_be_visible()


def test_the_family_tree_has_a_line_for_each_head(visitor: Visitor, hybrid: str) -> None:
    page = card(visitor, hybrid)
    expect(page.locator(f"{TREE} .layer_0_marks line")).to_have_count(6)
    expect(page.locator(f"{TREE} .layer_2_marks path")).to_have_count(3)


def test_another_group_is_described(visitor: Visitor, hybrid: str) -> None:
    page = card(visitor, hybrid)
    expect(page.get_by_role("heading", name="Decoder, layers 1 and 4")).to_be_visible()
    page.get_by_role("combobox", name="Layers").click()
    page.get_by_role("option", name="layers 0, 2 and 3").click()
    expect(page.get_by_role("heading", name="Decoder, layers 0, 2 and 3")).to_be_visible()
    expect(page.locator(TREE)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_words_of_charts_can_be_read(visitor: Visitor, hybrid: str, scheme: Scheme) -> None:
    page = card(visitor, hybrid, scheme=scheme)
    for chart in page.get_by_test_id("stVegaLiteChart").all():
        found = words(chart)
        assert found
        assert [(word.text, word.contrast) for word in found if word.contrast < 4.5] == []


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_is_no_wider_than_the_screen(visitor: Visitor, hybrid: str, width: int) -> None:
    page = card(visitor, hybrid, width)
    wide, room = page.get_by_test_id("stMain").evaluate("main => [main.scrollWidth, innerWidth]")
    assert wide <= room == width
    for chart in page.get_by_test_id("stVegaLiteChart").all():
        box = chart.bounding_box()
        assert box
        assert box["x"] + box["width"] <= width


def test_every_layer_can_be_unfolded_as_a_table(visitor: Visitor, hybrid: str) -> None:
    page = card(visitor, hybrid)
    page.get_by_text("Every layer as a table").click()
    expect(page.get_by_test_id("stDataFrame")).to_be_visible()


def test_of_a_model_that_cannot_be_read_the_rest_is_told(visitor: Visitor, tmp_path: Path) -> None:
    page = card(visitor, saved_models.save(tmp_path / "mamba", "mamba"))
    expect(page.get_by_test_id("stAlert")).to_contain_text("no softmax attention")
    expect(page.locator(f"{LAYERS} .layer_2_marks line")).to_have_count(3)
    expect(page.get_by_text("0 of 3")).to_be_visible()
