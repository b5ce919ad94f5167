"""Figures and numbers to take home: every file says what it shows, and none needs a network.

Pictures are on white with dark words, as on a wide window, with one line under them that says
what they show. Numbers are the head's own, not those of a picture.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float

from attnviz.charts import theme
from attnviz.reading import part_of

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from attnviz.attention_call import AttentionCall
    from attnviz.inputs import Inputs
    from attnviz.reading import Reading

    Drawing = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

CSV_TOKENS = 1000  # of an axis; a million numbers are 13 MB of text
INK, PAPER = "#1A1A1A", "white"
WIDTH = 640  # px of a chart that fills the width it gets
WINDOW = "[2000, 1200]"  # px: a window in which nothing is made smaller
SCALE = 2  # pixels of a PNG to a px
CAPTION_SIZE = 12  # px, as are those below
CAPTION_LINE = 17
CAPTION_MARGIN = 8
NARROWEST = 420  # of a figure, so that its caption is not a column of words
CHARACTER = 0.56  # mean width of a letter against the size of its font

LIBRARIES = "window.vegaEmbed = vegaEmbed;"  # what of its libraries a page calls by name
# It may run its own scripts and show its own pictures, and ask nobody.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width={width}">
<title>{title}</title>
<style>
body {{ margin: 1rem; background: {paper}; color: {ink}; font-family: sans-serif; }}
figure {{ margin: 0; }}
figcaption {{ margin-top: .5rem; font-size: {size}px; max-width: {width}px; }}
</style>
</head>
<body>
<figure>{places}<figcaption>{caption}</figcaption></figure>
<script>{libraries}</script>
<script>
const options = {{
  renderer: "svg",
  actions: {{ export: true, source: false, compiled: false, editor: false }},
}};
{specs}.forEach((spec, place) => vegaEmbed("#chart" + place, spec, options));
</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Shown:
    """What a figure shows, for its caption and its file's name.

    `place` is a head, "L5H11", or what is drawn of many: "overview". `part` is None where the
    model has only one. `n` is the number of queries and of keys; it and `d_k` are None where what
    is drawn has several. `weighed` names the numbers, `text_sha256` what was read, see `sha256_of`.
    `note` says in the caption alone what part of them is in the picture.
    """

    model: str
    place: str
    part: str | None
    n: tuple[int, int] | None
    d_k: int | None
    text_sha256: str
    weighed: str = "weights"
    note: str = ""

    @property
    def caption(self) -> str:
        """The line under the figure."""
        place = self.place if self.part is None else f"{self.place} ({self.part})"
        facts = ["real", self.model, place]
        if self.n is not None:
            queries, keys = self.n
            facts.append(f"n = {queries}" if queries == keys else f"n = {queries} × {keys}")
        if self.d_k is not None:
            facts.append(f"d_k = {self.d_k}")
        facts += [self.weighed, self.note, f"text {self.text_sha256[:8]}"]
        return " · ".join(filter(None, facts))

    def file_name(self, ending: str) -> str:
        """A name that tells the files of different heads, texts and numbers apart."""
        part = () if self.part is None else (self.part,)
        weighed = () if self.weighed == "weights" else (self.weighed,)
        words = (self.model, *part, self.place, *weighed, self.text_sha256[:8])
        return "_".join(["attnviz", *map(_plain, words)]) + f".{ending}"


def sha256_of(inputs: Inputs) -> str:
    """Return the SHA-256 of what a model read.

    That is its text in UTF-8, followed by a line break and the target text where there is one,
    and by the numbers of the picture where there is one.
    """
    texts = [tokens.text for tokens in (inputs.source, inputs.target) if tokens is not None]
    digest = hashlib.sha256("\n".join(texts).encode(errors="replace"))
    if inputs.picture is not None:
        digest.update(inputs.picture.pixels.float().cpu().numpy().tobytes())
    return digest.hexdigest()


def head_shown(reading: Reading, call: AttentionCall, head: int, weighed: str = "weights") -> Shown:
    """One head of a reading."""
    part = part_of(call) if len(reading.parts) > 1 else None
    place, read = f"L{call.layer}H{head}", sha256_of(reading.inputs)
    return Shown(reading.title, place, part, call.n, call.d_k, read, weighed)


def many_shown(reading: Reading, part: str | None, place: str, weighed: str = "weights") -> Shown:
    """What is drawn of many heads at once, such as "overview"; of all parts where none is given."""
    parts = reading.parts if part is None else (part,)
    calls = [call for name in parts for call in reading.calls(name).values()]
    sizes, widths = {call.n for call in calls}, {call.d_k for call in calls}
    return Shown(
        reading.title,
        place,
        part if len(reading.parts) > 1 else None,
        sizes.pop() if len(sizes) == 1 else None,
        widths.pop() if len(widths) == 1 else None,
        sha256_of(reading.inputs),
        weighed,
    )


def on_paper(chart: Drawing) -> dict[str, Any]:
    """The Vega-Lite of a chart that depends on no page: white, dark words, a size of its own."""
    spec = _without_page(chart.to_dict(validate=False))
    named = {parameter["name"] for parameter in spec.get("params", ())}
    if ("mark" in spec or "layer" in spec) and "width" not in named:
        given = spec.get("width")
        spec["width"] = WIDTH if given in (None, "container") else given
    return spec | {"background": PAPER}


def in_lines(caption: str, letters: int) -> list[str]:
    """A caption in lines of so many letters, cut between its facts where that can be."""
    lines = [""]
    for fact in caption.split(" · "):
        longer = " · ".join(filter(None, [lines[-1], fact]))
        if len(longer) <= letters:
            lines[-1] = longer
        else:
            lines += textwrap.wrap(fact, letters)
    return [line for line in lines if line]


def svg(charts: Sequence[Drawing], caption: str) -> str:
    """Charts, one below the other, with their caption, as an SVG file."""
    import vl_convert

    # Its clips and gradients are numbered on from one chart to the next.
    return _figure([vl_convert.vegalite_to_svg(on_paper(chart)) for chart in charts], caption)


def png(charts: Sequence[Drawing], caption: str) -> bytes:
    """The same as a PNG file of two pixels to a px."""
    import vl_convert

    return vl_convert.svg_to_png(svg(charts, caption), scale=SCALE)


def page(charts: Sequence[Drawing], caption: str) -> str:
    """The same as one HTML file that answers the pointer without a network."""
    import vl_convert

    specs = json.dumps([on_paper(chart) for chart in charts])
    return PAGE.format(
        policy=POLICY,
        title=html.escape(caption or "attnviz"),
        caption=html.escape(caption),
        libraries=vl_convert.javascript_bundle(LIBRARIES),
        places="".join(f'<div id="chart{place}"></div>' for place in range(len(charts))),
        specs=specs.replace("<", "\\u003c"),  # or a token "</script>" would end it
        paper=PAPER,
        ink=INK,
        size=CAPTION_SIZE,
        width=WIDTH,
    )


PICTURES: dict[str, Callable[[Sequence[Drawing], str], bytes | str]] = {
    "svg": svg,
    "png": png,
    "html": page,
}


def table(weights: pd.DataFrame, queries: pd.DataFrame, keys: pd.DataFrame, caption: str) -> str:
    """A `weight_matrix` as CSV: a row for each query, a column for each key.

    Tokens stand with their positions, which keep equal words apart; a hidden key is an empty
    cell. `pandas.read_csv(file, comment="#", index_col="query")` reads it: the caption is a
    comment in front. Raises `ValueError` for more than `CSV_TOKENS` tokens.
    """
    if max(weights.shape) > CSV_TOKENS:
        raise ValueError(too_long_for_a_table(max(weights.shape)))
    # Quoted, or a token "#" would begin a comment.
    named = weights.set_axis(_names(queries), axis=0).set_axis(_names(keys), axis=1)
    numbers = named.to_csv(index_label="query", quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    return f"# {' '.join(caption.split())}\n{numbers}"


def too_long_for_a_table(tokens: int) -> str:
    """Why so many tokens are no table."""
    return (
        f"{tokens:,} tokens make a table of {tokens**2:,} numbers; at most {CSV_TOKENS:,} tokens "
        "are written as CSV. Take the .npy file."
    )


def array(weights: Float[np.ndarray, "query key"]) -> bytes:
    """Weights as a .npy file of float32, rows are queries; what is hidden keeps its 0 or NaN."""
    file = io.BytesIO()
    np.save(file, np.asarray(weights, dtype=np.float32))
    return file.getvalue()


def vectors(call: AttentionCall, head: int, shown: Shown, batch: int = 0) -> bytes:
    """Queries, keys and values of one head as a .safetensors file, as the model had them.

    Each is (token, width). Those before rotation are there where something was rotated; where
    a model offers no queries and keys as such, values only. The metadata says what they are.
    """
    from safetensors.torch import save

    kv_head = call.kv_head(head)
    tensors = {
        "query": (call.query, head),
        "key": (call.key, kv_head),
        "value": (call.value, kv_head),
        "query_unrotated": (call.query_unrotated, head),
        "key_unrotated": (call.key_unrotated, kv_head),
    }
    metadata = {
        "model": shown.model,
        "part": shown.part or call.tower,
        "layer": str(call.layer),
        "head": str(head),
        "kv_head": str(kv_head),
        "scale": repr(call.scale),
        "n": " × ".join(map(str, call.n)),
        "text_sha256": shown.text_sha256,
    }
    taken = {
        name: tensor[batch, index].contiguous().clone()
        for name, (tensor, index) in tensors.items()
        if tensor is not None
    }
    return save(taken, metadata)


def _names(tokens: pd.DataFrame) -> list[str]:
    pairs = zip(tokens["position"], tokens["token"], strict=True)
    return [f"{position} {token}" for position, token in pairs]


def _plain(words: str) -> str:
    """Words as a part of a file's name on any system."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.") or "unnamed"


def _without_page(spec: Any) -> Any:
    """Replace what only a page can know: the colour of its words, the size of its window."""
    if isinstance(spec, dict):
        return {name: _without_page(part) for name, part in spec.items()}
    if isinstance(spec, list):
        return [_without_page(part) for part in spec]
    if not isinstance(spec, str):
        return spec
    return INK if spec == theme.WORDS else spec.replace("windowSize()", WINDOW)


def _figure(pictures: Sequence[str], caption: str) -> str:
    """SVGs, one below the other, and lines of words under them, in one SVG."""
    sizes = [_size(picture) for picture in pictures]
    width = max(NARROWEST, *(width for width, _ in sizes))
    tops = [0.0, *accumulate(height for _, height in sizes)]
    placed = "".join(
        picture.replace("<svg ", f'<svg y="{top:g}" ', 1)
        for picture, top in zip(pictures, tops, strict=False)
    )
    lines = in_lines(caption, int((width - 2 * CAPTION_MARGIN) / (CHARACTER * CAPTION_SIZE)))
    spans = "".join(
        f'<tspan x="{CAPTION_MARGIN}" y="{tops[-1] + CAPTION_LINE * place:g}">'
        f"{html.escape(line)}</tspan>"
        for place, line in enumerate(lines, 1)
    )
    height = tops[-1] + CAPTION_LINE * len(lines) + CAPTION_MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}"><title>{html.escape(caption)}</title>'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>{placed}'
        f'<text fill="{INK}" font-family="sans-serif" font-size="{CAPTION_SIZE}">{spans}</text>'
        "</svg>"
    )


def _size(picture: str) -> tuple[float, float]:
    """Width and height of an SVG in px."""
    root = ElementTree.fromstring(picture)
    return float(root.get("width", 0)), float(root.get("height", 0))
