"""The options of the source and the sink: names, types, ranges, defaults; also by the names Kafka's source gave them.

Place: read once on the driver, whenever Spark makes a reader or a writer.
Promise: an option that is not known is refused with the nearest name that is; no text repeats the value of an option
that is unknown, since it may be a secret. Credentials are named (a file, a variable), never given.
Leaves to `positions`: what a starting position means; to `rpc`: reading the files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyspark_pubsub.errors import OptionError

READ, WRITE, BOTH = "read", "write", "both"
MIB = 1 << 20


@dataclass(frozen=True)
class Option:
    """One option. `kind`: text, names, flag, count (with `least`, `most`), seconds; `default` as its kind."""

    name: str
    kind: str
    where: str
    meaning: str
    default: Any = None
    aliases: tuple[str, ...] = ()
    least: int = 0
    most: int = (1 << 63) - 1


OPTIONS = (
    Option("endpoint", "names", BOTH, "host:port of the server; of several, with commas, the next one is used after a"
           " failure", (), ("kafka.bootstrap.servers", "bootstrap.servers")),
    Option("project", "text", BOTH, "completes topic and subscription names that are not projects/P/...", ""),
    Option("topic", "text", BOTH, "the topic to read; or to write, for rows without a `target_topic`: their"
           " own `topic` then does not count", "",
           ("subscribe",)),
    Option("flows", "text", BOTH, "federation's own: a file of the topics that share one stream", ""),
    Option("subscription", "text", READ, "read its backlog (batch), or be its only consumer (stream)", ""),
    Option("startingPosition", "text", READ, "earliest, latest, a time, a snapshot, or offsets as JSON", "earliest",
           ("startingOffsets", "startingTimestamp")),
    Option("endingPosition", "text", READ, "batch only: where to end, written as startingPosition", "latest",
           ("endingOffsets", "endingTimestamp")),
    Option("columns", "names", READ, "the columns to read, in this order", ()),
    Option("jsonFields", "names", READ, "what the column `json_fields` has: fields of data in JSON, by names with dots",
           ()),
    Option("decode", "text", READ, "data as typed columns of `value`: `topic`, by the topic's schema; or a schema"
           " (projects/P/schemas/S, also @REVISION)", ""),
    Option("decodeErrors", "text", READ, "data that do not fit: fail; null, with the error in `decode_error`; or"
           " drop, counted in the log", "fail"),
    Option("encode", "text", WRITE, "the column `value` becomes data: `topic`, by the topic's schema; or a schema", ""),
    Option("schemaEncoding", "text", BOTH, "json or binary; by default that of the topic or the message", ""),
    Option("jsonWithout", "names", READ, "names that data must not have for `json_fields` and `json_end`", ()),
    Option("filter", "text", READ, "a subscription's filter expression: the server leaves out what it does not match",
           ""),
    Option("origins", "names", READ, "only copies that began at these servers; `original` stands for no copies", ()),
    Option("notVisited", "text", READ, "leave out copies that came through the server of this name", ""),
    Option("maxRowsPerTrigger", "count", READ, "rows of one micro-batch at most", 0,
           ("maxOffsetsPerTrigger", "maxMessagesPerTrigger")),
    Option("maxBytesPerTrigger", "bytes", READ, "bytes of one micro-batch, by the mean size of messages", 0),
    Option("minRowsPerTrigger", "count", READ, "wait for so many rows, but not longer than maxTriggerDelay", 0,
           ("minOffsetsPerTrigger",)),
    Option("maxTriggerDelay", "seconds", READ, "how long minRowsPerTrigger may wait", 900.0),
    Option("maxRowsPerPartition", "count", READ, "a larger range is split into partitions, in order", 0,
           ("maxRecordsPerPartition",)),
    Option("minPartitions", "count", READ, "split ranges until there are so many partitions", 0, most=10_000),
    Option("cursor", "text", READ, "the name of this reader at the server, which keeps what it has not read", "",
           ("kafka.group.id", "group.id")),
    Option("cursorRetention", "seconds", READ, "how long messages are kept for the cursor; 0: the server's default",
           0.0),
    Option("cursorRetentionBytes", "bytes", READ, "how much each chain keeps for the cursor; 0: no limit", 0),
    Option("cursorExpiration", "seconds", READ, "an unused cursor is deleted after; 0: the server's default", 0.0),
    Option("exclusiveTime", "seconds", READ, "how long a silent stream keeps a subscription to itself", 60.0, least=5),
    Option("failOnDataLoss", "flag", BOTH, "fail when messages are gone before they were read; false: continue after"
           " them (a sink with `link`: record the gap)", True),
    Option("fetchBytes", "bytes", READ, "bytes of one frame from the server", 4 * MIB, ("kafka.fetch.max.bytes",),
           least=1024, most=16 * MIB),
    Option("prefetch", "count", READ, "frames read ahead by a thread of their own; 0: none", 1, most=16),
    Option("pushFilters", "flag", READ, "batch only: limits on source and offset in a `where` shorten the"
           " ranges; needs spark.sql.python.filterPushdown.enabled", False),
    Option("link", "text", WRITE, "a one-to-one copy of this name: nothing twice, no gap, also over lost checkpoints",
           ""),
    Option("via", "text", WRITE, "the name of the server the messages come from, added to what they have visited", ""),
    Option("here", "text", WRITE, "the name of the server written to: what came through it already is dropped", ""),
    Option("keepIdentity", "flag", WRITE, "keep message_id and publish_time of the rows; by default for a link", None),
    Option("batchQuery", "text", WRITE, "batch only: a name under which each batchEpoch is published once, however"
           " often it is written; epochs come in rising order", ""),
    Option("batchEpoch", "count", WRITE, "the number of this batch under batchQuery", 0),
    Option("stageBytes", "bytes", WRITE, "bytes of one frame to the server", 2 * MIB, least=1024, most=12 * MIB),
    Option("checkpointLocation", "text", WRITE, "Spark's own; a link reads the planned offsets there", ""),
    Option("queryName", "text", WRITE, "Spark's own", ""),
    Option("callSeconds", "seconds", BOTH, "how long one call, or the next frame, may take", 120.0, least=1),
    Option("patienceSeconds", "seconds", BOTH, "how long to go on trying while the server is unavailable", 60.0),
    Option("tls", "flag", BOTH, "encrypt; set by tls.ca and tls.cert", False),
    Option("tls.ca", "text", BOTH, "file with the authorities to trust; none: the system's", "",
           ("kafka.ssl.truststore.location",)),
    Option("tls.cert", "text", BOTH, "file with the client's certificate", "", ("kafka.ssl.keystore.location",)),
    Option("tls.key", "text", BOTH, "file with its key", "", ("kafka.ssl.key.location",)),
    Option("tls.serverName", "text", BOTH, "the name in the server's certificate; none: that of the endpoint", ""),
    Option("token.file", "text", BOTH, "file with a bearer token, sent with every call, for servers with --auth", ""),
    Option("token.env", "text", BOTH, "environment variable with a bearer token", ""),
    Option("token.command", "text", BOTH, "command that prints a bearer token, alone or as JSON with its expiry", ""),
)  # fmt: skip

_BY_NAME = {spelling.lower(): option for option in OPTIONS for spelling in (option.name, *option.aliases)}
_HINTS = {
    "path": "use the option `topic` or `subscription` instead of a path",
    "token": "a secret is never an option: name it with token.file, token.env or token.command",
    "password": "a secret is never an option: name it with token.file, token.env or token.command",
    "subscribepattern": "one reader reads one topic; unite several readers for several topics",
    "assign": "use startingPosition with offsets as JSON",
}
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class ServerAccess:
    """How to reach the server: names of files and variables only, so that it may travel to executors and be shown."""

    endpoints: tuple[str, ...]
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    token_file: str = ""
    token_env: str = ""
    token_command: str = ""
    call_seconds: float = 120.0
    patience_seconds: float = 60.0


class Options:
    """Options of one reader or writer by their canonical names: `options["maxRowsPerTrigger"]`. Raises OptionError."""

    def __init__(self, given: Mapping[str, str], where: str) -> None:
        self._values: dict[str, Any] = {option.name: option.default for option in OPTIONS}
        self._values["typed"] = None  # what the source puts there for `decode`
        self._spelled: dict[str, str] = {}
        for key, text in given.items():
            option = _BY_NAME.get(key.lower())
            if option is None:
                raise OptionError(_unknown(key))
            if option.where not in (where, BOTH):
                other = "readers" if where == WRITE else "writers"
                raise OptionError(f"The option {option.name} is for {other} only.")
            if option.name in self._spelled:
                raise OptionError(
                    f"The options {self._spelled[option.name]} and {key} mean the same; give one of them."
                )
            self._spelled[option.name] = key
            self._values[option.name] = _parsed(option, key, text)
        self.access = self._access()
        if self._values["topic"]:
            self._values["topic"] = self._full("topic", "topics")
        if self._values["subscription"]:
            self._values["subscription"] = self._full("subscription", "subscriptions")
        if self["flows"]:
            self._check_flows()
        elif where == READ and bool(self["topic"]) == bool(self["subscription"]):
            raise OptionError("Give one of the options topic and subscription: what is to be read.")

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def replaced(self, values: Mapping[str, Any]) -> Options:
        """Return a copy with some values replaced, such as those of one flow."""
        made = copy(self)
        made._values = {**self._values, **values}
        return made

    def given(self, name: str) -> bool:
        """Whether the option was set by the user."""
        return name in self._spelled

    def spelled(self, name: str) -> str:
        """The name under which the user gave it, in small letters; "" when not given."""
        return self._spelled.get(name, "").lower()

    def qualified(self, name: str, kind: str) -> str:
        """A resource's full name, completed with the option `project`. `kind`: topics, subscriptions, snapshots."""
        if name.startswith("projects/"):
            if name.count("/") != 3 or f"/{kind}/" not in name or name.endswith("/"):
                raise OptionError(f"{name!r} is not of the form projects/PROJECT/{kind}/NAME.")
            return name
        if not self["project"] or "/" in name:
            raise OptionError(f"{name!r} is not of the form projects/PROJECT/{kind}/NAME (or give the option project).")
        return f"projects/{self['project']}/{kind}/{name}"

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """The value of an option that has few. Raises OptionError."""
        found: str = self[name].lower()
        if found not in known:
            raise OptionError(f"The option {name} is {' or '.join(filter(None, known))}, not {self[name]!r}.")
        return found

    def _check_flows(self) -> None:
        for name in (
            "topic", "subscription", "startingPosition", "cursor", "minRowsPerTrigger", "link", "decode", "encode",
        ):  # fmt: skip
            if self.given(name):
                raise OptionError(f"The option {name} does not go with flows, whose file says it of each topic.")

    def _full(self, name: str, kind: str) -> str:
        text: str = self[name]
        if "," in text:
            raise OptionError(f"The option {name} takes one name; unite several readers for several topics.")
        return self.qualified(text, kind)

    def _access(self) -> ServerAccess:
        if not self["endpoint"]:
            raise OptionError("The option endpoint is missing: the host:port of a Syncpoint server.")
        if bool(self["tls.cert"]) != bool(self["tls.key"]):
            raise OptionError("Give tls.cert and tls.key together.")
        if sum(bool(self[name]) for name in ("token.file", "token.env", "token.command")) > 1:
            raise OptionError("Give one of token.file, token.env and token.command.")
        tls = self["tls"] or any(self[name] for name in ("tls.ca", "tls.cert", "tls.serverName"))
        if self.given("tls") and not self["tls"] and tls:
            raise OptionError("tls=false does not go with tls.ca, tls.cert and tls.serverName.")
        for endpoint in self["endpoint"]:
            _, colon, port = endpoint.rpartition(":")
            if not colon or not port.isdigit() or not 0 < int(port) < 65_536:
                raise OptionError(f"The option endpoint has {endpoint!r}, which is not of the form HOST:PORT.")
        return ServerAccess(
            tuple(dict.fromkeys(self["endpoint"])),
            tls=tls,
            ca=self["tls.ca"],
            cert=self["tls.cert"],
            key=self["tls.key"],
            server_name=self["tls.serverName"],
            token_file=self["token.file"],
            token_env=self["token.env"],
            token_command=self["token.command"],
            call_seconds=self["callSeconds"],
            patience_seconds=self["patienceSeconds"],
        )


def _unknown(key: str) -> str:
    hint = _HINTS.get(key.lower())
    if hint is None:
        near = difflib.get_close_matches(key.lower(), _BY_NAME, n=1, cutoff=0.6)
        known = ", ".join(option.name for option in OPTIONS)
        hint = f"did you mean {_BY_NAME[near[0]].name}?" if near else f"known are {known}"
    return f"The pubsub format has no option {key!r}: {hint}"


def _parsed(option: Option, key: str, text: str) -> Any:
    text = str(text).strip()
    if option.kind == "text":
        return text
    if option.kind == "names":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if option.kind == "flag":
        if text.lower() not in ("true", "false"):
            raise OptionError(f"The option {key} is true or false, not {text!r}.")
        return text.lower() == "true"
    if option.kind == "seconds":
        return _seconds(option, key, text)
    digits, factor = text, 1
    if option.kind == "bytes" and text[-1:].lower() in _SIZES:
        digits, factor = text[:-1], _SIZES[text[-1].lower()]
    if not digits.isdigit() or not option.least <= int(digits) * factor <= option.most:
        most = "" if option.most == Option.most else f" to {option.most}"
        raise OptionError(f"The option {key} is a whole number from {option.least}{most}, not {text!r}.")
    return int(digits) * factor


def _seconds(option: Option, key: str, text: str) -> float:
    number, factor = text, 1.0
    for unit, size in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)):
        if text.endswith(unit):
            number, factor = text.removesuffix(unit).strip(), size
            break
    try:
        seconds = float(number) * factor
    except ValueError:
        seconds = -1.0
    if not option.least <= seconds < 1e10:
        raise OptionError(f"The option {key} is a time such as 90, 500ms, 15m, from {option.least} s, not {text!r}.")
    return seconds
