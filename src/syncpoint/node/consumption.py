"""Subscriptions that a process consumes itself, mounted in it: those that are pushed, and those that are exported.

Place: on a node, and in every proxy.
"""

from __future__ import annotations

from typing import Any

from syncpoint.node.bucket_exports import Exports
from syncpoint.node.pushes import Pushes
from syncpoint.transport.calls import Methods
from syncpoint.wire import methods
from syncpoint.wire.messages import internal
from syncpoint.wire.serving import served


class Consumption:
    """Both kinds, as one."""

    def __init__(self, pushes: Pushes, exports: Exports) -> None:
        self.pushes, self.exports = pushes, exports

    def start(self) -> None:
        """Begin. Needs the event loop."""
        self.pushes.start()
        self.exports.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        await self.pushes.stop()
        await self.exports.stop()

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return {**self.pushes.status(), **self.exports.status()}

    def describe(self, subscription: int) -> internal.DescribeConsumptionResponse:
        """How a subscription is pushed or exported from here."""
        return internal.DescribeConsumptionResponse(
            state=self.pushes.state(subscription), export=self.exports.described(subscription)
        )

    def internal_methods(self) -> Methods:
        """The same for other processes of the cluster."""
        return served({methods.CONSUMPTION.Describe: self._describe})

    async def _describe(self, asked: internal.DescribeConsumptionRequest) -> internal.DescribeConsumptionResponse:
        return self.describe(asked.subscription)
