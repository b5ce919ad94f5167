"""A page of the app that is timed from inside, and its messages counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Locator, Page, WebSocket

WINDOW = (1280, 720)

# Notes when a key or a button of the mouse went down, when the last content came after it, when
# each kind of canvas was drawn last, and when the frame was painted that holds all of it.
WATCH = """() => {
    const content = ['stHeading', 'stMarkdown', 'stMetric', 'stTable', 'stVegaLiteChart']
        .map(name => `[data-testid=${name}]`).join();
    let painting = false;
    const begin = event => { window.watched = { start: event.timeStamp, last: 0, drawn: {} }; };
    const painted = () => {
        if (painting) return;
        painting = true;
        requestAnimationFrame(() => setTimeout(() => {
            painting = false;
            window.watched.painted = performance.now();
        }));
    };
    begin({ timeStamp: 0 });
    for (const kind of ['click', 'keydown']) addEventListener(kind, begin, { capture: true });
    const holds = node => node.nodeType === 1
        && (node.matches(content) || node.querySelector(content));
    const counts = ({ target, addedNodes }) =>
        (target.nodeType === 1 ? target : target.parentElement)?.closest(content)
        || [...addedNodes].some(holds);
    new MutationObserver(records => {
        if (records.some(counts)) {
            window.watched.last = performance.now();
            painted();
        }
    }).observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
    const kindOf = canvas => canvas.closest('.picker') ? 'matrix'
        : canvas.closest('.mosaic') ? 'mosaic' : 'lines';
    const pens = CanvasRenderingContext2D.prototype;
    for (const way of ['putImageData', 'stroke']) {
        const draw = pens[way];
        pens[way] = function (...given) {
            window.watched.drawn[kindOf(this.canvas)] = performance.now();
            painted();
            return draw.apply(this, given);
        };
    }
}"""
# The script has ended, and nothing has come for half a second.
QUIET = """wanted => {
    const { last, drawn, painted } = window.watched;
    const newest = Math.max(last, ...Object.values(drawn));
    return newest && painted >= newest && performance.now() - newest > 500
        && wanted.every(kind => drawn[kind])
        && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning';
}"""

# Resolves to the time at which the next frame is painted.
PAINTED = """() => new Promise(resolve => requestAnimationFrame(() =>
    setTimeout(() => resolve(performance.now()))))"""
# Keeps how long the painted frame took that follows the pointer's newest event.
HOVER = """() => addEventListener('pointermove', ({ timeStamp }) => requestAnimationFrame(() =>
    setTimeout(() => { window.hovered = performance.now() - timeStamp; })), { capture: true })"""


@dataclass
class Traffic:
    """The messages of a page's websockets, since `clear`."""

    sizes: list[int] = field(default_factory=list)

    def listen(self, socket: WebSocket) -> None:
        """Count what a websocket brings and takes."""
        for way in ("framereceived", "framesent"):
            socket.on(way, lambda message: self.sizes.append(len(message)))


class Visit:
    """A page whose changes are timed, in a browser profile of its own."""

    def __init__(self, browser: Browser, window: tuple[int, int] = WINDOW) -> None:
        width, height = window
        context = browser.new_context(viewport={"width": width, "height": height})
        self.page = context.new_page()
        self.traffic = Traffic()
        self.page.on("websocket", self.traffic.listen)

    def time(self, act: Callable[[], None], patience: float = 60.0) -> float:
        """Give the seconds from what a visitor does until the last content has come."""
        watched = self.watched(act, patience=patience)
        return (watched["last"] - watched["start"]) / 1000

    def watched(
        self, act: Callable[[], object], *wanted: str, patience: float = 60.0
    ) -> dict[str, Any]:
        """Give all that was noted of what a visitor does, in milliseconds.

        `wanted` are the kinds of canvas that must have been drawn. Raises playwright's
        TimeoutError if it takes more than `patience` seconds.
        """
        self.traffic.sizes.clear()
        act()
        self.page.wait_for_function(  # not at every frame
            QUIET, arg=list(wanted), polling=100, timeout=patience * 1000
        )
        found: dict[str, Any] = self.page.evaluate("window.watched")
        return found

    def leave(self) -> None:
        """Close the page."""
        self.page.context.close()


def hovers(page: Page, tokens: Sequence[Locator]) -> list[float]:
    """Point at one token after another; seconds from each pointer's event to the painted frame."""
    found = []
    tokens[len(tokens) // 2].evaluate("token => token.scrollIntoView({ block: 'center' })")
    for token in tokens:
        box = token.bounding_box()
        assert box is not None
        page.evaluate("window.hovered = null")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function("window.hovered !== null", polling=50)
        found.append(page.evaluate("window.hovered") / 1000)
    return found
