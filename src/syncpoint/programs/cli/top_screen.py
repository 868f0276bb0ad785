"""How `syncpoint top` looks: which rows in which order, and what keys do.

Place: between `cli.top_figures` and the terminal, which `cli.top` holds.
Promise: figures and a view in, a drawing out; a key in, another view out. Nothing here waits or reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from syncpoint.programs.cli.top_figures import TOTALS, TopColumn, TopFigures, TopPanel

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PANELS: Final = ("processes", "topics", "subscriptions", "disks")
PANEL_KEYS: Final = {"p": "processes", "t": "topics", "u": "subscriptions", "d": "disks", "a": ""}
INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
HELP: Final = (
    "q quit · p processes · t topics · u subscriptions · d disks · a all · s sort · r reverse · / filter · "
    "+ - interval · space pause"
)
BUSIEST: Final = {"processes": "cores", "topics": "publishedPerSecond", "subscriptions": "backlogMessages"}
"""Whose rows come first as long as nobody chose: disks stay in the order of their names."""


@dataclass(frozen=True)
class TopView:
    """What the user chose. `panel`: the only one shown, "" for all; `sort`: a column of each panel by its place,
    -1: as panels choose; `typing`: whether keys go to the filter."""

    panel: str = ""
    sort: int = -1
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    interval_s: float = 2.0
    paused: bool = False
    over: bool = False


def pressed(view: TopView, key: str) -> TopView:
    """The view after a key."""
    if view.typing:
        return _typed(view, key)
    if key in ("q", "\x03", "\x1b"):
        return replace(view, over=True)
    if key in PANEL_KEYS:
        return replace(view, panel=PANEL_KEYS[key], sort=-1, reverse=False)
    if key == "s":
        return replace(view, sort=view.sort + 1, reverse=False)
    if key == "r":
        return replace(view, reverse=not view.reverse)
    if key == "/":
        return replace(view, typing=True, filter="")
    if key == " ":
        return replace(view, paused=not view.paused)
    if key in "+-":
        near = min(range(len(INTERVALS_S)), key=lambda place: abs(INTERVALS_S[place] - view.interval_s))
        place = min(max(near + (1 if key == "+" else -1), 0), len(INTERVALS_S) - 1)
        return replace(view, interval_s=INTERVALS_S[place])
    return view


def _typed(view: TopView, key: str) -> TopView:
    if key in ("\r", "\n"):
        return replace(view, typing=False)
    if key in ("\x1b", "\x03"):
        return replace(view, typing=False, filter="")
    if key in ("\x7f", "\b"):
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if key.isprintable() else view


def arranged(panel: TopPanel, view: TopView) -> list[list[Any]]:
    """The rows that the filter leaves, in the view's order; what is not known comes last."""
    place = _sorted_by(panel, view)
    wanted = view.filter.lower()
    texts = [number for number, column in enumerate(panel.columns) if column.form is None]
    rows = [list(row) for row in panel.rows if any(wanted in str(row[number]).lower() for number in texts)]
    if place is None:
        return rows[::-1] if view.reverse else rows
    numbers = panel.columns[place].form is not None
    known = [row for row in rows if row[place] is not None]
    known.sort(key=lambda row: row[place], reverse=numbers != view.reverse)
    return known + [row for row in rows if row[place] is None]


def _sorted_by(panel: TopPanel, view: TopView) -> int | None:
    if view.sort >= 0:
        return view.sort % len(panel.columns)
    keys = [column.key for column in panel.columns]
    return keys.index(BUSIEST[panel.name]) if panel.name in BUSIEST else None


def shown_panels(figures: TopFigures, view: TopView) -> list[TopPanel]:
    """The panels of the view, without those that have nothing to show."""
    return [one for one in figures.panels if one.rows and view.panel in ("", one.name)]


def cell(column: TopColumn, value: Any) -> str:
    """What stands in the table."""
    if value is None:
        return "-"
    return column.form(value) if column.form else str(value)


def drawn(figures: TopFigures | None, view: TopView, where: str, width: int, lines_max: int) -> RenderableType:
    """One screen of a limited number of lines: totals, then panels that share what is left."""
    from rich.console import Group
    from rich.text import Text

    if figures is None:
        return Group(Text(f"syncpoint top  {where}", style="bold"), Text("Reading for the first time..."))
    state = "paused" if view.paused else f"every {view.interval_s:g} s"
    parts: list[RenderableType] = [
        Text(f"syncpoint top  {where}  {state}", style="bold"),
        heads := totals(figures, width),
        Text(),
    ]
    for name, why in figures.silent.items():
        parts.append(Text(f"{name} does not answer: {why}", style="bold red"))
    panels = shown_panels(figures, view)
    room = max(lines_max - 5 - heads.row_count - len(figures.silent) - 3 * len(panels), len(panels))
    rows = {panel.name: arranged(panel, view) for panel in panels}
    for number, panel in enumerate(panels):
        left = panels[number + 1 :]
        fair = max(room - sum(min(len(rows[one.name]), room // len(panels)) for one in left), 1)
        fitting = rows[panel.name][:fair]
        room -= len(fitting)
        hidden = len(rows[panel.name]) - len(fitting)
        parts += [table(panel, view, fitting, hidden), Text()]
    foot = f"filter: {view.filter}_  (Enter keeps it, Esc drops it)" if view.typing else HELP
    parts.append(Text(foot, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def totals(figures: TopFigures, width: int) -> Table:
    """The figures of the whole, as many in a line as there is room for."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 3))
    found = [f"{one.heading} {cell(one, figures.totals[one.key])}" for one in TOTALS]
    each = max(width // (max(map(len, found)) + 3), 1)
    for begin in range(0, len(found), each):
        grid.add_row(*map(Text, found[begin : begin + each]))
    return grid


def table(panel: TopPanel, view: TopView, rows: Iterable[Any], hidden: int = 0) -> Table:
    """One panel; `hidden`: rows there is no room for."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    place = _sorted_by(panel, view)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(panel.columns):
        marked = column.heading + ((" ▲" if (column.form is None) != view.reverse else " ▼") if number == place else "")
        justify = "left" if column.form is None else "right"
        made.add_column(marked, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for row in rows:
        bad = panel.name == "disks" and row[2] not in ("ok", "served")
        cells = (Text(cell(column, value)) for column, value in zip(panel.columns, row, strict=True))
        made.add_row(*cells, style="bold red" if bad else "")
    if hidden:
        made.add_row(Text(f"and {hidden} more"), style="dim")
    return made
