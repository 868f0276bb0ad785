"""The message classes of every interface this server speaks, built from the shipped descriptors.

Place: used by the api and by tools to read requests and write responses; the hot path works on bytes and does not
come here.
Promise: a descriptor pool of our own (the official client registers the same names in the default one); unknown fields
of a newer interface survive parsing and serialising.

    from syncpoint.wire.protobuf.messages import pubsub
    topic = pubsub.Topic(name="projects/p/topics/t")
"""

from __future__ import annotations

import importlib.resources
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor


def _load() -> tuple[descriptor_pool.DescriptorPool, dict[str, bytes]]:
    data = importlib.resources.files("syncpoint.wire.protobuf").joinpath("descriptors.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    files = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        files[file.name] = file.SerializeToString()
        pool.AddSerializedFile(files[file.name])
    return pool, files


#: The private pool, and every file in it as a serialised FileDescriptorProto, by file name.
POOL, FILES = _load()


def message_class(full_name: str) -> Any:
    """The class of a message by its full protobuf name. Raises `KeyError` for an unknown one."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


class Package:
    """The top-level messages of one protobuf package as attributes; nested ones hang on their parents.

    A top-level enum is an attribute too: an object with the values as attributes, and `Name` and `Value`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        full_name = f"{self._name}.{name}"
        try:
            found = message_class(full_name)
        except KeyError:
            try:
                found = Enum(POOL.FindEnumTypeByName(full_name))
            except KeyError:
                raise AttributeError(f"no message or enum {full_name}") from None
        setattr(self, name, found)  # asked once per name
        return found


class Enum:
    """Values of a top-level enum by name; the two methods are spelled as protobuf's own wrappers spell them."""

    def __init__(self, descriptor: Any) -> None:
        self._values: dict[str, int] = {value.name: value.number for value in descriptor.values}
        self._names: dict[int, str] = {value.number: value.name for value in descriptor.values}

    def __getattr__(self, name: str) -> int:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def Value(self, name: str) -> int:
        """The number of a value. Raises `KeyError`."""
        return self._values[name]

    def Name(self, number: int) -> str:
        """The name of a number. Raises `KeyError`."""
        return self._names[number]


# One stub for each package, written by tools/protos.py.
if TYPE_CHECKING:
    from syncpoint.wire.protobuf.stubs import etcdserverpb as etcd
    from syncpoint.wire.protobuf.stubs import google_iam_v1 as iam
    from syncpoint.wire.protobuf.stubs import google_protobuf as well_known
    from syncpoint.wire.protobuf.stubs import google_pubsub_v1 as pubsub
    from syncpoint.wire.protobuf.stubs import google_rpc as rpc
    from syncpoint.wire.protobuf.stubs import grpc_health_v1 as health
    from syncpoint.wire.protobuf.stubs import grpc_reflection_v1 as reflection
    from syncpoint.wire.protobuf.stubs import grpc_reflection_v1alpha as reflection_alpha
    from syncpoint.wire.protobuf.stubs import syncpoint_admin_v1 as admin
    from syncpoint.wire.protobuf.stubs import syncpoint_catalog_v1 as catalog
    from syncpoint.wire.protobuf.stubs import syncpoint_iam_v1 as accounts
    from syncpoint.wire.protobuf.stubs import syncpoint_internal_v1 as internal
    from syncpoint.wire.protobuf.stubs import syncpoint_pipeline_stored_v1 as stored_epochs
    from syncpoint.wire.protobuf.stubs import syncpoint_pipeline_v1 as pipeline
else:
    pubsub = Package("google.pubsub.v1")
    rpc = Package("google.rpc")
    iam = Package("google.iam.v1")
    accounts = Package("syncpoint.iam.v1")
    health = Package("grpc.health.v1")
    reflection = Package("grpc.reflection.v1")
    reflection_alpha = Package("grpc.reflection.v1alpha")
    admin = Package("syncpoint.admin.v1")
    internal = Package("syncpoint.internal.v1")
    pipeline = Package("syncpoint.pipeline.v1")
    well_known = Package("google.protobuf")
    catalog = Package("syncpoint.catalog.v1")
    stored_epochs = Package("syncpoint.pipeline.stored.v1")
    etcd = Package("etcdserverpb")

__all__ = [
    "FILES", "POOL", "Enum", "Package", "accounts", "admin", "catalog", "etcd", "health", "iam", "internal",
    "message_class", "pipeline", "pubsub", "reflection", "reflection_alpha", "rpc", "stored_epochs", "unset_or_default",
    "well_known",
]  # fmt: skip


def unset_or_default(message: Any, field: str) -> bool:
    """Whether a field of a message carries nothing: absent, empty or the default of its type."""
    descriptor: FieldDescriptor = message.DESCRIPTOR.fields_by_name[field]
    if descriptor.has_presence:
        return not message.HasField(field)
    value = getattr(message, field)
    return len(value) == 0 if descriptor.is_repeated else value == descriptor.default_value
