"""What is said about the lookup on the blackboard, made from its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.roles import Lookup, Part, Variant

TASK = (
    "Six items, each with a key symbol and a content. The query holds a symbol and wants the "
    "content beside it. All of them are vectors of two whole numbers, to be checked by hand: "
    "nothing is trained, what W_Q, W_K and W_V would make of an item is written down."
)
NAMES: dict[Part, str] = {
    "key": "keys",
    "content": "contents",
    "sum": "sums, key + content",
    "both": "keys beside contents",
}
VERDICTS = {
    "Q, K, V": (
        "The key decides who is found, the content is what comes back, and neither has to be like "
        "the other."
    ),
    "K = V: content": (
        "The query holds a symbol and meets contents. What fits best is the content that happens "
        "to lie in its direction, so the wrong item is found, and faithfully returned. A W_Q that "
        "turned symbols into contents would have to know the table beforehand."
    ),
    "K = V: key": (
        "The right item is found, and all that it can return is what was asked with: its key. The "
        "content never gets into the output."
    ),
    "K = V: sum": (
        "One vector has both jobs in the same two numbers: the content pulls the match aside, and "
        "the key drowns the content in what is returned. Weighing one more only spoils the other: "
        "key + any multiple of the content answers at most two of the six."
    ),
    "K = V: side by side": (
        "One vector again, but with room for both. The query is 0 where the content is, so that "
        "only the key is matched; the output carries the key along, and W_O drops it. Nothing is "
        "lost with K\u00a0=\u00a0V."
    ),
    "K and V exchanged": (
        "Matched by content, and a key comes back: this is the table read backwards. What makes a "
        "vector a key or a value is its role, not its name."
    ),
}
ROOM = (
    "So the claim is about room, not about possibility. In two numbers one vector does not do "
    "both jobs here; in four it does, and then an item keeps as many numbers as a key and a value "
    "of two together. These vectors were written by hand; in the experiment, training looks for "
    "the best ones."
)
COLUMNS = (
    "Kept: numbers that one must keep of an item. Found: the item asked for has the largest "
    "weight. Read: its content is what comes out. Guessing would be right in one of six."
)
READING = "Read: which content is the output most like?"
SHARPNESS = (
    "What the query is multiplied by. It makes the weights sharper or flatter, and never changes "
    "which item fits best."
)


def matching(variant: Variant, query: str) -> str:
    """What stands on either side of the match."""
    return f"Matched: the query {query} with {NAMES[variant.matched]}"


def returning(variant: Variant) -> str:
    """What comes back."""
    return f"Returned: weights times {NAMES[variant.returned]}"


def match(matched: pd.DataFrame, d_k: int) -> str:
    """Who fits best, worked out."""
    best, second = _best_two(matched, "score")
    asked = matched.loc[matched["asked"], "symbol"].item()
    whose = best["symbol"] if best["symbol"] == asked else f"{best['symbol']}, not {asked}"
    return (
        f"Best fit: {whose}. {best['product']} = {_number(best['score'])}, against "
        f"{_number(second['score'])} for {second['symbol']}; divided by √{d_k}, "
        f"{best['logit']:.2f} against {second['logit']:.2f}. The softmax gives "
        f"{best['symbol']} the weight {best['weight']:.3f}."
    ).replace("-", "−")


def output(output: pd.DataFrame) -> str:
    """What comes out, and what W_O keeps of it."""
    said = f"The output is {_vector(output['value'])}"
    if output["kept"].all():
        return f"{said}."
    dropped, kept = output[~output["kept"]], output[output["kept"]]
    return (
        f"{said}. Its {' and '.join(dropped['holds'].unique())} is residue, which W_O drops; "
        f"{_vector(kept['value'])} is left."
    )


def answer(read: pd.DataFrame, asked: str) -> str:
    """What is read of it."""
    found = read.loc[read["answer"], "content"].item()
    wanted = read.loc[read["asked"], "content"].item()
    if found == wanted:
        return f"Read: {found}, which stands beside {asked}."
    return f"Read: {found}. Beside {asked} stands {wanted}."


def caption(lookup: Lookup, sharpness: float) -> str:
    """The line under the charts."""
    return (
        f"synthetic · written by hand, nothing drawn at random · n = {len(lookup.key)} items · "
        f"d_k = {lookup.d_k} · d_v = {lookup.value.shape[-1]} · divisor √{lookup.d_k} · query "
        f"times {sharpness:g} · computed in float64"
    )


def outcomes(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """A table of all variants over all six questions, its first row the heads."""
    rows = frame.to_dict("records")
    return [
        ("", "kept", "found", "read"),
        *((r["variant"], f"{r['kept']}", _of_six(r["found"]), _of_six(r["right"])) for r in rows),
    ]


def _of_six(count: int) -> str:
    return f"{count}\u00a0of\u00a06"


def _best_two(frame: pd.DataFrame, by: str) -> list[dict[str, Any]]:
    return frame.nlargest(2, by).to_dict("records")


def _number(value: float) -> str:
    return f"{value:.4g}"


def _vector(values: pd.Series) -> str:
    written = ",\u00a0".join(f"{value:.3f}" for value in values)
    return f"({written})".replace("-", "−")
