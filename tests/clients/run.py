"""The matrix of official Google Cloud Pub/Sub clients: runs each against a server, writes tests/clients/results.md.

    python -m tests.clients.run [--only go,java] [--scenarios filter,iam] [--target node,cluster] [--no-prepare]
                                [--jobs 3] [--output FILE]

Each client is a program in a folder beside this file that prints a JSON line per scenario. What a client needs is
downloaded into tests/clients/.cache, which git ignores. On a line {"ask": "restart"} or {"ask": "rolling"} the server
is restarted, and the client is answered with a line.

On a node every client has a server of its own; all share a cluster, or a gateway in front of two servers or clusters.
Then all clients at the same time run the scenarios in which what they share is restarted (TOGETHER). What was seen is
kept in .cache, so that a run of a few clients or scenarios renews their part of the page alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import platform
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from syncpoint.testing.rigs.etcd import why_not
from tests.clients.official import CACHE, CLIENTS, HERE, Client, prepare
from tests.clients.targets import TARGETS, Target, Together, project_of

ROOT = HERE.parents[1]
SEEN = CACHE / "seen.json"
RUN_SECONDS = 900

SCENARIOS = {
    "topics": "create, get, update, list, delete topic",
    "subscriptions": "create, get, update, list, delete subscription",
    "publish": "publish with attributes and ordering key, received in order",
    "pull": "pull",
    "streaming_pull": "streaming pull with flow control",
    "ack": "acknowledge",
    "nack": "negative acknowledgement",
    "modack": "modify ack deadline",
    "exactly_once": "exactly-once with confirmed acks",
    "dead_letter": "dead-letter topic, delivery attempts",
    "filter": "filter",
    "snapshot_seek": "snapshot and seek",
    "schema": "schema: create, publish, refuse",
    "iam": "IAM: get, set, test policy",
    "push_config": "modify push config",
    "transforms": "message transforms: set, read back, run",
    "schema_revisions": "schema revisions: commit, list, validate, roll back, delete",
    "push_create": "create a push subscription with a token",
    "detach": "detach a subscription",
    "ordering_resume": "ordering key held back after a refusal, resumed",
    "seek_time": "keep acknowledged messages, seek to a time",
    "compression": "requests compressed by gzip",
    "tracing": "trace context in attributes",
    "cancel": "closed stream: what it was not sent comes to others",
    "idle": "stream on which nothing happens for 45 s goes on",
    "restart": "killed and restarted under open streams: nothing lost",
    "rolling": "all processes restarted in turn, all clients at work: none stops, nothing lost",
}
TOGETHER = {where: ("rolling",) if where == "node" else ("restart", "rolling") for where in TARGETS}
"""Per target, what the clients run at the same time against the same server."""
TITLES = {"node": "One node", "cluster": "Cluster", "gateway": "Gateway", "clusters": "Gateway of clusters"}

Results = dict[str, tuple[str, str]]
"""Per scenario: pass, fail or skip, and what else is to be said."""


def run(client: Client, endpoint: str, ask: Callable[[str], None], scenarios: Sequence[str], **env: str) -> Results:
    """Some scenarios of one client, within RUN_SECONDS."""
    env = os.environ | client.env | env | {"PUBSUB_EMULATOR_HOST": endpoint, "SCENARIOS": ",".join(scenarios)}
    env["CLIENT_PROJECT"] = project_of(client.key)
    errors = CACHE / f"{client.key}.stderr"
    results: Results = {}
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                client.command(),
                env=env,
                cwd=HERE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(errors.open("w")),
                text=True,
            )
        )
        stack.callback(process.kill)  # which does nothing to one that has ended
        try:
            for seen in lines(process):
                if "ask" in seen:
                    ask(seen["ask"])
                    assert process.stdin is not None
                    process.stdin.write("done\n")
                    process.stdin.flush()
                else:
                    results[seen["scenario"]] = (seen["result"], seen["detail"])
                    said = f"{client.key}: {seen['scenario']}: {seen['result']} {seen['detail'][:300]}"
                    print(f"  {said.strip()}", flush=True)
        except (OSError, TimeoutError) as error:
            print(f"  {client.key}: {error}", flush=True)
    gone = ("fail", f"the client ended with exit code {process.returncode} before it ({errors.name})")
    return {name: results.get(name, gone) for name in scenarios}


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON lines of a process as they come, until it ends. Raises TimeoutError."""
    came: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            came.put(line)
        came.put(None)

    threading.Thread(target=read, daemon=True).start()
    end = time.monotonic() + RUN_SECONDS
    while True:
        try:
            line = came.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"not done within {RUN_SECONDS} s") from None
        if line is None:
            process.wait(timeout=20)
            return
        if line.startswith("{"):
            yield json.loads(line)


def apart(where: str, clients: Sequence[Client], scenarios: Sequence[str], jobs: int) -> dict[str, Results]:
    """The scenarios that need a server for themselves, or none to be restarted."""

    def one(client: Client) -> Results:
        with contextlib.ExitStack() as own:
            target = shared or TARGETS[where](own)
            return run(client, target.endpoint, target.ask, scenarios)

    with contextlib.ExitStack() as stack:
        shared = TARGETS[where](stack) if where != "node" else None
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(jobs))
        return dict(zip((client.key for client in clients), pool.map(one, clients), strict=True))


def together(target: Target, clients: Sequence[Client], scenarios: Sequence[str], **env: str) -> dict[str, Results]:
    """The scenarios in which the server is restarted while all clients are at work."""

    def one(client: Client) -> Results:
        try:
            return run(client, target.endpoint, lambda what: all_of_them.ask(client.key, what), scenarios, **env)
        finally:
            all_of_them.left(client.key)

    all_of_them = Together(target, (client.key for client in clients))
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        seen = dict(zip((client.key for client in clients), pool.map(one, clients), strict=True))
    took = f" ({', '.join(all_of_them.took)})"
    return {
        key: {name: (result, detail + took if result == "fail" else detail) for name, (result, detail) in one.items()}
        for key, one in seen.items()
    }


def page(seen: dict[str, Any]) -> str:
    """tests/clients/results.md."""
    dates = sorted(one["date"] for columns in seen.values() for one in columns.values())
    chosen = [client for client in CLIENTS if any(client.key in columns for columns in seen.values())]
    versions = {key: one["version"] for columns in seen.values() for key, one in columns.items()}
    head = [f"{client.title} {versions[client.key]}" for client in chosen]
    notes: list[str] = []
    rows = [f"| Feature | {' | '.join(head)} |", "|---" * (len(chosen) + 1) + "|"]
    counts = {"pass": 0, "fail": 0, "skip": 0}
    for scenario, what in SCENARIOS.items():
        cells = []
        for client, title in zip(chosen, head, strict=True):
            found = {}
            for where, columns in seen.items():
                result, detail = columns.get(client.key, {"results": {}})["results"].get(scenario, ("skip", "not run"))
                counts[result] += 1
                found[where] = result + noted(notes, title, where, detail)
            same = len(set(found.values())) == 1
            cells.append("; ".join(dict.fromkeys(found.values())) if same else "; ".join(
                f"{TITLES[where].lower()}: {cell}" for where, cell in found.items()))  # fmt: skip
        rows.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join([
        "# Results of `make test-clients`",
        "",
        "Each client runs the scenarios on a server of its own; all share a cluster of three storage clusters, a",
        "gateway in front of two servers that store every topic, and one in front of two clusters. A cell holds for",
        "all unless it names them.",
        "",
        f"Run with Python {platform.python_version()}"
        + (f", {dates[0]}: " if dates[0] == dates[-1] else f", {dates[0]} to {dates[-1]}: ")
        + f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped.",
        "",
        *rows,
        "",
        *(f"{number}. {note}" for number, note in enumerate(notes, 1)),
        "",
    ])  # fmt: skip


def noted(notes: list[str], title: str, where: str, detail: str) -> str:
    """The number of a note, which stands once for all targets."""
    if not detail:
        return ""
    line = f"{title}: {' '.join(detail.split())[:300]}"
    if line not in notes:
        notes.append(line)
    return f" ({notes.index(line) + 1})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="keys of clients, with commas: " + ", ".join(c.key for c in CLIENTS))
    parser.add_argument("--scenarios", default="", help="names of scenarios, with commas")
    parser.add_argument("--target", default=",".join(TARGETS), help="names with commas, of the default")
    parser.add_argument("--no-prepare", action="store_true", help="download and build nothing")
    parser.add_argument("--jobs", type=int, default=3, help="clients that run at a time")
    parser.add_argument("--output", type=Path, default=ROOT / "tests" / "clients" / "results.md")
    given = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    keys, names, targets = (
        [one for one in text.split(",") if one] for text in (given.only, given.scenarios, given.target)
    )
    if set(keys) - {client.key for client in CLIENTS} or set(names) - set(SCENARIOS) or set(targets) - set(TARGETS):
        parser.error("no such client, scenario or target")
    if why_not():
        print(f"  no clusters: {why_not()}", flush=True)
        targets = [one for one in targets if one not in ("cluster", "clusters")]
    chosen = [client for client in CLIENTS if not keys or client.key in keys]
    unbuilt = {} if given.no_prepare else {client.key: why for client in chosen if (why := prepare(client))}
    built = [client for client in chosen if client.key not in unbuilt]
    seen: dict[str, Any] = json.loads(SEEN.read_text()) if SEEN.exists() else {}
    failed = bool(unbuilt)
    for where in targets:
        asked = [name for name in SCENARIOS if not names or name in names]
        shared = [name for name in asked if name in TOGETHER[where]]
        alone = [name for name in asked if name not in shared]
        parts = []
        if alone:
            parts.append(apart(where, built, alone, given.jobs))
        if shared:
            with contextlib.ExitStack() as stack:
                parts.append(together(TARGETS[where](stack), built, shared))
        for client in built:
            column = seen.setdefault(where, {}).setdefault(client.key, {"results": {}})
            column |= {"version": client.version(), "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
            for part in parts:
                column["results"] |= part[client.key]
                failed = failed or "fail" in [result for result, _ in part[client.key].values()]
        SEEN.write_text(json.dumps(seen))
        given.output.write_text(page({where: seen[where] for where in TARGETS if where in seen}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
