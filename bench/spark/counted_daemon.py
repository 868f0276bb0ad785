"""Spark's daemon of Python workers, whose CPU stays counted behind their end.

Place: Spark starts it in place of `pyspark.daemon`, by a setting of the session. Spark's own ignores SIGCHLD, so the
kernel forgets a worker that ends, and with it what it has used. Here it stays until the daemon ends, as a zombie.
"""

from __future__ import annotations

from signal import SIGWINCH

from pyspark import daemon

if __name__ == "__main__":
    daemon.SIGCHLD = SIGWINCH  # which nobody sends
    daemon.manager()
