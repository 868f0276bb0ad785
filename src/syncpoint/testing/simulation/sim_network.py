"""A network between simulated processes: it delays, breaks connections, parts groups of processes, and heals.

Place: what `transport.network.TcpNetwork` is in production. Calls go through `transport.memory`.
Promise: as over TCP, what is sent on one call arrives in order or the call breaks; while two processes are parted
nothing passes between them and nothing fails by itself (deadlines do that), and what was under way arrives after the
healing; the end of a process breaks its calls, as soon as the other end can notice it, and calling it is refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import ssl
from collections import Counter
from collections.abc import Callable, Iterable

from syncpoint.base.model.errors import Code, ConnectionRefused, SyncpointError
from syncpoint.base.runtime.random import Random
from syncpoint.testing.simulation.loop import SimProcess, here
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.memory import MemoryStream, unary_over
from syncpoint.wire.transport.network import AnyChannel, Listening, join_address
from syncpoint.wire.transport.server import Fallback
from syncpoint.wire.transport.stream_state import Message

BACKOFF_S = 2.0


class SimNetwork:
    """Who listens where, and what lies between any two processes."""

    def __init__(self, random: Random, *, delay_s_max: float = 0.002, break_chance: float = 0.0) -> None:
        self.random = random
        self.delay_s_max, self.break_chance = delay_s_max, break_chance
        self.broken = 0
        self._listening: dict[str, tuple[SimProcess, Methods]] = {}
        self._streams: dict[SimStream, None] = {}  # in the order they were opened, for the same run again
        self._parted: Counter[frozenset[str]] = Counter()
        self._deaf: Counter[tuple[str, str]] = Counter()  # (sender, receiver): nothing passes this way
        self._held: list[tuple[str, str, Callable[[], None]]] = []
        self._next_port = 20_000

    # -- the interface
    # ----------------------------------------------------------------------------------------------------

    def channel(self, address: str) -> AnyChannel:
        return SimChannel(self, address)

    async def serve(self, methods: Methods, host: str, port: int, on_fallback: Fallback | None = None) -> Listening:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        process = here()
        assert process is not None, "only a process can listen"
        address = join_address(host, port)
        holder = self._listening.get(address)
        if holder is not None and holder[0].alive:
            raise OSError(98, f"{address} is in use")
        self._listening[address] = (process, methods)
        return SimListening(self, host, port)

    # -- what the simulation does to it
    # -----------------------------------------------------------------------------------

    def part(self, some: Iterable[str], others: Iterable[str]) -> Callable[[], None]:
        """Let nothing pass between two groups of processes. Returns what heals this parting, and no other."""
        far = list(others)
        pairs = sorted({tuple(sorted((a, b))) for a in some for b in far if a != b})
        self._parted.update(frozenset(pair) for pair in pairs)
        left = [frozenset(pair) for pair in pairs]

        def heal() -> None:
            while left:
                pair = left.pop()
                self._parted[pair] -= 1
                if self._parted[pair] <= 0:
                    del self._parted[pair]
            self._let_pass()

        return heal

    def deafen(self, receiver: str, senders: Iterable[str]) -> Callable[[], None]:
        """Let nothing reach a process from others, while they still receive it. Returns what heals it."""
        left = [(sender, receiver) for sender in senders]
        self._deaf.update(left)

        def heal() -> None:
            while left:
                way = left.pop()
                self._deaf[way] -= 1
                if self._deaf[way] <= 0:
                    del self._deaf[way]
            self._let_pass()

        return heal

    def heal(self) -> None:
        """Everything passes again, and what was under way arrives."""
        self._parted.clear()
        self._deaf.clear()
        self._let_pass()

    def _let_pass(self) -> None:
        held, self._held = self._held, []
        for sender, receiver, send in held:
            if self.stopped(sender, receiver):
                self._held.append((sender, receiver, send))
            else:
                send()

    def parted(self, one: str, other: str) -> bool:
        """Whether nothing passes between these two now."""
        return frozenset((one, other)) in self._parted

    def stopped(self, sender: str, receiver: str) -> bool:
        """Whether nothing passes from one to the other now."""
        return self.parted(sender, receiver) or (sender, receiver) in self._deaf

    def ended(self, process: SimProcess) -> None:
        """A process is dead: its calls break, and nobody listens at its addresses. Whoever is parted from it learns so
        after the healing and after what it still had to send.
        """
        for address in [where for where, (owner, _) in self._listening.items() if owner is process]:
            del self._listening[address]
        for stream in [one for one in self._streams if process in (one.caller, one.callee)]:
            if self.parted(stream.caller_name, stream.callee.name):
                self.wait_for_healing(stream.caller_name, stream.callee.name, stream.lost_later)
            else:
                stream.lost()

    def stop_listening(self, address: str) -> None:
        self._listening.pop(address, None)

    # -- for streams -------------------------------------------------------------------------------------------------

    def find(self, address: str) -> tuple[SimProcess, Methods] | None:
        return self._listening.get(address)

    def opened(self, stream: SimStream) -> None:
        self._streams[stream] = None

    def closed(self, stream: SimStream) -> None:
        self._streams.pop(stream, None)

    def breaks(self) -> bool:
        """Whether a connection is lost just now."""
        lost = self.break_chance > 0 and self.random.random() < self.break_chance
        self.broken += lost
        return lost

    def wait_for_healing(self, sender: str, receiver: str, send: Callable[[], None]) -> None:
        self._held.append((sender, receiver, send))


class SimListening:
    """An open listener of a simulated process."""

    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self.network, self.host, self.port = network, host, port

    async def renew(self, tls: ssl.SSLContext, within_s: float | None = None) -> None:
        """Do nothing: simulated connections are not encrypted."""

    async def drain(self, grace_s: float) -> None:
        await self.close()

    async def close(self) -> None:
        self.network.stop_listening(join_address(self.host, self.port))


class SimChannel:
    """Calls from the process that made it to one address."""

    def __init__(self, network: SimNetwork, address: str) -> None:
        self._network, self._address = network, address
        self._caller = here()
        self._closed = False

    async def unary(
        self, path: str, message: Message, *, metadata: MetadataItems = (), timeout: float | None = None
    ) -> bytes:
        return await unary_over(self.stream(path, metadata, timeout), message)

    def stream(self, path: str, metadata: MetadataItems = (), timeout: float | None = None) -> SimStream:
        if self._closed:
            raise SyncpointError(Code.UNAVAILABLE, "The channel is closed.")
        found = self._network.find(self._address)
        if found is None:
            raise ConnectionRefused(f"No connection to {self._address}: refused.")
        return SimStream(self._network, self._caller, found[0], found[1], path, metadata, timeout)

    async def close(self) -> None:
        self._closed = True


class _SimDirection:
    """One direction: actions happen in the process at its end, in order, each later than the one before."""

    def __init__(self, stream: SimStream, end: SimProcess | None) -> None:
        self._stream, self._end = stream, end
        self._last = 0.0

    def carry(self, action: Callable[[], None], *, safe: bool = False) -> None:
        stream = self._stream
        network = stream.network
        ends = (stream.caller_name, stream.callee.name)
        sender, receiver = ends if self._end is stream.callee else ends[::-1]
        if not safe and network.breaks():
            stream.lost()
        elif network.stopped(sender, receiver):
            network.wait_for_healing(sender, receiver, lambda: self._send(action, late=True))
        else:
            self._send(action)

    def _send(self, action: Callable[[], None], *, late: bool = False) -> None:
        loop = self._stream.loop
        delay = self._stream.network.random.random() * self._stream.network.delay_s_max
        if late:
            delay += self._stream.backoff_s()
        self._last = max(math.nextafter(self._last, math.inf), loop.time() + delay)
        context = self._end.context() if self._end is not None else contextvars.copy_context()
        loop.call_at(self._last, action, context=context)


class SimStream(MemoryStream):
    """A call between two simulated processes."""

    def __init__(
        self,
        network: SimNetwork,
        caller: SimProcess | None,
        callee: SimProcess,
        methods: Methods,
        path: str,
        metadata: MetadataItems,
        timeout: float | None,
    ) -> None:
        self.network, self.caller, self.callee = network, caller, callee
        self.caller_name = caller.name if caller is not None else "client"
        self.loop = asyncio.get_running_loop()
        self._again_at = -1.0
        network.opened(self)
        super().__init__(methods, path, metadata, timeout, None)

    def _ways(self) -> tuple[_SimDirection, _SimDirection]:
        return _SimDirection(self, self.callee), _SimDirection(self, self.caller)

    def backoff_s(self) -> float:
        """So long after a healing what waited on this connection is sent again: each has a time of its own for that, so
        the words of an older connection may come after those of a newer one.
        """
        now = self.loop.time()
        if now > self._again_at:
            self._again_at = now + self.network.random.random() ** 3 * BACKOFF_S
        return self._again_at - now

    def lost_later(self) -> None:
        """As `lost`, once what is under way has arrived."""
        seconds = self.backoff_s() + 2 * self.network.delay_s_max
        self.loop.call_later(seconds, self.lost, context=contextvars.Context())

    def lost(self) -> None:
        """The connection under this call is gone: both ends notice it, if they still live."""
        self.network.closed(self)
        for end, act in ((self.caller, self._cut_off), (self.callee, self.call.cancel)):
            self.loop.call_soon(act, context=end.context() if end is not None else contextvars.Context())

    def _cut_off(self) -> None:
        self._finish(SyncpointError(Code.UNAVAILABLE, "The connection was lost."))

    def _finish(self, error: SyncpointError | None) -> None:
        self.network.closed(self)
        super()._finish(error)
