"""What the sites of a subscription know of the homes of its keys, and notifying them.

Place: under `key_move` and `take_over`; blocking calls to the servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.base.model.key_homes import NOWHERE, SlotHome, Slots, later
from syncpoint.programs.federation.acks.ack_pair import home_slots, keys_request
from syncpoint.programs.federation.acks.linked_sites import check_site, ends_of, homes_at, part_with
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.servers import Servers
from syncpoint.wire.protobuf.messages import admin


class KnownKeys(NamedTuple):
    """What each site knows, and why some did not answer."""

    at: Mapping[str, Slots]
    silent: Mapping[str, str]

    @property
    def newest(self) -> Slots:
        """The decisions that hold, as far as anybody who answers knows."""
        return reduce(later, self.at.values(), NOWHERE)

    @property
    def back(self) -> list[str]:
        """Sites that keys were taken from, and that answer again."""
        return sorted({one.taken_from for one in self.newest} & self.at.keys())


class KeySites:
    """One subscription, by its id or its full name, over the links that exchange its acknowledgements."""

    def __init__(self, links: Sequence[FederationLink], servers: Servers, subscription: str) -> None:
        """Raises `FailedPrecondition` for an id that several subscriptions have."""
        self.links, self.subscription = part_with(links, servers, subscription)
        self.servers = servers
        self.ends = ends_of(self.links, self.subscription)

    def check(self, sites: Iterable[str]) -> None:
        """Raises `NotFound` for a site that no link with `acks` has."""
        for site in sites:
            check_site(self.ends, site)

    def known(self) -> KnownKeys:
        """Ask all. Raises `SyncpointError`, not for those that do not answer."""
        known, silent = homes_at(self.ends, self.servers)
        return KnownKeys({name: home_slots(one) for name, one in known.items()}, silent)

    def notify(self, site: str, decided: Mapping[int, SlotHome], instead_of: str = "") -> None:
        """Let a site know who delivers some slots. Raises `FailedPrecondition` where somebody has decided later."""
        cluster, end = self.ends[site]
        slots = [decided.get(slot, one) for slot, one in enumerate(NOWHERE)]
        asked = keys_request(end, slots, instead_of)
        found = home_slots(self.servers.call(cluster, "AckExchange.SetHome", asked))
        if any(found[slot] != at for slot, at in decided.items()):
            raise FailedPrecondition(
                f"Somebody else moves keys of {self.subscription} at the same time. See `syncpoint federation keys show"
                f" {self.subscription}`, and run the command again."
            )

    def lent(self, site: str) -> int | None:
        """Messages that consumers of a site still have of keys that have left it, or have acknowledged just now; None:
        unknown.
        """
        cluster, end = self.ends[site]
        asked = admin.GetSubscriptionStateRequest(subscription=end.subscription)
        try:
            state = self.servers.call(cluster, "Admin.GetSubscriptionState", asked)
        except SyncpointError as error:
            if error.code is not Code.PERMISSION_DENIED:
                raise
            return None
        if state.unknown:
            return None
        return max(int(state.leaving_messages), int(state.outstanding_messages) if state.home else 0)
