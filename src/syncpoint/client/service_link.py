"""Connections to the service: one address at a time, another one when that fails or when the user asks for it.

Place: between publishers or subscribers and `wire.transport`; on one event loop. `address_choice` decides.
Promises: a call is made once, at the present address, and never again by itself. UNAVAILABLE moves to another address,
if there is one; so does a health check without an answer, which is made where something has been waited for longer than
CHECK_S. Calls that are under way at an address that failed end with UNAVAILABLE: their outcome is unknown. A switch
lets them end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from syncpoint import __version__
from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError, Unauthenticated, Unavailable
from syncpoint.base.model.hosts import loopback
from syncpoint.front.client.client import client_tls, parse_endpoint, split_endpoints
from syncpoint.front.client.credentials import CallCredentials, Credentials
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.address_choice import AddressChoice
from syncpoint.wire.transport.client import Channel, ClientStream, MetadataItems
from syncpoint.wire.transport.limits import MIB, TransportLimits

log = logging.getLogger("syncpoint.client")

ADDRESS_DEFAULT: Final = "127.0.0.1:8085"
CHECK_S: Final = 5.0
LOGGED_MAX: Final = 20
DRAIN_S: Final = 30.0
AGENT: Final = ((b"user-agent", f"syncpoint-python/{__version__}".encode()),)
LIMITS: Final = TransportLimits(
    message_bytes=64 * MIB, frame_bytes=2 * MIB, stream_window_bytes=8 * MIB, unsent_bytes=1024 * MIB
)
"""Of a client: answers are large, and what it sends is bounded by flow control."""


@dataclass(frozen=True)
class Connecting:
    """Where the service is and what is shown to it. `check_s`: seconds after which a silent address is checked, if
    there is another one; `connect`: makes the channel of an address, for tests.
    """

    addresses: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    credentials: CallCredentials | None = None
    prefer_first: bool = False
    check_s: float = CHECK_S
    connect: Callable[[str], Channel] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        addresses: Sequence[str] | str | None,
        *,
        tls: ssl.SSLContext | str | Path | None = None,
        credentials: CallCredentials | str | Path | None = None,
        prefer_first: bool = False,
    ) -> Connecting:
        """What is not given comes from the environment: SYNCPOINT_ADDRESSES (with commas between them) or
        PUBSUB_EMULATOR_HOST, and SYNCPOINT_CREDENTIALS. `tls` may be a file of trusted certificates. Raises
        `InvalidArgument`, and `OSError` for files.
        """
        if addresses is None:
            addresses = os.environ.get("SYNCPOINT_ADDRESSES") or os.environ.get("PUBSUB_EMULATOR_HOST")
        listed = addresses or ADDRESS_DEFAULT
        found = tuple(split_endpoints(listed if isinstance(listed, str) else ",".join(listed)))
        hosts = [parse_endpoint(one)[0] for one in found]
        if credentials is None:
            credentials = os.environ.get("SYNCPOINT_CREDENTIALS") or None
        if isinstance(credentials, str | Path):
            credentials = Credentials(Path(credentials).expanduser())
        if isinstance(tls, str | Path):
            tls = client_tls(str(tls))
        if credentials is not None and tls is None and not all(map(loopback, hosts)):
            raise InvalidArgument("tls", f"credentials are not sent to {', '.join(found)} in the clear")
        return cls(found, tls, credentials, prefer_first)

    def channel(self, address: str) -> Channel:
        """A channel to an address, not yet connected."""
        if self.connect is not None:
            return self.connect(address)
        return Channel(*parse_endpoint(address), tls=self.tls, limits=LIMITS, always=AGENT)

    def metadata(self) -> MetadataItems:
        """What goes with a call. Raises `SyncpointError`."""
        try:
            return () if self.credentials is None else self.credentials.metadata()
        except OSError as error:
            raise Unauthenticated(f"The credentials cannot be read: {error}.") from error


class ServiceLink:
    """Calls and streams of one publisher or subscriber. Made and used on its event loop."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self.choice = AddressChoice(connecting.addresses, prefer_first=connecting.prefer_first)
        self.return_to: Callable[[str], Awaitable[None]] = self.switch_to
        """How to go back to a preferred address."""
        self._loop = asyncio.get_running_loop()
        self._channels: dict[str, Channel] = {}
        self._under_way: dict[str, int] = dict.fromkeys(connecting.addresses, 0)
        self._ended = asyncio.Event()  # a call has
        self._waited_for = 0
        self.troubles = 0  # how often something was to be tried again
        self._logged: set[str] = set()  # since the last answer
        self._answer_s = self._loop.time()
        self._closing: set[asyncio.Task[None]] = set()
        self._watch = self._loop.create_task(self._keep_watching()) if len(connecting.addresses) > 1 else None

    @property
    def present(self) -> str:
        """The address in use."""
        return self.choice.present

    async def call(self, path: str, message: bytes, timeout_s: float, address: str | None = None) -> bytes:
        """Call once, at the present address or at a given one. Raises `SyncpointError`."""
        at = address or self.choice.present
        self._begin(at)
        try:
            answer = await self._channel(at).unary(
                path, message, metadata=self._connecting.metadata(), timeout=timeout_s
            )
        except SyncpointError as error:
            self.failed(at, error)
            raise
        finally:
            self._end(at)
        self.answered(at)
        return answer

    def stream(self, path: str, address: str) -> ClientStream:
        """Begin a stream. The caller reports what comes to `answered`, and its error to `failed`."""
        return self._channel(address).stream(path, self._connecting.metadata())

    def check_known(self, address: str) -> None:
        """Raises `ValueError` for an address that is none of these."""
        if address not in self.choice.addresses:
            raise ValueError(f"{address!r} is none of the addresses: {', '.join(self.choice.addresses)}")

    def waits(self, more: int) -> None:
        """Something, as a stream, waits for the present address from now on (1), or no longer (-1)."""
        if not self._waited_for:
            self._answer_s = self._loop.time()
        self._waited_for += more

    def answered(self, address: str) -> None:
        """Something came from this address."""
        if address == self.choice.present:
            self._answer_s = self._loop.time()
        self.choice.answered(address)
        self._logged.clear()

    def trouble(self, what: str, error: SyncpointError) -> None:
        """Log what failed; the same words once until something is answered, and LOGGED_MAX of them."""
        self.troubles += 1
        text = f"{what}: {error}"
        if text not in self._logged and len(self._logged) < LOGGED_MAX:
            self._logged.add(text)
            log.warning("%s: %s", what, error)

    def failed(self, address: str, error: SyncpointError) -> None:
        """Something failed at this address, which may be a reason to use another one."""
        if error.code is Code.UNAVAILABLE:
            self._lose(address, error)

    async def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """Use this address from now on; returns once nothing is under way at the one before, after `drain_s` at most.
        What is still under way then ends with UNAVAILABLE. Raises `ValueError`.
        """
        before = self.choice.present
        if not self.choice.switch_to(address):
            return
        self._answer_s = self._loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self._under_way[before]:
                    self._ended.clear()
                    await self._ended.wait()
        if self.choice.present != before:
            await self._drop(before)

    async def close(self) -> None:
        """Close all connections."""
        if self._watch is not None:
            self._watch.cancel()
        for address in list(self._channels):
            await self._drop(address)
        await asyncio.gather(*self._closing)

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._connecting.channel(address)
        return channel

    async def _drop(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    def _begin(self, address: str) -> None:
        self.waits(1)
        self._under_way[address] += 1

    def _end(self, address: str) -> None:
        self._waited_for -= 1
        self._under_way[address] -= 1
        self._ended.set()

    def _lose(self, address: str, error: SyncpointError) -> None:
        if self.choice.failed(address, self._loop.time()):
            self._answer_s = self._loop.time()
            self.trouble(f"{address} is left for {self.choice.present}", error)
            task = self._loop.create_task(self._drop(address))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _keep_watching(self) -> None:
        check_s = self._connecting.check_s
        while True:
            await asyncio.sleep(check_s)
            present = self.choice.present
            if self._waited_for and self._loop.time() - self._answer_s >= check_s:
                if await self._healthy(present):
                    self.answered(present)
                else:
                    self._lose(present, Unavailable("It does not answer."))
            preferred = self.choice.preferred(self._loop.time())
            if preferred is None:
                continue
            if not await self._healthy(preferred):
                self.choice.failed(preferred, self._loop.time())
            elif self.choice.present == present:
                await self.return_to(preferred)

    async def _healthy(self, address: str) -> bool:
        """Whether a server answers there that does not say that it is not serving."""
        check = methods.HEALTH.Check
        try:
            answer = await self._channel(address).unary(
                check, b"", metadata=self._connecting.metadata(), timeout=self._connecting.check_s
            )
        except SyncpointError as error:
            return error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
        response = check.response
        return bool(response.FromString(answer).status != response.NOT_SERVING)
