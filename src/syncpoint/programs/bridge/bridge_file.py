"""mqtt.yaml: the MQTT broker, and which of its messages go to which topics.

Place: read by `syncpoint bridge mqtt`. Promise: the file is held against `schema.json` and against itself; a mistake is
refused with its place. The password is referred to by file, and never read here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.documents import check_document
from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.hosts import loopback
from syncpoint.base.model.yaml_text import load_yaml_file
from syncpoint.wire.transport.network import split_address

SESSION_S_MAX: Final = 2**32 - 2  # the greatest number is for ever
KEEPALIVE_S_MAX: Final = 2**16 - 1
FIELD: Final = re.compile(r"\{([^{}]*)\}")
_LEVEL: Final = r"[1-9]\d{0,2}"
_FIELDS: Final = {
    "topic": (re.compile(_LEVEL), "{1}, {2}, ... (levels of the MQTT topic)"),
    "key": (re.compile(rf"topic|{_LEVEL}|property\..+"), "{topic}, {1}, {2}, ... and {property.NAME}"),
}
_FIELDS["id"] = _FIELDS["key"]


@dataclass(frozen=True)
class MqttBroker:
    """How the broker is reached. Paths are of files; durations in seconds."""

    host: str
    port: int
    client_id: str
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    session_expiry_s: int = 7 * 86_400
    keepalive_s: int = 30


@dataclass(frozen=True)
class IncomingRule:
    """Messages that match `filter` go to `topic`. `topic`, `key` and `id` are templates; "": no key, no id."""

    filter: str
    topic: str
    key: str = ""
    id: str = ""
    qos: int = 1

    @property
    def matched(self) -> str:
        """The filter, without the group of a shared subscription."""
        return self.filter.split("/", 2)[2] if self.filter.startswith("$share/") else self.filter


@dataclass(frozen=True)
class BridgeFile:
    """The whole file. `messages` and `bytes`: how much may be received and not stored yet."""

    broker: MqttBroker
    rules: tuple[IncomingRule, ...]
    messages: int = 1000
    bytes: int = 64 << 20
    drop_unfit: bool = False


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    text = resources.files("syncpoint.programs.bridge").joinpath("schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def load(path: Path) -> BridgeFile:
    """Read a file. Raises `InvalidArgument` naming the key, `OSError` when it cannot be read."""
    return parse(load_yaml_file(path), path.resolve().parent)


def parse(content: Any, base: Path) -> BridgeFile:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    check_document(content, schema(), "the file", within="{path}")
    rules = tuple(IncomingRule(**one) for one in content["in"])
    for number, rule in enumerate(rules):
        _check(rule, f"in.{number}")
    limits = content.get("limits", {})
    return BridgeFile(_broker(content["mqtt"], base), rules, drop_unfit=content.get("unfit") == "drop", **limits)


def _broker(keys: dict[str, Any], base: Path) -> MqttBroker:
    host, port = split_address(keys["broker"])
    tls = keys.get("tls")
    if tls is None and "password_file" in keys and not loopback(host):
        raise InvalidArgument("mqtt.tls", f"is needed: a password is not sent to {host} in the clear")
    files = {name: base / one for name, one in (tls or {}).items()}
    return MqttBroker(
        host,
        port,
        keys["client_id"],
        tls=tls is not None,
        **files,
        user=keys.get("user", ""),
        password_file=base / keys["password_file"] if "password_file" in keys else None,
        session_expiry_s=_whole(keys, "session_expiry", "7d", SESSION_S_MAX),
        keepalive_s=_whole(keys, "keepalive", "30s", KEEPALIVE_S_MAX),
    )


def _whole(keys: dict[str, Any], name: str, default: str, most: int) -> int:
    seconds = in_seconds(keys.get(name, default))
    if not 1 <= seconds <= most or seconds != int(seconds):
        raise InvalidArgument(f"mqtt.{name}", f"must be whole seconds from 1 to {most:,}")
    return int(seconds)


def _check(rule: IncomingRule, place: str) -> None:
    if rule.filter.startswith("$share/") and rule.filter.count("/") < 2:
        raise InvalidArgument(f"{place}.filter", "a shared subscription is written $share/GROUP/FILTER")
    levels = rule.matched.split("/")
    if "#" in levels[:-1] or any(len(one) > 1 and ("+" in one or "#" in one) for one in levels):
        raise InvalidArgument(
            f"{place}.filter", "+ stands for a whole level, and # for the rest: plant/+/state, plant/#"
        )
    for name, (known, there) in _FIELDS.items():
        text = getattr(rule, name)
        for one in FIELD.findall(text):
            if not known.fullmatch(one):
                raise InvalidArgument(f"{place}.{name}", f"{{{one}}} is not known; there are {there}")
        if "{" in FIELD.sub("", text) or "}" in FIELD.sub("", text):
            raise InvalidArgument(f"{place}.{name}", "has a brace without its partner")
