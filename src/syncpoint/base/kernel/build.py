"""Compiles the kernel: `python -m syncpoint.base.kernel.build` puts the modules beside their sources.

Place: used by people, by setup.py (`extensions`), and by nothing at run time. Needs Cython, setuptools, a C compiler
and Python's headers. Stands alone: setup.py loads this file before the package is installed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PACKAGE = "syncpoint.base.kernel"
MODULES = (
    "ackids", "acks", "blocks", "call_frames", "columns", "filters", "frames", "ids", "json_fields", "leases",
    "lifetimes", "publish", "rows", "rule_conditions", "schedules", "seal", "split", "stamps",
)  # fmt: skip
MARK = b"syncpoint-source sha256:"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,  # the sources check foreign bytes themselves; see DESIGN.md
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": False,
    "cdivision": True,
    "infer_types": None,
}


def extensions() -> list[Any]:
    """The kernel's extension modules for setuptools, translated to C. The current folder must be the project's root."""
    from Cython.Build import cythonize
    from setuptools import Extension  # type: ignore[import-untyped]

    if sys.byteorder != "little":
        return []  # the compiled primitives copy words as they lie in memory; the sources run everywhere
    folder = os.path.relpath(HERE)
    wanted = []
    for name in MODULES:
        marked = _marked(name)
        flags = ["-O3", "-g0", "-include", marked]
        wanted.append(
            Extension(f"{PACKAGE}.{name}", [f"{folder}/{name}.py"], extra_compile_args=flags, depends=[marked])
        )
    return list(
        cythonize(  # type: ignore[no-untyped-call]
            wanted,
            build_dir="build/kernel",
            include_path=[os.path.relpath(HERE.parents[2])],
            compiler_directives=DIRECTIVES,
            quiet=True,
        )
    )


def mark_of(source: Path) -> bytes:
    """What a compiled module carries of the source it was made from, so that an old one is known whatever the times of
    the files say.
    """
    digest = hashlib.sha256()
    for path in (source, source.with_suffix(".pxd")):
        digest.update(path.read_bytes() if path.exists() else b"")
    return MARK + digest.hexdigest().encode()


def _marked(name: str) -> str:
    """A C header that puts the mark into the module; written only when it changes, since it makes the module anew."""
    path = Path("build/kernel") / f"{name}.mark.h"
    text = f'__attribute__((used)) static const char syncpoint_source[] = "{mark_of(HERE / f"{name}.py").decode()}";\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


def main() -> None:
    """Compile what has changed, in place."""
    from setuptools import Distribution

    os.chdir(ROOT)
    distribution = Distribution({"name": "syncpoint-kernel", "ext_modules": extensions(), "package_dir": {"": "src"}})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.parallel = 2
    command.build_temp = "build/kernel/objects"
    command.ensure_finalized()
    command.run()
    print(f"compiled: {', '.join(MODULES)}")


if __name__ == "__main__":
    main()
