"""Where one query looks: its strongest keys as bars, most weight first."""

from __future__ import annotations

import altair as alt
import pandas as pd

from attnviz.charts import theme
from attnviz.charts.in_turn import in_turn

MOST_BARS = 20
BAR = 22  # px from one bar to the next
LABEL_LIMIT = 190  # px of a key's label
DIGITS = ".3~g"


@in_turn
def ranking(frame: pd.DataFrame, quantity: str = "weight") -> alt.LayerChart | alt.FacetChart:
    """Draw the `quantity` of the keys in a frame with the columns key, token and `quantity`.

    A key is named by its position and its word, and so equal words stay apart. There are at most
    20 bars: further keys are added up in the last one, which is paler. What is NaN is hidden and
    has no bar.
    """
    bars = _bars(frame, quantity)
    rows = alt.Chart(bars).encode(y=_labels())
    drawn = rows.mark_bar(color=theme.REAL, aria=False).encode(
        x=alt.X("value:Q").axis(None).scale(nice=False),
        opacity=alt.condition("datum.others", alt.value(theme.PALE), alt.value(1)),
        tooltip=[
            alt.Tooltip("label:N").title("key"),
            alt.Tooltip("value:Q", format=DIGITS).title(quantity),
        ],
    )
    numbers = rows.mark_text(align="left", dx=4, fontSize=theme.SMALL_FONT, aria=False).encode(
        x="end:Q", text=alt.Text("value:Q", format=DIGITS)
    )
    return alt.layer(drawn, numbers).properties(
        width=theme.RANKING_WIDTH,
        height=BAR * max(1, len(bars)),
        title=alt.TitleParams(quantity, anchor="start", fontSize=theme.FONT_SIZE),
        autosize="pad",
        view=alt.ViewConfig(stroke=None),
    )


def _labels() -> alt.Y:
    axis = alt.Axis(
        title=None,
        labelLimit=LABEL_LIMIT,
        labelFontSize=theme.FONT_SIZE,
        labelOverlap=False,
        ticks=False,
        domain=False,
    )
    return alt.Y("label:N").sort(None).axis(axis).scale(paddingInner=0.25)


def _bars(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """The strongest keys, and the sum of the rest if there are more than bars."""
    seen = frame.dropna(subset=[quantity]).sort_values(quantity, ascending=False, kind="stable")
    room = MOST_BARS if len(seen) <= MOST_BARS else MOST_BARS - 1
    strongest, rest = seen.iloc[:room], seen.iloc[room:]
    named = zip(strongest["key"], strongest["token"], strongest[quantity], strict=True)
    rows = [(f"{key} {token}", float(value), False) for key, token, value in named]
    if len(rest):
        rows.append((f"{len(rest):,} others", float(rest[quantity].sum()), True))
    bars = pd.DataFrame(rows, columns=["label", "value", "others"])
    return bars.assign(end=bars["value"].clip(lower=0))
