"""What the daemon of Python workers prints, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

WORKER = """
import socket, sys, types
from pyspark import daemon
from syncpoint.programs.federation import quiet_daemon
if {quiet}:
    quiet_daemon.install()

def main(infile, outfile):
    outfile.write(b"rows")

sys.modules["pyspark_fake"] = types.SimpleNamespace(main=main)
sys.argv = ["daemon", "pyspark_fake"]
here, there = socket.socketpair()
there.close()
daemon.worker(here, True)
try:
    raise {error}
except Exception:
    daemon.traceback.print_exc()
"""


@pytest.mark.parametrize(
    ("quiet", "error", "tracebacks"),
    [(True, "BrokenPipeError()", 0), (True, "OSError(28)", 1), (False, "BrokenPipeError()", 2)],
)
def test_only_a_worker_that_nobody_reads_ends_quietly(quiet: bool, error: str, tracebacks: int) -> None:
    """The daemon's own function that serves a worker, whose socket was closed; then what a forked worker reports."""
    code = WORKER.format(quiet=quiet, error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.count("Traceback") == tracebacks, done.stderr
