"""The way from a cell's score to its weight in short: boxes, a chain, and their numbers as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnviz.cell import Logit
    from attnviz.ui.cells import Worked

SAME_SCALE = 1e-6  # relative
LARGEST_DIVISOR = 4096

Divisor = tuple[Literal["root", "whole"], int]


def boxes(worked: Worked) -> tuple[tuple[str, str], ...]:
    """The way from the score to the weight in a few boxes, each with its label and value."""
    cell = worked.cell
    weight = ("weight", number(cell.weight))
    if cell.match is None or cell.logit is None or cell.softmax is None:
        return (weight,)
    logit, softmax = cell.logit, cell.softmax
    own, sign = float(softmax.exponentials[worked.key]), scale_sign(logit, len(cell.match.products))
    cap = None if logit.capped is None else (f"soft cap {logit.softcap:g}", three(logit.capped))
    return (
        ("score q·k", three(cell.match.score)),
        (f"× {sign}, the model's own scale", three(logit.scaled)),
        *([cap] if cap else []),
        ("+ position bias", "none" if logit.bias is None else three(logit.bias)),
        ("mask", "visible" if logit.visible else "hidden"),
        ("exp / row sum", f"{number(own, 4)} / {number(softmax.total, 4)}"),
        weight,
    )


def chain(worked: Worked) -> tuple[tuple[str, str, str], ...]:
    """From the score to the logit, all that the model does, one by one: name, value, remark."""
    cell = worked.cell
    if cell.match is None or cell.logit is None:
        return (("weight", number(cell.weight), "the model's own; it offers no q and k as such"),)
    logit, score, d_k = cell.logit, cell.match.score, len(cell.match.products)
    told = [("score q·k", three(score), f"the sum of {d_k} products")]
    scale = scale_remark(logit, d_k, worked.query_factor)
    if worked.query_factor != 1:
        factor = _factor(worked.query_factor, d_k)
        before = f"in q already; without it the score would be {three(score / worked.query_factor)}"
        told.append(("query factor", factor, before))
    told.append((f"× {scale_sign(logit, d_k)}", three(logit.scaled), scale))
    if logit.softcap is not None and logit.capped is not None:
        cap = f"{logit.softcap:g}"
        remark = f"{cap} · tanh({three(logit.scaled)} / {cap}): never beyond ±{cap}"
        told.append((f"soft cap {cap}", three(logit.capped), remark))
    if logit.bias is not None:
        sign = "+" if logit.bias >= 0 else ""
        told.append(("+ position bias", f"{sign}{three(logit.bias)}", "a term of its own"))
    hidden = "the logit becomes −∞, so that exp(logit) is 0, whatever the score"
    mask = ("visible", "") if logit.visible else ("hidden", hidden)
    return (*told, ("mask", *mask), ("logit", three(logit.logit), "what enters the softmax"))


def _factor(factor: float, width: int) -> str:
    """A factor by its rule, as 1/√32, with its value behind, or its value alone."""
    divisor = divisor_of(factor, width)
    if divisor is None:
        return number(factor, 4)
    kind, size = divisor
    if size == 1:
        return "1"
    return f"1/{'√' if kind == 'root' else ''}{size} = {number(factor, 4)}"


def scale_sign(logit: Logit, d_k: int) -> str:
    """The factor on the score as one writes it: 1/√32, 1, or a number."""
    return _factor(logit.scale, d_k).partition(" = ")[0]


def scale_remark(logit: Logit, d_k: int, query_factor: float) -> str:
    """The model's scale against 1/√d_k."""
    root = f"√{d_k} = {number(d_k**0.5, 4)}"
    divisor = divisor_of(logit.scale, d_k)
    if query_factor != 1 and divisor == ("whole", 1):
        return f"q was multiplied before, by {_factor(query_factor, d_k)}, so q·k is not"
    if divisor == ("root", d_k):
        return f"the model divides by {root}"
    if divisor == ("whole", 1):
        return f"the model does not divide; 1/√d_k would be {number(d_k**-0.5)}"
    if divisor == ("whole", d_k):
        return f"the model divides by d_k = {d_k}, not by {root}"
    return f"the model's own {number(logit.scale)}; 1/√d_k would be {number(d_k**-0.5)}"


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits, without an exponent where that can be read."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if int(exponent) < -4:
        mantissa = f"{value:.1e}"
        return mantissa.replace("-", "−", 1) if value < 0 else mantissa
    decimals = max(0, digits - 1 - int(exponent))
    return f"{value:,.{decimals}f}".replace("-", "−")


def three(value: float) -> str:
    """A number to three decimals, as the chain of a cell has them."""
    if math.isinf(value) or abs(value) < 0.001:
        return number(value, 2)
    return f"{value:,.3f}".replace("-", "−")


def seven(weight: float) -> str:
    """A weight in full, to the seven decimals of float32."""
    return f"{weight:.7f}" if weight >= 5e-7 or weight == 0 else f"{weight:.1e}"


def divisor_of(scale: float, width: int) -> Divisor | None:
    """Which 1/√m or 1/m a scale is, 1 and 1/√d_k first; None if it is neither."""
    candidates: list[tuple[Literal["root", "whole"], float]]
    candidates = [("whole", 1), ("root", width), ("whole", width)]
    if 0 < scale < 1:
        candidates += [("whole", 1 / scale), ("root", scale**-2)]
    for kind, size in candidates:
        whole = round(size)
        exact = whole**-0.5 if kind == "root" else 1 / whole
        if whole <= LARGEST_DIVISOR and abs(exact / scale - 1) < SAME_SCALE:
            return kind, whole
    return None
