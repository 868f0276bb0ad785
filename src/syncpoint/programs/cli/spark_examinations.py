"""What `syncpoint doctor --spark` examines: Java, PySpark, pyarrow, and the Pythons that Spark will start.

Place: below the command `doctor`, on the machine of a driver. Promise: no Spark and no Java program is started, only
asked for its version.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys

from syncpoint.programs.cli.examinations import Finding
from syncpoint.programs.cli.installed import folder_of

JAVA = 17
"""The oldest that PySpark 4 runs on."""
ASK_S = 30.0
_PROBE = (
    "import importlib.util as u, sys; "
    "print(*sys.version_info[:2], *(int(u.find_spec(n) is not None) for n in ('pyspark_pubsub', 'pyspark')))"
)


def spark() -> list[Finding]:
    """Can a job that reads or writes topics run here?"""
    asked = ["PYSPARK_PYTHON"]
    if os.environ.get("PYSPARK_DRIVER_PYTHON"):  # with this one, where it is set, Spark looks for formats
        asked.append("PYSPARK_DRIVER_PYTHON")
    return [java(), library("pyspark"), library("pyarrow"), *map(python_of, asked)]


def java() -> Finding:
    """Is there a Java, and is it new enough?"""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = f"Install Java {JAVA} or newer (Debian: openjdk-{JAVA}-jre-headless)"
    if program is None:
        return Finding("Java", "problem", "none on the path, and JAVA_HOME is not set", f"{advice}.")
    try:
        output = _asked([program, "-version"])
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", "problem", f"{program}: {_reason(error)}", f"{advice}, or correct JAVA_HOME.")
    version = re.search(r'version "(\d+)([^"]*)"', output)
    if version is None:
        return Finding("Java", "warning", f"{program}: reports no version", f"{advice}.")
    found = f"{version[1]}{version[2]} ({program})"
    if int(version[1]) < JAVA:
        return Finding("Java", "problem", found, f"{advice}, and set JAVA_HOME to it.")
    return Finding("Java", "ok", found)


def library(name: str) -> Finding:
    """Is a library of the extra `spark` there, in a version that fits?"""
    wanted = _wanted(name)
    advice = f'pip install "{folder_of()}[spark]"'
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "problem", "not installed", advice)
    if wanted is not None:
        exactly, bound = wanted
        if version != bound if exactly else _numbers(version) < _numbers(bound):
            return Finding(name, "problem", f"{version}; {'' if exactly else 'at least '}{bound} is needed", advice)
    return Finding(name, "ok", version)


def python_of(variable: str) -> Finding:
    """Does a Python that Spark starts have the format `pubsub`, and is it as new as this one?"""
    chosen = os.environ.get(variable)
    program = chosen or "python3"
    what = f"{variable} ({program})" if chosen else f"{variable} is not set: python3 of the path"
    advice = f"`export {variable}={sys.executable}`"
    if not chosen:
        advice += ", or `import pyspark_pubsub` before creating the session, which sets it"
    try:
        answer = _asked([program, "-c", _PROBE]).split()[-4:]
        major, minor, has_format, has_spark = map(int, answer)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Finding("Spark's Python", "problem", f"{what}: {_reason(error)}", f"{advice}.")
    lacking = [n for n, has in (("pyspark_pubsub", has_format), ("pyspark", has_spark)) if not has]
    if lacking:
        # Unset, the import mends it; set to a Python without the format, nothing does.
        output = f"{what}: has no {' and no '.join(lacking)}"
        return Finding("Spark's Python", "problem" if chosen else "warning", output, f"{advice}.")
    if (major, minor) != sys.version_info[:2]:
        return Finding("Spark's Python", "problem", f"{what}: Python {major}.{minor}, this is another", f"{advice}.")
    return Finding("Spark's Python", "ok", what)


def _wanted(name: str) -> tuple[bool, str] | None:
    """What this package asks of a library: exactly a version, or at least; None when it does not say."""
    try:
        lines = importlib.metadata.requires("syncpoint") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for line in lines:
        found = re.match(rf"{re.escape(name)}\s*(==|>=)\s*([\d.]+)", line)
        if found is not None:
            return found[1] == "==", found[2]
    return None


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _asked(command: list[str]) -> str:
    """The output of a program, on either stream; Java reports its version on the second."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=True)
    return done.stdout + done.stderr


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, subprocess.TimeoutExpired):
        return f"does not answer within {ASK_S:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"exits with code {error.returncode}"
    return "gives an unexpected answer"
