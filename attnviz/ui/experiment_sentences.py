"""What is said about ways to project in training, made from their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.ui.training_sentences import last_step, learnt, rate, seeds, spread

if TYPE_CHECKING:
    from attnviz.charts.widths import Cost
    from attnviz.lookup_task import Task
    from attnviz.training import Recipe
    from attnviz.ui.experiment import Answers, Probe
    from attnviz.ui.training import Curves

Row = dict[str, Any]

WIDE = 16  # a head width that every task has, where none lacks room for symbols
FULL = 0.995  # right answers that are called all of them
EVEN_COST = 1.1  # the ratio of costs that are called equal
TOY = (
    "A toy trained on made-up lookups: one head before 16 items, each a symbol with a content; the "
    "query names a symbol and asks for a content. No residual stream, no MLP, no LayerNorm: "
    "whatever is learnt, the projections and the attention have learnt."
)
TASKS: dict[Task, str] = {
    "same": "Return the content beside the query’s own symbol.",
    "partner": (
        "Symbols come in pairs. Return the content beside the partner of the query’s symbol; the "
        "symbol itself is among the items too, as a decoy."
    ),
    "copy a vector": (
        "Return the content beside the query’s own symbol; contents are vectors of 16 normal "
        "numbers. R² is the share of their variance that the answers explain."
    ),
    "readout by the query": (
        "The query also carries a bit: return the content beside its symbol, or the next content "
        "in its place."
    ),
}
NAMED: dict[Task, str] = {
    "same": "same symbol",
    "partner": "partner",
    "copy a vector": "copy a vector",
    "readout by the query": "readout by the query",
}
VARIANTS = {
    "Q K V": "three matrices",
    "Q = K": "queries and keys by one matrix",
    "K = V": "“Q and V only”: the query is matched with the very vector that is returned",
    "Q = V": "queries and values by one matrix",
    "Q = K = V": "one matrix for all",
    "x as key": "no key projection: what the head reads is the key",
    "+ linear fourth": "Q K V and one more matrix on the values",
    "+ query gate": "Q K V, and the output times σ(x W_G) of the query’s x",
}
NONE_CHOSEN = "Choose at least one way to project."
PROBES = (
    "Weights on one set of 16 items, row by row the query for each of them: who has learnt where "
    "to look, looks down the diagonal."
)
RECORDED = "Five seeds, recorded"
COSTS: dict[Cost, str] = {
    "d_k": "equal width",
    "weights": "equal parameters",
    "kept": "equal cache",
}
COMPARED: dict[Cost, str] = {
    "d_k": "Across: the width of the head, the same for queries, keys and values.",
    "weights": (
        "Across: how many numbers the matrices hold. Sharing saves some, which a wider head may "
        "spend; compare what stands above one place."
    ),
    "kept": (
        "Across: how many numbers a cache holds for each item, its key and its value, once where "
        "they are one; compare what stands above one place."
    ),
}


def not_recorded(task: Task, at: float, value: float) -> str:
    """That the data file has another rate."""
    return (
        f"Nothing is recorded for rate {rate(value)}: on this task the recorded runs have rate "
        f"{rate(at)}."
    )


# --- curves


def by_variant(shown: Curves) -> list[str]:
    """How each variant did."""
    return [f"{row['variant']}: {_did(row, shown)}." for row in shown.outcomes.to_dict("records")]


def _did(row: Row, shown: Curves) -> str:
    task = shown.recipe.task
    begun = learnt(row, shown, "R² 0.9" if task == "copy a vector" else "90 % right")
    if row["diverged"] == row["seeds"]:
        return f"{begun}, and diverged"
    return f"{begun}; {_result(row['accuracy'], task)} at step {last_step(row, shown):,}"


def _result(value: float, task: Task) -> str:
    """A share of right answers, or R²."""
    return f"R² {value:.2g}" if task == "copy a vector" else f"{100 * value:.3g} %"


def caption(shown: Curves) -> str:
    """What curves are of: synthetic, task, sizes, rate, seeds, recipe."""
    recipe = shown.recipe
    return (
        f"{_toy(recipe.task)} · d_k = d_v = {recipe.d_k} · {_trained(recipe, shown.rate)}"
        f"{spread(recipe)}"
    )


def _toy(task: Task) -> str:
    return f"synthetic · toy, one head · task: {NAMED[task]} · n = 16 items"


def _trained(recipe: Recipe, at: float) -> str:
    return (
        f"divisor: root of the keys’ width · Adam, rate {rate(at)} falling to 0 in "
        f"{recipe.steps} steps · batch {recipe.batch} · {seeds(recipe)} · measured on "
        f"{recipe.held_out} other lookups"
    )


def probes_caption(probes: list[Probe]) -> str:
    """After how many steps the pictures are."""
    steps = sorted({probe.step for probe in probes})
    after = " to ".join(str(step) for step in {steps[0]: 0, steps[-1]: 0})
    return f"{PROBES} After {after} steps."


# --- the answer


def widths_caption(answers: Answers) -> str:
    """What the chart is of."""
    recipe = answers.recipe
    return (
        f"{_toy(answers.task)} · d_k = d_v = head width · {_trained(recipe, recipe.rates[0])} · "
        "sign: mean of the seeds, bar: least to largest"
    )


def verdict(answers: Answers, cost: Cost, shown: tuple[str, ...]) -> list[str]:
    """What the numbers of one task say, of the variants that are shown."""
    cells = _Cells(answers)
    said = _two(cells, cost) if "K = V" in shown else []
    said += [tell(cells) for name, tell in TOLD.items() if name in shown]
    if "+ query gate" in shown and cost == "weights":
        said.append(_not_by_weights(cells))
    return [sentence for sentence in said if sentence]


class _Cells:
    """The numbers of one task, by variant and width."""

    def __init__(self, answers: Answers) -> None:
        self.task = answers.task
        rows = answers.cells.to_dict("records")
        self.rows: dict[tuple[str, int], Row] = {(r["variant"], r["d_k"]): r for r in rows}
        self.widths = sorted({width for _, width in self.rows})

    def accuracy(self, variant: str, width: int) -> float:
        return float(self.rows[variant, width]["accuracy"])

    def told(self, variant: str, width: int) -> str:
        """Mean and spread over the seeds."""
        row = self.rows[variant, width]
        mean, deviation = row["accuracy"], row["accuracy_std"]
        if self.task == "copy a vector":
            spread = f" ± {deviation:.2f}" if deviation >= 0.005 else ""
            return f"R² {mean:.2f}{spread}"
        if deviation < 0.0005:
            return f"{100 * mean:.3g} %"
        return f"{100 * mean:.1f} ± {100 * deviation:.1f} %"

    def narrowest(self, variant: str) -> int | None:
        """The first width at which all is right, if there is one."""
        return next((w for w in self.widths if self.accuracy(variant, w) >= FULL), None)


def _two(cells: _Cells, cost: Cost) -> list[str]:
    """Whether two projections are enough."""
    if cells.task == "readout by the query":
        return []
    if cost != "d_k":
        return [_fair(cells, cost)]
    least, enough = cells.widths[0], cells.narrowest("K = V")
    said = [
        f"In a head of width {least}, K = V comes to {cells.told('K = V', least)}, Q K V to "
        f"{cells.told('Q K V', least)}: one vector has no room both to be found and to be returned."
    ]
    if cells.task == "copy a vector":
        weight = cells.rows["K = V", least]["target_weight"]
        said.append(
            "It is matching and retrieval that compete: K = V looks at the right item (weight "
            f"{weight:.2g}) and returns it badly, since what it returns also holds what was "
            "matched."
        )
    if enough:
        said.append(
            f"At width {enough} K = V is at {cells.told('K = V', enough)}: with room, two are "
            "enough. The claim that two cannot separate matching from retrieval holds of narrow "
            "heads only."
        )
    return said


def _fair(cells: _Cells, cost: Cost) -> str:
    """Q K V, and the narrowest K = V that costs about the same or more."""
    three = cells.rows["Q K V", cells.widths[0]]
    two = _no_cheaper(cells, cost, three[cost])
    unit = {"weights": "numbers in the matrices", "kept": "numbers kept for each item"}[cost]
    equal = max(two[cost] / three[cost], three[cost] / two[cost]) <= EVEN_COST
    loses = three["accuracy"] - two["accuracy"] > three["accuracy_std"] + two["accuracy_std"] + 0.01
    if loses:
        ends = "K = V still loses, though its head is wider" + ("" if equal else " and costs more")
    else:
        ends = "sharing is level" + (
            ": what it saves pays for the room that it needs" if equal else ", at a higher cost"
        )
    return (
        f"At {COSTS[cost]}: Q K V of width {three['d_k']} ({three[cost]:,} {unit}) comes to "
        f"{cells.told('Q K V', three['d_k'])}, K = V of width {two['d_k']} ({two[cost]:,}) to "
        f"{cells.told('K = V', two['d_k'])}. So {ends}."
    )


def _no_cheaper(cells: _Cells, cost: Cost, least: int) -> Row:
    rows = [cells.rows["K = V", width] for width in cells.widths]
    return next((row for row in rows if row[cost] * EVEN_COST >= least), rows[-1])


def _queries_as_keys(cells: _Cells) -> str:
    widest = cells.widths[-1]
    if cells.task == "partner":
        return (
            f"Q = K comes to {cells.told('Q = K', widest)} even at width {widest}: its scores are "
            "symmetric. For a to prefer its partner a′ to itself, and a′ to prefer a, −‖a − a′‖² "
            "would have to be positive: at most one of each pair is found, the other is guessed."
        )
    if cells.task in ("same", "copy a vector") and cells.narrowest("Q = K"):
        return (
            f"Q = K loses nothing from width {cells.narrowest('Q = K')} on: here the query has the "
            "symbol that it looks for. On the task “partner” it has not."
        )
    return ""


def _queries_as_values(cells: _Cells) -> str:
    enough = cells.narrowest("Q = V")
    if cells.task == "readout by the query":
        return _beyond_half(cells, "Q = V")
    if enough is None:
        return ""
    return (
        f"Q = V is at {cells.told('Q = V', enough)} from width {enough} on: keys stay apart from "
        "values, and a query is never returned."
    )


def _all_one(cells: _Cells) -> str:
    least, widest = cells.widths[0], cells.widths[-1]
    if cells.task == "readout by the query":
        return ""
    return (
        f"One matrix for all comes to {cells.told('Q = K = V', least)} at width {least} and "
        f"{cells.told('Q = K = V', widest)} at width {widest}."
    )


def _x_as_key(cells: _Cells) -> str:
    least = cells.widths[0]
    row = cells.rows["x as key", least]
    if cells.task == "readout by the query":
        return _beyond_half(cells, "x as key")
    if row["accuracy"] < 0.95:
        return ""
    kept = cells.rows["Q K V", least]["kept"]
    return (
        f"With x itself as key, {cells.told('x as key', least)} at width {least}: nothing is lost, "
        f"since W_Q alone can be the product W_Q W_Kᵀ. The price is the cache: {row['kept']} "
        f"numbers for each item, x and its value, instead of {kept}; with the value made anew from "
        f"x, {row['kept'] - least} are enough."
    )


def _beyond_half(cells: _Cells, variant: str) -> str:
    """Of the readout: what the bit does without a gate."""
    best = max(cells.widths, key=lambda width: cells.accuracy(variant, width))
    row = cells.rows[variant, best]
    if row["low"] <= 0.5:
        return ""
    return (
        f"{variant} comes to {cells.told(variant, best)} at width {best}. Beyond half, this can "
        "only come from weights that move with the bit: nothing else sees it."
    )


def _linear_fourth(cells: _Cells) -> str:
    width = WIDE
    if width not in cells.widths:
        return ""
    three, four = (cells.rows[name, width] for name in ("Q K V", "+ linear fourth"))
    spread = max(three["accuracy_std"], four["accuracy_std"], 1 - FULL)
    if abs(three["accuracy"] - four["accuracy"]) > 2 * spread:
        return ""
    return (
        f"A linear fourth matrix adds nothing: {cells.told('+ linear fourth', width)} against "
        f"{cells.told('Q K V', width)} at width {width}. Values pass through W_V W_4 W_O, which is "
        "one product of matrices with or without W_4."
    )


def _query_gate(cells: _Cells) -> str:
    if cells.task != "readout by the query":
        return ""
    width = WIDE
    return (
        f"Without a gate about half is right ({cells.told('Q K V', width)} at width {width}): the "
        "query’s bit can move the weights, but not what is done with the values. A fourth that is "
        f"not linear, the query gate, comes to {cells.told('+ query gate', width)}: “more than "
        "three would be redundant” is true of linear maps only. In a whole block the MLP could do "
        "this as well."
    )


def _not_by_weights(cells: _Cells) -> str:
    """Whether a wider head would do what the gate does."""
    widest = cells.widths[-1]
    plain, gate = cells.rows["Q K V", widest], cells.rows["+ query gate", WIDE]
    if cells.task != "readout by the query" or plain["weights"] <= gate["weights"]:
        return ""
    return (
        f"It is not a matter of size: Q K V of width {widest} has {plain['weights']:,} numbers in "
        f"its matrices and comes to {cells.told('Q K V', widest)}, the gate of width {WIDE} has "
        f"{gate['weights']:,}."
    )


TOLD = {
    "Q = K": _queries_as_keys,
    "Q = V": _queries_as_values,
    "Q = K = V": _all_one,
    "x as key": _x_as_key,
    "+ linear fourth": _linear_fourth,
    "+ query gate": _query_gate,
}
