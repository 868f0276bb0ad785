"""Messages that are due go to the owner of the chain that takes their key now, in the epoch of now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, read_publish
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.broker.router.rendezvous import pick_chain
from syncpoint.cluster.control.due_publishes import DuePublishes


@dataclass
class Owner:
    address: str


class Cluster:
    """A view and channels to peers, as far as they are asked."""

    def __init__(self) -> None:
        self.owners = {1: Owner("one:1"), 2: Owner("two:1")}
        self.calls: list[tuple[str, PublishBatch]] = []

    def owner(self, chain: int) -> Owner | None:
        return self.owners.get(chain)

    async def call(self, address: str, path: str, message: Any, *, timeout_s: float) -> bytes:
        self.calls.append((address, read_publish(b"".join(message))))
        return b"answer"


def test_it_is_asked_who_takes_the_key_now() -> None:
    cluster: Any = Cluster()
    assignments = {7: TopicAssignment(3, (1, 2))}
    due = DuePublishes(cluster, cluster, assignments.get, 99)
    for key in (b"a", b"b", b"c", b"d"):
        assert asyncio.run(due.publish(7, key, b"request")) == b"answer"
        address, batch = cluster.calls[-1]
        assert batch.chain == pick_chain(7, key, (1, 2))
        assert address == cluster.owners[batch.chain].address
        assert (batch.epoch, batch.keyed, batch.sender) == (3, True, 99)
        assert batch.origin is PublishOrigin.FIRING
        assert bytes(batch.request) == b"request"
    numbers = {batch.batch for _, batch in cluster.calls}
    assert len(numbers) == 4
    assert min(numbers) >= 1 << 62, "a proxy in the same process counts its own from 1 on"
    assert len({batch.chain for _, batch in cluster.calls}) == 2


def test_where_nobody_takes_the_key_it_is_said() -> None:
    cluster: Any = Cluster()
    cluster.owners.clear()
    due = DuePublishes(cluster, cluster, {7: TopicAssignment(3, (1,))}.get, 99)
    with pytest.raises(Unavailable, match="Chain 1, which takes the key, has no owner"):
        asyncio.run(due.publish(7, b"k", b""))
    with pytest.raises(Unavailable, match="No chain takes"):
        asyncio.run(due.publish(8, b"k", b""))
    assert cluster.calls == []
