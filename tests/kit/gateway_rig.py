"""A gateway as a process, over servers that a test has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.request import urlopen

LINE = [sys.executable, "-m", "syncpoint.programs.cli", "gateway"]
HURRIED = """
from syncpoint.front.gateway import dual_delivery
from syncpoint.programs.cli.main import main
dual_delivery.EXTEND_S = 0.3
main()
"""
HURRIED_LINE = [sys.executable, "-c", HURRIED, "gateway"]


class GatewayProcess:
    """`syncpoint gateway run` over some servers; the first one is the home. `hurried`: leases of copies are extended
    every 300 ms; `answers_within`: a site that answers later counts as one that hangs, which on a busy machine may be
    one that does not.
    """

    def __init__(
        self,
        folder: Path,
        servers: dict[str, str],
        more: dict[str, Any] | None = None,
        *,
        hurried: bool = False,
        answers_within: str = "30s",
    ) -> None:
        sites = {name: {"endpoint": at, "weight": 100 - n} for n, (name, at) in enumerate(servers.items())}
        file = {
            "version": 1,
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "sites": sites,
            "health": {"interval": "100ms", "timeout": answers_within, "successes": 3},
            "drain": "5s",
            **(more or {}),
        }
        self.path = folder / "gateway.yaml"
        self.path.write_text(json.dumps(file))
        self.process = subprocess.Popen(
            [*(HURRIED_LINE if hurried else LINE), "run", "--config", str(self.path)],
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stderr is not None
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"clients: (\S+)  admin: http://(\S+)", line)
            if found:
                self.endpoint, self.admin = found[1], found[2]
                break
        else:
            raise AssertionError("".join(self.log))
        threading.Thread(target=lambda: self.log.extend(self.process.stderr or ()), daemon=True).start()

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of an operator."""
        line = [*LINE, *words, "--admin", self.admin, "--format", "json"]
        return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)

    def states(self) -> dict[str, str]:
        """What each site is."""
        return {one["site"]: one["state"] for one in json.loads(self.say("status").stdout)["sites"]}

    def metric(self, name: str) -> float:
        """A number of its metrics."""
        lines = (one for one in self.page().splitlines() if one.startswith(f"syncpoint_gateway_{name} "))
        return float(next(lines).split()[-1])

    def page(self) -> str:
        """All its metrics."""
        with urlopen(f"http://{self.admin}/metrics", timeout=10) as answer:
            text: bytes = answer.read()
        return text.decode()

    def end(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        assert self.process.wait(20) == 0, "".join(self.log)
        if self.process.stderr is not None:
            self.process.stderr.close()
