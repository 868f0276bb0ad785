"""Chains/HandOver and Chains/CanServe: how the owner of a chain lets go of it, and whether another could take it.

Place: in the method table of every publish forwarder, in front of `ownership_driver`.
"""

from __future__ import annotations

from typing import Protocol

from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods


class ChainOwnership(Protocol):
    """The side of a process that owns chains."""

    async def hand_over(self, chain: int) -> None:
        """Close a chain and give its ownership up."""
        ...

    async def can_serve(self, chain: int) -> None:
        """Raises `FailedPrecondition` where it could not."""
        ...


def hand_over_methods(ownership: ChainOwnership) -> Methods:
    """Chains/HandOver and CanServe, for the method table of a publish forwarder."""

    async def hand_over(asked: internal.HandOverRequest) -> internal.HandOverResponse:
        await ownership.hand_over(asked.chain)
        return internal.HandOverResponse()

    async def can_serve(asked: internal.HandOverRequest) -> internal.HandOverResponse:
        await ownership.can_serve(asked.chain)
        return internal.HandOverResponse()

    return {**served({methods.CHAINS.HandOver: hand_over, methods.CHAINS.CanServe: can_serve})}
