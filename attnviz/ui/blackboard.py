"""One cell for the blackboard: rounded so far that it can be multiplied out by hand.

Every line is worked out from the numbers that stand above it, as one does at a board, so each is
right as it stands, and only the last is compared with the model. Two decimals are kept (three
digits of what is smaller than 1) and four digits of exponentials. Where that would leave the
weight off by more than 0.01, or by more than a tenth of a small one, every number gets one digit
more, until it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Literal

from attnviz.ui.cell_chain import divisor_of, seven
from attnviz.ui.sentences import place, word

if TYPE_CHECKING:
    from attnviz.cell import Cell, Logit, Match, Softmax
    from attnviz.ui.cells import Worked

STRONGEST = 4  # dimensions written out, the rest as one term
DIGITS = range(2, 10)  # decimals to try
NEAR = 0.01  # how far the board's weight may be from the model's
PRECISION = 60  # digits that Python works with, far more than any board shows
MOST_DECIMALS = 8  # beyond which a small number is written with a power of ten
LARGE = Decimal(10**7)  # from which on a large one is
ZERO = Decimal(0)
LOGIT = ("logit", r"\text{logit}")
WEIGHT = ("weight", r"\text{weight}")
LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {sign: f"\\{sign}" for sign in "{}_%$#&"}

Operation = Literal["given", "product", "sum", "quotient", "over root", "soft cap", "exp"]


@dataclass(frozen=True)
class Line:
    """A line of the board: `operation` on `operands` gives `result`, rounded to its last digit.

    `name` and `latex` say what is worked out. A line that is given has no operands; a hidden
    logit is −∞ and has no result.
    """

    name: str
    latex: str
    operation: Operation
    operands: tuple[Decimal, ...]
    result: Decimal | None
    remark: str = ""

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        with localcontext(prec=PRECISION):
            given = self.operation == "given"
            return given or worked_out(self.operation, self.operands) == self.result


def lines(worked: Worked) -> tuple[Line, ...]:
    """The board of a cell, from its strongest dimensions to one dimension of the output."""
    return _board(worked).lines


def as_text(worked: Worked) -> str:
    """The board as plain text."""
    board = _board(worked)
    width = max(len(line.name) for line in board.lines)
    rows = [f"{line.name:<{width}} {_text(line)}" for line in board.lines]
    return "\n".join([*_heading(worked, board), "", *rows, "", *_closing(worked, board)])


def as_latex(worked: Worked) -> str:
    """The board as an `align*` block of LaTeX with amsmath."""
    board = _board(worked)
    rows = [f"{line.latex} &{_latex(line)}" for line in board.lines]
    above, below = (
        [rf"&\text{{{escaped(told)}}}" for told in part]
        for part in (_heading(worked, board), _closing(worked, board))
    )
    body = " \\\\\n".join([*above, *rows, *below])
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def escaped(text: str) -> str:
    """Text as it stands inside LaTeX's text, whatever signs a token holds."""
    return "".join(LATEX_SIGNS.get(sign, sign) for sign in text)


# --- what stands on the board


class _Board:
    """A board as it is written: each line gives the number that the next ones use."""

    def __init__(self, digits: int) -> None:
        self.digits = digits
        self.lines: tuple[Line, ...] = ()

    def write(
        self,
        name: tuple[str, str],
        operation: Operation,
        operands: Sequence[Decimal],
        decimals: int | None = None,
        remark: str = "",
    ) -> Decimal:
        """Work out a line; without decimals, it gets those that its result deserves."""
        result = worked_out(operation, operands)
        result = rounded(result, self.decimals(result) if decimals is None else decimals)
        self.lines += (Line(*name, operation, tuple(operands), result, remark),)
        return result

    def name_last(self, name: tuple[str, str]) -> None:
        *before, last = self.lines
        self.lines = (*before, replace(last, name=name[0], latex=name[1]))

    def give(self, name: tuple[str, str], result: Decimal | None, remark: str) -> None:
        self.lines += (Line(*name, "given", (), result, remark),)

    @property
    def hidden(self) -> bool:
        """Whether it ends at a hidden key."""
        return any(line.result is None for line in self.lines)

    def decimals(self, *numbers: Decimal) -> int:
        """Decimals for numbers of a kind, by the largest of them."""
        largest = max(map(abs, numbers))
        extra = -largest.adjusted() if 0 < largest < 1 else 0
        return self.digits + min(extra, MOST_DECIMALS)

    def figures(self, number: Decimal) -> int:
        """Decimals that keep four digits of an exponential, or whole numbers in full."""
        decimals = self.digits + 1 - number.adjusted() if number else 0
        return decimals if number >= LARGE else max(0, decimals)


def _board(worked: Worked) -> _Board:
    """The first board, from two decimals on, whose weight is near enough to the model's."""
    true = worked.cell.weight
    with localcontext(prec=PRECISION):
        for digits in DIGITS:
            board = _Board(digits)
            weight = _weight(board, worked)
            if abs(float(weight) - true) <= min(NEAR, true / 10 + NEAR / 20):
                break
        if not board.hidden:
            _output(board, worked.cell, weight)
    return board


def _weight(board: _Board, worked: Worked) -> Decimal:
    cell = worked.cell
    if cell.match is None or cell.logit is None or cell.softmax is None:
        true = Decimal(cell.weight)
        weight = rounded(true, _weight_decimals(true))
        board.give(WEIGHT, weight, "the model's own; it offers no q and k as such")
        return weight
    entering = _logit(board, worked, cell.match, cell.logit)
    if entering is None:
        board.give(LOGIT, None, "the mask hides this key from the query")
        board.give(WEIGHT, ZERO, "a hidden key gets nothing")
        return ZERO
    return _softmax(board, worked.cell, cell.logit, cell.softmax, entering)


def _score(board: _Board, match: Match, cell: Cell) -> Decimal:
    """q·k: the strongest dimensions one by one, and all others as one number."""
    assert cell.query is not None
    assert cell.key is not None
    products = [Decimal(x) for x in match.products.tolist()]
    strongest = sorted(range(len(products)), key=lambda d: -abs(products[d]))[:STRONGEST]
    decimals = board.decimals(*(products[d] for d in strongest))
    query, key = (_alike(board, role.used.tolist(), strongest) for role in (cell.query, cell.key))
    terms = [
        board.write((f"q[{d}] · k[{d}]", f"q_{{{d}}} k_{{{d}}}"), "product", factors, decimals)
        for d, *factors in zip(strongest, query, key, strict=True)
    ]
    remark = ""
    if left := len(products) - len(terms):
        terms.append(rounded(Decimal(match.score), decimals) - sum(terms))
        others = f"the other {left} dimensions" if left > 1 else "the one other dimension"
        remark = f"{written(terms[-1])}: {others}"
    return board.write(("score", r"q \cdot k"), "sum", terms, decimals, remark)


def _alike(board: _Board, vector: list[float], places: list[int]) -> list[Decimal]:
    """These dimensions of a vector, all with the same decimals."""
    numbers = [Decimal(vector[d]) for d in places]
    decimals = board.decimals(*numbers)
    return [rounded(x, decimals) for x in numbers]


def _logit(board: _Board, worked: Worked, match: Match, logit: Logit) -> Decimal | None:
    """What enters the softmax; None where the key is hidden."""
    score = _score(board, match, worked.cell)
    operation, factor = _scale(board, logit.scale, len(match.products))
    shortened = f"q was multiplied by {worked.query_factor:.4g} before the product"
    remark = "" if worked.query_factor == 1 else shortened
    scaled = ("scaled", r"\text{scaled}")
    result = board.write(scaled, operation, (score, factor), remark=remark)
    if logit.softcap is not None:
        cap = Decimal(f"{logit.softcap:.6g}")
        result = board.write(("soft cap", r"\text{soft cap}"), "soft cap", (result, cap))
    if not logit.visible:
        return None
    if logit.bias is not None:
        bias = Decimal(logit.bias)
        bias = rounded(bias, board.decimals(bias))
        result = _added(board, ("plus bias", r"+\,\text{bias}"), result, bias)
    board.name_last(LOGIT)
    return result


def _added(
    board: _Board, name: tuple[str, str], one: Decimal, other: Decimal, remark: str = ""
) -> Decimal:
    """A sum of two, in full."""
    return board.write(name, "sum", (one, other), max(_decimals(one), _decimals(other)), remark)


def _scale(board: _Board, scale: float, width: int) -> tuple[Operation, Decimal]:
    """The model's scale as one writes it: over √32, times 1, or times a number."""
    divisor = divisor_of(scale, width)
    if divisor is None:
        factor = Decimal(scale)
        return "product", rounded(factor, board.figures(factor))
    kind, size = divisor
    if size == 1:
        return "product", Decimal(1)
    return ("over root" if kind == "root" else "quotient"), Decimal(size)


def _softmax(
    board: _Board, cell: Cell, logit: Logit, softmax: Softmax, entering: Decimal
) -> Decimal:
    shift = ZERO
    if softmax.shift:
        shift = rounded(Decimal(softmax.shift), board.digits)
        name = ("lowered", r"\text{lowered}")
        why = "taken from every logit of the row, which leaves the weights as they are"
        entering = _added(board, name, entering, -shift, f"{written(shift)}: {why}")
    decimals = board.figures(entering.exp())
    own = board.write(("exp", r"\text{exp}"), "exp", (entering,), decimals)
    others = [x for j, x in enumerate(logit.row.tolist()) if j != cell.value.token]
    together = Decimal(math.fsum(math.exp(x - float(shift)) for x in others))
    terms = [own, rounded(together, board.figures(together))]
    told = [f"{written(terms[1])}: {_who_else(others)}"]
    if softmax.sink is not None:
        sink = Decimal(softmax.sink) * (Decimal(softmax.shift) - shift).exp()
        terms.append(rounded(sink, board.figures(sink)))
        told.append(f"{written(terms[2])}: the learned sink")
    decimals = board.figures(sum(terms, ZERO))
    total = board.write(("sum", r"\text{sum}"), "sum", terms, decimals, "; ".join(told))
    decimals = _weight_decimals(own / total) + board.digits - DIGITS[0]
    return board.write(WEIGHT, "quotient", (own, total), decimals)


def _who_else(others: list[float]) -> str:
    seen = sum(map(math.isfinite, others))
    if seen > 1:
        return f"all {seen} other keys together"
    return "the one other key" if seen else "there is no other key to see"


def _weight_decimals(weight: Decimal) -> int:
    """Three decimals, or two digits of a small weight, but never more than the badge has."""
    if not Decimal("5e-8") <= weight < Decimal("0.01"):
        return 3
    return min(7, 1 - weight.adjusted())


def _output(board: _Board, cell: Cell, weight: Decimal) -> None:
    """The largest number of the value, and what it becomes in the output."""
    d = _largest(cell)
    output = Decimal(cell.retrieved.output.tolist()[d])
    (largest,) = _alike(board, cell.value.used.tolist(), [d])
    decimals = board.decimals(output, weight * largest)
    name = (f"weight · v[{d}]", rf"\text{{weight}} \cdot v_{{{d}}}")
    part = board.write(name, "product", (weight, largest), decimals)
    others = rounded(output - Decimal(cell.retrieved.share.tolist()[d]), decimals)
    name = (f"output[{d}]", rf"\text{{output}}_{{{d}}}")
    _added(board, name, part, others, f"{written(others)}: what the other keys bring")


def _largest(cell: Cell) -> int:
    vector = cell.value.used.tolist()
    return max(range(len(vector)), key=lambda d: abs(vector[d]))


# --- arithmetic


def worked_out(operation: Operation, operands: Sequence[Decimal]) -> Decimal:
    """What an operation gives, before it is rounded."""
    first = operands[0]
    if operation == "exp":
        return first.exp()
    if operation == "sum":
        return sum(operands, ZERO)
    second = operands[1]
    if operation == "product":
        return first * second
    if operation == "quotient":
        return first / second
    if operation == "over root":
        return first / second.sqrt()
    twice = (2 * first / second).exp()
    return second * (twice - 1) / (twice + 1)


def rounded(number: Decimal, decimals: int) -> Decimal:
    """A number with so many decimals; zero has no sign."""
    result = number.quantize(Decimal(1).scaleb(-decimals))
    return result if result else abs(result)


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


# --- how it is written


def written(number: Decimal) -> str:
    """A number of the board; with a power of ten only where zeros would hide its digits."""
    small = number and abs(number) < 1 and _decimals(number) > MOST_DECIMALS
    if small or abs(number) >= LARGE:
        return f"{number:e}".replace("e+", "e")
    return f"{number:f}"


def _text(line: Line) -> str:
    result = "−∞" if line.result is None else written(line.result)
    remark = f"   ({line.remark})" if line.remark else ""
    if line.operation == "given":
        return f"= {result}{remark}"
    return f"= {_operation(line)} {'=' if line.exact else '≈'} {result}{remark}"


def _operation(line: Line) -> str:
    """What is worked out, as text."""
    if line.operation == "sum":
        return _sum([written(x) for x in line.operands])
    if line.operation == "exp":
        return f"exp({written(line.operands[0])})"
    first, second = (_apart(written(x)) for x in line.operands)
    if line.operation == "soft cap":
        return f"{second} · tanh({first} / {second})"
    signs = {"product": "·", "quotient": "/", "over root": "/ √"}
    return f"{first} {signs[line.operation]} {second}".replace("√ ", "√")


def _latex(line: Line) -> str:
    result = r"-\infty" if line.result is None else _in_latex(written(line.result))
    remark = rf"\quad \text{{({escaped(line.remark)})}}" if line.remark else ""
    if line.operation == "given":
        return f"= {result}{remark}"
    sign = "=" if line.exact else r"\approx"
    return f"= {_operation_in_latex(line)} {sign} {result}{remark}"


def _operation_in_latex(line: Line) -> str:
    """What is worked out, as LaTeX."""
    numbers = [_in_latex(written(x)) for x in line.operands]
    if line.operation == "sum":
        return _sum(numbers)
    if line.operation == "exp":
        return rf"\exp({numbers[0]})"
    first, second = numbers
    if line.operation == "soft cap":
        return rf"{second} \tanh\left(\frac{{{first}}}{{{second}}}\right)"
    if line.operation == "product":
        return rf"{_apart(first)} \cdot {_apart(second)}"
    below = rf"\sqrt{{{second}}}" if line.operation == "over root" else second
    return rf"\frac{{{first}}}{{{below}}}"


def _in_latex(number: str) -> str:
    digits, _, power = number.partition("e")
    return rf"{digits} \cdot 10^{{{power}}}" if power else digits


def _apart(number: str) -> str:
    """A factor; a negative one in brackets."""
    return f"({number})" if number.startswith("-") else number


def _sum(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ")


def _heading(worked: Worked, board: _Board) -> list[str]:
    """Which cell it is, and how many digits it took."""
    head = worked.head
    looking, looked_at = word(head.queries, worked.query), word(head.keys, worked.key)
    told = [f"{head.title}, {place(head)}: how much {looking} looks at {looked_at}"]
    if board.digits > DIGITS[0]:
        told.append(
            f"Rounded to {board.digits} decimals or more; with {DIGITS[0]}, the weight would be "
            f"too far from the model's."
        )
    return told


def _closing(worked: Worked, board: _Board) -> list[str]:
    """What comes out without rounding; the model's own weight where it can be had."""
    cell, told = worked.cell, ["Each line is worked out from the rounded numbers above it."]
    own = cell.weight if cell.model_weight is None else cell.model_weight
    who = "Without rounding it is" if cell.model_weight is None else "The model has"
    if board.hidden:
        return [*told, f"{who} weight 0 exactly: a hidden key gets nothing."]
    d = _largest(cell)
    output = written(Decimal(f"{cell.retrieved.output.tolist()[d]:.7g}"))
    numbers = f"{who} weight {seven(own)} and output[{d}] = {output}"
    return [*told, f"{numbers}; the difference is rounding."]
