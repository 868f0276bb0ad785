"""Which machine this is, as far as its network goes.

Place: a part of the environment; a process says it with its name, so that another one knows whether what it sees of
an address is what that process would see. Two containers of one machine have networks of their own, two machines may
call themselves the same, and one may be called otherwise from now on: none of that is evidence.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
NETWORK = Path("/proc/self/ns/net")


def network_of_machine(boot: Path = BOOT, network: Path = NETWORK) -> str:
    """Identify the network namespace: equal for two processes exactly if each reaches the other's loopback addresses.

    Falls back to the machine's name.
    """
    try:
        return f"{boot.read_text().strip()} {os.readlink(network)}"
    except OSError:
        return platform.node()
