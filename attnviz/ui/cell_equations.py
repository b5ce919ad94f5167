"""The equations of a cell's steps in LaTeX, with the terms that its model has and no others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attnviz.ui.cell_chain import divisor_of

if TYPE_CHECKING:
    from attnviz.cell import Role
    from attnviz.ui.cells import Worked

SAME, SAME_IN_HALF = 1e-4, 2e-2  # relative, in float32 and in the shorter precisions


def equation(worked: Worked, step: int) -> str:
    """The equation of a step in LaTeX, with the terms that this model has; "" where it has none."""
    return EQUATIONS[step](worked)


def _roles_equation(worked: Worked) -> str:
    rows = [_role_equation(worked, name, role) for name, role in roles(worked).items()]
    return _aligned([row for row in rows if row])


def _role_equation(worked: Worked, name: str, role: Role) -> str:
    """W x + b of one role; an arrow where the model does more than the equation says."""
    if role.matrix is None:
        return ""
    index = "i" if name == "q" else "j"
    x = rf"{_x(worked, name)}_{index}"
    made = rf"W_{name.upper()}\,{f'c_{index}' if is_latent(role) else x}"
    if " and " in role.matrix:
        made = rf"\left[{made};\ W'_{name.upper()}\,{x}\right]"
    made += "" if role.bias is None else f" + b_{name.upper()}"
    factor = worked.query_factor if name == "q" else 1.0
    left = rf"\tilde {name}_{index}" if role.unrotated is not None else f"{name}_{index}"
    if factor != 1:
        sign = _latex_factor(factor, len(role.used))
        made = rf"{sign}\left({made}\right)" if "+" in made else rf"{sign}\,{made}"
    if is_used_as_made(worked, role, factor):
        return f"{left} &= {made}"
    if worked.norm and name != "v":
        return rf"{left} &= \mathrm{{norm}}\left({made}\right)"
    return rf"{left} &\leftarrow {made}"


def _x(worked: Worked, name: str) -> str:
    """The letter of the vectors that a role is made from: in cross-attention there are two."""
    return "y" if worked.kind == "cross" and name != "q" else "x"


def _position_equation(worked: Worked) -> str:
    rows = []
    if worked.added_positions:
        rows.append(r"\mathrm{input}_i &= \mathrm{token}_i + p_i")
    if rotated(worked):
        rows.append(
            r"q_i \cdot k_j &= (R_i\,\tilde q_i) \cdot (R_j\,\tilde k_j) \\ &= \tilde q_i \cdot "
            r"R_{j-i}\,\tilde k_j"
        )
    if worked.cell.logit is not None and worked.cell.logit.bias is not None:
        rows.append(r"\mathrm{logit}_{ij} &= \ldots + b_{ij}")
    if not rows and worked.cell.match is not None:
        rows.append(r"\mathrm{score}_{ij} &= q_i \cdot k_j")
    return _aligned(rows)


def _match_equation(worked: Worked) -> str:
    match = worked.cell.match
    if match is None:
        return ""
    last = len(match.products) - 1
    return rf"\mathrm{{score}}_{{ij}} = q_i \cdot k_j = \sum_{{d=0}}^{{{last}}} q_i[d]\,k_j[d]"


def _logit_equation(worked: Worked) -> str:
    match, logit = worked.cell.match, worked.cell.logit
    if match is None or logit is None:
        return ""
    made = _scaled_in_latex(logit.scale, len(match.products))
    if logit.softcap is not None:
        cap = f"{logit.softcap:g}"
        made = rf"{cap}\,\tanh\left(\frac{{1}}{{{cap}}}\,{made}\right)"
    if logit.bias is not None:
        made += " + b_{ij}"
    if len(seen(worked)) < len(logit.row):
        cases = rf"{made} & \text{{if visible}} \\ -\infty & \text{{if hidden}}"
        made = rf"\begin{{cases}}{cases}\end{{cases}}"
    return rf"\mathrm{{logit}}_{{ij}} = {made}"


def _scaled_in_latex(scale: float, width: int) -> str:
    divisor = divisor_of(scale, width)
    if divisor is None:
        return rf"{scale:.4g}\,(q_i \cdot k_j)"
    kind, size = divisor
    if size == 1:
        return r"q_i \cdot k_j"
    below = rf"\sqrt{{{size}}}" if kind == "root" else str(size)
    return rf"\dfrac{{q_i \cdot k_j}}{{{below}}}"


def _latex_factor(factor: float, width: int) -> str:
    divisor = divisor_of(factor, width)
    if divisor is None:
        return f"{factor:.4g}"
    kind, size = divisor
    below = rf"\sqrt{{{size}}}" if kind == "root" else str(size)
    return rf"\frac{{1}}{{{below}}}"


def _softmax_equation(worked: Worked) -> str:
    softmax = worked.cell.softmax
    if softmax is None:
        return ""
    less = " - m" if softmax.shift else ""
    sink = "" if softmax.sink is None else rf" + \exp(\mathrm{{sink}}{less})"
    return (
        rf"\mathrm{{weight}}_{{ij}} = \frac{{\exp(\mathrm{{logit}}_{{ij}}{less})}}"
        rf"{{\sum_{{j'}} \exp(\mathrm{{logit}}_{{ij'}}{less}){sink}}}"
    )


def _retrieve_equation(worked: Worked) -> str:
    into, retrieved = worked.cell.into_stream, worked.cell.retrieved
    value = r"(g_i \odot v_j)" if into is not None and into.gated else "v_j"
    through = rf"W_O\,{value}" if retrieved.through_w_o else "v_j"
    return _aligned(
        [
            r"\mathrm{output}_i &= \textstyle\sum_j \mathrm{weight}_{ij}\,v_j",
            rf"\mathrm{{brought}}_{{ij}} &= \lVert \mathrm{{weight}}_{{ij}}\,{through} \rVert",
        ]
    )


def _stream_equation(worked: Worked) -> str:
    into = worked.cell.into_stream
    if into is None:
        return ""
    output = r"\mathrm{output}_i^{h}"
    output = rf"(g_i^{{h}} \odot {output})" if into.gated else output
    added = rf"\textstyle\sum_h W_O^{{h}}\,{output}"
    added += "" if into.bias is None else " + b_O"
    added += r" + \ldots" if into.others else ""
    rows = [rf"\mathrm{{added}}_i &= {rf'f({added})' if into.changed else added}"]
    if into.before is not None:
        rows.append(r"\mathrm{stream}_i &\leftarrow \mathrm{stream}_i + \mathrm{added}_i")
    return _aligned(rows)


def _aligned(rows: Sequence[str]) -> str:
    if not rows:
        return ""
    return r"\begin{aligned}" + r" \\ ".join(rows) + r"\end{aligned}"


EQUATIONS: tuple[Callable[[Worked], str], ...] = (
    _roles_equation,
    _position_equation,
    _match_equation,
    _logit_equation,
    _softmax_equation,
    _retrieve_equation,
    _stream_equation,
)


# --- what a model does, told from the numbers


def roles(worked: Worked) -> dict[str, Role]:
    """What there is of q, k and v, by these letters."""
    cell = worked.cell
    found = {"q": cell.query, "k": cell.key, "v": cell.value}
    return {name: role for name, role in found.items() if role is not None}


def is_latent(role: Role) -> bool:
    """Whether a short vector was made from x first."""
    return role.entering is not None and role.x is not None and len(role.entering) < len(role.x)


def is_used_as_made(worked: Worked, role: Role, factor: float) -> bool:
    """Whether nothing but a rotation and this factor comes after the matrix."""
    same = SAME if worked.head.precision in ("float32", "float64") else SAME_IN_HALF
    if role.made is None:
        return False
    used = (role.used if role.unrotated is None else role.unrotated).tolist()
    largest = max(map(abs, used), default=0.0)
    pairs = zip(used, role.made.tolist(), strict=True)
    return all(abs(one - factor * other) <= same * largest for one, other in pairs)


def rotated(worked: Worked) -> bool:
    """Whether query and key were turned by their places."""
    query, key = worked.cell.query, worked.cell.key
    return bool(query and key and query.unrotated is not None and key.unrotated is not None)


def seen(worked: Worked) -> list[int]:
    """The keys that the query can see."""
    logit = worked.cell.logit
    if logit is None:
        return [j for j, weight in enumerate(worked.cell.weights.tolist()) if weight > 0]
    return [j for j, x in enumerate(logit.row.tolist()) if x > -math.inf]
