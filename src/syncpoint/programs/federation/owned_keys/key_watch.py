"""Keys of sites that are lost, and that come back: driver. Runs where the file has `keys.takeover`.

Place: in the thread of `acks.ack_rounds`, before each of its steps; decisions are those of `take_over`.
Promises: a message may be delivered at two sites only if its key was taken from a site that did not answer, and it was
delivered there, too, before that site knew. When it comes back, nobody delivers these keys until its consumers have
acknowledged what they have and it has exchanged all it knows; what both sites acknowledged on their own is listed. The
exchange with it waits for that: afterwards nobody could say who acknowledged what.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.key_homes import MOVING, SlotHome
from syncpoint.programs.federation.acks.ack_rounds import AckRounds, ExchangeState
from syncpoint.programs.federation.acks.linked_sites import named_at, parts_of
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.owned_keys.acked_sets import (
    AckedSets,
    ask_all,
    both,
    decoded,
    encoded,
    message_ids,
)
from syncpoint.programs.federation.owned_keys.key_sites import KeySites, KnownKeys
from syncpoint.programs.federation.owned_keys.take_over import TakeOver
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pubsub

LOOK_S = 1.0
DRAIN_S = 30.0  # for consumers of a site that comes back, and for the exchange with it
PAUSE_S = 0.1
IDS_MAX = 1000  # that are listed by name
RECORDS_MAX = 100

log = logging.getLogger(__name__)
Record = dict[str, Any]


class KeyWatch:
    """All subscriptions of links with a time for taking over. `load`, `save`: the records, as JSON."""

    def __init__(
        self,
        links: Sequence[FederationLink],
        servers: Servers,
        load: Callable[[], list[Record]],
        save: Callable[[list[Record]], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._parts = parts_of(link for link in links if link.keys is not None and link.keys.takeover_s is not None)
        self._servers, self._save, self._clock, self._sleep, self._wall = servers, save, clock, sleep, wall
        self.records = load()
        self._machines: dict[str, TakeOver] = {}
        self._taken: dict[str, set[str]] = {}  # by subscription: sites that keys were taken from
        for one in self.records:
            if not one["back_at"]:  # before a first look: what is exchanged now could not be compared then
                self._taken.setdefault(one["subscription"], set()).add(one["lost"])
        self._look_at = 0.0
        self._why: dict[str, str] = {}  # by subscription: why the last look failed

    def waits(self, pair: ExchangeState) -> bool:
        """Whether a pair must not be exchanged now."""
        if not self._taken or (part := self._part(pair)) is None:
            return False
        return not self._taken.get(self._called(part, pair.subscription), set()).isdisjoint((pair.source, pair.target))

    def step(self, states: Iterable[ExchangeState]) -> None:
        """Look, now and then."""
        if not self._parts or self._clock() < self._look_at:
            return
        named = {
            named_at(part, one.subscription): (part, one.subscription)
            for one in states
            if (part := self._part(one)) is not None
        }
        for name, (part, short) in sorted(named.items()):
            why = ""
            try:
                self._look(part, name, self._called(part, short))
            except SyncpointError as error:
                why = str(error)
                if why != self._why.get(name):
                    log.warning("keys of %s are checked again later: %s", short, error)
            self._why[name] = why
        if named:
            self._look_at = self._clock() + LOOK_S

    def _part(self, pair: ExchangeState) -> list[FederationLink] | None:
        """The links among which the subscription of a pair lives; None: its keys are not taken over."""
        found = None
        longest = 0
        for part in self._parts:
            for link in part:
                if longest < len(link.name) and pair.flow.startswith(f"{link.name}."):
                    found, longest = part, len(link.name)
        return found

    def _called(self, part: list[FederationLink], short: str) -> str:
        """What records call a subscription: its id, unless that may be the id of several."""
        return short if len(self._parts) == 1 else named_at(part, short)

    def _look(self, part: list[FederationLink], name: str, called: str) -> None:
        sites = KeySites(part, self._servers, name)
        known = sites.known()
        policy = part[0].keys
        assert policy is not None
        assert policy.takeover_s is not None
        machine = self._machines.setdefault(called, TakeOver(policy.takeover_s, dict(policy.weights)))
        for lost, decided in machine.looked(known, self._clock()).items():
            self._take(sites, called, known, lost, decided)
        taken = {one.taken_from for one in known.newest if one.taken_from}
        self._taken[called] = taken | {one["lost"] for one in self._open(called)}
        for lost in sorted(taken & known.at.keys()):
            self._come_back(sites, called, known, lost)
        for record in self._open(called):
            if record["lost"] in known.at and record["lost"] not in taken:  # the program died before it was written
                self._close(record, None, 0)

    def _open(self, called: str) -> list[Record]:
        return [one for one in self.records if one["subscription"] == called and not one["back_at"]]

    # -- a site is lost ----------------------------------------------------------------------------------------------

    def _take(self, sites: KeySites, called: str, known: KnownKeys, lost: str, decided: Mapping[int, SlotHome]) -> None:
        record = {
            "subscription": called, "lost": lost, "slots": len(decided), "at": self._wall(), "back_at": 0.0,
            "known": {flow.name: self._stored(sites, flow, lost) for flow in self._flows(sites, known, lost)},
            "twice": None, "lent": 0, "ids": [],
        }  # fmt: skip
        self.records = [*self.records, record][-RECORDS_MAX:]
        self._save(self.records)  # first: who begins anew in between must know what was known
        self._taken.setdefault(called, set()).add(lost)
        for site in known.at:
            sites.notify(site, decided)
        log.warning("%s does not answer: %d slots of %s are delivered elsewhere", lost, len(decided), called)

    def _stored(self, sites: KeySites, flow: Flow, lost: str) -> dict[str, Any]:
        """What the end of a flow that answers has acknowledged."""
        found = self._acked(sites, flow, at_source=flow.link.target.name == lost)
        return {"generation": found.generation, "acked": encoded(found.acked)}

    def _flows(self, sites: KeySites, known: KnownKeys, lost: str) -> list[Flow]:
        """The flows of the subscription's topic between a site and those that answer."""
        found = []
        for link in sites.links:
            ends = {link.source.name, link.target.name}
            if lost in ends and (ends - {lost}) <= known.at.keys():
                other = link.target if link.source.name == lost else link.source
                topic = self._topic(sites, other)
                short = topic.rpartition("/")[2]
                for flow in link.flows([f"projects/{link.source_project}/topics/{short}"]):
                    if topic in (flow.source_topic, flow.target_topic):
                        found.append(flow)
        return found

    def _topic(self, sites: KeySites, cluster: FederatedCluster) -> str:
        asked = pubsub.GetSubscriptionRequest(subscription=sites.ends[cluster.name][1].subscription)
        return str(self._servers.call(cluster, "Subscriber.GetSubscription", asked).topic)

    def _acked(self, sites: KeySites, flow: Flow, *, at_source: bool) -> AckedSets:
        """All that one end of a flow has acknowledged of the messages of its source."""
        cluster = flow.link.source if at_source else flow.link.target
        end = sites.ends[cluster.name][1]
        try:
            return ask_all(
                lambda asked: self._servers.call(cluster, "AckExchange.AckChanges", asked),
                end.subscription,
                "" if at_source else flow.name,
            )
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND:  # the flow has copied nothing
                raise
            return AckedSets("0/0", 0, {})

    # -- it comes back -----------------------------------------------------------------------------------------------

    def _come_back(self, sites: KeySites, called: str, known: KnownKeys, lost: str) -> None:
        """Nobody delivers what was taken, until all is known; then its new owners go on."""
        newest = known.newest
        taken = {slot: one for slot, one in enumerate(newest) if one.taken_from == lost}
        record = next((one for one in reversed(self._open(called)) if one["lost"] == lost), None)
        epoch = 1 + max(one.epoch for one in newest)
        mark = f"{MOVING} {uuid.uuid4().hex[:8]}"
        for site in known.at:
            sites.notify(site, {slot: SlotHome(epoch, mark, lost) for slot in taken})
        over = lost  # where it is gone again, or not all is known, the others go on, and it is tried again
        try:
            lent = self._drained(sites, known.at)
            if len(others := known.at.keys() - {lost}) > 1:  # each knows what all of them have acknowledged
                self._exchange(sites, others)
            twice, ids = self._compare(sites, known, lost, record)
            self._exchange(sites, known.at)
            over = ""
        finally:
            homes = _owners(taken, known, lost)
            for site in sorted(known.at, key=lambda one: one == lost):  # who goes on comes first
                sites.notify(site, {slot: SlotHome(epoch + 1, homes[slot], over) for slot in taken}, mark)
        self._taken[called].discard(lost)
        for one in self._open(called):
            if one["lost"] == lost:
                self._close(one, twice, lent, ids)
        log.warning("%s is back: %s messages of %s were acknowledged twice", lost, twice, called)

    def _drained(self, sites: KeySites, names: Iterable[str]) -> int:
        end = self._clock() + DRAIN_S
        while True:
            lent = sum(sites.lent(site) or 0 for site in names)
            if not lent or self._clock() >= end:
                return lent
            self._sleep(PAUSE_S)

    def _compare(
        self, sites: KeySites, known: KnownKeys, lost: str, record: Record | None
    ) -> tuple[int | None, list[str]]:
        """How many messages two sites have acknowledged on their own, and their ids; None: what was known before is
        not known here, or a site that may have delivered the keys does not answer.
        """
        flows = self._flows(sites, known, lost)
        if record is None or record["known"].keys() != {flow.name for flow in flows}:
            return None, []
        count = 0
        ids: list[str] = []
        for flow in flows:
            one, other = (self._acked(sites, flow, at_source=at_source) for at_source in (True, False))
            before = record["known"][flow.name]
            answered = other if flow.link.source.name == lost else one
            without = decoded(before["acked"]) if before["generation"] == answered.generation else {}
            twice = both(one.acked, other.acked, without)
            count += sum(map(len, twice.values()))
            ids += message_ids(one.topic, twice, IDS_MAX - len(ids))
        return count, ids

    def _exchange(self, sites: KeySites, names: Collection[str]) -> None:
        rounds = AckRounds(sites.links, self._servers, watch=_Only(sites.subscription), among=names)
        end = self._clock() + DRAIN_S
        while True:
            rounds.hurry()
            rounds.step()
            if rounds.completed(sites.subscription, names):
                return
            if self._clock() >= end:
                why = next((one.why for one in rounds.states if one.why), "there is more")
                raise SyncpointError(Code.UNAVAILABLE, f"acknowledgements are not all exchanged: {why}")
            self._sleep(PAUSE_S)

    def _close(self, record: Record, twice: int | None, lent: int, ids: Sequence[str] = ()) -> None:
        record |= {"back_at": self._wall(), "twice": twice, "lent": lent, "ids": list(ids), "known": {}}
        self._save(self.records)


class _Only:
    """Has all pairs wait but those of one subscription."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription

    def step(self, states: Iterable[ExchangeState]) -> None:
        """Nothing is to be done."""

    def waits(self, pair: ExchangeState) -> bool:
        """Whether it is another one's."""
        return pair.subscription != self._subscription


def _owners(taken: Mapping[int, SlotHome], known: KnownKeys, lost: str) -> dict[int, str]:
    """Who goes on delivering: who had it last; where a try broke off, one that answers."""
    others = sorted(known.at.keys() - {lost}) or [lost]
    return {slot: others[slot % len(others)] if one.moving else one.home for slot, one in taken.items()}
