"""Families of what only the processes of a cluster, or workers, do: members, proxies, gathering, routers, disk servers.

Place: in the processes that have the role. The numbers are those of a role's status, which operators are shown, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sized
from typing import Any, Final, NamedTuple

from syncpoint.metadata.view import ClusterView
from syncpoint.metrics.family import Family, MetricKind, QuickCollector, Samples

_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
MEMBER_FAMILIES: Final = (
    Family("syncpoint_members", _G, "", ("role",), "Processes that are members, by role; one may have several."),
    Family("syncpoint_members_draining", _G, "", (), "Members that take nothing new."),
    Family("syncpoint_member", _G, "", (), "1 while this process is a member."),
    Family("syncpoint_chains", _G, "", (), "Chains that the cluster has."),
    Family("syncpoint_chains_owned", _G, "", (), "Chains that a process has open: fewer are served while one moves."),
    Family("syncpoint_chains_open", _G, "", (), "Chains that this process has open."),
)


class StatusFamily(NamedTuple):
    """A family of one number in a status. `key`: where it stands there."""

    key: str
    family: Family


def _of(prefix: str, *rows: tuple[str, str, MetricKind, str, str]) -> tuple[StatusFamily, ...]:
    return tuple(
        StatusFamily(key, Family(f"syncpoint_{prefix}_{name}", kind, unit, (), meaning))
        for key, name, kind, unit, meaning in rows
    )


PROXY: Final = _of(
    "proxy",
    ("published", "published_total", _C, "", "Publish requests of clients that were answered OK."),
    ("resent", "resent_total", _C, "", "Publish requests sent to a forwarder again, or to another one."),
    ("resent_duplicates", "resent_duplicates_total", _C, "", "Messages stored twice because they were sent again."),
    (
        "resent_duplicates_late",
        "resent_duplicates_late_total",
        _C,
        "",
        "Messages stored twice because they were sent again, and perhaps delivered twice.",
    ),
    (
        "resent_unknown",
        "resent_unknown_total",
        _C,
        "",
        "Requests sent again of which nobody could say whether they are stored twice.",
    ),
    (
        "resent_pending",
        "resent_pending",
        _G,
        "",
        "Requests sent again of which no chain has said yet whether it has them.",
    ),
    ("underway_bytes", "underway_bytes", _G, "bytes", "Publishes on their way to publish forwarders."),
    ("transforming_bytes", "transforming_bytes", _G, "bytes", "Publishes that are transformed."),
    ("held_bytes", "held_bytes", _G, "bytes", "Publishes that are held here, all in all."),
    ("delayed", "delayed_total", _C, "", "Publishes that waited for others."),
    ("refused", "refused_total", _C, "", "Publishes refused by flow control."),
    ("relayed", "relayed_total", _C, "", "Calls passed on to subscribe forwarders."),
    ("retried", "retried_total", _C, "", "Failed attempts to pass a call on to a subscribe forwarder."),
    ("streams", "streams", _G, "", "Streaming pulls of clients."),
    ("responses", "responses_total", _C, "", "Responses with messages passed on."),
    ("moved_calls", "moved_calls_total", _C, "", "Calls passed on to another process because the first one was lost."),
    ("moved_streams", "moved_streams_total", _C, "", "Streaming pulls that went on elsewhere, unnoticed by clients."),
    ("suspected", "suspected", _G, "", "Processes that do not answer, and are passed over."),
    ("topics_routed", "routed_topics", _G, "", "Topics whose publish forwarders are known."),
    ("subscriptions_routed", "routed_subscriptions", _G, "", "Subscriptions whose subscribe forwarders are known."),
    ("routers_asked", "routers_asked_total", _C, "", "Questions to routers."),
    ("assigned", "assigned_total", _C, "", "Topics assigned by this proxy, because no router answered."),
)
GATHERING: Final = _of(
    "gather",
    ("subscriptions", "subscriptions", _G, "", "Subscriptions served from chains."),
    ("sources", "sources", _G, "", "Sources of which this process delivers the messages."),
    ("failed_steps", "failed_steps_total", _C, "", "Steps that failed and were begun anew: a fault of ours."),
    ("peers", "peers", _G, "", "Publish forwarders that are known."),
    ("peers_up", "peers_up", _G, "", "Publish forwarders that this process is connected to."),
)
ROUTER: Final = _of(
    "router",
    ("leads", "leads", _G, "", "1 for the router that writes the plans."),
    ("topics", "topics", _G, "", "Topics that are assigned."),
    ("subscriptions", "subscriptions", _G, "", "Subscriptions that are assigned."),
    ("watchers", "watchers", _G, "", "Proxies that learn of changes from here."),
    ("answered", "answered_total", _C, "", "Questions answered."),
    ("written", "written_total", _C, "", "Assignments written."),
    ("conflicts", "conflicts_total", _C, "", "Assignments that another router had changed in between."),
)
DISK_SERVER: Final = _of(
    "disk_server",
    ("bytes_written", "written_bytes_total", _C, "bytes", "Bytes written for owners of chains."),
    ("syncs", "syncs_total", _C, "", "Files synced."),
    ("connections", "connections", _G, "", "Connections of owners."),
)
SERVED_FREE: Final = Family("syncpoint_disk_server_free_bytes", _G, "bytes", ("disk",), "Room on a disk served here.")
SERVED_CHAINS: Final = Family("syncpoint_disk_server_chains", _G, "", ("disk",), "Chains that are open on it.")
FAMILIES: Final = (
    *MEMBER_FAMILIES,
    *(one.family for one in (*PROXY, *GATHERING, *ROUTER, *DISK_SERVER)),
    SERVED_FREE,
    SERVED_CHAINS,
)


class StatusRoom(QuickCollector):
    """A role by its status; of what is several there, how many."""

    def __init__(self, name: str, families: tuple[StatusFamily, ...], status: Callable[[], Mapping[str, Any]]) -> None:
        self.name, self._families, self._status = name, families, status

    def collect(self, samples: Samples) -> None:
        """See `RoomCollector`."""
        status = self._status()
        for key, family in self._families:
            value = status[key]
            samples.put(family.name, len(value) if isinstance(value, Sized) else int(value))


def gathering(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a gatherer, with the number of peers that are connected."""
    return {**status, "peers_up": sum(peer["up"] for peer in status["peers"].values())}


class DiskServerRoom(StatusRoom):
    """The disks that a process serves."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__("disk server", DISK_SERVER, status)

    def collect(self, samples: Samples) -> None:
        """See `RoomCollector`."""
        super().collect(samples)
        for disk, found in self._status()["disks"].items():
            samples.put(SERVED_FREE.name, found["free_bytes"], disk)
            samples.put(SERVED_CHAINS.name, len(found["chains"]), disk)


class MemberRoom(QuickCollector):
    """Who is a member, and which chains are served. `joined`: whether this process is one; `opened`: how many chains it
    has open.
    """

    name = "members"

    def __init__(self, view: ClusterView, joined: Callable[[], bool], opened: Callable[[], int]) -> None:
        self._view, self._joined, self._opened = view, joined, opened

    def collect(self, samples: Samples) -> None:
        """See `RoomCollector`."""
        view = self._view
        members = [seen.value for seen in view.members.items.values()]
        for role, number in Counter(role for one in members for role in one.roles).items():
            samples.put("syncpoint_members", number, role)
        samples.put("syncpoint_members_draining", sum(map(view.draining, members)))
        samples.put("syncpoint_member", int(self._joined()))
        samples.put("syncpoint_chains", len(view.chains.items))
        samples.put("syncpoint_chains_owned", len(view.owners.items))
        samples.put("syncpoint_chains_open", self._opened())
