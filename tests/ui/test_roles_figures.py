"""The section of the lookup as a visitor's session runs it, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from attnviz import roles_frames as frames
from attnviz.roles import TABLE, VARIANTS, lookup
from attnviz.ui import roles_figures as figures
from attnviz.ui import roles_sentences as told

PAGE = Path(__file__).parents[1] / "roles_page.py"


def page(**state) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    text = "\n".join(element.value for element in (*app.markdown, *app.caption))
    return text.replace("\\", "").replace("\u00a0", " ")


def test_first_view_is_the_lookup_with_three_projections():
    app = page()
    assert len(app.get("vega_lite_chart")) == 3
    for sentence in (
        "Matched: the query (3, 4) with keys",
        "Best fit: B. 3·3 + 4·4 = 25, against 15 for A; divided by √2, 17.68 against 10.61.",
        "The softmax gives B the weight 0.999.",
        "The output is (−1.000, 1.997).",
        "Read: rain, which stands beside B.",
        "synthetic · written by hand",
        "| **Q, K, V** | **4** | **6 of 6** | **6 of 6** |",
        "| K = V: sum | 2 | 4 of 6 | 0 of 6 |",
    ):
        assert sentence in said(app), sentence


def test_contents_in_both_roles_find_the_wrong_item():
    text = said(page(role_variant="K = V: content", role_sharpness=5.0))
    assert "Matched: the query (15, 20) with contents" in text
    assert "Best fit: D, not B. 15·1 + 20·2 = 55, against 50 for F" in text
    assert "Read: wind. Beside B stands rain." in text


def test_side_by_side_says_what_is_dropped():
    text = said(page(role_variant="K = V: side by side", role_asked="E"))
    assert "the query (−3, −4, 0, 0) with keys beside contents" in text
    assert "Its key is residue, which W_O drops; (1.000, −1.973) is left." in text
    assert "Read: moon, which stands beside E." in text
    assert "d_k = 4 · d_v = 4 · divisor √4" in text


def test_fields_are_followed():
    app = page()
    app.button_group(key="role_asked").set_value("F").run()
    assert "Read: star, which stands beside F." in said(app)
    app.button_group(key="role_variant").set_value("K = V: key").run()
    assert "Best fit: F." in said(app)
    assert "Beside F stands star." in said(app)
    app.select_slider(key="role_sharpness").set_value(0.1).run()
    assert not app.exception
    assert "query times 0.1" in said(app)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("item", TABLE, ids=lambda item: item.symbol)
@pytest.mark.parametrize("sharpness", figures.SHARPNESS)
def test_what_is_said_is_so(name, item, sharpness):
    asked = TABLE.index(item)
    found = lookup(VARIANTS[name], sharpness)
    sentence = told.match(frames.matched(found, asked), found.d_k)
    best = TABLE[found.found(asked)].symbol
    expected = best if best == item.symbol else f"{best}, not {item.symbol}"
    assert sentence.startswith(f"Best fit: {expected}. ")
    assert f"weight {float(found.weights[asked].max()):.3f}" in sentence
    assert "-" not in sentence
    answer = told.answer(frames.read(found, asked), item.symbol)
    assert answer.startswith(f"Read: {TABLE[found.answer(asked)].content}")


def test_every_variant_has_its_verdict():
    assert told.VERDICTS.keys() == VARIANTS.keys()


def test_tables_and_code_open():
    names = ("roles_matched", "roles_returned", "roles_read")
    app = page(fold_code_roles=True, **{f"numbers_{name}": True for name in names})
    assert len(app.dataframe) == 3
    assert any("def lookup" in code.value for code in app.code)
