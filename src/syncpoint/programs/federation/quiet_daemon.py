"""Spark's daemon of Python workers, without the tracebacks of workers that Spark has stopped reading.

Place: Spark starts it in place of `pyspark.daemon`, by a setting of the session. Once Spark has all the rows it wants,
such as a sample, it closes the sockets of the workers that still have some; they end by a broken pipe, as meant, and
Spark's own daemon prints a traceback for each.
Promise: any other failure of a worker is printed as ever.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pyspark import daemon

_MEANT = (BrokenPipeError, ConnectionResetError)


class _Tracebacks:
    """The part of `traceback` that the daemon uses."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the exception that is handled, unless it is meant."""
        if not isinstance(sys.exception(), _MEANT):
            traceback.print_exc()


def _print(*texts: Any, **options: Any) -> None:
    """Print what the daemon reports, unless it is about an exception that is meant."""
    if not isinstance(sys.exception(), _MEANT):
        print(*texts, **options)


def install() -> None:
    """Have the daemon of this process print so."""
    vars(daemon).update(print=_print, traceback=_Tracebacks)


if __name__ == "__main__":
    install()
    daemon.manager()
