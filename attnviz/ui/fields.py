"""What fields hold, and the keys under which Streamlit knows them.

A rerun of a part of the page may come before that of the whole, and brings what the browser
showed when it was asked for. A field whose content is set from here therefore gets a new key
with it: what a browser still sends under the old one is not read.
"""

from __future__ import annotations

from typing import Any

import streamlit as st


def key_of(name: str) -> str:
    """The key of a field now; another one each time its content was set from here."""
    times = st.session_state.get(f"{name}_set", 0)
    return f"{name}_{times}" if times else name


def new_key(name: str, value: Any = None) -> None:
    """Empty a field, or set what it holds."""
    st.session_state.pop(key_of(name), None)
    st.session_state[f"{name}_set"] = st.session_state.get(f"{name}_set", 0) + 1
    if value is not None:
        st.session_state[key_of(name)] = value


def held(key: str, otherwise: Any) -> Any:
    """The number that a widget holds; while its options change it may hold something else."""
    value = st.session_state.get(key)
    return value if isinstance(value, int) and value >= 0 else otherwise


def keep(key: str, otherwise: Any) -> None:
    """Give a field that several pages have its value: on another page Streamlit makes it anew."""
    st.session_state[key] = st.session_state.get(key, otherwise)
