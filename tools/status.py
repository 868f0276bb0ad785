"""Write docs/status.md: what works, by docs/status.toml, and the tests that are marked as showing it.

Usage: status.py (write the page) | status.py --check (exit code 1 when the page differs).
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FEATURES = ROOT / "docs" / "status.toml"
PAGE = ROOT / "docs" / "status.md"

HEAD = """# Status

What works, and tests below `tests/` that show it, one of each feature: written by `make status`. [What is
missing](missing.md) has a page of its own, and so have [faults that were tried](history/faults.md).
"""

NAMED = 1
"""How many files of tests of a feature the page names. All have the mark `@pytest.mark.shows(KEY)`."""


def marks(path: Path) -> Iterator[str]:
    """The features that a file of tests shows: arguments of `pytest.mark.shows`."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.shows":
            yield from (ast.literal_eval(argument) for argument in node.args)


def shown(tests: Path) -> dict[str, list[str]]:
    """The files that show each feature."""
    found = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        for feature in marks(path):
            found[feature].append(str(path.relative_to(tests).with_suffix("")))
    return dict(found)


def problems(features: dict[str, dict[str, str]], found: dict[str, list[str]]) -> list[str]:
    """Features that no test shows, and marks that name none."""
    known = {key for section in features.values() for key in section}
    return [f"{key}: no test shows it" for key in sorted(known - found.keys())] + [
        f"{key}: marked in {', '.join(found[key])}, not in {FEATURES.name}" for key in sorted(found.keys() - known)
    ]


def page(features: dict[str, dict[str, str]], found: dict[str, list[str]]) -> str:
    """The whole page."""
    lines = [HEAD]
    for section, rows in features.items():
        lines.append(f"## {section}")
        for key, what in rows.items():
            named = ", ".join(f"`{one}`" for one in found.get(key, [])[:NAMED])
            lines.append(f"- {what} ({named})")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """See the module."""
    features, found = tomllib.loads(FEATURES.read_text()), shown(TESTS)
    if wrong := problems(features, found):
        print("\n".join(wrong))
        return 1
    new = page(features, found)
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text() != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
