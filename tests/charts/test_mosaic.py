"""The mosaic: each head's pixels are its own cells, where the axes say that it stands."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import vl_convert
from PIL import Image

from attnviz.charts import mosaic
from attnviz.charts.mosaic import PartOfHeads, Shading

LAYERS, HEADS, DOWN, ACROSS = 3, 5, 11, 13
OWN, BEFORE = "weight on itself", "weight on the previous token"
LABEL = re.compile(r'<text[^>]* transform="translate\(([-\d.]+),([-\d.]+)\)[^>]*>(\d+)</text>')
GUTTER, COVERED = (0, 0, 0, 0), (128, 128, 128, 64)


def part(
    heads: int = HEADS,
    kv_heads: int | None = None,
    shape: tuple[int, int] = (DOWN, ACROSS),
    unread: tuple[int, ...] = (),
    layers: int = LAYERS,
) -> PartOfHeads:
    dice = np.random.default_rng(7)
    read = [layer for layer in range(layers) if layer not in unread]
    group = heads // (kv_heads or heads)
    rows = [(layer, head, head // group) for layer in read for head in range(heads)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kv_head"])
    for statistic in (OWN, BEFORE):
        table[statistic] = dice.random(len(table))
    weights = {layer: dice.random((heads, *shape), dtype=np.float32) ** 2 for layer in read}
    return PartOfHeads("decoder", "decoder: tokens", weights, table, unread)


def pictures(spec: dict) -> list[np.ndarray]:
    """The images of a chart in red, green, blue, opacity; the last one is the legend's."""
    urls = [
        row["picture"] for rows in spec["datasets"].values() for row in rows if "picture" in row
    ]
    found = [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]
    images = [np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")) for png in found]
    return sorted(images, key=len, reverse=True)


def viridis(shade: np.ndarray) -> np.ndarray:
    return mosaic.palette()[shade]


def svg_of(spec: dict) -> str:
    return vl_convert.vegalite_to_svg(spec)


def tiles(
    image: np.ndarray, size: tuple[int, int], lefts: list[int], tops: list[int]
) -> Iterator[tuple[int, int, np.ndarray]]:
    for layer, top in enumerate(tops):
        for head, left in enumerate(lefts):
            yield layer, head, image[top : top + size[0], left : left + size[1]]


def test_each_head_has_the_colours_of_its_square_roots_where_its_layer_and_head_cross():
    of = part()
    image = pictures(mosaic.mosaic([of]).to_dict())[0]
    # A gutter of two px on screen is one of this image, since each of its px takes three.
    lefts, tops = [14 * head for head in range(HEADS)], [12 * at for at in range(LAYERS)]
    for layer, head, tile in tiles(image, (DOWN, ACROSS), lefts, tops):
        shades = np.rint(np.sqrt(of.thumbnails[layer][head]) * 127).astype(int)
        np.testing.assert_array_equal(tile, viridis(shades))
    assert (image[11] == GUTTER).all()
    assert (image[:, 13] == GUTTER).all()
    assert image.shape == (tops[-1] + DOWN, lefts[-1] + ACROSS, 4)


def test_axes_name_layers_and_heads_in_the_middle_of_their_rows_and_columns():
    spec = mosaic.mosaic([part()]).to_dict()
    encoding = spec["vconcat"][0]["layer"][0]["encoding"]
    for channel, title, count, pitch, side in (
        ("x", "head", HEADS, 14, ACROSS),
        ("y", "layer", LAYERS, 12, DOWN),
    ):
        axis = encoding[channel]["axis"]
        assert axis["title"] == title
        assert axis["values"] == [pitch * at + side / 2 for at in range(count)]
    labels = [(float(x), float(y), int(word)) for x, y, word in LABEL.findall(svg_of(spec))]
    assert [word for *_, word in sorted(labels[:HEADS])] == list(range(HEADS))
    down = sorted(labels[HEADS : HEADS + LAYERS], key=lambda label: label[1])
    assert [word for *_, word in down] == list(range(LAYERS))


def test_heads_that_read_the_same_keys_stand_close_together():
    assert mosaic.gaps(part(6, 6)) == [0, 2, 2, 2, 2, 2]
    assert mosaic.gaps(part(6, 2)) == [0, 2, 2, 8, 2, 2]
    assert mosaic.gaps(part(6, 1)) == [0, 2, 2, 2, 2, 2]
    image = pictures(mosaic.mosaic([part(6, 2)]).to_dict())[0]
    assert image.shape[1] == 6 * ACROSS + 4 * 1 + 3  # at three px of screen each


def test_what_is_hidden_is_grey_on_any_page():
    of = part(shape=(13, 13))
    for weights in of.thumbnails.values():
        weights[:, *np.triu_indices(13, 1)] = np.nan
    image = pictures(mosaic.mosaic([of]).to_dict())[0]
    assert (image[0, 1:13] == COVERED).all()
    assert (image[12, :13, 3] == 255).all()


def test_an_unread_layer_is_hatched_and_says_so():
    spec = mosaic.mosaic([part(unread=(1,))]).to_dict()
    image = pictures(spec)[0]
    row = image[12:23].reshape(-1, 4)
    assert {tuple(colour) for colour in row.tolist()} == {GUTTER, COVERED}
    assert ">not read<" in svg_of(spec)
    assert (image[24:35, :13, 3] == 255).all()


def test_a_statistic_is_one_colour_a_head_over_its_own_range():
    of = part()
    spec = mosaic.mosaic([of], colour=OWN).to_dict()
    values = of.table[OWN].to_numpy().reshape(LAYERS, HEADS)
    low, high = values.min(), values.max()
    image = pictures(spec)[0]
    for layer, head, tile in tiles(
        image, (10, 10), [11 * at for at in range(HEADS)], [11 * at for at in range(LAYERS)]
    ):
        shade = round((values[layer, head] - low) / (high - low) * 127)
        assert (tile == viridis(np.array(shade))).all()
    written = svg_of(spec)
    assert f">{low:.3g}<" in written
    assert f">{high:.3g}<" in written
    assert f">{OWN}<" in written


def test_the_scale_of_patterns_is_written():
    written = svg_of(mosaic.mosaic([part()]).to_dict())
    for word in ("0", "0.1", "0.25", "0.5", "1", "largest weight in each cell, square-root scale"):
        assert f">{word}<" in written


def test_heads_in_falling_order_have_their_names():
    of = part()
    spec = mosaic.mosaic([of], order=BEFORE).to_dict()
    best = of.table.sort_values(BEFORE, ascending=False)
    names = [f"{layer}.{head}" for layer, head in zip(best["layer"], best["head"], strict=True)]
    found = re.findall(r">(\d\.\d)<", svg_of(spec))
    assert found[: len(names)] == names  # what follows stands at the colour scale
    first = of.thumbnails[best["layer"].iloc[0]][best["head"].iloc[0]]
    image = pictures(spec)[0]
    shades = np.rint(np.sqrt(first) * 127).astype(int)
    np.testing.assert_array_equal(image[:DOWN, :ACROSS], viridis(shades))


def test_heads_without_a_value_come_last_and_are_grey():
    of = part()
    of.table.loc[[2, 4], OWN] = np.nan
    assert mosaic.ranked(of, OWN)[-2:].tolist() == [2, 4]
    shades = mosaic.shaded(of, mosaic.shading([of], OWN), OWN)
    assert shades[0][:, 0, 0].tolist()[2] == mosaic.HIDDEN


def test_one_scale_for_all_parts():
    one, other = part(), part(3)
    other = replace(other, table=other.table.assign(**{OWN: other.table[OWN] + 4}))
    scale = mosaic.shading([one, other], OWN)
    assert scale.low == one.table[OWN].min()
    assert scale.high == other.table[OWN].max()
    assert len(pictures(mosaic.mosaic([one, other]).to_dict())) == 3


def test_shades_by_hand():
    root = Shading("", 0.0, 1.0, root=True)
    assert root.shades(np.array([0.0, 0.25, 1.0, np.nan])).tolist() == [0, 64, 127, 254]
    assert Shading("", 2.0, 4.0).shades(np.array([2.0, 3.0, 4.0])).tolist() == [0, 64, 127]
    assert Shading("", 2.0, 2.0).shades(np.array([2.0])).tolist() == [0]


def test_a_statistic_that_no_head_has():
    of = part()
    spec = mosaic.mosaic([replace(of, table=of.table.assign(sink=np.nan))], colour="sink")
    assert {tuple(c) for c in pictures(spec.to_dict())[0].reshape(-1, 4).tolist()} == {
        GUTTER,
        COVERED,
    }


@pytest.mark.parametrize(
    ("layers", "heads", "side"), [(12, 12, 40), (6, 12, 40), (48, 40, 10)], ids=str
)
@pytest.mark.parametrize("order", [None, OWN])
def test_any_number_of_heads_stays_small(layers: int, heads: int, side: int, order: str | None):
    of = part(heads, shape=(side, side), layers=layers)  # noise: nothing is harder to compress
    assert len(json.dumps(mosaic.mosaic([of], order=order).to_dict(validate=False))) < 300_000


def test_flat_pictures_of_cross_attention_keep_some_height():
    image = pictures(mosaic.mosaic([part(shape=(1, 40))]).to_dict())[0]
    assert image.shape[0] == LAYERS * 12 + 2 * 2


def test_renders_outside_a_browser():
    assert vl_convert.vegalite_to_png(mosaic.mosaic([part()]).to_dict())[:4] == b"\x89PNG"
