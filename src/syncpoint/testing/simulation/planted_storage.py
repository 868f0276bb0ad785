"""Bugs planted into storage: opening, sealing, joining and admission. Listed in `planted_bugs`.

Each patch takes out what a rule of the protocol asks for, in the shipped modules as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from syncpoint.base.runtime.file_content import read_file
from syncpoint.log.diskserver.command_channel import ChannelLost, CommandChannel
from syncpoint.log.diskserver.fencing import FENCING_FILE, ChainFolders, FencingRecord, decode_record
from syncpoint.log.diskserver.protocol import Hello
from syncpoint.log.diskserver.remote_disk import RemoteDisk
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery import repair, seal_tails
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks
from syncpoint.log.storage.recovery.recover import Recovery
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.testing.simulation.planted import CRAMPED, RACKS, SINGLE, THREE, THREE_LASTING, planted, together
from syncpoint.testing.simulation.scaled import patched


@planted(SINGLE, "power lost in an opening", seed=23)
def holes_are_sealed() -> AbstractContextManager[None]:
    """What an opening has found is sealed without a further look, though a machine may have lost it since."""
    right = repair.rebuild

    def rebuild(*arguments: Any, **options: Any) -> Any:
        return right(*arguments, **options | {"whole": False})

    return together(
        patched(repair, _Check=_Unchecked),
        patched(seal_tails, rebuild=rebuild),
        patched(OpeningDisks, refuse_restarted=lambda self, disk: None),
    )


class _Unchecked:
    """Takes whatever is there."""

    complete = True

    def __init__(self, *arguments: Any) -> None:
        """Accept any arguments, for no particular segment."""

    def take(self, data: bytes) -> None:
        """Good enough."""

    def end(self) -> None:
        """So is the end."""


@planted(RACKS, "disk slow", "disk server hung", "takeover", seed=6)
def rule_9() -> AbstractContextManager[None]:
    """What enough disks have counts as persisted, whatever racks they stand in."""

    right = AckRule.persisted

    def anywhere(self: AckRule, positions: Sequence[int]) -> int:
        return right(replace(self, racks=(), racks_min=1), positions)

    return patched(AckRule, persisted=anywhere)


@planted(CRAMPED, "crash", "takeover", "close", seed=0)
def rule_10() -> AbstractContextManager[None]:
    """Messages are taken until there is no room for acknowledgements, checkpoints and what is copied forward."""
    return patched(Store, admit=lambda self, nbytes: None)


@planted(SINGLE, "takeover", "disk server killed", "hang", seed=2)
def rule_13() -> AbstractContextManager[None]:
    """A server of disks that was restarted has forgotten who took a chain over, and lets an older owner write."""
    right = ChainFolders.store

    def store(self: ChainFolders, chain: int, record: FencingRecord) -> None:
        known = decode_record(read_file(self._files, f"{self.folder(chain)}/{FENCING_FILE}") or b"")
        right(self, chain, record if known is None else record._replace(token=known.token))

    return patched(ChainFolders, store=store)


@planted(THREE, "replaced at the worst time", beyond=True, seed=0)
def rule_14() -> AbstractContextManager[None]:
    """Where too many disks are gone for good, a chain is opened with what is left, and nobody was asked."""
    right = Recovery.__init__

    def accepts(self: Recovery, roots: Any, rule: AckRule, settings: StorageSettings, *rest: Any) -> None:
        right(self, roots, rule, replace(settings, accept_loss=True), *rest)

    return patched(Recovery, __init__=accepts)


@planted(THREE_LASTING, "storage away", seed=0)
def who_is_not_known_is_one_server() -> AbstractContextManager[None]:
    """A disk that was never reached has the place of all such disks: once nobody serves one, none of them is asked."""
    right, nowhere = RemoteDisk._connect, ("", 0)

    def connect(self: RemoteDisk, channel: CommandChannel, hello: Hello) -> None:
        if self._where() is None:
            raise ChannelLost("nobody serves it", nowhere)
        right(self, channel, hello)

    def quiet(self: RemoteDisk) -> str:
        address = self._where() if self.reached else None
        until, why = self._silent.get(nowhere if address is None else (address.host, address.port), (0.0, ""))
        return why if until > self._clock.monotonic() else ""

    return patched(RemoteDisk, _connect=connect, _quiet=quiet)
