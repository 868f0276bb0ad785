"""Subscribe forwarders before publish hosts, over a network that is late, is cut, and loses answers.

Between a client that joins and the files of the disks everything is the code of production: hosts of `chain`, with
chains of one disk each, the transport's twin, `ServeLink`, gatherer and deliveries. A test runs in simulated time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.chain.service import ChainsService
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.gather import Gatherer
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.broker.subscribe.link import ServeLink
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.testing.rigs.simulated_loop import SimulatedLoop
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.transport.calls import Streaming
from syncpoint.wire.transport.memory import Faults, MemoryCall, MemoryChannel
from tests.kit.chain import SUB, TOPIC_NUMBER, ChainHarness, Process


class Way:
    """The network as one forwarder has it."""

    def __init__(self, harness: SubscribeHarness, member: str) -> None:
        self._harness, self._member = harness, member

    def channel(self, address: str) -> MemoryChannel:
        harness = self._harness
        process = harness.processes.get(address)
        if process is None:
            return MemoryChannel({})
        served = ChainsService(process.host).methods()
        path = methods.CHAINS.Serve.encode()
        serve = served[path]
        assert isinstance(serve, Streaming)

        def begin(stream: MemoryCall) -> None:
            serve.handler(stream)
            answer, take = stream.to_client, stream.on_message
            assert take is not None

            def asked(data: bytes) -> None:
                message = internal.ToChains.FromString(data)
                if message.WhichOneof("what") == "hello":
                    harness.hellos.append(message.hello)
                elif message.WhichOneof("what") == "serves":
                    harness.serves.append(list(message.serves.subscriptions))
                elif message.WhichOneof("what") == "fetch":
                    harness.fetches[address] = harness.fetches.get(address, 0) + 1
                take(data)

            def answered(data: bytes) -> None:
                if (address, internal.FromChains.FromString(data).WhichOneof("what")) not in harness.lost_answers:
                    answer(data)

            stream.to_client, stream.on_message = answered, asked

        return MemoryChannel({**served, path: Streaming(begin)}, harness.line(self._member, address))

    async def serve(self, *_: Any) -> Any:
        raise NotImplementedError


class Forwarder:
    """A subscribe forwarder process."""

    def __init__(self, harness: SubscribeHarness, member: str, registered: int | None = 1) -> None:
        self.harness, self.member = harness, member
        self.links: list[ServeLink] = []
        catalog, loop = harness.chains.master, asyncio.get_running_loop()
        self.gatherer = Gatherer(
            member, harness.incarnation(member), catalog, harness, harness.clock, connect=self._connect,
            publish=lambda *_: None, registered=registered,
        )  # fmt: skip
        self.subscribe = SubscribeForwarder(
            self.gatherer, catalog, harness.clock, key=bytes(32), random=harness.random, soon=loop.call_soon,
            lender=lender_of(member, harness.incarnation(member)), linger_s=10.0, guard=self.gatherer.guard,
        )  # fmt: skip
        self._ticking = loop.create_task(self._tick())

    def _connect(self, address: str, peer: Peer) -> ServeLink:
        self.links.append(ServeLink(Way(self.harness, self.member), address, peer))
        return self.links[-1]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.gatherer.changed()
            self.gatherer.tick()
            self.subscribe.tick()


class Client:
    """Takes messages from one forwarder, remembers what came, acknowledges one by one."""

    def __init__(
        self,
        harness: SubscribeHarness,
        forwarder: Forwarder,
        *,
        most: int = 1000,
        single: bool = False,
        deadline_s: int = 10,
    ) -> None:
        self.harness, self.forwarder = harness, forwarder
        self.held: dict[str, str] = {}
        self.data: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self.consumer: Consumer = forwarder.subscribe.join(
            harness.record, self._send, max_messages=most, max_bytes=1 << 30, deadline_s=deadline_s, gone=lambda: None,
            single=single,
        )  # fmt: skip

    def _send(self, parts: Any, serials: Any) -> None:
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            text = one.message.data.decode()
            self.held[one.ack_id] = text
            self.data.append(text)
            self.harness.delivered.append(text)

    def ack(self, *ack_ids: str) -> None:
        """These, or all it holds."""
        for ack_id in ack_ids or list(self.held):
            self._ack(ack_id)

    async def ack_again(self, ack_id: str) -> None:
        """Once more what "m" came with."""
        self.held[ack_id] = "m"
        self.ack(ack_id)
        await asyncio.sleep(1)

    def _ack(self, ack_id: str) -> None:
        text = self.held.pop(ack_id)

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            if failed:
                self.refused.append(text)
            elif unknown:
                self.unknown.append(text)
            else:
                self.harness.confirmed.append(text)

        request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=[ack_id]).SerializeToString()
        leases = self.forwarder.subscribe.delivery(self.harness.record).leases
        try:
            leases.acknowledge(request, 2, self.harness.clock.monotonic(), confirmed)
        except SyncpointError:  # nothing is to be reached: as if it had not been sent
            self.held[ack_id] = text

    def nack(self, ack_id: str) -> None:
        del self.held[ack_id]
        request = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=[ack_id]).SerializeToString()
        self.forwarder.subscribe.delivery(self.harness.record).leases.modify(
            request, 4, 0, self.harness.clock.monotonic()
        )

    def leave(self) -> None:
        self.forwarder.subscribe.leave(self.harness.record, self.consumer)


class SubscribeHarness:
    """`processes` p0, p1 ... own `chains` in turn; one topic, one subscription. It is the `Directory`, too."""

    record: Subscription

    def __init__(self, *, delay_s: float = 0.0, seed: int = 1) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.clock, self.random, self.delay_s = loop.clock, SeededRandom(seed), delay_s
        self.chains = ChainHarness(self.clock)
        self.processes: dict[str, Process] = {}
        self.orphans: list[int] = []  # chains nobody owns
        self.forwarders: list[Forwarder] = []
        self.lines: dict[tuple[str, str], Faults] = {}
        self.lost_answers: set[tuple[str, str]] = set()  # (address, kind of message)
        self.hellos: list[Any] = []
        self.serves: list[list[int]] = []
        self.fetches: dict[str, int] = {}
        self.delivered: list[str] = []
        self.confirmed: list[str] = []

    @classmethod
    async def start(
        cls, *, processes: int = 1, chains: int = 1, delay_s: float = 0.0, seed: int = 1, **options: Any
    ) -> SubscribeHarness:
        harness = cls(delay_s=delay_s, seed=seed)
        for number in range(processes):
            harness.processes[f"p{number}"] = harness.chains.process(f"p{number}")
        for number in range(1, chains + 1):
            await harness.processes[f"p{number % processes}"].open(number, clusters=1, disks=1)
        harness.chains.assign(*range(1, chains + 1))
        harness.record = await harness.chains.subscribe(**options)
        return harness

    @classmethod
    async def leasing(cls, *, deadline_s: int = 10, **options: Any) -> tuple[SubscribeHarness, Client, str]:
        """A client of a forwarder "a" holds the one message "m"; with what it acknowledges it."""
        harness = await cls.start(**options)
        client = Client(harness, harness.forwarder("a"), deadline_s=deadline_s)
        await harness.publish("m")
        await asyncio.sleep(1)
        (ack_id,) = client.held
        return harness, client, ack_id

    # -- Directory ---------------------------------------------------------------------------------------------------

    def owners(self) -> Mapping[int, str]:
        return {number: name for name, process in self.processes.items() for number in process.host.chains}

    def chains_of(self, topic: int) -> Collection[int]:
        return sorted(chain for of, chain in self.chains.registered if of == topic)

    def read_chains(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        found = self.chains_of(topic)
        answer = found if self.delay_s == 0 or self.random.random() < 0.8 else None
        asyncio.get_running_loop().call_later(0.02, reply, answer)

    # -- what happens ------------------------------------------------------------------------------------------------

    def incarnation(self, member: str) -> int:
        return 100 + ord(member[0])

    def forwarder(self, member: str, registered: int | None = 1) -> Forwarder:
        self.forwarders.append(Forwarder(self, member, registered))
        return self.forwarders[-1]

    def line(self, member: str, address: str) -> Faults:
        """Between a forwarder and a process."""
        found = self.lines.get((member, address))
        if found is None:
            found = self.lines[member, address] = Faults(self.random, delay_s_max=self.delay_s)
        return found

    def cut(self, member: str, *addresses: str) -> None:
        for address in addresses or list(self.processes):
            self.line(member, address).cut = True

    def heal(self) -> None:
        for line in self.lines.values():
            line.cut = False

    def break_streams(self, *members: str, address: str = "") -> None:
        """Of these forwarders, or all; they connect again."""
        for forwarder in self.forwarders:
            for link in forwarder.links if not members or forwarder.member in members else ():
                if address in ("", link._address):
                    link.reset()

    async def publish(self, data: str, key: str = "", chain: int = 0) -> bool:
        """To the chain of the key, this one, or any that the topic has. False if it is not known to be stored."""
        assignment = self.chains.assignments[TOPIC_NUMBER]
        place = sum(key.encode()) if key else self.random.randrange(0, len(assignment.chains))
        number = chain or assignment.chains[place % len(assignment.chains)]
        owner = self.owners().get(number)
        if owner is None:
            return False
        try:
            await self.processes[owner].publish(data, chain=number, key=key, epoch=assignment.epoch if key else 0)
        except Unavailable:
            return False
        return True

    async def kill(self, address: str) -> None:
        """A process dies. Its chains wait for an owner."""
        dead = self.processes.pop(address)
        self.orphans += sorted(dead.host.chains)
        await dead.crash()
        self.break_streams(address=address)

    async def adopt(self, address: str) -> None:
        """A process takes all chains over that nobody owns; a new one if there is none of that name."""
        if address not in self.processes:
            self.processes[address] = self.chains.process(address)
        orphans, self.orphans = self.orphans, []
        for chain in orphans:
            await self.processes[address].open(chain, clusters=1, disks=1)

    @property
    def left(self) -> int:
        """How many messages of chains that somebody owns are not acknowledged."""
        hosts = [process.host for process in self.processes.values()]
        return sum(unacknowledged(chain.forwarder, self.record) for host in hosts for chain in host.chains.values())

    @property
    def all_done(self) -> bool:
        return not self.orphans and self.left == 0
