"""One server and one Chromium for all browser tests; each test visits with its own pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from browser.visiting import Visitor, suspicious_lines
from scripts.running_app import RunningApp, chromium, running_app, running_browser

expect.set_options(timeout=15_000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, without which a test is skipped, or fails where it is required."""
    if chromium() is None:
        reason = "no chromium, chromium-browser or google-chrome on the PATH"
        if os.environ.get("ATTNVIZ_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with running_browser() as started:
        yield started


@pytest.fixture(scope="package")
def app(browser: Browser) -> Iterator[RunningApp]:
    """The server, whose log must be clean when it has stopped."""
    with running_app() as started:
        started.wait()
        yield started
        started.stop()
        assert suspicious_lines(started.log()) == []


@pytest.fixture
def visitor(browser: Browser, app: RunningApp) -> Iterator[Visitor]:
    """Someone whose browser has nothing to complain of, and whose visit leaves a clean log."""
    before = len(app.log())
    someone = Visitor(browser, app)
    yield someone
    someone.leave()
    assert app.process.poll() is None, "the server has ended"
    assert someone.complaints == []
    assert suspicious_lines(app.log()[before:]) == []
