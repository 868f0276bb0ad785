"""Moving a subscription from site to site: held everywhere, acknowledgements brought, then delivered at the new home.

Place: under `syncpoint federation home`; the calls are those of any round of `ack_rounds`. The order is what keeps a
message from being delivered twice: nothing is lent anywhere before the new home begins, and what was acknowledged
elsewhere is known there by then. A move that breaks off leaves the subscription held, until it is made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError, Unavailable
from syncpoint.base.model.key_homes import BY_KEY
from syncpoint.programs.federation.acks.ack_pair import home_request
from syncpoint.programs.federation.acks.ack_rounds import AckRounds
from syncpoint.programs.federation.acks.copied_tail import CopiedTail, Heads
from syncpoint.programs.federation.acks.linked_sites import check_site, ends_of, homes_at, part_with
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.servers import Servers
from syncpoint.wire.protobuf.messages import admin

LOOK_S = 0.25
NEARLY = 1000  # messages: copied within a moment
MOVING = "(moving)"  # the home while nobody delivers; no site can have this name


@dataclass(frozen=True, slots=True)
class MovedHome:
    """What a move came to. `outstanding`: messages that consumers of the sites before still had; None: unknown.
    `silent`: sites that did not answer, and what was received instead.
    """

    home: str
    epoch: int
    outstanding: int | None
    silent: Mapping[str, str]


class HomeMove:
    """One subscription, by its id or its full name, over the links that exchange its acknowledgements."""

    def __init__(
        self,
        links: Sequence[FederationLink],
        servers: Servers,
        subscription: str,
        home: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises `NotFound` for a site that no link with `acks` has, `FailedPrecondition` for an id that several
        subscriptions have.
        """
        self._links, self._short = part_with(links, servers, subscription)
        self._servers, self._home = servers, home
        self._clock, self._sleep = clock, sleep
        self._ends = ends_of(self._links, self._short)
        check_site(self._ends, home)

    def move(self, drain_s: float, *, force: bool = False) -> MovedHome:
        """Move it; waits up to `drain_s` for consumers elsewhere, and for what the new home lacks (rule 33). `force`:
        also when it lacks something, and when another site does not answer, which learns of it when it is back. Raises
        `SyncpointError`.
        """
        known, silent = homes_at(self._ends, self._servers)
        if self._home in silent:
            raise Unavailable(f"{self._home} does not answer, so it cannot deliver: {silent[self._home]}")
        if silent and not force:
            names = ", ".join(sorted(silent))
            raise FailedPrecondition(
                f"{names} does not answer: what it delivers now is unknown. With --force {self._home} delivers"
                f" anyway, and messages may be delivered twice until {names} is back and knows."
            )
        before = max((one.home_epoch, one.home) for one in known.values())
        if before[1] == BY_KEY:
            raise FailedPrecondition(
                f"Keys of {self._short} have homes of their own: `syncpoint federation keys move {self._short}"
                f" {self._home}` moves all of them."
            )
        links = [one for one in self._links if one.source.name in known]
        tail = CopiedTail(self._servers, links, self._ends[self._home])
        if not force and (lacked := self._nearly_copied(tail, drain_s)) > NEARLY:
            raise self._lacks(lacked)
        epoch = 1 + before[0]
        for name in known:
            self._set(name, MOVING, epoch)
        heads = {} if force else tail.heads()
        outstanding, lacked = self._drained([name for name in known if name != self._home], tail, heads, drain_s)
        if lacked and before[1]:  # without a home all have delivered, each in an order of its own
            if before[1] in known:
                for name in (before[1], *(one for one in known if one != before[1])):
                    self._set(name, before[1], epoch + 1)
            raise self._lacks(lacked, held=before[1] not in known)
        for name in (self._home, *(one for one in known if one != self._home)):
            self._set(name, self._home, epoch + 1)
        return MovedHome(self._home, epoch + 1, outstanding, silent)

    def homes(self) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
        """What each site knows, home and epoch, and which do not answer."""
        known, silent = homes_at(self._ends, self._servers)
        return {name: (one.home, one.home_epoch) for name, one in known.items()}, silent

    def _set(self, name: str, home: str, epoch: int) -> None:
        cluster, end = self._ends[name]
        self._servers.call(cluster, "AckExchange.SetHome", home_request(end, home, epoch))

    def _nearly_copied(self, tail: CopiedTail, patience_s: float) -> int:
        """Wait, while all deliver as before, until what the new home lacks is copied soon; what it lacks."""
        end = self._clock() + patience_s
        while (lacked := tail.left(tail.heads())) > NEARLY and self._clock() < end:
            self._sleep(LOOK_S)
        return lacked

    def _drained(self, names: Sequence[str], tail: CopiedTail, heads: Heads, drain_s: float) -> tuple[int | None, int]:
        """Exchange until consumers elsewhere have nothing left, all up to `heads` is copied and nothing is news, or
        time is up; what consumers have, and what is not copied.
        """
        rounds = AckRounds(self._links, self._servers)
        end = self._clock() + drain_s
        while True:
            outstanding, lacked = self._outstanding(names), tail.left(heads)
            rounds.hurry()
            news = rounds.step() or rounds.unfinished(self._short, (*names, self._home))
            if not news and outstanding == 0 and not lacked:
                return 0, 0
            if self._clock() >= end:
                return outstanding or (None if news else 0), lacked
            self._sleep(LOOK_S)

    def _lacks(self, messages: int, *, held: bool = False) -> FailedPrecondition:
        """`held`: the home before does not answer, or an earlier move broke off."""
        nobody = "No site delivers the subscription until this is repeated: " if held else ""
        return FailedPrecondition(
            f"{nobody}{self._home} lacks {messages:,} messages that other sites have: delivered later, they would come"
            " after newer ones of their keys. `federation run` copies them (`federation status`); with --force the home"
            " moves all the same."
        )

    def _outstanding(self, names: Sequence[str]) -> int | None:
        found = 0
        for name in names:
            cluster, end = self._ends[name]
            asked = admin.GetSubscriptionStateRequest(subscription=end.subscription)
            try:
                state = self._servers.call(cluster, "Admin.GetSubscriptionState", asked)
            except SyncpointError as error:
                if error.code is not Code.PERMISSION_DENIED:
                    raise
                return None
            found += max(state.outstanding_messages, state.leaving_messages)
        return found
