"""What many rooms share has one table; its texts stand nowhere else in the sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

import syncpoint
from syncpoint.metadata import layout

SOURCES = Path(syncpoint.__file__).parent


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """All literals of a file with their lines, but for docstrings."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def strays(starts: tuple[str, ...], *tables: str) -> list[str]:
    return [
        f"{path.relative_to(SOURCES)}:{line} {text!r}"
        for path in sorted(SOURCES.rglob("*.py"))
        if str(path.relative_to(SOURCES)) not in tables
        for line, text in texts(path)
        if text.startswith(starts)
    ]


def test_keys_of_the_metadata_are_spelled_in_the_layout_alone() -> None:
    known = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)]
    assert {"members/", "catalog/head", "identity/universe"} <= set(known)
    assert strays(tuple(known), "metadata/layout.py") == []
