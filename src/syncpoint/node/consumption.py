"""Subscriptions that a process consumes itself, mounted in it: those that are pushed, exported or forwarded.

Place: on a node, and in every proxy.
"""

from __future__ import annotations

from typing import Any

from syncpoint.node.bucket_exports import Exports
from syncpoint.node.forwards import Forwards
from syncpoint.node.pushes import Pushes
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods


class Consumption:
    """All kinds, as one."""

    def __init__(self, pushes: Pushes, exports: Exports, forwards: Forwards) -> None:
        self.pushes, self.exports, self.forwards = pushes, exports, forwards

    def start(self) -> None:
        """Begin. Needs the event loop."""
        self.pushes.start()
        self.exports.start()
        self.forwards.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        await self.pushes.stop()
        await self.exports.stop()
        await self.forwards.stop()

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return {**self.pushes.status(), **self.exports.status(), **self.forwards.status()}

    def describe(self, subscription: int) -> internal.DescribeConsumptionResponse:
        """How a subscription is pushed, exported or forwarded from here."""
        return internal.DescribeConsumptionResponse(
            state=self.pushes.state(subscription),
            export=self.exports.described(subscription),
            forward=self.forwards.described(subscription),
        )

    def internal_methods(self) -> Methods:
        """The same for other processes of the cluster."""
        return served({methods.CONSUMPTION.Describe: self._describe})

    async def _describe(self, asked: internal.DescribeConsumptionRequest) -> internal.DescribeConsumptionResponse:
        return self.describe(asked.subscription)
