"""Pictures drawn by code, for models that look at pictures: always the same, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

SEED = 7


@dataclass(frozen=True)
class Drawing:
    """A picture that comes with the app, and what is on it."""

    title: str
    draw: Callable[[], Image.Image]


def _gradient(width: int, height: int) -> Image.Image:
    """A grey-blue slope from corner to corner, with a little seeded noise."""
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    slope = (across + down)[..., None] / 2
    ground = 70 + slope * np.array([90, 110, 140])
    noise = np.random.default_rng(SEED).normal(0, 4, ground.shape)
    return Image.fromarray((ground + noise).clip(0, 255).astype(np.uint8))


def _disc() -> Image.Image:
    image = _gradient(224, 224)
    ImageDraw.Draw(image).ellipse((118, 38, 188, 108), fill="#C8281E")
    return image


def _shapes() -> Image.Image:
    image = _gradient(336, 224)
    pen = ImageDraw.Draw(image)
    pen.rectangle((40, 110, 120, 190), fill="#F0E442")
    pen.polygon([(230, 40), (290, 150), (170, 150)], fill="#009E73")
    return image


def _stripes() -> Image.Image:
    image = _gradient(224, 224)
    pen = ImageDraw.Draw(image)
    for left in range(0, 112, 28):
        pen.rectangle((left, 0, left + 13, 223), fill="white")
    return image


DRAWINGS = {
    "disc": Drawing("A red disc", _disc),
    "shapes": Drawing("A square and a triangle", _shapes),
    "stripes": Drawing("Stripes on the left", _stripes),
}
