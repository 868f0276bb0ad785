"""What the kernel costs per message: publish, lease, acknowledge, and the three with the ledger's set together.

Run: `python -m bench.kernel` (or `python bench/kernel.py`), with SYNCPOINT_PURE_KERNEL=1 for the uncompiled sources.
Prints nanoseconds per message in batches of 100, median of 7 runs, for 100 B, 1 KB and 10 KB of data, with no
attributes and with three. One thread; no storage, no network, no checksums. The C library is asked to keep freed
memory, as the server does at its start; --plain-malloc leaves it as it is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from syncpoint import kernel
from syncpoint.kernel import acks, leases, publish
from syncpoint.kernel.memory import keep_freed_memory

BATCH = 100
KEY = bytes(range(16))


def _length(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _length(len(value)) + value


def publish_request(size: int, attributes: int) -> bytes:
    """A PublishRequest of one batch."""
    message = _field(1, b"x" * size)
    for i in range(attributes):
        message += _field(2, _field(1, b"attribute-%d" % i) + _field(2, b"a value of some length"))
    return _field(1, b"projects/bench/topics/one") + _field(2, message) * BATCH


def acknowledge_request(response: bytes) -> bytes:
    """An AcknowledgeRequest for all messages of a PullResponse."""
    ids = []
    at = 0
    while at < len(response):
        at += 1
        size = shift = 0
        while True:
            byte = response[at]
            size |= (byte & 127) << shift
            shift += 7
            at += 1
            if byte < 128:
                break
        ids.append(response[at : at + 50])
        at += size
    return _field(1, b"projects/bench/subscriptions/one") + b"".join(b"\x12" + ack_id[1:] for ack_id in ids)


def measure(size: int, attributes: int, rounds: int, runs: int) -> dict[str, float]:
    """Median nanoseconds per message of each step."""
    request = publish_request(size, attributes)
    clock: Callable[[], int] = time.perf_counter_ns
    times: dict[str, list[float]] = {"publish": [], "lease": [], "ack": [], "together": []}
    for _ in range(runs):
        table = leases.LeaseTable(KEY, 1, 1)
        ledger = acks.AckSet()
        spent = [0, 0, 0]
        for n in range(rounds):
            first = n * BATCH
            start = clock()
            publish.topic_of(request)
            count, payload, _, _, _ = publish.scan(request, b"123456789012316777216", first, 1_790_000_000, 5)
            mid = clock()
            response, _, given, _, _ = table.lease(
                16777216, payload, first, first, first + count, None, b"", 1, 1000, 1000, 10_000_000, 0
            )
            end = clock()
            spent[0] += mid - start
            spent[1] += end - mid
            acknowledgement = acknowledge_request(response)
            start = clock()
            _, acknowledged, _ = table.acknowledge(acknowledgement, 2, 5, False)
            newly = sum(ledger.add_runs(run) for _, run in acknowledged)
            spent[2] += clock() - start
            assert given == newly == BATCH
        messages = rounds * BATCH
        for name, value in zip(times, [*spent, sum(spent)], strict=True):
            times[name].append(value / messages)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=1000 if kernel.COMPILED else 5)
    parser.add_argument("--plain-malloc", action="store_true")
    options = parser.parse_args()
    kept = not options.plain_malloc and keep_freed_memory()
    how, memory = "compiled" if kernel.COMPILED else "uncompiled", "kept" if kept else "given back"
    print(f"kernel {how}; ns per message, batches of {BATCH}, freed memory {memory}")
    print(f"{'data':>8} {'attributes':>10} {'publish':>9} {'lease':>9} {'ack':>9} {'together':>9}")
    for size in (100, 1_000, 10_000):
        for attributes in (0, 3):
            rounds = max(1, options.rounds // (1 if size < 10_000 else 4))
            found = measure(size, attributes, rounds, options.runs)
            print(f"{size:>8} {attributes:>10} " + " ".join(f"{value:>9.1f}" for value in found.values()), flush=True)


if __name__ == "__main__":
    main()
