"""The very functions that made the numbers on screen, as their source code."""

from __future__ import annotations

import importlib
import inspect

import streamlit as st

from attnviz.ui import look


def show_code(name: str, *functions: str) -> None:
    """A fold with the source of these functions, given as "attnviz.module.function"."""
    fold = look.fold("Show the code", f"code_{name}")
    if fold:
        with fold:
            for function in functions:
                st.caption(look.plain(function))
                st.code(source(function), "python")


def source(name: str) -> str:
    """The source code of a function or class of attnviz."""
    module, _, function = name.rpartition(".")
    return inspect.getsource(getattr(importlib.import_module(module), function))
