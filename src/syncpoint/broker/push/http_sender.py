"""POST to an endpoint that a user named, so that nothing but that endpoint is reached.

Place: under the driver; `httpcore` speaks HTTP/1.1 and HTTP/2, with what it connects to handed in. A whole HTTP client
is not wanted: nothing here follows redirects, reads proxies from the environment, keeps cookies or unpacks answers.
Promise: a name is resolved once for each connection, every address it stands for is vetted, and the connection goes to
a vetted address, while certificate, SNI and Host are those of the name. Connections are kept for the same name only,
and no new push uses one after `KEPT_S`, so a name that moves is followed. An answer is its status; of its body at most
`ANSWER_BYTES_MAX` are read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpcore

from syncpoint.broker.push.addresses import AddressRefused, Vetting, networks
from syncpoint.broker.push.connections import IDLE_S, KeptConnections
from syncpoint.broker.push.own_endpoints import OwnEndpointRefused, OwnEndpoints, Resolve
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_config import Endpoint

ANSWER_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 1_000
ADDRESSES_MAX = 4  # of one name that are tried
PROCESSING = 102
_PROCESSING_LINE = b"HTTP/1.1 102"
_RESOLVERS = 8


class PushFailed(Exception):
    """No answer came. The text gives the reason to the owner of the subscription."""


class HttpSender:
    """POST pushes to endpoints that users named, and to no other address.

    `tls`: trusted certificates; default: those of the system.
    """

    def __init__(
        self,
        vetting: Vetting,
        *,
        agent: str,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._names = SystemNames("push-names")
        self._backend = _WatchedBackend(vetting, resolve or self._names.resolve)
        self._agent, self._tls = agent.encode(), tls
        self._slots = asyncio.Semaphore(connections_max)
        self._connections = KeptConnections(self._backend)
        self._looked = 0.0

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        """The status of the answer. Raises `PushFailed`."""
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                return await self._post(endpoint, headers, body)
        except _Processing:
            return PROCESSING
        except (AddressRefused, OwnEndpointRefused) as error:
            raise PushFailed(str(error)) from None
        except TimeoutError:
            raise PushFailed(f"no answer within {timeout_s:g} s") from None
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol,
                httpcore.ConnectionNotAvailable, ssl.SSLError, OSError) as error:  # fmt: skip
            raise PushFailed(str(error)[:500] or type(error).__name__) from error

    async def _post(self, endpoint: Endpoint, headers: Headers, body: bytes) -> int:
        scheme, host, target = endpoint.scheme.encode(), endpoint.host.encode(), endpoint.target.encode()
        url = httpcore.URL(scheme=scheme, host=host, port=endpoint.port, target=target)
        ours = [
            (b"host", _host(endpoint)), (b"user-agent", self._agent), (b"accept", b"*/*"),
            (b"content-length", b"%d" % len(body)), *headers,
        ]  # fmt: skip
        if self._tls is None:
            self._tls = ssl.create_default_context()  # reads many files, so not before it is needed
        now = asyncio.get_running_loop().time()
        if now >= self._looked + IDLE_S:
            self._looked = now
            await self._connections.end_idle(now)
        connection = await self._connections.take(endpoint, self._tls, now)
        good = shared = False
        try:
            answer = await connection.http.handle_async_request(
                httpcore.Request("POST", url, headers=ours, content=body)
            )
            shared = answer.extensions.get("http_version") == b"HTTP/2"
            try:
                read = 0
                async for piece in answer.aiter_stream():
                    read += len(piece)
                    if read > ANSWER_BYTES_MAX:
                        break  # the rest is not read, and the connection ends
                good = read <= ANSWER_BYTES_MAX
            finally:
                await answer.aclose()
            return int(answer.status)
        finally:
            now = asyncio.get_running_loop().time()
            await self._connections.give_back(connection, now, good=good or connection.shared, shared=shared)

    async def close(self) -> None:
        """End all connections. Pushes under way fail."""
        await self._connections.close()
        self._names.close()


class SystemNames:
    """Names looked up in threads of their own: those that do not resolve must not hold up anything else."""

    def __init__(self, threads: str) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses a name stands for. Raises `OSError`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_RESOLVERS, self._threads)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _look_up, host, port)

    def close(self) -> None:
        """Give up what is being looked up."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _look_up(host: str, port: int) -> list[str]:
    return [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _host(endpoint: Endpoint) -> bytes:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    usual = endpoint.port == (443 if endpoint.scheme == "https" else 80)
    return (host if usual else f"{host}:{endpoint.port}").encode()


class _Processing(Exception):
    """The endpoint answered 102, which confirms the message; the rest of the answer does not count."""


class VettedBackend(httpcore.AsyncNetworkBackend):
    """Connects to vetted addresses of a name, and to nothing else."""

    def __init__(self, vetting: Vetting, resolve: Resolve) -> None:
        self._vetting, self._resolve, self._network = vetting, resolve, httpcore.AnyIOBackend()

    @staticmethod
    def anywhere(own: OwnEndpoints, names: SystemNames) -> VettedBackend:
        """For addresses that the operator names: only the deployment's own listeners are refused."""
        return VettedBackend(Vetting(networks(["0.0.0.0/0", "::/0"]), own), names.resolve)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error.strerror or error}") from None
        failed: Exception | None = None
        addresses = self._vetting.vetted(host, found)
        await self._vetting.own.check(host, addresses, port, self._resolve)
        for address in addresses[:ADDRESSES_MAX]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise httpcore.ConnectError(f"{host} cannot be connected to") from failed

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefused("pushes do not go to sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _WatchedBackend(VettedBackend):
    """A backend whose connections notice the answer 102."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _WatchedStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _WatchedStream(httpcore.AsyncNetworkStream):
    """A connection on which the answer 102 is noticed. HTTP takes it for the announcement of another answer, which
    endpoints of push subscriptions need not send.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream, self._begins = stream, False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        if self._begins:
            while data and len(data) < len(_PROCESSING_LINE) and _PROCESSING_LINE.startswith(data):
                more = await self._stream.read(max_bytes, timeout)
                if not more:
                    break
                data += more
            self._begins = False
            if data.startswith(_PROCESSING_LINE):
                raise _Processing
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._begins = True
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _WatchedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
