"""Publishes of topics that live at two sites: sent to both at once, answered by the policy of the file.

Place: in front of the two links; `dual_publish` decides. Promise: the requests of one key reach each site in the order
in which they came here. What is under way when its publisher is answered goes on until the other site has it, or is
left; what a site then lacks is brought by `site_fill`.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Final

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Code, SyncpointError, not_a
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.gateway.caller_bounds import caller_of
from syncpoint.front.gateway.dual_identities import BOTH_MAX, KnownIdentities, in_topic
from syncpoint.front.gateway.dual_publish import OWN, AnswerWhen, Doubts, DualPublish, stamped
from syncpoint.front.gateway.gateway_file import DualTopics
from syncpoint.front.gateway.unary_calls import UnaryCalls, left_s, passed_on
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.front.proxy.retrying import PAUSES_S
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Call
from syncpoint.wire.transport.client import MetadataItems

ATTEMPT_S: Final = 10.0  # of one attempt at one site; one that hangs is left before
TOPIC_BYTES_MAX: Final = 1_024  # of names whose pattern is remembered
BEHIND_BYTES_MAX: Final = 64 << 20
FOLLOW_S: Final = 60.0  # for a site to get what its publisher was answered for


def fresh_identity() -> str:
    """An identity that nothing else has."""
    return os.urandom(12).hex()


class DualPublisher:
    """All publishes of dual topics. `ready(topic)`: once both sites drop duplicates of it; raises what the publisher
    reads.
    """

    def __init__(
        self, patterns: Sequence[DualTopics], calls: UnaryCalls, ready: Callable[[str], Awaitable[None]]
    ) -> None:
        self._patterns, self._calls, self._ready = patterns, calls, ready
        self._answers: dict[str, AnswerWhen | None] = {}
        self._doubts = Doubts()
        self._keys: dict[tuple[str, str, str], asyncio.Future[None]] = {}
        self._sending = dict.fromkeys(calls.links, 0)  # bytes
        self._tasks = Tasks()
        self.flying: set[str] = set()
        """Identities of what is under way, at any site."""
        self.both = KnownIdentities(BOTH_MAX)
        """What is certainly at both sites; without what publishers gave an identity, which may be of two messages."""
        self.published = self.repeated = self.alone = 0

    def answer_of(self, topic: str) -> AnswerWhen | None:
        """What publishers of a topic wait for; None: it is not one of two sites."""
        if len(topic) > TOPIC_BYTES_MAX:
            return None  # no site has one; nothing is kept of it
        if topic not in self._answers:
            if len(self._answers) >= 100_000:
                self._answers.clear()
            found = next((one.answer for one in self._patterns if fnmatch.fnmatchcase(topic, one.topics)), None)
            self._answers[topic] = None if found is None else AnswerWhen(found)
        return self._answers[topic]

    async def publish(self, call: Call, request: bytes) -> bytes:
        """Store messages at both sites, or, of a topic of one site, at the home. Raises what the publisher reads."""
        try:
            topic = split.route_of(request)[0].decode()
        except Malformed:
            raise not_a("PublishRequest") from None
        answer = self.answer_of(topic)
        if answer is None:
            return await self._calls.publish(call, request)
        with ExitStack() as counted:
            counted.enter_context(self._calls.bounds.sending(call, len(request)))
            await self._prepare(call, topic)
            return await self._publish(call, request, answer, counted)

    async def _prepare(self, call: Call, topic: str) -> None:
        """The gateway looks with rights of its own: who may not publish reads that, and not what it has seen."""
        try:
            await self._ready(topic)
        except SyncpointError as error:
            nothing = pubsub.PublishRequest(topic=topic).SerializeToString()  # no site stores it
            try:
                await self._calls.at_home(call, methods.PUBLISHER.Publish, nothing)
            except SyncpointError as refused:
                if refused.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
                    raise refused from None
            raise error from None

    async def _publish(self, call: Call, request: bytes, answer: AnswerWhen, counted: ExitStack) -> bytes:
        """`counted`: the caller's share. What goes on after the caller has given up still takes of it."""
        loop = asyncio.get_running_loop()
        name = self._doubts.name(caller_of(call), request)
        known = self._doubts.take(name)
        self.repeated += bool(known)
        data, given, topic, key = stamped(request, fresh_identity, known)
        sites = self._calls.board.open_sites()
        if answer is AnswerWhen.AVAILABLE:  # a slow site must not fill the memory with what was answered long ago
            sites = [site for site in sites if self._sending[site] < BEHIND_BYTES_MAX] or sites[:1]
        one = DualPublish(sites, answer)
        answered: asyncio.Future[None] = loop.create_future()
        self.published += 1
        self.flying.update(given)
        sending = [
            self._tasks.start(self._send(one, site, data, (topic, key), passed_on(call), answered))
            for site in one.begin()
        ]
        finishing = self._tasks.start(self._finish(one, sending, given, topic))

        def doubt() -> None:
            self._doubts.note(name, given, loop.time())
            share = counted.pop_all()
            finishing.add_done_callback(lambda task: share.close())

        try:
            async with asyncio.timeout(left_s(call)):
                if one.outcome is None:
                    await answered
        except TimeoutError:
            one.expire()
        except asyncio.CancelledError:
            doubt()
            raise
        assert one.outcome is not None
        if isinstance(one.outcome, SyncpointError):
            doubt()
            raise one.outcome
        return one.outcome

    async def _send(
        self,
        one: DualPublish,
        site: str,
        data: bytes,
        place: tuple[str, str],
        metadata: MetadataItems,
        answered: asyncio.Future[None],
    ) -> None:
        """Bring it to one site, after what came before of its key."""
        loop, link = asyncio.get_running_loop(), self._calls.links[site]
        turn: asyncio.Future[None] | None = None
        if place[1]:
            before = self._keys.get((site, *place))
            turn = self._keys[(site, *place)] = loop.create_future()
            if before is not None:
                await asyncio.wait((before,))
        self._sending[site] += len(data)
        until, pauses = loop.time() + FOLLOW_S, 0
        try:
            while site in one.pending:
                if not self._calls.board.is_open(site):
                    one.leave(site)
                    break
                try:
                    one.confirmed(site, await link.unary(methods.PUBLISHER.Publish, data, metadata, ATTEMPT_S))
                except SyncpointError as error:
                    if error.code in MOVABLE:
                        link.failed += 1
                        self._calls.on_lost(site)
                    if not self._calls.board.is_open(site) or loop.time() > until:
                        one.leave(site)
                    elif one.failed(site, error):
                        await asyncio.sleep(PAUSES_S[min(pauses, len(PAUSES_S) - 1)])
                        pauses += 1
                if one.outcome is not None and not answered.done():
                    answered.set_result(None)
        finally:
            self._sending[site] -= len(data)
            if turn is not None:
                turn.set_result(None)
                if self._keys.get((site, *place)) is turn:
                    del self._keys[(site, *place)]
            if one.outcome is not None and not answered.done():
                answered.set_result(None)

    async def _finish(self, one: DualPublish, sending: list[asyncio.Task[None]], given: list[str], topic: str) -> None:
        await asyncio.gather(*sending, return_exceptions=True)
        self.flying.difference_update(given)
        if len(one.stored) > 1:
            for identity in given:
                if identity.startswith(OWN):
                    self.both.add(in_topic(identity, topic), 0.0)
        elif one.stored:
            self.alone += 1

    async def close(self) -> None:
        """Leave nothing running."""
        await self._tasks.stop()
