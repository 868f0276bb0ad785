"""The product's slow times, scaled down: what is done every half minute happens several times in a life of seconds.

Only times that no promise depends on: how often something is checked, not how long something holds; and after how many
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import ModuleType
from typing import Any

from syncpoint.broker.publish.chain import host
from syncpoint.broker.publish.keep import upkeep
from syncpoint.front.api import options_admin, rule_admin

TIMES: tuple[tuple[ModuleType, str, float], ...] = (
    (host, "TIDY_S", 3.0),
    (upkeep, "CHECKPOINT_S", 4.0),
    (rule_admin, "FORGET_AT", 2),
    (options_admin, "DUPLICATE_WINDOW_SECONDS_MIN", 1),
)


@contextmanager
def patched(owner: Any, **attributes: Any) -> Iterator[None]:
    """Set attributes for a while, of a class also such as it inherits."""
    before = {name: owner.__dict__[name] for name in attributes if name in owner.__dict__}
    assert all(hasattr(owner, name) for name in attributes), "there is nothing of that name"
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


@contextmanager
def scaled() -> Iterator[None]:
    """For the time of one life."""
    with ExitStack() as stack:
        for owner, name, seconds in TIMES:
            stack.enter_context(patched(owner, **{name: seconds}))
        yield


def quick_checkpoints() -> AbstractContextManager[None]:
    """Checkpoints several times a second: what is forgotten is soon gone from the log, too."""
    return patched(upkeep, CHECKPOINT_S=0.3)
