"""Federations that programs share, over a catalog: bounds, who holds one, and what gives way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, ResourceExhausted
from syncpoint.catalog.metadata import shared_federations
from syncpoint.front.api import federation_admin
from syncpoint.front.api.federation_admin import STATE_BYTES_MAX, FederationAdmin
from syncpoint.wire.protobuf.messages import admin, well_known

pytestmark = pytest.mark.shows("federation")


class Desk:
    """Calls of programs for projects/shop."""

    def __init__(self, plane: Any) -> None:
        self.plane, self.admin = plane, FederationAdmin(plane)

    def hold(self, federation: str = "main", **fields: Any) -> Any:
        fields = {"holder": "p", "term": 1, "ttl": well_known.Duration(seconds=15), **fields}
        request = admin.HoldFederationRequest(project="projects/shop", federation=federation, **fields)
        return asyncio.run(self.admin.hold(request))

    def put(self, version: int, state: str) -> Any:
        request = admin.PutFederationStateRequest(project="projects/shop", federation="main")
        request.version, request.state = version, state
        return asyncio.run(self.admin.put_state(request))

    def get(self, federation: str = "main") -> Any:
        return asyncio.run(self.admin.get(admin.GetFederationRequest(project="projects/shop", federation=federation)))


@pytest.fixture
def desk(plane: Any) -> Desk:
    return Desk(plane)


def test_one_holds_until_its_time_is_up_or_a_greater_term_comes(desk: Desk) -> None:
    assert (desk.get().holder, desk.get().term) == ("", 0)
    assert desk.hold().holder == "p"
    assert desk.hold(holder="o").holder == "p", "of two that ask for one term the greater name holds"
    assert desk.hold(holder="q", term=2).holder == "q"
    assert desk.hold().holder == "q"
    assert 14 < desk.get().left.ToNanoseconds() / 1e9 <= 15
    assert desk.hold(holder="q", term=2, ttl=well_known.Duration()).left.seconds == 0
    assert desk.hold(holder="p", term=2).holder == "q", "whose term is not greater than the last one looks first"
    assert desk.hold(holder="p", term=3).holder == "p"


def test_the_newest_state_stays(desk: Desk) -> None:
    desk.hold()
    assert desk.put(2, "b").state == "b"
    assert desk.put(1, "z").state == "b"
    assert desk.put(2, "a").state == "b"
    assert desk.put(2, "c").state == "c"
    assert (desk.get().version, desk.get().holder) == (2, "p")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"holder": ""}, "holder"),
        ({"holder": "x" * 256}, "holder"),
        ({"term": 0}, "term"),
        ({"ttl": well_known.Duration(nanos=1)}, "ttl"),
        ({"ttl": well_known.Duration(seconds=3601)}, "ttl"),
        ({"federation": "a/b"}, "federations"),
    ],
)
def test_what_is_out_of_bounds_is_named(desk: Desk, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        desk.hold(**fields)
    with pytest.raises(InvalidArgument, match="state"):
        desk.put(1, "x" * (STATE_BYTES_MAX + 1))
    assert not desk.plane.catalog.settings_named(shared_federations.PREFIX)


def test_those_that_nobody_touches_for_a_month_give_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation_admin, "FEDERATIONS_MAX", 2)
    desk.hold("one")
    desk.hold("two")
    with pytest.raises(ResourceExhausted, match="already 2 federations"):
        desk.hold("three")
    assert desk.hold("two").holder == "p"
    desk.plane.clock.advance(32 * 86_400)
    desk.hold("two")
    assert desk.hold("three").holder == "p"
    assert desk.get("one").holder == ""
