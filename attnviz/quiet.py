"""Keep what transformers and accelerate have to say out of the log.

Whatever matters to a person is raised or on the model's card.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL, getLogger

LIBRARIES = ("transformers", "accelerate")
_entering = threading.Lock()
_reading = threading.Lock()
_inside = 0
_before: tuple[list[int], bool] = ([], False)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence both libraries; any number of threads may be in here at once.

    Their verbosity belongs to the process: who comes first turns it down, who leaves last
    turns it up again.
    """
    _turn_down()
    try:
        yield
    finally:
        _turn_up()


@contextmanager
def quiet_and_alone() -> Iterator[None]:
    """Silence both libraries, one thread at a time.

    Alone, because the default dtype that loading sets belongs to the process.
    """
    with _reading, quiet():
        yield


def _turn_down() -> None:
    global _inside, _before
    from transformers.utils import logging

    with _entering:
        _inside += 1
        if _inside > 1:
            return
        logging.get_verbosity()  # gives its logger the level that it starts with
        loggers = [getLogger(library) for library in LIBRARIES]
        _before = [logger.level for logger in loggers], logging.is_progress_bar_enabled()
        for logger in loggers:
            logger.setLevel(CRITICAL)
        logging.disable_progress_bar()


def _turn_up() -> None:
    global _inside
    from transformers.utils import logging

    with _entering:
        _inside -= 1
        if _inside:
            return
        levels, bars = _before
        for library, level in zip(LIBRARIES, levels, strict=True):
            getLogger(library).setLevel(level)
        if bars:
            logging.enable_progress_bar()
