"""How soon does a server serve again after kill -9 with 5 GB of log, and is every acknowledged message still there?

Once with the log in the page cache (a crash of the process) and once with its pages dropped (a start after a reboot).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Bench, Target

_BYTES = 5_000_000_000
_SIZE = 1024
_READY_MAX = 5.0


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("restart", "kill -9 with 5 GB of log, then serving again", argv) as b:
        total = int(b.options.messages or _BYTES // _SIZE)
        data = b.data()
        with b.server(data=data) as server:
            b.create(server)
            fill = b.load(server, "publish", size=_SIZE, total=total, timeout=300, run=1)
            held = int(fill["published"])
            b.row("filled", "log on disk", "GB", log_bytes(data) / 1e9)
            b.row("filled", "publish rate", "msg/s", fill["publish_msgs_per_s"])
            server.kill()
        for case in ("pages in memory", "pages dropped"):
            if case == "pages dropped":
                drop_pages(data)
            with b.server(data=data) as server:
                first = b.load(server, "publish", size=_SIZE, total=1, batch=1, in_flight=1)
                serving = server.start_seconds + first["publish_seconds"]
                b.row(case, "until the first publish is acknowledged", "s", serving, Target(_READY_MAX))
                b.row(case, "CPU of the restart", "s", server.cpu_seconds())
                b.row(case, "server RSS", "MB", server.memory_bytes()["rss"] / 1e6)
                if case == "pages dropped":
                    found = b.load(server, "drain", total=held, run=1, seconds=200, grace=15, timeout=300)
                    b.row(case, "drained at", "msg/s", found["delivery_msgs_per_s"])
                    b.row(case, "acknowledged messages lost", "msgs", held - found["distinct"], Target(0))
                server.kill()


def log_bytes(data: Path) -> int:
    """Bytes on disk below a folder."""
    return sum(path.stat().st_blocks * 512 for path in data.rglob("*") if path.is_file())


def drop_pages(data: Path) -> None:
    """Makes the kernel forget the cached pages of the files below `data` (only of those)."""
    for path in data.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


if __name__ == "__main__":
    main()
