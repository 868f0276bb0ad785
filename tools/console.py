"""The console's program: build it from `console/` into the package, and prove that it is of these sources.

Usage: console.py build | check | verify. `build` needs node and npm, which installing or running a server does not.
`check` compares the sources with what the committed files say they were built from: milliseconds. `verify` builds them
again, from the locked packages, and compares every byte.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "console"
BUILT: Final = ROOT / "src" / "syncpoint" / "watch" / "console" / "static"
MARK: Final = "built-from.txt"
_AGAIN: Final = "Run: .venv/bin/python tools/console.py build"


def sources() -> Iterator[Path]:
    """What the program is built from."""
    yield from sorted(path for path in SOURCES.iterdir() if path.is_file())
    yield from sorted(path for path in (SOURCES / "src").rglob("*") if path.is_file())


def mark() -> str:
    """One line for each source, and one for each built file: what `sha256sum -c` takes."""
    built = sorted(path for path in BUILT.rglob("*") if path.is_file() and path.name != MARK)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}" for path in sources())
    more = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}" for path in built)
    return "\n".join([*lines, *more]) + "\n"


def differences() -> list[str]:
    """Files that are not as they were when the committed program was built."""
    kept = BUILT / MARK
    before = set(kept.read_text().splitlines()) if kept.exists() else set()
    return sorted({line.split("  ", 1)[1] for line in before ^ set(mark().splitlines())})


def addresses() -> list[str]:
    """Lines of the lock file that say where a package is fetched from: it must name none."""
    lines = (SOURCES / "package-lock.json").read_text().splitlines()
    return [line.strip() for line in lines if '"resolved"' in line]


def run(*command: str) -> None:
    """In the folder of the sources. Raises `CalledProcessError`."""
    subprocess.run(command, cwd=SOURCES, check=True, stdin=subprocess.DEVNULL)


def install() -> None:
    """Exactly the locked packages."""
    run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error")


def make(folder: Path) -> None:
    """Check the types, and write the program into a folder."""
    run("node_modules/.bin/tsc", "--noEmit")
    run("node_modules/.bin/vite", "build", "--logLevel", "warn", "--outDir", str(folder), "--emptyOutDir")


def built(folder: Path) -> dict[str, bytes]:
    """Files by their names."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != MARK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def verify() -> list[str]:
    """Names of committed files that a new build does not give."""
    install()
    with tempfile.TemporaryDirectory(prefix="syncpoint-console-") as name:
        make(Path(name))
        again, committed = built(Path(name)), built(BUILT)
    return sorted(one for one in {*again, *committed} if again.get(one) != committed.get(one))


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            if not (SOURCES / "node_modules").exists():
                install()
            make(BUILT)
            (BUILT / MARK).write_text(mark())
            return 0
        case ["check"]:
            found = differences()
            said = [f"{one} is not as it was when the console was built" for one in found]
            said += [f"console/package-lock.json names an address: {one}" for one in addresses()]
        case ["verify"]:
            said = [f"{BUILT.relative_to(ROOT)}/{one} is not what the sources give" for one in verify()]
        case _:
            print("usage: console.py build | check | verify", file=sys.stderr)
            return 2
    for line in said[:20]:
        print(line)
    if said:
        print(_AGAIN)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
