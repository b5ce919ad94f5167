"""A cell as the few lines of Python that compute it in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.ui.sentences import word

if TYPE_CHECKING:
    from attnviz.ui.cells import Worked
    from attnviz.ui.readings import Asked

YOUR_PICTURE = "your picture.png"


def as_code(asked: Asked, worked: Worked) -> str:
    """The lines that reproduce a cell from attnviz alone, its numbers beside them."""
    blocks = (_imports(asked), _reading(asked), _call(worked), _numbers(worked))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _imports(asked: Asked) -> list[str]:
    lines = [
        "from attnviz import attention",
        "from attnviz.capture import capture",
        "from attnviz.inputs import inputs_for",
        "from attnviz.limits import most_places",
        "from attnviz.models import load",
    ]
    if asked.own_picture is not None:
        lines = ["from pathlib import Path", "", *lines, "from attnviz.pictures import opened"]
    elif asked.picture:
        lines.append("from attnviz.ui.drawings import DRAWINGS")
    return lines


def _reading(asked: Asked) -> list[str]:
    """Load the model and prepare what it reads, as the page does."""
    given = [f"    {asked.text!r},"]
    lines = [f"model = load({asked.model!r})"]
    if asked.target:
        given.append(f"    target={asked.target!r},")
    if asked.pair:
        given.append(f"    pair={asked.pair!r},")
    if asked.own_picture is not None:
        lines.append("# The file of the picture that you gave to the page.")
        lines.append(f"picture = opened(Path({YOUR_PICTURE!r}).read_bytes())")
        given.append("    image=picture,")
    elif asked.picture:
        given.append(f"    image=DRAWINGS[{asked.picture!r}].draw(),")
    given.append("    max_tokens=most_places(model.model, model.card.max_tokens),")
    return [*lines, "inputs = inputs_for(", "    model,", *given, ")"]


def _call(worked: Worked) -> list[str]:
    """Choose the call; where a layer attends twice, the page shows the second."""
    head = worked.head
    wanted = repr((worked.tower, worked.kind, head.layer))
    return [
        "calls = [",
        "    call",
        "    for call in capture(model.model, inputs.tensors).calls",
        f"    if (call.tower, call.kind, call.layer) == {wanted}",
        "]",
        "call = calls[-1]",
    ]


def _numbers(worked: Worked) -> list[str]:
    """Compute the cell's numbers, each with what the page has."""
    cell, head = worked.cell, worked.head
    query, key = word(head.queries, worked.query), word(head.keys, worked.key)
    lines = [
        f"head, query, key = {cell.head}, {worked.query}, {worked.key}  "
        f"# {_comment(query)} looks at {_comment(key)}"
    ]
    found = {}
    if cell.match is not None and cell.logit is not None:
        found = {"score": f"{cell.match.score:.7g}", "logit": f"{cell.logit.logit:.7g}"}
    found["weight"] = f"{cell.weight:.7g}"
    lines += [
        f"{name} = float(attention.{name}s(call, head)[query, key])  # {number}"
        for name, number in found.items()
    ]
    return [*lines, f"print({', '.join(found)})"]


def _comment(text: str) -> str:
    """Text within a comment: what would end the line, or cannot be written, is spelt out."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
