"""Cloud Storage subscriptions, mounted in a process: the parts of `syncpoint.export` become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncpoint.access.services import ServiceIdentity
from syncpoint.export.buckets import Blocking, Buckets, Place
from syncpoint.export.export_driver import ExportDriver, advice, export_state
from syncpoint.metadata.catalog import CatalogCopy
from syncpoint.metadata.records import Subscription
from syncpoint.node.pushes import Pushes
from syncpoint.push.feed import OpenFeed
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random
from syncpoint.transport.calls import Methods
from syncpoint.wire import methods
from syncpoint.wire.messages import admin, internal, pubsub
from syncpoint.wire.serving import served


class Exports:
    """`places`: of the buckets, by name. `service`: under whose identity messages are read; None where nobody is asked
    who he is. `mine`, `rest_s`: see `ExportDriver`. `name`: of this process."""

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
        name: str = "",
        rest_s: float = 0.0,
    ) -> None:
        self._copy, self._name = copy, name
        self._may = (lambda record: True) if service is None else service.may_consume
        self.buckets = Buckets(dict(places), blocking, lambda: clock.time_ns() / 1e9)
        self.driver = ExportDriver(
            copy, open_feed, self.buckets, clock, random, mine=mine, may_export=self._may, rest_s=rest_s
        )

    def start(self) -> None:
        """Begin to export. Needs the event loop."""
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

    def described(self, incarnation: int) -> admin.ExportState | None:
        """How a subscription is exported from here, for its owner; None: it is not."""
        one = self.driver.state(incarnation)
        if one is None:
            return None
        return admin.ExportState(
            bucket=one.bucket,
            exported_by=self._name,
            state=pubsub.CloudStorageConfig.State.Name(one.state),
            advice=advice(one.state, one.bucket),
            files=one.files,
            acknowledged=one.acknowledged,
            refused=one.refused,
            held=one.held,
            last_error=one.last_error,
        )


def consumption(pushes: Pushes, exports: Exports, subscription: int) -> internal.DescribePushResponse:
    """How a subscription is pushed or exported from here."""
    return internal.DescribePushResponse(state=pushes.state(subscription), export=exports.described(subscription))


def described(pushes: Pushes, exports: Exports) -> Methods:
    """The same for other processes of the cluster."""

    async def describe(asked: internal.DescribePushRequest) -> internal.DescribePushResponse:
        return consumption(pushes, exports, asked.subscription)

    return served({methods.PUSHES.Describe: describe})
