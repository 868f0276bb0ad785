"""From the text of a .proto file to its descriptors, by protoc itself, in a process of its own.

Place: run in a thread when a definition comes in; what it gives is kept with the revision, so that no publish needs it.
Promise: a definition costs at most a few seconds of processor time and `_MEMORY_BYTES`, reaches no file but itself, and
whatever it does to the compiler happens to another process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from syncpoint.base.model.errors import Internal, Unavailable
from syncpoint.catalog.schemas.errors import BadDefinition

_CPU_S: Final = 5
_WALL_S: Final = 30.0
_MEMORY_BYTES: Final = 1 << 30
_FILE_BYTES: Final = 8 << 20
_FILE: Final = "schema.proto"
_ERRORS_CHARS_MAX: Final = 2_000

_CHILD: Final = f"""
import resource, sys
for limit, value in (
    (resource.RLIMIT_CPU, {_CPU_S}), (resource.RLIMIT_AS, {_MEMORY_BYTES}),
    (resource.RLIMIT_FSIZE, {_FILE_BYTES}), (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(limit, (value, value))
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", "-I.", "--descriptor_set_out=out", "{_FILE}"]))
"""


def compile_proto(text: str) -> bytes:
    """A FileDescriptorSet with the one file. Raises `BadDefinition`, and `Unavailable` when the machine is too busy.

    Imports are not followed: there is nothing beside the file.
    """
    with tempfile.TemporaryDirectory(prefix="syncpoint-schema-") as name:
        folder = Path(name)
        (folder / _FILE).write_text(text)
        try:
            # Isolated: neither the environment nor the folder it runs in adds modules.
            done = subprocess.run(
                [sys.executable, "-I", "-c", _CHILD],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_WALL_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable("The definition could not be compiled in time. Try again.") from None
        errors = done.stderr.decode(errors="replace")
        if "ModuleNotFoundError" in errors:
            raise Internal("protoc (grpcio-tools) is not installed")
        if done.returncode < 0 or "MemoryError" in errors or "bad_alloc" in errors:
            raise BadDefinition("it is too complex to be compiled")
        if done.returncode:
            # Of its own lines only those about the definition.
            lines = [line for line in errors.splitlines() if line.startswith(f"{_FILE}:")]
            reported = "; ".join(lines).replace(f"{_FILE}:", "line ")
            raise BadDefinition(reported[:_ERRORS_CHARS_MAX].rstrip(".") or "it cannot be compiled")
        return (folder / "out").read_bytes()
