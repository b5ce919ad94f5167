"""Lines between two columns of tokens, against the weights that they stand for."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import vl_convert
from rendered import Rendered

from attnviz import frames
from attnviz.charts import lines, theme


def matrix(queries: int, keys: int, seed: int = 0) -> pd.DataFrame:
    """Seeded softmax rows."""
    exponentials = np.exp(np.random.default_rng(seed).normal(0, 2, (queries, keys)))
    return pd.DataFrame(exponentials / exponentials.sum(1, keepdims=True))


def axis(count: int, word: str = "␣the") -> pd.DataFrame:
    return frames.token_axis([word] * count)


def drawn(
    weights: pd.DataFrame, *more: pd.DataFrame, keys: pd.DataFrame | None = None
) -> tuple[dict, Rendered]:
    heads = [(f"L{at}H{at}", head) for at, head in enumerate((weights, *more))]
    queries, keys = axis(len(weights)), axis(weights.shape[1]) if keys is None else keys
    spec = lines.token_lines(heads, queries, keys).to_dict()
    return spec, Rendered(spec, theme.LINES_WIDTH)


def edges(rendered: Rendered) -> dict[tuple[int, int], float]:
    """The opacity of each line by the rows that it joins, read from the drawing."""
    found = {}
    rules = rendered._group("layer_0_marks")
    for (_, y, across, down), mark in zip(rendered.rules(0), rules, strict=True):
        start, end = (y, y + down) if across > 0 else (y + down, y)
        places = tuple(round(place / theme.TOKEN_ROW - 0.5, 3) for place in (start, end))
        found[places] = float(mark.get("stroke-opacity", mark.get("opacity", 1)))
        assert abs(across) == theme.LINES_WIDTH
    return found


def title(rendered: Rendered) -> str:
    (found,) = re.findall(r"Lines: [^.]*?attention", rendered.words())
    return found


def test_every_line_joins_its_tokens_and_is_as_strong_as_its_weight():
    weights = matrix(5, 7)
    _, rendered = drawn(weights)
    values = weights.to_numpy()
    assert edges(rendered) == pytest.approx(
        {(q, k): values[q, k] / values.max() for q, k in np.ndindex(5, 7)}, abs=1e-3
    )
    assert title(rendered) == "Lines: all of the attention"
    colours = {mark.get("stroke") for mark in rendered._group("layer_0_marks")}
    assert colours == {theme.REAL}


def test_of_many_keys_the_eight_strongest_are_drawn_and_their_share_is_told():
    weights = matrix(11, 23)
    _, rendered = drawn(weights)
    values = weights.to_numpy()
    strongest = [(q, k) for q in range(11) for k in np.argsort(-values[q])[:8]]
    assert edges(rendered).keys() == set(strongest)
    share = sum(values[cell] for cell in strongest) / values.sum()
    assert 0.5 < share < 0.99
    assert title(rendered) == (
        f"Lines: up to 8 keys of each query, {int(100 * share)} % of the attention"
    )


def test_hidden_and_empty_cells_have_no_line():
    weights = matrix(5, 5).where(np.tril(np.ones((5, 5), bool)))
    weights.iloc[4, 2] = 0.0
    _, rendered = drawn(weights)
    assert edges(rendered).keys() == {(q, k) for q in range(5) for k in range(q + 1)} - {(4, 2)}
    _, rendered = drawn(weights * np.nan)
    assert edges(rendered) == {}


def test_equal_words_stand_in_rows_of_their_own():
    _, rendered = drawn(matrix(200, 211))
    for layer, count in ((1, 200), (3, 211)):
        words = rendered.texts(layer)
        assert {word.words for word in words} == {"␣the"}
        assert [word.y for word in words] == pytest.approx(
            [theme.TOKEN_ROW * (at + 0.5) for at in range(count)], abs=6
        )
        assert np.diff([word.y for word in words]) == pytest.approx(theme.TOKEN_ROW)
    left, right = rendered.texts(1)[0], rendered.texts(3)[0]
    assert left.x < 0 < theme.LINES_WIDTH < right.x


def test_the_columns_are_named():
    weights = matrix(3, 5)
    for cross, added in ((False, ("", "")), (True, (" (target)", " (source)"))):
        chart = lines.token_lines([("head", weights)], axis(3), axis(5), cross=cross)
        words = Rendered(chart.to_dict(), theme.LINES_WIDTH).words()
        assert f"query: the token that looks{added[0]}" in words
        assert f"key: the token looked at{added[1]}" in words


def test_several_heads_have_names_colours_dashes_and_places_of_their_own():
    heads = [matrix(5, 7, seed) for seed in range(3)]
    _, rendered = drawn(*heads)
    marks = rendered._group("layer_0_marks")
    assert len(marks) == 3 * 35
    looks = {(mark.get("stroke"), mark.get("stroke-dasharray", "1,0")) for mark in marks}
    assert looks == {
        (colour, ",".join(map(str, dash)))
        for colour, dash in zip(theme.HEAD_COLOURS[:3], theme.HEAD_DASHES[:3], strict=True)
    }
    assert all(name in rendered.words() for name in ("L0H0", "L1H1", "L2H2"))
    assert len(edges(rendered)) == 3 * 35  # none lies on another
    largest = max(head.to_numpy().max() for head in heads)
    assert max(edges(rendered).values()) == pytest.approx(1)
    near = {key: value for key, value in edges(rendered).items() if abs(key[0] % 1) < 1e-3}
    assert near == pytest.approx(
        {(q, k): heads[1].iloc[q, k] / largest for q, k in np.ndindex(5, 7)}, abs=1e-3
    )


def test_looks_do_not_repeat_soon():
    assert len(set(lines.looks(12))) == 12
    assert lines.looks(1) == [(theme.REAL, (1, 0))]


def test_positions_may_begin_anywhere():
    weights = matrix(5, 7).iloc[2:, 3:]
    chart = lines.token_lines([("head", weights)], axis(5).iloc[2:], axis(7).iloc[3:])
    rendered = Rendered(chart.to_dict(), theme.LINES_WIDTH)
    assert edges(rendered).keys() == set(np.ndindex(3, 4))
    told = chart.to_dict()["datasets"].values()
    lines_drawn = next(rows for rows in told if "weight" in rows[0])
    assert {line["query"] for line in lines_drawn} == {"2 ␣the", "3 ␣the", "4 ␣the"}


def test_long_texts_stay_within_what_altair_sends():
    heads = [matrix(320, 320, seed) for seed in range(3)]
    _, rendered = drawn(*heads)
    assert len(rendered._group("layer_0_marks")) == 3 * 320 * 5
    assert "up to 5 keys" in title(rendered)
    with pytest.raises(ValueError, match=r"up to 320 tokens on either side; here are 321\."):
        drawn(matrix(2, 321))


def test_negative_numbers_are_as_strong_as_they_are_large():
    weights = pd.DataFrame([[-4.0, 1.0], [2.0, 0.0]])
    _, rendered = drawn(weights)
    assert edges(rendered) == pytest.approx({(0, 0): 1, (0, 1): 0.25, (1, 0): 0.5}, abs=1e-3)


def test_it_is_a_picture_of_its_own():
    spec, _ = drawn(matrix(5, 7))
    assert len(vl_convert.vegalite_to_png(spec)) > 5000
