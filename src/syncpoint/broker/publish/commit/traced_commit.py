"""The group commit of a process that traces: how long messages that a client follows took to be persisted.

Place: in the place of `commit.GroupCommit` where there is a tracer, see `forwarder`.
Promise: what is written, and who is answered when, is as without. A request's messages are looked through at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.base.tracing.trace_context import TraceContext, found, span_context
from syncpoint.base.tracing.tracer import MESSAGES_MAX, PERSIST, PUBLISH, FinishedSpan, Tracer, named
from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller
from syncpoint.broker.publish.commit.commit import GroupCommit, Later, Soon
from syncpoint.broker.publish.facts.source import Source
from syncpoint.log.storage.store import Store


class TracedCommit(GroupCommit):
    """A group commit that records spans.

    `topic_name`: the full name of the topic with this incarnation, "" if it no longer exists.
    """

    def __init__(
        self,
        store: Store,
        clock: TrustedClock,
        admission: Admission,
        soon: Soon,
        later: Later,
        tracer: Tracer,
        topic_name: Callable[[int], str],
    ) -> None:
        super().__init__(store, clock, admission, soon, later)
        self._tracer, self._topic_name = tracer, topic_name

    def add(
        self,
        source: Source,
        count: int,
        payload: bytes,
        caller: PublishCaller,
        response: bytes,
        notes: Iterable[Callable[[], object]] = (),
        requests: int = 1,
    ) -> None:
        contexts = found(payload, MESSAGES_MAX)
        if contexts:
            caller = _followed(caller, self._persisted(source, contexts, count, len(payload)))
        super().add(source, count, payload, caller, response, notes, requests)

    def _persisted(self, source: Source, contexts: list[TraceContext], count: int, size: int) -> Callable[[str], None]:
        """What records the spans once it is known what became of a request, given why it failed or ""."""
        begun_ns, topic = self._tracer.clock.time_ns(), self._topic_name(source.topic)

        def over(failure: str) -> None:
            ended_ns = self._tracer.clock.time_ns()
            disks = [one.path for one in self.store.status().disks if one.state == "ok"]
            attributes = {
                **named(PERSIST, topic),
                "messaging.batch.message_count": count,
                "messaging.message.envelope.size": size,
                "syncpoint.log": self.store.log_counter,
                "syncpoint.source": source.number,
                "syncpoint.disks": ",".join(disks),
            }
            for context in contexts:
                span, parent = span_context(context, PERSIST), span_context(context, PUBLISH)
                name = f"{PERSIST} {topic.rpartition('/')[2]}"
                self._tracer.record(FinishedSpan(name, span, parent, begun_ns, ended_ns, attributes, failure=failure))

        return over


def _followed(caller: PublishCaller, over: Callable[[str], None]) -> PublishCaller:
    """The caller of a publish whose messages are traced."""

    def reply(response: bytes) -> None:
        over("")
        caller.reply(response)

    def fail(error: SyncpointError) -> None:
        over(str(error))
        caller.fail(error)

    return FunctionCaller(reply, fail)
