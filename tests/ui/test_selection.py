"""Links: what is kept, what is refused with a sentence, and that they come back as they went."""

from __future__ import annotations

import pytest

from attnviz import roles, tying
from attnviz.charts import theme
from attnviz.moments import DISTRIBUTIONS
from attnviz.ui import experiment
from attnviz.ui.examples import OPENING
from attnviz.ui.selection import LONGEST_IN_URL, NAMES, Selection


def test_empty_link_is_the_default():
    assert Selection.parse({}) == (Selection(), ())


def test_a_selection_comes_back_from_its_link():
    chosen = Selection(
        "minilm", "Seán\n  done", "le roi & moi", "et toi", "shapes", "cross", 3, 7,
        query=2, hide_first=1, d_k=256, n=5, seed=41,
        view="lines", weighed="norms", over="mean_heads", without="special", words=1,
        pairing="AB", zoom=80, colour="distance", order="value", beside="0.2 11.13",
        pin="encoder.2.9", pin_model="bundled", pin_text="Alice",
        section=4, power=125, entries="Laplace", query_std=250, key_std=50, query_mean=-75,
        key_mean=200, correlation=-100, ask=1, revealed=1, saturation="effective",
        gradient="jacobian", surgery_of="layer", surgery_by="factor", surgery_step=-11,
        training_d_k="64", training_optimiser="SGD", training_rate="3.0",
        training_second="entropy", three=8, role_variant="K = V: sum", role_asked="F",
        role_sharpness="0.5", tying_way="Q and K swapped", tying_of="head", tying_seed=3,
        symmetry_start=17, products_distance=0, birth_steps="8000",
        experiment_task="partner", experiment_variants="017", experiment_width=32,
        experiment_rate="0.03", experiment_seed=5, experiment_second="entropy",
        widths_task="copy a vector", widths_variants="2", widths_cost="kept",
    )  # fmt: skip
    assert Selection.parse(chosen.parameters()) == (chosen, ())


def test_links_know_every_distribution():
    assert NAMES["entries"] == DISTRIBUTIONS


def test_links_know_every_task_and_variant():
    assert NAMES["experiment_task"] == NAMES["widths_task"] == experiment.TASKS
    assert NAMES["role_variant"] == tuple(roles.VARIANTS)
    assert NAMES["tying_way"] == tying.WAYS
    assert len(theme.VARIANT_COLOURS) == 8
    assert set(map(float, NAMES["experiment_rate"][1:])) == set(experiment.RATES)


def test_defaults_stay_out_of_the_link():
    assert Selection().parameters() == {}
    layer, head = OPENING["minilm"]
    assert Selection(model="minilm", layer=layer, head=head).parameters() == {"model": "minilm"}


def test_model_alone_opens_its_own_head():
    chosen, _ = Selection.parse({"model": "minilm"})
    assert (chosen.layer, chosen.head) == OPENING["minilm"]
    unknown, _ = Selection.parse({"model": "some/model"})
    assert (unknown.layer, unknown.head) == (None, None)  # its first layer that can be read


@pytest.mark.parametrize("name", ["layer", "head", "query", "hide_first", "d_k", "n", "seed"])
@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "", "9" * 30, "٣", "1e3", "0x10", " 3"])
def test_nonsense_gets_a_sentence_and_the_usual_value(name: str, value: str):
    chosen, complaints = Selection.parse({name: value})
    assert chosen == Selection()
    (complaint,) = complaints
    assert name in complaint
    assert complaint.endswith(".")


@pytest.mark.parametrize("name", ["part", "picture"])
@pytest.mark.parametrize("value", ["", "abc", "Cross", "disc "])
def test_a_name_that_is_not_known_gets_a_sentence_and_the_usual_one(name: str, value: str):
    chosen, complaints = Selection.parse({name: value})
    assert chosen == Selection()
    (complaint,) = complaints
    assert f"{name} = {value!r}, which is not one of" in complaint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beside", "0.2,1.3"),
        ("beside", "0.2 "),
        ("beside", "٣.1"),
        ("beside", "1.1 " * 9),
        ("pin", "0.2"),
        ("pin", "encoder.0"),
        ("pin", "heart.0.2"),
        ("view", "movie"),
        ("pairing", "CC"),
        ("colour", "<b>"),
        ("zoom", "100000"),
    ],
)
def test_a_way_to_show_a_head_that_is_none_gets_a_sentence(name: str, value: str):
    chosen, (complaint,) = Selection.parse({name: value})
    assert chosen == Selection()
    assert f"The link asks for {name} = " in complaint


def test_each_bad_part_has_its_own_sentence():
    chosen, complaints = Selection.parse({"layer": "x", "head": "1", "seed": "y"})
    assert len(complaints) == 2
    assert chosen.head == 1


def test_a_long_text_stays_out_of_the_link():
    assert "text" not in Selection(text="a" * (LONGEST_IN_URL + 1)).parameters()
    assert "text" in Selection(text="a" * LONGEST_IN_URL).parameters()
    assert "target" not in Selection(target="a" * (LONGEST_IN_URL + 1)).parameters()


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_model_is_the_usual_one(empty: str):
    chosen, (complaint,) = Selection.parse({"model": empty})
    assert chosen == Selection()
    assert "model = '', which is not the name or path of a model" in complaint


def test_what_is_wanted_is_said_as_one_says_it():
    _, told = Selection.parse({"hide_first": "maybe", "n": "1"})
    assert "which is not 0 or 1;" in told[0]
    assert "which is not a whole number from 2 to 512;" in told[1]


def test_unknown_parts_are_ignored():
    assert Selection.parse({"utm_source": "mail"}) == (Selection(), ())
