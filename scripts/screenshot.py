"""Take the README's picture from the running app.

python scripts/screenshot.py [FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.running_app import HEAD_PICTURE, running_app, running_browser, wait_until_drawn

PICTURE = Path(__file__).with_name("screenshot.png")
LINK = "/?model=bundled&text=The+cat+sat+on+the+mat+because+it+was+tired.&seed=7"
WIDTH, MARGIN = 1400, 24  # px


def take(picture: Path) -> None:
    """Start the app, wait until all is drawn, and keep the page down to the head's picture."""
    with running_browser() as browser, running_app() as app:
        app.wait()
        page = browser.new_page(viewport={"width": WIDTH, "height": 1500}, color_scheme="light")
        page.goto(app.address + LINK)
        wait_until_drawn(page)
        bottom = page.locator(HEAD_PICTURE).evaluate("it => it.getBoundingClientRect().bottom")
        page.screenshot(
            path=picture, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom + MARGIN}
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    picture = parser.parse_args().file
    take(picture)
    sys.stdout.write(f"{picture}: {picture.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
