"""How much CPU does a message cost when every Publish carries one, 64 requests in flight?

Here the request, not the message, is what costs. The generator (a gRPC client) spends about as much per request as the
server; when its core is busy, the rate is the generator's, and the server's CPU per message is the figure to read.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import Bench, Target
from bench.throughput import state

CPU_US_TARGET = 35.0
CPU_US_AIM = 25.0


def main(argv: Sequence[str] | None = None) -> None:
    with (
        Bench.open("single", f"1 message of 1 KB per Publish, 64 in flight (aim: {CPU_US_AIM:.0f} µs)", argv) as b,
        b.server() as server,
    ):
        b.create(server)
        options = {"batch": 1, "in_flight": 64}
        b.load(server, "e2e", seconds=1, **options)
        runs = []
        for _ in range(b.options.runs):
            b.disk.run()
            runs.append(b.load(server, "e2e", seconds=b.options.seconds, **options))
        state(b, "64 in flight", runs, Target(CPU_US_TARGET))
        runs = [b.load(server, "e2e", seconds=2, batch=1, in_flight=512) for _ in range(min(3, b.options.runs))]
        state(b, "512 in flight", runs, None)


if __name__ == "__main__":
    main()
