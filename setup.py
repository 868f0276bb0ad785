"""Build hook: compiles the kernel (the rooms' only compiled part) when a C compiler is there.

Everything else about the package stands in pyproject.toml. What is compiled, and how, is known to
`syncpoint.base.kernel.build` alone; this file only hands it over to setuptools. A kernel that cannot be compiled is no
error: the same sources run uncompiled, slower. SYNCPOINT_KERNEL=skip leaves it out (`make setup` does, since it
compiles in a step of its own), SYNCPOINT_KERNEL=require makes it one (`make wheel` does).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

BUILD = Path(__file__).parent / "src" / "syncpoint" / "base" / "kernel" / "build.py"
DOCS = Path(__file__).parent / "docs"


class BuildWithPages(build_py):
    """Also copies the documentation, which `syncpoint docs` shows where there is no clone."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for page in DOCS.rglob("*.md"):
            target = Path(self.build_lib) / "syncpoint" / "programs" / "cli" / "pages" / page.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(page.read_bytes())


def kernel_extensions() -> list[Any]:
    """The kernel's extension modules, each optional unless required; none when it is to be left out."""
    if os.environ.get("SYNCPOINT_KERNEL") == "skip" or not BUILD.exists():
        return []
    spec = importlib.util.spec_from_file_location("syncpoint_kernel_build", BUILD)
    if spec is None or spec.loader is None:
        return []
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    extensions = list(build.extensions())
    for extension in extensions:
        extension.optional = os.environ.get("SYNCPOINT_KERNEL") != "require"
    return extensions


setup(ext_modules=kernel_extensions(), cmdclass={"build_py": BuildWithPages})
