"""What do pipelines on Spark cost, and how long does a message wait in them?

    python -m bench spark [--rows 500000] [--runs 5] [--only CASE ...]

Cases: source, replicate, patterns, many-flows, exactly-once, micro-batch, end-to-end, kafka, streams, wake-up. CPU is
that of all processes of Spark together (driver, JVM, Python daemon and workers), and of each server apart from it. What
is compared takes turns within each run, and a ratio compares two halves of one run. The first runs of everything warm
up and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.harness import Bench, arguments
from bench.process import Failed
from bench.spark import copying, kafka, many, reading, waiting
from bench.spark.spark_harness import Case, Skipped, SparkHarness

CASES: dict[str, Case] = {
    "source": reading.source,
    "replicate": copying.replicate,
    "patterns": many.patterns,
    "many-flows": many.many_flows,
    "exactly-once": copying.exactly_once,
    "micro-batch": waiting.micro_batch,
    "end-to-end": waiting.end_to_end,
    "kafka": kafka.beside_kafka,
    "streams": kafka.streams,
    "wake-up": waiting.wake_up,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the cases asked for; a case that fails or is skipped is named at the end, and the others run."""
    parser = arguments("Pipelines on Spark: CPU per row, time per batch, from server to server")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of 1 KB (default: 500,000)")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="CASE",
                        help=", ".join(CASES))  # fmt: skip
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: local[2])")
    parser.set_defaults(seconds=20.0)
    options = parser.parse_args(argv)
    try:
        bench = Bench("spark", f"pipelines on Spark, {options.rows:,} rows of 1 KB", options)
    except Failed as problem:
        raise SystemExit(f"spark: {problem}") from None
    problems: list[str] = []

    def show(text: str) -> None:
        bench.console.print(text, style="red", highlight=False, markup=False)

    try:
        for case in options.only:
            bench.console.print(case)
            try:
                with ExitStack() as stack:
                    CASES[case](SparkHarness(bench, stack))
            except Skipped as reason:
                problems.append(f"SKIPPED, and not shown: {case}: {reason}")
                show(problems[-1])
            except Failed as problem:
                problems.append(f"failed: {case}: {problem}")
                show(problems[-1])
        bench.finish()
    finally:
        bench.remove()
    for text in problems:
        show(text)
    if any(text.startswith("failed") for text in problems):
        raise SystemExit("spark: not all cases were measured")
