"""The host: all chains that are open in this process, and the subscribe forwarders that are served from them.

Place: between `control.ownership_driver` (which chain, in which epoch), `service` (what others
ask) and the chains. It carries every change of the catalog and of assignments to every chain, in order.
Promise: what `confirm` returns for is persisted in the chain's log. A chain whose disks fail it, or know a later
epoch, is served no more at once, and `on_ended` is called for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import FailedPrecondition, SyncpointError, Unavailable
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.broker.publish.chain import states
from syncpoint.broker.publish.chain.chain import Chain, ChainContext, open_chain
from syncpoint.broker.publish.grants.sessions import Attached, KnownForwarder, Session, Sessions
from syncpoint.broker.publish.intake.duplicates import Duplicates
from syncpoint.broker.publish.keep.upkeep import TICK_S, Rounds
from syncpoint.catalog.metadata.reader_holds import hold_of
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.log.storage.errors import Fenced
from syncpoint.wire.protobuf.messages import internal

TIDY_S = 30.0
SOON_NS = 2_000_000_000  # what is scheduled for later than that can wait for a tick at rest

DISPLACED: bytes = internal.FromChains(displaced=internal.Displaced()).SerializeToString()

log = logging.getLogger(__name__)


class ChainHost:
    """All chains that are open in this process. Call `start` before the first `open`."""

    def __init__(self, context: ChainContext) -> None:
        self.context = context
        self.chains: dict[int, Chain] = {}  # served
        self.on_ended: Callable[[int, Exception], None] = lambda number, error: None
        self._entered: dict[int, Chain] = {}  # served, and about to be
        self._opening: dict[int, asyncio.Future[None]] = {}
        self._void: dict[int, list[tuple[int, Sequence[int]]]] = {}  # reported to chains that are being opened
        self._refused: set[int] = (
            set()
        )  # subscriptions that a subscribe forwarder asked for when it could not have them
        self._sessions = Sessions()
        self._assigned = asyncio.Event()
        self.rounds = Rounds(
            context.environment.clock,
            lambda: [chain.upkeep for chain in self._entered.values()],
            lambda: [chain.upkeep for chain in self.chains.values()],
        )
        self.rounds.every(TICK_S, self._tick)
        self.rounds.busy.append(self._is_busy)
        self.rounds.every(TIDY_S, self._tidy)
        context.shared.on_change.append(self._changed)

    def start(self) -> None:
        """Do what is done by the clock."""
        self.rounds.start()

    async def stop(self) -> None:
        """Close what is still open. Idempotent."""
        if self._changed in self.context.shared.on_change:
            self.context.shared.on_change.remove(self._changed)
        await self.rounds.stop()
        await asyncio.gather(*(self.close(number) for number in list(self._entered)))

    # -- chains ------------------------------------------------------------------------------------------------------

    async def open(self, record: ChainRecord, epoch: int) -> None:
        """Recover a chain and serve it. Raises `DiskFenced` when a later epoch has begun, or storage errors."""
        number = record.number
        if number in self._entered or number in self._opening:
            raise FailedPrecondition(f"Chain {number} is open here already.")
        opening = self._opening[number] = asyncio.get_running_loop().create_future()
        try:
            chain = await open_chain(record, epoch, self.context, self._enter)
            try:
                for sender, batches in self._void.get(number, ()) if chain.forwarder.commit.failed is None else ():
                    chain.duplicates.mark(sender, batches)  # before anybody is handed anything of it
            except BaseException:
                await chain.close()  # or it would keep its disks, served by nobody
                raise
        except Fenced as error:
            self._entered.pop(number, None)
            raise DiskFenced(str(error)) from error
        except BaseException:
            self._entered.pop(number, None)
            raise
        finally:
            del self._opening[number]
            self._void.pop(number, None)
            opening.set_result(None)
        self.chains[number] = chain
        for topic in list(self.context.recorder.topics):
            chain.record_found(topic)
        for known in self._sessions:
            if known.session is not None:
                chain.holders.on_connected(known.session)
                for subscription, attached in known.attached.items():
                    self._attach(chain, known.session, subscription, attached)
        self._send_owned()

    @property
    def entered(self) -> list[Chain]:
        """Chains that are served, and about to be."""
        return list(self._entered.values())

    def _enter(self, chain: Chain) -> None:
        self._entered[chain.number] = chain
        chain.on_ended = self._ended
        chain.forwarder.scheduled.on_sooner = self.rounds.stir

    async def close(self, number: int) -> None:
        """Seal a chain where that is still possible, and let go of it."""
        chain = self._entered.pop(number, None)
        if self.chains.pop(number, None) is not None:
            self._send_owned()
        if chain is not None:
            await chain.close()

    def _ended(self, chain: Chain, error: Exception) -> None:
        """The chain's log cannot be written any more; it stays entered until it is closed."""
        if self.chains.get(chain.number) is chain:
            del self.chains[chain.number]
            self._send_owned()
            self.on_ended(chain.number, DiskFenced(str(error)) if isinstance(error, Fenced) else error)

    # -- what changes ------------------------------------------------------------------------------------------------

    def _changed(self, change: CatalogChange) -> None:
        for chain in list(self._entered.values()):
            try:
                chain.changed(change)
            except Exception as error:
                # A seek, for instance, whose place cannot be read off the disks now. What is not followed must not be
                # confirmed: the chain ends, and follows it when it is opened again.
                if not isinstance(error, SyncpointError):
                    log.exception("chain %d cannot follow a change of the catalog: it ends", chain.number)
                self.rounds.guard(partial(chain.forwarder.commit.give_up, error))
        if self._sessions.known and isinstance(change.record, Subscription):
            self.rounds.guard(partial(self._attach_late, change.record.incarnation))

    def _attach_late(self, subscription: int) -> None:
        """Serve callers that asked for a subscription before it was known here."""
        for known in self._sessions:
            attached = known.attached.get(subscription)
            if attached is not None and known.session is not None:
                for chain in self.chains.values():
                    if known.incarnation not in chain.holders.grants.attached(subscription):
                        self._attach(chain, known.session, subscription, attached)

    def _attach(self, chain: Chain, session: Session, subscription: int, attached: Attached) -> None:
        if not chain.holders.attach(session, subscription, attached.wanted, attached.claims):
            self._refused.add(subscription)

    def _attach_refused(self) -> None:
        """Serve callers that asked while an exclusive reader had the subscription."""
        catalog, now_ns = self.context.shared.catalog, self.context.environment.clock.time_ns()
        for subscription in list(self._refused):
            if hold_of(catalog, subscription, now_ns) is None:
                self._refused.discard(subscription)
                self._attach_late(subscription)

    def record_found(self, topic: int) -> None:
        """A topic is recorded from now on; see `Chain.record_found`."""
        for chain in self.chains.values():
            chain.record_found(topic)

    def assigned(self, topic: int) -> None:
        """The assignment of a topic has changed; `ChainContext.assignments` has the new one."""
        for chain in list(self._entered.values()):
            chain.assigned(topic)
        self._assigned.set()
        self._assigned = asyncio.Event()

    # -- questions ---------------------------------------------------------------------------------------------------

    def chain(self, number: int) -> Chain:
        """Raises `Unavailable` when it is not open here."""
        chain = self.chains.get(number)
        if chain is None:
            raise Unavailable(f"Chain {number} is not open here.")
        return chain

    async def confirm(self, number: int, topic: int, revision: int, assignment: int = 0) -> int:
        """Return once a chain has persisted what follows from the catalog at `revision`, and from an assignment of the
        topic with the epoch `assignment`. Raises `Unavailable`.
        """
        self.chain(number)
        await self.context.shared.at(revision)
        while assignment:
            known = self.context.assignments(topic)
            if known is not None and known.epoch >= assignment:
                break
            await self._assigned.wait()
        chain = self.chain(number)
        if assignment:
            chain.ingress.assigned(topic)
        return await chain.confirm()

    async def drained(self, number: int, subscription: int) -> list[int]:
        """Return the empty lanes of a subscription in a chain. Raises `Unavailable`."""
        return await self.chain(number).drained(subscription)

    async def void(self, number: int, sender: int, batches: Sequence[int]) -> Duplicates:
        """Mark batches of a sender that another chain has stored, see `duplicates`. If this chain is still being opened
        they are not delivered from it. Raises `Unavailable`.
        """
        opening = self._opening.get(number)
        if opening is not None:
            self._void.setdefault(number, []).append((sender, batches))
            await asyncio.shield(opening)
        return await self.chain(number).duplicates.void(sender, batches)

    async def describe(
        self, topic: int, subscription: int, ranges_max: int, seek: internal.ForeseenSeek | None = None
    ) -> list[internal.DescribedChain]:
        """A DescribedChain of every chain of this process; `subscription` 0: of the topic alone. `seek`: with what it
        would change.
        """
        record = self.context.shared.catalog.subscription_by_incarnation(subscription) if subscription else None
        forwarders = {number: chain.forwarder for number, chain in self.chains.items()}
        return await states.describe(forwarders, topic, record, ranges_max, seek)

    def status(self) -> dict[str, Any]:
        """For the process's status."""
        return {
            "disks": {
                str(number): states.disks_of(chain.record, chain.store) for number, chain in sorted(self.chains.items())
            },
            "chains": [chain.status() for _, chain in sorted(self._entered.items())],
            "subscribe_forwarders": {
                f"{known.incarnation:016x}": {
                    "member": known.member,
                    "connected": known.session is not None,
                    "subscriptions": len(known.attached),
                    "sources": sum(chain.holders.grants.held_by(known.incarnation) for chain in self.chains.values()),
                }
                for known in self._sessions
            },
        }

    def take_load(self) -> dict[int, tuple[int, int]]:
        """Messages and bytes published since the last call, by topic incarnation."""
        load: dict[int, tuple[int, int]] = {}
        for chain in self.chains.values():
            taken, chain.ingress.load = chain.ingress.load, {}
            for topic, (messages, nbytes) in taken.items():
                before = load.get(topic, (0, 0))
                load[topic] = (before[0] + messages, before[1] + nbytes)
        return load

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session_began(self, session: Session, member: str) -> None:
        """A subscribe forwarder has connected. Of its name there is one, and one stream of it: see `sessions`."""
        began = self._sessions.began(session, member, self.context.environment.clock.monotonic())
        if not began.taken:
            session.send(DISPLACED)
            return
        if began.displaced is not None:
            began.displaced.send(DISPLACED)
        for chain in self.chains.values():
            if began.over is not None:
                chain.holders.on_ended(began.over)
            chain.holders.on_connected(session)
        session.send(self._owned())

    def heeds(self, session: Session) -> bool:
        """Whether messages of a stream count; if not, its forwarder is notified."""
        if self._sessions.of(session) is not None:
            return True
        session.send(DISPLACED)
        return False

    def on_session_alive(self, session: Session) -> None:
        """A heartbeat came."""
        known = self._sessions.of(session)
        if known is not None:
            known.seen_at = self.context.environment.clock.monotonic()
            for chain in self.chains.values():
                chain.holders.on_heartbeat(session)

    def session_lost(self, session: Session) -> None:
        """Its stream broke, or ended."""
        if self._sessions.lost(session, self.context.environment.clock.monotonic()):
            for chain in self.chains.values():
                chain.holders.on_disconnected(session)

    def attach(self, session: Session, subscription: int, wanted: bool, claims: Mapping[int, int]) -> None:
        """Attach a forwarder that serves a subscription."""
        known = self._sessions.of(session)
        if known is not None:
            self.rounds.stir()
            known.attached[subscription] = Attached(wanted, claims)
            for chain in self.chains.values():
                self._attach(chain, session, subscription, known.attached[subscription])

    def detach(self, session: Session, subscription: int) -> None:
        """Detach a forwarder that no longer serves a subscription."""
        known = self._sessions.of(session)
        if known is not None:
            self._detach(known, subscription)

    def serves(self, session: Session, subscriptions: Collection[int]) -> None:
        """Limit a forwarder to these subscriptions, whatever it attached on earlier streams."""
        known = self._sessions.of(session)
        if known is not None:
            for subscription in known.attached.keys() - set(subscriptions):
                self._detach(known, subscription)

    def _detach(self, known: KnownForwarder, subscription: int) -> None:
        known.attached.pop(subscription, None)
        for chain in self.chains.values():
            chain.holders.detach(known.incarnation, subscription)

    def wants(self, session: Session, subscription: int, wanted: bool) -> None:
        """Whether it can take messages."""
        known = self._sessions.of(session)
        if known is not None and subscription in known.attached:
            known.attached[subscription] = known.attached[subscription]._replace(wanted=wanted)
            for chain in self.chains.values():
                chain.holders.set_demand(session.incarnation, subscription, wanted)

    def owned_ages_ms(self) -> list[tuple[int, int]]:
        """Return for each chain how many milliseconds ago its disks were known to obey this owner."""
        return [(number, chain.holders.owned_age_ms()) for number, chain in self.chains.items()]

    def chain_of(self, source: int) -> Chain | None:
        """Which chain here has a source."""
        for chain in self.chains.values():
            if source in chain.forwarder.sources.by_number:
                return chain
        return None

    def chain_that_had(self, source: int) -> Chain | None:
        """Which chain here had a source of which nothing is left."""
        return next((chain for chain in self.chains.values() if chain.has_had(source)), None)

    def _owned(self) -> bytes:
        message: bytes = internal.FromChains(owned=internal.Owned(chains=sorted(self.chains))).SerializeToString()
        return message

    def _send_owned(self) -> None:
        message = self._owned()
        for known in self._sessions:
            if known.session is not None:
                known.session.send(message)

    # -- by the clock ------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.rounds.guard(self._attach_refused)
        for chain in list(self._entered.values()):
            self.rounds.guard(chain.holders.tick)
            self.rounds.guard(chain.holders.sweep)
            if chain.mounted is not None:
                self.rounds.guard(chain.mounted.tick)
        for chain in list(self.chains.values()):
            if chain.firing is not None:
                self.rounds.guard(chain.firing.tick)
        for incarnation in self._sessions.forget_lost(self.context.environment.clock.monotonic()):
            for chain in self.chains.values():
                self.rounds.guard(partial(chain.holders.on_ended, incarnation))

    def _is_busy(self) -> bool:
        """Whether somebody is served who waits for ticks, or something is published by the clock."""
        if self._refused or any(known.attached for known in self._sessions):
            return True
        soon_ns = self.context.environment.clock.time_ns() + SOON_NS
        return any(chain.forwarder.scheduled.first_ns < soon_ns for chain in self._entered.values())

    def _tidy(self) -> None:
        for chain in list(self._entered.values()):
            self.rounds.guard(chain.tidy)
