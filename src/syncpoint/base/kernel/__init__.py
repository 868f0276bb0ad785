"""The batch kernel: everything that costs something per message, on whole batches of raw bytes.

Place: under all rooms that move messages; above nothing but `model`. See DESIGN.md for the formats.
Promise: one Python source per module, which runs compiled (`python -m syncpoint.base.kernel.build`) and uncompiled with
the same results. Compiled modules are used if all of them are there; SYNCPOINT_PURE_KERNEL=1 takes the sources
regardless.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

MODULES = (
    "ackids", "acks", "blocks", "call_frames", "columns", "filters", "frames", "ids", "json_fields", "leases",
    "lifetimes", "publish", "rows", "rule_conditions", "schedules", "seal", "split", "stamps",
)  # fmt: skip


class SourceFinder:
    """Import hook: takes the kernel's modules from their sources, also where compiled ones lie beside them."""

    def __init__(self, package: str, folder: Path) -> None:
        self._package = package
        self._folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The place of one of the kernel's modules; None for all others."""
        package, _, module = name.rpartition(".")
        if package != self._package or module not in MODULES:
            return None
        return spec_from_file_location(name, self._folder / f"{module}.py")


def _all_compiled(folder: Path) -> bool:
    return all(any((folder / (name + suffix)).exists() for suffix in EXTENSION_SUFFIXES) for name in MODULES)


COMPILED: bool = os.environ.get("SYNCPOINT_PURE_KERNEL", "") in ("", "0") and _all_compiled(Path(__file__).parent)
"""Whether the modules of this process are the compiled ones: all of them, or none."""

if not COMPILED:
    sys.meta_path.insert(0, SourceFinder(__name__, Path(__file__).parent))
