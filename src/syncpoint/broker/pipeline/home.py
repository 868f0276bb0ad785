"""Where pipelines are at home: what one log must know of its surroundings before it takes an epoch.

Place: under `writing`, `staging` and `recovery`. A chain asks the metadata (`mounting.ChainHome`, `homes.Homes`); the
only chain of one node is the home of everything (`SoloHomes`).
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from syncpoint.broker.publish.facts.source import Source


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

    def note_load(self, topic: int, messages: int, nbytes: int) -> None:
        """Count bytes published to a topic, for the assignment of topics to chains."""


class HomeRecords(Protocol):
    """Who knows in which chain queries and links are at home, by keys. All raise `Unavailable`."""

    async def chain_at(self, key: str) -> int | None:
        """The chain that a key names; None: it has no home yet."""

    async def claim(self, chain: int, keys: Collection[str]) -> set[str]:
        """Write the missing records of keys that a chain's log names; returns those that name another chain."""

    async def release(self, chain: int, keys: Iterable[str]) -> None:
        """These have no home any more, where it was this chain."""


class SoloHomes:
    """`HomeRecords` of one node, whose only chain is the home of everything."""

    def __init__(self, chain: int) -> None:
        self._chain = chain

    async def chain_at(self, key: str) -> int | None:
        return self._chain

    async def claim(self, chain: int, keys: Collection[str]) -> set[str]:
        return set()

    async def release(self, chain: int, keys: Iterable[str]) -> None:
        pass
