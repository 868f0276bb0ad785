"""Draw the rooms of src/syncpoint, as the layers in pyproject.toml order them, into docs/ARCHITECTURE.md.

Usage: house.py (renew the page's table) | house.py --check (exit code 1 when it differs).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "syncpoint"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: written by `make house` -->\n", "<!-- end -->\n"


def layers(project: str) -> Iterator[list[str]]:
    """The rooms of each layer, from the top, that exist."""
    contracts = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["type"] == "layers")
    for layer in contract["layers"]:
        rooms = [name.strip(" ()") for name in re.split(r"[|:]", layer)]
        if found := [name for name in rooms if (SOURCES / name).is_dir()]:
            yield found


def first_sentence(room: str) -> str:
    """What a room says of itself."""
    text = ast.get_docstring(ast.parse((SOURCES / room / "__init__.py").read_text())) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]
    return re.sub(r" \(see DESIGN\.md\)", "", sentence).rstrip(".")


def table(project: str) -> str:
    """A row per room; rooms of one layer have one number."""
    found = list(layers(project))
    lines = ["| layer | room | what it is |", "|---|---|---|"]
    for number, rooms in zip(range(len(found), 0, -1), found, strict=True):
        for room in rooms:
            design = f"[`{room}`](../src/syncpoint/{room}/DESIGN.md)"
            name = design if (SOURCES / room / "DESIGN.md").exists() else f"`{room}`"
            lines.append(f"| {number} | {name} | {first_sentence(room)} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Renew or check the page."""
    old = PAGE.read_text()
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name} has no place for the rooms: a line {BEGIN!r} and a line {END!r}")
    new = before + begin + table((ROOT / "pyproject.toml").read_text()) + end + after
    if "--check" not in arguments:
        PAGE.write_text(new)
    elif old != new:
        print(f"docs/{PAGE.name} does not show the rooms as pyproject.toml orders them. `make house` renews it.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
