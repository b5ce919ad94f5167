"""Who imports whom, and names that say nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = (
    {"app", "pages"},
    {"attnviz.ui"},
    {"attnviz.notebook"},
    {"attnviz.export"},
    {"attnviz.charts"},
    {"attnviz.frames", "attnviz.cell_frames", "attnviz.head_frames", "attnviz.lab_frames"}
    | {"attnviz.surgery_frames", "attnviz.circuits_frames", "attnviz.training_frames"}
    | {"attnviz.roles_frames", "attnviz.training_log"},
    {"attnviz.finder"},
    {"attnviz.published", "attnviz.training", "attnviz.outcome"},
    {"attnviz.projections"},
    {"attnviz.lookup_task"},
    {"attnviz.cell", "attnviz.distance", "attnviz.patterns", "attnviz.thumbnails"}
    | {"attnviz.weighing", "attnviz.pooling", "attnviz.folding"}
    | {"attnviz.circuits", "attnviz.tying"},
    {"attnviz.windows"},
    {"attnviz.anatomy", "attnviz.attention", "attnviz.head_statistics", "attnviz.synthetic"}
    | {"attnviz.head_moments"}
    | {"attnviz.call_statistics", "attnviz.weight_blocks"},
    {"attnviz.reading", "attnviz.self_test"},
    {"attnviz.wiring", "attnviz.origins"},
    {"attnviz.capture", "attnviz.follower", "attnviz.surgery"},
    {"attnviz.recorder", "attnviz.surroundings"},
    {"attnviz.verification", "attnviz.places"},
    {"attnviz.attention_call"},
    {"attnviz.inputs"},
    {"attnviz.pictures"},
    {"attnviz.tokens"},
    {"attnviz.models"},
    {"attnviz.gguf_file", "attnviz.hub"},
    {"attnviz.model_folder"},
    {"attnviz.loading"},
    {"attnviz.limits"},
    {"attnviz.memory", "attnviz.quiet"},
    {"attnviz.refusals"},
    {"attnviz.operations", "attnviz.padding", "attnviz.trail"},
    {"attnviz.matrix_products", "attnviz.rotation"},
    {"attnviz.families", "attnviz.interface", "attnviz.trace"},
    {"attnviz.moments", "attnviz.roles"},
    {"attnviz.equation"},
)
ONLY_IN = {"streamlit": ("app", "pages", "attnviz.ui"), "altair": ("attnviz.charts",)}
NOT_IN_PAGES = {"torch", "transformers", "altair", "numpy", "pandas"}
FORBIDDEN_MODULES = {"utils", "util", "helpers", "helper", "common", "misc"}
FORBIDDEN_WORDS = {"dest", "src", "tgt", "seq_len", "attn_probs", "qk"}
CODE = sorted(
    path
    for place in ("app.py", "pages", "attnviz")
    for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Modules imported at run time: what stands under TYPE_CHECKING is for the reader."""
    tree = ast.parse(path.read_text())
    for_readers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_readers:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int | None:
    for height, members in enumerate(LAYERS):
        if any(module == name or module.startswith(f"{name}.") for name in members):
            return height
    return None


@pytest.mark.parametrize("path", CODE, ids=module_of)
def test_imports_go_down_only(path: Path):
    own = layer_of(module_of(path))
    if module_of(path) == "attnviz":
        return
    assert own is not None, f"{module_of(path)} belongs to no layer; give it one"
    for imported in imports(path):
        height = layer_of(imported)
        if height is not None:
            assert height >= own, f"{module_of(path)} imports {imported}, which lies above it"


@pytest.mark.parametrize("path", CODE, ids=module_of)
def test_streamlit_and_altair_stay_in_their_place(path: Path):
    for package, places in ONLY_IN.items():
        if any(imported.split(".")[0] == package for imported in imports(path)):
            assert module_of(path).startswith(places)


@pytest.mark.parametrize("path", [p for p in CODE if p.parent == ROOT / "pages"], ids=module_of)
def test_pages_hold_no_tensor_frame_or_chart_code(path: Path):
    assert not {imported.split(".")[0] for imported in imports(path)} & NOT_IN_PAGES


def test_app_is_configuration_and_navigation():
    lines = (ROOT / "app.py").read_text().splitlines()
    assert len(lines) < 40
    assert "def " not in "\n".join(lines)


@pytest.mark.parametrize("path", CODE, ids=module_of)
def test_names_say_what_they_mean(path: Path):
    assert path.stem not in FORBIDDEN_MODULES
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert not names & FORBIDDEN_WORDS
    assert not [name for name in classes if name.endswith("Manager")]


def test_the_equation_stands_once():
    """Softmax over logits is called in one module only."""
    callers = [module_of(path) for path in CODE if ".softmax(" in path.read_text()]
    assert callers == ["attnviz.equation"]


def test_top_level_holds_what_it_should():
    allowed = {
        *("app.py", "pages", "attnviz", "tests", "requirements.txt", "requirements-dev.txt"),
        *("README.md", "LICENSE", "pyproject.toml", "packages.txt", "scripts", "benchmarks"),
        *(".streamlit", ".ci", ".gitignore", ".git"),
        *(".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache", "__pycache__"),
    }
    assert {path.name for path in ROOT.iterdir()} <= allowed
