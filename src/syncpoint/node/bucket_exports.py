"""Cloud Storage subscriptions, mounted in a process: the parts of `syncpoint.broker.export` become one."""

from __future__ import annotations

from typing import Any

from syncpoint.broker.export.buckets import Blocking, Buckets, Place
from syncpoint.broker.export.export_driver import ExportDriver, advice, export_state
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import admin, pubsub


class Exports:
    """`places`: of the buckets, by name."""

    def __init__(
        self,
        process: ConsumingProcess,
        places: tuple[tuple[str, Place], ...],
        blocking: Blocking,
    ) -> None:
        self._process = process
        self.buckets = Buckets(dict(places), blocking, lambda: process.clock.time_ns() / 1e9)
        self.driver = ExportDriver(process, self.buckets)

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
        return export_state(record, config, self._process.copy.catalog, self.buckets, self._process.refusal)[0]

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
            exported_by=self._process.name,
            state=pubsub.CloudStorageConfig.State.Name(one.state),
            advice=advice(one.state, one.bucket),
            files=one.files,
            acknowledged=one.acknowledged,
            refused=one.refused,
            held=one.held,
            last_error=one.last_error,
        )
