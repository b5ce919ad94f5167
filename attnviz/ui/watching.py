"""A toy that trains before one's eyes: started, watched while it grows, and stopped.

A session has one run of each name; whoever starts another has stopped the first.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attnviz.ui import look
from attnviz.ui import training_sentences as told
from attnviz.ui.training import Run, line

EVERY = 0.5  # seconds between two looks at a run
AT_FIRST = 0.25  # seconds in which most runs have something to show

Show = Callable[[Run], None]


def start(name: str, run: Run) -> None:
    """Let it train in the line of all sessions, or say that the line is too long."""
    leave(name)
    if line().join(run):
        st.session_state[f"{name}_run"] = run
        run.wait_for_records(AT_FIRST)
    else:
        st.session_state[f"{name}_refused"] = told.FULL


def current(name: str) -> Run | None:
    """The run that was started last, trained or not."""
    return st.session_state.get(f"{name}_run")


def is_going(name: str) -> bool:
    """Whether it trains or waits for its turn."""
    run = current(name)
    return run is not None and run.is_going


def leave(name: str) -> None:
    """A run at which nobody looks is not trained on."""
    run = current(name)
    if run is not None:
        run.stop()


def watch(name: str, show: Show) -> None:
    """Show what a run has come to, again and again while it is going."""
    if message := st.session_state.pop(f"{name}_refused", ""):
        st.warning(look.plain(message))
    run = current(name)
    if run is not None:
        is_going = run.is_going
        look_again = st.fragment(_watched, run_every=EVERY if is_going else None)
        look_again(name, run, is_going, show)


def _watched(name: str, run: Run, was_going: bool, show: Show) -> None:
    """How far it is, a button that stops it, and what it has shown so far."""
    run.look()
    row = st.container(horizontal=True, vertical_alignment="center")
    is_going = run.is_going
    row.progress(min(1.0, run.done), look.plain(told.progress(run, line().before(run))))
    if is_going:
        row.button("Stop", on_click=run.stop, key=f"{name}_stop")
    show(run)
    if was_going and not is_going:
        # The page anew: without this the browser would go on asking.
        st.rerun()
