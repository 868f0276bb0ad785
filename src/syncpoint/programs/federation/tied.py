"""A program that receives SIGTERM as soon as the process that started it is gone, however that came to be.

    python tied.py PARENT PROGRAM [ARGUMENT ...]

Place: in front of every process that the supervisor starts; it becomes the program. It imports nothing of this package,
so that it costs next to nothing.
Promise: where Linux's `prctl` is missing, the program runs all the same, and receives nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Become the program, unless the parent is gone already."""
    parent, *command = arguments
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the process that started this one is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
