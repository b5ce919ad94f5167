"""Bars over keys: each as high as its number, at its own place, the chosen one told apart."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from rendered import Rendered

from attnviz.charts import key_bars, theme

TOKENS = ("<s>", "the", "cat", "the", "end")
WEIGHTS = [0.1, 0.25, 0.6, 0.05, 0.0]
SHARES = [0.02, 0.38, 0.5, 0.1, 0.0]
SCORES = [-4.0, 1.0, 2.5, -0.5, 9.0]


def row(
    tokens: tuple[str, ...] = TOKENS, chosen: int = 1, seen: int = 4, sink: float = 0.0
) -> pd.DataFrame:
    """The first keys are visible, the rest are not; a sink takes its part of the last weight."""
    n = len(tokens)
    count = np.arange(n)
    frame = pd.DataFrame(
        {
            "key": count,
            "token": tokens,
            "visible": count < seen,
            "chosen": count == chosen,
            "sink": False,
            "score": np.resize(SCORES, n),
            "logit": np.where(count < seen, np.resize(SCORES, n) / 2, -np.inf),
            "exponential": np.where(count < seen, np.exp(np.resize(SCORES, n) / 2), 0),
            "weight": np.where(count < seen, np.resize(WEIGHTS, n), 0),
            "brought": np.where(count < seen, np.resize(SHARES, n), 0),
        }
    )
    if not sink:
        return frame
    last = {"key": n, "token": "learned sink", "visible": True, "chosen": False, "sink": True}
    numbers = {"exponential": 2.0, "weight": sink, "brought": 0.0, "logit": np.log(2.0)}
    return pd.concat([frame, pd.DataFrame([last | numbers])], ignore_index=True)


DRAWN = {"weights": key_bars.weights, "brought": key_bars.brought, "scores": key_bars.scores}


def drawn(name: str, frame: pd.DataFrame) -> dict:
    return DRAWN[name](frame).to_dict()


def data(spec: dict) -> list[dict]:
    return next(rows for rows in spec["datasets"].values() if "key" in rows[0])


@pytest.mark.parametrize(("name", "numbers"), [("weights", WEIGHTS), ("brought", SHARES)])
@pytest.mark.parametrize("width", [1000, 330])
def test_each_visible_key_has_a_bar_as_high_as_its_number(name: str, numbers: list, width: int):
    rendered = Rendered(drawn(name, row()), width)
    bars = rendered.rects(0)
    assert len(bars) == 4
    per_unit = bars[2].height / numbers[2]
    for place, bar in enumerate(bars):
        assert bar.height == pytest.approx(numbers[place] * per_unit, abs=0.01)
        assert bar.bottom == pytest.approx(theme.KEY_BARS_HEIGHT)
    middles = [bar.middle for bar in bars]
    assert np.ptp(np.diff(middles)) < 0.01
    assert middles == pytest.approx([label.x for label in rendered.labels()[:4]], abs=9)


def test_the_chosen_key_is_strong_bold_and_numbered():
    for name, number in (("weights", "0.25"), ("brought", "0.38")):
        spec = drawn(name, row())
        rendered = Rendered(spec)
        opaque = [bar.looks.get("fill-opacity", "1") == "1" for bar in rendered.rects(0)]
        assert opaque == [False, True, False, False]
        assert {bar.looks["fill"] for bar in rendered.rects(0)} == {theme.REAL}
        (text,) = rendered.texts(len(spec["layer"]) - 1)
        assert text.words == number
        assert text.x == pytest.approx(rendered.rects(0)[1].middle)
        assert text.y < rendered.rects(0)[1].top
        bold = [x.words for x in rendered.labels() if x.looks.get("font-weight") == "bold"]
        assert bold == ["the"]


@pytest.mark.parametrize("name", DRAWN)
def test_equal_words_stay_apart_and_all_keys_are_named(name: str):
    labels = Rendered(drawn(name, row())).labels()
    assert [label.words for label in labels] == list(TOKENS)
    assert len({label.x for label in labels}) == 5


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("chosen", [0, 50, 96])
def test_long_texts_name_every_kth_key_and_the_chosen_one(name: str, chosen: int):
    words = tuple(f"w{place}" for place in range(97))
    frame = row(words, chosen, 97)
    labels = [label.words for label in Rendered(drawn(name, frame), 1500).labels()]
    assert f"w{chosen}" in labels
    apart = {place for place in range(0, 97, 3) if abs(place - chosen) > 1} | {chosen}
    assert {int(label[1:]) for label in labels} == apart
    narrow = Rendered(drawn(name, frame), 330).labels()
    assert f"w{chosen}" in [label.words for label in narrow]
    assert np.diff([label.x for label in narrow]).min() > 14


def test_bare_weights_are_lines_across_the_bars_on_the_same_scale():
    rendered = Rendered(drawn("brought", row()))
    bars, lines = rendered.rects(0), rendered.rules(1)
    per_unit = bars[2].height / SHARES[2]
    for bar, (x, y, across, _), weight in zip(bars, lines, WEIGHTS[:4], strict=True):
        assert theme.KEY_BARS_HEIGHT - y == pytest.approx(weight * per_unit, abs=0.01)
        assert min(x, x + across) == pytest.approx(bar.left, abs=0.01)
        assert abs(across) == pytest.approx(bar.width, abs=0.01)
    words = Rendered(drawn("brought", row())).words()
    assert "bar: share of ‖weight · value · W_O‖" in words
    assert "line: bare weight" in words


def test_what_is_brought_can_be_named_otherwise():
    spec = key_bars.brought(row(), "‖weight · value‖").to_dict()
    assert "bar: share of ‖weight · value‖" in Rendered(spec).words()


def test_a_bare_weight_above_all_bars_is_inside_the_plot():
    frame = row().assign(weight=[0.0, 0.9, 0.1, 0.0, 0.0])
    assert min(y for _, y, *_ in Rendered(drawn("brought", frame)).rules(1)) > 0


def test_a_sink_is_a_dashed_outline_at_the_end_with_its_name():
    frame = row(sink=0.3)
    rendered = Rendered(drawn("weights", frame))
    (sink,) = rendered.rects(1)
    assert sink.looks.get("fill", "transparent") == "transparent"
    assert sink.looks["stroke-dasharray"]
    bars = rendered.rects(0)
    assert len(bars) == 4
    assert sink.height == pytest.approx(bars[2].height / 2, abs=0.01)
    assert rendered.labels()[-1].words == "learned sink"
    assert sink.middle - bars[3].middle == pytest.approx(
        2 * (bars[3].middle - bars[2].middle), abs=0.01
    )
    assert len(drawn("weights", row())["layer"]) == 2


def test_a_sink_is_named_beside_many_keys_on_a_phone():
    words = tuple(f"w{place}" for place in range(97))
    labels = Rendered(drawn("weights", row(words, 50, 97, sink=0.2)), 330).labels()
    assert labels[-1].words == "learned sink"
    assert np.diff([label.x for label in labels]).min() > 14


def test_charts_over_the_same_keys_are_in_line():
    frame = row(sink=0.2)
    one, other = (Rendered(drawn(name, frame)).rects(0) for name in ("weights", "brought"))
    assert [bar.middle for bar in one] == pytest.approx([bar.middle for bar in other])


def test_scores_are_cells_on_a_symmetric_scale_and_hidden_keys_a_line():
    spec = drawn("scores", row())
    rendered = Rendered(spec)
    cells = rendered.rects(0)
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-4.0, 0, 0, 4.0]  # not the 9 of a key that is hidden
    assert rendered.legend() == ["−4", "0", "4"]
    hues = ["rgba(44" if score < 0 else "rgba(204" for score in SCORES[:4]]
    assert [cell.looks["fill"].split(",")[0] for cell in cells] == hues
    (line,) = rendered.rules(1)
    assert min(line[0], line[0] + line[2]) == pytest.approx(cells[-1].left + cells[-1].width)
    assert abs(line[2]) == pytest.approx(cells[0].width)


def test_runs_of_hidden_keys_on_both_sides_are_two_lines():
    frame = row(seen=5).assign(visible=[False, True, True, False, False])
    lines = Rendered(drawn("scores", frame)).rules(1)
    widths = sorted(abs(across) for *_, across, _ in lines)
    assert widths[1] == pytest.approx(2 * widths[0])


def test_the_chosen_score_is_framed_and_written():
    rendered = Rendered(drawn("scores", row(chosen=2)))
    cell, (frame,) = rendered.rects(0)[2], rendered.rects(2)
    assert frame.middle == pytest.approx(cell.middle)
    assert frame.left < cell.left
    assert frame.height > cell.height
    assert [text.words for text in rendered.texts(3)] == ["2.5"]


def test_a_chosen_key_that_is_hidden_is_framed_but_has_no_colour():
    rendered = Rendered(drawn("scores", row(chosen=4)))
    assert len(rendered.rects(0)) == 4
    assert len(rendered.rects(2)) == 1
    assert [text.words for text in rendered.texts(3)] == ["9"]
    assert [text.words for text in Rendered(drawn("weights", row(chosen=4))).texts(1)] == ["0"]


def test_a_sink_has_no_score():
    assert data(drawn("scores", row(sink=0.5))) == data(drawn("scores", row()))


def test_the_drawn_data_are_the_numbers_of_the_frame():
    fields = ["key", "score", "logit", "exponential", "weight"]
    expected = row().loc[:3, fields].to_dict("records")
    assert data(drawn("weights", row())) == expected


def test_tooltips_tell_the_key_and_what_the_model_has():
    bars = drawn("weights", row())["layer"][0]
    fields = [x["field"] for x in bars["encoding"]["tooltip"]]
    assert fields == ["token", "key", "score", "logit", "exponential", "weight"]
    without = row().assign(score=np.nan, logit=np.nan, exponential=np.nan)
    bars = drawn("weights", without)["layer"][0]
    assert [x["field"] for x in bars["encoding"]["tooltip"]] == ["token", "key", "weight"]


def test_rows_of_nothing_are_drawn():
    nothing = row().assign(weight=0.0, brought=0.0, score=0.0)
    for name in DRAWN:
        assert len(Rendered(drawn(name, nothing)).rects(0)) == 4


def test_a_row_that_sees_no_key_is_drawn():
    for name in DRAWN:
        rendered = Rendered(drawn(name, row(seen=0)))
        assert len(rendered.labels()) == 5
        assert {bar.height for bar in rendered.rects(0)} <= {0.0}


def test_words_of_a_text_cannot_break_out_of_the_chart():
    words = ("</script>", '"quoted"', "back\\slash", "'", "${x}")
    for name in DRAWN:
        spec = drawn(name, row(words))
        assert "<script" not in Rendered(spec).words()
        assert next(p["value"] for p in spec["params"] if p["name"] == "words") == list(words)


def test_five_hundred_keys_are_cheap():
    words = tuple(f"word{place}" for place in range(512))
    for name in DRAWN:
        spec = drawn(name, row(words, 100, 512))
        assert len(json.dumps(spec)) < 80_000
        assert len(Rendered(spec).rects(0)) == 512


def heads(count: int, chosen: int) -> pd.DataFrame:
    lengths = np.linspace(1, 3, count)
    head = np.arange(count)
    return pd.DataFrame({"head": head, "length": lengths, "chosen": head == chosen})


def test_heads_have_a_bar_each_and_the_present_one_is_strong():
    rendered = Rendered(key_bars.heads(heads(5, 3)).to_dict())
    bars = rendered.rects(0)
    assert [bar.height / bars[0].height for bar in bars] == pytest.approx([1, 1.5, 2, 2.5, 3])
    opaque = [bar.looks.get("fill-opacity", "1") == "1" for bar in bars]
    assert opaque == [False, False, False, True, False]
    assert [text.words for text in rendered.texts(1)] == ["2.5"]
    assert [label.words for label in rendered.labels()] == ["0", "1", "2", "3", "4"]
    assert "head" in rendered.words()


def test_many_heads_are_numbered_every_kth_and_the_present_one():
    labels = [x.words for x in Rendered(key_bars.heads(heads(97, 50)).to_dict()).labels()]
    assert "50" in labels
    assert len(labels) <= theme.LABELLED_TOKENS + 1


def test_equal_input_gives_equal_charts():
    for name in DRAWN:
        assert drawn(name, row(sink=0.1)) == drawn(name, row(sink=0.1))
    assert key_bars.heads(heads(5, 1)).to_dict() == key_bars.heads(heads(5, 1)).to_dict()
