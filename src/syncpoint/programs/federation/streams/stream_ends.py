"""What an entry under `streams` of federation.yaml is: a Kafka cluster, or a folder of files.

Place: under `spec`, which parses the file; read by the queries of streams. Pure.
Promise: a secret is referred to and never read here; Kafka's own clients resolve it where they run, so that neither
plans nor options of Spark hold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import InvalidArgument

SECRET_NAMES = ("password", "jaas", "secret", "ssl.keystore.key", "credentials")
_PROVIDERS = {
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "directory": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}
_OURS = (
    "bootstrap.servers",
    "group.id",
    "key.",
    "value.",
    "auto.offset.reset",
    "enable.auto.commit",
    "config.providers",
)
TEXT, JSON, CSV, BINARY = "text", "json", "csv", "binary"


@dataclass(frozen=True, slots=True)
class KafkaStream:
    """A Kafka cluster. `options`: of Kafka's clients, by their names; a secret as `${env:NAME}`."""

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is, for plans."""
        return self.bootstrap

    @property
    def client_options(self) -> dict[str, str]:
        """What Kafka's clients are given."""
        return {"isolation.level": "read_committed", **self.options, "bootstrap.servers": self.bootstrap}

    @property
    def spark_options(self) -> dict[str, str]:
        """Return the options for Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.client_options.items()}


@dataclass(frozen=True, slots=True)
class FileStream:
    """A folder into which files are put. `schema`: of `csv`, as Spark writes it; `options`: of Spark's reader."""

    path: str
    format: str
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is, for plans."""
        return self.path


def stream_of(keys: Mapping[str, Any], base: Path, place: str) -> KafkaStream | FileStream:
    """An entry that is held against the schema already. Raises `InvalidArgument`."""
    if "kafka" in keys:
        return _kafka(keys["kafka"], base, f"{place}.kafka")
    found = keys["files"]
    if found["format"] == CSV and "schema" not in found:
        raise InvalidArgument(f"{place}.files.schema", "list the columns of a line, such as 'id BIGINT, name STRING'")
    if found["format"] != CSV and "schema" in found:
        raise InvalidArgument(f"{place}.files.schema", f"files of {found['format']} do not take columns; only csv does")
    path = found["path"] if "://" in found["path"] else str(base / found["path"])
    options = {name: _as_text(value) for name, value in found.get("options", {}).items()}
    return FileStream(path, found["format"], found.get("schema", ""), options)


def _kafka(keys: Mapping[str, Any], base: Path, place: str) -> KafkaStream:
    options: dict[str, str] = {}
    providers = set()
    for name, value in keys.get("options", {}).items():
        if name.startswith(_OURS):
            raise InvalidArgument(f"{place}.options.{name}", "is set by the federation")
        if isinstance(value, Mapping):
            provider, options[name] = _referred(value, base)
            providers.add(provider)
        elif any(one in name for one in SECRET_NAMES):
            raise InvalidArgument(
                f"{place}.options.{name}", "must not contain the secret itself; write {env: VARIABLE} or {file: PATH}"
            )
        else:
            options[name] = _as_text(value)
    if providers:
        options["config.providers"] = ",".join(sorted(providers))
        options |= {f"config.providers.{one}.class": _PROVIDERS[one] for one in sorted(providers)}
    return KafkaStream(keys["bootstrap"], options)


def _referred(value: Mapping[str, str], base: Path) -> tuple[str, str]:
    """The provider that Kafka's clients ask for a secret, and the question."""
    if "env" in value:
        return "env", f"${{env:{value['env']}}}"
    path = (base / value["file"]).resolve()
    return "directory", f"${{directory:{path.parent}:{path.name}}}"


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
