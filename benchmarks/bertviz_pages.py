"""Time the pages of BertViz 1.4.1 as `benchmarks.browser` times that of attnviz.

Its pages load their scripts from a CDN. Here they are answered with npm's packages of the same
versions; of jQuery 2.0.0, which npm never had, with 2.1.0.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page

from benchmarks.random_model import HEADS, LAYERS, text
from benchmarks.visits import HOVER, PAINTED, WINDOW, hovers

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {  # address on the CDN: npm's package, and the file in it
    "require.js/2.3.6/require.min.js": ("requirejs@2.3.6", "require.js"),
    "d3/5.7.0/d3.min.js": ("d3@5.7.0", "dist/d3.min.js"),
    "jquery/2.0.0/jquery.min.js": ("jquery@2.1.0", "dist/jquery.min.js"),
}
PATIENCE = 300_000  # ms
TIMES = 5
# The ms from setting another layer in the menu to the painted frame.
CHANGE_LAYER = f"""async layer => {{
    const start = performance.now(), menu = document.querySelector('#layer');
    menu.value = layer;
    menu.dispatchEvent(new Event('change'));
    return await ({PAINTED})() - start;
}}"""
# The same from a click on a head of the model view.
OPEN_HEAD = f"""async ([layer, head]) => {{
    const start = performance.now();
    const place = document.querySelector(`#attn_background_${{layer}}_${{head}}`).parentNode;
    place.lastChild.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}));
    return await ({PAINTED})() - start;
}}"""


@dataclass(frozen=True)
class Compared:
    """What a page sends in bytes, and its seconds until drawn, of another head, of a hover."""

    name: str
    size: int
    drawn: float
    change: float
    hover: float


def measured(
    browser: Browser, python: str, model: Path, lengths: Sequence[int]
) -> Iterator[Compared]:
    """Both views of a model, on texts of so many tokens; the largest pages take minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripts = {address: _unpacked(folder, *of) for address, of in PACKAGES.items()}
        for tokens in lengths:
            for view in ("head_view", "model_view"):
                file = folder / f"{view}.html"
                yield _measured(browser, python, model, file, tokens, scripts)


def _unpacked(folder: Path, package: str, file: str) -> str:
    """A script of npm's registry."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True
    )
    with tarfile.open(folder / packed.stdout.strip()) as archive:
        script = archive.extractfile(f"package/{file}")
        assert script is not None
        return script.read().decode()


def _measured(
    browser: Browser, python: str, model: Path, file: Path, tokens: int, scripts: dict[str, str]
) -> Compared:
    view = file.stem
    subprocess.run(
        [python, "-m", "benchmarks.bertviz_view", str(model), view, str(file)],
        cwd=ROOT, check=True, capture_output=True, input=text(tokens), text=True,
    )  # fmt: skip
    page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
    for address, script in scripts.items():
        page.route(
            f"**/{address}",
            lambda route, _, script=script: route.fulfill(
                body=script, content_type="text/javascript"
            ),
        )
    drawn = _opened(page, file, tokens, LAYERS if view == "model_view" else 1)
    change = (_layers if view == "head_view" else _details)(page)
    page.evaluate(HOVER)
    hover = median(hovers(page, _tokens(page, view)))
    page.close()
    return Compared(f"BertViz {view}, n = {tokens}", file.stat().st_size, drawn, change, hover)


def _opened(page: Page, file: Path, tokens: int, layers: int) -> float:
    """Load a page, until each weight of so many layers has its line; gives the seconds."""
    page.goto(file.as_uri(), wait_until="commit", timeout=PATIENCE)
    lines = layers * HEADS * tokens**2
    page.wait_for_function(
        "count => document.querySelectorAll('#vis line').length >= count",
        arg=lines,
        polling=50,
        timeout=PATIENCE,
    )
    milliseconds: float = page.evaluate(PAINTED)
    return milliseconds / 1000


def _layers(page: Page) -> float:
    return median(page.evaluate(CHANGE_LAYER, layer) / 1000 for layer in range(1, 1 + TIMES))


def _details(page: Page) -> float:
    return median(page.evaluate(OPEN_HEAD, [0, head]) / 1000 for head in range(TIMES))


def _tokens(page: Page, view: str) -> list:
    """The tokens of the left column that are in the window."""
    words = "#left text" if view == "head_view" else ".detail text.token"
    return page.locator(words).all()[1 : 1 + 2 * TIMES]


HEADER = """| page | bytes | from load to drawn | another head | hover |
|---|---|---|---|---|
"""


def row(of: Compared) -> str:
    """A row of a Markdown table under `HEADER`."""
    times = f"{of.drawn:.2f} s | {1000 * of.change:.0f} ms | {1000 * of.hover:.0f} ms"
    return f"| {of.name} | {of.size / 1e6:.2f} MB | {times} |\n"
