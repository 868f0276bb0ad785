"""One seed of three sites that own keys: which site delivers a key moves, by the shipped `KeyMove` and `KeyWatch`.

Place: a life of `site_runs`, with ordering keys. At each site consumers are served by the shipped subscribe forwarder,
over a link that loses and delays. In the middle of moves sites lose power, are parted from the federation, and others
move keys, too. In half of the seeds the policy is `available`: keys of a site that is parted are taken over.

The ledger judges: nothing is lost; what is of one key and one publisher comes in order; nothing that was acknowledged,
or is lent elsewhere, is delivered, unless keys were taken over, and then it is listed.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.key_homes import SLOTS, slot_of
from syncpoint.base.runtime.random import Random
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.home_sites import home_of
from syncpoint.programs.federation.acks.ack_rounds import ExchangeState
from syncpoint.programs.federation.owned_keys.key_move import KeyMove
from syncpoint.programs.federation.owned_keys.key_shares import KeyPolicy
from syncpoint.programs.federation.owned_keys.key_sites import KeySites
from syncpoint.programs.federation.owned_keys.key_watch import KeyWatch
from syncpoint.testing.rigs.lossy_link import LossyLink
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.moving_homes import SHORT
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.sim_site import SUBSCRIPTION, SimSite
from syncpoint.testing.simulation.site_runs import HOMED, CopyFlow, SiteRun, lived
from syncpoint.wire.protobuf.messages import admin, pubsub

KEYS = [f"k{number}" for number in range(6)]
TAKEOVER_S = 1.0
LOSS, DELAY_S = 0.2, 0.2
DRAIN_S = 4.0
DEADLINE_S = 600  # longer than a life: leases end by acknowledgements, nacks and power cuts
HEALED_STEPS = 300


class SiteConsumer:
    """Who consumes at one site. `held`: by data, the ack id under which it was delivered last."""

    def __init__(self, site: SimSite, random: Random) -> None:
        self.site, self.soon = site, deque[Callable[[], None]]()
        self.link = LossyLink(site.publish.server, site.clock, random, loss=LOSS, delay_s=DELAY_S)
        self.subscribe = SubscribeForwarder(
            self.link, site.publish.catalog, site.clock, key=bytes(32), random=random, soon=self.soon.append
        )
        self.held: dict[bytes, Any] = {}
        self.new: list[Any] = []
        self.consumer = self.subscribe.join(
            site.record, self._send, max_messages=2, max_bytes=1 << 30, deadline_s=DEADLINE_S, gone=lambda: None
        )
        site.changed = lambda: self.subscribe.delivery(site.record)

    def _send(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            self.held[one.message.data] = one
            self.new.append(one.message)

    def tick(self) -> list[Any]:
        """Let what is due happen; returns what was delivered."""
        self.subscribe.tick()
        for _ in range(3):
            self.site.rest()
            self.link.run()
            while self.soon:
                self.soon.popleft()()
        new, self.new = self.new, []
        return new

    def has(self, data: bytes) -> bool:
        """Whether a message is lent here."""
        one = self.held.get(data)
        return one is not None and self._delivery.table.is_outstanding(*parse_message_id(one.message.message_id)[1:])

    @property
    def _delivery(self) -> Any:
        return self.subscribe.delivery(self.site.record)

    def end(self, data: bytes, confirmed: Callable[[], None] | None) -> None:
        """Acknowledge a message; None: nack it."""
        ack_ids, now = [self.held.pop(data).ack_id], self.site.clock.monotonic()
        if confirmed is None:
            nack = pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
            self._delivery.leases.modify(nack.SerializeToString(), 4, 0, now)
        else:
            ack = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
            self._delivery.leases.acknowledge(ack.SerializeToString(), 2, now, lambda failed, unknown: confirmed())

    def state(self) -> admin.SubscriptionState:
        """What Admin.GetSubscriptionState reports."""
        home = home_of(self.site.publish.catalog, self.site.record.incarnation)
        return admin.SubscriptionState(
            home=home.home if home is not None and home.elsewhere else "",
            outstanding_messages=self._delivery.table.total()[0],
            leaving_messages=self._delivery.leaving,
        )


class KeyRun(SiteRun):
    """The life of three sites."""

    step_s = 0.2

    def __init__(self, seed: int, trace: Trace | None) -> None:
        super().__init__(seed, HOMED, trace, ordered=True)
        self.available = self.random.random() < 0.5
        self.servers.keys = KeyPolicy((), TAKEOVER_S if self.available else None)
        self.servers.state_of = lambda site: self.consumers[site.name].state()
        self.consumers: dict[str, SiteConsumer] = {}
        self.acked: dict[bytes, set[str]] = defaultdict(set)  # by message, the sites where that is confirmed
        self.acks_tried: dict[bytes, set[str]] = defaultdict(set)
        self.newest: dict[tuple[str, str, str], int] = {}  # delivered of a key of a publisher, at a site
        self.seen: set[tuple[str, bytes]] = set()
        self.stored: list[str] = []  # the records of what was taken over, as the program wrote them
        self._watch, self._watching = self._new_watch(), False
        self._depth, self._healing = 0, False

    def _new_watch(self) -> KeyWatch:
        def load() -> list[Any]:
            return json.loads(self.stored[-1]) if self.stored else []

        return KeyWatch(
            self.servers.links(), self.servers, load, lambda records: self.stored.append(json.dumps(records)),  # type: ignore[arg-type]
            self.clock.monotonic, self._sleep, self.clock.monotonic,
        )  # fmt: skip

    def _step(self) -> None:
        site, flow = self._one_of(self.sites), self._one_of(self.flows)
        self._watch_keys()
        lot = self.random.randrange(0, 100)
        if lot < 20:
            self._publish(site)
        elif lot < 50:
            self._deliver(site)
        elif lot < 66:
            self._copy(flow)
        elif lot < 80:
            self._round(flow, whole=True)
        elif lot < 86:
            self._part(site)
        elif lot < 91:
            self._crash(site)
        elif lot < 93:
            self._watch = self._new_watch()
        else:
            self._move()

    def _sleep(self, seconds: float) -> None:
        """Life goes on while a program waits."""
        self.clock.advance(seconds)
        self._watch_keys()
        self._copy(self._one_of(self.flows))
        self._deliver(self._one_of(self.sites))
        if self._healing:
            return
        lot = self.random.randrange(0, 100)
        if lot < 3:
            self._crash(self._one_of(self.sites))
        elif lot < 6:
            self._part(self._one_of(self.sites))
        elif lot < 8 and not self._depth:
            self._move()

    # -- what happens ------------------------------------------------------------------------------------------------

    def _publish(self, site: SimSite) -> None:
        for data in site.put(1 + self.random.randrange(0, 3), self._one_of(KEYS)):
            self.published_ns[data] = self.clock.time_ns()

    def _crash(self, site: SimSite) -> None:
        super()._crash(site)
        if self.consumers:
            self.consumers[site.name] = SiteConsumer(site, self.random)

    def _part(self, site: SimSite) -> None:
        """The federation does not reach a site for a while; its clients do."""
        if self.servers.away:
            self.servers.away.clear()
            return
        self.servers.away.add(site.name)
        self.happened["a site is parted"] += 1
        self.note(f"{site.name} is parted")

    def _reached(self, flow: CopyFlow) -> bool:
        return self.servers.away.isdisjoint((flow.source.name, flow.target.name))

    def _copy(self, flow: CopyFlow) -> None:
        if self._reached(flow):
            super()._copy(flow)

    def _round(self, flow: CopyFlow, *, whole: bool = False) -> Any:
        if self._reached(flow) and not self._watch.waits(self._state(flow)):
            return super()._round(flow, whole=whole)
        return None

    @staticmethod
    def _state(flow: CopyFlow) -> ExchangeState:
        return ExchangeState(flow.name, SHORT, flow.source.name, flow.target.name)

    def _watch_keys(self) -> None:
        if self.available and not self._watching:
            self._watching = True
            self._watch.step([self._state(one) for one in self.flows])
            self._watching = False

    def _move(self, wanted: dict[int, str] | None = None) -> None:
        """Move some keys, or these."""
        first = not self.consumers
        if first:
            self.consumers = {site.name: SiteConsumer(site, self.random) for site in self.sites}
            wanted = {slot: self.sites[slot % len(self.sites)].name for slot in range(SLOTS)}
        if wanted is None:
            keys = [one for one in KEYS if self.random.random() < 0.5] or KEYS
            wanted = dict.fromkeys({slot_of(one.encode()) for one in keys}, self._one_of(self.sites).name)
        self._depth += 1
        self.note(f"keys move to {set(wanted.values())}: {sorted(wanted)[:6]}")
        try:
            sites = KeySites(self.servers.links(), self.servers, SHORT)  # type: ignore[arg-type]
            found = KeyMove(sites, self.clock.monotonic, self._sleep).move(wanted, DRAIN_S)
        except SyncpointError as error:
            self.happened["keys stay where they are"] += 1
            self.note(f"they do not: {error}")
        else:
            self.happened["keys move"] += 1
            self.note(f"they are there: {found}")
        self._depth -= 1

    def _deliver(self, site: SimSite, *, all_of_it: bool = False) -> None:
        consumer = self.consumers.get(site.name)
        if consumer is None:  # no key has a home yet
            return
        for message in consumer.tick():
            self._delivered(site.name, message)
        for data in list(consumer.held):
            lot = 0.0 if all_of_it else self.random.random()
            if lot > 0.5 or not consumer.has(data):
                continue
            self.note(f"{site.name} {'acknowledges' if lot < 0.45 else 'nacks'} {data!r}")
            if lot < 0.45:
                self.acks_tried[data].add(site.name)
                consumer.end(data, lambda data=data: self.acked[data].add(site.name))  # type: ignore[misc]
            else:
                consumer.end(data, None)

    def _delivered(self, site: str, message: Any) -> None:
        data, key = message.data, message.ordering_key
        self.note(f"{site} delivers {data!r} of {key}")
        if site in self.acked[data] or (self.acked[data] and not self.available):
            self._broken(f"acknowledged stays acknowledged: {data!r} is delivered at {site}")
        others = [name for name, one in self.consumers.items() if name != site and one.has(data)]
        if others and not self.available:
            self._broken(f"a key is at one site: {data!r} is delivered at {site}, and lent at {others}")
        scope = site if self.available else ""
        place, number = (scope, key, chr(data[0])), int(data[1:])
        if (scope, data) not in self.seen and number < self.newest.get(place, -1):
            self._broken(f"keys are in order: {data!r} of {key} comes after {self.newest[place]} at {site}")
        self.seen.add((scope, data))
        self.newest[place] = max(number, self.newest.get(place, -1))

    def _broken(self, violation: str) -> None:
        self.violations.append(violation)
        self.note(f"VIOLATION {violation}")

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def _records(self) -> list[Any]:
        return self._watch.records

    def _heal(self) -> None:
        """Go on without losses until all is acknowledged, everywhere."""
        self.servers.away.clear()
        self._healing = True
        for consumer in self.consumers.values():
            consumer.link.loss = 0.0
        for number in range(HEALED_STEPS):
            self.clock.advance(self.step_s)
            self._watch_keys()
            for flow in self.flows:
                self._copy(flow)
                self._round(flow, whole=True)
            for site in self.sites:
                self._deliver(site, all_of_it=True)
            if number % 40 == 20 and any(one.moving for one in self._slots()):  # a move broke off
                self._move(dict.fromkeys(range(SLOTS), "a"))
            if not any(site.waiting() for site in self.sites) and all(one["back_at"] for one in self._records):
                return

    def _slots(self) -> Any:
        return KeySites(self.servers.links(), self.servers, SHORT).known().newest  # type: ignore[arg-type]

    def _judge(self) -> None:
        waiting = {one.data for site in self.sites for one in site.waiting()}
        delivered = {data for _, data in self.seen}
        for data in sorted((self.published_ns.keys() - delivered) | waiting):
            self.violations.append(f"nothing is lost: {data!r} is not acknowledged in the end")
        twice = {data for data, at in self.acked.items() if len(at) > 1}
        if not self.available:
            self.violations += [f"acknowledged stays acknowledged: {data!r}, at two sites" for data in sorted(twice)]
            return
        self._judge_list(twice)

    def _judge_list(self, twice: set[bytes]) -> None:
        """What came twice is what the program lists."""
        if any(not one["back_at"] for one in self._records):
            self.violations.append("what is taken over comes back: a record is not closed")
        self.happened["keys are taken over"] += len(self._records)
        if not self._records:
            self.violations += [f"what comes twice is listed: {data!r}, and nothing was" for data in sorted(twice)]
        if any(one["twice"] is None for one in self._records):
            return
        self.happened["what comes twice is counted"] += bool(twice)
        listed = self._names({one for record in self._records for one in record["ids"]})
        for data in sorted(twice - listed):
            self.violations.append(f"what comes twice is listed: {data!r} is not")
        tried = {data for data, at in self.acks_tried.items() if len(at) > 1}
        for data in sorted(listed - tried):
            self.violations.append(f"what is listed came twice: {data!r} did not")

    def _names(self, ids: set[str]) -> set[bytes]:
        """Messages by their ids at the site that published them."""
        found = set()
        for site in self.sites:
            for one in site.stored():
                if one.data.startswith(site.name.encode()) and site.id_of(one) in ids:
                    found.add(one.data)
        return found


def run_keys(
    seed: int, *, shape: None = None, kinds: tuple[str, ...] = (), beyond: bool = False, trace: Trace | None = None
) -> RunResult:
    """Run one seed."""
    return lived(lambda: KeyRun(seed, trace), seed, quiet=trace is None)
