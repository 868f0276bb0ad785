"""A drill of rollouts on this machine: good, failing, slow and wrongly configured releases, and restarts of every role.

Usage: python -m tests.faults.rollout_drill [restarts|good|failing|slow|settings]...; without words, all of them. Every
part prints what came of it as a row of a table, and the program ends with 1 when one was not as it is to be. It takes
some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syncpoint.programs.clusters.local import Shape
from tests.kit.clusters import Kit
from tests.kit.customers import ContinuousTest, Customers, percentile
from tests.kit.rollouts import FAILING, SLOW, ThreeEnvironments, opened_to_all, program

ROLES = ("router", "storage", "publish-forwarder", "subscribe-forwarder", "proxy")
CALM_S = 10.0
ROUNDS = 1


def restarts() -> tuple[bool, str]:
    """Every process of every role, one after the other, while official clients publish and receive."""
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(Path(folder) / "c", Shape(clusters=3, disks=1, forwarders=2, routers=2, proxies=2)).up()
        both = "ipv4:" + ",".join(kit.proxies)  # as a name that resolves to all proxies
        customers = Customers([both], many=8)
        spans: list[tuple[float, float]] = []
        try:
            customers.start()
            time.sleep(CALM_S)
            for _ in range(ROUNDS):
                for role in ROLES:
                    for name in kit.names(role):
                        begun = time.monotonic()
                        kit.restart(name)
                        kit.stabilize()
                        spans.append((begun, time.monotonic()))
                    time.sleep(1.0)
            time.sleep(CALM_S)
            customers.end()
            failed = customers.failed()
            during, calm = customers.times(*spans)
        finally:
            customers.close()
            kit.down()
    p50, p99 = ([percentile(times, share) for times in (during, calm)] for share in (0.5, 0.99))
    figures = (
        f"{len(spans)} restarts, {len(customers.sent):,} messages, {len(failed)} errors at programs; publish p50 / p99 "
        f"{p50[0]:g} / {p99[0]:g} ms while something was restarted ({len(during):,}), {p50[1]:g} / {p99[1]:g} ms else "
        f"({len(calm):,}); longest {percentile(during, 1.0):g} ms"
    )
    return not failed, figures + (f"; {failed[0]}" if failed else "")


def rolled(release: dict[str, Any], expected: str, step: str = "", **changes: Any) -> tuple[bool, str]:
    """One rollout, with customers in production and continuous tests in staging."""
    with tempfile.TemporaryDirectory() as folder:
        three = ThreeEnvironments(Path(folder)).up()
        customers: Customers | None = None
        test = ContinuousTest(three.addresses["staging"][0])
        try:
            customers = Customers(three.addresses["production"], many=8)
            if "auth" in release.get("settings", {}):
                for name, quota in (("test", 1_000_000), ("staging", 1_000_000), ("production", 1)):
                    auth = {"owners": ["user:a@b.example"], "quotas": {"default": {"requests_per_s": quota}}}
                    (Path(folder) / name / "auth.yaml").write_text(json.dumps(auth))
                opened_to_all(three.addresses["production"][0], customers.project)
                opened_to_all(three.addresses["staging"][0], "projects/tests")
            test.start()
            customers.start()
            begun = time.monotonic()
            command = [sys.executable, "-m", "syncpoint.programs.cli", "rollout"]
            manifest = str(three.manifest(release, **changes))
            done = subprocess.run([*command, "start", manifest], capture_output=True, text=True, check=False)
            print(done.stderr, file=sys.stderr)
            shown = subprocess.run(
                [*command, "status", manifest, "--format", "json"], capture_output=True, text=True, check=True
            )
            state = json.loads(shown.stdout)
            took = time.monotonic() - begun
            customers.end(120.0)
            failed = customers.failed()
        finally:
            test.close()
            if customers is not None:
                customers.close()
            three.down()
    noticed = next((at for at, said in state["history"] if "rolling back" in said), None)
    there = (at for at, said in state["history"] if said.startswith("canary:") and "report version" in said)
    watched = next(there, None)
    seen = f", {noticed - watched:.0f} s after the canary was there" if noticed and watched else ""
    why = f"; {state['reason']}" if state["reason"] else ""
    sent = f"{len(customers.sent):,} messages, all received, {len(failed)} errors at programs"
    text = f"{state['state']} in {took:.0f} s{seen}; {sent}{why}"
    return state["state"] == expected and not failed and step in ("", state["step"]), text


PARTS: dict[str, Callable[[], tuple[bool, str]]] = {
    "restarts": restarts,
    "good": lambda: rolled({"version": "9.9", "program": program()}, "done"),
    "failing": lambda: rolled({"version": "9.9", "program": program(FAILING)}, "rolled back", "canary"),
    "slow": lambda: rolled({"version": "9.9", "program": program(SLOW)}, "rolled back", "canary"),
    "settings": lambda: rolled({"settings": {"auth": "auth.yaml"}}, "rolled back", "canary"),
}


def main(words: list[str]) -> int:
    """Run parts, and print their rows."""
    rows = []
    for name in words or list(PARTS):
        good, text = PARTS[name]()
        rows.append((name, good, text))
        print(f"| {name} | {'as it is to be' if good else '**not as it is to be**'} | {text} |", flush=True)
    return 0 if all(good for _, good, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
