"""The metrics of all workers of a server as one text: every sample has its `process` as a label.

Place: on the port that all workers share, whichever of them answers.
Promise: a worker that does not answer in time takes nothing with it but its own samples, and is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from syncpoint.watch.metrics.kept_text import KeptText, MetricsText

FAMILIES: Final = (
    Family(
        "syncpoint_metrics_unanswered_total",
        MetricKind.COUNTER,
        "",
        ("worker",),
        "Times that a worker did not report its metrics in time; its samples are then missing.",
    ),
)
_HELP: Final = b"\n# HELP "

log = logging.getLogger(__name__)


def merged(texts: Iterable[bytes]) -> bytes:
    """Texts in the format of Prometheus as one: each family once, with the samples of all; any thread."""
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        for family in (b"\n" + text.rstrip(b"\n")).split(_HELP)[1:]:
            meaning, kind, samples = (*family.split(b"\n", 2), b"")[:3]
            name = meaning.partition(b" ")[0]
            families.setdefault(name, [_HELP[1:] + meaning, kind]).append(samples)
    return b"".join(b"\n".join(filter(None, parts)) + b"\n" for parts in families.values())


class GatheredText(QuickCollector):
    """Merge the metrics of all workers of a server into one text.

    `own`: of this worker; `others`: where the others can be called, by name; `ask` returns the text of the worker at an
    address, or raises `SyncpointError`; `blocking` runs the merging.
    """

    name = "other workers"

    def __init__(
        self,
        own: MetricsText,
        others: Callable[[], Mapping[str, str]],
        ask: Callable[[str], Awaitable[bytes]],
        blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]] = asyncio.to_thread,
    ) -> None:
        self._own, self._others, self._ask, self._blocking = own, others, ask, blocking
        self._unanswered: Counter[str] = Counter()
        self._kept = KeptText(self._made)

    async def text(self) -> bytes:
        """The response to a scraper."""
        return await self._kept.get()

    def collect(self, samples: Samples) -> None:
        for worker in self._others():
            samples.put("syncpoint_metrics_unanswered_total", self._unanswered[worker], worker)

    async def _made(self) -> bytes:
        others = sorted(self._others().items())
        texts = await asyncio.gather(self._own.text(), *(self._asked(*one) for one in others))
        text: bytes = await self._blocking(lambda: merged(texts))
        return text

    async def _asked(self, worker: str, address: str) -> bytes:
        try:
            return await self._ask(address)
        except SyncpointError as error:
            log.info("the metrics of %s are missing: %s", worker, error)
            self._unanswered[worker] += 1
            return b""
