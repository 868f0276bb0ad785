"""How much slower is a quiet tenant while a noisy one publishes as fast as it is answered, and heeds no refusal?

The quiet one publishes and receives 100 messages of 1 KB a second; the noisy one has 16 callers of 10 messages each.
With and without it by turns, so that both see the same machine: first without a bound, then with a tenant's quota.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.harness import Bench, Target
from tests.kit.greedy_tenants import Tenants, percentile

SECONDS = 5.0
QUOTA = 50
"""Requests a second."""
MOVED_MAX = 1.5


def main(argv: Sequence[str] | None = None) -> None:
    """Pairs of a time alone and a time beside the neighbor, `--runs` of each kind."""
    with Bench.open("neighbor", "A quiet tenant beside a noisy one", argv) as bench:
        tenants = Tenants(bench.data("neighbor"), durability=None)
        try:
            tenants.start()
            tenants.ok("PUT", "/v1/projects/b/subscriptions/sss", {"topic": "projects/b/topics/ttt"}, "bob")
            tenants.ok("POST", "/admin/v1/tenants", {"name": "noisy", "projects": ["projects/a"]}, "root")
            for case, quota in (("no quota", {}), (f"quota of {QUOTA} requests/s", {"requestsPerS": QUOTA})):
                tenants.ok("PATCH", "/admin/v1/tenants/noisy?updateMask=quota", {"quota": quota}, "root")
                pairs = [(_quiet(tenants), _beside(tenants)) for _ in range(bench.options.runs)]
                for what in ("answers", "receipts"):
                    alone = [percentile(one[what], 0.99) * 1000 for one, _ in pairs]
                    beside = [percentile(other[what], 0.99) * 1000 for _, (other, _) in pairs]
                    bench.row(case, f"p99 of {what} alone", "ms", alone)
                    bench.row(case, f"p99 of {what} beside it", "ms", beside)
                    ratio = [after / before for before, after in zip(alone, beside, strict=True)]
                    target = Target(MOVED_MAX) if quota else None
                    bench.row(case, f"p99 of {what}, ratio", "", ratio, target)
                counts = [counts for _, (_, counts) in pairs]
                note = f"{median(one['refused'] for one in counts):.0f} refused"
                bench.row(case, "calls of the neighbor", "", [one["answered"] for one in counts], note=note)
        finally:
            tenants.close()


def _beside(tenants: Tenants) -> tuple[dict[str, list[float]], dict[str, int]]:
    with _started(tenants, "noisy", "a", "ann") as noisy:
        time.sleep(1.0)  # what it may have at once is used up
        found = _quiet(tenants)
        return found, _ended(noisy)


def _quiet(tenants: Tenants) -> dict[str, list[float]]:
    with _started(tenants, "quiet", "b", "bob") as quiet:
        time.sleep(SECONDS)
        found: dict[str, list[float]] = _ended(quiet)
        return found


def _started(tenants: Tenants, what: str, project: str, who: str) -> subprocess.Popen[str]:
    port = tenants.server.endpoint.rpartition(":")[2]
    words = [what, port, f"projects/{project}", tenants.authorization(who)]
    command = [sys.executable, "-m", "tests.kit.neighbors", *words]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    started.stdout.readline()
    return started


def _ended(started: subprocess.Popen[str]) -> dict:  # type: ignore[type-arg]
    """What it has found."""
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.close()
    return dict(json.loads(started.stdout.read()))


if __name__ == "__main__":
    main()
