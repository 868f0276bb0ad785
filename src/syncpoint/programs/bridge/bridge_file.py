"""bridge.yaml: the other broker, and which messages go from there to topics, or from subscriptions there.

Place: read by `syncpoint bridge`. Promise: the file is held against `schema.json` and against itself; a mistake is
refused with its place. The password is referred to by file, and never read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.documents import check_document, load_document, schema_of
from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.hosts import loopback
from syncpoint.wire.transport.network import split_address

SESSION_S_MAX: Final = 2**32 - 2  # the greatest number is for ever
KEEPALIVE_S_MAX: Final = 2**16 - 1
FIELD: Final = re.compile(r"\{([^{}]*)\}")
_LEVEL: Final = r"[1-9]\d{0,2}"
_MQTT: Final = (rf"topic|{_LEVEL}|property\..+", "{topic}, {1}, {2}, ... and {property.NAME}")
_RABBIT: Final = (
    rf"routing_key|queue|exchange|message_id|offset|{_LEVEL}|header\..+",
    "{routing_key}, {1}, {2}, ..., {queue}, {exchange}, {message_id}, {offset} (of a stream) and {header.NAME}",
)
_OUT: Final = (r"key|message_id|attribute\..+", "{key}, {message_id} and {attribute.NAME}")
_FIELDS: Final = {
    "mqtt_in": {"topic": (_LEVEL, "{1}, {2}, ... (levels of the MQTT topic)"), "key": _MQTT, "id": _MQTT},
    "rabbitmq_in": {
        "topic": (f"queue|{_LEVEL}", "{queue} and {1}, {2}, ... (words of the routing key)"),
        "key": _RABBIT,
        "id": _RABBIT,
    },
    "mqtt_out": {"topic": _OUT},
    "rabbitmq_out": {"routing_key": _OUT},
}


@dataclass(frozen=True)
class OtherBroker:
    """How the other broker is reached. Paths are of files; durations in seconds."""

    kind: str  # mqtt or rabbitmq
    host: str
    port: int
    client_id: str = ""
    vhost: str = "/"
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    session_expiry_s: int = 7 * 86_400
    keepalive_s: int = 30
    positions: Path | None = None


@dataclass(frozen=True)
class IncomingRule:
    """Messages of `filter`, `queue` or `stream` go to `topic`. `topic`, `key` and `id` are templates; "": no key, no
    id.
    """

    topic: str
    key: str = ""
    id: str = ""
    filter: str = ""
    qos: int = 1
    queue: str = ""
    stream: str = ""
    first: bool = True  # a stream of which nothing was read yet begins at its first message

    @property
    def matched(self) -> str:
        """The filter, without the group of a shared subscription."""
        return self.filter.split("/", 2)[2] if self.filter.startswith("$share/") else self.filter

    @property
    def source(self) -> str:
        """What it takes from."""
        return self.filter or self.queue or self.stream


@dataclass(frozen=True)
class OutgoingRule:
    """Messages of `subscription` go to `target`, a template of an MQTT topic or of a routing key."""

    subscription: str
    target: str
    exchange: str = ""
    qos: int = 1
    retain: bool = False
    content_type: str = ""
    expiry_ms: int = 0


@dataclass(frozen=True)
class BridgeFile:
    """The whole file; one of `incoming` and `outgoing` is empty. `messages` and `bytes`: how much may be received and
    not confirmed yet.
    """

    broker: OtherBroker
    incoming: tuple[IncomingRule, ...] = ()
    outgoing: tuple[OutgoingRule, ...] = ()
    messages: int = 1000
    bytes: int = 64 << 20
    drop_unfit: bool = False
    dead_letters: str = ""


def parse(content: Any, base: Path) -> BridgeFile:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    whole = schema_of("syncpoint.programs.bridge")
    check_document(content, whole, "the file", within="{path}")
    kind = _one_of(content, "mqtt", "rabbitmq")
    way = _one_of(content, "in", "out")
    if "unfit" in content and "dead_letters" in content:
        raise InvalidArgument("unfit", "is for files without dead_letters")
    broker = _broker(kind, content[kind], base)
    form = whole | {"$ref": f"#/$defs/{kind}_{way}", "required": [], "properties": {}}
    del form["additionalProperties"]
    for number, one in enumerate(content[way]):
        place = f"{way}.{number}"
        check_document(one, form, place)
        for name, (known, there) in _FIELDS[f"{kind}_{way}"].items():
            _check_template(f"{place}.{name}", one.get(name, ""), known, there)
    return BridgeFile(
        broker,
        tuple(_incoming(one, f"in.{number}", broker) for number, one in enumerate(content.get("in", ()))),
        tuple(_outgoing(one, f"out.{number}", kind) for number, one in enumerate(content.get("out", ()))),
        drop_unfit=content.get("unfit") == "drop",
        dead_letters=content.get("dead_letters", ""),
        **content.get("limits", {}),
    )


load = partial(load_document, parse)


def _one_of(content: dict[str, Any], one: str, other: str) -> str:
    if (one in content) == (other in content):
        raise InvalidArgument("the file", f"must have one of {one} and {other}; run two bridges for both")
    return one if one in content else other


def _broker(kind: str, keys: dict[str, Any], base: Path) -> OtherBroker:
    host, port = split_address(keys["broker"])
    tls = keys.get("tls")
    if tls is None and "password_file" in keys and not loopback(host):
        raise InvalidArgument(f"{kind}.tls", f"is needed: a password is not sent to {host} in the clear")
    files = {name: base / one for name, one in (tls or {}).items()}
    alive = "keepalive" if kind == "mqtt" else "heartbeat"
    return OtherBroker(
        kind,
        host,
        port,
        keys.get("client_id", ""),
        keys.get("vhost", "/"),
        tls=tls is not None,
        **files,
        user=keys.get("user", ""),
        password_file=base / keys["password_file"] if "password_file" in keys else None,
        session_expiry_s=_whole(kind, keys, "session_expiry", "7d", SESSION_S_MAX),
        keepalive_s=_whole(kind, keys, alive, "30s", KEEPALIVE_S_MAX),
        positions=base / keys["positions"] if "positions" in keys else None,
    )


def _whole(kind: str, keys: dict[str, Any], name: str, default: str, most: int) -> int:
    seconds = in_seconds(keys.get(name, default))
    if not 1 <= seconds <= most or seconds != int(seconds):
        raise InvalidArgument(f"{kind}.{name}", f"must be whole seconds from 1 to {most:,}")
    return int(seconds)


def _incoming(keys: dict[str, Any], place: str, broker: OtherBroker) -> IncomingRule:
    given = {name: value for name, value in keys.items() if name != "from"}
    rule = IncomingRule(**given, first=keys.get("from", "first") == "first")
    if broker.kind == "mqtt":
        _check_filter(rule, place)
    elif bool(rule.queue) == bool(rule.stream):
        raise InvalidArgument(place, "must name a queue or a stream, and not both")
    elif rule.stream and broker.positions is None:
        raise InvalidArgument("rabbitmq.positions", "is needed for streams: a file that keeps how far they were read")
    elif "from" in keys and not rule.stream:
        raise InvalidArgument(f"{place}.from", "is for streams")
    elif rule.stream and not rule.id:
        return IncomingRule(**given | {"id": "{queue}/{offset}"}, first=rule.first)
    return rule


def _outgoing(keys: dict[str, Any], place: str, kind: str) -> OutgoingRule:
    expiry_ms = round(1000 * in_seconds(keys["expiry"])) if "expiry" in keys else 0
    if expiry_ms > 1000 * SESSION_S_MAX or (kind == "mqtt" and expiry_ms % 1000):
        raise InvalidArgument(f"{place}.expiry", f"must be whole seconds, {SESSION_S_MAX:,} at most")
    target = keys["topic"] if kind == "mqtt" else keys.get("routing_key", "{key}")
    bare = FIELD.sub("", target)
    if kind == "mqtt" and ("+" in bare or "#" in bare):
        raise InvalidArgument(f"{place}.topic", "must not have + or #: a message goes to one MQTT topic")
    return OutgoingRule(
        keys["subscription"],
        target,
        keys.get("exchange", ""),
        keys.get("qos", 1),
        keys.get("retain", False),
        keys.get("content_type", ""),
        expiry_ms,
    )


def _check_filter(rule: IncomingRule, place: str) -> None:
    if rule.filter.startswith("$share/") and rule.filter.count("/") < 2:
        raise InvalidArgument(f"{place}.filter", "a shared subscription is written $share/GROUP/FILTER")
    levels = rule.matched.split("/")
    if "#" in levels[:-1] or any(len(one) > 1 and ("+" in one or "#" in one) for one in levels):
        raise InvalidArgument(
            f"{place}.filter", "+ stands for a whole level, and # for the rest: plant/+/state, plant/#"
        )


def _check_template(place: str, text: str, known: str, there: str) -> None:
    for one in FIELD.findall(text):
        if not re.fullmatch(known, one):
            raise InvalidArgument(place, f"{{{one}}} is not known; there are {there}")
    if "{" in FIELD.sub("", text) or "}" in FIELD.sub("", text):
        raise InvalidArgument(place, "has a brace without its partner")
