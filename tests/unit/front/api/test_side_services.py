"""Health, reflection and what is not served, on the face of the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.reflection import SERVICES, reflection_methods
from syncpoint.wire.protobuf.messages import health, reflection, reflection_alpha
from syncpoint.wire.transport.calls import Streaming, Unary


class FakeCall:
    """A unary or streaming call that notes what it is given."""

    def __init__(self, path: bytes = b"/x") -> None:
        self.path = path
        self.sent: list[bytes] = []
        self.finished: list[SyncpointError | None] = []
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_cancel: Callable[[], object] | None = None
        self.on_drain: Callable[[], object] | None = None

    def reply(self, message: bytes) -> None:
        self.sent.append(message)

    send = reply

    def finish(self, error: SyncpointError | None = None) -> None:
        self.finished.append(error)


def unary(methods: Any, path: bytes, request: bytes) -> bytes:
    method, call = methods[path], FakeCall(path)
    assert isinstance(method, Unary)
    method.handler(call, request)  # type: ignore[arg-type]
    (answer,) = call.sent
    return answer


def stream(methods: Any, path: bytes) -> FakeCall:
    method, call = methods[path], FakeCall(path)
    assert isinstance(method, Streaming)
    method.handler(call)  # type: ignore[arg-type]
    return call


def statuses(call: FakeCall) -> list[int]:
    return [health.HealthCheckResponse.FromString(data).status for data in call.sent]


CHECK, WATCH = b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def test_check() -> None:
    service = HealthService()
    methods = service.methods()

    def check(name: str) -> int:
        answer = unary(methods, CHECK, health.HealthCheckRequest(service=name).SerializeToString())
        return int(health.HealthCheckResponse.FromString(answer).status)

    assert check("") == check("google.pubsub.v1.Publisher") == SERVING
    with pytest.raises(SyncpointError) as caught:
        check("nope")
    assert caught.value.code is Code.NOT_FOUND
    service.set_serving("google.pubsub.v1.Publisher", False)
    assert (check(""), check("google.pubsub.v1.Publisher")) == (SERVING, NOT_SERVING)
    service.stop()
    service.set_serving("", True)
    assert check("") == NOT_SERVING
    answer = health.HealthListResponse.FromString(unary(methods, b"/grpc.health.v1.Health/List", b""))
    assert {status.status for status in answer.statuses.values()} == {NOT_SERVING}
    assert "syncpoint.admin.v1.Admin" in answer.statuses


def test_watch() -> None:
    service = HealthService()
    calls = {name: stream(service.methods(), WATCH) for name in ("", "google.pubsub.v1.Subscriber", "nope")}
    for name, call in calls.items():
        assert call.on_message is not None
        call.on_message(health.HealthCheckRequest(service=name).SerializeToString())
    whole, subscriber, unknown = calls.values()
    service.set_serving("", False)
    service.set_serving("", False)
    service.set_serving("", True)
    assert statuses(whole) == [SERVING, NOT_SERVING, SERVING]
    assert statuses(subscriber) == [SERVING]
    assert statuses(unknown) == [SERVICE_UNKNOWN]
    assert subscriber.on_cancel is not None
    subscriber.on_cancel()
    service.stop()
    assert statuses(whole)[-1] == NOT_SERVING
    assert statuses(subscriber) == [SERVING]
    assert whole.on_drain is not None
    whole.on_drain()
    (error,) = whole.finished
    assert error is not None
    assert error.code is Code.UNAVAILABLE


def test_a_malformed_watch_is_refused() -> None:
    call = stream(HealthService().methods(), WATCH)
    assert call.on_message is not None
    call.on_message(b"\xff")
    (error,) = call.finished
    assert error is not None
    assert error.code is Code.INVALID_ARGUMENT


@pytest.fixture(params=[reflection, reflection_alpha], ids=["v1", "v1alpha"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    package = request.param
    path = f"/{package.ServerReflectionRequest.DESCRIPTOR.file.package}.ServerReflection/ServerReflectionInfo"
    call = stream(reflection_methods(), path.encode())

    def ask(**fields: Any) -> Any:
        assert call.on_message is not None
        call.on_message(package.ServerReflectionRequest(**fields).SerializeToString())
        return package.ServerReflectionResponse.FromString(call.sent[-1])

    return ask


def names(response: Any) -> list[str]:
    files = response.file_descriptor_response.file_descriptor_proto
    return [descriptor_pb2.FileDescriptorProto.FromString(data).name for data in files]


def test_services_are_listed(ask: Callable[..., Any]) -> None:
    response = ask(host="h", list_services="")
    assert [service.name for service in response.list_services_response.service] == sorted(SERVICES)
    assert response.valid_host == "h"
    assert response.original_request.WhichOneof("message_request") == "list_services"


@pytest.mark.parametrize(
    "symbol",
    [
        "google.pubsub.v1.Publisher",
        "google.pubsub.v1.Publisher.Publish",
        "google.pubsub.v1.Topic",
        "google.pubsub.v1.Topic.name",
        "google.pubsub.v1.PushConfig.OidcToken",
        "google.pubsub.v1.Topic.State",
    ],
)
def test_a_symbol_leads_to_its_file_and_all_imports(ask: Callable[..., Any], symbol: str) -> None:
    found = names(ask(file_containing_symbol=symbol))
    assert found[0] == "google/pubsub/v1/pubsub.proto"
    assert len(found) == len(set(found))
    assert {"google/pubsub/v1/schema.proto", "google/protobuf/timestamp.proto"} <= set(found)


def test_files_by_name(ask: Callable[..., Any]) -> None:
    assert names(ask(file_by_filename="google/protobuf/empty.proto")) == ["google/protobuf/empty.proto"]


@pytest.mark.parametrize(
    "fields",
    [
        {"file_containing_symbol": "google.pubsub.v1.Nope"},
        {"file_containing_symbol": "google.pubsub.v1.Topic.nope"},
        {"file_containing_symbol": ""},
        {"file_by_filename": "nope.proto"},
        {"all_extension_numbers_of_type": "nope"},
        {"file_containing_extension": {"containing_type": "google.pubsub.v1.Topic", "extension_number": 5}},
    ],
)
def test_what_is_unknown_is_not_found(ask: Callable[..., Any], fields: dict[str, Any]) -> None:
    assert ask(**fields).error_response.error_code == Code.NOT_FOUND


def test_other_questions(ask: Callable[..., Any]) -> None:
    answer = ask(all_extension_numbers_of_type="google.pubsub.v1.Topic").all_extension_numbers_response
    assert (answer.base_type_name, list(answer.extension_number)) == ("google.pubsub.v1.Topic", [])
    assert ask().error_response.error_code == Code.INVALID_ARGUMENT
