"""A publisher at the edge: several endpoints, and a deadline for each message.

Place: in an application that stands between two regions, or in a branch, a factory, at a gate: where one region may be
out of reach while the other one is not. The regions copy to one another (all-active), so that consumers have it.
Promises: `publish` returns once a place has stored the message on its disks, or raises before the deadline has passed
by much, and names which places may have stored it; where to go is decided by `edge_route`. Each message has an identity
in the attribute sys.MessageId: a place that drops duplicates, and a receiver that keeps what it has seen, see through
one that was stored at two places.
Leaves to the caller: what to do when the deadline is missed; nothing is sent after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.client.client_options import PASSING
from syncpoint.client.edge_route import EdgeRoute, PlaceHealth
from syncpoint.client.loop_thread import LoopThread
from syncpoint.client.publishers import Shown, Tls
from syncpoint.client.service_link import Connecting, ServiceLink
from syncpoint.front.client.switching_receiver import MESSAGE_ID
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub


class EdgeDeadlineMissed(SyncpointError):
    """No place has confirmed in time that it stored the message. `in_doubt`: names of those that may have."""

    def __init__(self, deadline_s: float, in_doubt: Sequence[str], outcomes: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{name}: {text}" for name, text in outcomes.items()) or "no place answers"
        doubt = f" It may be stored at {', '.join(in_doubt)}." if in_doubt else " It is stored nowhere."
        super().__init__(Code.DEADLINE_EXCEEDED, f"Not stored within {deadline_s:g} s ({reasons}).{doubt}")
        self.in_doubt = list(in_doubt)


@dataclass(frozen=True, slots=True)
class EdgeReceipt:
    """Where a message is: `identity` is its sys.MessageId; `took_s` until it was known."""

    place: str
    message_id: str
    identity: str
    took_s: float


class EdgePublisher:
    """Publishes to one topic that all places have; from any thread; a context manager."""

    def __init__(
        self,
        places: Mapping[str, str],
        topic: str,
        *,
        deadline_s: float = 5.0,
        patience_s: float | None = None,
        tls: Tls | None = None,
        credentials: Shown | None = None,
    ) -> None:
        """`places`: HOST:PORT by name, most preferred first; `patience_s`: a place that has not answered for this long
        is not waited for alone (default: a quarter of the deadline). Raises `InvalidArgument`.
        """
        self._topic, self._deadline_s = topic, deadline_s
        self._patience_s = deadline_s / 4 if patience_s is None else patience_s
        self._health = PlaceHealth(list(places))
        connecting = {name: Connecting.of(one, tls=tls, credentials=credentials) for name, one in places.items()}
        self._sending: set[asyncio.Task[None]] = set()
        self._thread = LoopThread("syncpoint-edge")

        async def make() -> dict[str, ServiceLink]:
            return {name: ServiceLink(one) for name, one in connecting.items()}

        self._links = self._thread.run(make())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()

    def publish(
        self,
        data: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
        deadline_s: float | None = None,
    ) -> EdgeReceipt:
        """Store a message at one of the places. Raises `EdgeDeadlineMissed`, or what every place would refuse it with.

        An attribute sys.MessageId that is given stays; give the same one to publish a message again.
        """
        named = {MESSAGE_ID: str(uuid.uuid4()), **(attributes or {})}
        request = pubsub.PublishRequest(topic=self._topic)
        request.messages.add(data=data, attributes=named, ordering_key=ordering_key)
        message = request.SerializeToString()
        return self._thread.run(self._publish(message, named[MESSAGE_ID], deadline_s or self._deadline_s))

    async def _publish(self, message: bytes, identity: str, deadline_s: float) -> EdgeReceipt:
        begun_s = time.monotonic()
        route = EdgeRoute(self._health, begun_s, begun_s + deadline_s, min(self._patience_s, deadline_s))
        news: asyncio.Queue[tuple[str, str | SyncpointError]] = asyncio.Queue()
        outcomes: dict[str, str] = {}
        while (now_s := time.monotonic()) < begun_s + deadline_s:
            for name in route.sends(now_s):
                task = asyncio.create_task(self._send(name, message, begun_s + deadline_s - now_s, news))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            try:
                async with asyncio.timeout(max(0.0, route.wake_s - time.monotonic())):
                    name, outcome = await news.get()
            except TimeoutError:
                continue
            now_s = time.monotonic()
            if isinstance(outcome, str):
                route.answered(name)
                return EdgeReceipt(name, outcome, identity, now_s - begun_s)
            outcomes[name] = outcome.message
            certain = isinstance(outcome, Unprocessed) or outcome.code not in PASSING
            if not route.refused(name, outcome.code, now_s, in_doubt=not certain):
                raise outcome
        raise EdgeDeadlineMissed(deadline_s, route.in_doubt, outcomes)

    async def _send(
        self, name: str, message: bytes, timeout_s: float, news: asyncio.Queue[tuple[str, str | SyncpointError]]
    ) -> None:
        """Once it is under way it goes to its end, though another place may have been quicker."""
        path = methods.PUBLISHER.Publish
        try:
            answer = await self._links[name].call(path, message, timeout_s)
        except SyncpointError as error:
            news.put_nowait((name, error))
        else:
            news.put_nowait((name, path.response.FromString(answer).message_ids[0]))

    async def _close(self) -> None:
        for task in self._sending:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._sending, return_exceptions=True)
        for link in self._links.values():
            await link.close()
