from itertools import islice, pairwise

from benchmarks.browser import Change, sent, spelt, walk
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
