"""The strips of layers: each mark in its place, read and unread told apart without colour."""

from __future__ import annotations

import pandas as pd
import vl_convert

from attnviz.charts import layer_strips, theme


def marks(*strips: str) -> pd.DataFrame:
    """A letter for each layer: G all, L a window, x unread; capitals with a * are chosen."""
    rows = [
        {
            "strip": strip,
            "name": f"tower {strip}",
            "layer": layer,
            "state": "not read" if letter == "x" else "read",
            "sees": "global",
            "height": 0.5 if letter == "L" else 1.0,
            "chosen": letter == "L",
            "told": "verified to 2e-07",
        }
        for strip, letters in enumerate(strips)
        for layer, letter in enumerate(letters)
    ]
    return pd.DataFrame(rows)


def drawn(*strips: str) -> dict:
    return layer_strips.layer_strips(marks(*strips)).to_dict()


def rows(spec: dict, index: int) -> list[dict]:
    """The data of one part of the drawing, after its filter."""
    layer = spec["layer"][index]
    data = spec["datasets"][layer.get("data", spec.get("data"))["name"]]
    test = layer.get("transform", [{}])[0].get("filter", "")
    if "!==" in test:
        return [row for row in data if row["state"] != "read"]
    return [row for row in data if row["state"] == "read"] if "===" in test else data


def test_a_mark_stands_at_its_layer_and_ends_on_the_floor_of_its_strip():
    spec = drawn("GLG", "xG")
    read = rows(spec, 0)
    assert [(row["strip"], row["layer"]) for row in read] == [(0, 0), (0, 1), (0, 2), (1, 1)]
    for row in read:
        assert row["layer"] < row["left"] < row["right"] < row["layer"] + 1
        assert row["strip"] < row["top"] < row["bottom"] < row["strip"] + 1
    whole, window = read[0], read[1]
    assert whole["bottom"] == window["bottom"]
    assert 2 * (window["bottom"] - window["top"]) == whole["bottom"] - whole["top"]


def test_an_unread_layer_has_no_filling_and_a_line_from_corner_to_corner():
    spec = drawn("GxG")
    _, outline, line, *_ = spec["layer"]
    assert outline["mark"]["fill"] == "transparent"
    assert outline["mark"]["stroke"] == line["mark"]["stroke"] == theme.UNREAD
    assert [row["layer"] for row in rows(spec, 1)] == [1]
    assert {line["encoding"][channel]["field"] for channel in ("x", "x2", "y", "y2")} == {
        *("left", "right", "top", "bottom"),
    }


def test_the_chosen_layers_are_underlined():
    spec = drawn("GLGL")
    underline = rows(spec, 3)
    assert [(row["left"], row["right"]) for row in underline] == [(1, 2), (3, 4)]
    assert all(row["top"] > row["bottom"] for row in underline)


def test_two_layers_are_no_wider_than_a_sixth_of_the_picture():
    axis = drawn("GG")["layer"][0]["encoding"]["x"]
    assert axis["scale"]["domain"] == [0, 12]
    assert drawn("G" * 30)["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 30]


def test_renders_with_the_number_of_every_layer_and_the_name_of_every_tower():
    svg = vl_convert.vegalite_to_svg(drawn("GxL", "G"))
    for word in ("tower 0", "tower 1", ">0<", ">1<", ">2<", "layer"):
        assert word in svg


def test_an_unread_model_renders_too():
    assert "tower 0" in vl_convert.vegalite_to_svg(drawn("xxx"))


def test_equal_input_gives_equal_charts():
    assert drawn("GxL", "G") == drawn("GxL", "G")
