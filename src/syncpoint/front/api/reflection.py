"""Server reflection: tools such as grpcurl ask which services there are and what their messages look like.

Place: beside the other services, reading nothing but the shipped descriptors.
Promise: v1 and v1alpha answer the same. A file comes with everything it imports, so that one question suffices.
Source of the protocol: grpc/doc/server-reflection.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import FILES, POOL, reflection
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Streaming, StreamingCall

SERVICES = tuple(
    service.name
    for service in (
        methods.PUBLISHER, methods.SUBSCRIBER, methods.IAM, methods.ADMIN, methods.ACCOUNTS, methods.HEALTH,
        methods.REFLECTION, methods.REFLECTION_ALPHA,
    )
)  # fmt: skip
PIPELINES = (methods.LOG_READER.name, methods.EPOCH_WRITER.name, methods.ACK_EXCHANGE.name)


def reflection_methods(services: Iterable[str] = SERVICES) -> dict[bytes, Streaming]:
    """The method table of both versions. `services`: those that are listed; any described symbol can be asked for."""
    listed = sorted(services)
    versions = (methods.REFLECTION, methods.REFLECTION_ALPHA)
    return {path.encode(): _method(path, listed) for path in (one.ServerReflectionInfo for one in versions)}


def _method(method: methods.Method, services: list[str]) -> Streaming:
    def handler(stream: StreamingCall) -> None:
        def asked(data: bytes) -> None:
            try:
                request = parsed(method.request, data)
            except SyncpointError as error:
                stream.finish(error)
                return
            stream.send(answer(method.response, request, services).SerializeToString())

        stream.on_message = asked
        stream.on_end = stream.finish

    return Streaming(handler)


def answer(
    kind_of_response: type[reflection.ServerReflectionResponse],
    request: reflection.ServerReflectionRequest,
    services: list[str],
) -> reflection.ServerReflectionResponse:
    """The response to one request; what cannot be found is an error inside of it."""
    response = kind_of_response(valid_host=request.host, original_request=request)
    kind = request.WhichOneof("message_request")
    try:
        if kind == "list_services":
            for name in services:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            _add_files(response, POOL.FindFileByName(request.file_by_filename))
        elif kind == "file_containing_symbol":
            _add_files(response, _file_of(request.file_containing_symbol))
        elif kind == "all_extension_numbers_of_type":
            # Interfaces in this version of protobuf have no extensions.
            name = POOL.FindMessageTypeByName(request.all_extension_numbers_of_type).full_name
            response.all_extension_numbers_response.base_type_name = name
        elif kind == "file_containing_extension":
            raise KeyError(kind)
        else:
            _refuse(response, Code.INVALID_ARGUMENT, "The request asks for nothing.")
    except KeyError:
        _refuse(response, Code.NOT_FOUND, "Not found.")
    return response


def _refuse(response: reflection.ServerReflectionResponse, code: Code, text: str) -> None:
    response.error_response.error_code = int(code)
    response.error_response.error_message = text


def _file_of(symbol: str) -> FileDescriptor:
    """The file that defines a symbol: a service, a method, a message, a field or an enum. Raises `KeyError`."""
    while True:
        try:
            return POOL.FindFileContainingSymbol(symbol)
        except KeyError:
            # Members are found through what holds them.
            holder, _, member = symbol.rpartition(".")
            if not holder or not _has_member(holder, member):
                raise
            symbol = holder


def _has_member(holder: str, member: str) -> bool:
    for find, members in (
        (POOL.FindServiceByName, "methods_by_name"),
        (POOL.FindMessageTypeByName, "fields_by_name"),
        (POOL.FindEnumTypeByName, "values_by_name"),
    ):
        try:
            return member in getattr(find(holder), members)
        except KeyError:
            continue
    return False


def _add_files(response: reflection.ServerReflectionResponse, file: FileDescriptor) -> None:
    """A file and everything it imports, each once, the file itself first."""
    seen, waiting = set(), [file]
    while waiting:
        current = waiting.pop(0)
        if current.name not in seen:
            seen.add(current.name)
            response.file_descriptor_response.file_descriptor_proto.append(FILES[current.name])
            waiting += current.dependencies
