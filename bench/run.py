"""Runs the questions: the quick set in about ten minutes, `--all` for every one, or those named.

    python -m bench [--all] [NAME ...] [options of the questions, such as --runs 3 --seconds 2]

Each question is a module with `main(argv)`; one that fails is reported and the next one runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

if __package__ in (None, ""):  # as a plain script, too
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.harness import arguments

QUICK = ("throughput", "single", "latency", "topics", "spike", "restart", "backlog")
FULL = (*QUICK, "dimensions")
NAMED = "client unused guard counting features fairness gateway laggards neighbor restarts ranges rest cluster spark"
KNOWN = (*FULL, *NAMED.split())
"""Beyond `FULL`, run only when they are named: another source tree, an hour, many processes, Java."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the questions named in `argv` (none: the quick set); the number of them that failed."""
    left = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(left):
        options_help = arguments("Options of every question").format_help()
        print(__doc__, "Questions: " + ", ".join(KNOWN), "", options_help, sep="\n")
        return 0
    everything = "--all" in left
    names = [word for word in left if word in KNOWN]
    options = [word for word in left if word not in KNOWN and word != "--all"]
    if everything:
        options.append("--huge")
    failed = []
    for name in names or (FULL if everything else QUICK):
        begin = time.monotonic()
        try:
            import_module(f"bench.{name}").main(options)
        except SystemExit as problem:
            failed.append(name)
            print(problem, file=sys.stderr)
        print(f"{name}: {time.monotonic() - begin:.0f} s\n", flush=True)
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
