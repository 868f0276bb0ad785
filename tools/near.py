"""Run the tests near a change: `near.py [SINCE]`. `--list` prints their files and runs nothing.

A test is near when its file changed, when it imports a module that changed, or a kit that imports one, and when it is a
unit test of a room that changed. Without SINCE (a commit), the change is
what is not committed yet, or else the last commit. Style, types and layers are checked in any case, and a few seeds are
simulated when something changed that moves messages. `make test` is what proves a change; this is for the way there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import test_parts

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 240
ALWAYS = {"tests/unit/docs", "tests/unit/test_words.py"}  # pages, and words, of the whole tree
MOVING = ("src/syncpoint/base/kernel/", "src/syncpoint/broker/", "src/syncpoint/log/", "src/syncpoint/testing/")


def git(*words: str) -> list[str]:
    """The lines that git answers."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def changed(since: str) -> set[str]:
    """Files that differ from a commit, new ones too; by default from HEAD, or from the commit before it."""
    new = git("ls-files", "--others", "--exclude-standard")
    found = git("diff", "--name-only", "--no-renames", since or "HEAD")
    return {*new, *found} or ({*git("diff", "--name-only", "--no-renames", "HEAD~1")} if not since else set())


def imported(source: str) -> set[str]:
    """The modules that a source names in its imports, at any depth; `from a import b` names `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{name.name}" for name in node.names)))
    return found


def module_of(file: str) -> str:
    """The dotted name of a source file or of a module of tests."""
    return file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def near(files: set[str]) -> list[str]:
    """Test files near these changed files, and folders of unit tests of rooms. Of tests that need servers, only those
    that changed themselves.
    """
    modules = {module_of(file) for file in files if file.endswith(".py")}
    modules |= {module_of(kit) for kit in importing(modules, "tests", "*.py")}
    found = {file for file in files if Path(file).match("test_*.py") and (ROOT / file).exists()}
    found |= importing(modules, "tests/unit", "test_*.py")
    rooms = {Path("tests/unit", *Path(file).parts[2:-1][:2]) for file in files if file.startswith("src/syncpoint/")}
    found |= {str(room) for room in rooms if room != Path("tests/unit") and (ROOT / room).is_dir()}
    return sorted({path for path in found if not path.startswith("tests/unit/docs/")} | ALWAYS)


def importing(modules: set[str], folder: str, names: str) -> set[str]:
    """The files of these names that import one of the modules."""
    words = {module.rpartition(".")[2] for module in modules}
    sources = ((path, path.read_text()) for path in (ROOT / folder).rglob(names))
    few = ((path, source) for path, source in sources if any(word in source for word in words))
    return {str(path.relative_to(ROOT)) for path, source in few if imported(source) & modules}


def main(arguments: list[str]) -> int:
    """Print the files, or check and run them; 0 when all went well."""
    words = [word for word in arguments if word != "--list"]
    files = changed(words[0] if words else "")
    tests = near(files)
    if words != arguments:
        print("\n".join(tests))
        return 0
    pytest = [*test_parts.PYTEST, "-n", "2", "-m", "not long", *tests]
    parts = [part for part in test_parts.CHECK if part.name not in ("quick", "console")]
    what = f"{len(tests)} files of tests near {len(files)} changed files"
    parts.append(test_parts.Part("near", what, SECONDS, pytest))
    if any(file.startswith(MOVING) for file in files):
        seeds = [sys.executable, "tools/sim.py", "--kind", "chains", "--first", "1", "--count", "10", "--jobs", "2"]
        parts.append(test_parts.Part("simulation", "ten seeds of chains", 60, seeds))
    passed = [test_parts.run(part, None) for part in parts]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
