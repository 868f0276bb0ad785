"""The clients of this process: open streams of subscribers, and who pulled or published in the last minute.

Place: around the methods that clients call, of a node or a proxy, after the gate, so that nobody is noted whom it
refuses; answers `internal.v1.Process/ListClients`.
Promise: of a stream two things are noted when it opens, and nothing per message. A connection that pulls or publishes
is noted once a second for each name; between, a call costs one look into a dict of its connection. Memory is bounded:
of connections the newest `KEPT_MAX` of each kind are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.publish import topic_of
from syncpoint.base.runtime.clock import Clock
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Streaming, StreamingCall, Unary

RECENT_S: Final = 60.0
KEPT_MAX: Final = 10_000
STREAM_NAME: Final = b"syncpoint-stream"
"""Metadata that a proxy opens a stream with at a subscribe forwarder: what it calls it."""
_EVERY_S: Final = 1.0
_NAME_CHARS_MAX: Final = 1024
_NOTED_MAX: Final = 1000
_HEADER_BYTES_MAX: Final = 300


class OpenPull(NamedTuple):
    """A streaming pull of a client. `first`: its first request; `stream`: what it is called where it is served."""

    call: StreamingCall
    first: pubsub.StreamingPullRequest
    stream: str


class _Opened(NamedTuple):
    """What is noted of a stream."""

    time_ns: int
    principal: str


class _Caller:
    """A connection that calls for one name."""

    __slots__ = ("facts", "last", "last_ns")

    def __init__(self, facts: admin.ConnectedClient) -> None:
        self.facts = facts
        self.last, self.last_ns = 0.0, 0


class _Callers:
    """Connections that call one method, by peer and name, the ones that called last at the end."""

    def __init__(self, kind: int, clock: Clock) -> None:
        self._kind, self._clock = kind, clock
        self._known: dict[tuple[str, str], _Caller] = {}

    def note(self, who: Callable[[CallContext], str], call: Call, name: str) -> None:
        """A call for a name that is not in `call.noted`, or no longer."""
        if len(name) > _NAME_CHARS_MAX:
            return
        if len(call.noted) >= _NOTED_MAX:
            call.noted.clear()
        call.noted[name] = call.began + _EVERY_S
        key, now = (call.peer, name), self._clock.monotonic()
        self._forget(now)
        caller = self._known.pop(key, None)
        time_ns = self._clock.time_ns()
        if caller is None:
            caller = _Caller(_facts(self._kind, call, time_ns))
        caller.facts.principal = who(call)  # a connection may carry calls of several
        caller.last, caller.last_ns = now, time_ns
        self._known[key] = caller

    def of(self, name: str) -> list[admin.ConnectedClient]:
        """Those of a topic or a subscription, the newest first."""
        self._forget(self._clock.monotonic())
        found = []
        for (_, named), caller in reversed(self._known.items()):
            if named == name:
                caller.facts.last_call_time.FromNanoseconds(caller.last_ns)
                found.append(caller.facts)
        return found

    def _forget(self, now: float) -> None:
        """Who has been silent for long, and who is too many."""
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) <= KEPT_MAX and self._known[oldest].last > now - RECENT_S:
                break
            del self._known[oldest]


def _nobody(call: CallContext) -> str:
    """Where callers are not identified."""
    return ""


class ConnectedClients:
    """Track the clients of this process.

    `process`: its name; `open_pulls`: returns a subscription's open streams in this process.
    """

    def __init__(
        self,
        process: str,
        clock: Clock,
        open_pulls: Callable[[str], Iterable[OpenPull]],
        who: Callable[[CallContext], str] | None = None,
    ) -> None:
        self._process, self._clock, self._open_pulls = process, clock, open_pulls
        self._who = who or _nobody
        self._pulls = _Callers(admin.ConnectedClient.PULL, clock)
        self._publishers = _Callers(admin.ConnectedClient.PUBLISHER, clock)
        self._opened: dict[StreamingCall, _Opened] = {}
        self._prune_at = KEPT_MAX

    def noted(self, table: Methods) -> Methods:
        """Wrap methods so that pulling clients are recorded. Publishing calls `note_publisher` directly."""
        found = dict(table)
        path = methods.SUBSCRIBER.Pull
        unary = table[path.encode()]
        assert isinstance(unary, Unary)
        found[path.encode()] = unary.guarded_by(partial(self._pull, unary.handler))
        path = methods.SUBSCRIBER.StreamingPull
        streaming = table[path.encode()]
        assert isinstance(streaming, Streaming)
        found[path.encode()] = replace(streaming, handler=partial(self._open, streaming.handler))
        return found

    def note_publisher(self, call: Call, topic: str) -> None:
        """A publish to a topic, by its name, that is not in `call.noted`, or no longer."""
        self._publishers.note(self._who, call, topic)

    def _pull(self, handler: Callable[[Call, bytes], None], call: Call, request: bytes) -> None:
        with suppress(Malformed, UnicodeDecodeError):  # the method reports what is wrong with it
            name = topic_of(request).decode()
            if call.noted.get(name, 0.0) <= call.began:
                self._pulls.note(self._who, call, name)
        handler(call, request)

    async def answer(self, asked: internal.ClientsRequest) -> internal.ClientsResponse:
        """ListClients."""
        found = internal.ClientsResponse()
        if asked.subscription:
            streams = [one for one in self._open_pulls(asked.subscription) if one.call in self._opened]
            for one in sorted(streams, key=lambda one: self._opened[one.call].time_ns)[: asked.clients_max]:
                found.clients.add(client=self._stream_facts(one), stream=one.stream)
            total, others = len(streams), self._pulls.of(asked.subscription)
        else:
            total, others = 0, self._publishers.of(asked.topic)
        for facts in others[: asked.clients_max - len(found.clients)]:
            found.clients.add(client=facts)
        for seen in found.clients:
            seen.client.process = self._process
        found.more = total + len(others) - len(found.clients)
        return found

    def _open(self, handler: Callable[[StreamingCall], None], call: StreamingCall) -> None:
        if len(self._opened) >= self._prune_at:
            self._opened = {one: opened for one, opened in self._opened.items() if not one.over}
            self._prune_at = max(KEPT_MAX, 2 * len(self._opened))
        self._opened[call] = _Opened(self._clock.time_ns(), self._who(call))
        handler(call)

    def _stream_facts(self, one: OpenPull) -> admin.ConnectedClient:
        opened = self._opened[one.call]
        facts = _facts(admin.ConnectedClient.STREAM, one.call, opened.time_ns)
        facts.principal, facts.client_id = opened.principal, one.first.client_id[:_HEADER_BYTES_MAX]
        facts.max_outstanding_messages = max(0, one.first.max_outstanding_messages)
        facts.max_outstanding_bytes = max(0, one.first.max_outstanding_bytes)
        return facts


def _facts(kind: int, call: CallContext, time_ns: int) -> admin.ConnectedClient:
    facts = admin.ConnectedClient(
        kind=kind,
        peer=call.peer,
        user_agent=_header(call, b"user-agent"),
        api_client=_header(call, b"x-goog-api-client"),
    )
    facts.connect_time.FromNanoseconds(time_ns)
    return facts


def _header(call: CallContext, name: bytes) -> str:
    return call.metadata.get(name, b"")[:_HEADER_BYTES_MAX].decode("utf-8", "replace")
