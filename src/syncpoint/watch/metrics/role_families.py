"""Families of what only the processes of a cluster, or workers, do: members, proxies, gathering, routers, disk servers,
mitigation.

Place: in the processes that have the role. The numbers are those of a role's status, which operators are shown, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from typing import Any, Final, NamedTuple

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.headroom import headroom
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from syncpoint.watch.metrics.log_families import COLD_READS

_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
MEMBER_FAMILIES: Final = (
    Family("syncpoint_members", _G, "", ("role",), "Member processes by role; a process may have several roles."),
    Family("syncpoint_members_draining", _G, "", (), "Drained members."),
    Family("syncpoint_member", _G, "", (), "1 while this process is a registered member."),
    Family("syncpoint_chains", _G, "", (), "Chains of the cluster."),
    Family("syncpoint_chains_owned", _G, "", (), "Chains open on some process; temporarily fewer while a chain moves."),
    Family("syncpoint_chains_open", _G, "", (), "Chains that this process has open."),
    Family(
        "syncpoint_chain_unserved_seconds",
        _G,
        "seconds",
        ("chain",),
        "Seconds since any process had this chain open. Chains in service have no sample.",
    ),
    Family(
        "syncpoint_chain_below_policy",
        _G,
        "",
        ("chain",),
        "1 if the chain spans fewer racks than its durability class requires; otherwise no sample.",
    ),
    Family(
        "syncpoint_chain_disk",
        _G,
        "",
        ("chain", "disk", "server"),
        "1 for the process that serves a disk of a chain, as known to the chain's owner.",
    ),
)


class StatusFamily(NamedTuple):
    """A family of one number in a status. `key`: where it stands there."""

    key: str
    family: Family


def _of(prefix: str, counted: Mapping[str, str], now: Mapping[str, str]) -> tuple[StatusFamily, ...]:
    """Families by what their numbers are called in a status: `counted` only grow, `now` is as it is."""
    every = [(key, f"{_named(key)}_total", _C, meaning) for key, meaning in counted.items()]
    every += [(key, _named(key), _G, meaning) for key, meaning in now.items()]
    return tuple(
        StatusFamily(key, Family(f"syncpoint_{prefix}_{name}", kind, "bytes" if "bytes" in name else "", (), meaning))
        for key, name, kind, meaning in every
    )


def _named(key: str) -> str:
    return {
        "topics_routed": "routed_topics",
        "subscriptions_routed": "routed_subscriptions",
        "bytes_written": "written_bytes",
    }.get(key, key)


PROXY: Final = _of(
    "proxy",
    {
        "published": "Client publish requests that succeeded.",
        "resent": "Publish requests retried, at the same or another forwarder.",
        "resent_duplicates": "Messages stored twice because of a retry.",
        "resent_duplicates_late": "Messages stored twice because of a retry, and possibly delivered twice.",
        "resent_unknown": "Retried requests that may be stored twice because no chain knew the outcome.",
        "delayed": "Publishes queued after others.",
        "refused": "Publishes refused by flow control.",
        "relayed": "Calls forwarded to subscribe forwarders.",
        "retried": "Failed attempts to forward a call to a subscribe forwarder.",
        "responses": "Responses with messages forwarded.",
        "moved_calls": "Calls forwarded to another process because the first was lost.",
        "moved_streams": "Streaming pulls moved to another process transparently.",
        "routers_asked": "Requests to routers.",
        "assigned": "Topics assigned by this proxy, because no router answered.",
    },
    {
        "resent_pending": "Retried requests whose duplicates are still being checked.",
        "underway_bytes": "Publishes in flight to publish forwarders.",
        "transforming_bytes": "Publishes being transformed.",
        "held_bytes": "Publishes held in this process.",
        "streams": "Streaming pulls of clients.",
        "suspected": "Unresponsive processes that are avoided.",
        "topics_routed": "Topics with known publish forwarders.",
        "subscriptions_routed": "Subscriptions with known subscribe forwarders.",
    },
)
GATHERING: Final = _of(
    "gather",
    {"failed_steps": "Internal steps restarted after a failure caused by a bug."},
    {
        "subscriptions": "Subscriptions served from chains.",
        "sources": "Sources whose messages this process delivers.",
        "peers": "Known publish forwarders.",
        "peers_up": "Connected publish forwarders.",
    },
)
ROUTER: Final = _of(
    "router",
    {
        "answered": "Requests answered.",
        "written": "Assignments written.",
        "conflicts": "Assignments that another router changed concurrently.",
    },
    {
        "leads": "1 for the leading router, which writes plans.",
        "topics": "Assigned topics.",
        "subscriptions": "Assigned subscriptions.",
        "watchers": "Proxies notified of changes by this router.",
    },
)
DISK_SERVER: Final = _of(
    "disk_server",
    {"bytes_written": "Bytes written for owners of chains.", "syncs": "Files synced."},
    {"connections": "Connections of chain owners."},
)
MITIGATION: Final = _of(
    "mitigation",
    {
        "drains": "Processes drained by mitigation since this router became leader.",
        "undrains": "Processes returned to service by mitigation.",
        "refusals": "Unhealthy processes not drained because the budget was used up.",
        "alarms": "Alarms: a zone was lost, or there is no headroom for the loss of one.",
    },
    {
        "drained": "Processes currently drained by mitigation, as seen by the leading router.",
        "sick": "Processes currently unhealthy, as seen by the leading router.",
        "over_budget": "Unhealthy processes in service because the budget is used up.",
        "lost_zones": "Zones that have lost all their processes.",
    },
)
QUIET_S: Final = 3.0
_DOMAIN: Final = ("domain", "role")
HEADROOM_FAMILIES: Final = (
    Family(
        "syncpoint_headroom_busy_after",
        _G,
        "",
        _DOMAIN,
        "Expected core share used by the remaining processes of a role after the loss of this zone or rack.",
    ),
    Family(
        "syncpoint_headroom_short",
        _G,
        "",
        _DOMAIN,
        "1 if the remaining processes would be overloaded, or none would remain.",
    ),
)
SERVED_FREE: Final = Family(
    "syncpoint_disk_server_free_bytes", _G, "bytes", ("disk",), "Free bytes on a disk served by this process."
)
SERVED_CHAINS: Final = Family("syncpoint_disk_server_chains", _G, "", ("disk",), "Chains open on a served disk.")
SERVED_READS: Final = tuple(
    Family(f"syncpoint_disk_server_{name}", kind, unit, ("disk",), text) for name, kind, unit, text in COLD_READS
)
FAMILIES: Final = (
    *MEMBER_FAMILIES,
    *(one.family for one in (*PROXY, *GATHERING, *ROUTER, *DISK_SERVER, *MITIGATION)),
    *HEADROOM_FAMILIES,
    SERVED_FREE,
    SERVED_CHAINS,
    *SERVED_READS,
)


class StatusRoom(QuickCollector):
    """A role by its status; of what is several there, how many."""

    def __init__(self, name: str, families: tuple[StatusFamily, ...], status: Callable[[], Mapping[str, Any]]) -> None:
        self.name, self._families, self._status = name, families, status

    def collect(self, samples: Samples) -> None:
        self.put(self._status(), samples)

    def put(self, status: Mapping[str, Any], samples: Samples) -> None:
        """Families of a status."""
        for key, family in self._families:
            value = status[key]
            samples.put(family.name, len(value) if isinstance(value, Sized) else int(value))


class HeadroomRoom(QuickCollector):
    """Whether a zone could be lost; shown by the router that `leads`."""

    name = "headroom"

    def __init__(self, view: ClusterView, leads: Callable[[], bool]) -> None:
        self._view, self._leads = view, leads

    def collect(self, samples: Samples) -> None:
        for row in headroom(self._view) if self._leads() else ():
            samples.put("syncpoint_headroom_busy_after", row.busy_after, row.domain, row.role)
            samples.put("syncpoint_headroom_short", int(row.short), row.domain, row.role)


def gathering(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a gatherer, with the number of peers that are connected."""
    return {**status, "peers_up": sum(peer["up"] for peer in status["peers"].values())}


class DiskServerRoom(StatusRoom):
    """The disks that a process serves."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__("disk server", DISK_SERVER, status)

    def collect(self, samples: Samples) -> None:
        status = self._status()
        self.put(status, samples)
        for disk, found in status["disks"].items():
            samples.put(SERVED_FREE.name, found["free_bytes"], disk)
            samples.put(SERVED_CHAINS.name, len(found["chains"]), disk)
            for name, *_ in COLD_READS:
                samples.put(f"syncpoint_disk_server_{name}", found[name], disk)


class MemberRoom(QuickCollector):
    """Who is a member, and which chains are served. `name`: this process's; `joined`: whether it is a member;
    `opened`: which chains it has open. A chain counts as served once somebody has had it for `QUIET_S`: owners that
    take turns because none of them can open it serve nothing.
    """

    name = "members"

    def __init__(
        self,
        view: ClusterView,
        name: str,
        joined: Callable[[], bool],
        opened: Callable[[], Collection[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view, self._name, self._joined, self._opened, self._clock = view, name, joined, opened, clock
        self._unserved: dict[str, float] = {}  # since when nobody has had a chain open
        self._last_unserved: dict[str, float] = {}  # when that was last seen
        self._served: dict[str, float] = {}  # since when somebody has
        view.owners.listeners.append(self._look)
        view.chains.listeners.append(self._look)

    def _look(self, changed: Collection[str] = ()) -> None:
        now = self._clock()
        chains, opened = self._view.chains.items.keys(), self._opened()
        for number in chains:
            owner = self._view.owners.get(number)
            if owner is None or (owner.member == self._name and int(number) not in opened):
                self._served.pop(number, None)
                self._unserved.setdefault(number, now)
                self._last_unserved[number] = now
            elif now - self._served.setdefault(number, now) >= QUIET_S:
                self._unserved.pop(number, None)
        for number in self._unserved.keys() - chains:
            del self._unserved[number]

    def unserved_s(self) -> dict[str, float]:
        """For how long nobody has had each of these chains open. What is open by now was opened between two looks: it
        does not grow while the new owner proves itself.
        """
        self._look()
        now = self._clock()
        return {
            chain: (self._last_unserved[chain] if chain in self._served else now) - since
            for chain, since in self._unserved.items()
        }

    def collect(self, samples: Samples) -> None:
        view = self._view
        members = [seen.value for seen in view.members.items.values()]
        for role, number in Counter(role for one in members for role in one.roles).items():
            samples.put("syncpoint_members", number, role)
        samples.put("syncpoint_members_draining", sum(map(view.draining, members)))
        samples.put("syncpoint_member", int(self._joined()))
        samples.put("syncpoint_chains", len(view.chains.items))
        samples.put("syncpoint_chains_owned", len(view.owners.items))
        samples.put("syncpoint_chains_open", len(self._opened()))
        for chain, seconds in self.unserved_s().items():
            samples.put("syncpoint_chain_unserved_seconds", seconds, chain)
        for chain, seen in view.chains.items.items():
            if seen.value.below_policy:
                samples.put("syncpoint_chain_below_policy", 1, chain)


class ChainDiskRoom(QuickCollector):
    """Who serves the disks of the chains that are open here."""

    name = "disks of chains"

    def __init__(self, chains: Callable[[], Iterable[ChainRecord]]) -> None:
        self._chains = chains

    def collect(self, samples: Samples) -> None:
        for record in self._chains():
            for one in record.places:
                samples.put("syncpoint_chain_disk", 1, str(record.number), f"/{one.cluster}/{one.disk}", one.process)
