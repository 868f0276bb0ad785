"""Test kit: a server in a test, for pytest, unittest and by hand; the distribution `syncpoint-testing` adds the rest.

`SyncpointContainer` and `SyncpointTestCase` are imported when they are named, so that importing this package costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncpoint.testing.container import SyncpointContainer
    from syncpoint.testing.test_case import SyncpointTestCase

__all__ = ["SyncpointContainer", "SyncpointTestCase"]

_WHERE = {"SyncpointContainer": "container", "SyncpointTestCase": "test_case"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
