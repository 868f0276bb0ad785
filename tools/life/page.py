"""The lists as `roads.md` has them."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import cluster
import node
from tracing import SOURCES, Rows

PAGE = Path(__file__).with_name("roads.md")
BEGIN, END = "<!-- {}: written by `make life` -->\n", "<!-- end -->\n"
FILES_MAX = {"published": 27, "delivered": 28, "acknowledged": 32, "deleted": 31, "created": 40}
"""How many files a way has at most; "created" is that of a CreateSubscription, which no list shows. What a message or
a request does not use is no station on its way: lower these when it gets shorter, and do not raise them."""


def first_sentence(file: str) -> str:
    """What a file says of itself."""
    text = ast.get_docstring(ast.parse(Path(SOURCES, file + ".py").read_text())) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]
    return sentence.rstrip(".")


def node_list(rows: Rows, known: set[str]) -> str:
    """One stretch of the life in a node; a file that is known from an earlier list is not explained again."""
    return "".join(f"- `{file}` (`{row.function}`){explained(file, known)}\n" for file, row in rows.items())


def cluster_list(stretches: dict[str, Rows], known: set[str]) -> str:
    """What comes to it in a cluster, stretch by stretch, with the process before each file."""
    lines = []
    for name, rows in stretches.items():
        lines.append(f"**{name.capitalize()}**\n")
        lines += [f"- {row.where}: `{file}` (`{row.function}`){explained(file, known)}" for file, row in rows.items()]
        lines.append("")
    return "\n".join(lines)


def explained(file: str, known: set[str]) -> str:
    """What a file says of itself, once."""
    if file in known:
        return ""
    known.add(file)
    return f": {first_sentence(file)}"


def too_long(ways: Mapping[str, Collection[str]]) -> list[str]:
    """Ways that pass more files than they may, in words."""
    return [
        f"{name}: {len(ways[name])} files, {most} at most: {', '.join(map(str, ways[name]))}"
        for name, most in FILES_MAX.items()
        if len(ways[name]) > most
    ]


def renewed(page: str, tables: dict[str, str]) -> str:
    """The page with these lists in their places."""
    for name, table in tables.items():
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not end:
            raise SystemExit(f"{PAGE.name} has no place for the list {name!r}: a line {begin!r} and a line {END!r}")
        page = before + begin + table + end + after
    return page


def main(arguments: list[str]) -> int:
    """Renew or check the page."""
    one = node.stations()
    if found := too_long(one):
        print("A way has become longer. " + "; ".join(found))
        return 1
    del one["created"]
    between = cluster.stations({file for rows in one.values() for file in rows})
    old = PAGE.read_text()
    known: set[str] = set()
    tables = {name: node_list(rows, known) for name, rows in one.items()}
    new = renewed(old, tables | {"cluster": cluster_list(between, known)})
    if "--check" not in arguments:
        PAGE.write_text(new)
    elif old != new:
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "code", lineterm="", n=0):
            print(line)
        print(f"tools/life/{PAGE.name} does not show the way that a message takes now. `make life` renews it.")
        return 1
    return 0
