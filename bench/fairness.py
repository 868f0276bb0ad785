"""How long does one tenant wait while another asks for the most that the limits let it ask for?

A server identifies its callers; one tenant asks for its topic every few milliseconds, another does, one after the
other, all that costs in proportion to a request. What each kind is stands in `tests/kit/greedy_tenants`; a test holds
that others are served at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import machine
from bench.harness import Bench, Target
from tests.kit.greedy_tenants import ATTACKS, Tenants, fill, percentile

RESOURCES = 10_000
"""Topics, and subscriptions, of the tenant that asks for much."""


def main(argv: Sequence[str] | None = None) -> None:
    """Every kind, `--runs` times."""
    with Bench.open("fairness", "Another tenant's GetTopic while one asks for the most", argv) as bench:
        tenants = Tenants(bench.data("fairness"))
        try:
            tenants.start()
            fill(tenants, RESOURCES)
            idle = lambda tenants: time.sleep(3.0)  # noqa: E731
            for name, attack in (("idle", idle), *((one.__name__, one) for one in ATTACKS)):
                runs, took, others = [], [], []
                for _ in range(bench.options.runs):
                    began, busy = time.monotonic(), machine.busy_seconds()
                    runs.append(tenants.waits(lambda: attack(tenants)))  # noqa: B023 - called at once
                    took.append(time.monotonic() - began)
                    others.append((machine.busy_seconds() - busy) / took[-1])
                case = name.replace("_", " ")
                note = f"{sum(map(len, runs))} calls; {max(others):.1f} cores busy with everything"
                bench.row(case, "p50", "ms", [percentile(one, 0.5) * 1000 for one in runs], note=note)
                bench.row(case, "p99", "ms", [percentile(one, 0.99) * 1000 for one in runs], Target(100))
                bench.row(case, "longest", "ms", [one[-1] * 1000 for one in runs])
                bench.row(case, "took", "s", took)
        finally:
            tenants.close()
