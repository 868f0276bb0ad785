"""The exchange of acknowledgements, driven: each subscription that lives at both ends of a flow with `acks`, in rounds.

Place: a thread beside the supervisor, in the process of `syncpoint federation run`; needs no JVM. Decisions are those
of `ack_pair`; calls are bounded in time, and a pair that could do nothing rests for a while, so that the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.federation.acks.ack_pair import AckPair, RoundResult
from syncpoint.programs.federation.acks.snapshot_pair import AckCall, OriginLinks, SiteEnd
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pubsub

ROUND_S = 0.25  # between two rounds
LOOK_S = 5.0  # between two looks for subscriptions
REST_S = 5.0  # of a pair that could do nothing
STOP_S = 15.0
AT_ONCE_MAX = 20  # rounds of a pair that follow each other

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangeState:
    """How the exchange of one subscription over one flow goes. `at`: the last good round, seconds since 1970; `why`:
    what it waits for. `snapshots`: how many were copied; `notes`: why others are not.
    """

    flow: str
    subscription: str
    source: str
    target: str
    brought: int = 0
    seeks: int = 0
    at: float = 0.0
    why: str = ""
    snapshots: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Going:
    pair: AckPair
    flow: Flow
    state: ExchangeState
    not_before: float = 0.0
    unfinished: bool = True  # its last round failed, or there was more than it brings


class ExchangeWatch(Protocol):
    """What may have pairs wait, as `owned_keys.key_watch` does."""

    def step(self, states: Iterable[ExchangeState], /) -> None: ...

    def waits(self, pair: ExchangeState, /) -> bool: ...


class AckRounds:
    """All pairs of some links. `say`: is given the states after each look, and when one fails or recovers."""

    def __init__(
        self,
        links: Iterable[FederationLink],
        servers: Servers,
        say: Callable[[Sequence[ExchangeState]], None] = lambda states: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        watch: ExchangeWatch | None = None,
        among: Collection[str] | None = None,
    ) -> None:
        """`watch`: looks before each step, and may have pairs wait. `among`: the sites that exchange, if not all."""
        self._watch, self._among = watch, among
        self.links = [link for link in links if link.acks]
        self._servers, self._say, self._clock, self._wall = servers, say, clock, wall
        self._going: dict[tuple[str, str], _Going] = {}
        self._unlike: dict[tuple[str, str], ExchangeState] = {}
        self._look_at = 0.0

    @property
    def states(self) -> list[ExchangeState]:
        """All subscriptions, also those that cannot be exchanged."""
        found = {**self._unlike, **{key: one.state for key, one in self._going.items()}}
        return [found[key] for key in sorted(found)]

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set."""
        while not stopping.wait(ROUND_S):
            self.step()

    def step(self) -> int:
        """A round of every pair whose turn it is; returns how many offsets were news somewhere."""
        if self._watch is not None:
            self._watch.step(self.states)
        now, brought = self._clock(), 0
        looked = now >= self._look_at
        if looked:
            self._look()
            self._look_at = self._clock() + LOOK_S
        failing = {key: bool(one.state.why) for key, one in self._going.items()}
        for one in self._going.values():
            if now >= one.not_before and not (self._watch is not None and self._watch.waits(one.state)):
                brought += self._exchange(one)
        if looked or failing != {key: bool(one.state.why) for key, one in self._going.items()}:
            self._say(self.states)
        return brought

    def completed(self, subscription: str, sites: Iterable[str]) -> bool:
        """Whether each pair of these sites has exchanged all there was in its last round; False where there is none,
        since nothing is copied yet.
        """
        return bool(self._pairs(subscription, sites)) and not self.unfinished(subscription, sites)

    def unfinished(self, subscription: str, sites: Iterable[str]) -> bool:
        """Whether a pair of these sites failed in its last round, or has more to exchange."""
        return any(one.unfinished for one in self._pairs(subscription, sites))

    def _pairs(self, subscription: str, sites: Iterable[str]) -> list[_Going]:
        among = set(sites)
        return [
            one
            for one in self._going.values()
            if one.state.subscription == subscription and {one.state.source, one.state.target} <= among
        ]

    def hurry(self) -> None:
        """Let the next step look for subscriptions, and try what rests."""
        self._look_at = 0.0
        for one in self._going.values():
            one.not_before = 0.0

    def _exchange(self, one: _Going) -> int:
        brought, seeks, result, one.unfinished = 0, 0, RoundResult(), True
        try:
            for _ in range(AT_ONCE_MAX):
                result = self._round(one)
                brought += result.brought
                seeks += result.followed
                if not result.again:
                    break
            why, one.unfinished = result.waits, result.again
        except SyncpointError as error:
            why = str(error)
        was = one.state
        if why:
            one.not_before = self._clock() + REST_S
            if why != was.why:
                level = logging.INFO if result.waits == why else logging.WARNING
                log.log(level, "acknowledgements of %s over %s wait: %s", was.subscription, was.flow, why)
        elif was.why:
            log.info("acknowledgements of %s over %s are exchanged again", was.subscription, was.flow)
        one.state = ExchangeState(
            was.flow, was.subscription, was.source, was.target, was.brought + brought, was.seeks + seeks,
            was.at if why else self._wall(), why, one.pair.snapshots.copied, tuple(one.pair.snapshots.notes.values()),
        )  # fmt: skip
        return brought

    def _round(self, one: _Going) -> RoundResult:
        going = one.pair.round()
        try:
            call: AckCall = next(going)
            while True:
                link = one.flow.link
                try:
                    answer = self._call(link.source if call.at_source else link.target, call)
                except SyncpointError as error:
                    call = going.throw(error)
                else:
                    call = going.send(answer)
        except StopIteration as over:
            result: RoundResult = over.value
            return result

    def _call(self, cluster: FederatedCluster, call: AckCall) -> Any:
        return self._servers.call(cluster, f"AckExchange.{call.method.rpartition('/')[2]}", call.request)

    # -- which subscriptions -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Pairs of the subscriptions that there are now. A server that does not answer keeps those it had."""
        among = self._among
        links = [one for one in self.links if among is None or {one.source.name, one.target.name} <= set(among)]
        flows, silent = self._servers.reported_flows(links)
        found: dict[tuple[str, str], _Going] = {}
        unlike: dict[tuple[str, str], ExchangeState] = {}
        kept = {one for one in self._going if self._going[one].flow.link.source.name in silent}
        for flow in flows:
            try:
                there, here = self._subscriptions(flow.link.source, flow.source_topic, flow), self._at_target(flow)
            except SyncpointError as error:
                kept |= {key for key in self._going if key[0] == flow.name}
                log.info("subscriptions of %s cannot be listed: %s", flow.name, error)
                continue
            for short in sorted(there.keys() & here.keys()):
                key, one, other = (flow.name, short), there[short], here[short]
                state = ExchangeState(flow.name, short, flow.link.source.name, flow.link.target.name)
                if why := _difference(one, other):
                    unlike[key] = ExchangeState(state.flow, short, state.source, state.target, why=why)
                    continue
                ends = SiteEnd(state.source, one.name), SiteEnd(state.target, other.name)
                pair = AckPair(flow.name, *ends, _others(flow, self.links))
                found[key] = self._going.get(key) or _Going(pair, flow, state)
        self._going = {**{key: self._going[key] for key in kept}, **found}
        self._unlike = unlike

    def _at_target(self, flow: Flow) -> Mapping[str, Any]:
        return self._subscriptions(flow.link.target, flow.target_topic, flow)

    def _subscriptions(self, cluster: FederatedCluster, topic: str, flow: Flow) -> dict[str, Any]:
        """The subscriptions of a topic in its own project, by id."""
        project = topic.partition("/topics/")[0]
        found: dict[str, Any] = {}
        token = ""
        while True:
            asked = pubsub.ListSubscriptionsRequest(project=project, page_token=token)
            answer = self._servers.call(cluster, "Subscriber.ListSubscriptions", asked)
            found |= {one.name.rpartition("/")[2]: one for one in answer.subscriptions if one.topic == topic}
            token = answer.next_page_token
            if not token:
                return found


def _others(flow: Flow, links: Sequence[FederationLink]) -> list[OriginLinks]:
    """Messages that both ends of a flow have by other flows: its target's own, and those of third sites, whether these
    answer now or not.
    """
    ends = (flow.link.source.name, flow.source_topic), (flow.link.target.name, flow.target_topic)
    to_source, to_target = (
        {
            (one.source.name, found.source_topic): found.name
            for one in links
            if one.target.name == site and (found := one.flow_to(topic)) is not None
        }
        for site, topic in ends
    )
    back = [OriginLinks(to_source[ends[1]], "")] if ends[1] in to_source else []
    return back + [OriginLinks(to_source[one], to_target[one]) for one in to_source.keys() & to_target.keys()]


def _difference(one: Any, other: Any) -> str:
    """Why acknowledgements of two subscriptions do not mean the same; "": they do."""
    if one.filter != other.filter:
        return "their filters differ"
    if one.message_retention_duration != other.message_retention_duration:
        return "their message retention differs"
    if one.detached or other.detached:
        return "one of them is detached"
    return ""


class AckThread:
    """The exchange in a thread of its own, with connections of its own."""

    def __init__(
        self,
        links: Sequence[FederationLink],
        say: Callable[[Sequence[ExchangeState]], None],
        *,
        last_round: bool = False,
        watching: Callable[[Servers], ExchangeWatch | None] = lambda servers: None,
    ) -> None:
        """`last_round`: there is one more when it ends, of what was copied last. `watching`: see `AckRounds`."""
        self._watching = watching
        self._links, self._say, self._last_round = links, say, last_round
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acks", daemon=True)

    def start(self) -> None:
        """Begin, where a link asks for it."""
        if any(link.acks for link in self._links):
            self._thread.start()

    def stop(self) -> None:
        """End it; returns once the round that goes on is over, or a while has passed."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        with Servers() as servers, Servers(patience_s=0.5, call_s=3.0) as quick:
            rounds = AckRounds(self._links, servers, self._say, watch=self._watching(quick))
            while not self._stopping.is_set():
                try:
                    rounds.run(self._stopping)
                except Exception:
                    log.exception("the exchange of acknowledgements failed; it begins anew")
                    self._stopping.wait(REST_S)
            if self._last_round:
                rounds.step()


def as_dicts(states: Iterable[ExchangeState]) -> list[dict[str, Any]]:
    """For the state folder."""
    return [asdict(one) for one in states]
