"""A page with nothing but one head of the bundled model to take home.

Run by the browser tests, which import the question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attnviz import attention, export, frames
from attnviz.charts import matrix
from attnviz.ui import downloads
from attnviz.ui.readings import Asked, served

if TYPE_CHECKING:
    from attnviz.attention_call import AttentionCall

ASKED = Asked("bundled", "The cat sat on the mat.")
LAYER, HEAD = 1, 2


def call() -> AttentionCall:
    return served(ASKED).calls("decoder")[LAYER]


def numbers() -> downloads.Matrix:
    words = frames.token_axis(served(ASKED).queries(call()).labels)
    return frames.weight_matrix(attention.weights(call(), HEAD)), words, words


def page() -> None:
    st.title("To take home")
    shown = export.head_shown(served(ASKED), call(), HEAD)
    long = export.Shown(shown.model, "L0H0", None, (1013, 1013), 32, shown.text_sha256)
    downloads.downloads(
        [
            *downloads.figure(shown, lambda: [matrix.weight_picture(*numbers(), 3)]),
            *downloads.numbers(shown, numbers),
            *downloads.vectors(shown, call, HEAD),
        ]
    )
    downloads.downloads(downloads.numbers(long, numbers), key="of_a_long_text")


if __name__ == "__main__":
    page()
