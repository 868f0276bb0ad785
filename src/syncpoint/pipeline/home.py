"""Where pipelines are at home: what one log must know of the world around it before it takes an epoch.

Place: under `writing`, `staging` and `recovery`. One node has one log, so everything is at home in it (`OneLog`); a
chain asks the metadata (`mounting.ChainHome`).
"""

from collections.abc import Collection
from typing import Protocol

from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.source import Source


class Home(Protocol):
    """What a log needs besides itself."""

    def knows(self, query: str, link: str) -> bool:
        """Whether it is sure already that a query, and its link ("": none), are at home in this log."""

    async def admit(self, query: str, link: str) -> None:
        """Return once it is sure. Raises `FailedPrecondition` where they are at home elsewhere, `Unavailable`."""

    async def pin(self, topics: Collection[int]) -> None:
        """Return once sources of these topics may be opened in this log, until `unpin`. Raises `Unavailable`."""

    def unpin(self, topics: Collection[int]) -> None:
        """What `pin` was called for is done, once."""

    def open_source(self, topic: int) -> Source:
        """The open source of a topic that is pinned."""


class OneLog:
    """The home of everything: the log of one node."""

    def __init__(self, publish: PublishForwarder) -> None:
        self._publish = publish

    def knows(self, query: str, link: str) -> bool:
        """See `Home`."""
        return True

    async def admit(self, query: str, link: str) -> None:
        """See `Home`."""

    async def pin(self, topics: Collection[int]) -> None:
        """See `Home`."""

    def unpin(self, topics: Collection[int]) -> None:
        """See `Home`."""

    def open_source(self, topic: int) -> Source:
        """See `Home`."""
        return self._publish.open_source(topic)
