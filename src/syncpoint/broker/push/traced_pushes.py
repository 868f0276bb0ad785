"""Pushes of a process that traces: a span of each push of a message that its publisher follows, and the context for
the endpoint to go on with.

Place: in the place of `push_driver.PushDriver` where there is a tracer.
Promise: what is pushed, and what becomes of it, is as without, but for the header `traceparent`.
"""

from __future__ import annotations

from typing import Any

from syncpoint.base.tracing.trace_context import ATTRIBUTE, span_context, traceparent
from syncpoint.base.tracing.tracer import PUBLISH, PUSH, AttributeValue, FinishedSpan, Tracer, named
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.broker.push.push_driver import ACKNOWLEDGED, PushDriver
from syncpoint.catalog.metadata.records import Subscription

HEADER = b"traceparent"


class TracedPushDriver(PushDriver):
    """A push driver that records spans."""

    def __init__(self, *args: Any, tracer: Tracer, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tracer = tracer

    async def post(self, lent: Lent, record: Subscription, endpoint: Endpoint, headers: Headers, body: bytes) -> int:
        context = traceparent(lent.message.attributes.get(ATTRIBUTE, ""))
        if context is None or not context.sampled:
            return await super().post(lent, record, endpoint, headers, body)
        span, parent = span_context(context, f"{PUSH} {lent.ack_id}"), span_context(context, PUBLISH)
        if all(name != HEADER for name, _ in headers):  # a publisher's own attribute may be one
            headers = [*headers, (HEADER, b"00-%032x-%016x-01" % span[:2])]
        attributes: dict[str, AttributeValue] = {
            **named(PUSH, record.name),
            "messaging.message.id": lent.message.message_id,
            "messaging.message.body.size": len(lent.message.data),
            "server.address": endpoint.host,
            "server.port": endpoint.port,
        }
        begun_ns, failure = self._tracer.clock.time_ns(), "it was given up"
        try:
            status = await super().post(lent, record, endpoint, headers, body)
            attributes["http.response.status_code"] = status
            failure = "" if status in ACKNOWLEDGED else f"the endpoint answered {status}"
            return status
        except Exception as error:
            failure = str(error)
            raise
        finally:
            name, ended_ns = f"{PUSH} {record.name.rpartition('/')[2]}", self._tracer.clock.time_ns()
            self._tracer.record(FinishedSpan(name, span, parent, begun_ns, ended_ns, attributes, failure=failure))
