"""What the finder says about heads, made from their scores."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING, Any

from attnviz.ui.sentences import weight

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.patterns import Kind
    from attnviz.ui.finder import Found

TOLD = 3  # heads at most
# Columns of head_frames.heads_of_kind, which would bring torch with it.
ON_TEXT, EVEN, OFFSET = "on this text", "even weights", "distance"
ON_REPEATS, SPREAD = "on random tokens", "± over draws"
READ_TWICE = "On random tokens, read twice,"
HOW = (  # Markdown, as it stands
    "$A_{i,j}$ is the weight that token $i$, which looks, puts on token $j$. $I$ holds the tokens "
    "that see a token to look at, $t_i$ is the token at place $i$, $n$ how many there are, and "
    "$m_i$ how many keys token $i$ sees."
)
OPEN = (
    "Tick a row (by keyboard: Shift + Space) to open that head; a click on a column's name sorts "
    "by it."
)
ORDINARY = "Special tokens are left out here, as they are not in the overview."
ORDINARY_ONLY = ("previous token", "next token")
COMPARED = (
    "Even weights: what a head would score that gives all the keys it sees the same. By chance: "
    "for each token, of a long text for 256 of them, the keys that it should look at are moved at "
    "random among those that it sees, 20 times, the same way for all heads; in 19 of 20 draws the "
    "best head scores less than this. A head below it has shown nothing."
)
RANDOM = (
    "Random tokens: different words drawn at random and read twice in a row, with the mean and the "
    "spread (standard deviation) over the draws. There is nothing to understand in them, so what "
    "a head does here it does whatever the words; and each word has come before."
)


def best(found: Found, kind: Kind, table: pd.DataFrame) -> list[str]:
    """What the best heads do; one sentence where none does more than chance or even weights.

    `table` is `head_frames.heads_of_kind`.
    """
    if table[ON_TEXT].isna().all():
        return [f"{kind.nothing} So there is nothing to score here."]
    chance = found.chance[kind.name]
    if kind.targets is None:
        return [_spread(table.iloc[0])]
    above = table[_above(table[ON_TEXT], table[EVEN], chance)]
    if above.empty:
        return [_none(table, chance)]
    first, *others = [row for _, row in above.head(TOLD).iterrows()]
    score, even = weight(first[ON_TEXT]), weight(first[EVEN])
    told = [
        f"{_place(first).capitalize()} {_looks(kind, first)}, {score} of the time; even weights "
        f"would give {even}, and {_by_chance(table, chance)}."
    ]
    if others:
        told.append(f"Next: {_list(others, kind)}.")
    return told


def _above(score: Any, even: Any, chance: float) -> Any:
    """Whether scores say more than chance and than even weights; one score or a column of them."""
    return (score > chance) & (score > even)


def _place(row: pd.Series) -> str:
    return f"layer {row['layer']}, head {row['head']}"


def _looks(kind: Kind, row: pd.Series | None) -> str:
    if row is None or not kind.each_offset:
        return kind.looks
    away = abs(int(row[OFFSET]))
    if away == 0:
        return "looks at the token itself"
    tokens = "token" if away == 1 else "tokens"
    return f"looks {away} {tokens} {'back' if row[OFFSET] < 0 else 'ahead'}"


def _list(rows: list[pd.Series], kind: Kind) -> str:
    return ", then ".join(
        f"{_place(row)}"
        f"{' ' + _looks(kind, row) if kind.each_offset else ''}, {weight(row[ON_TEXT])}"
        for row in rows
    )


def _spread(row: pd.Series) -> str:
    return (
        f"{_place(row).capitalize()} spreads its weights most: the entropy of its rows is "
        f"{row[ON_TEXT]:.2f} of what even weights have."
    )


def _none(table: pd.DataFrame, chance: float) -> str:
    best = table.iloc[0]
    return (
        f"No head does this more than chance allows: the best, {_place(best)}, has "
        f"{weight(best[ON_TEXT])}; {_by_chance(table, chance)}."
    )


def _by_chance(table: pd.DataFrame, chance: float) -> str:
    heads = "head" if len(table) == 1 else "heads"
    return f"by chance the best of {len(table):,} {heads} would reach {weight(chance)}"


def on_repeats(found: Found, kind: Kind, table: pd.DataFrame) -> str:
    """Whether random tokens say the same as the text; "" where the model read none."""
    if not found.draws:
        return ""
    if table[ON_REPEATS].isna().all():
        return "" if table[ON_TEXT].isna().all() else "Random tokens tell nothing here."
    if kind.targets is None:
        return f"{READ_TWICE} it has {_drawn(table.iloc[0])}."
    chance, first = found.chance_on_repeats[kind.name], table.iloc[0]
    leader = table.sort_values(ON_REPEATS, ascending=False, kind="stable").iloc[0]
    if not leader[ON_REPEATS] > chance:
        return (
            f"{READ_TWICE} no head does this more than chance allows: the best, "
            f"{_place(leader)}, has {_drawn(leader)}, by chance {weight(chance)}."
        )
    if not _above(first[ON_TEXT], first[EVEN], found.chance[kind.name]):
        return (
            f"{READ_TWICE} {_place(leader)} {_looks(kind, None)}, {_drawn(leader)}{_here(leader)}."
        )
    told = f"{READ_TWICE} {_place(first)} does so {_as_well(first, chance)}."
    if leader.name != first.name:
        told += f" First there is {_place(leader)}, {_drawn(leader)}{_here(leader)}."
    return told


def _as_well(row: pd.Series, chance: float) -> str:
    """How what a head does on random tokens compares with the text."""
    if not row[ON_REPEATS] > chance:
        rests = "what it does here rests on these words"
        return f"no more than chance allows, {_drawn(row)}, by chance {weight(chance)}: {rests}"
    much_less = row[ON_REPEATS] < row[ON_TEXT] / 2
    return f"too, {'but less, ' if much_less else ''}{_drawn(row)}"


def _here(row: pd.Series) -> str:
    """What a head has on the text that comes first on random tokens."""
    return "" if isnan(row[ON_TEXT]) else f"; on this text it has {weight(row[ON_TEXT])}"


def _drawn(row: pd.Series) -> str:
    """The mean over the draws, with their spread."""
    mean, spread = row[ON_REPEATS], row[SPREAD]
    if isnan(spread):
        return weight(mean)
    digits = 2 if spread >= 0.005 else 3
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def compared(found: Found, kind: Kind, table: pd.DataFrame) -> str:
    """What the columns of scores are to be compared with, "" where nothing is scored."""
    if kind.targets is None:
        return "Even weights have 1; nothing can be moved at random here, so chance has no figure."
    told = []
    if table[EVEN].notna().any():
        low, high = (weight(even) for even in (table[EVEN].min(), table[EVEN].max()))
        even = low if low == high else f"{low} to {high}"
        chance = weight(found.chance[kind.name])
        told.append(f"on this text even weights give {even} and the best head by chance {chance}")
    chance_on_repeats = found.chance_on_repeats.get(kind.name, nan)
    if not isnan(chance_on_repeats):
        told.append(
            f"on random tokens the best head by chance {weight(chance_on_repeats)} "
            f"({found.draws} draws of {found.repeated} tokens, read twice)"
        )
    return f"To compare with: {'; '.join(told)}." if told else ""
