"""Draw the wings of src/syncpoint and their rooms, in the order of pyproject.toml, into docs/ARCHITECTURE.md.

Usage: house.py (renew the page's table) | house.py --check (exit code 1 when it differs).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "syncpoint"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: written by `make house` -->\n", "<!-- end -->\n"


def contracts(project: str) -> dict[str, list[list[str]]]:
    """The layers of each container of import-linter's contracts, from the top; rooms of one layer as one list."""
    found = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0]: [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
        for contract in found
        if contract["type"] == "layers"
    }


def first_sentence(package: Path) -> str:
    """What a package says of itself, without its own name in front."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]
    return re.sub(r" \(see DESIGN\.md\)", "", sentence).rstrip(".")


def row(package: Path, shown: str) -> str:
    """A package with a link to its DESIGN.md, where it has one."""
    name = f"`{package.name}`"
    if (package / "DESIGN.md").exists():
        name = f"[{name}](../{package.relative_to(ROOT)}/DESIGN.md)"
    return f"| {shown} | {name} | {first_sentence(package)} |"


def table(project: str) -> str:
    """A row per wing and one per room in it, from the top layer down."""
    layers = contracts(project)
    lines = ["| wing | room | contents |", "|---|---|---|"]
    for (wing,) in layers["syncpoint"]:
        rooms = [room for layer in layers.get(f"syncpoint.{wing}", []) for room in layer]
        if not rooms:
            lines.append(row(SOURCES / wing, f"**{wing}**"))
            continue
        lines.append(f"| **{wing}** | | {first_sentence(SOURCES / wing)} |")
        lines += [row(SOURCES / wing / room, "") for room in rooms]
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
