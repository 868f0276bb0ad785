"""The table of resources in docs/limits.md has the numbers of the code, and all constants of the modules it names."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BOUND = re.compile(r"_MAX$|_PER_S$|^PER_S$|_PER_MIN$|^KEPT_DAYS$")
ELSEWHERE = {  # bounds of one line, one page or a buffer, and of requests, which the tables above name
    "access.audit": {"FILE_BYTES_MAX", "WAITING_MAX", "TEXT_MAX", "LINE_BYTES_MAX", "CALLERS_MAX"},
    "publish.scheduled": {"FIRED_MAX"},
    "forward.forward_driver": set(),
    "push.http_sender": {"ANSWER_BYTES_MAX", "ADDRESSES_MAX"},
}


def rows() -> list[tuple[list[int], list[str]]]:
    """The numbers of each row, and the constants that it names."""
    section = (ROOT / "docs" / "limits.md").read_text().partition("## Resources of the server")[2]
    lines = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")][1:]
    return [
        (
            [int(one.replace(",", "")) for cell in line[1:4] for one in re.findall(r"\b\d[\d,]*", cell)],
            re.findall(r"`([\w.]+)`", line[4]),
        )
        for line in lines
    ]


def module_named(name: str) -> Any:
    """The module `room.module`, in whichever wing its room is, and on whichever shelf of it."""
    room, module = name.split(".")
    (path,) = (ROOT / "src" / "syncpoint").glob(f"*/{room}/**/{module}.py")
    return importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))


def value(name: str) -> Any:
    room, module, *rest = name.split(".")
    found: Any = module_named(f"{room}.{module}")
    for part in rest:
        if isinstance(found, type) and is_dataclass(found):
            return next(one.default for one in fields(found) if one.name == part)
        found = getattr(found, part)
    return found


def test_each_number_is_that_of_the_code() -> None:
    table = rows()
    assert len(table) > 10
    for numbers, names in table:
        assert names
        assert numbers == [value(name) for name in names], names


def test_each_bound_of_the_modules_stands_in_the_table() -> None:
    named = {name for _, names in rows() for name in names}
    for module in {name.rpartition(".")[0] for name in named if "TransportLimits" not in name}:
        found = vars(module_named(module))
        own = Path(found["__file__"]).read_text()
        bounds = {name for name in found if BOUND.search(name) and re.search(rf"^(\w+, )*{name}\b.* = ", own, re.M)}
        missing = {f"{module}.{name}" for name in bounds - ELSEWHERE.get(module, set())} - named
        assert not missing
