"""Time what a visitor waits for, from starting the server process to a change of head.

    python -m benchmarks.first_paint [--repeat 5]

Chromium runs before the server is started, and asks for the page until it is served. Each
visit has an empty browser cache. A change of head is timed inside the page, from the key press
to the new picture in it. Prints medians as a Markdown table; memory is read from Linux's /proc.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, Error, Page
from tokenizers import Tokenizer

from scripts.running_app import (
    HEAD_PICTURE,
    ROOT,
    RunningApp,
    running_app,
    running_browser,
    wait_until_drawn,
)

TITLE = "Attention is a search"
SENTENCE = "The cat sat on the mat because it was tired."
LONG = 250  # tokens; the bundled model takes 256
TEXTS_PER_SERVER = 4  # of each length; each brings three heads never asked for before
HEADS = 4  # in each layer of the bundled model

# Resolves to the milliseconds from the next key press to another picture on the page.
TIME_TO_NEW_PICTURE = f"""() => new Promise(resolve => {{
    const picture = () => document.querySelector("{HEAD_PICTURE}")?.href.baseVal;
    const before = picture();
    let pressed;
    addEventListener('keydown', () => {{ pressed = performance.now(); }}, {{
        capture: true, once: true }});
    const observer = new MutationObserver(() => {{
        const now = picture();
        if (pressed && now && now !== before) {{
            observer.disconnect();
            resolve(performance.now() - pressed);
        }}
    }});
    const all = {{ childList: true, subtree: true, attributes: true }};
    observer.observe(document.body, all);
}})"""

Timings = dict[str, list[float]]


def texts(tokens: int) -> list[str]:
    """Return different texts of this many tokens, BOS included."""
    tokenizer = Tokenizer.from_file(str(ROOT / "attnviz" / "bundled" / "tokenizer.json"))
    found = []
    for opening in ("One", "Two", "Some", "Many")[:TEXTS_PER_SERVER]:
        text = f"{opening} days."
        for word in SENTENCE.split() * tokens:
            longer = f"{text} {word}"
            if len(tokenizer.encode(longer).ids) > tokens:
                break
            text = longer
        found.append(text)
    return found


def measure(browser: Browser, timings: Timings) -> None:
    """Time one server, from its start to its end."""
    page = _visitor(browser)
    start = time.perf_counter()
    with running_app() as app:
        _open_as_soon_as_served(page, app)
        _first_visit(page, start, timings["first text, cold"], timings["both drawn, cold"])
        page.context.close()
        page = _visitor(browser)
        start = time.perf_counter()
        page.goto(app.address)
        _first_visit(page, start, timings["first text, again"], timings["both drawn, again"])
        page.context.close()
        for tokens in (13, LONG):
            for text in texts(tokens):
                _changes_of_head(browser, app, text, tokens, timings)
        timings["resident memory"].append(app.resident_megabytes())


def _visitor(browser: Browser) -> Page:
    return browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()


def _open_as_soon_as_served(page: Page, app: RunningApp) -> None:
    """Reload until the server answers, as an impatient visitor does."""
    while app.process.poll() is None:
        try:
            page.goto(app.address, wait_until="commit")
        except Error:
            time.sleep(0.02)
        else:
            return
    raise SystemExit(app.log())


def _first_visit(page: Page, start: float, text: list[float], drawn: list[float]) -> None:
    page.get_by_role("heading", name=TITLE).wait_for()
    text.append(time.perf_counter() - start)
    wait_until_drawn(page)
    drawn.append(time.perf_counter() - start)


def _changes_of_head(
    browser: Browser, app: RunningApp, text: str, tokens: int, timings: Timings
) -> None:
    """Go through the heads of a layer and back: first never seen on this text, then seen."""
    page = _visitor(browser)
    page.goto(f"{app.address}/?{urlencode({'model': 'bundled', 'text': text, 'head': 0})}")
    wait_until_drawn(page)
    field = page.get_by_role("spinbutton", name="Head", exact=True)
    for name, key in (("new", "ArrowUp"), ("seen", "ArrowDown")):
        for _ in range(HEADS - 1):
            field.focus()
            page.evaluate(f"window.change = ({TIME_TO_NEW_PICTURE})(); undefined")
            page.keyboard.press(key)
            milliseconds = page.evaluate("window.change")
            timings[f"change of head, n = {tokens}, {name}"].append(milliseconds / 1000)
            wait_until_drawn(page)
    page.context.close()


def table(timings: Timings) -> str:
    """Return a Markdown table with a row for each quantity."""
    lines = ["| what | median | smallest | largest | times |", "|---|---|---|---|---|"]
    for name, values in timings.items():
        unit = "MB" if name == "resident memory" else "s"
        digits = 0 if unit == "MB" else 2
        told = (f"{f(values):.{digits}f} {unit}" for f in (median, min, max))
        lines.append(f"| {name} | {' | '.join(told)} | {len(values)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, and measure as often as it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="how many servers to start")
    repeat = parser.parse_args().repeat
    timings: Timings = defaultdict(list)
    with running_browser() as browser:
        for _ in range(repeat):
            measure(browser, timings)
    sys.stdout.write(table(timings) + "\n")


if __name__ == "__main__":
    main()
