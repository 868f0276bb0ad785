"""Headroom: what losing a zone would mean for those that are left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from syncpoint.base.model.cluster import Member
from syncpoint.cluster.control.headroom import RoleHeadroom, headroom


def view(*members: tuple[str, str, float | None], draining: str = "", rack: bool = False) -> object:
    """(name, place, share of a core)."""
    made = {}
    for name, place, _ in members:
        zone, in_rack = ("", place) if rack else (place, "")
        made[name] = SimpleNamespace(value=Member(name, ("publish-forwarder",), "", 1, "r", zone, in_rack))
    loads = {name: SimpleNamespace(value={"cpu": busy}) for name, _, busy in members if busy is not None}
    return SimpleNamespace(
        members=SimpleNamespace(items=made),
        loads=SimpleNamespace(items=loads),
        draining=lambda member: member.name == draining,
    )


def rows(found: object) -> dict[str, RoleHeadroom]:
    return {one.domain: one for one in headroom(found)}  # type: ignore[arg-type]


def test_what_the_lost_ones_carried_goes_to_those_that_are_left() -> None:
    found = rows(view(("a", "x", 0.6), ("b", "y", 0.3), ("c", "z", 0.3)))
    assert found["zone x"].busy_after == pytest.approx(0.6)
    assert not any(one.short for one in found.values())
    found = rows(view(("a", "x", 0.6), ("b", "x", 0.6), ("c", "y", 0.3)))
    assert found["zone x"].short
    assert not found["zone y"].short


def test_nobody_left_is_short_whatever_is_carried() -> None:
    found = rows(view(("a", "x", 0.0), ("b", "y", 0.0), draining="b"))
    assert found["zone x"].short
    assert not found["zone y"].short


def test_racks_count_where_no_zone_is_named_and_one_place_is_no_domain() -> None:
    assert set(rows(view(("a", "k1", 0.1), ("b", "k2", 0.1), rack=True))) == {"rack k1", "rack k2"}
    assert not rows(view(("a", "x", 0.1), ("b", "x", 0.1)))


def test_who_does_not_report_is_unknown() -> None:
    assert rows(view(("a", "x", None), ("b", "y", 0.1)))["zone x"].unknown == 1
