"""The driver under a peer: streams over the transport's twin, lost and opened again."""

import asyncio
from typing import Any

from syncpoint.base.model.delivery import passed_over
from syncpoint.base.model.times import BEAT_S, HOLD_S
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.subscribe.link import ServeLink
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall
from syncpoint.wire.transport.memory import Faults, MemoryChannel


class OneServer:
    """A network with one address."""

    def __init__(self, methods: Methods, faults: Faults) -> None:
        self.methods, self.faults = methods, faults

    def channel(self, address: str) -> MemoryChannel:
        return MemoryChannel(self.methods, self.faults)

    async def serve(self, methods: Methods, host: str, port: int) -> Any:
        raise NotImplementedError


class Server:
    """Answers heartbeats and fetches, unless it is paused."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.hellos: list[Any] = []
        self.paused = self.displacing = False
        self.streams: list[StreamingCall] = []

    def methods(self) -> Methods:
        return {methods.CHAINS.Serve.encode(): Streaming(self.open)}

    def open(self, stream: StreamingCall) -> None:
        self.streams.append(stream)

        def message(data: bytes) -> None:
            asked = internal.ToChains.FromString(data)
            kind = asked.WhichOneof("what")
            self.received.append(kind)
            if kind == "hello":
                self.hellos.append(asked.hello)
            if self.paused:
                return
            if self.displacing:
                stream.send(internal.FromChains(displaced=internal.Displaced()).SerializeToString())
            elif kind == "heartbeat":
                stream.send(internal.FromChains(heartbeat=asked.heartbeat).SerializeToString())
            elif kind == "fetch":
                answer = internal.Fetched(
                    id=asked.fetch.id,
                    batches=[internal.Batch(source=7, end=1, payload=b"x")],
                    passed=[internal.Range(begin=1, end=3)],
                )
                stream.send(internal.FromChains(fetched=answer).SerializeToString())

        stream.on_message = message


class Visitor:
    def __init__(self) -> None:
        self.said: list[str] = []

    def peer_up(self, peer: Peer) -> None:
        self.said.append("up")

    def peer_down(self, peer: Peer) -> None:
        self.said.append("down")

    def peer_said(self, peer: Peer, kind: str, what: Any) -> None:
        self.said.append(kind)


class Place:
    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.server, self.visitor = clock, Server(), Visitor()
        self.faults = Faults(SeededRandom(1))
        network = OneServer(self.server.methods(), self.faults)
        self.link: ServeLink

        def connect(address: str, peer: Peer) -> ServeLink:
            self.link = ServeLink(network, address, peer)
            return self.link

        self.peer = Peer("p0:1", "me", 5, clock, self.visitor, connect)

    async def ticks(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await asyncio.sleep(0.1)
            self.peer.tick(self.clock.monotonic())

    async def close(self) -> None:
        self.peer.close()
        await self.link.closed()


def in_time(work: Any) -> None:
    clock = ManualClock()

    async def run() -> None:
        place = Place(clock)
        try:
            await work(place)
        finally:
            await place.close()

    run_simulated(clock, run())


@plain_test(in_time)
async def test_a_peer_is_up_once_it_was_seen_and_answers_what_it_is_asked(place: Place) -> None:
    assert not place.peer.up
    await place.ticks(0.2)
    assert place.peer.up
    assert place.server.received[:2] == ["hello", "heartbeat"]
    got: list[Any] = []
    place.peer.fetch(got.append, 10, subscription=1, source=7, begin=0, grant=3, generation=0)
    await place.ticks(0.2)
    assert got[0][0].payload == b"x"
    assert passed_over(got[0]) == ((1, 3),)
    await place.ticks(3 * BEAT_S)
    assert place.server.received.count("heartbeat") >= 3


@plain_test(in_time)
async def test_a_lost_stream_gives_up_what_was_asked_and_is_opened_again(place: Place) -> None:
    await place.ticks(0.2)
    place.server.paused = True
    got: list[Any] = []
    place.peer.fetch(got.append, 10, subscription=1, source=7, begin=0, grant=3, generation=0)
    await place.ticks(0.2)
    place.server.paused = False
    place.server.streams[-1].finish()
    await place.ticks(0.1)
    assert isinstance(got[0], Exception)
    await place.ticks(1)
    assert place.visitor.said == ["up", "down", "up"]


@plain_test(in_time)
async def test_a_silent_peer_is_given_up_before_its_grants_are_over(place: Place) -> None:
    await place.ticks(0.2)
    place.server.paused = True
    await place.ticks(HOLD_S - 0.5)
    assert place.peer.up
    await place.ticks(1)
    assert not place.peer.up
    place.server.paused = False
    await place.ticks(HOLD_S + 1)
    assert place.peer.up
    assert len(place.server.streams) >= 2


@plain_test(in_time)
async def test_a_displaced_stream_is_begun_again_and_not_too_often(place: Place) -> None:
    await place.ticks(0.2)
    assert place.peer.up
    place.server.displacing = True
    await place.ticks(10)
    assert not place.peer.up
    assert 5 <= len(place.server.streams) <= 20
    place.server.displacing = False
    await place.ticks(2)
    assert place.peer.up
    numbers = [hello.stream for hello in place.server.hellos]
    assert numbers == sorted(set(numbers))


@plain_test(in_time)
async def test_nobody_there_is_tried_again_until_somebody_is(place: Place) -> None:
    place.faults.cut = True
    await place.ticks(10)
    assert not place.peer.up
    place.faults.cut = False
    await place.ticks(6)
    assert place.peer.up


@plain_test(in_time)
async def test_a_farewell_leaves_before_the_stream_ends(place: Place) -> None:
    await place.ticks(0.2)
    place.peer.send_message(detach=internal.Detach(subscription=1))
    place.peer.close()
    await place.link.closed()
    await asyncio.sleep(0.2)
    assert place.server.received[-1] == "detach"
