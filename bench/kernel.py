"""What the kernel costs per message: publish, lease, acknowledge, and the three with the ledger's set together.

Run: `python -m bench.kernel` (or `python bench/kernel.py`), with SYNCPOINT_PURE_KERNEL=1 for the uncompiled sources.
Prints nanoseconds per message in batches of 100, median of 7 runs, for 100 B, 1 KB and 10 KB of data, with no
attributes and with three. One thread; no storage, no network, no checksums. The C library is asked to keep freed
memory, as the server does at its start; --plain-malloc leaves it as it is. Then what filters and rules cost beside no
filter, per message of 100 B with three attributes, all of which pass, and what the same rules cost as closures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from syncpoint.base import kernel
from syncpoint.base.kernel import acks, leases, publish
from syncpoint.base.kernel.memory import keep_freed_memory
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.rules.kernel_program import program_of
from syncpoint.base.rules.sql_compile import compile_filter
from syncpoint.base.rules.sql_parser import parse_filter
from syncpoint.base.rules.system_properties import RuleMessage

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
            count, payload, *_ = publish.scan(request, b"123456789012316777216", first, 1_790_000_000, 5)
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


FILTERS = (
    "attributes:attribute-1",
    'attributes.attribute-0 = "a value of some length" AND NOT attributes.attribute-3 = "x"',
    'attributes:attribute-0 AND hasPrefix(attributes.attribute-1, "a value") AND attributes.attribute-2 != "x"',
)
RULES = (
    "[attribute-1] = 'a value of some length'",
    "replicated IS NULL OR replicated <> 1",
    "[attribute-0] <> 'x' AND [attribute-1] >= 'a' AND NOT EXISTS(other)",
    "[attribute-2] IN ('red', 'green', 'blue', 'a value of some length')",
    "[attribute-2] LIKE 'a value%l_ngth'",
    "[attribute-0] LIKE '%some%' AND ([attribute-1] IN ('x', 'y') OR [attribute-2] NOT IN ('a', 'b', 'c'))",
    "sys.Subject = 'order' OR sys.MessageId <> '5' AND [ATTRIBUTE-1] <> 'x'",
)


def measure_program(program: bytes, rounds: int, runs: int) -> float:
    """Median nanoseconds per message of leasing with a program."""
    clock: Callable[[], int] = time.perf_counter_ns
    taken = []
    count, payload, *_ = publish.scan(publish_request(100, 3), b"123456789012316777216", 0, 1_790_000_000, 5)
    for _ in range(runs):
        table = leases.LeaseTable(KEY, 1, 1)
        spent = 0
        for n in range(rounds):
            first = n * BATCH
            start = clock()
            response, _, given, _, _ = table.lease(
                16777216, payload, first, first, first + count, None, program, 1, 1000, 1000, 10_000_000, 0
            )
            spent += clock() - start
            assert given == BATCH
            table.acknowledge(acknowledge_request(response), 2, 5, False)
        taken.append(spent / rounds / BATCH)
    return statistics.median(taken)


def measure_closure(text: str, rounds: int) -> float:
    """Nanoseconds per message of a rule in Python, the message's attributes being at hand."""
    evaluate = compile_filter(parse_filter(text))
    held = {f"attribute-{i}": "a value of some length" for i in range(3)}
    start = time.perf_counter_ns()
    for _ in range(rounds * 10):
        evaluate(RuleMessage(held, "7"), str)
    return (time.perf_counter_ns() - start) / rounds / 10


def print_filters(rounds: int, runs: int) -> None:
    """The table of filters and rules."""
    bare = measure_program(b"", rounds, runs)
    print(f"{'kernel':>8} {'closure':>8}  filter; ns per message more than without ({bare:.1f})")
    for text in FILTERS:
        cost = measure_program(pubsub_filter.compile(text), rounds, runs) - bare
        print(f"{cost:>8.1f} {'':>8}  {text}", flush=True)
    for text in RULES:
        program = program_of(parse_filter(text))
        assert program is not None
        cost = measure_program(program, rounds, runs) - bare
        print(f"{cost:>8.1f} {measure_closure(text, rounds):>8.0f}  {text}", flush=True)


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
    print_filters(options.rounds, options.runs)


if __name__ == "__main__":
    main()
