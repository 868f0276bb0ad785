"""Where a node's own consumers send to, in a simulation: endpoints, a bucket, topics; they are slow or fail at times.

Place: put into each life of the node by `consumer_runs`. Moods last for a while: an endpoint that fails, a bucket that
is away, requests of forwards that are slow, or fail late, with or without having been stored.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.push.http_sender import PushFailed
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.testing.simulation.base import Simulation

WELL, SLOW, FAILING = "well", "slow", "failing"
MOODS = (WELL, SLOW, FAILING)
ENDS = ("push", "forward", "bucket")


@dataclass
class ConsumerEnds:
    """Simulate the targets of a node's inner consumers.

    `pushed` gets the body of each push that an endpoint took, or may have taken.
    """

    sim: Simulation
    folder: Path
    seed: int
    pushed: Callable[[bytes], None] = lambda body: None
    moods: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[tuple[bytes, dict[str, str]]]] = field(default_factory=dict)  # of files that were read

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 23 + 11)
        self.bucket.mkdir(parents=True)

    async def live(self, is_living: Callable[[], bool]) -> None:
        """Moods come and go."""
        while is_living():
            await asyncio.sleep(0.2 + self.random.random())
            end = ENDS[self.random.randrange(0, len(ENDS))]
            mood = self.moods[end] = MOODS[self.random.randrange(0, 3)]
            self.sim.coverage.sometimes(f"{end}: {mood}")
            self.sim.note(f"{end} is {mood}")
        self.heal()

    def heal(self) -> None:
        """All is well from now on."""
        self.moods.clear()

    def mood(self, end: str) -> str:
        return self.moods.get(end, WELL)

    # -- the ends ----------------------------------------------------------------------------------------------------

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        mood, chance = self.mood("push"), self.random.random()
        await asyncio.sleep(self.random.random() ** 3 * (1.0 if mood == SLOW else 0.1))
        if mood == FAILING and chance < 0.5:
            return 503
        self.pushed(body)
        if mood == FAILING and chance < 0.7:
            raise PushFailed("the connection is lost")
        return 200

    def forwarding(self, publish: Callable[[bytes], Awaitable[bytes]]) -> Callable[[bytes], Awaitable[bytes]]:
        """What a forward is published by."""

        async def slowly(request: bytes) -> bytes:
            mood, chance = self.mood("forward"), self.random.random()
            if mood == WELL:
                return await publish(request)
            if mood == SLOW:
                await asyncio.sleep(self.random.random() ** 2 * 0.8)
                return await publish(request)
            await asyncio.sleep(self.random.random() * 0.5)
            if chance < 0.25:
                raise Unavailable("The target cannot be reached.")
            answer = await publish(request)
            if chance < 0.4:
                raise Unavailable("The answer is lost.")
            return answer

        return slowly

    def storing(self, blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]) -> Any:
        """What files are stored by."""

        async def badly(work: Callable[[], Any]) -> Any:
            mood, chance = self.mood("bucket"), self.random.random()
            if mood == SLOW:
                await asyncio.sleep(self.random.random() ** 2)
            if mood == FAILING and chance < 0.4:
                raise OSError(errno.EIO, "the bucket is away")
            found = await blocking(work)
            self._look()
            if mood == FAILING and chance < 0.6:
                raise OSError(errno.EIO, "the answer is lost")
            return found

        return badly

    # -- the bucket --------------------------------------------------------------------------------------------------

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def exported(self, prefix: str) -> Iterator[tuple[bytes, dict[str, str]]]:
        """What is in all files under a prefix, those first that were finished first."""
        self._look()
        for name, rows in self.rows.items():
            if name.startswith(prefix):
                yield from rows

    def _look(self) -> None:
        """Read the files that are new."""
        for path in sorted(self.bucket.glob("*")):
            if path.is_file() and path.name not in self.rows:
                with path.open("rb") as file:
                    found: list[Any] = list(fastavro.reader(file))
                self.rows[path.name] = [(row["data"], row["attributes"]) for row in found]
