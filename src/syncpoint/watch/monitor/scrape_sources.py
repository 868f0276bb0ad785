"""Whose metrics are read: this process, other processes of its cluster, pages at addresses.

Place: handed to the driver by its mount.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from syncpoint.watch.monitor.monitor_settings import MonitorSettings

ANSWER_S: Final = 4.0
TEXT_BYTES_MAX: Final = 64 << 20

log = logging.getLogger(__name__)


@dataclass
class TextSource:
    """A process by a call that returns its text."""

    name: str
    read: Callable[[], Awaitable[bytes]]
    labels: dict[str, str] = field(default_factory=dict)
    fresh: bool = False
    url: str = ""  # of a page

    async def text(self) -> bytes:
        return await self.read()


def pages(settings: MonitorSettings) -> list[TextSource]:
    """The targets of the settings, and of their files as these are now."""
    found = [
        TextSource(one.labels.get("process", one.url), _fetcher(one.url), dict(one.labels), url=one.url)
        for one in settings.targets
    ]
    for path in settings.target_files:
        try:
            found += _listed(path)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("the targets in %s cannot be read: %s", path, error)
    return found


def _listed(path: Path) -> Iterator[TextSource]:
    """What `file_sd_configs` of Prometheus reads."""
    for group in json.loads(path.read_text()):
        labels = {str(key): str(value) for key, value in group.get("labels", {}).items()}
        for address in group["targets"]:
            kept = {key: value for key, value in labels.items() if not key.startswith("__") and key != "roles"}
            kept.setdefault("process", address)
            url = f"http://{address}/metrics"
            yield TextSource(kept["process"], _fetcher(url), kept, url=url)


def _fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    return lambda: fetched(url)


async def fetched(url: str) -> bytes:
    """What is at an address. Raises `OSError`."""
    return await asyncio.to_thread(_fetched, url)


def _fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:  # http or https, as the settings are checked to be
        text: bytes = answer.read(TEXT_BYTES_MAX)
        return text


def once_each(sources: Iterable[TextSource]) -> list[TextSource]:
    """Two of one name would be taken for one that goes up and down: the first stays."""
    found: dict[str, TextSource] = {}
    for one in sources:
        found.setdefault(one.name, one)
    return list(found.values())
