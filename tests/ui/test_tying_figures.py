"""Shared projections, symmetry and products as a visitor's session shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
import saved_models
from heads_reference import long_text
from streamlit.testing.v1 import AppTest
from test_outcome import masked_language_model
from test_pages import errors, said

from attnviz.ui import tying_figures

PAGE = Path(__file__).parent / "roles_on_a_model_page.py"
WORDS = "the cat sat on the mat because it was tired"
FIGURES = {
    "before": "before: untouched",
    "after": ", after:",
    "next": "likeliest next",
    "tokens": "of each token",
    "S": "every token looking at every",
    "Sᵀ": "same turned about",
    "shares": "Symmetric shares",
    "spectrum": "Singular values",
}
TIED = {"before", "after", "tokens"}


def page(show: str, **parameters: str) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=120)
    app.query_params.update({"show": show} | parameters)
    return app.run()


def shown(app: AppTest) -> AppTest:
    assert not app.exception
    assert not app.error
    return app


def charts(app: AppTest) -> list[str]:
    """The figures on the page; scales of colours are left out."""
    told = [chart.proto.alt for chart in app.get("vega_lite_chart")]
    return [name for words in told for name, part in FIGURES.items() if part in words]


def headlines(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.subheader]


def infos(app: AppTest) -> str:
    return " ".join(one.value for one in app.info).replace("\\", "")


def saved(folder: Path, family: str, show: str, **more: str) -> AppTest:
    sees = {"vit": {"text": "", "picture": "disc"}, "clip": {"picture": "disc"}}
    asked = {"model": saved_models.save(folder, family), "text": WORDS}
    return page(show, **(asked | sees.get(family, {}) | more))


# --- tying


def test_all_heads_are_tied_first():
    app = shown(page("tying", layer="1", head="2"))
    assert headlines(app) == ["K := V in all heads: 8.78 nats per token instead of 2.44"]
    assert set(charts(app)) == TIED | {"next"}
    words = said(app)
    assert "W_V makes the keys too" in words
    assert "this trained model uses its projections in separate roles" in words
    assert "no proof that training could not cope" in words
    assert "The model itself, which all visitors share, is never changed" in words
    assert "n = 21 · d_k = 32 · the model divides by √32 · before and after K := V" in words


@pytest.mark.parametrize("way", ["V := K", "Q := K", "Q and K swapped", "values shuffled"])
@pytest.mark.parametrize("of", ["head", "layer", "all"])
def test_every_way_everywhere(way: str, of: str):
    app = page("tying", layer="1", head="2")
    app.radio(key="tying_way").set_value(way)
    app.radio(key="tying_of").set_value(of)
    shown(app.run())
    whom = {"head": "layer 1, head 2", "layer": "all heads of layer 1", "all": "all heads"}[of]
    assert headlines(app)[0].startswith(f"{way[0].upper()}{way[1:]} in {whom}: ")
    still = way in ("V := K", "values shuffled") and of != "all"
    assert ("stays as it is, since no pattern is made of values" in said(app)) == still


def test_values_are_shuffled_anew():
    app = page("tying")
    app.radio(key="tying_way").set_value("values shuffled")
    shown(app.run())
    first = headlines(app)
    assert "order drawn with seed 0" in said(app)
    orders = {first[0]}
    for _ in range(3):
        shown(app.button(key="tying_shuffle").click().run())
        orders.add(headlines(app)[0])
    assert "order drawn with seed 3" in said(app)
    assert len(orders) > 1


def test_what_predicts_nothing_is_compared_by_its_vectors():
    app = shown(page("tying", model="minilm", text="The cat sat on the mat."))
    assert headlines(app)[0].startswith("K := V in all heads: the output changes by ")
    assert "predicts no tokens" in said(app)
    assert set(charts(app)) == TIED


def test_a_masked_language_model_says_its_masks(tmp_path: Path):
    model = masked_language_model()
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    app = shown(page("tying", model=str(tmp_path), text="the cat sat on the mat."))
    assert "masks drawn with seed 0" in said(app)


def test_grouped_queries_change_together(tmp_path: Path):
    app = saved(tmp_path, "llama", "tying", head="3")
    app.radio(key="tying_of").set_value("head")
    shown(app.run())
    told = "Head 2 reads the same key and value head (grouped queries) and changes with it."
    assert told in said(app)
    shown(app.radio(key="tying_way").set_value("Q := K").run())
    assert told not in said(app)
    app.radio(key="tying_way").set_value("Q and K swapped")
    shown(app.radio(key="tying_of").set_value("layer").run())
    assert "one head alone can be changed" in infos(app)
    assert not app.subheader


def test_latent_attention_is_refused_in_a_sentence(tmp_path: Path):
    app = shown(saved(tmp_path, "deepseek_v3", "tying"))
    assert "cannot be changed as asked: in layer 0, its keys are" in infos(app)
    assert not charts(app)
    shown(app.radio(key="tying_way").set_value("values shuffled").run())
    assert set(charts(app)) == TIED | {"next"}


@pytest.mark.parametrize("family", ["t5", "vit", "clip", "gpt2", "bloom", "jamba"])
def test_other_models(family: str, tmp_path: Path):
    app = shown(saved(tmp_path, family, "tying"))
    assert headlines(app)
    assert {"before", "after"} <= set(charts(app))


def test_cross_attention_has_a_target(tmp_path: Path):
    app = shown(saved(tmp_path, "t5", "tying", part="cross", target="the king"))
    assert "tokens of the target after the first" in said(app)


def test_what_has_no_attention_is_refused_in_a_sentence(tmp_path: Path):
    app = saved(tmp_path, "mamba", "tying symmetry products")
    assert not app.exception
    assert [text for text in errors(app) if "no softmax attention" in text]


def test_one_token_alone(tmp_path: Path):
    model = saved_models.save(tmp_path, "llama")
    app = shown(page("tying symmetry products", model=model, text="cat"))
    assert headlines(app)


def test_a_long_text():
    text, n = long_text(2000)
    app = shown(page("tying symmetry products", text=text))
    assert f"n = {n:,}" in said(app)
    assert "tokens in a row" in said(app)
    assert f"In view are tokens 0 to 63 of {n:,}" in said(app)
    assert "measured on the first 64 tokens" in said(app)


def test_what_takes_long_waits_for_a_click(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tying_figures.runs, "seconds", lambda *_: 20.0)
    app = shown(page("tying"))
    assert not app.subheader
    (button,) = app.button
    assert button.label == "Run the model with this change (about 20 seconds)"
    shown(button.click().run())
    assert set(charts(app)) == TIED | {"next"}
    shown(app.radio(key="tying_way").set_value("V := K").run())
    assert set(charts(app)) == TIED | {"next"}


def test_what_takes_too_long_is_not_offered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tying_figures.runs, "seconds", lambda *_: 800.0)
    app = shown(page("tying"))
    assert "This would take about 13 minutes on this machine" in said(app)
    assert not app.button


def test_a_pattern_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tying_figures.runs, "pattern", lambda *_: None)
    app = shown(page("tying"))
    assert "The pattern after the change cannot be shown" in infos(app)
    assert set(charts(app)) == {"tokens", "next"}


def test_pictures_to_take_home(monkeypatch: pytest.MonkeyPatch):
    items = []
    monkeypatch.setattr(
        tying_figures.downloads, "downloads", lambda given, key: items.extend(given)
    )
    shown(page("tying", layer="1", head="2"))
    svg = next(item for item in items if item.label == "SVG")
    words = svg.make()
    for part in ("before and after K := V in all heads", "loss, nats", "query: the token that"):
        assert part in words


def test_symmetry_and_products_to_take_home(monkeypatch: pytest.MonkeyPatch):
    items = {}
    monkeypatch.setattr(
        tying_figures.downloads, "downloads", lambda given, key: items.setdefault(key, given)
    )
    shown(page("symmetry products", layer="1", head="2"))
    for name, parts in (
        ("symmetry", ("symmetry of scores", "symmetric share of the scores", "score q·k")),
        ("products", ("singular values", "W_OV", "W_QK at a distance of 1")),
    ):
        svg = next(item for item in items[f"{name}_downloads"] if item.label == "SVG")
        words = svg.make()
        assert all(part in words for part in parts)


FOLDS = {
    "tying": ("numbers_tying_row", "numbers_tying_tokens", "numbers_tying_next"),
    "symmetry": ("numbers_symmetry_pairs", "numbers_symmetry_shares"),
    "products": ("numbers_products", "numbers_products_spectra"),
}
SOURCES = {"tying": "def tied(", "symmetry": "def symmetric_share(", "products": "class QueryKey"}


@pytest.mark.parametrize("name", FOLDS)
def test_tables_and_code_open(name: str):
    app = AppTest.from_file(str(PAGE), default_timeout=120)
    app.query_params.update({"show": name, "layer": "1", "head": "2"})
    for key in (*FOLDS[name], f"fold_code_{name}"):
        app.session_state[key] = True
    shown(app.run())
    assert len(app.dataframe) == len(FOLDS[name])
    assert all(len(table.value) for table in app.dataframe)
    assert any(SOURCES[name] in code.value for code in app.code)


@pytest.mark.parametrize("text", [":) <b>x</b> $y$ *z* `q`", "é這 👩‍👩‍👧\n\tend", "a a a a a"])
def test_any_text(text: str):
    app = shown(page("tying symmetry products", text=text))
    assert charts(app)


# --- symmetry


def test_scores_in_both_directions():
    app = shown(page("symmetry", layer="1", head="2"))
    assert charts(app) == ["S", "Sᵀ", "shares"]
    assert headlines(app)[0].startswith("77\u00a0% of S is its symmetric part")
    words = said(app)
    assert "is 0.768 over all pairs of two different tokens" in words
    assert "“,” looking at “<|bos|>” scores 50.5; “<|bos|>” looking at “,” scores −1.57" in words
    assert "random vectors: synthetic, seed 7" in words
    assert not app.slider


def test_a_window_of_a_long_text():
    text, n = long_text(512)
    app = shown(page("symmetry", text=text))
    shown(app.slider(key="symmetry_start").set_value(100).run())
    assert f"In view are tokens 100 to 163 of {n:,}" in said(app)


def test_cross_attention_has_no_symmetry(tmp_path: Path):
    app = shown(saved(tmp_path, "t5", "symmetry", part="cross", target="the king"))
    assert "no pair of tokens has two directions" in infos(app)
    assert not charts(app)


@pytest.mark.parametrize("family", ["llama", "vit", "deepseek_v3", "bloom", "xlnet"])
def test_symmetry_of_other_models(family: str, tmp_path: Path):
    app = shown(saved(tmp_path, family, "symmetry"))
    assert charts(app) == ["S", "Sᵀ", "shares"] or infos(app)


# --- products


def test_two_products_give_it_all():
    app = shown(page("products", layer="1", head="2"))
    assert charts(app) == ["spectrum", "spectrum"]
    words = said(app)
    assert "From W_QK alone, without any query or key, come the scores before rotation" in words
    assert "At a distance of 1 token, W_QK = W_Qᵀ R W_K" in words
    assert "128 × 128, and of rank at most d_k = 32. The two factors hold 8,192 numbers" in words
    shown(app.slider(key="products_distance").set_value(5).run())
    assert "At a distance of 5 tokens" in said(app)


def test_without_rotation_there_is_one_matrix_for_all():
    app = shown(page("products", model="minilm", text="The cat sat on the mat."))
    assert not app.slider
    assert "come the scores q·k: they differ" in said(app)
    assert "a saving of 83\u00a0%" in said(app)


def test_products_that_cannot_be_had_are_told(tmp_path: Path):
    app = shown(saved(tmp_path, "deepseek_v3", "products"))
    assert infos(app).count("made from a latent vector, by two matrices") == 2
    assert not app.slider
    assert not charts(app)


@pytest.mark.parametrize("family", ["llama", "t5", "vit", "qwen3", "xlnet", "gpt_neox"])
def test_products_of_other_models(family: str, tmp_path: Path):
    app = shown(saved(tmp_path, family, "products"))
    assert charts(app) or infos(app)
