"""Cloud Storage subscriptions, mounted in a process: the parts of `syncpoint.export` become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncpoint.access.services import ServiceIdentity
from syncpoint.export.buckets import Blocking, Buckets, Place
from syncpoint.export.export_driver import ExportDriver, export_state
from syncpoint.metadata.catalog import CatalogCopy
from syncpoint.metadata.records import Subscription
from syncpoint.push.feed import OpenFeed
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random
from syncpoint.wire.messages import pubsub


class Exports:
    """`places`: of the buckets, by name. `service`: under whose identity messages are read; None where nobody is asked
    who he is. `mine`: see `ExportDriver`."""

    def __init__(
        self,
        copy: CatalogCopy,
        open_feed: OpenFeed,
        places: tuple[tuple[str, Place], ...],
        blocking: Blocking,
        clock: Clock,
        random: Random,
        service: ServiceIdentity | None = None,
        mine: Callable[[int], bool] = lambda incarnation: True,
    ) -> None:
        self._copy = copy
        self._may = (lambda record: True) if service is None else service.may_push
        self.buckets = Buckets(dict(places), blocking)
        self.driver = ExportDriver(copy, open_feed, self.buckets, clock, random, mine=mine, may_export=self._may)

    def start(self) -> None:
        """Begin to export. Needs the event loop. Without buckets there is nothing to do."""
        if self.buckets.places:
            self.buckets.start()
            self.driver.start()

    async def stop(self) -> None:
        """A file that is being stored has a little time to end."""
        await self.driver.close()
        await self.buckets.stop()

    def state(self, record: Subscription, config: pubsub.CloudStorageConfig) -> int:
        """As the API shows it. Every process looks at the buckets by itself, so each can say."""
        return export_state(record, config, self._copy.catalog, self.buckets, self._may)[0]

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return {**self.driver.totals(), "buckets": {name: self.buckets.error(name) for name in self.buckets.places}}
