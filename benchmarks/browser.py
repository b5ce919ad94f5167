"""Time “Heads” and “Why √d_k” in a browser, and BertViz on the model and text of the former.

    python -m benchmarks.browser [--changes 20] [--memory 500] [--draws 5] [--bertviz PYTHON]
        [--only WORD]

A model of GPT-2-small's shape (12 layers × 12 heads, d_k 64) with seeded random weights reads
random words; “Why √d_k” shows its opening text, read by the bundled model. Pages are timed from
inside, from the event to the painted frame after which, for half a second, no sentence and no
canvas has changed and the script has ended; then the page must show what was asked for. Bytes are
those of the websocket's messages, both ways. PYTHON is that of an environment with
`requirements-bertviz.txt`; without one, BertViz is left out. Prints Markdown tables, and how busy
the machine was: where other programs hold the cores, times say little.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, Locator, expect

from benchmarks import bertviz_pages
from benchmarks.random_model import HEADS, LAYERS, save_model, text
from benchmarks.visits import HOVER, WATCH, WINDOW, Visit, hovers
from scripts.running_app import ROOT, RunningApp, running_app, running_browser

PLACES = 4096
BUNDLED_TOKENS = 16_000
PATIENCE = 300.0  # seconds
LAYER, HEAD = 5, 3  # with which a visit opens
WINDOWS = (WINDOW, (1400, 1000))
COMPARED = (64, 128)  # tokens on which BertViz is measured too
HOVERED = 20  # tokens
ZOOMS = 6  # from all of 4,096 tokens
SETTLED = 50  # changes of head, after which memory should not grow
LAB_D_K, LAB_SEED = 64, 1000  # with which a visit of the scale lab opens
LAB = {"n": 64, "d_k": LAB_D_K, "seed": LAB_SEED, "layer": 0, "head": 0}
LAB_WALK = (128, 256, 512, 256, 128, 64, 32, 16, 32, 64)  # d_k, a key of the slider apart
LAB_DIVISORS = ("1", "d_k", "d_k²", "√d_k")
LAB_SECTIONS = 7


@dataclass(frozen=True)
class Change:
    """What a change took: seconds until its picture and until all was painted, and bytes."""

    seconds: float
    picture: float
    sizes: tuple[int, ...]


Figures = dict[str, list[Change]]


def link(model: str | Path, words: str, **more: object) -> str:
    """The address of a head of a model, below that of the app."""
    return "heads?" + urlencode({"model": model, "text": words, **more})


class HeadsVisit(Visit):
    """A visit of the page “Heads”, opened by a link."""

    def __init__(self, browser: Browser, window: tuple[int, int] = WINDOW) -> None:
        super().__init__(browser, window)
        self.page.add_init_script(f"({WATCH})()")

    def open(self, address: str, *wanted: str) -> Change:
        """Follow a link, until all of it is drawn."""
        return self.change(lambda: self.page.goto(address), *wanted)

    def change(self, act: Callable[[], object], *wanted: str) -> Change:
        """What something that a visitor does takes, until these kinds of canvas are drawn."""
        noted = self.watched(act, *wanted, patience=PATIENCE)
        expect(self.page.get_by_test_id("stException")).to_have_count(0)
        picture = max((noted["drawn"][kind] for kind in wanted), default=noted["painted"])
        seconds = [(end - noted["start"]) / 1000 for end in (noted["painted"], picture)]
        return Change(seconds[0], seconds[1], tuple(self.traffic.sizes))

    def read(self, words: str, *wanted: str) -> Change:
        """Let the model read another text."""
        field = self.page.get_by_label("Text", exact=True)
        field.fill(words)
        return self.change(lambda: field.press("Control+Enter"), *wanted)

    def fold(self) -> Locator:
        """What opens and closes the overview."""
        return self.page.locator("summary").filter(has_text="All heads")

    def close_overview(self) -> None:
        """Leave the overview out, and wait until it is gone."""
        self.fold().click()
        expect(self.page.locator(".mosaic")).to_have_count(0)
        self.page.wait_for_timeout(500)

    def button(self, name: str) -> Locator:
        """A button by its words."""
        return self.page.get_by_role("button", name=name, exact=True)

    def matrix(self) -> str:
        """The picture of the head, as a data URL."""
        shown: str = self.page.locator(".picker .plot canvas").evaluate("c => c.toDataURL()")
        return shown

    def expect_caption(self, words: str) -> None:
        """Raise unless the line under the drawing says so."""
        caption = self.page.get_by_test_id("stCaptionContainer").filter(has_text="real ·")
        expect(caption.filter(has_text=words)).to_have_count(1, timeout=60_000)


@contextmanager
def visiting(browser: Browser, window: tuple[int, int] = WINDOW) -> Iterator[HeadsVisit]:
    """A visit that ends."""
    visit = HeadsVisit(browser, window)
    try:
        yield visit
    finally:
        visit.leave()


# --- one head after another


def walk() -> Iterator[tuple[str, int, int]]:
    """Through all heads and back without end: the arrow key, and the layer and head it leads to."""
    heads = range(LAYERS * HEADS)
    forth = [("ArrowRight", at) for at in heads[1:]]
    back = [("ArrowLeft", at) for at in reversed(heads[:-1])]
    start = LAYER * HEADS + HEAD
    steps = chain(forth[start:], cycle([*back, *forth]))
    return ((key, *divmod(at, HEADS)) for key, at in steps)


def open_next(visit: HeadsVisit, key: str) -> None:
    """Move to the next head in the overview, and open it."""
    visit.page.locator(".mosaic .plot").focus()
    visit.page.keyboard.press(key)
    visit.page.keyboard.press("Enter")


def heads(visit: HeadsVisit, count: int) -> list[Change]:
    """Open so many heads, each of which is drawn otherwise than the one before."""
    changes, before = [], visit.matrix()
    for key, layer, head in islice(walk(), count):
        changes.append(visit.change(lambda: open_next(visit, key), "matrix"))  # noqa: B023
        visit.expect_caption(f"layer {layer}, head {head} ")
        now = visit.matrix()
        assert now != before, "the picture has not changed"
        before = now
    return changes


def grown(visit: HeadsVisit, app: RunningApp, count: int) -> list[float]:
    """The server's memory, in megabytes, before and after each of so many changes of head."""
    sizes = [app.resident_megabytes()]
    for key, layer, head in islice(walk(), count):
        open_next(visit, key)
        visit.expect_caption(f"layer {layer}, head {head} ")
        sizes.append(app.resident_megabytes())
    return sizes


# --- the scale lab


def lab_link(**asked: object) -> str:
    """The address of a draw of the scale lab, below that of the app."""
    return "why_sqrt_d_k?" + urlencode(LAB | asked)


def lab(browser: Browser, app: RunningApp, rounds: int, figures: Figures) -> None:
    """Fields of the scale lab moved, each round on a draw of its own, and its sections opened."""
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{lab_link()}")
        for seed in range(LAB_SEED + 1, LAB_SEED + 1 + rounds):
            draws(visit, seed, figures)
        for way in ("ArrowUp",) * 3 + ("ArrowDown",) * 3:
            field = visit.page.get_by_role("spinbutton", name="Head", exact=True)
            figures["another head of the model, n = 13"].append(pressed(visit, field, way))
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{lab_link(section=LAB_SECTIONS)}")
        sections(visit, figures)
        surgery(visit, figures)


def draws(visit: HeadsVisit, seed: int, figures: Figures) -> None:
    """Another seed, all divisors on it, and a walk over d_k, the way back of which is known."""
    field = visit.page.get_by_role("spinbutton", name="Seed", exact=True)
    field.fill(str(seed))
    figures["another seed"].append(pressed(visit, field, "Enter"))
    expect_drawn(visit, f"d_k = {LAB_D_K} ·", f"seed {seed}")
    for name in LAB_DIVISORS:
        choice = visit.page.get_by_role("radio", name=name, exact=True)
        figures["another divisor"].append(visit.change(choice.click))
        expect(choice).to_be_checked()
    seen, d_k = {LAB_D_K}, LAB_D_K
    slider = visit.page.get_by_role("slider", name="d_k: the width")
    for wanted in LAB_WALK:
        what = "d_k slider, seen" if wanted in seen else "d_k slider, new"
        key = "ArrowRight" if wanted > d_k else "ArrowLeft"
        figures[what].append(pressed(visit, slider, key))
        expect_drawn(visit, f"d_k = {wanted} ·", f"seed {seed}")
        seen.add(wanted)
        d_k = wanted


def pressed(visit: HeadsVisit, field: Locator, key: str) -> Change:
    """What a key costs in a field, after which no chart is as it was."""
    field.focus()
    before = charts(visit)
    change = visit.change(lambda: field.press(key))
    changed = [one != other for one, other in zip(before, charts(visit), strict=True)]
    assert sum(changed) * 2 >= len(changed), "charts have not changed"
    return change


def charts(visit: HeadsVisit) -> list[str]:
    """All charts of the page, as they are drawn."""
    drawn: list[str] = visit.page.locator("[data-testid=stVegaLiteChart]").evaluate_all(
        "charts => charts.map(chart => chart.innerHTML)"
    )
    return drawn


def expect_drawn(visit: HeadsVisit, *words: str) -> None:
    """Raise unless the lines under all drawn charts say so."""
    lines = visit.page.get_by_test_id("stCaptionContainer").filter(has_text="synthetic ·")
    for told in lines.all_inner_texts():
        assert all(word in told for word in words), told


def sections(visit: HeadsVisit, figures: Figures) -> None:
    """Open each section for the first time on this server, then again."""
    for when in ("first", "again"):
        for number in range(1, LAB_SECTIONS + 1):
            button = visit.page.locator(".st-key-steps button").nth(number - 1)
            figures[f"section {number}, {when}"].append(visit.change(button.click))
            title = visit.page.get_by_role("heading", level=2)
            expect(title).to_have_text([button.inner_text()])


def surgery(visit: HeadsVisit, figures: Figures) -> None:
    """Multiply all scores of the model by one factor after another."""
    visit.change(visit.page.locator(".st-key-steps button").nth(4).click)
    visit.change(visit.page.get_by_text("or times a factor").click)
    slider = visit.page.get_by_role("slider", name="Factor on every q·k")
    for key in ("ArrowRight",) * 10 + ("ArrowLeft",) * 10:
        figures["another factor on the model, n = 13"].append(pressed(visit, slider, key))


# --- what is measured


def short_texts(
    browser: Browser, app: RunningApp, model: Path, count: int, figures: Figures
) -> None:
    """Heads, overview and lines, in windows of two sizes."""
    for window in WINDOWS:
        wide = f"{window[0]:,} px"
        with visiting(browser, window) as visit:
            opened = link(model, text(512), layer=LAYER, head=HEAD)
            visit.open(f"{app.address}/{opened}", "matrix", "mosaic")
            figures[f"change of head, n = 512, {wide}"] = heads(visit, count)
            overview(visit, wide, 1 + window[0], count, figures)
        with visiting(browser, window) as visit:
            opened = link(model, text(120), layer=LAYER, head=HEAD, view="lines")
            visit.open(f"{app.address}/{opened}", "lines", "mosaic")
            figures[f"hover in lines, n = 120, {wide}"] = hover(visit)


def overview(visit: HeadsVisit, wide: str, seed: int, count: int, figures: Figures) -> None:
    """Open the overview of 144 heads: of a new text, and again."""
    visit.close_overview()
    visit.read(text(512, seed), "matrix")
    for at in range(1 + count // 2):
        which = "statistics computed" if at == 0 else "again"
        opened = visit.change(visit.fold().click, "mosaic")
        figures[f"overview of 144 heads, n = 512, {which}, {wide}"].append(opened)
        visit.close_overview()


def hover(visit: HeadsVisit) -> list[Change]:
    """Point at one token after another: seconds from the pointer's event to the painted frame."""
    page = visit.page
    lines = page.locator(".drawing", has=page.locator(".column.query"))
    page.evaluate(HOVER)
    tokens = lines.locator(".column.query .token").all()[:HOVERED]
    found = hovers(page, tokens)
    expect(lines.locator(".reading")).to_contain_text(
        f"query {tokens[-1].get_attribute('aria-label')} "
    )
    return [Change(seconds, seconds, ()) for seconds in found]


def long_texts(browser: Browser, app: RunningApp, model: Path, figures: Figures) -> None:
    """Open the longest texts, and zoom."""
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{link(model, text(120), layer=LAYER, head=HEAD)}", "matrix")
        visit.close_overview()
        for seed in (1, 2):
            opened = visit.read(text(PLACES, seed), "matrix")
            visit.expect_caption(f"n = {PLACES:,} ")
            figures[f"opening {PLACES:,} tokens, 12 × 12 heads"].append(opened)
        for way in ("Zoom in", "Zoom out") * 2:
            for _ in range(ZOOMS):
                zoomed = visit.change(visit.button(way).click, "matrix")
                figures[f"zoom, n = {PLACES:,}"].append(zoomed)
        figures[f"change of head, n = {PLACES:,}"] = other_heads(visit)
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{link('bundled', 'One day.')}", "matrix")
        visit.close_overview()
        words = bundled_text()
        opened = visit.read(words, "matrix")
        visit.expect_caption(f"n = {BUNDLED_TOKENS:,} ")
        figures[f"opening {BUNDLED_TOKENS:,} tokens, bundled model"].append(opened)


def other_heads(visit: HeadsVisit) -> list[Change]:
    """Go through the heads of a layer by their field, as the overview is closed."""
    field = visit.page.get_by_role("spinbutton", name="Head", exact=True)
    changes = []
    for _ in range(6):
        field.focus()
        changes.append(visit.change(lambda: visit.page.keyboard.press("ArrowUp"), "matrix"))
    return changes


def bundled_text() -> str:
    """A text of so many tokens of the bundled model, BOS included."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ROOT / "attnviz" / "bundled" / "tokenizer.json"))
    sentence = "The cat sat on the mat because it was tired. "
    each = len(tokenizer.encode(sentence * 2).ids) - len(tokenizer.encode(sentence).ids)
    words = sentence * (BUNDLED_TOKENS // each)
    while len(tokenizer.encode(words).ids) < BUNDLED_TOKENS:
        words += "the "
    return words


def forward(model: str | Path, words: str) -> float:
    """The seconds of a plain forward pass with as many threads as the app takes, after another."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    tokens = AutoTokenizer.from_pretrained(model)(words, return_tensors="pt").input_ids
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            network(tokens, use_cache=False)
            taken = time.perf_counter() - start
    return taken


def compared(browser: Browser, app: RunningApp, model: Path, tokens: int) -> bertviz_pages.Compared:
    """The page “Heads” as BertViz's pages are measured: from its load to all drawn."""
    words = text(tokens)
    opened = link(model, words, layer=LAYER, head=HEAD)
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{opened}", "matrix", "mosaic")
    with visiting(browser) as visit:
        again = visit.open(f"{app.address}/{opened}", "matrix", "mosaic")
        changes = heads(visit, 10)
    with visiting(browser) as visit:
        visit.open(f"{app.address}/{opened}&view=lines", "lines", "mosaic")
        hovered = hover(visit)
    return bertviz_pages.Compared(
        f"attnviz, n = {tokens}",
        sum(again.sizes),
        again.seconds,
        median(change.seconds for change in changes),
        median(change.seconds for change in hovered),
    )


# --- tables


def table(figures: Figures) -> str:
    """Return a Markdown table with a row for each thing that was done."""
    lines = [
        "| what | median | picture alone | smallest | largest | times | bytes, median "
        "| largest message |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, changes in figures.items():
        seconds = [change.seconds for change in changes]
        picture = median(change.picture for change in changes)
        told = " | ".join(map(spelt, (median(seconds), picture, min(seconds), max(seconds))))
        lines.append(f"| {name} | {told} | {len(changes)} | {sent(changes)} |")
    return "\n".join(lines)


def sent(changes: list[Change]) -> str:
    """Two cells: all bytes of the median change, and of the largest message of any."""
    if not any(change.sizes for change in changes):
        return "– | –"
    usual = median(sum(change.sizes) for change in changes)
    largest = max(max(change.sizes, default=0) for change in changes)
    return f"{usual / 1000:.0f} kB | {largest / 1000:.0f} kB"


def spelt(seconds: float) -> str:
    """Milliseconds below a second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def percentiles(figures: Figures) -> str:
    """Return a Markdown table with the middle and the slow end of all that was done."""
    lines = [
        "| what | median | 90th percentile | smallest | largest | times | bytes, median "
        "| largest message |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, changes in figures.items():
        seconds = [change.seconds for change in changes]
        values = (median(seconds), ninetieth(seconds), min(seconds), max(seconds))
        told = " | ".join(map(spelt, values))
        lines.append(f"| {name} | {told} | {len(changes)} | {sent(changes)} |")
    return "\n".join(lines)


def ninetieth(values: Sequence[float]) -> float:
    """The 90th percentile, between the two values that are next to it."""
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]


def of_memory(sizes: list[float]) -> str:
    """A sentence about what the server held while heads were changed."""
    early, late = sizes[SETTLED], sizes[-1]
    return (
        f"Resident memory over {len(sizes) - 1} changes of head, n = 512: {sizes[0]:.0f} MB at "
        f"first, {early:.0f} MB after {SETTLED}, {late:.0f} MB at the end "
        f"({100 * (late / early - 1):+.1f} %), at most {max(sizes[SETTLED:]):.0f} MB."
    )


def report(browser: Browser, app: RunningApp, model: Path, asked: argparse.Namespace) -> None:
    """Measure what is asked for, and print each table as soon as it is there."""
    figures: Figures = defaultdict(list)
    if asked.only in ("", "short"):
        short_texts(browser, app, model, asked.changes, figures)
    if asked.only in ("", "long"):
        for name, words, tokens in (
            (model, text(PLACES, 1), PLACES),
            (ROOT / "attnviz" / "bundled", bundled_text(), BUNDLED_TOKENS),
        ):
            taken = forward(name, words)
            figures[f"plain forward pass, {tokens:,} tokens"].append(Change(taken, taken, ()))
        long_texts(browser, app, model, figures)
    if figures:
        say(f"{table(figures)}\n\n")
    if asked.only in ("", "lab"):
        of_the_lab: Figures = defaultdict(list)
        lab(browser, app, asked.draws, of_the_lab)
        say(f"{percentiles(of_the_lab)}\n\n")
    if asked.only in ("", "compared"):
        say(bertviz_pages.HEADER)
        for tokens in COMPARED:
            say(bertviz_pages.row(compared(browser, app, model, tokens)))
        if asked.bertviz:
            for page in bertviz_pages.measured(browser, asked.bertviz, model, COMPARED):
                say(bertviz_pages.row(page))
        say("\n")
    if asked.only in ("", "memory"):
        with visiting(browser) as visit:
            visit.open(f"{app.address}/{link(model, text(512), layer=LAYER, head=HEAD)}", "matrix")
            say(of_memory(grown(visit, app, asked.memory)) + "\n\n")


def say(words: str) -> None:
    """Write a part of the result."""
    sys.stdout.write(words)
    sys.stdout.flush()


def main() -> None:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=20, help="changes of head")
    parser.add_argument("--memory", type=int, default=500, help="changes of head for the memory")
    parser.add_argument("--bertviz", default="", help="a Python that has bertviz")
    parser.add_argument("--draws", type=int, default=5, help="draws of the scale lab")
    parts = ("", "short", "long", "lab", "compared", "memory")
    parser.add_argument("--only", default="", choices=parts, help="one part")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        save_model(Path(folder), PLACES)
        with running_app() as app:
            app.wait()
            before = os.getloadavg()[0]
            report(browser, app, Path(folder), asked)
    say(f"Load: {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores\n")


if __name__ == "__main__":
    main()
