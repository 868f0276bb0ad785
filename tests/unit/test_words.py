"""One vocabulary: a class name stands for one thing, and words that were given up do not come back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
MODULES = [path.relative_to(SRC) for path in sorted(SRC.rglob("*.py"))]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(SRC.rglob("*.md")),
]

# Words that name nothing any more, each with what is said instead.
RETIRED = {
    "door": "listener, endpoint or interface",
    "doors": "listeners, or an environment",
    "ear": "listener",
    "ears": "listeners",
    "entrance": "ingress",
    "hear": "receive, learn, on_...",
    "heard": "received, or seen_at",
    "hears": "is notified",
    "hub": "dispatcher",
    "keeper": "maintainer, or driver",
    "keepers": "maintainers",
    "lenders": "lease holders",
    "lending": "leases",
    "pulse": "failure detector",
    "settle": "complete, place, seal, reconcile, quiesce",
    "settled": "completed, stable",
    "settles": "completes",
    "settling": "quiescing",
    "shaping": "rate limits",
    "sought": "reset by a seek",
    "strand": "simulated thread",
    "strands": "simulated threads",
    "tell": "notify, report",
    "telling": "reporting",
    "tells": "reports",
    "told": "reported, notified",
    "world": "harness, simulation, cluster",
    "worlds": "harnesses, simulations",
}
OPENINGS_MAX = 1
DIALECT = {
    "so many, so long": (r"\b[Ss]o (?:long|many|much|often|few)\b", 50),
    "behind, for after": (r"\bbehind\b", 185),
    "says, said": (r"\b(?:says|said)\b", 154),
    "whoever": (r"\b[Ww]hoever\b", 60),
}
# Words and phrases that texts do without, each with what is said instead.
PHRASES = {
    "can not": "cannot",
    "hears": "is notified, receives",
    "looked at": "checked",
    "meanwhile": "in the meantime",
    "not to be reached": "unreachable",
    "sought": "reset by a seek",
    "tells": "reports, distinguishes",
    "told": "notified, reported",
}
# Class names that stand for more than one thing. Each is one too many: the list only becomes shorter.
TWICE: set[str] = set()
# How many of them are met by one reader, in rooms of which one imports the other, and how many file names are there
# twice: these numbers only fall.
MET_TOGETHER_MAX = 0
BASENAMES_MAX = 36


def room(path: Path) -> str:
    return path.parts[1] if path.parts[0] == "syncpoint" else path.parts[0]


@dataclass(frozen=True)
class Module:
    """What is asked of a module here, without its tree: those of all modules are a million objects."""

    classes: list[str]
    names: list[str]  # of everything that it gives a name to
    rooms: set[str]  # that it imports
    openings: int  # docstrings that lean on their neighbors


@cache
def modules() -> dict[Path, Module]:
    return {path: read((SRC / path).read_bytes()) for path in MODULES}


def read(source: bytes) -> Module:
    nodes = list(ast.walk(ast.parse(source)))
    opening = re.compile(r"(It|Of|The same|See)\b")
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    froms = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return Module(
        [node.name for node in nodes if isinstance(node, ast.ClassDef)],
        list(defined(nodes)),
        {module.split(".")[1] for module in froms if module.startswith("syncpoint.")},
        sum(bool(opening.match(ast.get_docstring(node) or "")) for node in nodes if isinstance(node, documented)),
    )


def classes() -> dict[str, list[Path]]:
    found = defaultdict(list)
    for path, module in modules().items():
        for name in module.classes:
            found[name].append(path)
    return found


def imports() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second; a room imports itself."""
    found = {(room(path), room(path)) for path in MODULES}
    return found | {(room(path), other) for path, module in modules().items() for other in module.rooms}


def defined(nodes: list[ast.AST]) -> Iterator[str]:
    """The names that a module gives to something."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder, without what clients of tests/clients are installed into."""
    found = sorted(folder.rglob("*.py"))
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_a_class_name_stands_for_one_thing() -> None:
    twice = {name: list(map(str, paths)) for name, paths in classes().items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in TWICE} == {}


def test_marks_of_the_old_dialect_only_fall() -> None:
    """An American engineer would write neither in a pull request. Lower a number whenever its marks get fewer."""
    texts = [path.read_text() for path in [*PAGES, *(SRC / path for path in MODULES)]]
    found = {
        "a docstring that leans on its neighbors": sum(module.openings for module in modules().values()),
        **{name: sum(len(re.findall(mark, text)) for text in texts) for name, (mark, _) in DIALECT.items()},
    }
    most = {"a docstring that leans on its neighbors": OPENINGS_MAX, **{name: n for name, (_, n) in DIALECT.items()}}
    assert {name: n for name, n in found.items() if n > most[name]} == {}


def test_no_reader_meets_a_class_name_twice() -> None:
    known = imports()
    met = {
        name
        for name, paths in classes().items()
        for one in paths
        for other in paths
        if one != other and (room(one), room(other)) in known
    }
    assert len(met) <= MET_TOGETHER_MAX, sorted(met)


def test_a_basename_is_used_once() -> None:
    found = defaultdict(list)
    for path in MODULES:
        found[path.name].append(path.parent)
    shared = {name for name, parents in found.items() if len(parents) > 1} - {"__init__.py", "settings.py", "errors.py"}
    assert len(shared) <= BASENAMES_MAX, sorted(shared)


def test_retired_words_stay_away() -> None:
    tests = ROOT / "tests"
    named = re.compile(r"^ *(?:async )?(?:def|class) (\w+)|^ *(\w+)(?:: [^=\n]+)? = |[(,] ?(\w+): ", re.MULTILINE)
    places = [(path, module.names) for path, module in modules().items()]
    places += [(path, ["".join(one) for one in named.findall(path.read_text())]) for path in sources(tests)]
    back = {
        f"{path}: {name} (say: {RETIRED[word]})"
        for path, names in places
        for name in [*names, path.stem]
        for word in words(name) & RETIRED.keys()
    }
    assert sorted(back) == []


def test_what_tests_share_is_imported_by_its_name() -> None:
    tests = Path(__file__).parents[1]
    paths = re.compile(r"^sys\.path\.", re.MULTILINE)
    assert [str(path.relative_to(tests)) for path in sources(tests) if paths.search(path.read_text())] == []


def test_texts_are_plain() -> None:
    """Comments, docstrings, messages and pages; a line break may stand between the words of a phrase."""
    phrases = re.compile(rf"\b({'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {hit} (say: {PHRASES[' '.join(hit.lower().split())]})"
        for path in [*PAGES, *(SRC / path for path in MODULES)]
        for hit in phrases.findall(path.read_text())
    ]
    assert found == []
