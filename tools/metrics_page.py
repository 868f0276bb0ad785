"""Write the families of metrics into docs/metrics.md.

Usage: metrics_page.py (renew the page's lists) | metrics_page.py --check (exit code 1 when they differ).
"""

from __future__ import annotations

import sys
from pathlib import Path

from syncpoint.watch.metrics.family_table import FAMILIES, page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
BEGIN, END = "<!-- families: written by `make metrics` -->\n", "<!-- end -->\n"


def renewed(text: str) -> str:
    """The page with the lists of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if END not in rest:
        raise SystemExit(f"{PAGE} has no place for the lists: a line {BEGIN!r} and a line {END!r}")
    return f"{before}{BEGIN}{len(FAMILIES)} families.\n\n{page()}{END}{after}"


def main(arguments: list[str]) -> int:
    """See the module."""
    text = PAGE.read_text()
    new = renewed(text)
    if arguments == ["--check"]:
        return int(new != text)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
