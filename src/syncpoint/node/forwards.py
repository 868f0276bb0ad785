"""Subscriptions that forward, mounted in a process."""

from __future__ import annotations

from typing import Any

from syncpoint.broker.forward.forward_driver import ForwardDriver, ForwardingProcess
from syncpoint.wire.protobuf.messages import admin


class Forwards:
    """See the module."""

    def __init__(self, process: ForwardingProcess) -> None:
        self._name = process.consuming.name
        self.driver = ForwardDriver(process)

    def start(self) -> None:
        """Begin to forward. Needs the event loop."""
        self.driver.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        await self.driver.close()

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return self.driver.totals()

    def described(self, incarnation: int) -> admin.ForwardState | None:
        """How a subscription is forwarded from here, for its owner; None: it is not."""
        one = self.driver.state(incarnation)
        if one is None:
            return None
        return admin.ForwardState(
            topic=one.target,
            forwarded_by=self._name,
            forwarded=one.forwarded,
            given_up=one.given_up,
            kept=one.kept,
            held=one.held,
            last_error=one.last_error,
        )
