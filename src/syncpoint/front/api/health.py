"""grpc.health.v1: whether this server takes work, for load balancers and orchestrators.

Place: beside the other services; the node reports when it stops.
Promise: Check answers at once; Watch sends the status now and whenever it changes. An unknown service is NOT_FOUND to
Check and SERVICE_UNKNOWN to Watch, as the health checking protocol of gRPC has it. The name "" is the whole server.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.base.model.errors import NotFound, SyncpointError, Unavailable
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import health
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary

_SERVING = health.HealthCheckResponse.SERVING
_NOT_SERVING = health.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health.HealthCheckResponse.SERVICE_UNKNOWN
_SERVICES = ("", methods.PUBLISHER.name, methods.SUBSCRIBER.name, methods.ADMIN.name)


class HealthService:
    """Serving until stopped otherwise."""

    def __init__(self, services: Iterable[str] = _SERVICES) -> None:
        self._serving = dict.fromkeys(services, True)
        self._watchers: dict[StreamingCall, str] = {}
        self._stopped = False

    def set_serving(self, service: str, serving: bool) -> None:
        """Change the status of one service ("": the whole server); watchers are notified. No effect after `stop`."""
        if not self._stopped and self._serving.get(service) is not serving:
            self._serving[service] = serving
            self._notify(service)

    def stop(self) -> None:
        """Nothing is served from now on, whatever is set later."""
        for service in self._serving:
            self.set_serving(service, False)
        self._stopped = True

    def methods(self) -> dict[bytes, Unary | Streaming]:
        """The method table of this service."""
        return {
            methods.HEALTH.Check.encode(): Unary(self._check),
            methods.HEALTH.List.encode(): Unary(self._list),
            methods.HEALTH.Watch.encode(): Streaming(self._watch),
        }

    def _status(self, service: str) -> int:
        known = self._serving.get(service)
        if known is None:
            return int(_UNKNOWN)
        return int(_SERVING if known else _NOT_SERVING)

    def _answer(self, service: str) -> bytes:
        answer: bytes = health.HealthCheckResponse(status=self._status(service)).SerializeToString()
        return answer

    def _check(self, call: Call, request: bytes) -> None:
        service = parsed(health.HealthCheckRequest, request).service
        if service not in self._serving:
            raise NotFound(
                service,
                f"Unknown service {service!r}. Call ListServices of gRPC reflection for the services that this server"
                " has.",
            )
        call.reply(self._answer(service))

    def _list(self, call: Call, request: bytes) -> None:
        statuses = {service: health.HealthCheckResponse(status=self._status(service)) for service in self._serving}
        call.reply(health.HealthListResponse(statuses=statuses).SerializeToString())

    def _watch(self, stream: StreamingCall) -> None:
        def asked(request: bytes) -> None:
            if stream in self._watchers:
                return  # the protocol has one request per stream
            try:
                service = parsed(health.HealthCheckRequest, request).service
            except SyncpointError as error:
                stream.finish(error)
                return
            self._watchers[stream] = service
            stream.send(self._answer(service))

        def gone() -> None:
            self._watchers.pop(stream, None)

        def drained() -> None:
            gone()
            stream.finish(Unavailable("The server is stopping."))

        stream.on_message = asked
        stream.on_cancel = gone
        stream.on_drain = drained

    def _notify(self, service: str) -> None:
        for stream, watched in list(self._watchers.items()):
            if watched == service:
                stream.send(self._answer(service))
