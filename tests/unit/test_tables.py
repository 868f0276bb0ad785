"""What many rooms share has one table; its texts stand nowhere else in the sources."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import syncpoint
from syncpoint.catalog.metadata import layout
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import FILES, POOL

SOURCES = Path(syncpoint.__file__).parent


@cache
def sources() -> dict[Path, list[tuple[int, str]]]:
    """All literals of all sources with their lines, but for docstrings."""
    return {path: list(texts(path.read_text())) for path in sorted(SOURCES.rglob("*.py"))}


def texts(source: str) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(ast.parse(source)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in prose and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def strays(starts: tuple[str, ...], *tables: str) -> list[str]:
    return [
        f"{path.relative_to(SOURCES)}:{line} {text!r}"
        for path, found in sources().items()
        if str(path.relative_to(SOURCES)) not in tables
        for line, text in found
        if text.startswith(starts)
    ]


def test_keys_of_the_metadata_are_spelled_in_the_layout_alone() -> None:
    known = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)]
    assert {"members/", "catalog/head", "identity/universe"} <= set(known)
    assert strays(tuple(known), "catalog/metadata/layout.py") == []


def test_paths_of_methods_come_from_the_descriptors() -> None:
    assert strays(("/syncpoint.", "/google.pubsub."), "wire/protobuf/methods.py") == []


def test_every_described_service_has_its_paths() -> None:
    described = {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in POOL.FindFileByName(file).services_by_name.values()
        for method in service.methods
    }
    assert {path for one in vars(methods).values() if isinstance(one, methods.Service) for path in one} == described
