"""The one place that knows colours and sizes.

Real (what a model computed) and synthetic (what we drew) keep one colour each; the four
divisors keep one colour and one dash each: three colours of Okabe and Ito (2008) and a grey.
"""

from __future__ import annotations

REAL = "#1F6FB8"
SYNTHETIC = "#C26A00"
UNREAD = "#777777"  # what a model has and attnviz could not read

POSITIVE, NEGATIVE = "#CC5500", "#2C7BB6"  # of signed numbers; 0 is the page itself
STRONGEST = 0.85  # opacity of the largest signed number: words of both themes are read on it
PALE = 0.5  # opacity of what is not chosen
PAGE = "light-dark(#FFFFFF, #0F1319)"  # as in .streamlit/config.toml
WORDS = "currentColor"  # the colour of words, which follows the theme

DIVISOR_COLOURS = {"1": "#D55E00", "√d_k": "#009E73", "d_k": "#666666", "d_k²": "#CC79A7"}
DIVISOR_DASHES = {"1": [1, 0], "√d_k": [1, 0], "d_k": [8, 5], "d_k²": [2, 4]}
OTHER_POWER = ("#7A5CFA", [10, 3, 2, 3])  # of d_k, whichever a slider gives

# Heads over each other, told apart by colour (Okabe and Ito 2008), by dash and by name
HEAD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
HEAD_DASHES = ((1, 0), (8, 4), (2, 3), (10, 3, 2, 3), (14, 5))

# Ways to project, told apart by colour, dash and sign, and named in a legend: the seven colours of
# Okabe and Ito that are seen on white, and the one of other powers
VARIANT_COLOURS = {
    "Q K V": "#0072B2",
    "Q = K": "#009E73",
    "K = V": "#D55E00",
    "Q = V": "#CC79A7",
    "Q = K = V": "#666666",
    "x as key": "#E69F00",
    "+ linear fourth": "#56B4E9",
    "+ query gate": "#7A5CFA",
}
VARIANT_DASHES = {
    "Q K V": [1, 0],
    "Q = K": [8, 5],
    "K = V": [1, 0],
    "Q = V": [2, 4],
    "Q = K = V": [14, 5],
    "x as key": [10, 3, 2, 3],
    "+ linear fourth": [5, 3],
    "+ query gate": [12, 3, 2, 3, 2, 3],
}
VARIANT_SIGNS = {
    "Q K V": "circle",
    "Q = K": "square",
    "K = V": "diamond",
    "Q = V": "triangle-up",
    "Q = K = V": "cross",
    "x as key": "triangle-down",
    "+ linear fourth": "triangle-right",
    "+ query gate": "triangle-left",
}

FONT_SIZE = 14
TITLE_SIZE = 16
TEXT_SIZE = 20  # of a text that is read on a projector
LINE_WIDTH = 2.5

STACKED_BELOW = 1100  # px of the window; there the two sides stand one above the other
MATRIX_SIDE = 440  # px, the largest side of a square picture of a matrix
FLATTEST = 0.3  # the shorter side of a picture against the longer, whatever its cells
OVERLAY_SIDE = 320  # px, the largest side of a picture under weights
SMALL_HEIGHT = 150  # px, one panel of several, axes included
CURVE_HEIGHT = 360  # px, axes included
WIDTHS_HEIGHT = 440  # px, axes included
HISTOGRAM_HEIGHT = 190  # px, axes included
DRAWN_VARIANCES = (1e-10, 1e5)  # what the curve of variance against d_k spans at least
KURTOSIS_HEIGHT = 240  # px, axes included
SATURATION_ROW = 34  # px, a divisor's bar
NUMBER_WIDTH = 118  # px right of bars, for a mean and its error
GRADIENT_ROW, GRADIENT_NAME = 96, 28  # px, a divisor's histogram, and of it what names it
MAPS_HEIGHT = 340  # px, all maps, in one row where a map has
MAP_WIDTH = 170  # px; else in two
PROBE_SIDE = 130  # px, the weights of a toy's probe
LABELLED_TOKENS = 40  # above this, only every k-th token is written at an axis
LABEL_ROOM = 11  # px along an axis that a token label needs

BELOW_CHART = 4  # px under charts that stand close one below the other
STRIP_HEIGHT = 40  # px, one vector as a row of cells, its name included
NAMES_LEFT_FROM = 640  # px of a plot; narrower ones have the names of rows above them
NAMES_WIDTH = 190  # px that names at the left may take; longer ones stand above as well
WRITTEN_CELLS = 40  # a row of more cells has no numbers in them,
DRAWN_CELLS = 256  # and one of still more is an image,
IMAGE_CELLS = 1024  # of so many cells at most: no screen shows more
PRODUCTS_HEIGHT = 70  # px, the bars of q·k in each dimension
RUNNING_HEIGHT = 52  # px, their running sum
KEY_BARS_HEIGHT = 115  # px without axes, as are those below
KEY_STRIP_HEIGHT = 50
HEADS_HEIGHT = 90
DISTANCE_HEIGHT = 150
KEY_AXIS_WIDTH = 56  # px left of all bars over keys, so that their plots stand in line
KEY_LABEL, KEY_LABEL_HEIGHT = 78, 62  # px of a key's label, and of its height at 45°
SMALLEST_FONT = 10
SMALL_FONT = 12

TOKEN_ROW = 20  # px, a token in a column of tokens
LINES_WIDTH = 240  # px between two columns of tokens in a chart
RANKING_WIDTH = 320  # px of the longest bar

MOSAIC_TILE, MOSAIC_WIDTH = 40, 960  # px, a head among all heads, and all of them side by side
MOSAIC_GAP, MOSAIC_FAMILY_GAP = 2, 8  # px between heads, and where the key and value head changes
COVERED = (128, 128, 128, 64)  # what a mask hides, on a light page and on a dark one


def divisor_look(name: str) -> tuple[str, list[int]]:
    """Colour and dash of one of the four divisors, or of another power of d_k."""
    if name in DIVISOR_COLOURS:
        return DIVISOR_COLOURS[name], DIVISOR_DASHES[name]
    return OTHER_POWER
