"""Grants: which subscribe forwarder delivers which source of which subscription. A machine for one chain.

Place: `dispatch` feeds it with what forwarders say and what sources there are, and carries out what comes back.
Promise (protocol rules 17 and 19): a source has one holder at a time; it goes where messages of it are wanted. An
exactly-once subscription's acknowledgements count under the current grant alone. What was granted of a strict one is
granted again only after its holder let go, ended, or was silent for GRANT_S on this process's own clock. Holders are
incarnations of processes; a restarted process is another holder.

Two ways to entry. *Strict* (ordered or exactly-once): all sources of the chain have one holder, and move together.
Otherwise sources spread: those of one chain that still grow go to the holder at the chain's place in an order that
every chain computes alike, so that many chains with one source each serve all who want; sealed ones even out the rest.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from syncpoint.base.model.times import GRANT_S, RECONNECT_S
from syncpoint.broker.publish.facts.source import GONE_MAX


class Granted(NamedTuple):
    """Notify the holder that it may deliver."""

    subscription: int
    source: int
    grant: int
    holder: int


class Revoked(NamedTuple):
    """Notify the holder, which may not learn it, that it may not any more."""

    subscription: int
    source: int
    grant: int
    holder: int


Effect = Granted | Revoked


@dataclass(slots=True)
class _HeldGrant:
    grant: int
    holder: int
    revoked_at: float | None = None


@dataclass(slots=True)
class _HolderState:
    """A subscribe forwarder, as far as this process knows it."""

    seen_at: float
    lost_at: float | None = None
    silent: bool = False  # it was noticed that nothing comes from it


@dataclass(slots=True)
class SubscriptionGrants:
    """One subscription in this chain. `holders`: those attached, in order, and whether they want messages."""

    subscription: int
    ordered: bool
    exactly_once: bool
    rank: int = 0
    holders: dict[int, bool] = field(default_factory=dict)
    sources: dict[int, bool] = field(default_factory=dict)  # -> sealed
    held: dict[int, _HeldGrant] = field(default_factory=dict)

    @property
    def strict(self) -> bool:
        return self.ordered or self.exactly_once


class Grants:
    """Decide which subscribe forwarder holds each source.

    Every method returns the notifications to send to holders, in order.
    """

    def __init__(
        self,
        epoch: int,
        now: float,
        known: Mapping[tuple[int, int], tuple[int, int]] | None = None,
        gone: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`epoch`: under which the chain was opened; grants of a later one are higher. `known`: the grant and holder by
        (subscription, source) that an earlier owner left in the log, of strict subscriptions. `gone`: the last grants
        of sources that it deleted.
        """
        self._next = epoch << 32
        self._opened = now
        self._known = dict(known or {})
        self._gone = dict(list((gone or {}).items())[-GONE_MAX:])  # the last grant of sources that are deleted
        self._peers: dict[int, _HolderState] = {}
        self.shared: dict[int, SubscriptionGrants] = {}  # by subscription
        self._pending: set[int] = set()  # subscriptions in which time alone may change something

    # -- subscriptions and their sources -----------------------------------------------------------------------------

    def share(self, subscription: int, *, ordered: bool, exactly_once: bool, rank: int, now: float) -> list[Effect]:
        """Begin to share a subscription, or learn that its kind or the chain's place has changed."""
        entry = self.shared.get(subscription)
        if entry is None:
            self.shared[subscription] = SubscriptionGrants(subscription, ordered, exactly_once, rank)
            return []
        changed = (entry.ordered, entry.exactly_once, entry.rank) != (ordered, exactly_once, rank)
        entry.ordered, entry.exactly_once, entry.rank = ordered, exactly_once, rank
        return self._decide(entry, now) if changed else []

    def drop(self, subscription: int, *, gone: bool) -> None:
        """The subscription is gone, or nobody is attached to it any more; then the holders that an earlier owner has
        granted sources to may still deliver.
        """
        entry = self.shared.pop(subscription, None)
        self._pending.discard(subscription)
        for key in [key for key in self._known if key[0] == subscription]:
            del self._known[key]
        if entry is not None and entry.strict and not gone:
            self._known.update({(subscription, one): (held.grant, held.holder) for one, held in entry.held.items()})

    def sources(self, subscription: int, found: Iterable[tuple[int, bool]], now: float) -> list[Effect]:
        """These sources have something to deliver, or will have; with each, whether it is sealed."""
        entry = self.shared.get(subscription)
        if entry is None:
            return []
        for source, sealed in found:
            entry.sources[source] = sealed
            known = self._known.pop((subscription, source), None)
            if known is not None and entry.strict and source not in entry.held:
                entry.held[source] = _HeldGrant(*known)
        return self._decide(entry, now)

    def on_source_done(self, subscription: int, source: int) -> None:
        """Everything of a sealed source is acknowledged. Its last holder may say so again, or have to do it again."""
        entry = self.shared.get(subscription)
        if entry is not None:
            entry.sources.pop(source, None)
            held = entry.held.pop(source, None)
            if held is not None and entry.strict:
                self._known[subscription, source] = (held.grant, held.holder)

    def on_source_gone(self, subscription: int, source: int) -> None:
        """Nothing of it is stored any more. Its last holder may say again that it acknowledged it; nobody else may."""
        known = self._known.pop((subscription, source), None)
        if known is not None:
            self._gone[subscription, source] = known[0]
            if len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]

    def only_sources(self, stored: Container[int]) -> None:
        """Nothing of others is stored any more."""
        for key in [key for key in self._known if key[1] not in stored]:
            self.on_source_gone(*key)

    def open_sources(self, subscription: int) -> dict[int, bool]:
        """The sources that are shared now, and whether each is sealed."""
        entry = self.shared.get(subscription)
        return entry.sources if entry is not None else {}

    # -- what forwarders say -----------------------------------------------------------------------------------------

    def on_heartbeat(self, holder: int, now: float) -> None:
        """Anything at all came from a forwarder."""
        peer = self._peers.get(holder)
        if peer is None:
            self._peers[holder] = _HolderState(now)
            return
        if peer.silent or peer.lost_at is not None:
            self._mark_pending(holder)
        peer.seen_at, peer.lost_at, peer.silent = now, None, False

    def on_disconnected(self, holder: int, now: float) -> None:
        """Its stream broke; it may come back."""
        peer = self._peers.get(holder)
        if peer is not None and peer.lost_at is None:
            peer.lost_at = now
            self._mark_pending(holder)

    def on_ended(self, holder: int, now: float) -> list[Effect]:
        """That process does not live any more: nobody can acknowledge under its grants."""
        self._peers.pop(holder, None)
        for key in [key for key, (_, known) in self._known.items() if known == holder]:
            del self._known[key]
        effects: list[Effect] = []
        for entry in self.shared.values():
            if entry.holders.pop(holder, None) is not None or any(h.holder == holder for h in entry.held.values()):
                _drop_grants_of(entry, holder)
                effects += self._decide(entry, now)
        return effects

    def attach(
        self, subscription: int, holder: int, wanted: bool, claims: Mapping[int, int], now: float
    ) -> list[Effect]:
        """Add a holder of the subscription. `claims`: grants by source that it believes to hold."""
        entry = self.shared[subscription]
        self.on_heartbeat(holder, now)
        entry.holders[holder] = wanted
        effects: list[Effect] = []
        for source, grant in claims.items():
            held = entry.held.get(source)
            if source not in entry.sources:
                continue
            if held is None and not entry.strict:
                entry.held[source] = _HeldGrant(grant, holder)
            elif held is None or (held.grant, held.holder) != (grant, holder):
                effects.append(Revoked(subscription, source, grant, holder))
        return effects + self._decide(entry, now)

    def detach(self, subscription: int, holder: int, now: float) -> list[Effect]:
        """Remove a holder that stops serving the subscription voluntarily."""
        entry = self.shared.get(subscription)
        if entry is None or entry.holders.pop(holder, None) is None:
            return []
        _drop_grants_of(entry, holder)
        return self._decide(entry, now)

    def set_demand(self, subscription: int, holder: int, wanted: bool, now: float) -> list[Effect]:
        """Whether it can take messages at all."""
        entry = self.shared.get(subscription)
        if entry is None or entry.holders.get(holder, wanted) == wanted:
            return []
        entry.holders[holder] = wanted
        return self._decide(entry, now)

    def on_released(self, subscription: int, source: int, grant: int, now: float) -> list[Effect]:
        """The holder let go of what was revoked."""
        entry = self.shared.get(subscription)
        held = entry.held.get(source) if entry is not None else None
        if entry is None or held is None or held.grant != grant or held.revoked_at is None:
            return []
        del entry.held[source]
        return self._decide(entry, now)

    def tick(self, now: float) -> list[Effect]:
        """Time passes: what waits for it is checked."""
        for holder, peer in self._peers.items():
            if not peer.silent and now - peer.seen_at > GRANT_S:
                peer.silent = True
                self._mark_pending(holder)
        effects: list[Effect] = []
        for subscription in list(self._pending):
            entry = self.shared.get(subscription)
            if entry is None:
                self._pending.discard(subscription)
            else:
                effects += self._decide(entry, now)
        for holder in [one for one, peer in self._peers.items() if now - peer.seen_at > 10 * GRANT_S]:
            if not any(holder in entry.holders for entry in self.shared.values()):
                del self._peers[holder]
        return effects

    # -- questions ---------------------------------------------------------------------------------------------------

    def holder(self, subscription: int, source: int) -> int | None:
        """Who delivers from it."""
        held = self._held(subscription, source)
        return held.holder if held is not None else None

    def grant_of(self, subscription: int, source: int, holder: int) -> int:
        """The grant of a source as this forwarder is to see it: 0 when it is not its own."""
        held = self._held(subscription, source)
        return held.grant if held is not None and held.holder == holder and held.revoked_at is None else 0

    def may_acknowledge(self, subscription: int, source: int, grant: int) -> bool:
        """Whether acknowledgements of an exactly-once subscription count under this grant; under one that is being
        revoked they do until it is over.
        """
        entry = self.shared.get(subscription)
        if entry is not None and (held := entry.held.get(source)) is not None:
            return held.grant == grant
        known = self._known.get((subscription, source))
        return grant == (self._gone.get((subscription, source)) if known is None else known[0])

    def attached(self, subscription: int) -> list[int]:
        """Everybody who serves the subscription."""
        entry = self.shared.get(subscription)
        return list(entry.holders) if entry is not None else []

    def subscriptions(self) -> list[int]:
        """Those that are shared."""
        return list(self.shared)

    def is_shared(self, subscription: int) -> bool:
        """Whether it is shared."""
        return subscription in self.shared

    def held(self, subscription: int) -> list[Granted]:
        """All grants of a subscription as they are now."""
        entry = self.shared.get(subscription)
        return [
            Granted(subscription, source, held.grant, held.holder)
            for source, held in (entry.held.items() if entry is not None else ())
        ]

    def is_strict(self, subscription: int) -> bool:
        """Whether it is shared, and no message of it may be with two holders."""
        entry = self.shared.get(subscription)
        return entry is not None and entry.strict

    def held_by(self, holder: int) -> int:
        """How many sources it delivers."""
        return sum(held.holder == holder for entry in self.shared.values() for held in entry.held.values())

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _held(self, subscription: int, source: int) -> _HeldGrant | None:
        entry = self.shared.get(subscription)
        return entry.held.get(source) if entry is not None else None

    def _decide(self, entry: SubscriptionGrants, now: float) -> list[Effect]:
        effects: list[Effect] = []
        eligible = [one for one, wanted in entry.holders.items() if wanted and self._is_here(one, now)]
        if eligible:
            self._revoke_expired(entry, eligible, now, effects)
            if entry.strict:
                self._decide_strict(entry, eligible, now, effects)
            else:
                self._balance(entry, eligible, effects)
        if eligible and self._waits_for_time(entry, now):
            self._pending.add(entry.subscription)
        else:
            self._pending.discard(entry.subscription)
        return effects

    def _is_here(self, holder: int, now: float) -> bool:
        peer = self._peers.get(holder)
        return peer is not None and peer.lost_at is None and now - peer.seen_at <= GRANT_S

    def _free_at(self, entry: SubscriptionGrants, held: _HeldGrant) -> float:
        """From when on somebody else may have it, if nothing more is received."""
        peer = self._peers.get(held.holder)
        seen_at = self._opened if peer is None else peer.seen_at
        free_at = seen_at + GRANT_S
        if not entry.strict and peer is not None and peer.lost_at is not None:
            free_at = min(free_at, peer.lost_at + RECONNECT_S)
        if held.revoked_at is not None:
            free_at = min(free_at, held.revoked_at + GRANT_S)
        return free_at

    def _revoke_expired(
        self, entry: SubscriptionGrants, eligible: list[int], now: float, effects: list[Effect]
    ) -> None:
        """Revoke grants that ran out. Without another eligible holder they stay, so that the old one can resume."""
        for source, held in list(entry.held.items()):
            if now > self._free_at(entry, held) and (held.holder not in eligible or held.revoked_at is not None):
                del entry.held[source]
                effects.append(Revoked(entry.subscription, source, held.grant, held.holder))

    def _decide_strict(self, entry: SubscriptionGrants, eligible: list[int], now: float, effects: list[Effect]) -> None:
        holders: dict[int, int] = {}
        for held in entry.held.values():
            holders[held.holder] = holders.get(held.holder, 0) + 1
        owner = max(holders, key=lambda one: (one in eligible, holders[one])) if holders else eligible[0]
        leaving = any(held.revoked_at is not None for held in entry.held.values())
        for source, held in entry.held.items():
            must_go = held.holder != owner or owner not in eligible or leaving
            # A holder that is not here cannot be notified; until its grant has run out it may come back with it.
            if must_go and held.revoked_at is None and self._is_here(held.holder, now):
                held.revoked_at = now
                effects.append(Revoked(entry.subscription, source, held.grant, held.holder))
        if owner in eligible and not leaving and len(holders) < 2:
            for source in sorted(entry.sources):
                if source not in entry.held:
                    self._give(entry, source, owner, effects)

    def _balance(self, entry: SubscriptionGrants, eligible: list[int], effects: list[Effect]) -> None:
        order = sorted(eligible, key=lambda one: _weight(entry.subscription, one))
        loads = dict.fromkeys(order, 0)
        growing = order[entry.rank % len(order)]
        targets: dict[int, int] = {}
        sealed = []
        for source in sorted(entry.sources):
            if entry.sources[source]:
                sealed.append(source)
            else:
                targets[source] = growing
                loads[growing] += 1
        most = -(-len(entry.sources) // len(order))
        moving = []
        for source in sealed:
            held = entry.held.get(source)
            if held is not None and loads.get(held.holder, most) < most:
                targets[source] = held.holder
                loads[held.holder] += 1
            else:
                moving.append(source)
        for source in moving:
            target = min(order, key=lambda one: loads[one])
            targets[source] = target
            loads[target] += 1
        for source, target in targets.items():
            held = entry.held.get(source)
            if held is None:
                self._give(entry, source, target, effects)
            elif held.holder != target and held.holder in self._peers and not self._waits(entry, held, eligible):
                effects.append(Revoked(entry.subscription, source, held.grant, held.holder))
                self._give(entry, source, target, effects)

    def _waits(self, entry: SubscriptionGrants, held: _HeldGrant, eligible: list[int]) -> bool:
        """Whether its holder has just lost its stream: it keeps it for a moment."""
        peer = self._peers.get(held.holder)
        return (
            held.holder not in eligible
            and held.holder in entry.holders
            and peer is not None
            and (peer.lost_at is not None)
        )

    def _give(self, entry: SubscriptionGrants, source: int, holder: int, effects: list[Effect]) -> None:
        self._next += 1
        entry.held[source] = _HeldGrant(self._next, holder)
        effects.append(Granted(entry.subscription, source, self._next, holder))

    def _waits_for_time(self, entry: SubscriptionGrants, now: float) -> bool:
        """Whether time alone will free something that is wanted."""
        return any(held.revoked_at is not None or not self._is_here(held.holder, now) for held in entry.held.values())

    def _mark_pending(self, holder: int) -> None:
        """A holder came, or went: reconsider every subscription it serves at the next tick."""
        self._pending.update(one.subscription for one in self.shared.values() if holder in one.holders)


def _drop_grants_of(entry: SubscriptionGrants, holder: int) -> None:
    for source in [source for source, held in entry.held.items() if held.holder == holder]:
        del entry.held[source]


def _weight(subscription: int, holder: int) -> bytes:
    """The order of holders, alike in every chain, and another one for each subscription."""
    return blake2b(b"%d %d" % (subscription, holder), digest_size=8).digest()
