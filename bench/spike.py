"""What happens in a spike of ten times the load, and with a neighbour that burns CPU on the server's own core?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.harness import Bench, Run, Target
from bench.process import Child

_RATE = 1000
_PHASES = ("before", "in the spike", "after")
_BURN = "import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("spike", f"{_RATE:,} single messages a second: a 10x spike, a busy neighbour", argv) as b:
        ten_times(b)
        neighbour(b)


def ten_times(b: Bench) -> None:
    """Open loop: the schedule does not wait for the server, so whatever queues up shows as latency."""
    seconds = b.options.seconds
    profile = f"{seconds}:{_RATE},{seconds}:{10 * _RATE},{seconds}:{_RATE}"
    with b.server() as server:
        b.create(server)
        b.load(server, "e2e", batch=1, rate=_RATE, seconds=1)
        runs = [
            b.load(server, "e2e", batch=1, profile=profile, timeout=120, seconds=3 * seconds)
            for _ in range(b.options.runs)
        ]
    for index, phase in enumerate(_PHASES):
        for kind in ("publish", "delivery"):
            for figure in ("p50", "p99"):
                values = [run[f"{kind}_phases"][index][f"{kind}_{figure}_ms"] for run in runs]
                b.row(f"spike: {phase}", f"{kind} {figure}", "ms", values)
    b.row("spike: after", "errors, missing, repeated", "msgs", sum(faults(run) for run in runs), Target(0))


def neighbour(b: Bench) -> None:
    """Latency alone and beside the burner, run by run."""
    seconds = b.options.seconds
    with b.server() as server:
        b.create(server)
        b.load(server, "e2e", batch=1, rate=_RATE, seconds=1)
        runs: dict[str, list[Run]] = {"alone": [], "beside a busy neighbour": []}
        for _ in range(b.options.runs):
            runs["alone"].append(b.load(server, "e2e", batch=1, rate=_RATE, seconds=seconds))
            burn = [sys.executable, "-c", _BURN.format(seconds=seconds + 10)]
            with Child(burn, core=b.options.server_core, log=b.scratch / "burn.log") as burner:
                runs["beside a busy neighbour"].append(b.load(server, "e2e", batch=1, rate=_RATE, seconds=seconds))
                burner.kill()
    for case, measured in runs.items():
        b.rows_of(
            case,
            measured,
            {
                "publish_p50_ms": ("publish ack p50", "ms", None),
                "publish_p99_ms": ("publish ack p99", "ms", None),
                "delivery_p50_ms": ("delivery p50", "ms", None),
                "delivery_p99_ms": ("delivery p99", "ms", None),
            },
        )
        b.row(case, "errors, missing, repeated", "msgs", sum(faults(run) for run in measured), Target(0))


def faults(run: Run) -> int:
    """Everything that should not happen, whatever the load."""
    return int(run["errors"] + run["missing"] + run["duplicates"])


if __name__ == "__main__":
    main()
