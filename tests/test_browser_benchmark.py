from itertools import islice, pairwise

import pytest

from attnviz.ui.selection import D_KS, MANY_KEYS
from benchmarks.browser import (
    LAB,
    LAB_D_K,
    LAB_WALK,
    Change,
    ninetieth,
    percentiles,
    sent,
    spelt,
    walk,
)
from benchmarks.random_model import HEADS, LAYERS, WORDS, text


def test_the_walk_goes_to_a_neighbour_each_time_and_comes_to_all_heads() -> None:
    steps = list(islice(walk(), 500))
    places = [5 * 12 + 3, *(layer * HEADS + head for _, layer, head in steps)]
    moved = [after - before for before, after in pairwise(places)]
    assert moved == [1 if key == "ArrowRight" else -1 for key, _, _ in steps]
    assert set(places) == set(range(LAYERS * HEADS))


def test_a_text_has_so_many_words_and_another_seed_orders_them_otherwise() -> None:
    words = text(512).split()
    assert len(words) == 512
    assert {words.count(word) for word in WORDS} == {4}
    assert text(512, seed=1) != text(512)


def test_bytes_are_those_of_a_usual_change_and_of_the_largest_message() -> None:
    changes = [Change(0.1, 0.1, sizes) for sizes in ((1000, 2000), (7000,), (2000, 3000))]
    assert sent(changes) == "5 kB | 7 kB"
    assert sent([Change(0.1, 0.1, ())]) == "– | –"


def test_seconds_are_spelt_in_the_unit_that_fits() -> None:
    assert [spelt(0.0084), spelt(0.3), spelt(1.256)] == ["8 ms", "300 ms", "1.26 s"]


def test_the_walk_over_d_k_goes_a_key_at_a_time_and_ends_where_it_began() -> None:
    places = [D_KS.index(d_k) for d_k in (LAB_D_K, *LAB_WALK)]
    assert {abs(after - before) for before, after in pairwise(places)} == {1}
    assert places[0] == places[-1]
    assert LAB["n"] in MANY_KEYS


def test_nine_tenths_are_faster_than_the_90th_percentile() -> None:
    assert ninetieth([0.1 * number for number in range(11)]) == pytest.approx(0.9)
    assert ninetieth([0.3]) == 0.3
    changes = [Change(number / 100, number / 100, (3000,)) for number in range(10, 21)]
    row = percentiles({"d_k": changes}).splitlines()[-1]
    assert row == "| d_k | 150 ms | 190 ms | 100 ms | 200 ms | 11 | 3 kB | 3 kB |"
