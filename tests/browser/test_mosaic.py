"""The mosaic of all heads in headless Chromium, on a page that holds little else."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect

from attnviz.charts import mosaic
from browser import mosaic_page
from browser.visiting import Scheme, Visitor, Word, rgb, suspicious_lines
from scripts.running_app import RunningApp, running_app

pytestmark = pytest.mark.browser

GAP, FAMILY_GAP = 2, 8
COVERED = (128, 128, 128, 64)
OWN = "weight on itself"


@pytest.fixture(scope="module")
def app(browser: Browser) -> Iterator[RunningApp]:
    """The page as a server of its own, whose log must be clean when it has stopped."""
    with running_app(mosaic_page.__file__) as started:
        started.wait()
        yield started
        started.stop()
        assert suspicious_lines(started.log()) == []


def opened(
    visitor: Visitor,
    *,
    width: int = 1400,
    scheme: Scheme = "light",
    touch: bool = False,
    **asked: int | str,
) -> Page:
    """A page whose mosaic is drawn."""
    link = "&".join(f"{name}={str(value).replace(' ', '+')}" for name, value in asked.items())
    page = visitor.open(f"?{link}", width, scheme, touch)
    expect(page.locator(".plot .chosen").first).to_be_visible()
    return page


def box_of(place: Locator) -> FloatRect:
    box = place.bounding_box()
    assert box
    return box


def corners(place: Locator) -> tuple[float, float, float, float]:
    box = box_of(place)
    return box["x"], box["y"], box["width"], box["height"]


def middle(page: Page, layer: int, head: int) -> tuple[float, float]:
    """Where a head of the first part stands, reckoned from the frame of layer 1, head 2."""
    x, y, wide, high = corners(page.locator(".plot .chosen").first)
    return x + (head - 2) * (wide + GAP) + wide / 2, y + (layer - 1) * (high + GAP) + high / 2


def expect_python_holds(page: Page, part: str, layer: int, head: int) -> None:
    told = f"Python holds ('{part}', {layer}, {head}), told"
    expect(page.get_by_text(told)).to_be_visible()


def reading(page: Page) -> Locator:
    return page.locator(".mosaic .reading")


def pixels(page: Page, at: int = 0) -> np.ndarray:
    """The pixels of one part's canvas in red, green, blue, opacity."""
    url = page.locator(".plot > canvas").nth(at).evaluate("canvas => canvas.toDataURL()")
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


def expected_tile(cells: np.ndarray, high: int, wide: int) -> np.ndarray:
    """Each dot has the largest of its cells where there are fewer dots, else its own cell's."""
    shades = mosaic.shading([]).shades(cells).astype(int)
    shades[shades == mosaic.HIDDEN] = -1
    down, across = shades.shape
    dots = np.full((min(down, high), min(across, wide)), -1)
    for row, column in np.ndindex(shades.shape):
        dot = row * len(dots) // down, column * dots.shape[1] // across
        dots[dot] = max(dots[dot], shades[row, column])
    rows, columns = (
        np.arange(px) * n // px for px, n in zip((high, wide), dots.shape, strict=True)
    )
    tile = dots[rows[:, None], columns]
    return np.where((tile < 0)[..., None], COVERED, mosaic.palette()[tile])


def check_tiles(page: Page, at: int, of: mosaic.PartOfHeads, left: int, top: int) -> None:
    """Every head of a part has its own pixels, if it stands where the axes say."""
    image = pixels(page, at)
    ratio = page.evaluate("devicePixelRatio")
    frame = page.locator(".plot .chosen").first if at == 0 else None
    wide, high = size_of(frame) if frame else sides(page, at, of)
    lefts = left + np.arange(len(mosaic.gaps(of))) * wide + np.cumsum(mosaic.gaps(of))
    for layer, thumbnails in of.thumbnails.items():
        y = round((top + of.layers.index(layer) * (high + GAP)) * ratio)
        for head, cells in enumerate(thumbnails):
            x = round(float(lefts[head]) * ratio)
            size = round(high * ratio), round(wide * ratio)
            tile = image[y : y + size[0], x : x + size[1]].astype(int)
            wanted = expected_tile(cells, *size).astype(int)
            # Half transparent pixels are rounded when they are read back.
            assert np.abs(tile - wanted).max() <= 2, (layer, head)


def size_of(frame: Locator) -> tuple[float, float]:
    box = box_of(frame)
    return box["width"], box["height"]


def sides(page: Page, at: int, of: mosaic.PartOfHeads) -> tuple[float, float]:
    """A head's width and height, from the size of the whole part."""
    box = box_of(page.locator(".plot").nth(at))
    heads, layers = len(mosaic.gaps(of)), len(of.layers)
    wide = (box["width"] - 46 - 7 - sum(mosaic.gaps(of))) / heads
    return wide, (box["height"] - 22 - 2 - (layers - 1) * GAP) / layers


# --- what is drawn


@pytest.mark.parametrize(
    ("asked", "width"),
    [
        ({}, 1400),
        ({"layers": 12, "heads": 12, "side": 40}, 1400),
        ({"layers": 12, "heads": 12, "side": 40}, 390),
        ({"layers": 7, "heads": 12, "kv_heads": 4, "side": 9, "unread": 1}, 900),
    ],
    ids=str,
)
def test_each_head_has_the_pixels_of_its_weights(
    visitor: Visitor, asked: dict[str, int], width: int
) -> None:
    page = opened(visitor, width=width, **asked)
    (of,) = mosaic_page.parts(mosaic_page.USUAL | asked)
    grouped = "kv_heads" in asked
    check_tiles(page, 0, of, 62 if grouped else 46, 40 if grouped else 22)


def test_each_part_has_its_own_picture_under_its_heading(visitor: Visitor) -> None:
    page = opened(visitor, two=1)
    parts = mosaic_page.parts(mosaic_page.USUAL | {"two": 1})
    for at, of in enumerate(parts):
        expect(page.locator(".part .heading").nth(at)).to_have_text(of.title)
        check_tiles(page, at, of, 46, 22)
    expect(reading(page)).to_contain_text("decoder, layer 1, head 2")


def test_one_part_needs_no_heading(visitor: Visitor) -> None:
    page = opened(visitor)
    expect(page.locator(".part .heading")).to_be_hidden()
    expect(page.locator(".scale")).to_contain_text("square-root scale")
    expect(page.locator(".scale")).to_contain_text("hidden by the mask")
    assert page.locator(".scale .tick").all_inner_texts() == ["0", "0.1", "0.25", "0.5", "1"]


def test_a_statistic_colours_whole_heads_and_nothing_moves(visitor: Visitor) -> None:
    page = opened(visitor)
    before = corners(page.locator(".plot .chosen"))
    canvas = corners(page.locator(".plot"))
    page.get_by_role("combobox", name="Colour").click()
    page.get_by_role("option", name=OWN).click()
    expect(page.locator(".scale .title")).to_have_text(OWN)
    expect(page.locator(".scale > .hidden")).to_be_hidden()
    assert corners(page.locator(".plot .chosen")) == before
    assert corners(page.locator(".plot")) == canvas
    (of,) = mosaic_page.parts(mosaic_page.USUAL)
    values = of.table[OWN].to_numpy().reshape(5, 6)
    assert page.locator(".scale .tick").all_inner_texts() == [
        f"{values.min():.3g}",
        f"{values.max():.3g}",
    ]
    image = pixels(page)
    wide, high = size_of(page.locator(".plot .chosen"))
    for layer, head in np.ndindex(values.shape):
        x, y = 46 + head * (wide + GAP), 22 + layer * (high + GAP)
        tile = image[round(y) : round(y + high), round(x) : round(x + wide)]
        span = values.max() - values.min()
        shade = round((values[layer, head] - values.min()) / span * 127)
        assert (tile == mosaic.palette()[shade]).all(), (layer, head)
    expect(reading(page)).to_have_text(f"layer 1, head 2 · {OWN} {values[1, 2]:g}")


def test_in_order_of_a_statistic_the_first_is_the_highest(visitor: Visitor) -> None:
    page = opened(visitor, order=OWN)
    (of,) = mosaic_page.parts(mosaic_page.USUAL)
    best = of.table.sort_values(OWN, ascending=False)
    wide, _ = size_of(page.locator(".plot .chosen"))
    x, y = corners(page.locator(".plot"))[:2]
    for place in (0, 1, 2):
        page.mouse.move(x + 4 + place * (wide + GAP) + wide / 2, y + 4 + wide / 2)
        row = best.iloc[place]
        said = f"layer {row['layer']:g}, head {row['head']:g} · {OWN} {row[OWN]:g}"
        expect(reading(page)).to_have_text(said)
    first = of.thumbnails[int(best["layer"].iloc[0])][int(best["head"].iloc[0])]
    tile = pixels(page)[4 : 4 + round(wide), 4 : 4 + round(wide)].astype(int)
    assert np.abs(tile - expected_tile(first, *tile.shape[:2])).max() <= 2


def test_unread_layers_say_so_and_are_passed_over(visitor: Visitor) -> None:
    page = opened(visitor, unread=1)
    x, y = middle(page, 4, 3)
    page.mouse.move(x, y)
    expect(reading(page)).to_contain_text("layer 1, head 2")
    page.mouse.click(x, y)
    page.wait_for_timeout(300)
    expect_python_holds(page, "decoder", 1, 2)


# --- choosing


def test_a_click_opens_the_head_under_it(visitor: Visitor) -> None:
    page = opened(visitor, layers=12, heads=12, side=40)
    for layer, head in ((3, 7), (0, 0), (11, 11)):
        frame = corners(page.locator(".plot .chosen"))
        held = re.search(r"\((.*)\)", page.get_by_text("Python holds").inner_text())
        assert held
        _, was_layer, was_head = held[1].split(", ")
        wide, high = frame[2:]
        x = frame[0] + (head - int(was_head)) * (wide + GAP) + wide / 2
        y = frame[1] + (layer - int(was_layer)) * (high + GAP) + high / 2
        page.mouse.click(x, y)
        expect_python_holds(page, "decoder", layer, head)
        found = corners(page.locator(".plot .chosen"))
        np.testing.assert_allclose(found, (x - wide / 2, y - high / 2, wide, high), atol=0.6)
    expect(page.get_by_text("told 3 times")).to_be_visible()


def test_a_click_does_not_send_the_picture_again(visitor: Visitor) -> None:
    page = visitor.page()
    received: list[str | bytes] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(frame))
    )
    page.goto(f"{visitor.app.address}/?layers=12&heads=12&side=40")
    expect(page.locator(".plot .chosen")).to_be_visible()
    assert 50_000 < sum(map(len, received)) < 300_000
    received.clear()
    page.mouse.click(*middle(page, 3, 4))
    expect_python_holds(page, "decoder", 3, 4)
    assert sum(map(len, received)) < 30_000


def test_keys_move_and_enter_opens(visitor: Visitor) -> None:
    page = opened(visitor)
    page.locator(".plot").focus()
    for key, layer, head in (
        *(("ArrowRight", 1, 3), ("ArrowDown", 2, 3), ("ArrowLeft", 2, 2)),
        *(("ArrowUp", 1, 2), ("ArrowUp", 0, 2), ("ArrowUp", 0, 2)),
    ):
        page.keyboard.press(key)
        expect(reading(page)).to_contain_text(f"layer {layer}, head {head}")
        expect(page.locator(".mosaic #told")).to_contain_text(f"layer {layer}, head {head}")
    expect_python_holds(page, "decoder", 1, 2)
    page.keyboard.press("Enter")
    expect_python_holds(page, "decoder", 0, 2)
    expect(page.locator(".mosaic #told")).to_contain_text(", open")
    expect(page.locator(".plot")).to_be_focused()
    expect(page.get_by_role("application")).to_have_accessible_name(
        re.compile(r"decoder: .*: All heads\. Arrow keys move from head to head, Enter opens one\.")
    )


def test_keys_go_on_from_where_they_were_after_python_has_run(visitor: Visitor) -> None:
    page = opened(visitor)
    page.locator(".plot").focus()
    for key in ("ArrowRight", "Enter", "ArrowDown", "Enter", "ArrowRight"):
        page.keyboard.press(key)
        page.wait_for_timeout(200)
    expect_python_holds(page, "decoder", 2, 3)
    expect(reading(page)).to_contain_text("layer 2, head 4")
    expect(page.locator(".plot .pointed")).to_be_visible()


def test_keys_in_an_order_follow_it(visitor: Visitor) -> None:
    page = opened(visitor, order=OWN)
    (of,) = mosaic_page.parts(mosaic_page.USUAL)
    order = of.table.iloc[mosaic.ranked(of, OWN)]
    places = list(zip(order["layer"], order["head"], strict=True))
    page.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    layer, head = places[places.index((1, 2)) + 1]
    expect(reading(page)).to_contain_text(f"layer {layer}, head {head} ")


def test_keys_reach_every_part(visitor: Visitor) -> None:
    page = opened(visitor, two=1)
    page.locator(".plot").nth(1).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_python_holds(page, "cross", 1, 1)
    expect(page.locator(".plot .chosen").first).to_be_hidden()
    expect(page.locator(".plot .chosen").nth(1)).to_be_visible()


def test_python_moves_the_frame(visitor: Visitor) -> None:
    page = opened(visitor)
    x, y = middle(page, 0, 0)
    page.get_by_role("button", name="Choose the first").click()
    expect(reading(page)).to_contain_text("layer 0, head 0")
    left, top, wide, high = corners(page.locator(".plot .chosen"))
    np.testing.assert_allclose((left + wide / 2, top + high / 2), (x, y), atol=0.6)


def test_families_are_told(visitor: Visitor) -> None:
    page = opened(visitor, heads=12, kv_heads=4)
    expect(reading(page)).to_contain_text("layer 1, head 2 · kv_head 0 · ")
    x, y = middle(page, 1, 3)
    page.mouse.move(x + FAMILY_GAP - GAP, y)
    expect(reading(page)).to_contain_text("layer 1, head 3 · kv_head 1 · ")
    page.mouse.move(x + FAMILY_GAP - GAP, 5)
    expect(reading(page)).to_contain_text("head 2")


# --- narrow, dark, many


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_many_heads_on_a_phone_scroll_within_the_picture(visitor: Visitor, scheme: Scheme) -> None:
    asked = {"layers": 48, "heads": 40, "kv_heads": 8, "side": 10}
    page = opened(visitor, width=390, scheme=scheme, touch=True, **asked)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    scroll = page.locator(".part .scroll")
    assert scroll.evaluate("one => one.scrollWidth > one.clientWidth")
    wide, high = size_of(page.locator(".plot .chosen"))
    assert wide >= 10
    assert high >= 10
    page.locator(".plot").focus()
    for _ in range(37):
        page.keyboard.press("ArrowRight")
    expect(reading(page)).to_contain_text("layer 1, head 39 · kv_head 7")
    frame, room = box_of(page.locator(".plot .pointed")), box_of(scroll)
    assert room["x"] <= frame["x"]
    assert frame["x"] + frame["width"] <= room["x"] + room["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_read_in_both_themes(visitor: Visitor, scheme: Scheme) -> None:
    page = opened(visitor, scheme=scheme)
    behind = rgb(
        page.locator("[data-testid=stApp]").evaluate("e => getComputedStyle(e).backgroundColor")
    )
    for place in (".reading", ".scale .title", ".tick"):
        colour = rgb(page.locator(place).first.evaluate("e => getComputedStyle(e).color"))
        assert Word(place, colour, behind).contrast > 7
    labels = pixels(page)[:18, 50:]  # the numbers of the heads
    darkest = labels[labels[..., 3] > 250][:, :3]
    assert len(darkest)
    assert max(Word("", tuple(c), behind).contrast for c in darkest.tolist()) > 7


def test_a_narrower_window_keeps_all_heads(visitor: Visitor) -> None:
    page = opened(visitor, layers=12, heads=12, side=40)
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator(".plot")).to_have_css("width", re.compile("^3[0-6]"))
    (of,) = mosaic_page.parts(mosaic_page.USUAL | {"layers": 12, "heads": 12, "side": 40})
    check_tiles(page, 0, of, 46, 22)
