"""Which kernel runs, and that it was made from the sources beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from syncpoint.base import kernel
from syncpoint.base.kernel import build, memory

FOLDER = Path(kernel.__file__).parent


def test_build_and_package_agree_on_the_modules() -> None:
    assert kernel.MODULES == build.MODULES
    assert all((FOLDER / f"{name}.py").exists() for name in kernel.MODULES)


def test_all_modules_are_of_the_kind_compiled_says() -> None:
    for name in kernel.MODULES:
        file = import_module(f"syncpoint.base.kernel.{name}").__file__ or ""
        assert file.endswith(tuple(EXTENSION_SUFFIXES)) is kernel.COMPILED
        assert file.endswith(".py") is not kernel.COMPILED


@pytest.mark.skipif(not kernel.COMPILED, reason="nothing is compiled")
def test_compiled_modules_are_not_older_than_their_sources() -> None:
    shared = max((FOLDER / name).stat().st_mtime for name in ("_bytes.pxd", "_bytes.py"))
    for name in kernel.MODULES:
        module = import_module(f"syncpoint.base.kernel.{name}")
        sources = [FOLDER / f"{name}.py", FOLDER / f"{name}.pxd"]
        newest = max(shared, *(path.stat().st_mtime for path in sources if path.exists()))
        assert Path(module.__file__ or "").stat().st_mtime >= newest, "run: python -m syncpoint.base.kernel.build"


def test_the_environment_forces_the_sources() -> None:
    code = "from syncpoint.base.kernel import COMPILED, leases; print(COMPILED, leases.__file__)"
    env = os.environ | {"SYNCPOINT_PURE_KERNEL": "1", "PYTHONPATH": str(FOLDER.parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", str(FOLDER / "leases.py")]


def test_keeping_memory_is_allowed_on_glibc() -> None:
    assert memory.keep_freed_memory() in (True, False)
