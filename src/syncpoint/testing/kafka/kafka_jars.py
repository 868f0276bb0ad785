"""The jars of Kafka's broker and of Spark's Kafka source: brought once, and held against their checksums.

Promise: what is returned is what `jars.sha256` lists, file by file; else `KafkaMissing` says what is in the way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
_FOR_SPARK = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")
_RESOLVE_S = 900.0


class KafkaMissing(Exception):
    """Kafka cannot be run here; the message gives the reason."""


def kafka_jars(cache: Path | None = None, say: Callable[[str], None] = lambda text: None) -> list[Path]:
    """All jars, brought by Maven when they are not there yet. Raises `KafkaMissing`."""
    if shutil.which("java") is None:
        raise KafkaMissing("there is no Java")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syncpoint" if cache is None else cache
    listed = HERE.joinpath("jars.sha256").read_text()
    folder = base / f"kafka-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed: one brings them, others wait
        if wrong(folder, listed):
            say("Maven brings the jars of Kafka")
            _bring(folder, base / "maven")
            if found := wrong(folder, listed):
                raise KafkaMissing(f"{found} is not what jars.sha256 says")
    return sorted(folder.glob("*.jar"))


def spark_jars(jars: list[Path]) -> str:
    """Those that Spark needs, as its setting `spark.jars`."""
    return ",".join(str(jar) for jar in jars if jar.name.startswith(_FOR_SPARK))


def broker_classpath(jars: list[Path]) -> str:
    """Those that a broker needs."""
    return os.pathsep.join(str(jar) for jar in jars if not jar.name.startswith("spark-"))


def wrong(folder: Path, listed: str) -> str:
    """The first jar that is missing, not listed, or not as it should be; "": all is well."""
    wanted = {name: checksum for checksum, name in (line.split() for line in listed.splitlines())}
    there = {path.name: path for path in folder.glob("*.jar")}
    for name in sorted(wanted.keys() | there.keys()):
        if name not in there or wanted.get(name) != hashlib.sha256(there[name].read_bytes()).hexdigest():
            return name
    return ""


def _bring(folder: Path, repository: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaMissing("there is no Maven (mvn) to bring the jars")
    shutil.rmtree(folder, ignore_errors=True)
    line = ["mvn", "-B", "-q", "-f", str(HERE / "pom.xml"), f"-Dmaven.repo.local={repository}"]
    line += [f"-DoutputDirectory={folder}", "dependency:copy-dependencies"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_RESOLVE_S, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaMissing(f"Maven did not bring the jars within {_RESOLVE_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise KafkaMissing("Maven could not bring the jars: " + (lines or ["it did not say why"])[0][:500])
