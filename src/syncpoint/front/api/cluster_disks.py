"""The disks of a cluster as one list, put together from what storage processes and the owners of chains say.

Place: called by ListDisks of `cluster_admin`. Pure.
Processes of one machine that write its disks themselves have no storage process: the owners report all there is.
Promise: what nobody reported is UNKNOWN or absent, never OK or 0. A disk's state is the worst that a chain on it finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncpoint.base.model.cluster import STORAGE, ChainRecord, DiskPlace
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.log.diskserver.fencing import CHAINS
from syncpoint.wire.protobuf.messages import admin

_DISK = admin.Disk
_WORST_FIRST = (_DISK.FAILED, _DISK.DAMAGED, _DISK.AWAY, _DISK.UNKNOWN, _DISK.HEALING, _DISK.OK)


def cluster_disks(
    view: ClusterView, statuses: Mapping[str, Mapping[str, Any]], unknown: Sequence[str]
) -> admin.ListDisksResponse:
    """A ListDisksResponse. `statuses`: process -> role -> its status, of those that answered."""
    living: set[tuple[str, str]] = set()
    shared: set[tuple[str, str]] = set()
    for seen in view.members.items.values():
        member = seen.value
        if STORAGE in member.roles:
            living |= {(member.name, disk) for disk in member.disks}
        else:
            shared |= {(member.cluster, disk) for disk in member.disks}
    records = sorted((seen.value for seen in view.chains.items.values()), key=lambda one: one.number)
    answer = admin.ListDisksResponse(unknown=unknown)
    on: dict[tuple[str, str], list[tuple[ChainRecord, DiskPlace]]] = {disk: [] for disk in living}
    in_common: dict[str, list[tuple[ChainRecord, DiskPlace]]] = {disk: [] for _, disk in shared}
    for record in records:
        for place in record.places:
            if (place.cluster, place.disk) in shared:
                in_common[place.disk].append((record, place))
            else:
                on.setdefault((place.process, place.disk), []).append((record, place))
    for disk, chains in sorted(in_common.items()):
        _add_shared(answer.disks.add(path=disk), view, chains, statuses)
    for (process, disk), chains in sorted(on.items()):
        shown = answer.disks.add(path=f"{process}/{disk}")
        served = statuses.get(process, {}).get("storage", {}).get("disks", {}).get(disk)
        if served is not None:
            shown.free_bytes = served["free_bytes"]
        for record, place in chains:
            _add_chain(shown, view, record, place, statuses)
        states = [one.state for one in shown.chains]
        if (process, disk) not in living:
            shown.state, shown.reason = admin.Disk.AWAY, "the process that serves it is not running"
            continue
        if served is None:
            states.append(admin.Disk.UNKNOWN)
        shown.state = _worst(states)
        shown.reason = _reason(shown, served is not None)
    answer.under_replicated = sum(_lacking(view, record, statuses) for record in records)
    return answer


def _add_shared(
    shown: admin.Disk,
    view: ClusterView,
    chains: Sequence[tuple[ChainRecord, DiskPlace]],
    statuses: Mapping[str, Mapping[str, Any]],
) -> None:
    """A disk that several processes of one machine write themselves, each its own chains: these alone report it."""
    free = []
    for record, place in chains:
        found = _add_chain(shown, view, record, place, statuses)
        if found is not None:
            free.append(found["free_bytes"])
            shown.path = found["folder"].rpartition(f"/{CHAINS}/")[0] or shown.path
    if free:
        shown.free_bytes = min(free)
    shown.state = _worst([one.state for one in shown.chains]) if chains else admin.Disk.UNKNOWN
    shown.reason = _reason(shown, True) if chains else "no chain is on it"


def _worst(states: Sequence[int]) -> Any:
    return next((state for state in _WORST_FIRST if state in states), admin.Disk.OK)


def _add_chain(
    shown: admin.Disk,
    view: ClusterView,
    record: ChainRecord,
    place: DiskPlace,
    statuses: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, Any] | None:
    """Enter what a chain's owner finds of the disk; returns it, None where it does not report."""
    found = _owner_status(view, record, statuses).get("disks", {}).get(str(record.number), {})
    disk = found.get(f"/{place.cluster}/{place.disk}")
    one = shown.chains.add(chain=record.number, state="UNKNOWN" if disk is None else disk["state"].upper())
    if disk is None:
        owner = view.owner(record.number)
        one.reason = "no process has it open" if owner is None else f"{owner.member}, its owner, does not report"
        return None
    one.reason, one.position, one.under_replicated = disk["reason"], disk["position"], disk["lacks"]
    one.incarnation = disk.get("incarnation", "")
    shown.under_replicated += disk["lacks"]
    shown.damaged += disk.get("unreadable", 0)
    return dict(disk)


def _owner_status(
    view: ClusterView, record: ChainRecord, statuses: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    owner = view.owner(record.number)
    found: Mapping[str, Any] = statuses.get(owner.member, {}).get("publish-forwarder", {}) if owner is not None else {}
    return found


def _lacking(view: ClusterView, record: ChainRecord, statuses: Mapping[str, Mapping[str, Any]]) -> int:
    """Entries of a chain that some disk of it does not hold yet, as far as its owner reports."""
    for chain in _owner_status(view, record, statuses).get("chains", ()):
        if chain["chain"] == record.number:
            return int(chain["under_replicated"])
    return 0


def _reason(shown: admin.Disk, served: bool) -> str:
    reasons = [f"chain {one.chain}: {one.reason}" for one in shown.chains if one.reason and one.state == shown.state]
    if not served:
        reasons.insert(0, "the process that serves it does not report")
    return "; ".join(reasons)
