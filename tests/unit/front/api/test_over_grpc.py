"""The administrative methods, health and reflection as official clients meet them: over a socket, through gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.protobuf import descriptor_pool, field_mask_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.reflection import reflection_methods
from syncpoint.wire.transport.server import serve

T, S = "projects/p/topics/t-1", "projects/p/subscriptions/s-1"


def against_server(plane: Any, work: Callable[[str], None]) -> None:
    """Run blocking client code in a thread beside a server in this one."""

    async def run() -> None:
        methods = {
            **CatalogService(plane).methods(),
            **HealthService().methods(),
            **reflection_methods(),
        }
        server = await serve(methods)
        try:
            await asyncio.to_thread(work, f"127.0.0.1:{server.port}")
        finally:
            await server.close()

    asyncio.run(run())


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda endpoint: monkeypatch.setenv("PUBSUB_EMULATOR_HOST", endpoint)


def test_the_official_clients_manage_topics_and_subscriptions(plane: Any, emulated: Callable[[str], None]) -> None:
    def work(endpoint: str) -> None:
        emulated(endpoint)
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        with subscriber:
            publisher.create_topic(request={"name": T, "labels": {"a": "b"}})
            with pytest.raises(exceptions.AlreadyExists):
                publisher.create_topic(request={"name": T})
            with pytest.raises(exceptions.NotFound, match="Resource not found"):
                publisher.get_topic(request={"topic": "projects/p/topics/none"})
            with pytest.raises(exceptions.InvalidArgument, match=r"Invalid \[topics\] name"):
                publisher.create_topic(request={"name": "projects/p/topics/ab"})
            made = subscriber.create_subscription(
                request={"name": S, "topic": T, "filter": 'attributes.a = "é"', "enable_message_ordering": True}
            )
            assert (made.ack_deadline_seconds, made.enable_message_ordering) == (10, True)
            mask = field_mask_pb2.FieldMask(paths=["ack_deadline_seconds"])
            changed = subscriber.update_subscription(
                request={"subscription": {"name": S, "ack_deadline_seconds": 42}, "update_mask": mask}
            )
            assert changed.ack_deadline_seconds == 42
            for i in range(25):
                publisher.create_topic(request={"name": f"projects/p/topics/x{i:02d}"})
            pager = publisher.list_topics(request={"project": "projects/p", "page_size": 10})
            assert len(list(pager)) == 26
            assert list(publisher.list_topic_subscriptions(request={"topic": T})) == [S]
            snapshot = subscriber.create_snapshot(request={"name": "projects/p/snapshots/n-1", "subscription": S})
            assert snapshot.topic == T
            publisher.detach_subscription(request={"subscription": S})
            assert subscriber.get_subscription(request={"subscription": S}).detached
            publisher.delete_topic(request={"topic": T})
            assert subscriber.get_subscription(request={"subscription": S}).topic == "_deleted-topic_"
            with pytest.raises(exceptions.MethodNotImplemented, match=r"/google\.pubsub.v1.Subscriber/Seek"):
                subscriber.seek(request={"subscription": S})

    against_server(plane, work)


def test_health_and_reflection_answer_the_official_stubs(plane: Any) -> None:
    def work(endpoint: str) -> None:
        with grpc.insecure_channel(endpoint) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.RpcError) as caught:
                health.Check(health_pb2.HealthCheckRequest(service="nope"))
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            watch.cancel()
            database = ProtoReflectionDescriptorDatabase(channel)
            assert "google.pubsub.v1.Publisher" in database.get_services()
            pool = descriptor_pool.DescriptorPool(database)
            service = pool.FindServiceByName("syncpoint.admin.v1.Admin")
            assert "GetServer" in service.methods_by_name
            assert pool.FindMessageTypeByName("google.pubsub.v1.Topic").fields_by_name["labels"].number == 2

    against_server(plane, work)
