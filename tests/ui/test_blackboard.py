"""The blackboard multiplies out: what is written is parsed again and worked out line by line."""

from __future__ import annotations

import ast
import math
import re
from decimal import Decimal, getcontext
from itertools import pairwise
from typing import Any

import cells_by_hand
import pytest
from cells_by_hand import axis, head, worked

from attnviz.ui.blackboard import Line, as_latex, as_text, escaped, lines
from attnviz.ui.cells import Worked

getcontext().prec = 60
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft cap": {"softcap": 5.0},
    "bias": {"bias": True},
    "sink": {"sink": 1.7},
    "sink that towers": {"sink": 40.0, "lowered": True},
    "not divided": {"scale": 1.0},
    "a number of its own": {"scale": 0.23},
    "by d_k": {"scale": 1 / 32},
    "of another width": {"scale": 19**-0.5},
    "multiplied up": {"scale": 10.0, "size": 0.3},
    "large logits": {"size": 4.0, "lowered": True},
    "large exponentials": {"size": 1.9, "scale": 0.5},
    "tiny numbers": {"size": 0.01},
    "causal": {"hidden": (5, 6)},
    "alone": {"hidden": (0, 2, 3, 4, 5, 6)},
    "all together": {"softcap": 30.0, "bias": True, "sink": -1.0, "hidden": (6,)},
    "five dimensions": {"d_k": 5},
    "four dimensions": {"d_k": 4, "size": 2.0},
    "three dimensions": {"d_k": 3, "size": 3.0, "scale": 1.0},
    "one dimension": {"d_k": 1},
    "tied": {"tied": True, "scale": 40.0, "lowered": True},
    "two dimensions tied": {"tied": True, "d_k": 2, "scale": 9.0, "lowered": True},
    "weights only": {"weights_only": True},
}


def result_of(node: ast.expr, source: str) -> Decimal:
    """What an expression of the board gives, in decimals."""
    if isinstance(node, ast.Constant):
        return Decimal(ast.get_source_segment(source, node))
    if isinstance(node, ast.UnaryOp):
        assert isinstance(node.op, ast.USub)
        return -result_of(node.operand, source)
    if isinstance(node, ast.Call):
        x = result_of(node.args[0], source)
        one, other = x.exp(), (-x).exp()
        functions = {"sqrt": x.sqrt, "exp": x.exp, "tanh": lambda: (one - other) / (one + other)}
        return functions[node.func.id]()
    assert isinstance(node, ast.BinOp)
    left, right = result_of(node.left, source), result_of(node.right, source)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else left / right


def written_lines(text: str) -> list[tuple[str, str | None, str, str]]:
    """Name, expression, sign and result of each line that has numbers on it."""
    _, middle, _ = text.split("\n\n")
    found = []
    for row in middle.splitlines():
        row = row.partition("   (")[0]
        name, _, rest = row.partition(" = ")
        *expression, result = re.split(r" [=≈] ", rest)
        sign = "≈" if " ≈ " in rest else "="
        found.append((name.strip(), expression[0] if expression else None, sign, result))
    return found


def worked_out(expression: str) -> Decimal:
    source = re.sub(r"√(\d+)", r"sqrt(\1)", expression).replace("·", "*")
    return result_of(ast.parse(source, mode="eval").body, source)


def half_a_unit(result: str) -> Decimal:
    return Decimal(1).scaleb(Decimal(result).as_tuple().exponent) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_multiplies_out(kind: str):
    for seed in range(25):
        text = as_text(worked(seed, **KINDS[kind]))
        for _, expression, sign, result in written_lines(text):
            if expression is None:
                continue
            difference = abs(worked_out(expression) - Decimal(result))
            assert difference <= half_a_unit(result), text
            assert (sign == "=") == (difference == 0), text


@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_of_the_board_is_near_the_models(kind: str):
    for seed in range(25):
        given = worked(seed, **KINDS[kind])
        board = {line.name: line for line in lines(given)}
        assert abs(float(board["weight"].result) - given.cell.weight) <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_each_line_goes_on_from_those_above(kind: str):
    """What the model does not give is a result that stands there already."""
    for seed in range(5):
        board = lines(worked(seed, **KINDS[kind]))
        results = {line.name: line.result for line in board}
        products = [line.result for line in board if line.name.startswith("q[")]
        for before, line in pairwise(board):
            if line.name == "score":
                assert list(line.operands[: len(products)]) == products
            elif line.name == "weight":
                assert line.operands in [(), (results.get("exp"), results.get("sum"))]
            elif not line.name.startswith("q[") and line.result is not None:
                assert line.operands[0] == before.result


def of(given: Worked) -> dict[str, Line]:
    return {line.name: line for line in lines(given)}


def near(number: Decimal, true: float) -> bool:
    """Whether a number is the true one, rounded to where it ends; float32 has 7 digits."""
    half = Decimal(1).scaleb(number.as_tuple().exponent) / 2
    return abs(float(number) - true) <= float(half) + 1e-6 * abs(true)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_given_is_the_models_own_rounded(seed: int):
    given = worked(seed, softcap=30.0, bias=True, sink=-1.0, hidden=(6,))
    cell, board = given.cell, of(given)
    products = cell.match.products.tolist()
    strongest = sorted(range(32), key=lambda d: -abs(products[d]))[:4]
    assert list(board)[:4] == [f"q[{d}] · k[{d}]" for d in strongest]
    for d in strongest:
        q, k = board[f"q[{d}] · k[{d}]"].operands
        assert near(q, float(cell.query.used[d]))
        assert near(k, float(cell.key.used[d]))
    score = board["score"]
    assert near(score.result, cell.match.score)
    assert score.operands[4] == score.result - sum(score.operands[:4])
    assert "the other 28 dimensions" in score.remark
    assert board["scaled"].operands[1] == 32
    assert board["soft cap"].operands[1] == 30
    assert near(board["logit"].operands[1], cell.logit.bias)
    _, others, sink = board["sum"].operands
    exponentials = [math.exp(x) for x in cell.logit.row.tolist()]
    assert near(others, sum(exponentials) - exponentials[1])
    assert near(sink, math.exp(-1.0))
    assert "all 5 other keys together" in board["sum"].remark
    assert "the learned sink" in board["sum"].remark


def test_the_last_lines_are_one_dimension_of_the_output():
    given = worked(3)
    values, output = given.cell.value.used, given.cell.retrieved.output
    d = int(values.abs().argmax())
    board = of(given)
    assert near(board[f"weight · v[{d}]"].operands[1], float(values[d]))
    assert float(board[f"output[{d}]"].result) == pytest.approx(float(output[d]), abs=0.03)
    last = as_text(given).splitlines()[-1]
    assert f"The model has weight {given.cell.weight:.7f} and output[{d}] = " in last
    assert last.endswith("the difference is rounding.")
    (written,) = re.findall(r"\] = ([-\d.]+);", last)
    assert float(written) == pytest.approx(float(output[d]), rel=1e-6)


def test_a_board_worked_out_by_hand():
    import torch

    from attnviz.cell import Logit, Match, Retrieved, Role, Softmax

    row = torch.tensor([0.0, 3.0])
    cell = {
        "query": Role(1, torch.tensor([1.5, -2.0])),
        "key": Role(1, torch.tensor([2.0, 1.5])),
        "value": Role(1, torch.tensor([0.5, -4.0])),
        "match": Match(torch.tensor([3.0, -3.0]), 0.0, torch.zeros(2)),
        "logit": Logit(1.0, 0.0, None, None, 3.0, True, 3.0, row),
        "softmax": Softmax(0.0, row.exp(), None, 1 + math.e**3),
        "weights": row.softmax(0),
        "retrieved": Retrieved(
            row.softmax(0)[1] * torch.tensor([0.5, -4.0]),
            torch.tensor([1.0, -3.0]),
            torch.ones(2),
            False,
        ),
        "model_weight": 0.9525741,
    }
    text = as_text(worked(query=4, key=1, cell=cell))
    assert text == "\n".join(
        [
            "Tiny, layer 1, head 2: how much “it” looks at “cat”",
            "",
            "q[0] · k[0]   = 1.50 · 2.00 = 3.00",
            "q[1] · k[1]   = (-2.00) · 1.50 = -3.00",
            "score         = 3.00 - 3.00 = 0.00",
            "scaled        = 0.00 · 1 = 0.00",
            "logit         = 0.00 + 3.00 = 3.00",
            "exp           = exp(3.00) ≈ 20.09",
            "sum           = 20.09 + 1.000 = 21.09   (1.000: the one other key)",
            "weight        = 20.09 / 21.09 ≈ 0.953",
            "weight · v[1] = 0.953 · (-4.00) ≈ -3.81",
            "output[1]     = -3.81 + 0.81 = -3.00   (0.81: what the other keys bring)",
            "",
            "Each line is worked out from the rounded numbers above it.",
            "The model has weight 0.9525741 and output[1] = -3; the difference is rounding.",
        ]
    )


def test_a_hidden_key_ends_the_board():
    given = worked(hidden=(1, 6), bias=True)
    board = lines(given)
    assert [line.name for line in board[-3:]] == ["scaled", "logit", "weight"]
    assert board[-2].result is None
    assert board[-1].result == 0
    text = as_text(given)
    assert "logit" in text
    assert "= −∞   (the mask hides this key from the query)" in text
    assert text.endswith("The model has weight 0 exactly: a hidden key gets nothing.")


def test_a_model_without_q_and_k_has_a_short_board():
    given = worked(2, weights_only=True)
    names = [line.name for line in lines(given)]
    d = int(given.cell.value.used.abs().argmax())
    assert names == ["weight", f"weight · v[{d}]", f"output[{d}]"]
    text = as_text(given)
    assert f"= {given.cell.weight:.3f}   (the model's own; it offers no q and k as such)" in text
    assert "Without rounding it is weight" in text


def test_the_shift_keeps_exponentials_readable():
    given = worked(1, size=4.0, lowered=True)
    board = of(given)
    score = given.cell.logit.logit - given.cell.softmax.shift
    assert float(board["lowered"].result) == pytest.approx(score, abs=0.02)
    assert board["exp"].operands == (board["lowered"].result,)
    others = [math.exp(x - float(-board["lowered"].operands[1])) for x in given.cell.logit.row]
    assert near(board["sum"].operands[1], sum(others) - others[1])


def test_a_sink_is_lowered_by_the_same_rounded_number():
    for seed in range(5):
        board = of(worked(seed, size=4.0, lowered=True, sink=12.0))
        lowered = -board["lowered"].operands[1]
        assert near(board["sum"].operands[2], math.exp(12.0 - float(lowered)))


def test_more_digits_only_where_two_decimals_would_not_do():
    assert not any("Rounded to" in as_text(worked(seed)) for seed in range(25))
    tied = [worked(seed, **KINDS["tied"]) for seed in range(25)]
    finer = [given for given in tied if "Rounded to 3 decimals or more" in as_text(given)]
    assert finer
    for given in finer:
        score = of(given)["score"].result
        assert score.as_tuple().exponent == -3
        logit = given.cell.logit.scale * float(round(score, 2))
        assert abs(logit - given.cell.logit.logit) > 0.01


def test_zero_has_no_sign_and_no_number_is_nan():
    for kind, terms in KINDS.items():
        for seed in range(10):
            _, middle, _ = as_text(worked(seed, **terms)).split("\n\n")
            for number in NUMBER.findall(middle):
                assert Decimal(number) != 0 or not number.startswith("-"), (kind, seed, number)
            assert "nan" not in middle.lower()


def test_the_query_that_was_shortened_before_is_told():
    given = worked(scale=1.0, query_factor=32**-0.5)
    assert "q was multiplied by 0.1768 before the product" in of(given)["logit"].remark


# --- as LaTeX


def from_latex(row: str) -> tuple[str, str, str]:
    """What is worked out in a row of LaTeX as Python writes it, the sign, and the result."""
    formula = row.partition(" &= ")[2].removesuffix(r" \\").partition(r"\quad")[0]
    *before, result = re.split(
        r" (?:=|\\approx) ", re.sub(r" \\cdot 10\^{(-?\d+)}", r"e\1", formula)
    )
    made = before[0] if before else ""
    made = re.sub(r"\\sqrt{(\d+)}", r"sqrt(\1)", made)
    made = re.sub(r"\\frac{(.*?)}{(.*?)}", r"((\1)/(\2))", made)
    made = re.sub(r" \\tanh\\left\((.*)\\right\)", r"*tanh(\1)", made)
    made = made.replace(r"\exp", "exp").replace(r"\cdot", "*")
    return made, "≈" if r"\approx" in formula else "=", result


@pytest.mark.parametrize("kind", KINDS)
def test_latex_multiplies_out_to_the_same_numbers(kind: str):
    for seed in range(10):
        given = worked(seed, **KINDS[kind])
        text, latex = as_text(given), as_latex(given)
        rows = latex.splitlines()[1:-1]
        above, middle, below = (len(part.splitlines()) for part in text.split("\n\n"))
        assert len(rows) == above + middle + below
        for row, line, (_, _, sign, result) in zip(
            rows[above : above + middle], lines(given), written_lines(text), strict=True
        ):
            made, latex_sign, latex_result = from_latex(row)
            assert (latex_sign, latex_result.replace(r"-\infty", "−∞")) == (sign, result)
            assert not line.remark or f"({escaped(line.remark)})" in row
            if made:
                assert abs(worked_out(made) - Decimal(result)) <= half_a_unit(result)


@pytest.mark.parametrize("kind", KINDS)
def test_latex_is_balanced(kind: str):
    latex = as_latex(worked(4, **KINDS[kind]))
    assert latex.startswith("\\begin{align*}\n")
    assert latex.endswith("\n\\end{align*}")
    plain = re.sub(r"\\[{}]", "", latex)
    depth = 0
    for sign in plain:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert latex.count(r"\left") == latex.count(r"\right")
    rows = latex.splitlines()[1:-1]
    assert all(row.endswith(r" \\") for row in rows[:-1])
    assert not rows[-1].endswith("\\")
    assert all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)


def test_signs_of_tokens_are_escaped():
    assert escaped(r"a\b{c}_d^e%f$g#h&i~j") == (
        r"a\textbackslash{}b\{c\}\_d\textasciicircum{}e\%f\$g\#h\&i\textasciitilde{}j"
    )
    assert escaped("<|bos|>") == r"\textless{}\textbar{}bos\textbar{}\textgreater{}"
    assert escaped("καλή 猫 ␣ “x”") == "καλή 猫 ␣ “x”"


def test_a_token_of_signs_stays_inside_its_text():
    words = list(cells_by_hand.KEYS)
    words[1] = r"\}$&%"
    latex = as_latex(worked(head=head(keys=axis(*words))))
    assert r"looks at “\textbackslash{}\}\$\&\%”}" in latex
    assert as_text(worked(head=head(keys=axis(*words)))).splitlines()[0].endswith(r"“\}$&%”")
