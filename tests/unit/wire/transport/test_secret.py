"""A listener for processes that share a secret answers nobody else."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Unauthenticated
from syncpoint.wire.transport.calls import Unary
from syncpoint.wire.transport.network import Network, TcpNetwork, join_address


def test_who_does_not_know_the_secret_is_not_served() -> None:
    reached: list[bytes] = []

    async def call(network: Network, address: str) -> bytes:
        channel = network.channel(address)
        try:
            return await channel.unary("/a.B/C", b"request", timeout=5)
        finally:
            await channel.close()

    async def scenario() -> None:
        ours = TcpNetwork(secret=b"a" * 64)
        table = {b"/a.B/C": Unary(lambda call, request: (reached.append(request), call.reply(b"answer")))}
        listening = await ours.serve(table, "127.0.0.1", 0)
        address = join_address(listening.host, listening.port)
        assert await call(ours, address) == b"answer"
        for stranger in (TcpNetwork(), TcpNetwork(secret=b"b" * 64)):
            with pytest.raises(Unauthenticated):
                await call(stranger, address)
        assert reached == [b"request"]
        await listening.close()

    asyncio.run(scenario())
