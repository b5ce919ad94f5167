"""The library side: read a text with a model, then one line for each view of its heads.

Charts are Altair's, on white and of a size of their own, with a line that says what they show;
nothing in them needs attnviz's pages. `attnviz` itself offers these names.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from attnviz import export, frames
from attnviz.attention_call import AttentionCall
from attnviz.call_statistics import CallStatistics, of_all_heads
from attnviz.capture import capture, recording_difference
from attnviz.charts import lines as line_charts
from attnviz.charts import matrix as matrices
from attnviz.charts import mosaic as mosaics
from attnviz.charts import ranking as rankings
from attnviz.charts.mosaic import PartOfHeads
from attnviz.export import Shown
from attnviz.inputs import inputs_for, needs
from attnviz.limits import beyond_training, most_places
from attnviz.models import LoadedModel, ModelCard, load
from attnviz.reading import Reading
from attnviz.thumbnails import side_for, thumbnails
from attnviz.windows import window

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.export import Drawing

MOST_TOKENS = 512  # of either axis of a picture
CAPTION_LETTERS = 72  # in a line above a chart,
SUBTITLE_PADDING = 6  # px below the title
ALL = slice(None)
STATISTICS = tuple(field.name.replace("_", " ") for field in fields(CallStatistics))


def read(
    model: str,
    text: str = "",
    *,
    pair: str = "",
    target: str = "",
    picture: Image | None = None,
) -> Reading:
    """Let a model read a text, two texts as a pair, a text and its target, or a picture.

    `model` is "bundled", "minilm", a folder, a GGUF file or a name on the Hugging Face hub. Raises
    `ValueError` for a text that cannot be read; `ModelNotLoaded`, `UnusableModel`,
    `UnusablePicture` or `UnreadableModel` for what these names say. Each message is a sentence.
    """
    return _reading(_loaded(model), text, pair, target, picture)


def read_with(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    pair: str = "",
    target: str = "",
) -> Reading:
    """Let a model of one's own, in evaluation mode, read a text; raises as `read` does."""
    return _reading(LoadedModel(model, tokenizer, _card(model)), text, pair, target, None)


def matrix(
    reading: Reading,
    layer: int,
    head: int,
    *,
    query: int | None = None,
    part: str | None = None,
    tokens: slice = ALL,
) -> Drawing:
    """One head's weights as a picture, the row of one query (by position) outlined.

    `part` is one of `reading.parts`, the first by default. `tokens` are those to draw, all by
    default. Raises `ValueError` where there is no such head or query, or more than 512 tokens.
    """
    shown = _head(reading, layer, head, part)
    queries, keys = _within(shown, tokens)
    longest = max(len(queries), len(keys))
    if longest > MOST_TOKENS:
        raise ValueError(
            f"A picture of {longest:,} tokens is too large; draw up to {MOST_TOKENS} of them, "
            f"such as tokens=slice(0, {MOST_TOKENS})."
        )
    chosen = queries.index[-1] if query is None else _query(query, queries)
    weights = _weights(shown, queries, keys).fillna(0.0)
    cross = shown.call.kind == "cross"
    picture = matrices.weight_picture(weights, queries, keys, int(chosen), cross=cross)
    top = float(weights.to_numpy().max())
    return _on_paper(picture, f"{shown.about.caption} · colours from 0 to {top:.3g}")


def lines(
    reading: Reading, layer: int, head: int, *, part: str | None = None, tokens: slice = ALL
) -> Drawing:
    """One head's strongest weights as lines from each query to its keys.

    Raises `ValueError` where there is no such head, or too many tokens for lines.
    """
    shown = _head(reading, layer, head, part)
    queries, keys = _within(shown, tokens)
    if told := line_charts.too_many(queries, keys):
        raise ValueError(told)
    head_lines = [(shown.about.place, _weights(shown, queries, keys))]
    cross = shown.call.kind == "cross"
    drawn = line_charts.token_lines(head_lines, queries, keys, cross=cross)
    return _on_paper(drawn, shown.about.caption)


def ranking(
    reading: Reading, layer: int, head: int, query: int, *, part: str | None = None
) -> Drawing:
    """The keys that one query, given by its position, looks at most.

    Raises `ValueError` where there is no such head or query.
    """
    shown = _head(reading, layer, head, part)
    place = _query(query, shown.queries)
    row = _weights(shown, shown.queries.loc[[place]], shown.keys).iloc[0]
    keys = shown.keys.rename(columns={"position": "key"})
    token = shown.queries["token"][place]
    drawn = rankings.ranking(keys.assign(weight=row.to_numpy()))
    return _on_paper(drawn, f"{shown.about.caption} · query {place} {token}")


def overview(
    reading: Reading,
    *,
    part: str | None = None,
    colour: str | None = None,
    order: str | None = None,
) -> Drawing:
    """All heads side by side, layers down, heads across.

    A head is drawn by its pattern, or in the colour of one of its `STATISTICS`; in falling
    `order` of one of them, or by layer. Raises `ValueError` for another name, or another part.
    """
    names = [name for name in (colour, order) if name is not None]
    if unknown := [name for name in names if name not in STATISTICS]:
        raise ValueError(f"There is no statistic {unknown[0]}; there are {_listed(STATISTICS)}.")
    parts = reading.parts if part is None else (_part(reading, part),)
    drawn = mosaics.mosaic(
        [_of_heads(reading, each, names) for each in parts], colour=colour, order=order
    )
    weighed = "weights, the largest of each block" if colour is None else colour
    return _on_paper(drawn, export.many_shown(reading, part, "overview", weighed).caption)


def save(chart: Drawing, file: str | Path) -> None:
    """Write a chart to an .svg, .png or .html file that needs no network.

    Raises `ValueError` for another ending.
    """
    path = Path(file)
    ending = path.suffix.lower().removeprefix(".")
    if ending not in export.PICTURES:
        raise ValueError(f"{path.name} must end in .svg, .png or .html.")
    made = export.PICTURES[ending]([chart], "")
    path.write_bytes(made.encode() if isinstance(made, str) else made)


@dataclass(frozen=True)
class _Head:
    """A head that is there, with its tokens and what is said of it."""

    call: AttentionCall
    head: int
    queries: pd.DataFrame
    keys: pd.DataFrame
    about: Shown


@lru_cache(maxsize=1)
def _loaded(name: str) -> LoadedModel:
    return load(name)


def _reading(
    model: LoadedModel, text: str, pair: str, target: str, picture: Image | None
) -> Reading:
    stated = model.card.max_tokens
    places = most_places(model.model, stated)
    _check_taken(model, pair, target)
    inputs = inputs_for(model, text, target, picture, places, pair=pair)
    captured = capture(model.model, inputs.tensors)
    longest = max(len(tokens or ()) for tokens in (inputs.source, inputs.target))
    told = filter(None, [model.card.warning, beyond_training(longest, stated)])
    warning = " ".join(told) or None
    if warning:
        warnings.warn(warning, stacklevel=3)
    difference = recording_difference(model.model, inputs.tensors)
    return Reading(model.card.title, warning, inputs, captured, difference)


def _check_taken(model: LoadedModel, pair: str, target: str) -> None:
    """Refuse what the model would leave aside."""
    taken = needs(model.model, model.tokenizer)
    if pair and not taken.pair:
        raise ValueError("This model reads one text; give no pair.")
    if target and not taken.target:
        raise ValueError("This model has no decoder beside an encoder; give no target.")


def _head(reading: Reading, layer: int, head: int, part: str | None) -> _Head:
    part = _part(reading, part)
    call = _call(reading, part, layer)
    if head not in range(call.heads):
        raise ValueError(f"Layer {layer} has no head {head}; its heads are 0 to {call.heads - 1}.")
    queries, keys = (
        frames.token_axis(tokens.labels, tokens.special)
        for tokens in (reading.queries(call), reading.keys(call))
    )
    return _Head(call, head, queries, keys, export.head_shown(reading, call, head))


def _part(reading: Reading, part: str | None) -> str:
    if part is not None and part not in reading.parts:
        raise ValueError(f"There is no part {part}; what was read is {_listed(reading.parts)}.")
    return part or reading.parts[0]


def _call(reading: Reading, part: str, layer: int) -> AttentionCall:
    calls, unread = reading.calls(part), reading.unread(part)
    if layer in calls:
        return calls[layer]
    if layer in unread:
        raise ValueError(f"Layer {layer} was not read: {unread[layer].reason}")
    raise ValueError(f"There is no layer {layer}; what was read is {_listed([*calls])}.")


def _of_heads(reading: Reading, part: str, names: Sequence[str]) -> PartOfHeads:
    """The heads of a part with their patterns, and the statistics of these names."""
    calls = reading.calls(part)
    side = side_for(sum(call.heads for call in reading.capture.calls))
    return PartOfHeads(
        part=part,
        title=part,
        thumbnails={layer: thumbnails(call, side).numpy() for layer, call in calls.items()},
        table=pd.concat([_table(call, names) for call in calls.values()], ignore_index=True),
        unread=tuple(reading.unread(part)),
    )


def _table(call: AttentionCall, names: Sequence[str]) -> pd.DataFrame:
    heads = range(call.heads)
    table = pd.DataFrame({"layer": call.layer, "head": heads})
    table["kv_head"] = [call.kv_head(head) for head in heads]
    found = of_all_heads(call) if names else None
    for name in names:
        values = getattr(found, name.replace(" ", "_"))
        table[name] = float("nan") if values is None else values.numpy()
    return table


def _listed(names: Iterable[object]) -> str:
    words = [str(name) for name in names]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _query(query: int, queries: pd.DataFrame) -> int:
    if query not in queries.index:
        first, last = queries.index[0], queries.index[-1]
        raise ValueError(f"There is no query {query}; positions go from {first} to {last}.")
    return query


def _within(shown: _Head, tokens: slice) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The queries and keys of a slice, next to each other."""
    if not isinstance(tokens, slice) or tokens.step not in (None, 1):
        raise ValueError("The tokens to draw are next to each other: tokens=slice(0, 100).")
    place = slice(tokens.start, tokens.stop)
    queries, keys = shown.queries.iloc[place], shown.keys.iloc[place]
    if queries.empty or keys.empty:
        raise ValueError(f"There are no tokens from {tokens.start} to {tokens.stop}.")
    return queries, keys


def _weights(shown: _Head, queries: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """The `weight_matrix` of tokens next to each other, NaN where a key is hidden."""
    rows, columns = (slice(int(axis.index[0]), int(axis.index[-1]) + 1) for axis in (queries, keys))
    matrix = frames.weight_matrix(window(shown.call, shown.head, rows, columns, "weights"))
    matrix.index, matrix.columns = matrix.index + rows.start, matrix.columns + columns.start
    return matrix


def _on_paper(chart: Drawing, caption: str) -> Drawing:
    """The chart with its caption above, independent of any page."""
    spec = export.on_paper(chart)
    lines, title = export.in_lines(caption, CAPTION_LETTERS), spec.get("title")
    if title is None:
        about = {"text": lines, "fontSize": export.CAPTION_SIZE, "fontWeight": "normal"}
    else:
        about = title if isinstance(title, dict) else {"text": title}
        about |= {"subtitle": lines, "subtitleFontSize": export.CAPTION_SIZE}
        about |= {"subtitlePadding": SUBTITLE_PADDING}
    return type(chart).from_dict(spec | {"title": {"anchor": "start"} | about})


def _card(model: PreTrainedModel) -> ModelCard:
    """What is known of a model that was not loaded here."""
    name = model.config.name_or_path or type(model).__name__
    dtype = str(model.dtype).removeprefix("torch.")
    return ModelCard(
        name=name,
        title=Path(name).name,
        source="local",
        model_type=model.config.model_type,
        parameters=model.num_parameters(),
        d_model=None,
        d_models={},
        dtype=dtype,
        stored_dtype=dtype,
        placement="memory",
        max_tokens=getattr(model.config, "max_position_embeddings", None),
        warning=None,
    )
