"""The tables of what models really do: the chosen model as it was read, and links to sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import saved_models
import tiny_models
import torch
from streamlit.testing.v1 import AppTest
from test_published import model as tiny

from attnviz import published
from attnviz.capture import AttentionCall, capture
from attnviz.ui import published_rows as rows
from attnviz.ui.drawings import DRAWINGS
from attnviz.ui.published_rows import Own
from attnviz.ui.readings import Asked, NotServed

TEXT = "the cat sat on the mat because it was tired"
BUNDLED = Asked("bundled", "The cat sat on the mat because it was tired.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def saved(folder: Path):
    """The question to a tiny model of a family."""

    def question(family: str, **more: str) -> Asked:
        place = folder / family
        path = str(place) if place.exists() else saved_models.save(place, family)
        return Asked(path, TEXT, **more)

    return question


def facts(own: Own) -> dict[str, str]:
    return dict(own.facts)


# --- the chosen model's scale


def test_the_bundled_model_has_the_usual_scale():
    (own,) = rows.scales(BUNDLED, "decoder")
    assert own.layers == "layers 0 and 1"
    assert own.facts == (
        ("d_k", "32"),
        ("q·k is multiplied by", "1/√32 = 0.1768"),
        ("as a multiple of 1/√d_k", "1"),
        ("norm of q and k", "none"),
        ("soft cap", "none"),
        ("learned sink", "none"),
    )
    assert own.names == ("1/√d_k",)
    assert own.remark == ""


def test_gemma_2_has_its_setting_and_its_cap(saved):
    (own,) = rows.scales(saved("gemma2"), "decoder")
    told = facts(own)
    assert told["q·k is multiplied by"] == "0.25, not 1/√14 = 0.2673"
    assert told["as a multiple of 1/√d_k"] == "0.935"  # √14 / 4
    assert told["soft cap"] == "5"
    assert "query_pre_attn_scalar" in own.remark
    assert own.names == (published.SETTING, published.CAP)


def test_t5_does_not_divide_in_any_of_its_parts(saved):
    asked = saved("t5", target="the dog and the king")
    for part, layers in (
        ("encoder", "layers 0 to 2"),
        ("decoder", "layers 0 and 1"),
        ("cross", "layers 0 and 1"),
    ):
        (own,) = rows.scales(asked, part)
        assert own.layers == layers
        assert facts(own)["as a multiple of 1/√d_k"] == "3.32"  # √11
        assert own.names == (published.START,)


def test_a_scale_that_falls_with_the_layer_is_told_as_such(saved):
    (own,) = rows.scales(saved("gpt2_by_layer"), "decoder")
    assert own.layers == "layers 0 to 2"
    assert facts(own)["as a multiple of 1/√d_k"] == "1/(layer + 1)"


def test_norms_are_named_as_the_model_names_them(saved):
    (qwen,) = rows.scales(saved("qwen3"), "decoder")
    assert facts(qwen)["norm of q and k"] == "q_norm and k_norm, with a learned gain"
    normed, plain = rows.scales(saved("llama4"), "decoder")
    assert (normed.layers, plain.layers) == ("layers 0 and 2", "layer 1")
    assert facts(normed)["norm of q and k"] == "qk_norm, without a learned gain"
    assert facts(plain)["norm of q and k"] == "none"


def test_layers_that_show_nothing_say_why(saved):
    unread, read = rows.scales(saved("qwen3_next"), "decoder")
    assert unread.layers == "layers 0, 2 and 3"
    assert {value for _, value in unread.facts} == {rows.UNTOLD}
    assert "no softmax attention" in unread.remark
    assert unread.names == ()
    assert facts(read)["q·k is multiplied by"].startswith("1/√14")


def test_sinks_are_told(saved):
    (own,) = rows.scales(saved("gpt_oss"), "decoder")
    assert facts(own)["learned sink"] == "one logit a head"
    assert "sum to less than 1" in own.remark


@cache
def a_call() -> AttentionCall:
    return capture(tiny_models.build("llama"), tiny_models.inputs_for("llama")).calls[0]


def test_swin_v2_has_cosines_where_it_is_read(folder: Path):
    size = {"height": 24, "width": 24}
    shown = {"image_processor_type": "ViTImageProcessor", "size": size}
    path = saved_models.save(folder / "swinv2", tiny("swinv2"), text=False, processor=shown)
    asked = Asked(path, "", picture=next(iter(DRAWINGS)))
    first, unknown, last = rows.scales(asked, "vision")
    for own in (first, last):
        assert own.names == (published.COSINE,)
        assert facts(own)["q·k is multiplied by"].endswith("learned head by head: q·k is a cosine")
        assert facts(own)["as a multiple of 1/√d_k"] == "none: d_k plays no part"
    assert list(facts(unknown).values())[:4] == [rows.UNTOLD] * 4  # only its weights are seen
    assert unknown.names == ()


def with_lengths(queries: list[float], keys: float) -> AttentionCall:
    """A call whose queries have these lengths, head by head, and whose keys all have one."""
    call = a_call()
    query, key = (x / x.norm(dim=-1, keepdim=True) for x in (call.query, call.key))
    return replace(call, query=query * torch.tensor(queries)[None, :, None, None], key=keys * key)


def test_keys_of_length_1_make_a_cosine():
    call = with_lengths([2.0, 3.0, 5.0, 7.0, 11.0, 13.0], keys=1.0)
    lengths = rows._query_lengths(call)
    assert lengths is not None
    assert lengths.amax((0, 2)).tolist() == pytest.approx([2, 3, 5, 7, 11, 13])
    assert rows._factor(None, lengths) == "2 to 13, learned head by head: q·k is a cosine"


@pytest.mark.parametrize("keys", [0.99, float("nan")])
def test_keys_of_other_lengths_do_not(keys: float):
    assert rows._query_lengths(with_lengths([1.0] * 6, keys)) is None
    assert rows._query_lengths(replace(a_call(), query=None)) is None


# --- the chosen model's projections


def test_the_bundled_model_has_four_matrices():
    (own,) = rows.projections(BUNDLED, "decoder")
    assert own.facts == (
        ("heads", "4, each with keys and values of its own"),
        ("q is made by", "q_proj (128 → 128)"),
        ("k is made by", "k_proj (128 → 128)"),
        ("v is made by", "v_proj (128 → 128)"),
        ("W_O", "o_proj (128 → 128)"),
        ("which is", published.THREE),
    )


@pytest.mark.parametrize(
    ("family", "part", "made"),
    [
        ("gpt2", "decoder", ["c_attn (55 → 165)"] * 3 + ["c_proj (55 → 55)"]),
        (
            "bert",
            "encoder",
            ["query (55 → 55)", "key (55 → 55)", "value (55 → 55)", "output.dense (55 → 55)"],
        ),
        (
            "deepseek_v3",
            "decoder",
            [
                "q_b_proj (23 → 65) after q_a_proj (44 → 23)",
                "kv_b_proj (19 → 90) after kv_a_proj_with_mqa (44 → 25) "
                "and kv_a_proj_with_mqa (44 → 25)",  # the part that is rotated
                "kv_b_proj (19 → 90) after kv_a_proj_with_mqa (44 → 25)",
                "o_proj (55 → 44)",
            ],
        ),
    ],
)
def test_matrices_are_named_within_their_layer(saved, family: str, part: str, made: list[str]):
    (own,) = rows.projections(saved(family), part)
    told = facts(own)
    assert [told[name] for name in rows.PROJECTION_FACTS[1:5]] == made


def test_grouped_queries_and_a_gate_are_told(saved):
    unread, own = rows.projections(saved("qwen3_next"), "decoder")
    assert {value for _, value in unread.facts} == {rows.UNTOLD}
    assert own.layers == "layers 1 and 4"
    assert facts(own)["heads"] == "6 query heads, 2 on each of 3 key and value heads"
    assert facts(own)["which is"] == f"{published.GROUPED}; {published.GATE}"


def test_gemma_4_has_one_matrix_for_k_and_v_where_it_sees_all(folder: Path):
    path = saved_models.save(folder / "gemma4", tiny("gemma4"))
    local, whole = rows.projections(Asked(path, TEXT), "decoder")
    assert (local.layers, whole.layers) == ("layer 0", "layers 1 and 2")
    assert facts(local)["v is made by"] == "v_proj (42 → 42)"
    assert facts(whole)["v is made by"] == facts(whole)["k is made by"] == "k_proj (42 → 20)"
    assert published.SHARED_KEY_VALUE in whole.names
    assert published.SHARED_KEY_VALUE not in local.names


def test_what_could_not_be_followed_is_not_told(saved):
    (own,) = rows.projections(saved("diffllama"), "decoder")
    assert facts(own)["W_O"] == rows.UNTOLD  # two outputs are mixed first
    assert facts(own)["which is"] == f"{published.GROUPED}; {published.TWICE}"


def test_names_that_have_nothing_in_common_stay_whole():
    assert rows._within("shared.dense.weight", "encoder.layer.0.attention") == "shared.dense"
    assert rows._within("attn.weight", "attn") == "attn"  # a module that is its own matrix


# --- texts


def test_a_text_that_is_too_long_to_show_changes_nothing():
    long = replace(BUNDLED, text="The cat sat. " * 500)
    assert rows.scales(long, "decoder") == rows.scales(BUNDLED, "decoder")
    assert rows.projections(long, "decoder") == rows.projections(BUNDLED, "decoder")
    assert rows.caption(long, "decoder").startswith("real · Bundled storyteller · decoder")


def test_a_model_that_cannot_be_read_is_refused_in_a_sentence(folder: Path):
    with pytest.raises(NotServed, match="nothing"):
        rows.scales(Asked(str(folder / "nothing"), TEXT), "decoder")


# --- the page


def page(what: str, model: str, text: str, part: str) -> None:
    from attnviz.ui import published_tables
    from attnviz.ui.readings import Asked

    getattr(published_tables, what)(Asked(model, text), part)


def drawn(what: str, asked: Asked, part: str = "decoder") -> AppTest:
    given = {"what": what, "model": asked.model, "text": asked.text, "part": part}
    app = AppTest.from_function(page, kwargs=given, default_timeout=60).run()
    assert not app.exception
    return app


def tables(app: AppTest) -> list[list[list[str]]]:
    """The cells of every table in Markdown."""
    told = [block.value for block in app.markdown if block.value.startswith("| ")]
    return [[cells(line) for line in table.splitlines()] for table in told]


def cells(line: str) -> list[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


def every_link(rows_of_it: tuple[published.Practice | published.HalfTruth, ...]) -> Iterator[str]:
    for row in rows_of_it:
        for source in row.sources:
            if source.address is not None:
                yield f"]({source.address})"


@pytest.mark.parametrize(
    ("what", "practices", "half_truths"),
    [
        ("scales", published.SCALES, published.SCALE_HALF_TRUTHS),
        ("projections", published.PROJECTIONS, published.PROJECTION_HALF_TRUTHS),
    ],
)
def test_every_row_is_on_the_page_with_its_links(what: str, practices, half_truths):
    app = drawn(what, BUNDLED)
    own, families = tables(app)
    assert own[0] == ["", "layers 0 and 1"]
    assert len(families) == 2 + len(practices)
    assert {len(row) for row in families} == {2}
    told = {row[0].replace("\\", "").split("**")[1]: row[1] for row in families[2:]}
    for practice in practices:
        assert all(link in told[practice.name] for link in every_link((practice,)))
    listed = next(block.value for block in app.markdown if block.value.startswith("- "))
    assert len(listed.splitlines()) == len(half_truths)
    assert all(link in listed for link in every_link(half_truths))
    assert any("equals the model" in line.value for line in app.caption)


def marked(app: AppTest) -> list[str]:
    """The first rows of the families, those that the chosen model belongs to."""
    names = [row[0].replace("\\", "") for row in tables(app)[1][2:]]
    here = [name for name in names if "this model" in name]
    assert names[: len(here)] == here
    return here


def test_the_chosen_model_is_marked_in_its_rows_and_these_come_first(saved):
    assert marked(drawn("scales", saved("gemma2"))) == [
        "**1/√(a setting)** :blue-badge[this model]",
        "**a soft cap besides** :blue-badge[this model]",
    ]
    only = ":blue-badge[this model] layers 1 and 4"
    assert marked(drawn("projections", saved("qwen3_next"))) == [
        f"**{published.OUTPUT}** {only}",
        f"**{published.GROUPED}** {only}",
        f"**{published.GATE}** {only}",
    ]


def test_remarks_name_the_layers_where_these_differ(saved):
    app = drawn("scales", saved("qwen3_next"))
    told = [block.value.replace("\\", "") for block in app.markdown]
    assert any(
        x.startswith("Layers 0, 2 and 3: not read. It carries a recurrent state") for x in told
    )
