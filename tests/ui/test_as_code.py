"""The code that a page shows is run as it is, and gives the numbers that the page shows."""

from __future__ import annotations

import ast
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import saved_models
from cells_by_hand import axis, head, worked
from PIL import Image

from attnviz.models import catalogue
from attnviz.ui import cells, heads
from attnviz.ui.as_code import as_code
from attnviz.ui.cells import Worked
from attnviz.ui.readings import Asked, served

TEXT = "The cat sat on the mat because it was tired"
NASTY = '“It\'s” said "the cat"\\ \'\'\' \n\t{sat} # on \u2028 the\x0c mat """ because'


def ran(asked: Asked, given: Worked) -> dict[str, Any]:
    """What the names stand for once the code has run."""
    names: dict[str, Any] = {}
    exec(compile(as_code(asked, given), "shown", "exec"), names)
    return names


def check(asked: Asked, part: str, layer: int, index: int, query: int, key: int) -> str:
    given = cells.worked(asked, heads.head(asked, part, layer, index), query, key)
    names, cell = ran(asked, given), given.cell
    assert cell.match is not None
    assert cell.logit is not None
    assert names["score"] == pytest.approx(cell.match.score, abs=1e-6, rel=1e-6)
    assert names["logit"] == pytest.approx(cell.logit.logit, abs=1e-6, rel=1e-6)
    assert names["weight"] == pytest.approx(cell.weight, abs=1e-6)
    shown = as_code(asked, given)
    for name in ("score", "logit", "weight"):
        (number,) = re.findall(rf"^{name} = .*# (\S+)$", shown, re.MULTILINE)
        assert float(number) == pytest.approx(names[name], rel=2e-6)
    return shown


def test_the_bundled_model(capsys: pytest.CaptureFixture[str]):
    asked = Asked("bundled", "The cat sat on the mat because it was tired.")
    shown = check(asked, "decoder", 1, 1, 8, 3)
    printed = [float(x) for x in capsys.readouterr().out.split()]
    assert len(printed) == 3
    assert "head, query, key = 1, 8, 3  # “because” looks at “sat”" in shown
    assert "target" not in shown
    assert "picture" not in shown.lower()


def test_a_hidden_key():
    shown = check(Asked("bundled", TEXT), "decoder", 0, 2, 2, 5)
    assert "logit = float(attention.logits(call, head)[query, key])  # -inf" in shown
    assert "weight = float(attention.weights(call, head)[query, key])  # 0\n" in shown


def test_any_text_is_safe():
    check(Asked("bundled", NASTY), "decoder", 1, 0, 9, 7)


def test_a_text_longer_than_those_of_training():
    check(Asked("bundled", "The cat sat on the mat. " * 50), "decoder", 1, 3, 300, 277)


def test_minilm():
    if "minilm" not in {entry.name for entry in catalogue()}:
        pytest.skip("MiniLM is not installed")
    check(Asked("minilm", TEXT + "."), "encoder", 5, 11, 9, 2)
    check(Asked("minilm", TEXT + ".", pair="It's late."), "encoder", 5, 11, 14, 2)


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_an_encoder_decoder_with_a_target_text(tmp_path: Path, part: str):
    asked = Asked(saved_models.save(tmp_path, "bart"), TEXT, target="the king was tired of gold")
    shown = check(asked, part, 1, 3, 5, 2)
    assert "target='the king was tired of gold'" in shown


def test_an_encoder_decoder_that_writes_itself(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "t5"), TEXT)
    assert "target" not in check(asked, "cross", 1, 3, 2, 6)


def test_a_drawing_for_a_vision_model(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "vit", text=False), "", picture="shapes")
    shown = check(asked, served(asked).parts[0], 2, 4, 6, 9)
    assert "DRAWINGS['shapes'].draw()" in shown


def test_a_picture_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A photograph that is stored lying, as telephones do: the code turns it as the page does."""
    picture = Image.effect_mandelbrot((60, 40), (-2, -1.5, 1, 1.5), 50)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    picture.save(file, "JPEG", exif=exif)
    monkeypatch.chdir(tmp_path)
    Path("your picture.png").write_bytes(file.getvalue())
    model = saved_models.save(tmp_path / "vit", "vit", text=False)
    asked = Asked(model, "", picture="disc", own_picture=file.getvalue())
    shown = check(asked, served(asked).parts[0], 1, 1, 6, 9)
    assert "# The file of the picture that you gave to the page." in shown
    assert "DRAWINGS" not in shown


def test_the_tower_of_a_model_with_two(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "clip"), TEXT, picture="disc")
    assert "('text', 'self', 1)" in check(asked, "text", 1, 2, 5, 3)
    assert "('vision', 'self', 1)" in check(asked, "vision", 1, 2, 5, 3)


def test_a_layer_that_attends_twice(tmp_path: Path):
    asked = Asked(saved_models.save(tmp_path, "diffllama"), TEXT)
    check(asked, "decoder", 1, 5, 6, 3)


def test_a_model_without_q_and_k_has_its_weight_alone():
    shown = as_code(Asked("bundled", TEXT), worked(weights_only=True))
    assert "attention.weights(call, head)" in shown
    assert "scores" not in shown
    assert shown.endswith("print(weight)\n")


@pytest.mark.parametrize("token", ["a\nimport os", "\r", "\u2028", "\x00", "# '\"\\"])
def test_a_token_cannot_leave_its_comment(token: str):
    words = ["<s>", token, "sat", "the", "it", "mat", "the"]
    given = worked(head=head(keys=axis(*words)))
    shown = as_code(Asked("bundled", TEXT), given)
    usual = as_code(Asked("bundled", TEXT), replace(given, head=head()))
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(usual))
    assert shown.replace("\n", "").isprintable()


def test_what_is_asked_is_spelt_as_python_spells_it():
    nasty = f"{NASTY}\udc80"  # half a character, as a browser may send
    asked = Asked('it\'s/a "model"', nasty, target=nasty, picture="disc")
    tree = ast.parse(as_code(asked, worked()))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert texts.count(nasty) == 2
    assert asked.model in texts
