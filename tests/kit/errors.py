"""What a call fails with, as a value."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from syncpoint.base.model.errors import SyncpointError


async def failing(work: Awaitable[Any]) -> SyncpointError:
    """The error that something raises."""
    with pytest.raises(SyncpointError) as caught:
        await work
    return caught.value
