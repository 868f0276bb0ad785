"""The interface is the official one, field by field, and lives beside the official client in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google.cloud.pubsub_v1  # noqa: F401 - registers the official messages in the default pool
import pytest
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.pubsub_v1 import types
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from syncpoint.wire.protobuf import messages
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.methods import Service
from tests.kit.tools import tool

OFFICIAL = [
    *types.Topic.pb().DESCRIPTOR.file.message_types_by_name.values(),
    *types.Schema.pb().DESCRIPTOR.file.message_types_by_name.values(),
]


def nested(descriptors: list[Any]) -> Iterator[Any]:
    for descriptor in descriptors:
        yield descriptor
        yield from nested(descriptor.nested_types)


def shape(descriptor: Any) -> dict[str, tuple[Any, ...]]:
    """Everything about a message that matters on the wire and in JSON."""
    return {
        field.name.rstrip("_"): (
            field.number,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.has_presence,
            field.message_type.full_name if field.message_type else None,
            field.enum_type.full_name if field.enum_type else None,
            field.containing_oneof.name if field.containing_oneof else None,
            field.message_type.GetOptions().map_entry if field.message_type else None,
            field.json_name,
        )
        for field in descriptor.fields
    }


@pytest.mark.parametrize("official", list(nested(OFFICIAL)), ids=lambda descriptor: descriptor.full_name)
def test_every_message_has_the_official_fields(official: Any) -> None:
    ours = messages.POOL.FindMessageTypeByName(official.full_name)
    assert shape(ours) == shape(official)
    assert {e.name: {v.name: v.number for v in e.values} for e in ours.enum_types} == {
        e.name: {v.name: v.number for v in e.values} for e in official.enum_types
    }


def test_there_is_nothing_else() -> None:
    ours = []
    for name in ("pubsub", "schema"):
        file = messages.POOL.FindFileByName(f"google/pubsub/v1/{name}.proto")
        ours += list(nested(list(file.message_types_by_name.values())))
    assert sorted(d.full_name for d in ours) == sorted(d.full_name for d in nested(OFFICIAL))


def test_top_level_enums() -> None:
    for official in types.Schema.pb().DESCRIPTOR.file.enum_types_by_name.values():
        ours = getattr(pubsub, official.name)
        assert {value.name: ours.Value(value.name) for value in official.values} == {
            value.name: value.number for value in official.values
        }
    assert pubsub.Encoding.Name(pubsub.Encoding.BINARY) == "BINARY"


def test_the_methods_are_those_the_official_clients_call() -> None:
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
    from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    class Channel:
        """Notes the paths that a transport asks for."""

        def __init__(self) -> None:
            self.kinds: dict[str, str] = {}

        def unary_unary(self, path: str, **_: Any) -> Any:
            self.kinds[path] = "unary"

        def stream_stream(self, path: str, **_: Any) -> Any:
            self.kinds[path] = "streaming"

    for service, kind in (
        ("Publisher", PublisherGrpcTransport),
        ("Subscriber", SubscriberGrpcTransport),
        ("SchemaService", SchemaServiceGrpcTransport),
    ):
        channel = Channel()
        transport = kind.__new__(kind)
        transport._grpc_channel = transport._logged_channel = channel
        transport._stubs = {}
        ours = {path: "streaming" if path.is_streaming else "unary" for path in Service(f"google.pubsub.v1.{service}")}
        for path in ours:
            snake = "".join("_" + c.lower() if c.isupper() else c for c in path.descriptor.name).lstrip("_")
            getattr(transport, snake)
        assert channel.kinds == ours


def filled(cls: Any, depth: int = 0) -> Any:
    """A message with something in every field (the last member of each oneof)."""
    message = cls()
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.full_name.startswith("google.protobuf.Struct"):
            message.parameters.update({"a": 1.0})
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["key"] = "value"
        elif field.message_type is not None:
            sub = filled(messages.message_class(field.message_type.full_name), depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(sub)
            else:
                getattr(message, field.name).CopyFrom(sub)
        else:
            value = {field.TYPE_STRING: "text", field.TYPE_BYTES: b"\x00\xff", field.TYPE_BOOL: True}.get(field.type, 3)
            if field.type == field.TYPE_ENUM:
                value = field.enum_type.values[-1].number
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


@pytest.mark.parametrize("official", OFFICIAL, ids=lambda descriptor: descriptor.name)
def test_round_trip_through_the_official_classes(official: Any) -> None:
    ours = filled(getattr(pubsub, official.name))
    data = ours.SerializeToString(deterministic=True)
    theirs = getattr(types, official.name).pb()()
    theirs.ParseFromString(data)
    assert theirs.SerializeToString(deterministic=True) == data
    again = getattr(pubsub, official.name).FromString(theirs.SerializeToString())
    assert again == ours


def test_unknown_fields_survive() -> None:
    newer = pubsub.Topic(name="projects/p/topics/t").SerializeToString() + b"\xfa\x7f\x03new"  # field 2047
    topic = pubsub.Topic.FromString(newer)
    topic.labels["k"] = "v"
    assert b"\xfa\x7f\x03new" in topic.SerializeToString()


@pytest.mark.parametrize(
    "official",
    [
        iam_policy_pb2.SetIamPolicyRequest,
        iam_policy_pb2.GetIamPolicyRequest,
        iam_policy_pb2.TestIamPermissionsRequest,
        iam_policy_pb2.TestIamPermissionsResponse,
        policy_pb2.Policy,
        policy_pb2.Binding,
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
        error_details_pb2.BadRequest,
        health_pb2.HealthCheckRequest,
        health_pb2.HealthCheckResponse,
        reflection_pb2.ServerReflectionRequest,
        reflection_pb2.ServerReflectionResponse,
        reflection_pb2.ErrorResponse,
    ],
    ids=lambda cls: cls.DESCRIPTOR.full_name,
)
def test_neighbouring_interfaces_agree_where_they_are_kept(official: Any) -> None:
    ours = messages.POOL.FindMessageTypeByName(official.DESCRIPTOR.full_name)
    theirs = shape(official.DESCRIPTOR)
    for name, value in shape(ours).items():
        assert theirs[name] == value


def test_unset_fields_are_recognised() -> None:
    subscription = pubsub.Subscription(name="x")
    assert not messages.unset_or_default(subscription, "name")
    for field in ("topic", "push_config", "labels", "detached", "ack_deadline_seconds", "message_transforms"):
        assert messages.unset_or_default(subscription, field)
    subscription.push_config.SetInParent()
    assert not messages.unset_or_default(subscription, "push_config")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nope"):
        _ = pubsub.Nope


def test_committed_descriptors_match_their_sources() -> None:
    protos = tool("protos")
    compiled = protos.compiled()
    assert {path: path.read_bytes() for path in compiled} == compiled
    assert {*(protos.WIRE / "stubs").iterdir()} <= compiled.keys()
    for stem in protos.SERVICES:
        assert (protos.PROTO / "google/pubsub/v1" / f"{stem}.proto").read_text() == protos.interface_text(stem)
