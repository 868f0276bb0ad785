"""Tables of plain text, drawn without rich: importing rich takes longer than most commands do.

Place: under `output`, which draws with rich only where cells have colors or are broken at the terminal's width.
Promises: lines never end in blanks; control characters of a message's data never reach the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from click import style

GAP = 3
"""Columns between two cells."""

RULE = "─"

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
del _CONTROLS[ord("\n")]


def columns_of(text: str) -> int:
    """How many columns of a terminal one line of text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def lines_of(headings: Sequence[str], rows: Sequence[Sequence[str]], *, bold: bool) -> list[str]:
    """The lines of a table: headings (`bold` on terminals), a rule, and the rows; cells may have several lines."""
    cells = [[_clean(cell).split("\n") for cell in row] for row in rows]
    widths = [
        max([columns_of(heading), *(columns_of(line) for row in cells for line in row[index])])
        for index, heading in enumerate(headings)
    ]
    top = _line(headings, widths)
    lines = [style(top, bold=True) if bold else top, RULE * (sum(widths) + GAP * (len(widths) - 1))]
    for row in cells:
        for number in range(max(map(len, row), default=0)):
            lines.append(_line([cell[number] if number < len(cell) else "" for cell in row], widths))
    return lines


def _clean(cell: str) -> str:
    return cell.expandtabs().translate(_CONTROLS) if not cell.isprintable() else cell


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - columns_of(cell)) for cell, width in zip(cells, widths, strict=True))
    return (" " * GAP).join(padded).rstrip()
