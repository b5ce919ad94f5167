"""Time the page “One cell”: from a click on a cell of the matrix to its numbers drawn.

    python -m benchmarks.cell_click [--clicks 15]

A model of GPT-2-small's shape (12 layers × 12 heads, d_k 64) with seeded random weights reads
128 tokens. A window of 1,280 × 720 is timed from inside, from the event to the last change of a
heading, a sentence, a number or a chart, where after half a second without any the script has
ended and every one of them shows the new cell: each chart is another one, and names no tokens
but the two. Bytes are those of the websocket's messages, both ways. Prints Markdown tables, and
how busy the machine was: where other programs hold the cores, times say little.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, FloatRect, Page

from attnviz.ui.cell_sentences import STEPS
from benchmarks.random_model import WORDS, save_model
from benchmarks.visits import WATCH, Visit
from scripts.running_app import RunningApp, running_app, running_browser, wait_until_cell_drawn

LAYER, HEAD = 5, 3
NAMES = {number: f"{number} {name}" for number, name in enumerate(STEPS, start=1)}
NAMES[0] = "All at once"
HEAD_STEP = 3  # on screen while heads are changed
CHANGES = 3  # rounds through the steps, and of the heads

SHOWN = """() => {
    const panel = document.querySelector('.st-key-real_cell');
    const texts = name => [...panel.querySelectorAll(`[data-testid=${name}]`)]
        .map(place => place.innerText);
    const charts = [...panel.querySelectorAll('[data-testid=stVegaLiteChart] svg')];
    const strong = text => Number(getComputedStyle(text).fontWeight) > 500;
    return {
        headline: texts('stHeading')[0],
        badge: texts('stMarkdown').find(text => text.includes('recomputed here')),
        weight: texts('stMetricValue').at(-1),
        charts: charts.map(chart => chart.innerHTML),
        said: charts.map(chart => [...chart.querySelectorAll('text')].map(
            text => [text.textContent, strong(text)])),
    };
}"""

Cell = tuple[int, int]


@dataclass(frozen=True)
class Shown:
    """What of a cell is on screen."""

    headline: str
    badge: str
    weight: str
    charts: list[str]
    said: list[list[tuple[str, bool]]]

    def named(self) -> list[set[str]]:
        """The tokens of the text that each chart sets off from others."""
        return [
            {word for text, strong in chart for word in _words_of(text, strong)}
            for chart in self.said
        ]


def _words_of(text: str, strong: bool) -> list[str]:
    """A token in bold, or one in quotes."""
    if strong and text in WORDS:
        return [text]
    return [word for word in WORDS if f"“{word}”" in text]


@dataclass
class Figures:
    """What was measured: seconds and bytes under the name of a step or of what happened."""

    clicks: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    messages: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    arrivals: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    others: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def link(model: Path, step: int) -> str:
    """The address of a cell of the model, below that of the app."""
    asked = {"model": model, "text": " ".join(WORDS), "layer": LAYER, "head": HEAD}
    return "one_cell?" + urlencode(asked | {"query": 90, "key": 40, "step": step})


def cells(count: int) -> list[Cell]:
    """Different cells that are not hidden; two in a row share neither place nor distance."""
    dice, found = random.Random(0), [(90, 40)]
    while len(found) <= count:
        query, key = sorted(dice.sample(range(len(WORDS)), 2), reverse=True)
        last = found[-1]
        if query != last[0] and key != last[1] and query - key != last[0] - last[1]:
            found.append((query, key))
    return found[1:]


class CellVisit(Visit):
    """A visit of the page “One cell”."""

    def open(self, address: str) -> tuple[float, float]:
        """Follow a link; gives the seconds to the first text, and until all is drawn."""
        start = time.perf_counter()
        self.page.goto(address)
        self.page.get_by_role("heading", name="One cell, worked out").wait_for()
        text = time.perf_counter() - start
        wait_until_cell_drawn(self.page)
        drawn = time.perf_counter() - start
        self.page.evaluate(WATCH)
        self.page.wait_for_timeout(500)
        return text, drawn

    def shown(self) -> Shown:
        """What is on screen now."""
        return Shown(**self.page.evaluate(SHOWN))


def clicks(visit: CellVisit, step: int, count: int, figures: Figures) -> None:
    """Click on one cell after another."""
    before = visit.shown()
    for cell in cells(count):
        plot = visit.page.locator(".plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        figures.clicks[step].append(visit.time(lambda: _click(visit.page, box, cell)))  # noqa: B023
        figures.sizes[step].append(sum(visit.traffic.sizes))
        figures.messages[step].append(len(visit.traffic.sizes))
        before = check(visit, cell, before)


def _click(page: Page, box: FloatRect, cell: Cell) -> None:
    down, across = ((place + 0.5) / len(WORDS) for place in cell)
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])


def check(visit: CellVisit, cell: Cell, before: Shown) -> Shown:
    """Raise unless headline, numbers and every chart are those of this cell."""
    now, words = visit.shown(), [WORDS[place] for place in cell]
    assert now.headline == f"How much does “{words[0]}” look at “{words[1]}”?", now.headline
    assert (now.badge, now.weight) != (before.badge, before.weight), now.badge
    assert len(now.charts) == len(before.charts) > 0
    assert not set(now.charts) & set(before.charts), "a chart has not changed"
    assert all(named <= set(words) for named in now.named()), now.named()
    return now


def steps(visit: CellVisit, figures: Figures) -> None:
    """Go through the steps with the arrow keys and back, and to all at once."""
    forth = list(range(2, len(STEPS) + 1))
    keys = [("ArrowRight", step) for step in forth]
    keys += [("ArrowLeft", step - 1) for step in reversed(forth)]
    for key, step in keys * CHANGES:
        taken = visit.time(lambda: visit.page.keyboard.press(key))  # noqa: B023
        figures.arrivals[step].append(taken)
        assert containers(visit.page) == [step]
    for _ in range(CHANGES):
        all_at_once = visit.page.get_by_role("button", name=NAMES[0])
        figures.arrivals[0].append(visit.time(all_at_once.click))
        assert containers(visit.page) == list(range(1, len(STEPS) + 1))
        visit.time(visit.page.get_by_role("button", name=NAMES[1]).click)


def containers(page: Page) -> list[int]:
    """The steps on screen."""
    names = page.locator("[data-testid=stVerticalBlock][class*=st-key-step_]").evaluate_all(
        "steps => steps.map(step => step.className)"
    )
    return [int(name.split("st-key-step_")[1][0]) for name in names]


def heads(visit: CellVisit, figures: Figures) -> None:
    """Go through the heads with the arrow keys of their field and back."""
    before = visit.shown()
    for key in ["ArrowUp"] * CHANGES + ["ArrowDown"] * CHANGES:
        visit.page.get_by_role("spinbutton", name="Head", exact=True).focus()
        taken = visit.time(lambda: visit.page.keyboard.press(key))  # noqa: B023
        name = "change of head, new" if key == "ArrowUp" else "change of head, seen"
        figures.others[name].append(taken)
        now = visit.shown()
        assert now.badge != before.badge
        assert not set(now.charts) & set(before.charts), "a chart has not changed"
        before = now


def measure(browser: Browser, app: RunningApp, model: Path, count: int) -> Figures:
    """Time all of it on one server."""
    figures = Figures()
    for step in (*range(1, len(STEPS) + 1), 0):
        visit = CellVisit(browser)
        text, drawn = visit.open(f"{app.address}/{link(model, step)}")
        when = "cold" if step == 1 else "again"
        if step:
            figures.others[f"first text, {when}"].append(text)
            figures.others[f"all drawn, {when}"].append(drawn)
        clicks(visit, step, count, figures)
        visit.leave()
    for step, go in ((1, steps), (HEAD_STEP, heads)):
        visit = CellVisit(browser)
        visit.open(f"{app.address}/{link(model, step)}")
        go(visit, figures)
        visit.leave()
    return figures


def tables(figures: Figures) -> str:
    """Return two Markdown tables: of the steps, and of all else."""
    lines = [
        "| step | click, median | smallest | worst | times | largest payload | messages "
        "| to this step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for step, seconds in figures.clicks.items():
        cell = " | ".join(f"{f(seconds):.2f} s" for f in (median, min, max))
        cell = f"{cell} | {len(seconds)}"
        size = f"{max(figures.sizes[step]) / 1000:.0f} kB | {max(figures.messages[step])}"
        arrival = f"{median(figures.arrivals[step]):.2f} s"
        lines.append(f"| {NAMES[step]} | {cell} | {size} | {arrival} |")
    lines += ["", "| what | median | smallest | largest | times |", "|---|---|---|---|---|"]
    for name, values in figures.others.items():
        told = " | ".join(f"{f(values):.2f} s" for f in (median, min, max))
        lines.append(f"| {name} | {told} | {len(values)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clicks", type=int, default=15, help="on different cells, at each step")
    count = parser.parse_args().clicks
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        save_model(Path(folder))
        with running_app() as app:
            app.wait()
            before = os.getloadavg()[0]
            figures = measure(browser, app, Path(folder), count)
    busy = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    sys.stdout.write(f"{tables(figures)}\n\nLoad average: {busy}\n")


if __name__ == "__main__":
    main()
