"""The plot of a simulation, as SVG written by ourselves: uniformity and movement over e, and one against the other.

Place: the last step of `syncpoint simulate routing`. Promise: one file without scripts, fonts or links, on a ground of
its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 1160, 490
LEFT, TOP, PANEL_WIDTH, PANEL_HEIGHT, GAP = 70, 92, 280, 270, 95
INK, FAINT, PAPER = "#222222", "#dddddd", "#ffffff"
_FONT = "font-family='Helvetica, Arial, sans-serif'"


class PlotLine(NamedTuple):
    """Points (x, y), joined; `labels` beside them."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    labels: Sequence[str] = ()


class Axis(NamedTuple):
    """What is measured, where it is marked; `log`: by powers."""

    title: str
    low: float
    high: float
    ticks: Sequence[float]
    show: Callable[[float], str]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


class Panel(NamedTuple):
    """One diagram."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[PlotLine]


def svg(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """Panels side by side."""
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='{PAPER}'/>",
        _text(LEFT, 32, title, size=19, bold=True),
        _text(LEFT, 54, subtitle, size=13),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, LEFT + number * (PANEL_WIDTH + GAP))
    return "\n".join([*parts, "</svg>", ""])


def ticks(high: float, about: int = 6) -> list[float]:
    """Round numbers from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    return [number * step for number in range(math.ceil(high / step - 1e-9) + 1)]


def _panel(panel: Panel, left: float) -> list[str]:
    bottom = TOP + PANEL_HEIGHT

    def x(value: float) -> float:
        return left + PANEL_WIDTH * panel.x.place(value)

    def y(value: float) -> float:
        return bottom - PANEL_HEIGHT * panel.y.place(value)

    parts = [_text(left, TOP - 12, panel.title, size=14, bold=True)]
    for tick in panel.y.ticks:
        parts.append(_stroke([(left, y(tick)), (left + PANEL_WIDTH, y(tick))], FAINT, 1))
        parts.append(_text(left - 8, y(tick) + 4, panel.y.show(tick), anchor="end"))
    for tick in panel.x.ticks:
        parts.append(_stroke([(x(tick), bottom), (x(tick), bottom + 5)], INK, 1))
        parts.append(_text(x(tick), bottom + 19, panel.x.show(tick), anchor="middle"))
    parts.append(_stroke([(left, TOP), (left, bottom), (left + PANEL_WIDTH, bottom)], INK, 1.2))
    parts.append(_text(left + PANEL_WIDTH / 2, bottom + 38, panel.x.title, anchor="middle"))
    middle = (left - 50, TOP + PANEL_HEIGHT / 2)
    parts.append(_text(*middle, panel.y.title, anchor="middle", turned=True))
    for row, line in enumerate(panel.lines):
        places = [(x(one), y(other)) for one, other in line.points]
        parts.append(_stroke(places, line.colour, 2.2, line.dashed))
        if not line.dashed:
            parts += [f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3.2' fill='{line.colour}'/>" for a, b in places]
        parts += [_text(a + 7, b - 6, label) for (a, b), label in zip(places, line.labels, strict=False)]
        key = bottom + 58 + 16 * row
        parts.append(_stroke([(left, key - 4), (left + 24, key - 4)], line.colour, 2.2, line.dashed))
        parts.append(_text(left + 31, key, line.name))
    return parts


def _stroke(places: Sequence[tuple[float, float]], colour: str, width: float, dashed: bool = False) -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    dash = " stroke-dasharray='6 4'" if dashed else ""
    return f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='{width}'{dash}/>"


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", bold: bool = False, turned: bool = False
) -> str:
    weight = " font-weight='bold'" if bold else ""
    turn = f" transform='rotate(-90 {x:.1f} {y:.1f})'" if turned else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' fill='{INK}' text-anchor='{anchor}'{weight}{turn}>"
        f"{escape(text)}</text>"
    )
