"""Spark's home with its Python unpacked, so that Python workers start three times as fast.

Spark puts `python/lib/pyspark.zip` of its home in front of the Python path of every worker it starts. Python compiles
whatever it imports from there anew each time: 1.0 s of CPU where the installed package takes 0.3 s. A stream's source
and sink need several such starts, and one that takes longer than ten seconds on a busy machine fails the query.
So this home has the same programs and jars, by links, and folders of those names in place of the zip files. What Spark
warns of while it starts, in words that help nobody, is not printed, by its `conf`. A master and workers of a
standalone Spark log who comes and goes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

from syncpoint.base.model.errors import FailedPrecondition

_LOGGING = """\
rootLogger.level = error
logger.master.name = org.apache.spark.deploy.master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker
logger.worker.level = info
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def installed_home() -> Path:
    """The home of the Spark that was installed as a Python package. Raises `FailedPrecondition`."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise FailedPrecondition("Spark is not installed: pip install 'FOLDER[spark]' (and Java 17)")
    return Path(found.origin).parent


def quick_home(cache: Path | None = None) -> Path:
    """A home as described above, made when there is none in `cache` (by default in the user's); the installed one where
    it cannot be made. Raises `FailedPrecondition` when Spark is not installed.
    """
    installed = installed_home()
    if os.environ.get("SPARK_HOME", str(installed)) != str(installed):
        return Path(os.environ["SPARK_HOME"])  # another Spark that the user has chosen
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") if cache is None else cache
    home = base / "syncpoint" / f"spark-home-{hashlib.sha256(str(installed).encode()).hexdigest()[:12]}"
    try:
        _link(installed, home)
    except OSError:
        return installed
    return home


def _link(installed: Path, home: Path) -> None:
    lib = home / "python" / "lib"
    lib.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        _point(home / name, installed / name)
    (home / "conf").mkdir(exist_ok=True)
    _write(home / "conf" / "log4j2.properties", _LOGGING)
    for zipped in (installed / "python" / "lib").glob("*.zip"):
        package = zipped.name.partition("-")[0].removesuffix(".zip")
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            _point(lib / zipped.name, zipped)
            continue
        (lib / zipped.name).mkdir(exist_ok=True)
        _point(lib / zipped.name / package, Path(found.origin).parent)


def _point(link: Path, there: Path) -> None:
    """Make a link, or renew one; two processes may do so at the same time."""
    if link.is_symlink() and link.readlink() == there:
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(there)
    temporary.replace(link)


def _write(file: Path, text: str) -> None:
    """Write a file atomically, unless it already has this text."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
