"""A site that was lost comes back once links have brought it what it lacks, and have fetched what it alone had.

Place: beside `site_fill`, for topics that links copy. The lag is read from the metrics of `syncpoint federation run`,
whose clusters have the names of the sites.
Promise: while the lag is not known, or above the bound, a site that was left does not come back by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http.client import HTTPException
from typing import Final
from urllib.request import urlopen

from syncpoint.front.gateway.site_board import SiteBoard

ROUND_S: Final = 2.0
TIMEOUT_S: Final = 5.0
UNKNOWN: Final = "the lag of its links is not known yet"
_LAG: Final = re.compile(
    r'^syncpoint_federation_lag_messages\{flow="[^"]*",source="([^"]*)",target="([^"]*)"\} ([0-9.e+]+)$', re.MULTILINE
)


def lag_of(site: str, metrics: str) -> int | None:
    """Messages that links to a site and from it have not copied; None: it has no links."""
    found = [float(lag) for source, target, lag in _LAG.findall(metrics) if site in (source, target)]
    return int(sum(found)) if found else None


def read_metrics(address: str) -> str:
    """The page of `runtime.metrics`, HOST:PORT. Raises `OSError`, `HTTPException`."""
    with urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        text: bytes = answer.read(16 << 20)
        return text.decode("utf-8", "replace")


class LinkLag:
    """Holds sites back. `read`: the metrics of an address; called in a thread."""

    def __init__(self, board: SiteBoard, address: str, most: int, read: Callable[[str], str] = read_metrics) -> None:
        self.board, self._address, self._most, self._read = board, address, most, read

    def left(self, site: str) -> None:
        """A site is left: it may lack anything from now on."""
        self.board.hold(site, UNKNOWN, by="links")

    async def keep(self) -> None:
        """Look again and again, while a site is masked."""
        while True:
            await asyncio.sleep(ROUND_S)
            masked = [one.name for one in self.board.sites.values() if one.masked and one.answers]
            if masked:
                await self.look(masked)

    async def look(self, sites: list[str]) -> None:
        """Hold these sites back, or let them go."""
        try:
            metrics = await asyncio.to_thread(self._read, self._address)
        except (OSError, ValueError, HTTPException) as error:
            for site in sites:
                self.board.hold(site, f"{UNKNOWN}: {self._address} does not answer ({error})", by="links")
            return
        for site in sites:
            lag = lag_of(site, metrics)
            if lag is None:
                why = f"{UNKNOWN}: {self._address} has no flow of a cluster {site!r}"
            else:
                why = f"links have {lag:,} messages to copy" if lag > self._most else ""
            self.board.hold(site, why, by="links")
