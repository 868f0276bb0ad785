"""The failures that drills make, and how each is undone.

Place: under `drill_driver`; processes by signals, links and homes by what `federation` has, networks and disks by
`machine_failures`.
Promise: what an entry of the journal is about can be undone from the entry alone, by another process.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import Code, FailedPrecondition, NotFound, SyncpointError
from syncpoint.programs.clusters.local import LocalCluster
from syncpoint.programs.disaster import machine_failures
from syncpoint.programs.disaster.drill_journal import DrillJournal, run_again, signal_process, started_at
from syncpoint.programs.disaster.drill_plan import DrillPlan
from syncpoint.programs.federation import shared_run
from syncpoint.programs.federation.acks.home_move import MOVING, HomeMove
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import load
from syncpoint.wire.protobuf.messages import admin, pubsub

Call = Callable[[str, Any], Any]
DRAIN_S = 10.0


def check_target(plan: DrillPlan) -> None:
    """Raise `SyncpointError` for what does not exist or does not run, before anything is done."""
    target = plan.target
    if "pid" in target and not started_at(int(target["pid"])):
        raise FailedPrecondition(f"Process {target['pid']} does not run.")
    if "cluster" in target and LocalCluster(Path(target["cluster"])).state(target["process"]).state != "running":
        raise FailedPrecondition(f"{target['process']} of {target['cluster']} does not run.")
    if plan.kind == "pause-link":
        with Servers() as servers:
            flows = servers.flows(links_of(load(Path(target["federation"]))))
        if target["flow"] not in [one.name for one in flows]:
            raise NotFound(target["flow"], f"There is no flow {target['flow']} in {target['federation']}.")
    if plan.kind == "move-home":
        _home_now(target)
    if plan.kind == "cut-network":
        machine_failures.check_network(target["port"])
    if plan.kind == "fill-disk":
        machine_failures.check_disk(Path(target["folder"]), int(target.get("leave", "0")))


def _home_now(target: Mapping[str, str]) -> str:
    with Servers() as servers:
        move = HomeMove(links_of(load(Path(target["federation"]))), servers, target["subscription"], target["site"])
        homes, silent = move.homes()
    known = {home for home, _ in homes.values() if home and home != MOVING}
    if silent or len(known) != 1:
        why = ", ".join(sorted(silent)) + " does not answer" if silent else "it has none"
        raise FailedPrecondition(
            f"The home of {target['subscription']} is not known ({why}), so it cannot be restored."
        )
    return known.pop()


def make_failure(plan: DrillPlan, journal: DrillJournal) -> None:
    """Make it. Raises `SyncpointError`."""
    target = plan.target
    if "cluster" in target:
        cluster = LocalCluster(Path(target["cluster"]))
        act = "start" if plan.kind == "kill" else "resume"
        journal.note(act, cluster=target["cluster"], process=target["process"])
        if plan.kind == "kill":
            cluster.kill(target["process"])
        else:
            cluster.pause(target["process"])
    elif "pid" in target:
        pid = int(target["pid"])
        started = started_at(pid)
        if plan.kind == "kill":
            journal.note("restart", pid=pid, started=started, command=target["restart"])
            signal_process(pid, started, signal.SIGKILL)
        else:
            journal.note("continue", pid=pid, started=started)
            signal_process(pid, started, signal.SIGSTOP)
    elif plan.kind == "pause-link":
        federation = load(Path(target["federation"]))
        if target["flow"] in shared_run.paused(federation):
            raise FailedPrecondition(f"{target['flow']} is paused already.")
        journal.note("resume link", federation=target["federation"], flow=target["flow"])
        shared_run.pause(federation, target["flow"])
    elif plan.kind == "cut-network":
        journal.note("mend network", port=target["port"])
        machine_failures.cut_network(target["port"])
    elif plan.kind == "fill-disk":
        path = Path(target["folder"]).absolute() / f"{journal.path.stem}.fill"
        journal.note("empty disk", path=str(path))
        machine_failures.fill_disk(path, int(target.get("leave", "0")))
    else:
        journal.note("restore home", target={**target, "site": _home_now(target)})
        _move_home(target)


def _move_home(target: Mapping[str, str], *, force: bool = False) -> None:
    with Servers() as servers:
        move = HomeMove(links_of(load(Path(target["federation"]))), servers, target["subscription"], target["site"])
        move.move(DRAIN_S, force=force)


def undo(entry: Mapping[str, Any], call: Call, log: Path) -> None:
    """Undo what an entry is about; nothing where that is done. Raises `SyncpointError`, `OSError`."""
    match entry["what"]:
        case "start":
            cluster = LocalCluster(Path(entry["cluster"]))
            if cluster.state(entry["process"]).state == "down":
                cluster.start(entry["process"])
        case "resume":
            LocalCluster(Path(entry["cluster"])).resume(entry["process"])
        case "restart":
            if started_at(entry["pid"]) != entry["started"]:
                run_again(entry["command"], log)
        case "continue":
            signal_process(entry["pid"], entry["started"], signal.SIGCONT)
        case "resume link":
            shared_run.resume(load(Path(entry["federation"])), entry["flow"])
        case "restore home":
            _move_home(entry["target"], force=True)
        case "mend network":
            machine_failures.mend_network(entry["port"])
        case "empty disk":
            Path(entry["path"]).unlink(missing_ok=True)
        case "record":
            _end_record(call, entry)
        case "subscription":
            _gone(call, "Subscriber.DeleteSubscription", pubsub.DeleteSubscriptionRequest(subscription=entry["name"]))
        case "topic":
            _gone(call, "Publisher.DeleteTopic", pubsub.DeleteTopicRequest(topic=entry["name"]))


def _end_record(call: Call, entry: Mapping[str, Any]) -> None:
    """The drill ended without its program."""
    found = call("Admin.GetDrill", admin.GetDrillRequest(project=entry["project"], drill=entry["drill"]))
    if found.state == admin.Drill.RUNNING:
        found.state, found.reason = admin.Drill.ABORTED, "its program died or hung; its watcher rolled back"
        call("Admin.RecordDrill", admin.RecordDrillRequest(drill=found))


def _gone(call: Call, method: str, request: Any) -> None:
    try:
        call(method, request)
    except SyncpointError as error:
        if error.code is not Code.NOT_FOUND:
            raise
