"""The methods of all services that are served or called here, as the shipped descriptors have them.

Place: beside `messages`; the path of a method is written nowhere else.

    from syncpoint.wire.protobuf import methods
    methods.CHAINS.Confirm          # "/syncpoint.internal.v1.Chains/Confirm"
    methods.CHAINS.Confirm.request  # the class of its requests
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from syncpoint.wire.protobuf.messages import POOL, message_class


class Method(str):
    """The path of a method, `/package.Service/Method`, and what it takes and returns."""

    descriptor: MethodDescriptor

    @cached_property
    def request(self) -> Any:
        """The class of its requests."""
        return message_class(self.descriptor.input_type.full_name)

    @cached_property
    def response(self) -> Any:
        """The class of its responses."""
        return message_class(self.descriptor.output_type.full_name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _method, (str(self),)

    @property
    def is_streaming(self) -> bool:
        """Whether either side sends any number of messages."""
        return self.descriptor.client_streaming or self.descriptor.server_streaming


class Service:
    """The methods of a service as attributes, and by name as items. `prefix`: what all their paths begin with."""

    def __init__(self, name: str) -> None:
        """Raises `KeyError` for a service that is not described."""
        self.name, self.prefix = name, f"/{name}/"
        self._by_name: dict[str, Method] = {}
        for descriptor in POOL.FindServiceByName(name).methods:
            self._by_name[descriptor.name] = method = Method(self.prefix + descriptor.name)
            method.descriptor = descriptor
        vars(self).update(self._by_name)

    def __getattr__(self, name: str) -> Method:
        raise AttributeError(f"{self.name} has no method {name}")

    def __getitem__(self, name: str) -> Method:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Method]:
        return iter(self._by_name.values())


PUBLISHER = Service("google.pubsub.v1.Publisher")
SUBSCRIBER = Service("google.pubsub.v1.Subscriber")
SCHEMAS = Service("google.pubsub.v1.SchemaService")
IAM = Service("google.iam.v1.IAMPolicy")
HEALTH = Service("grpc.health.v1.Health")
REFLECTION = Service("grpc.reflection.v1.ServerReflection")
REFLECTION_ALPHA = Service("grpc.reflection.v1alpha.ServerReflection")
ADMIN = Service("syncpoint.admin.v1.Admin")
ACCOUNTS = Service("syncpoint.iam.v1.ServiceAccounts")
LOG_READER = Service("syncpoint.pipeline.v1.LogReader")
EPOCH_WRITER = Service("syncpoint.pipeline.v1.EpochWriter")
ACK_EXCHANGE = Service("syncpoint.pipeline.v1.AckExchange")
CHAINS = Service("syncpoint.internal.v1.Chains")
CONSUMPTION = Service("syncpoint.internal.v1.Consumption")
DELIVERIES = Service("syncpoint.internal.v1.Deliveries")
METADATA = Service("syncpoint.internal.v1.Metadata")
PROCESS = Service("syncpoint.internal.v1.Process")
ROUTER = Service("syncpoint.internal.v1.Router")

BY_PATH: dict[str, Method] = {
    path: path for service in list(vars().values()) if isinstance(service, Service) for path in service
}
"""Every method by its path, also where it comes from the wire."""


def _method(path: str) -> Method:
    return BY_PATH[path]
