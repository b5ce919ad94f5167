"""What is said about a toy in training, made from its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.training import Recipe
    from attnviz.ui.training import Curves, Run

FROZEN = 0.03  # ‖J‖, a tenth of what rows have under √d_k
EVEN = 0.99  # entropy, relative to even weights
STUCK = 0.25  # right answers; always saying the most frequent content gives 0.19
TASK = (
    "A toy trained on made-up lookups: one head before 16 items, each a symbol with a content; the "
    "query has one of the symbols, and the answer is the content beside it. No residual stream, no "
    "MLP, no LayerNorm: whatever is learnt, the attention has learnt. Only the divisor differs; "
    "first weights and lookups are the same."
)
LIVE = (
    "The same toy, trained here and now from one seed, at d_k = 64 whatever d_k is chosen above. "
    "The curves above are of five seeds."
)
CROSSES = (
    "A cross at the bottom marks a step by which seeds had diverged: numbers beyond all bounds."
)
NOT_A_NUMBER = (
    "steps_to_90 is the median over the seeds of the first recorded step with 90 %; None where "
    "half of the seeds or more never came to it. Accuracy and loss are of the last step, None "
    "where all seeds diverged."
)
FULL = "So many train already that yours would wait for minutes. Try again in a little while."
FAILED = "This run ended with an error; its curves are as far as it came. Start it again."


def rate(value: float) -> str:
    """A learning rate as one writes it."""
    return f"{value:g}"


def by_divisor(shown: Curves) -> list[str]:
    """How each divisor did."""
    return [f"÷ {row['divisor']}: {_did(row, shown)}." for row in _rows(shown.outcomes)]


def _rows(frame: Any) -> list[dict[str, Any]]:
    return frame.to_dict("records")


def _did(row: dict[str, Any], shown: Curves) -> str:
    seeds, gone, begun = row["seeds"], row["diverged"], learnt(row, shown, "90 % right")
    if gone == seeds:
        return f"{begun}, and diverged{f' in all {seeds} seeds' if seeds > 1 else ''}"
    end = f"{100 * row['accuracy']:.3g} % at step {last_step(row, shown):,}"
    if gone:
        end += f" in those of the {seeds} seeds that did not diverge ({seeds - gone})"
    return f"{begun}; {end}"


def learnt(row: dict[str, Any], shown: Curves, goal: str) -> str:
    """When a curve's seeds came to their goal, of a row of `outcomes`."""
    seeds, reached = row["seeds"], row["reached"]
    if not math.isnan(row["steps_to_90"]):
        said = f"{goal} by step {row['steps_to_90']:,.0f}"
        if seeds > 1:
            said += " (median seed)" if reached == seeds else f" (median; {reached} of {seeds})"
        return said
    if reached:
        return f"{goal} in {reached} of {seeds} seeds only"
    over = last_step(row, shown) == shown.recipe.steps or row["diverged"] == seeds
    return f"{'never' if over else 'not yet'} {goal}"


def last_step(row: dict[str, Any], shown: Curves) -> int:
    """The last step at which a curve was measured."""
    return int(shown.curves.loc[shown.curves[shown.by] == row[shown.by], "step"].max())


def start(shown: Curves) -> str:
    """Why no scaling is not “a gradient that vanishes”: the whole gradient and the typical row."""
    rows = {row["divisor"]: row for row in _rows(shown.start)}
    if not {"1", "√d_k"} <= set(rows):
        return ""
    bare, root = rows["1"], rows["√d_k"]
    if not bare["query_gradient"] > root["query_gradient"]:
        return ""
    carried = (
        "A few rows near a tie carry all of it, the rest is frozen"
        if bare["jacobian_median"] < FROZEN
        else "Fewer rows carry it"
    )
    return (
        "Before the first step the gradient of W_Q is largest without a divisor, "
        f"{bare['query_gradient']:.2g} against {root['query_gradient']:.2g} under √d_k, while the "
        f"typical row's ‖J‖ is smallest: median {bare['jacobian_median']:.2g} against "
        f"{root['jacobian_median']:.2g}. {carried}: training is noisy, not silent."
    )


def verdict(shown: Curves) -> list[str]:
    """What this says about the claim, divisor by divisor, as far as these numbers say it."""
    rows = {row["divisor"]: row for row in _rows(shown.outcomes)}
    if not {"1", "√d_k", "d_k", "d_k²"} <= set(rows):
        return []
    square = _square(rows["d_k²"], _last_entropy(shown, "d_k²"))
    said = [_bare(rows["1"], rows["√d_k"]), _whole(rows["d_k"], rows["√d_k"]), square]
    return [sentence for sentence in said if sentence]


def _bare(bare: dict[str, Any], root: dict[str, Any]) -> str:
    if bare["diverged"] == bare["seeds"]:
        return "Without a divisor this rate is too large: the numbers grow beyond all bounds."
    if bare["reached"] == 0:
        return (
            "Without a divisor no seed gets to 90 % at this rate. With Adam at rate 0.001 all of "
            "them do: slow and fragile, not untrainable."
        )
    times = bare["steps_to_90"] / root["steps_to_90"]
    if math.isnan(times) or times <= 1:
        return ""
    who = "all seeds" if bare["reached"] == bare["seeds"] else f"only {bare['reached']} seeds"
    return (
        f"Without a divisor {who} get to 90 %, and {times:.2g} times as late as under √d_k: slow "
        "and fragile, not untrainable."
    )


def _whole(whole: dict[str, Any], root: dict[str, Any]) -> str:
    if whole["diverged"] < root["diverged"]:
        return "Dividing by d_k bears a larger rate here than √d_k does."
    times = whole["steps_to_90"] / root["steps_to_90"]
    if whole["reached"] < whole["seeds"] or math.isnan(times):
        return ""
    if times > 1:
        return (
            f"Dividing by d_k ends as well as √d_k, only starts slower: 90 % come {times:.2g} "
            "times as late. That it “shrinks too much” is true of the start, not of what is learnt "
            "(d_k is the choice of µP)."
        )
    return "Dividing by d_k does as well as √d_k here (d_k is the choice of µP)."


def _square(square: dict[str, Any], entropy: float) -> str:
    if square["reached"] == square["seeds"]:
        return (
            "Dividing by d_k² does not destroy the signal for good: Adam's steps do not shrink "
            "with the gradient, and at this rate the toy finds its way back."
        )
    if square["reached"] == 0 and square["accuracy"] >= STUCK:
        return (
            "Divided by d_k², the toy stays for long at what is had without knowing where to look, "
            "and only then begins to learn: late, not never."
        )
    if square["reached"] == 0 and entropy > EVEN:
        return (
            f"Divided by d_k², attention stays even to the end{_of_the_rest(square)}: the toy "
            "knows which contents are there and not which is asked for, and the best it could do "
            "is always to say the most frequent one."
        )
    return ""


def _of_the_rest(row: dict[str, Any]) -> str:
    return " in the seeds that did not diverge" if row["diverged"] else ""


def _last_entropy(shown: Curves, divisor: str) -> float:
    """Of the median seed at the last step that was recorded."""
    rows = shown.curves[shown.curves["quantity"] == "entropy"].set_index("divisor").loc[[divisor]]
    return float(rows.sort_values("step")["median"].iloc[-1])


def caption(shown: Curves) -> str:
    """What the curves are of: synthetic, sizes, rate, seeds, recipe."""
    recipe = shown.recipe
    return (
        f"synthetic · toy, one head · task: same symbol · n = 16 items · d_k = {recipe.d_k} · "
        f"d_v = {recipe.d_v} · divisors by colour · {recipe.optimiser}, rate {rate(shown.rate)}, "
        f"constant · batch {recipe.batch} · {seeds(recipe)} · measured on {recipe.held_out} other "
        f"lookups{spread(recipe)}"
    )


def seeds(recipe: Recipe) -> str:
    """Which seeds a recipe has."""
    first, last = recipe.seeds[0], recipe.seeds[-1]
    return f"seed {first}" if len(recipe.seeds) == 1 else f"seeds {first} to {last}"


def spread(recipe: Recipe) -> str:
    """What line and band are where there are several seeds, "" where there is one."""
    several = len(recipe.seeds) > 1
    return " · line: median seed, band: least to largest" if several else ""


def progress(run: Run, before: int) -> str:
    """How far a run is."""
    if run.state == "waiting":
        return f"Waiting: {before} before yours" if before else "Begins at once"
    step = max((found[-1].step for found in run.records.values() if found), default=0)
    steps = next(iter(run.recipes.values())).steps
    return {
        "running": f"Step {step} of {steps}",
        "done": f"Done: {steps} steps",
        "stopped": f"Stopped at step {step} of {steps}",
        "failed": FAILED,
    }[run.state]
