"""How many bytes of the messages of a project, or of a tenant, may be outstanding at this forwarder, over all their
subscriptions.

Place: asked by consumers before they take more, and by `api` before a pull begins.
Promise: with a quota, what is delivered and not acknowledged exceeds it by one message for each consumer at most, who
may always take one when he has none. Nothing is lost: what does not fit waits until something is acknowledged or comes
back. Without a quota nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from syncpoint.catalog.metadata.records import Subscription

if TYPE_CHECKING:
    from syncpoint.broker.subscribe.delivery import Delivery

UNBOUNDED: Final = 1 << 62


class OutstandingQuota:
    """`bounds_of`: for projects/P, how many bytes which projects together may have outstanding; none: as many as they
    like."""

    def __init__(self, deliveries: Mapping[int, Delivery]) -> None:
        self._deliveries = deliveries
        self.bounds_of: Callable[[str], Sequence[tuple[Collection[str], int]]] | None = None

    def room(self, record: Subscription) -> int:
        """How many bytes more may be outstanding."""
        bounds = () if self.bounds_of is None else self.bounds_of(project_of(record))
        return min((most - self._outstanding(projects) for projects, most in bounds), default=UNBOUNDED)

    def binds(self, record: Subscription) -> bool:
        """Whether the project of a subscription has a quota."""
        return self.bounds_of is not None and bool(self.bounds_of(project_of(record)))

    def _outstanding(self, projects: Collection[str]) -> int:
        return sum(one.table.total()[1] for one in self._deliveries.values() if project_of(one.record) in projects)


def project_of(record: Subscription) -> str:
    """As projects/P."""
    return record.name[: record.name.index("/", 9)]
