"""Weights over a picture: each patch in its place, the picture under it."""

from __future__ import annotations

import base64
import io

import pandas as pd
import pytest
import torch
import vl_convert
from PIL import Image

from attnviz import frames
from attnviz.charts import overlay

GRID = (2, 3)


@pytest.fixture
def spec() -> dict:
    keys = frames.token_axis(
        ["[CLS]", *(f"r{row}c{column}" for row in range(2) for column in range(3))],
        [True, *[False] * 6],
    )
    weights = torch.tensor([[0.4, 0.0, 0.1, 0.05, 0.2, 0.05, 0.2]])
    patches = frames.patch_weights(frames.weight_matrix(weights).loc[0], keys, GRID)
    picture = Image.new("RGB", (21, 14), "black")
    picture.paste("white", (0, 0, 7, 7))
    return overlay.patch_overlay(picture, patches, GRID, (1, 2)).to_dict()


def rows(spec: dict, layer: int) -> list[dict]:
    return spec["datasets"][spec["layer"][layer]["data"]["name"]]


def test_each_patch_is_a_square_in_its_place(spec: dict):
    squares = pd.DataFrame(rows(spec, 1)).set_index("patch")
    assert squares.loc["r1c2"].tolist() == pytest.approx([0.2, 2, 3, 1, 2])
    assert squares.loc["r0c1", ["left", "right", "top", "bottom"]].tolist() == [1, 2, 0, 1]
    assert squares.loc["r0c1", "weight"] == pytest.approx(0.1)
    assert len(squares) == 6


def test_colours_run_from_nothing_to_the_largest_patch(spec: dict):
    scale = spec["layer"][1]["encoding"]["color"]["scale"]
    assert scale["domain"] == pytest.approx([0, 0.2])  # not the 0.4 of [CLS]
    assert scale["scheme"] == "viridis"


def test_the_picture_lies_under_the_whole_grid(spec: dict):
    (whole,) = rows(spec, 0)
    assert (whole["left"], whole["right"], whole["top"], whole["bottom"]) == (0, 3, 0, 2)
    png = base64.b64decode(whole["picture"].removeprefix("data:image/png;base64,"))
    image = Image.open(io.BytesIO(png))
    assert image.width * 2 == image.height * 3
    assert (image.getpixel((2, 2)), image.getpixel((image.width - 2, 2))) == (255, 0)


def test_the_patch_that_looks_is_outlined(spec: dict):
    (outline,) = rows(spec, 2)
    assert outline == {"left": 2, "right": 3, "top": 1, "bottom": 2}


def test_patches_are_square_whatever_the_grid(spec: dict):
    sides = {parameter["name"]: parameter["expr"] for parameter in spec["params"]}
    assert sides["width"].endswith("* 1")
    assert sides["height"].endswith("* 0.6667")


def test_renders_outside_a_browser(spec: dict):
    assert vl_convert.vegalite_to_svg(spec).count("<path") >= 7
