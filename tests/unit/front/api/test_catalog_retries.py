"""A method that another process's change makes run again is asked again who may call it."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Conflict, PermissionDenied
from syncpoint.catalog.access.authors import called_by
from syncpoint.catalog.access.tokens import ANONYMOUS
from syncpoint.front.api.catalog_retries import checked_again
from tests.unit.front.api.conftest import FakeControlPlane


@pytest.mark.parametrize("refused_at", [1, 2, 0])
def test_who_may_call_is_judged_when_the_catalog_has_caught_up_and_after_each_conflict(
    plane: FakeControlPlane, refused_at: int
) -> None:
    judged, runs = 0, 0

    def judge() -> None:
        nonlocal judged
        judged += 1
        if judged == refused_at:
            raise PermissionDenied("no")

    async def method(request: str) -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Conflict("another was first")
        return request

    with called_by(ANONYMOUS, judge):
        if refused_at:
            with pytest.raises(PermissionDenied):
                asyncio.run(checked_again(plane, method)("x"))
        else:
            assert asyncio.run(checked_again(plane, method)("x")) == "x"
    assert runs == (2 if not refused_at else refused_at - 1)
