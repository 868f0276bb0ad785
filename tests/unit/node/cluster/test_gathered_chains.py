"""What a subscribe forwarder of a cluster publishes by itself."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.gathered_chains import GatheredChains


@pytest.mark.parametrize(
    ("errors", "stored"),
    [
        ([Unprocessed("gone")], True),
        ([SyncpointError(Code.UNAVAILABLE, "stopping")], True),
        ([SyncpointError(Code.INVALID_ARGUMENT, "too large")], False),
    ],
)
def test_a_dead_letter_goes_to_the_next_proxy_where_one_is_away(errors: list[SyncpointError], stored: bool) -> None:
    class Peers:
        async def call(self, *asked: Any, **more: Any) -> bytes:
            if errors:
                raise errors.pop()
            return b"stored"

    proxies = [SimpleNamespace(name=name, region="r") for name in ("p1", "p2")]
    context: Any = SimpleNamespace(
        process=SimpleNamespace(region="r"),
        view=SimpleNamespace(with_role=lambda role: proxies),
        address_of=lambda name: f"{name}:1",
        peers=Peers(),
    )
    context.publish_by_proxy = partial(ClusterContext.publish_by_proxy, context)
    reported: list[bytes | Exception] = []
    asyncio.run(GatheredChains(context)._publish_by_proxy("projects/p/topics/t", b"", reported.append))
    assert (reported == [b"stored"]) is stored
    assert len(reported) == 1
