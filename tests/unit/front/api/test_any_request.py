"""Every method with any request: never INTERNAL or UNKNOWN, always an answer, and exactly the change that it says.

A server in memory and a plain model of resources live the same lives; all that lists show is compared after each call.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.testing.rigs.servicer_harness import ServicerHarness
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.any_request import AVRO, PROJECTS, Drawing
from tests.kit.examples import examples
from tests.kit.resource_model import EXPORTS, ResourceModel, queue_part

pytestmark = pytest.mark.shows("methods")

FULL = 2  # SchemaView
SERVICES = (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM, methods.ADMIN)
ANSWER_S = 40.0  # a pull may wait for half a minute
NEVER = {Code.INTERNAL, Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.DATA_LOSS, Code.CANCELLED, Code.UNAVAILABLE}
NOT_STARTED = "the process that runs functions did not start"  # the clock of a test need not wait for it
LISTS = {
    methods.PUBLISHER.ListTopics: "topics",
    methods.SUBSCRIBER.ListSubscriptions: "subscriptions",
    methods.SUBSCRIBER.ListSnapshots: "snapshots",
}
#: Resources come into being more often than others change them.
OFTEN = ["CreateTopic", "CreateSubscription", "CreateSnapshot", "CreateSchema", "UpdateTopic", "UpdateSubscription",
         "UpdateSnapshot", "CommitSchema", "Publish", "Pull", "StreamingPull"]  # fmt: skip


class Harness(ServicerHarness):
    """One that compiles a definition once, well or in vain: that takes a process of its own."""

    _known: ClassVar[dict[str, bytes | SyncpointError]] = {}

    def compiler(self, text: str) -> bytes:
        if text not in self._known:
            try:
                self._known[text] = compile_proto(text)
            except SyncpointError as error:
                self._known[text] = error
        known = self._known[text]
        if isinstance(known, SyncpointError):
            raise known
        return known


class Life:
    """A server, and the model beside it."""

    def __init__(self, harness: ServicerHarness) -> None:
        self.harness, self.model = harness, ResourceModel()
        self.channel = harness.channel
        self.methods = {one.descriptor.name: one for service in SERVICES for one in service}
        self.ack_ids: list[str] = []
        self.revisions: list[str] = []

    async def call(self, path: methods.Method, request: bytes) -> Any:
        return path.response.FromString(await self.channel.unary(path, request, timeout=ANSWER_S))

    async def begin(self) -> None:
        """Something that requests meet."""
        topic, name = "projects/p/topics/orders", "projects/p/subscriptions/billing"
        avro = {"type": 2, "definition": AVRO[0]}
        for method, fields in (
            ("CreateTopic", {"name": topic}),
            ("CreateTopic", {"name": "projects/p/topics/bills"}),
            ("CreateSubscription", {"name": name, "topic": topic}),
            ("CreateSnapshot", {"name": "projects/p/snapshots/first", "subscription": name}),
            ("CreateSchema", {"parent": "projects/p", "schema_id": "record", "schema": avro}),
        ):
            path = self.methods[method]
            await self.unary(method, path, path.request(**fields).SerializeToString())

    async def step(self, name: str, seed: int) -> None:
        path, drawing = self.methods[name], Drawing(seed, self.ack_ids, self.revisions)
        if path.encode() not in self.harness.table:
            return  # of clusters only
        if path.is_streaming:
            await self.stream(path, drawing)
        else:
            await self.unary(name, path, drawing.request(path))
        await self.compare()

    async def unary(self, name: str, path: methods.Method, request: bytes) -> None:
        try:
            answer = await self.call(path, request)
        except SyncpointError as error:
            self.refused(name, path, request, error)
            return
        asked = path.request.FromString(request)
        self.model.applied(name, asked, answer)
        if name == "Pull":
            self.ack_ids = [*self.ack_ids, *(one.ack_id for one in answer.received_messages)][-20:]
        if name in ("CreateSchema", "CommitSchema", "RollbackSchema"):
            self.revisions = [*self.revisions, f"{answer.name.partition('@')[0]}@{answer.revision_id}"][-8:]
        if name.startswith(("Get", "Update", "Create")) and path.startswith("/google.pubsub"):
            await self.compare_one(answer)

    def refused(self, name: str, path: methods.Method, request: bytes, error: SyncpointError) -> None:
        if error.code is Code.UNAVAILABLE and NOT_STARTED in error.message:
            return
        assert error.code not in NEVER, f"{name}: {error}"
        assert error.message, name
        try:
            asked = path.request.FromString(request)
        except DecodeError:
            assert error.code is Code.INVALID_ARGUMENT
            return
        if error.code is Code.ALREADY_EXISTS and name == "CreateQueue":
            assert self.model.exists(asked.topic.name) or self.model.exists(queue_part(asked.topic.name))
        elif error.code is Code.ALREADY_EXISTS:
            assert self.model.exists(getattr(asked, "name", "") or f"{asked.parent}/schemas/{asked.schema_id}") or (
                name == "CreateSchema" and self.model.exists(asked.schema.name)
            )
        if error.code is Code.NOT_FOUND and "(resource=" in error.message:
            missing = error.message.partition("(resource=")[2].rpartition(")")[0]
            assert not self.model.exists(missing), f"{name}: {error}"

    async def stream(self, path: methods.Method, drawing: Drawing) -> None:
        """Some requests, then a half-close: it ends well, or with what clients take for final."""
        stream, ends = self.channel.stream(path), {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}
        try:
            async with asyncio.timeout(ANSWER_S):
                for later in range(drawing.random.randrange(1, 4)):
                    message = drawing.message(path.request)
                    if later and not drawing.wild:
                        for field in ("subscription", "client_id", "protocol_version", "max_outstanding_messages"):
                            message.ClearField(field)
                    await stream.send(message.SerializeToString())
                await stream.end()
                while (response := await stream.receive()) is not None:
                    assert pubsub.StreamingPullResponse.FromString(response).HasField("subscription_properties")
        except SyncpointError as error:
            if error.code not in ends:
                raise
        finally:
            stream.cancel()

    async def listed(self, path: methods.Method, size: int, **scope: str) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            request = path.request(page_size=size, page_token=token, **scope)
            answer = await self.call(path, request.SerializeToString())
            (items,) = [value for field, value in answer.ListFields() if field.is_repeated] or [[]]
            assert len(items) <= size
            found += items
            assert answer.next_page_token != token or not token, "the next page is the same"
            token = answer.next_page_token
            if not token:
                return found

    async def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for project in {*PROJECTS, *("/".join(name.split("/", 2)[:2]) for name in self.model.shown())}:
            for path in LISTS:
                found |= {one.name: one for one in await self.listed(path, 3, project=project)}
            request = pubsub.ListSchemasRequest(parent=project, view=FULL)
            answer = await self.call(methods.SCHEMAS.ListSchemas, request.SerializeToString())
            found |= {one.name: (one.type, one.definition, one.revision_id) for one in answer.schemas}
        return found

    async def compare(self) -> None:
        there, expected = await self.shown(), self.model.shown()
        for name, message in there.items():
            _take_own(message, expected.get(name))
        assert there == expected

    async def compare_one(self, answer: Any) -> None:
        expected = self.model.shown().get(getattr(answer, "name", ""))
        if expected is not None and not isinstance(expected, tuple):
            _take_own(answer, expected)
            assert answer == expected

    async def compare_of_topics(self) -> None:
        for name in self.model.topics:
            for path, expected in (
                (methods.PUBLISHER.ListTopicSubscriptions, self.model.attached(name)),
                (methods.PUBLISHER.ListTopicSnapshots, self.model.snapshots_of(name)),
            ):
                assert await self.listed(path, 1, topic=name) == expected


def _take_own(shown: Any, expected: Any) -> None:
    """What a server fills in where messages come from or go to is its own, and whether that works."""
    if isinstance(expected, pubsub.Subscription) and expected.push_config.push_endpoint:
        assert shown.push_config.push_endpoint == expected.push_config.push_endpoint
        expected.push_config.CopyFrom(shown.push_config)
    if isinstance(expected, (pubsub.Topic, pubsub.Subscription)):
        for field in (*EXPORTS, "ingestion_data_source_settings"):
            if field in expected.DESCRIPTOR.fields_by_name and expected.HasField(field):
                assert shown.HasField(field)
                getattr(expected, field).CopyFrom(getattr(shown, field))
                expected.state = shown.state


def live(calls: list[tuple[str, int]]) -> None:
    clock = ManualClock()

    async def run() -> None:
        harness = Harness(clock)
        try:
            life = Life(harness)
            for name in ("DeleteSubscription", "DeleteTopic"):  # the harness begins with one of each
                await harness.call(
                    name, **{name[6:].lower(): getattr(harness.record, "name" if "Sub" in name else "topic_name")}
                )
            await life.begin()
            for name, seed in calls:
                await life.step(name, seed)
            await life.compare_of_topics()
        finally:
            await harness.close()

    run_simulated(clock, run())


NAMES = sorted(one.descriptor.name for service in SERVICES for one in service)
CALLS = st.tuples(st.sampled_from(OFTEN * 3 + NAMES), st.integers(0, 1 << 30))


@settings(
    max_examples=examples(80),
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),  # what fails is shown as it is: to shrink it takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(CALLS, min_size=30, max_size=60))
def test_any_request_is_answered_and_changes_what_it_says(calls: list[tuple[str, int]]) -> None:
    live(calls)
