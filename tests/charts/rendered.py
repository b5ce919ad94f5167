"""What a chart really draws: the marks of its SVG, layer by layer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import vl_convert

PATH = re.compile(r"M([-\d.e]+),([-\d.e]+)h([-\d.e]+)v([-\d.e]+)h")
MOVED = re.compile(r"translate\(([-\d.e]+),([-\d.e]+)\)")


@dataclass(frozen=True)
class Rect:
    left: float
    top: float
    width: float
    height: float
    looks: dict[str, str]

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def middle_y(self) -> float:
        return self.top + self.height / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    words: str
    looks: dict[str, str]


class Rendered:
    """A chart as Vega draws it in so many px of width."""

    def __init__(self, spec: dict, width: int = 1000) -> None:
        svg = vl_convert.vegalite_to_svg(spec | {"width": width})
        self.root = ElementTree.fromstring(svg)

    def rects(self, layer: int) -> list[Rect]:
        found = []
        for element in self._group(f"layer_{layer}_marks"):
            if match := PATH.match(element.get("d", "")):
                found.append(Rect(*map(float, match.groups()), element.attrib))
        return found

    def line(self, layer: int) -> list[tuple[float, float]]:
        (path,) = (element.get("d", "") for element in self._group(f"layer_{layer}_marks"))
        numbers = [float(x) for x in re.split("[MLHV,]", path) if x]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def points(self, layer: int) -> list[tuple[float, float]]:
        moved = [MOVED.match(e.get("transform", "")) for e in self._group(f"layer_{layer}_marks")]
        return [(float(m[1]), float(m[2])) for m in moved if m]

    def rules(self, layer: int) -> list[tuple[float, float, float, float]]:
        """x, y and the lengths across and down."""
        found = []
        for element in self._group(f"layer_{layer}_marks"):
            moved = MOVED.match(element.get("transform", ""))
            assert moved
            ends = (float(element.get(name, 0)) for name in ("x2", "y2"))
            found.append((float(moved[1]), float(moved[2]), *ends))
        return found

    def texts(self, layer: int) -> list[Text]:
        return self._texts(f"layer_{layer}_marks")

    def labels(self) -> list[Text]:
        """What is written at the first axis; empty labels are left out."""
        return [text for text in self._texts("role-axis-label") if text.words]

    def legend(self) -> list[str]:
        return [text.words for text in self._texts("role-legend-label")]

    def words(self) -> str:
        return " ".join("".join(element.itertext()) for element in self.root.iter() if element.text)

    def _texts(self, name: str) -> list[Text]:
        found = []
        for element in self._group(name):
            moved = MOVED.match(element.get("transform", ""))
            if moved:
                x, y = float(moved[1]), float(moved[2])
                found.append(Text(x, y, "".join(element.itertext()), element.attrib))
        return found

    def _group(self, name: str) -> list[ElementTree.Element]:
        """The marks of the first group of this name."""
        for group in self.root.iter():
            if name in group.get("class", "").split():
                return list(group)
        return []
