"""Failures of the machine that a drill runs on: a port that no packet passes, and a file system without room.

Place: under `drill_failures`. Packets are dropped by a table of nftables that is the drill's own, so undoing takes away
nothing else; room is taken by a file that is allocated and never written.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition

PIECE_BYTES: Final = 64 << 20
COMMAND_S: Final = 10.0


def check_network(port: str) -> None:
    """Raise `FailedPrecondition` where packets cannot be dropped, or a drill drops those of this port already."""
    if shutil.which("nft") is None:
        raise FailedPrecondition("cut-network takes the program nft: install nftables.")
    if why := _nft("list", "tables"):
        raise FailedPrecondition(f"cut-network takes the rights of root on this machine: {why}")
    if not _nft("list", "table", "inet", _table(port)):
        raise FailedPrecondition(f"Port {port} is cut off already; `nft delete table inet {_table(port)}` mends it.")


def cut_network(port: str) -> None:
    """Drop each TCP packet to and from a port of this machine, on every interface. Raises `FailedPrecondition`."""
    made = [f"add table inet {_table(port)}"]
    for hook, side in (("input", "dport"), ("output", "sport")):
        made.append(f"add chain inet {_table(port)} {hook} {{ type filter hook {hook} priority -10; }}")
        made.append(f"add rule inet {_table(port)} {hook} tcp {side} {port} drop")
    if why := _nft("; ".join(made)):
        raise FailedPrecondition(f"The network of port {port} was not cut: {why}")


def mend_network(port: str) -> None:
    """Let packets of a port pass again, also where they do already. Raises `OSError`."""
    if why := _nft(f"add table inet {_table(port)}; delete table inet {_table(port)}"):  # added: it may be gone
        raise OSError(why)


def check_disk(folder: Path, leave: int) -> None:
    """Raise `FailedPrecondition` for a folder whose file system must not be filled, or is full already."""
    if os.stat(folder).st_dev == os.stat("/").st_dev:
        raise FailedPrecondition(f"{folder} is in the file system of /, which the whole machine needs: name another.")
    if _free_bytes(folder) <= leave:
        raise FailedPrecondition(f"{folder} has no more than {leave:,} bytes left already.")


def fill_disk(path: Path, leave: int) -> None:
    """Take all room of a file system but `leave` bytes, with a new file. Raises `FailedPrecondition`."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise FailedPrecondition(f"{path.parent} was not filled: {error.strerror}") from error
    try:
        size, piece = 0, PIECE_BYTES
        while piece >= 4096:
            wanted = min(piece, _free_bytes(path.parent) - leave)
            if wanted <= 0:
                return
            try:
                os.posix_fallocate(handle, size, wanted)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise FailedPrecondition(f"{path.parent} was not filled: {error.strerror}") from error
                piece //= 2  # others have taken it
            else:
                size += wanted
    finally:
        os.close(handle)


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize


def _table(port: str) -> str:
    return f"syncpoint_drill_{port}"


def _nft(*words: str) -> str:
    """Run a command of nft; "": it was done, else why not."""
    try:
        done = subprocess.run(["nft", *words], capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"nft ended with {done.returncode}"
