"""How many bytes of a project's messages may be outstanding at this forwarder, over all its subscriptions.

Place: asked by consumers before they take more, and by `api` before a pull begins.
Promise: with a quota, what is delivered and not acknowledged exceeds it by one message for each consumer at most, who
may always take one when he has none. Nothing is lost: what does not fit waits until something is acknowledged or comes
back. Without a quota nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from syncpoint.catalog.metadata.records import Subscription

if TYPE_CHECKING:
    from syncpoint.broker.subscribe.delivery import Delivery

UNBOUNDED: Final = 1 << 62


class OutstandingQuota:
    """`bytes_of`: what a project (projects/P) may have outstanding; 0: as much as it likes."""

    def __init__(self, deliveries: Mapping[int, Delivery]) -> None:
        self._deliveries = deliveries
        self.bytes_of: Callable[[str], int] | None = None

    def room(self, record: Subscription) -> int:
        """How many bytes more may be outstanding."""
        project = project_of(record)
        most = 0 if self.bytes_of is None else self.bytes_of(project)
        if not most:
            return UNBOUNDED
        known = self._deliveries.values()
        return most - sum(one.table.total()[1] for one in known if project_of(one.record) == project)

    def binds(self, record: Subscription) -> bool:
        """Whether the project of a subscription has a quota."""
        return self.bytes_of is not None and bool(self.bytes_of(project_of(record)))


def project_of(record: Subscription) -> str:
    """As projects/P."""
    return record.name[: record.name.index("/", 9)]
