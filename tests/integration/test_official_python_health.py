"""Health and reflection with grpcio's own client packages, and the answer to methods that are not served."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.pubsub_v1.services.publisher.transports.grpc import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service.transports.grpc import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports.grpc import SubscriberGrpcTransport
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from syncpoint.testing.rigs.official import refused

pytestmark = pytest.mark.shows("reflection")

SERVING = health_pb2.HealthCheckResponse.SERVING
SERVICES = ("google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber")


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_a_running_server_is_healthy(space, service):
    stub = health_pb2_grpc.HealthStub(space.api.channel)
    assert stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status == SERVING


def test_the_health_of_an_unknown_service_is_not_found(space):
    stub = health_pb2_grpc.HealthStub(space.api.channel)
    with refused("NOT_FOUND"):
        stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=10)


def test_health_can_be_watched(space):
    stub = health_pb2_grpc.HealthStub(space.api.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=10)
    assert next(watch).status == SERVING
    watch.cancel()
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=10)
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown.cancel()


def test_reflection_lists_and_describes_the_services(space):
    database = ProtoReflectionDescriptorDatabase(space.api.channel)
    services = set(database.get_services())
    assert {*SERVICES, "grpc.health.v1.Health"} <= services
    assert any(name.startswith("grpc.reflection.") for name in services)
    pool = DescriptorPool(database)
    for service in SERVICES:
        described = pool.FindServiceByName(service)
        assert "Publish" in described.methods_by_name or "StreamingPull" in described.methods_by_name
    message = pool.FindMessageTypeByName("google.pubsub.v1.PubsubMessage")
    numbers = {field.name: field.number for field in message.fields}
    assert numbers == {"data": 1, "attributes": 2, "message_id": 3, "publish_time": 4, "ordering_key": 5}


def test_reflection_says_what_it_does_not_know(space):
    stub = reflection_pb2_grpc.ServerReflectionStub(space.api.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Symbol"),
        reflection_pb2.ServerReflectionRequest(file_by_filename="no/such/file.proto"),
        reflection_pb2.ServerReflectionRequest(list_services=""),
    ]
    first, second, third = stub.ServerReflectionInfo(iter(asked), timeout=10)
    not_found = grpc.StatusCode.NOT_FOUND.value[0]
    assert first.error_response.error_code == not_found
    assert second.error_response.error_code == not_found
    assert third.list_services_response.service


@pytest.mark.parametrize(
    "path", ["/google.pubsub.v1.Publisher/NoSuchMethod", "/no.such.Service/Method", "/google.pubsub.v1.Nobody/Publish"]
)
def test_an_unknown_method_is_unimplemented_and_named(space, path):
    with refused("UNIMPLEMENTED", path.rsplit("/", 1)[1]):
        space.api.channel.unary_unary(path)(b"", timeout=10)


def methods_of_the_interface():
    """Full paths of all unary methods of the official client's three services."""
    found = []

    class Recorder:
        def unary_unary(self, path, **_):
            found.append(path)
            return lambda *_, **__: None

        def stream_stream(self, path, **_):
            return lambda *_, **__: None

        def close(self):
            pass

    for kind in (PublisherGrpcTransport, SubscriberGrpcTransport, SchemaServiceGrpcTransport):
        transport = kind.__new__(kind)
        transport._stubs = {}
        transport._logged_channel = Recorder()
        for name in dir(kind):
            if isinstance(getattr(kind, name), property) and name not in ("kind", "host", "grpc_channel"):
                getattr(transport, name)
    return sorted({path for path in found if path.startswith("/google.pubsub.v1.")})


def test_every_method_of_the_interface_answers_an_empty_request_in_an_orderly_way(space):
    """Served: a refusal that names the argument. Not served yet: UNIMPLEMENTED with its name. Nothing else."""
    paths = methods_of_the_interface()
    assert len(paths) >= 33
    for path in paths:
        try:
            space.api.channel.unary_unary(path)(b"", timeout=10)
        except grpc.RpcError as error:
            code, text = error.code().name, error.details()
            assert code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"), (path, code, text)
            assert text, path
            if code == "UNIMPLEMENTED":
                assert path.rsplit("/", 1)[1] in text


def test_the_methods_of_the_interface_are_served(space):
    for path in methods_of_the_interface():
        with pytest.raises(grpc.RpcError) as caught:
            space.api.channel.unary_unary(path)(b"", timeout=10)
        assert caught.value.code().name != "UNIMPLEMENTED", path


def test_names_of_methods_are_case_sensitive(space):
    with refused("UNIMPLEMENTED"):
        space.api.channel.unary_unary("/google.pubsub.v1.Publisher/publish")(b"", timeout=10)
