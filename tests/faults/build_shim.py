"""Builds `shim.c` and writes its rules: faults of real files for processes that a test starts.

faults = Faults(tmp_path)
process = start(env=faults.env)
faults.set("sync /d1/ 0 -1 eio")     # from now on; the rules are explained in `shim.c`
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


def compiler() -> str | None:
    """The C compiler, or None: tests are skipped without one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Compile the library into `folder`. Raises `CalledProcessError` with the compiler's words."""
    cc = compiler()
    assert cc is not None, "no C compiler"
    target = folder / "syncpoint-faults.so"
    command = [cc, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", str(target), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return target


class Faults:
    """One library and one file of rules."""

    def __init__(self, folder: Path) -> None:
        self._library = build(folder)
        self._rules = folder / "faults"
        self._rules.write_text("")
        self._hits = folder / "faults.hits"
        self._current: tuple[str, ...] = ()
        self.unmet: list[tuple[str, ...]] = []  # rules that were taken away, none of which any call had met

    @property
    def env(self) -> Mapping[str, str]:
        """For the process that is to be hit."""
        return {"LD_PRELOAD": str(self._library), "FAULTS": str(self._rules)}

    def set(self, *rules: str) -> None:
        """These rules and no others; counting starts anew, of hits as well."""
        if self._current and not self.hits():
            self.unmet.append(self._current)
        self._current = rules
        self._hits.unlink(missing_ok=True)
        beside = self._rules.with_suffix(".new")
        beside.write_text("".join(rule + "\n" for rule in rules))
        os.replace(beside, self._rules)

    def hits(self, part: str = "") -> int:
        """How many calls were hit since `set`, of files whose paths contain `part`."""
        lines = self._hits.read_text().splitlines() if self._hits.exists() else []
        return sum(part in line for line in lines)
