"""What `syncpoint cluster status` shows: the processes, the chains, and what is wrong.

Place: over `local`, which knows the processes; it asks those that run (Process/GetStatus) and one proxy (the admin
service), so it works with any part of the cluster down: what nobody can tell is left empty, and said.
Promise: it takes seconds, not minutes: every process is asked at the same time, and none for long.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from syncpoint.control.doors import STATUS, Peers
from syncpoint.model.errors import SyncpointError
from syncpoint.node.cluster.doors import Doors
from syncpoint.node.cluster.local import LocalCluster, ProcessState
from syncpoint.node.cluster.tls import operator_tls
from syncpoint.wire.messages import admin, internal

ASK_S = 2.0
_ADMIN = "/syncpoint.admin.v1.Admin/"

Found = dict[str, Any]


def describe(cluster: LocalCluster) -> Found:
    """The whole of it as plain values: `processes`, `chains`, `problems`."""
    return asyncio.run(_describe(cluster))


async def _describe(cluster: LocalCluster) -> Found:
    states = cluster.states()
    regions = {name: process.region for name, process in cluster.settings().processes.items()}
    peers = Peers(Doors.of(operator_tls(cluster.settings())).network)
    try:
        asked = [state for state in states if state.state == "running" and "etcd" not in state.roles]
        listed = await _listed(
            peers, [cluster.called_at(state.name) or state.address for state in asked if "proxy" in state.roles]
        )
        where = {member.name: member.address for member in listed[0]} if listed is not None else {}
        addresses = [where.get(state.name) or cluster.called_at(state.name) for state in asked]
        answers = await asyncio.gather(*(_status(peers, address) for address in addresses))
        told = {state.name: answer for state, answer in zip(asked, answers, strict=True)}
    finally:
        await peers.close()
    return assemble(states, regions, told, listed)


async def _status(peers: Peers, address: str) -> Found | None:
    """What a running process says of itself; None when it says nothing."""
    if not address:
        return None
    try:
        answer = await peers.call(address, STATUS, b"", timeout_s=ASK_S)
        found: Found = json.loads(internal.StatusResponse.FromString(answer).json)["roles"]
        return found
    except (SyncpointError, ValueError, KeyError):
        return None


async def _listed(peers: Peers, proxies: list[str]) -> tuple[list[Any], list[Any]] | None:
    """Members and chains as the first proxy that answers lists them."""
    for address in proxies:
        try:
            members = await peers.call(address, _ADMIN + "ListMembers", b"", timeout_s=ASK_S)
            chains = await peers.call(address, _ADMIN + "ListChains", b"", timeout_s=ASK_S)
        except SyncpointError:
            continue
        return (
            list(admin.ListMembersResponse.FromString(members).members),
            list(admin.ListChainsResponse.FromString(chains).chains),
        )
    return None


def assemble(
    states: list[ProcessState],
    regions: Mapping[str, str],
    told: Mapping[str, Found | None],
    listed: tuple[list[Any], list[Any]] | None,
) -> Found:
    """Put the answers together. `told`: of each running process, what it says; `listed`: members and chains."""
    problems = [f"{state.name} is {state.state}" for state in states if state.state != "running"]
    problems += [f"{name} runs and does not answer" for name, answer in told.items() if answer is None]
    members: dict[str, Any] = {}
    if listed is not None:
        members = {member.name: member for member in listed[0]}
        strangers = [name for name, answer in told.items() if answer is not None and name not in members]
        problems += [f"{name} answers and is no member" for name in strangers]
    elif any("proxy" in state.roles for state in states):
        problems.append("no proxy answers: owners and homes of chains are not known")
    processes = [
        {
            "name": state.name,
            "state": state.state,
            "pid": state.pid,
            "address": state.address,
            "region": regions.get(state.name, ""),
            "version": members[state.name].version if state.name in members else "",
            "weight": members[state.name].weight if state.name in members else None,
            "doing": _doing(told.get(state.name), members.get(state.name)),
        }
        for state in states
    ]
    chains = _chains(told, listed[1] if listed is not None else None)
    for chain in chains:
        problems += _problems_of(chain)
    versions = Counter(member.version for member in members.values())
    if len(versions) > 1:
        mixed = ", ".join(f"{count} of {version or 'unknown'}" for version, count in sorted(versions.items()))
        problems.append(f"versions are mixed: {mixed}")
    return {"processes": processes, "chains": chains, "problems": problems}


def _doing(roles: Found | None, member: Any) -> str:
    """One line per process: what its roles carry."""
    if roles is None:
        return ""
    parts = [_WORDS[role](status) for role, status in roles.items() if role in _WORDS]
    if member is not None and member.weight not in (0.0, 1.0):
        parts.insert(0, f"weight {member.weight:g}")
    if member is not None and member.draining:
        parts.insert(0, "draining")
    return "; ".join(part for part in parts if part)


def _storing(status: Found) -> str:
    disks = status.get("disks", {})
    chains = {chain for disk in disks.values() for chain in disk.get("chains", {})}
    free = min((disk.get("free_bytes", 0) for disk in disks.values()), default=0)
    return f"{_count(len(disks), 'disk')} for {_count(len(chains), 'chain')}, {free / (1 << 30):.1f} GiB free"


def _publishing(status: Found) -> str:
    chains = status.get("chains", [])
    numbers = ", ".join(str(chain["chain"]) for chain in chains) or "none"
    return f"chains {numbers}; {_count(sum(chain['published'] for chain in chains), 'message')} taken"


def _subscribing(status: Found) -> str:
    return (
        f"{_count(status.get('subscriptions', 0), 'subscription')}, {_count(status.get('streams', 0), 'stream')}, "
        f"{_count(status.get('outstanding_messages', 0), 'message')} out"
    )


def _routing(status: Found) -> str:
    return f"{_count(status.get('written', 0), 'assignment')} written"


def _fronting(status: Found) -> str:
    doing = f"{_count(status.get('published', 0), 'message')} published, {_count(status.get('streams', 0), 'stream')}"
    twice = status.get("resent_duplicates", 0)
    return f"{doing}, {_count(twice, 'message')} stored twice" if twice else doing


_WORDS = {
    "storage": _storing,
    "publish-forwarder": _publishing,
    "subscribe-forwarder": _subscribing,
    "router": _routing,
    "proxy": _fronting,
}


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def _chains(told: Mapping[str, Found | None], listed: list[Any] | None) -> list[Found]:
    """Every chain that is listed or open somewhere. Of two that have it open, the later epoch counts."""
    opened: dict[int, tuple[str, Found]] = {}
    for name, roles in told.items():
        for chain in (roles or {}).get("publish-forwarder", {}).get("chains", []):
            other = opened.get(chain["chain"])
            if other is None or other[1]["epoch"] < chain["epoch"]:
                opened[chain["chain"]] = name, chain
    records = {record.number: record for record in listed or []}
    found = []
    for number in sorted(opened.keys() | records.keys()):
        record = records.get(number)
        owner, state = opened.get(number, ("", None))
        if record is not None and record.epoch > (state or {"epoch": 0})["epoch"]:
            owner, state = record.owner, None  # somebody else has it by now, and has not said anything yet
        disks = state["disks"] if state is not None else {}
        places = len(record.disks) if record is not None else len(disks)
        good = sum(one == "ok" for one in disks.values()) if state is not None else "?"
        found.append(
            {
                "number": number,
                "class": record.durability_class if record is not None else "",
                "region": record.region if record is not None else "",
                "home": record.home if record is not None else "",
                "owner": owner or (record.owner if record is not None else ""),
                "epoch": state["epoch"] if state is not None else record.epoch if record is not None else 0,
                "persisted": f"{state['persisted']:,} of {state['appended']:,}" if state is not None else "",
                "disks": f"{good}/{places}",
                "under_replicated": f"{state['under_replicated']:,}" if state is not None else "",
                "bad_disks": {path: one for path, one in disks.items() if one != "ok"},
                "failed": state["failed"] if state is not None else "",
                "full": bool(state and state["full"]),
                "below_policy": bool(record is not None and record.below_policy),
                "orphans": len(state.get("orphans", ())) if state is not None else 0,
            }
        )
    return found


def _problems_of(chain: Found) -> list[str]:
    name = f"chain {chain['number']}"
    told = []
    if not chain["owner"]:
        told.append(f"{name} is open nowhere")
    elif chain["disks"].startswith("?"):
        told.append(f"{name}: {chain['owner']} has it and does not say how it is; it may be recovering it")
    if chain["failed"]:
        told.append(f"{name} can not be written: {chain['failed']}")
    if chain["full"]:
        told.append(f"{name}: the disks are full, publishing is refused")
    if chain["below_policy"]:
        told.append(f"{name} spans fewer racks than its class asks for")
    if chain["orphans"]:
        lost = _count(chain["orphans"], "topic")
        told.append(f"{name} holds messages of {lost} that a restore made unknown: `syncpoint cluster orphans list`")
    by_state: dict[str, list[str]] = {}
    for path, state in sorted(chain["bad_disks"].items()):
        by_state.setdefault(state, []).append(path)
    told += [f"{name}: {state}: {', '.join(paths)}" for state, paths in by_state.items()]
    return told
