"""Blocking calls to a server: one request message in, one response message out.

Place on the message's path: before its beginning and after its end; the command line stands on this, and nothing
here is known to the server. Applications use Google's official clients instead, which batch, lease and stream.
Promises: a call ends within its time; UNAVAILABLE is tried again, at the next address where there are several, and with
growing pauses for at most `patience_s`; every other failure is raised at once as the `SyncpointError` the server sent.
Leaves to the caller: that a publish which was tried again may have been stored twice, as with every client of Pub/Sub.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.address_choice import AddressChoice
from syncpoint.wire.transport.client import Channel, MetadataItems

if TYPE_CHECKING:
    import ssl

    from syncpoint.front.client.credentials import CallCredentials

SERVICES = {
    "Publisher": methods.PUBLISHER,
    "Subscriber": methods.SUBSCRIBER,
    "SchemaService": methods.SCHEMAS,
    "IAMPolicy": methods.IAM,
    "Admin": methods.ADMIN,
    "ServiceAccounts": methods.ACCOUNTS,
    "LogReader": methods.LOG_READER,
    "EpochWriter": methods.EPOCH_WRITER,
    "AckExchange": methods.ACK_EXCHANGE,
}
PORT_DEFAULT = "8085"
EACH_MAX = 64


class ClientCalls(Protocol):
    """The part of a channel that is used here; `transport.memory.MemoryChannel` has it too."""

    async def unary(
        self, path: str, message: bytes, *, metadata: MetadataItems = (), timeout: float | None = None
    ) -> bytes: ...

    async def close(self) -> None: ...


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """`host:port`, `host` or `[v6]:port` as host and port. Raises InvalidArgument."""
    text = endpoint.strip().removeprefix("http://").removeprefix("https://").rstrip("/")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, PORT_DEFAULT
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidArgument("endpoint", f"{endpoint!r} is not of the form HOST:PORT")
    return host, int(port)


def split_endpoints(text: str) -> list[str]:
    """The addresses of a text with commas between them."""
    return [one.strip() for one in text.split(",") if one.strip()]


def client_tls(ca_file: str | None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """A context that trusts the certificates in `ca_file` (None: the system's authorities) and shows `cert`."""
    import ssl

    context = ssl.create_default_context(cafile=ca_file)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


@dataclass(frozen=True)
class Target:
    """A server: how to connect, and what goes with each call."""

    open: Callable[[], Channel]
    metadata: Callable[[], MetadataItems] = lambda: ()


class Client:
    """One connection to a server, or to one of several, used from one thread; a context manager."""

    def __init__(
        self,
        endpoint: str,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
        patience_s: float = 2.0,
        channel: ClientCalls | None = None,
        metadata: MetadataItems = (),
        credentials: CallCredentials | None = None,
    ) -> None:
        """`endpoint` is HOST:PORT, or several with commas between them; `channel` replaces the connection (it is closed
        with the client); `metadata` goes with every call, and what the `credentials` say.
        """
        self.choice = AddressChoice(split_endpoints(endpoint))
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._runner = asyncio.Runner()
        self.tls = tls
        self._channel = channel
        self._metadata, self._credentials = tuple(metadata), credentials

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._runner.run(self._channel.close())
            self._channel = None
        self._runner.close()

    def call(self, method: str, request: Any, *, timeout_s: float | None = None) -> Any:
        """Call `Service.Method` (a service of SERVICES) and return its response message. Raises SyncpointError.

        `timeout_s` bounds each attempt, in seconds.
        """
        service, _, name = method.partition(".")
        path = SERVICES[service][name]
        return path.response.FromString(
            self._runner.run(self._attempts(path, request.SerializeToString(), timeout_s or self._timeout_s))
        )

    def call_each(self, method: str, requests: Sequence[Any]) -> list[Any]:
        """Call as `call` with each of these, `EACH_MAX` at once; the response to each, or its `SyncpointError`."""
        service, _, name = method.partition(".")
        path, turns = SERVICES[service][name], asyncio.Semaphore(EACH_MAX)

        async def one(request: Any) -> Any:
            async with turns:
                try:
                    answer = await self._attempts(path, request.SerializeToString(), self._timeout_s)
                except SyncpointError as error:
                    return error
                return path.response.FromString(answer)

        async def every() -> list[Any]:
            return await asyncio.gather(*map(one, requests))

        return self._runner.run(every())

    def target(self) -> Target:
        """Return a target: separate connections to the same server, with the same credentials."""
        host, port = parse_endpoint(self.choice.present)
        return Target(lambda: Channel(host, port, tls=self.tls), self.shown)

    def shown(self) -> MetadataItems:
        """What goes with every call."""
        return (*self._metadata, *(() if self._credentials is None else self._credentials.metadata()))

    def pages(self, method: str, request: Any, field: str) -> Iterator[Any]:
        """Everything a listing method has, page by page: the items of the repeated `field`."""
        while True:
            page = self.call(method, request)
            yield from getattr(page, field)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _attempts(self, path: str, message: bytes, timeout_s: float) -> bytes:
        end = time.monotonic() + self._patience_s
        backoff = Backoff(0.1, 1.0)
        untried = set(self.choice.addresses)
        while True:
            address = self.choice.present
            if self._channel is None:
                host, port = parse_endpoint(address)
                self._channel = Channel(host, port, tls=self.tls)
            try:
                answer = await self._channel.unary(path, message, metadata=self.shown(), timeout=timeout_s)
            except SyncpointError as error:
                untried.discard(address)
                if error.code is not Code.UNAVAILABLE:
                    raise
                if self.choice.failed(address, time.monotonic()):
                    failed, self._channel = self._channel, None
                    await failed.close()
                if self.choice.present in untried:
                    continue
                if time.monotonic() + backoff.pause_s > end:
                    raise
            else:
                self.choice.answered(address)
                return answer
            await asyncio.sleep(backoff.failed(random.random))
