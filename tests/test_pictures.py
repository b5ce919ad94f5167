"""Pictures: what a model sees of them, and what its tokens are called."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil, ResNetConfig, ViTConfig, ViTImageProcessorPil

from attnviz import pictures
from attnviz.pictures import Picture, UnusablePicture, opened, patch_tokens, prepare


def picture(height: int, width: int, patch: tuple[int, int] = (7, 7)) -> Picture:
    return Picture(
        torch.zeros(1, 3, height, width), Image.new("RGB", (width, height)), patch, False
    )


def file(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def checks(width: int, height: int) -> Image.Image:
    """A picture whose every pixel tells where it is."""
    down, across = np.indices((height, width))
    return Image.fromarray(
        np.stack([down * 5, across * 3, down + across], axis=-1).astype(np.uint8)
    )


def test_patches_are_named_row_by_row_behind_cls_and_registers():
    tokens = patch_tokens(picture(14, 21), count=1 + 2 + 6, registers=2)
    assert tokens is not None
    assert tokens.labels == (
        *("[CLS]", "[REG0]", "[REG1]"),
        *("r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2"),
    )
    assert tokens.special == (True, True, True, *[False] * 6)


@pytest.mark.parametrize(
    ("count", "registers", "first"),
    [(6, 0, "r0c0"), (7, 0, "[CLS]"), (8, 0, "[CLS]"), (8, 2, "[REG0]")],
)
def test_what_stands_before_the_patches(count: int, registers: int, first: str):
    tokens = patch_tokens(picture(14, 21), count, registers)
    assert tokens is not None
    assert tokens.labels[0] == first
    assert tokens.labels[-1] == "r1c2"


@pytest.mark.parametrize("count", [5, 9, 49])
def test_tokens_that_do_not_fit_the_grid_get_no_place(count: int):
    assert patch_tokens(picture(14, 21), count) is None


def test_grid_of_patches_that_are_not_square():
    assert picture(30, 28, patch=(5, 7)).grid == (6, 4)


def test_without_a_processor_colours_run_from_minus_one_to_one():
    config = ViTConfig(image_size=(12, 20), patch_size=4)
    seen = prepare(checks(20, 12), config)
    assert seen.pixels.shape == (1, 3, 12, 20)
    assert not seen.own_processor
    assert seen.grid == (3, 5)
    # Pixel in row 6, column 9 holds (30, 27, 15), and is not moved: the size is already right.
    assert seen.pixels[0, :, 6, 9].tolist() == pytest.approx(
        [2 * 30 / 255 - 1, 2 * 27 / 255 - 1, 2 * 15 / 255 - 1], abs=1e-6
    )
    np.testing.assert_array_equal(np.asarray(seen.seen), np.asarray(checks(20, 12)))


def test_a_models_own_processor_decides():
    mean, deviation = [0.1, 0.2, 0.3], [0.5, 0.25, 0.125]
    processor = ViTImageProcessorPil(
        size={"height": 28, "width": 28}, image_mean=mean, image_std=deviation
    )
    config = ViTConfig(image_size=28, patch_size=7)
    ours = prepare(Image.new("RGB", (50, 30), (51, 102, 153)), config, processor)
    assert ours.own_processor
    expected = [(0.2 - 0.1) / 0.5, (0.4 - 0.2) / 0.25, (0.6 - 0.3) / 0.125]
    assert ours.pixels[0, :, 13, 20].tolist() == pytest.approx(expected, abs=1e-5)
    assert ours.seen.getpixel((20, 13)) == (51, 102, 153)


def test_what_is_seen_is_cut_as_the_model_sees_it():
    """CLIP cuts out the middle: a picture twice as wide loses a quarter at each side."""
    image = Image.new("RGB", (56, 28), "red")
    image.paste("blue", (14, 0, 42, 28))
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}
    )
    seen = prepare(image, ViTConfig(image_size=28, patch_size=7), processor).seen
    assert seen.size == (28, 28)
    assert {seen.getpixel((x, 14)) for x in (1, 14, 26)} == {(0, 0, 255)}


def test_grey_models_get_one_channel():
    config = ViTConfig(image_size=8, patch_size=4, num_channels=1)
    seen = prepare(Image.new("RGB", (8, 8), "white"), config)
    assert seen.pixels.shape == (1, 1, 8, 8)
    assert seen.seen.getpixel((0, 0)) == (255, 255, 255)


def test_a_model_without_patches_is_told():
    with pytest.raises(UnusablePicture, match="one grid of patches"):
        prepare(checks(8, 8), ResNetConfig())


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_png_and_jpeg_open(kind: str):
    image = opened(file(checks(31, 17), kind))
    assert image.size == (31, 17)
    assert image.mode == "RGB"


def test_a_photograph_taken_sideways_is_turned():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    buffer = io.BytesIO()
    checks(31, 17).save(buffer, "JPEG", exif=exif)
    assert opened(buffer.getvalue()).size == (17, 31)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "cannot be read as a PNG or JPEG"),
        (b"no picture at all", "cannot be read as a PNG or JPEG"),
        (file(checks(31, 17))[:60], "cannot be read as a PNG or JPEG"),
        (file(checks(31, 17), "GIF"), "cannot be read as a PNG or JPEG"),
        (b"\x89PNG" + bytes(5_000_001), "5.0 MB; at most 5 MB"),
    ],
    ids=["empty", "words", "cut short", "gif", "large"],
)
def test_files_that_are_no_use_get_a_sentence(data: bytes, told: str):
    with pytest.raises(UnusablePicture, match=told) as problem:
        opened(data)
    assert str(problem.value).endswith(".")


def grey(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values.astype(np.uint16))


def seen_through(mode: str) -> Image.Image:
    """Red, wholly there at the left, and wholly transparent at the right."""
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (255, 0, 0, 0))
    return image.convert(mode) if mode != "P" else image.quantize(4)


@pytest.mark.parametrize(
    ("mode", "there"), [("RGBA", (255, 0, 0)), ("P", (255, 0, 0)), ("LA", (76, 76, 76))]
)
def test_what_is_transparent_lets_white_through(mode: str, there: tuple[int, int, int]):
    image = opened(file(seen_through(mode)))
    assert image.mode == "RGB"
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [there, (255, 255, 255)]


def test_half_transparent_is_half_white():
    assert opened(file(Image.new("RGBA", (1, 1), (0, 0, 0, 51)))).getpixel((0, 0)) == (204,) * 3


@pytest.mark.parametrize(("mode", "clear"), [("RGB", (9, 8, 7)), ("L", 9)])
def test_one_colour_may_be_the_transparent_one(mode: str, clear: int | tuple[int, ...]):
    buffer = io.BytesIO()
    Image.new(mode, (2, 2), clear).save(buffer, "PNG", transparency=clear)
    assert opened(buffer.getvalue()).getpixel((0, 0)) == (255, 255, 255)


def test_grey_of_16_bits_is_scaled_not_clipped():
    image = opened(file(grey(np.array([[0, 257 * 100, 65535]]))))
    assert [image.getpixel((x, 0)) for x in range(3)] == [(0,) * 3, (100,) * 3, (255,) * 3]


@pytest.mark.parametrize("side", [5000, 12_000, 20_000])
def test_more_pixels_than_memory_holds_are_refused_from_the_header(
    side: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pictures.ImageOps, "exif_transpose", lambda image: pytest.fail("opened"))
    bomb = file(Image.new("1", (side, side)))
    assert len(bomb) < 5_000_000
    with pytest.raises(UnusablePicture, match="pixels; at most 20 million can be read"):
        opened(bomb)
