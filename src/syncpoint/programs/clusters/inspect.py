"""What `syncpoint cluster status` shows: the processes, the chains, and what is wrong.

Place: puts together what `looking` received from the metadata, the processes and the operating system. Plain values in
and out. Promise: with any part of the cluster down, what nobody can know is left empty, and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.wording import counted
from syncpoint.programs.clusters.local import ProcessState

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """What was received. `states`: processes, `state` empty where no operating system was asked; `reports`: what each
    says of its roles, None when it says nothing; `listed`: members and chains; `silence`: why the metadata did not say
    so; `classes`: the durability classes, where a file names them.
    """

    stores: Sequence[ProcessState]
    states: Sequence[ProcessState]
    regions: Mapping[str, str]
    reports: Mapping[str, Found | None]
    listed: tuple[list[Any], list[Any]] | None
    silence: str = field(default="")
    classes: Sequence[str] = ()


def assemble(found_answers: Answers) -> Found:
    """Put the answers together: `processes`, `chains`, `problems`."""
    reports, listed = found_answers.reports, found_answers.listed
    members = {member.name: member for member in listed[0]} if listed is not None else {}
    problems = [found_answers.silence] if found_answers.silence else []
    if listed is None:
        problems.append("no proxy answers either: members, owners and homes of chains are not known")
    processes = [_process(state, state.state, "", None, None) for state in found_answers.stores]
    problems += [f"{state.name} is {state.state}" for state in found_answers.stores if state.state != "running"]
    for state in found_answers.states:
        member, answer = members.get(state.name), reports.get(state.name)
        word = _state(state, answer, member)
        processes.append(_process(state, word, found_answers.regions.get(state.name, ""), answer, member))
        if word in ("down", "paused"):
            problems.append(f"{state.name} is {word}")
        elif word == "silent":
            problems.append(f"{state.name} is a member and does not answer at {member.address if member else '?'}")
        elif answer is None:
            problems.append(f"{state.name} runs and does not answer")
        elif listed is not None and member is None:
            problems.append(f"{state.name} answers and is no member")
    if listed is not None:
        problems += _missing_chains(*listed, found_answers.classes)
    chains = _chains(reports, listed[1] if listed is not None else None)
    for chain in chains:
        problems += _problems_of(chain)
    versions = Counter(member.version for member in members.values())
    if len(versions) > 1:
        mixed = ", ".join(f"{count} of {version or 'unknown'}" for version, count in sorted(versions.items()))
        problems.append(f"versions are mixed: {mixed}")
    return {"processes": processes, "chains": chains, "problems": problems}


def _state(state: ProcessState, answer: Found | None, member: Any) -> str:
    """A process that answers is running, no matter how it was started; one that hangs may be a member for some seconds
    more."""
    if state.state == "paused":
        return "paused"
    if answer is not None:
        return "running"
    if state.state:
        return state.state
    return "down" if member is None else "silent"


def _process(state: ProcessState, word: str, region: str, answer: Found | None, member: Any) -> Found:
    return {
        "name": state.name,
        "state": word,
        "pid": state.pid,
        "address": state.address,
        "region": region,
        "version": member.version if member is not None else "",
        "weight": member.weight if member is not None else None,
        "doing": _doing(answer, member),
    }


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
    return f"{counted(len(disks), 'disk')} for {counted(len(chains), 'chain')}, {free / (1 << 30):.1f} GiB free"


def _publishing(status: Found) -> str:
    chains = status.get("chains", [])
    numbers = ", ".join(str(chain["chain"]) for chain in chains) or "none"
    return f"chains {numbers}; {counted(sum(chain['published'] for chain in chains), 'message')} taken"


def _subscribing(status: Found) -> str:
    return (
        f"{counted(status.get('subscriptions', 0), 'subscription')}, {counted(status.get('streams', 0), 'stream')}, "
        f"{counted(status.get('outstanding_messages', 0), 'message')} out"
    )


def _routing(status: Found) -> str:
    return f"{counted(status.get('written', 0), 'assignment')} written"


def _fronting(status: Found) -> str:
    doing = f"{counted(status.get('published', 0), 'message')} published, {counted(status.get('streams', 0), 'stream')}"
    twice = status.get("resent_duplicates", 0)
    return f"{doing}, {counted(twice, 'message')} stored twice" if twice else doing


_WORDS = {
    "storage": _storing,
    "publish-forwarder": _publishing,
    "subscribe-forwarder": _subscribing,
    "router": _routing,
    "proxy": _fronting,
}


def _missing_chains(members: Sequence[Any], chains: Sequence[Any], classes: Sequence[str]) -> list[str]:
    """A publish forwarder makes a chain for each class a moment after it has context, if there are disks for one."""
    made = {(chain.home, chain.durability_class) for chain in chains}
    wanted = sorted({*classes, *(klass for _, klass in made)}) or ("",)  # some may have been added to the file's
    return [
        f"{member.name} has no chain{f' of class {klass}' if klass else ''} yet; its log shows why if that lasts"
        for member in members
        if "publish-forwarder" in member.roles and not member.draining
        for klass in wanted
        if (member.name, klass) not in made
    ]


def _chains(reports: Mapping[str, Found | None], listed: list[Any] | None) -> list[Found]:
    """Every chain that is listed or open somewhere. Of two that have it open, the later epoch counts."""
    opened: dict[int, tuple[str, Found]] = {}
    for name, roles in reports.items():
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
    reports = []
    if not chain["owner"]:
        reports.append(f"{name} is open nowhere")
    elif chain["disks"].startswith("?"):
        reports.append(f"{name}: {chain['owner']} has it and does not say how it is; it may be recovering it")
    if chain["failed"]:
        reports.append(f"{name} cannot be written: {chain['failed']}")
    if chain["full"]:
        reports.append(f"{name}: the disks are full, publishing is refused")
    if chain["below_policy"]:
        reports.append(f"{name} spans fewer racks than its class asks for")
    if chain["orphans"]:
        lost = counted(chain["orphans"], "topic")
        reports.append(f"{name} holds messages of {lost} that a restore made unknown: `syncpoint cluster orphans list`")
    by_state: dict[str, list[str]] = {}
    for path, state in sorted(chain["bad_disks"].items()):
        by_state.setdefault(state, []).append(path)
    reports += [f"{name}: {state}: {', '.join(paths)}" for state, paths in by_state.items()]
    return reports
