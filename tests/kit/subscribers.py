"""A cluster in memory for the gatherer: processes that own chains, forwarders that gather from them, a bad network.

The processes are twins of publish forwarders: they keep messages and acknowledgements of chains in plain memory, speak
the words of internal.proto, and grant as protocol rule 17 says. What is between is driven by a manual clock: streams
keep their order, are late, and break.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

from syncpoint.kernel import publish as kernel
from syncpoint.kernel.acks import AckSet
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Change, Subscription, Topic
from syncpoint.model.errors import Code
from syncpoint.model.identity import UNIVERSE_MIN, id_prefix, make_source
from syncpoint.model.times import GRANT_S
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.subscribe.consumer import Consumer
from syncpoint.subscribe.gather import Gatherer
from syncpoint.subscribe.lease_holder import lender_of
from syncpoint.subscribe.peers import Peer
from syncpoint.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.wire.messages import internal, pubsub

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
TOPIC_NUMBER, SUB_NUMBER = 1, 2


class Source:
    def __init__(self, number: int, chain: int, epoch: int) -> None:
        self.number, self.chain, self.epoch, self.sealed = number, chain, epoch, False
        self.entries: list[tuple[int, int, bytes]] = []  # first offset, count, payload
        self.end = 0
        self.acks = AckSet()

    @property
    def done(self) -> bool:
        return self.sealed and self.acks.first_gap(0) >= self.end


class Chain:
    """What disks would keep: it survives its owners. Grants do not."""

    def __init__(self, number: int) -> None:
        self.number, self.sources, self.logs, self.epoch = number, list[Source](), 0, 0
        self.grants: dict[int, tuple[int, str]] = {}  # source -> (grant, member), of the owner now
        self.known: dict[int, tuple[int, str]] = {}  # the newest grant of each source: it is in the log
        self.granted = 0
        self.waits_until = 0.0  # an adopter grants strict sources from then on

    def open_source(self, epoch: int) -> Source:
        for source in self.sources:
            source.sealed = True
        self.logs += 1
        self.sources.append(Source(make_source(self.logs * 100 + self.number, 0), self.number, epoch))
        return self.sources[-1]


class Session:
    """One Serve stream at its server."""

    def __init__(self, process: "Process", send: Callable[[bytes], None]) -> None:
        self.process, self._send = process, send
        self.member, self.attached, self.wanted, self.beat_at = "", False, False, process.world.clock.monotonic()

    def tell(self, **what: Any) -> None:
        self._send(internal.FromChains(**what).SerializeToString())

    def received(self, data: bytes) -> None:
        message = internal.ToChains.FromString(data)
        kind = message.WhichOneof("what")
        what = getattr(message, kind)
        if kind == "hello":
            self.member = what.member
            self.process.world.hellos.append(what)
            self.process.sessions[self.member] = self
            self.tell(owned=internal.Owned(chains=sorted(self.process.chains)))
        elif kind == "heartbeat":
            self.beat_at = self.process.world.clock.monotonic()
            owned = [internal.OwnedChain(chain=one, age_ms=self.process.age_ms()) for one in self.process.chains]
            self.tell(heartbeat=internal.Heartbeat(number=what.number, chains=owned))
        elif kind == "attach":
            self.attached, self.wanted = True, what.wanted
            self.process.attach(self, {one.source: one.grant for one in what.grants})
        elif kind == "detach":
            self.attached = self.wanted = False
            self.process.release(self.member)
        elif kind == "serves":
            self.process.world.serves.append(list(what.subscriptions))
        elif kind == "wants":
            self.wanted = what.wanted
            self.process.grant()
        elif kind == "released":
            self.process.released(self.member, what)
        elif kind == "fetch":
            answer = self.process.fetch(self.member, what)
            self.process.fetches += 1
            if not self.process.slow:
                self.tell(fetched=answer)
        elif kind == "acknowledge":
            answer = self.process.acknowledge(self.member, what)
            if not self.process.mute:
                self.tell(acknowledged=answer)


class Process:
    """A publish forwarder process."""

    def __init__(self, world: "GatherWorld", address: str) -> None:
        self.world, self.address = world, address
        self.chains: dict[int, Chain] = {}
        self.sessions: dict[str, Session] = {}
        self.lost_at: dict[str, float] = {}
        self.leaving: set[int] = set()  # grants that were revoked, not released
        self.fetches = 0
        self.slow = False  # nothing that is fetched arrives
        self.mute = False  # its answers to acknowledgements are lost
        self.obeyed_until = math.inf  # its disks do not answer it from then on

    def age_ms(self) -> int:
        """How long ago the disks of its chains answered."""
        return round(1000 * max(0.0, self.world.clock.monotonic() - self.obeyed_until))

    @property
    def strict(self) -> bool:
        return self.world.record.ordered or self.world.record.exactly_once

    def open(self, chain: Chain, *, after: bool) -> None:
        self.chains[chain.number] = chain
        chain.epoch += 1
        chain.granted = chain.epoch << 32
        chain.grants.clear()
        chain.waits_until = self.world.clock.monotonic() + GRANT_S if after else 0.0
        chain.open_source(self.world.epoch)
        for session in self.sessions.values():
            session.tell(owned=internal.Owned(chains=sorted(self.chains)))
        self.grant()

    def attach(self, session: Session, claims: Mapping[int, int]) -> None:
        for chain in self.chains.values():
            for source in chain.sources:
                claimed = claims.get(source.number)
                known = claimed and chain.known.get(source.number) == (claimed, session.member)
                if known and self.strict and source.number not in chain.grants:
                    chain.grants[source.number] = chain.known[source.number]
        self.grant()
        for chain in self.chains.values():
            self.name(session, chain, complete=True)

    def name(self, session: Session, chain: Chain, *, complete: bool = False) -> None:
        sources = [
            internal.Source(
                number=one.number, begin=one.acks.first_gap(0), sealed=one.sealed, epoch=one.epoch, chain=chain.number,
                grant=grant if member == session.member else 0,
            )
            for one in chain.sources
            if not one.done
            for grant, member in [chain.grants.get(one.number, (0, ""))]
        ]  # fmt: skip
        session.tell(
            sources=internal.Sources(
                subscription=SUB_NUMBER, sources=sources, chain=chain.number, all=complete, age_ms=self.age_ms()
            )
        )

    def name_all(self, chain: Chain) -> None:
        for session in self.sessions.values():
            if session.attached:
                self.name(session, chain)

    def release(self, member: str) -> None:
        for chain in self.chains.values():
            for source in [s for s, (_, holder) in chain.grants.items() if holder == member]:
                self.leaving.discard(chain.grants.pop(source)[0])
        self.grant()

    def released(self, member: str, what: Any) -> None:
        for chain in self.chains.values():
            if chain.grants.get(what.source) == (what.grant, member):
                del chain.grants[what.source]
                self.leaving.discard(what.grant)
        self.grant()

    def revoke(self, chain: Chain, source: int) -> None:
        grant, member = chain.grants[source]
        session = self.sessions.get(member)
        if session is not None and grant not in self.leaving:
            self.leaving.add(grant)
            session.tell(revoke=internal.Revoke(subscription=SUB_NUMBER, source=source, grant=grant))

    def grant(self) -> None:
        """Give what nobody has to somebody who wants it."""
        now = self.world.clock.monotonic()
        wanting = sorted(s.member for s in self.sessions.values() if s.attached and s.wanted)
        for chain in self.chains.values():
            holders = {member for _, member in chain.grants.values()}
            for source in chain.sources:
                if source.done or source.number in chain.grants or not wanting:
                    continue
                if self.strict and (now < chain.waits_until or len(holders) > 1):
                    continue
                member = wanting[source.number % len(wanting)]
                if self.strict:
                    member = next(iter(holders), member)
                    holders = {member}
                chain.granted += 1
                chain.grants[source.number] = chain.known[source.number] = (chain.granted, member)
                if member in self.sessions:
                    self.name(self.sessions[member], chain)

    def tick(self) -> None:
        """Free the grants of those who are gone or want nothing, and share the others anew."""
        now = self.world.clock.monotonic()
        limit = GRANT_S if self.strict else 1.0
        for member in sorted({m for chain in self.chains.values() for _, m in chain.grants.values()}):
            session = self.sessions.get(member)
            if session is None:
                since = self.lost_at.get(member, now)
                self.lost_at.setdefault(member, now)
            elif now - session.beat_at > GRANT_S and self.strict:
                since = session.beat_at
            else:
                self.lost_at.pop(member, None)
                since = now
            if now - since > limit:
                self.release(member)
        wanting = sorted(s.member for s in self.sessions.values() if s.attached and s.wanted)
        for chain in self.chains.values():
            for source, (_, member) in list(chain.grants.items()):
                best = wanting[source % len(wanting)] if wanting else member
                if self.strict and member != min(holder for _, holder in chain.grants.values()):
                    self.revoke(chain, source)  # of one chain all go to one
                if (not self.strict and member != best) or (wanting and member not in wanting):
                    self.revoke(chain, source)
        self.grant()

    def _find(self, number: int) -> Source | None:
        for chain in self.chains.values():
            for source in chain.sources:
                if source.number == number:
                    return source
        return None

    def fetch(self, member: str, what: Any) -> Any:
        source = self._find(what.source)
        if source is None:
            return internal.Fetched(id=what.id, error="not here", code=Code.UNAVAILABLE)
        if self.chains[source.chain].grants.get(source.number) != (what.grant, member):
            return internal.Fetched(id=what.id, error="no grant", code=Code.FAILED_PRECONDITION)
        begin, batches = source.acks.first_gap(what.begin), []
        for first, number, payload in source.entries:
            if first + number > begin and len(batches) < 2:
                batches.append(internal.Batch(
                    source=source.number, first_offset=first, begin=max(begin, first), end=first + number,
                    skip=source.acks.mask(first, first + number) or b"", payload=payload,
                ))  # fmt: skip
                begin = first + number
        return internal.Fetched(id=what.id, batches=batches)

    def acknowledge(self, member: str, what: Any) -> Any:
        source = self._find(what.source)
        if source is None:
            return internal.Acknowledged(id=what.id, error="not here", code=Code.UNAVAILABLE)
        granted = self.chains[source.chain].grants.get(source.number) == (what.grant, member)
        if self.world.record.exactly_once and not granted:
            return internal.Acknowledged(id=what.id, error="no grant", code=Code.FAILED_PRECONDITION)
        source.acks.add_runs(what.runs)
        return internal.Acknowledged(id=what.id)

    def append(self, chain: Chain, data: str, key: str) -> None:
        source = chain.sources[-1]
        message = pubsub.PubsubMessage(data=data.encode(), ordering_key=key)
        request = pubsub.PublishRequest(topic=TOPIC, messages=[message]).SerializeToString()
        number, payload, _, _, _ = kernel.scan(request, id_prefix(UNIVERSE_MIN, source.number), source.end, 1, 0)
        source.entries.append((source.end, number, payload))
        source.end += number
        held = chain.grants.get(source.number)
        if held is not None and held[1] in self.sessions:
            self.sessions[held[1]].tell(data=internal.Data(subscription=SUB_NUMBER, source=source.number))


class TwinDoor:
    """A `peers.Door` over the world's network."""

    def __init__(self, world: "GatherWorld", address: str, peer: Peer) -> None:
        self.world, self.address, self.peer = world, address, peer
        self.number, self.session, self.closed, self.holes, self._last = 0, None, False, False, 0.0
        self.member = world.connecting
        world.later(self._open)

    def _open(self) -> None:
        process = self.world.processes.get(self.address)
        if self.closed or self.session is not None:
            return
        if process is None or (self.member, self.address) in self.world.cut:
            self.world.later(self._open, 0.3)
            return
        self.number += 1
        number, self.holes = self.number, False
        session = Session(process, lambda data: self._carry(number, lambda: self.peer.received(data)))
        self.session = session
        self.peer.began()

    def _carry(self, number: int, act: Callable[[], None]) -> None:
        def arrive() -> None:
            if number != self.number:
                return
            if (self.member, self.address) in self.world.cut:
                self.holes = True
            elif self.holes:
                self.broken()  # a stream that lost something never goes on
            else:
                act()

        at = max(self._last, self.world.clock.monotonic() + self.world.random.random() * self.world.delay_s)
        self._last = at
        self.world.at(at, arrive)

    def send(self, message: bytes) -> None:
        session = self.session
        if session is not None:
            self._carry(self.number, lambda: session.received(message))

    def reset(self) -> None:
        self.broken()

    def broken(self) -> None:
        """The stream breaks, at both ends; it is opened again after a while."""
        session, self.session = self.session, None
        if session is not None:
            self.number += 1
            sessions = session.process.sessions
            if sessions.get(session.member) is session:
                del sessions[session.member]
                session.process.lost_at[session.member] = (
                    session.beat_at if session.process.strict else self.world.clock.monotonic()
                )
            self.peer.lost()
            self.world.later(self._open, 0.2)

    def close(self) -> None:
        self.closed = True
        self.broken()


class Forwarder:
    """A subscribe forwarder process; its `leases`, `settle` and the rest are what `testing.forwarders` expects."""

    def __init__(self, world: "GatherWorld", member: str, registered: int | None = 1) -> None:
        self.world, self.member = world, member
        world.connecting = member
        self.gatherer = Gatherer(
            member, 7, world.catalog, world, world.clock, connect=self._connect, publish=lambda *_: None,
            registered=registered,
        )  # fmt: skip
        self.subscribe = SubscribeForwarder(
            self.gatherer, world.catalog, world.clock, key=bytes(32), random=world.random,
            soon=world.soon.append, lender=lender_of(member, 7), linger_s=10.0, guard=self.gatherer.guard,
        )  # fmt: skip

    def _connect(self, address: str, peer: Peer) -> TwinDoor:
        self.world.connecting = self.member
        door = TwinDoor(self.world, address, peer)
        self.world.doors.append(door)
        return door


class Client:
    """Takes messages from one forwarder, remembers what came, acknowledges one by one."""

    def __init__(
        self,
        world: "GatherWorld",
        forwarder: Forwarder,
        *,
        most: int = 1000,
        single: bool = False,
        deadline_s: int = 10,
    ) -> None:
        self.world, self.forwarder = world, forwarder
        self.held: dict[str, str] = {}
        self.data: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self.consumer: Consumer = forwarder.subscribe.join(
            world.record, self._send, max_messages=most, max_bytes=1 << 30, deadline_s=deadline_s, gone=lambda: None,
            single=single,
        )  # fmt: skip

    def _send(self, parts: Any, serials: Any) -> None:
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            text = one.message.data.decode()
            self.held[one.ack_id] = text
            self.data.append(text)
            self.world.delivered.append(text)

    def ack(self, ack_id: str) -> None:
        text = self.held.pop(ack_id)

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            if failed:
                self.refused.append(text)
            elif unknown:
                self.unknown.append(text)
            else:
                self.world.confirmed.append(text)

        request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=[ack_id]).SerializeToString()
        leases = self.forwarder.subscribe.delivery(self.world.record).leases
        try:
            leases.acknowledge(request, 2, self.world.clock.monotonic(), confirmed)
        except Exception:  # nothing is to be reached: as if it had not been sent
            self.held[ack_id] = text

    def nack(self, ack_id: str) -> None:
        del self.held[ack_id]
        request = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=[ack_id]).SerializeToString()
        self.forwarder.subscribe.delivery(self.world.record).leases.modify(request, 4, 0, self.world.clock.monotonic())

    def leave(self) -> None:
        self.forwarder.subscribe.leave(self.world.record, self.consumer)


class GatherWorld:
    """`processes` processes own `chains` chains; one topic, one subscription. It is the `Directory`, too."""

    def __init__(self, *, processes: int, chains: int, delay_s: float = 0.0, seed: int = 1, **options: Any) -> None:
        self.clock, self.random, self.delay_s = ManualClock(), SeededRandom(seed), delay_s
        self.soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.connecting = ""
        self.doors: list[TwinDoor] = []
        self.hellos: list[Any] = []
        self.serves: list[list[int]] = []
        self.cut: set[tuple[str, str]] = set()
        self.delivered: list[str] = []
        self.confirmed: list[str] = []
        self.epoch = 1
        self.catalog = Catalog()
        self.record = Subscription(SUB_NUMBER, SUB, TOPIC_NUMBER, TOPIC, **options)
        for change in self.catalog.assign([Change.put(Topic(TOPIC_NUMBER, TOPIC)), Change.put(self.record)]):
            self.catalog.apply(change)
        self.processes = {f"p{n}": Process(self, f"p{n}") for n in range(processes)}
        self.chains = {n: Chain(n) for n in range(1, chains + 1)}
        self.assigned = list(self.chains)
        self.forwarders: list[Forwarder] = []
        for number, chain in self.chains.items():
            self.processes[f"p{number % processes}"].open(chain, after=False)

    # -- Directory ---------------------------------------------------------------------------------------------------

    def owners(self) -> Mapping[int, str]:
        return {number: one.address for one in self.processes.values() for number in one.chains}

    def chains_of(self, topic: int) -> Collection[int]:
        return [number for number, chain in self.chains.items() if chain.sources]

    def look(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        found = self.chains_of(topic)
        self.later(lambda: reply(found if self.random.random() < 0.8 else None))

    # -- what happens ------------------------------------------------------------------------------------------------

    def forwarder(self, member: str, registered: int | None = 1) -> Forwarder:
        self.forwarders.append(Forwarder(self, member, registered))
        return self.forwarders[-1]

    def publish(self, data: str, key: str = "") -> bool:
        """To the chain of the key, or any. False if nobody owns it now."""
        number = (
            self.assigned[hash_of(key) % len(self.assigned)]
            if key
            else self.assigned[self.random.randrange(0, len(self.assigned))]
        )
        for process in self.processes.values():
            if number in process.chains:
                process.append(self.chains[number], data, key)
                return True
        return False

    def kill(self, address: str) -> list[Chain]:
        """A process dies. Its chains wait for an owner."""
        dead = self.processes.pop(address)
        for door in self.doors:
            if door.address == address:
                door.broken()
        return list(dead.chains.values())

    def adopt(self, chains: list[Chain], address: str) -> None:
        """Somebody takes chains over; a new process if there is none of that name."""
        process = self.processes.get(address) or self.processes.setdefault(address, Process(self, address))
        for chain in chains:
            process.open(chain, after=True)
        self.changed()

    def changed(self) -> None:
        for forwarder in self.forwarders:
            forwarder.gatherer.changed()

    def assign(self, chains: list[int]) -> None:
        """Another set of chains shares the topic: the sources of all end, then the new ones begin."""
        self.epoch += 1
        for process in self.processes.values():
            for chain in process.chains.values():
                chain.open_source(self.epoch)
                process.name_all(chain)
            process.grant()
        self.assigned = chains

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (when, next(self._order), act))

    def later(self, act: Callable[[], None], seconds: float = 0.0) -> None:
        self.at(self.clock.monotonic() + seconds + self.random.random() * self.delay_s, act)

    def settle(self) -> None:
        for _ in range(10_000):
            if self.soon:
                self.soon.popleft()()
            elif self._timers and self._timers[0][0] <= self.clock.monotonic():
                heapq.heappop(self._timers)[2]()
            else:
                return
        raise AssertionError("the world does not come to rest")

    def advance(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds * 10))):
            self.settle()
            self.clock.advance(0.1)
            for forwarder in self.forwarders:
                forwarder.gatherer.tick()
                forwarder.subscribe.tick()
            for process in self.processes.values():
                process.tick()
            self.settle()

    @property
    def all_done(self) -> bool:
        return all(s.acks.first_gap(0) >= s.end for chain in self.chains.values() for s in chain.sources)


def hash_of(key: str) -> int:
    return sum(key.encode())
