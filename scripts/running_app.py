"""The app as a process of its own and a Chromium to look at it: for tests, pictures, timings."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds; a slow machine needs many for the first import of torch

HEAD_CHART = "[data-testid=stVegaLiteChart][aria-label^='Weights of layer']"
HEAD_PICTURE = f"{HEAD_CHART} svg .mark-image image"
# The script has ended, panels of both kinds have charts, and every chart has marks.
ALL_DRAWN = f"""() => {{
    const hasMarks = chart => chart.querySelector('.role-mark :is(path, image, text)');
    const charts = kind => [...document.querySelectorAll(
        `[class*=st-key-${{kind}}_] [data-testid=stVegaLiteChart]`)];
    const drawn = kind => charts(kind).length > 0 && charts(kind).every(hasMarks);
    return document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
        && document.querySelector("{HEAD_PICTURE}")?.width.baseVal.value > 0
        && drawn('real') && drawn('synthetic');
}}"""
# The script has ended, a step is there, and every chart of the page has marks.
CELL_DRAWN = """() => {
    const charts = [...document.querySelectorAll(
        '[data-testid=stVerticalBlock][class*=st-key-step_] [data-testid=stVegaLiteChart]')];
    const hasMarks = chart => chart.querySelector('.role-mark :is(path, image, text, line)');
    return document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
        && charts.length > 0 && charts.every(hasMarks);
}"""

# The script has ended, and every chart of the page has marks and is none of the run before.
CHARTS_DRAWN = """() => {
    const charts = [...document.querySelectorAll('[data-testid=stVegaLiteChart]')];
    const hasMarks = chart => chart.querySelector('.role-mark :is(path, image, text, line)')
        && !chart.closest('[data-stale=true]');
    return document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
        && charts.every(hasMarks);
}"""


class AppNotStarted(RuntimeError):  # noqa: N818 - what happened, with the log as the message
    """The server ended, or did not answer in time; the message is its log."""


@dataclass(frozen=True)
class RunningApp:
    """A server of this app; `log` holds what it wrote to standard output and error."""

    address: str
    process: subprocess.Popen[bytes]
    log_file: Path

    def log(self) -> str:
        """Return what the server has written so far."""
        return self.log_file.read_text(errors="replace")

    def wait(self) -> None:
        """Return when the server answers that it is well."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/_stcore/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.05)
        raise AppNotStarted(self.log())

    def stop(self) -> None:
        """End the server, as Ctrl + C does."""
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def resident_megabytes(self) -> float:
        """Return the memory that the server holds now, from Linux's /proc."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)
        return int(kilobytes) / 1000


@contextmanager
def running_app(script: str = "app.py") -> Iterator[RunningApp]:
    """Start the app on a free port, not waiting until it answers, and stop it at the end.

    `script` is another page for Streamlit to run, by its path.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        log_file = Path(folder) / "log"
        with (
            log_file.open("wb") as log,
            subprocess.Popen(_command(script, port), cwd=ROOT, stdout=log, stderr=log) as process,
        ):
            app = RunningApp(f"http://127.0.0.1:{port}", process, log_file)
            try:
                yield app
            finally:
                app.stop()


def _command(script: str, port: int) -> list[str]:
    options = {"address": "127.0.0.1", "port": str(port), "headless": "true"}
    command = [sys.executable, "-m", "streamlit", "run", script]
    return command + [f"--server.{name}={value}" for name, value in options.items()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def chromium() -> str | None:
    """Return where Chromium is, None if it is not installed."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def wait_until_drawn(page: Page) -> None:
    """Return when the real head and every chart of the playground are drawn."""
    page.wait_for_function(ALL_DRAWN, timeout=PATIENCE * 1000)


def wait_until_cell_drawn(page: Page) -> None:
    """Return when the charts of the step on screen are drawn."""
    page.wait_for_function(CELL_DRAWN, timeout=PATIENCE * 1000)


def wait_until_charts_drawn(page: Page) -> None:
    """Return when all charts of the page are drawn, if it has any."""
    page.wait_for_function(CHARTS_DRAWN, timeout=PATIENCE * 1000)
