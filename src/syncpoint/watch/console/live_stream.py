"""The live stream: what a page of the console watches, each second what has changed of it (Server-Sent Events).

Place: a page of the console, on a connection of its own for as long as the page is open.
Promise: every second at most one event; a method that takes longer is asked again when it has answered, and no sooner.
A browser that does not read is not written for: the connection holds one event at most, until it is given up. What the
caller may not see is reported once and not asked for again. Ends when the server stops.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import StreamingResponse

from syncpoint.base.model.errors import Code, InvalidArgument, ResourceExhausted, SyncpointError
from syncpoint.broker.publish.facts.project_room import is_fair
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.watch.console.inner_calls import called
from syncpoint.watch.console.watches import RATES_PERMISSION, LiveWatch, counters_in, watch_of
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.wire.rest.app import caller_of
from syncpoint.wire.rest.http1 import LEAVING
from syncpoint.wire.transport.calls import Methods

PERIOD_S: Final = 1.0
ANSWER_S: Final = 5.0
STREAMS_MAX: Final = 64  # of one port; a caller that has some gets more only while as many are left to others
ANONYMOUS_STREAMS_MAX: Final = 8  # of all who show no credentials, where callers are identified
WATCHES_MAX: Final = 50
ANONYMOUS: Final = ""
ALONE: Final = "*"  # any caller, where callers are not identified
_FINAL: Final = (Code.PERMISSION_DENIED, Code.UNAUTHENTICATED, Code.NOT_FOUND, Code.UNIMPLEMENTED)
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-accel-buffering": "no"}


class LiveStreams:
    """The streams of one port. `methods`: with their gate."""

    def __init__(self, methods: Methods, metrics: MetricsText, gate: Gate | None) -> None:
        self._open: Counter[str] = Counter()  # by who watches
        self._methods, self._metrics, self._gate = methods, metrics, gate

    def answer(self, request: Request) -> StreamingResponse:
        """A stream of what the query names. Raises `SyncpointError`."""
        names = list(dict.fromkeys(request.query_params.getlist("watch")))
        if not names or len(names) > WATCHES_MAX:
            raise InvalidArgument("watch", f"Name 1 to {WATCHES_MAX} things to watch: ?watch=server&watch=disks")
        watches = [watch_of(name) for name in names]
        who = self._who(request)
        self._check_room(who)
        events = self._events(request, watches, who)
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)

    @property
    def open(self) -> int:
        """How many there are."""
        return self._open.total()

    def _who(self, request: Request) -> str:
        """Whose streams count together; all who show no credentials are one."""
        if self._gate is None:
            return ALONE
        return self._gate.tenant_of(caller_of(request.scope, request.url.path)) or ANONYMOUS

    def _check_room(self, who: str) -> None:
        had = self._open[who]
        if who == ALONE:
            fits = had < STREAMS_MAX
        else:
            fits = is_fair(had, self.open, 1, STREAMS_MAX) and (who != ANONYMOUS or had < ANONYMOUS_STREAMS_MAX)
        if not fits:
            raise ResourceExhausted(
                f"{self.open} pages already watch this server, {had} of them yours. Close one, or use another server."
            )

    async def _events(self, request: Request, watches: Sequence[LiveWatch], who: str) -> AsyncIterator[bytes]:
        leaving: asyncio.Event = request.scope["extensions"][LEAVING]
        loop = asyncio.get_running_loop()
        sent: dict[str, Any] = {}
        left = list(watches)
        self._open[who] += 1
        try:
            while left and not leaving.is_set():
                began = loop.time()
                answers = await asyncio.gather(*(self._look(request, one) for one in left))
                changed: dict[str, Any] = {}
                failed: dict[str, Any] = {}
                for watch, answer in zip(list(left), answers, strict=True):
                    key = watch.name
                    if isinstance(answer, SyncpointError):
                        failed[key] = {"code": answer.code.name, "message": str(answer)}
                        if answer.code in _FINAL:
                            left.remove(watch)
                    elif sent.get(key) != answer:
                        changed[key] = sent[key] = answer
                yield _event({"changed": changed, "failed": failed})
                try:
                    async with asyncio.timeout_at(began + PERIOD_S):
                        await leaving.wait()
                except TimeoutError:
                    continue
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    async def _look(self, request: Request, watch: LiveWatch) -> Any:
        """What is there now, as plain values; or the reason why they are unknown."""
        try:
            if watch.method is not None and watch.request is not None:
                if watch.method.encode() not in self._methods:
                    return SyncpointError(Code.UNIMPLEMENTED, f"This server has no method {watch.method}.")
                found = await called(self._methods, watch.method, watch.request, request, ANSWER_S)
                return json_format.MessageToDict(found)
            if self._gate is not None:
                self._gate.check_page(caller_of(request.scope, request.url.path), RATES_PERMISSION, SERVER)
            return counters_in(await self._metrics.text())
        except SyncpointError as error:
            return error


def _event(content: Any) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
