"""Bugs planted into storage: opening, sealing, joining and admission. Listed in `planted`.

Each patch takes out what a rule of the protocol asks for, in the shipped modules as they are now.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from syncpoint.storage.recovery import recover, repair
from syncpoint.storage.recovery.recover import Recovery
from syncpoint.testing.simulation.planted_again import together
from syncpoint.testing.simulation.scaled import patched


def holes_are_sealed() -> AbstractContextManager[None]:
    """What an opening has found is sealed without a further look, though a machine may have lost it since."""
    right = repair.rebuild

    def rebuild(*arguments: Any, **options: Any) -> Any:
        return right(*arguments, **options | {"whole": False})

    return together(
        patched(repair, _Check=_Unchecked),
        patched(recover, rebuild=rebuild),
        patched(Recovery, _refuse_restarted=lambda self, disk: None),
    )


class _Unchecked:
    """Takes whatever is there."""

    complete = True

    def __init__(self, *arguments: Any) -> None:
        """Of no segment in particular."""

    def take(self, data: bytes) -> None:
        """Good enough."""

    def end(self) -> None:
        """So is the end."""
