"""What a program that uses the client loads: nothing of the server's rooms."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import syncpoint.client
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("syncpoint.")}))
print(*[name for name in ("click", "starlette", "grpc", "jwt", "yaml", "lark", "fastavro") if name in sys.modules])
"""


def test_no_room_of_the_server_is_loaded():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    wings, libraries = run.stdout.splitlines()
    assert wings == "base client front wire"
    assert libraries == ""
