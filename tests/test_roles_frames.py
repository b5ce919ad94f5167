"""The frames of the lookup: what is written is what was computed."""

from __future__ import annotations

import pytest

from attnviz import roles_frames as frames
from attnviz.roles import TABLE, VARIANTS, lookup

B, E = 1, 4


def test_products_are_spelt_as_on_a_blackboard():
    assert frames.products((3.0, -4.0), (-3.0, 0.5)) == "3·(−3) + (−4)·0.5"
    assert frames.vector((-3.0, 4.0)).replace("\u00a0", " ") == "(−3, 4)"
    assert [frames.written(x) for x in (10.0, -0.0, 0.1234, -1.5, 0.0001)] == [
        *("10", "0", "0.123", "−1.5", "0")
    ]


def value_of(product: str) -> float:
    """What a spelt sum of products comes to."""
    return eval(product.replace("−", "-").replace("·", "*"))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("asked", range(6))
def test_spelt_products_come_to_what_stands_beside_them(name, asked):
    found = lookup(VARIANTS[name], 0.5)
    for row in frames.matched(found, asked).itertuples():
        assert value_of(row.product) == pytest.approx(row.score, abs=1e-9)
    for row in frames.read(found, asked).itertuples():
        assert value_of(row.product) == pytest.approx(row.value, abs=2e-3)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_all_items_bring_is_the_output(name):
    found = lookup(VARIANTS[name])
    brought = frames.returned(found, B).groupby("dimension")["value"].sum().tolist()
    assert brought == pytest.approx(found.output[B].tolist(), abs=1e-12)
    assert frames.output(found, VARIANTS[name], B)["value"].tolist() == pytest.approx(brought)


def test_one_row_is_asked_for_and_one_content_is_the_answer():
    found = lookup(VARIANTS["K = V: content"])
    assert frames.matched(found, E)["asked"].tolist() == [item == E for item in range(6)]
    read = frames.read(found, E)
    assert read.loc[read["asked"], "content"].item() == TABLE[E].content
    assert read.loc[read["answer"], "value"].item() == read["value"].max()


def test_output_says_what_is_dropped():
    variant = VARIANTS["K = V: side by side"]
    output = frames.output(lookup(variant), variant, B)
    assert output["holds"].tolist() == ["key", "key", "content", "content"]
    assert output["kept"].tolist() == [False, False, True, True]


def test_outcomes_of_all_questions():
    found = frames.outcomes(1.0).set_index("variant")
    assert found.index.tolist() == [*VARIANTS]
    assert found["kept"].tolist() == [4, 2, 2, 2, 4, 4]
    assert found["found"].tolist() == [6, 0, 6, 4, 6, 0]
    assert found["right"].tolist() == [6, 0, 0, 0, 6, 0]


def test_table_is_what_stands_on_the_blackboard():
    assert frames.table().iloc[B].tolist() == ["B", "(3,\u00a04)", "rain", "(−1,\u00a02)"]
