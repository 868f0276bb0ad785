"""A lease in a store that is reached over a network, kept alive by a task.

Place: what `etcd_streams` and `remote` have in common.
Promise: `valid_until` counts from when the last answered renewal was sent, by the clock here; once its whole length has
passed so, or the store knows it no more, the lease is `lost` and stays so.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable

from syncpoint.base.runtime.clock import Clock

RENEWALS = 3  # in the length of a lease
_SAFETY = 0.8  # the part of a lease's length its holder may rely on


class KeptLease(abc.ABC):
    """`ttl_s` was asked for, `granted_s` is what the store gave, from `sent` on. `ended` is called when it is over."""

    def __init__(
        self, clock: Clock, number: int, ttl_s: float, granted_s: float, sent: float, ended: Callable[[KeptLease], None]
    ) -> None:
        self.lost = asyncio.Event()
        self.id = number
        self.granted_s = granted_s
        self._clock, self._ttl_s, self._ended = clock, ttl_s, ended
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(0.0, lambda: None)
        self.renewed(sent)
        self._task = loop.create_task(self._keep())

    def valid_until(self) -> float:
        return self._sent + _SAFETY * min(self._ttl_s, self.granted_s)

    def stop(self) -> asyncio.Task[None]:
        """Renew it no more; it ends in its time."""
        self._timer.cancel()
        self._task.cancel()
        return self._task

    def over(self) -> None:
        """Stop renewing the lease and report it lost."""
        self.stop()
        self._ended(self)
        self.lost.set()

    def renewed(self, sent: float) -> None:
        """A renewal that was sent then was answered."""
        self._sent = sent
        self._timer.cancel()
        rest = sent + self.granted_s - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, rest), self.over)

    @abc.abstractmethod
    async def revoke(self) -> None:
        """End it now; its keys are deleted."""

    @abc.abstractmethod
    async def _keep(self) -> None:
        """Renew it again and again; call `over` when the store knows it no more."""
