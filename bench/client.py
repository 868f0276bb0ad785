"""How many messages of 1 KB does one process publish and receive by `syncpoint.client`, and by Google's client?

    python -m bench client --runs 3 --seconds 3

Clients take turns; each run is a process of its own on the load's core that publishes for some seconds and then
receives everything. Rates are of both cores together and depend on what else the machine does; the CPU of the client's
process per message does so less.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.client_load import CLIENTS
from bench.harness import Bench, Run, Target

CPU_US = Target(5.0)
RATE = Target(200_000, at_least=True)


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("client", "one process by the Python clients, 1 KB", argv) as b, b.server() as server:
        runs: dict[str, list[Run]] = {name: [] for name in CLIENTS}
        for number in range(b.options.runs):
            for name in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                line = [sys.executable, "-m", "bench.client_load", name, server.address]
                line += ["--seconds", str(b.options.seconds), "--run", f"{name}-{number}"]
                runs[name].append(b.measured(line, server, b.options.seconds + 150.0))
        for name, of_client in runs.items():
            aimed = name == "bulk"
            b.rows_of(
                name,
                of_client,
                {
                    "publish_per_s": ("published", "msg/s", RATE if aimed else None),
                    "receive_per_s": ("received", "msg/s", RATE if aimed else None),
                    "publish_cpu_us": ("client CPU per message published", "µs", CPU_US if aimed else None),
                    "receive_cpu_us": ("client CPU per message received", "µs", CPU_US if aimed else None),
                },
            )
            wrong = sum(run["missing"] + run["duplicates"] for run in of_client)
            b.row(name, "missing or repeated", "msgs", wrong, Target(0))


if __name__ == "__main__":
    main()
