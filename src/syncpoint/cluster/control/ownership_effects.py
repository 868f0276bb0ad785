"""What `ownership_machine` is shown of the metadata, and what it asks its driver to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from syncpoint.base.model.cluster import ChainOwner, ChainRecord, Member
from syncpoint.catalog.metadata.view import Versioned


class OwnershipView(NamedTuple):
    """The state in the metadata. `draining`: names of members that take nothing new; `owned_at`: how far `owners`
    is."""

    members: Mapping[str, Versioned[Member]]
    draining: frozenset[str]
    chains: Mapping[int, ChainRecord]
    owners: Mapping[int, Versioned[ChainOwner]]
    owned_at: int


class ClaimChain(NamedTuple):
    """Raise the epoch by `step` and become owner, if the owner's key is as of revision `seen` (0: absent)."""

    chain: int
    seen: int
    step: int


class OpenChain(NamedTuple):
    """Open the chain under this epoch."""

    chain: int
    epoch: int


class ConfirmOwnership(NamedTuple):
    """Write the owner's key again, if it is absent and the epoch is still this one."""

    chain: int
    epoch: int


class CloseChain(NamedTuple):
    """Stop serving the chain."""

    chain: int
    epoch: int


class ReleaseOwnership(NamedTuple):
    """Delete the owner's key if it still has this epoch."""

    chain: int
    epoch: int


class YieldOwnership(NamedTuple):
    """Delete the owner's key, if it still has this epoch, while the chain is still being closed."""

    chain: int
    epoch: int


class RequestHandOver(NamedTuple):
    """Ask the owner at an address to hand the chain over to this process."""

    chain: int
    address: str


Effect = ClaimChain | OpenChain | ConfirmOwnership | CloseChain | ReleaseOwnership | YieldOwnership | RequestHandOver
