"""Snapshots of exchanged subscriptions between two sites: real servers, the exchange of `federation run`, and copies
made as the job on Spark makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from syncpoint.testing.rigs.official import bodies, eventually
from tests.integration.conftest import Space
from tests.integration.test_ack_exchange import KEPT, Sites, rest

pytestmark = pytest.mark.shows("ack-exchange")


@pytest.fixture
def two(house: str, tmp_path: Path) -> Iterator[Callable[..., Sites]]:
    made: list[Sites] = []

    def make(**topic: Any) -> Sites:
        made.append(Sites(Space(house), Space(house), tmp_path, **topic))
        return made[-1]

    yield make
    for one in made:
        one.close()
        for space in one.spaces:
            space.close()


def named(one: Sites, site: int, short: str = "nightly") -> str:
    return one.spaces[site].path("snapshots", short)


def take(one: Sites, site: int, short: str = "nightly") -> Any:
    return one.spaces[site].api.create_snapshot(
        {"name": named(one, site, short), "subscription": one.subscriptions[site], "labels": {"by": "night"}}
    )


def seek(one: Sites, site: int, short: str = "nightly") -> None:
    one.spaces[site].api.seek({"subscription": one.subscriptions[site], "snapshot": named(one, site, short)})


def has(one: Sites, site: int, short: str = "nightly") -> bool:
    space = one.spaces[site]
    found = space.api.list_snapshots({"project": space.path("snapshots", "x").rpartition("/snapshots/")[0]}).snapshots
    return named(one, site, short) in [shown.name for shown in found]


def notes(one: Sites) -> set[str]:
    return {note for state in one.rounds.states for note in state.notes}


def numbers(*found: int) -> set[bytes]:
    return {b"%d" % number for number in found}


def test_a_snapshot_holds_the_same_at_the_other_site(two: Callable[..., Sites]) -> None:
    """Taken with acknowledgements on their way, of messages that are copied before and after it; then a seek there."""
    one = two()
    one.publish(*range(10))
    one.copy()
    one.acknowledge(0, 10, lambda data: int(data) % 2 == 0)
    taken = take(one, 0)
    one.acknowledge(0, 5)  # after the snapshot: these are brought, and the copy keeps its own
    one.publish(10)
    one.quiesce()
    copied = one.spaces[1].api.get_snapshot({"snapshot": named(one, 1)})
    assert (copied.expire_time, dict(copied.labels)) == (taken.expire_time, {"by": "night"})
    assert rest(one.spaces[1], one.subscriptions[1]) == set()
    seek(one, 1)
    one.copy()
    assert rest(one.spaces[1], one.subscriptions[1]) == numbers(1, 3, 5, 7, 9, 10)
    one.quiesce()
    assert rest(one.spaces[0], one.subscriptions[0]) == set()


def test_what_was_acknowledged_is_waited_for_until_it_is_copied(two: Callable[..., Sites]) -> None:
    one = two()
    one.publish(0)
    one.copy()
    one.quiesce()
    one.publish(1, 2, 3)
    one.acknowledge(0, 4, lambda data: int(data) == 2)
    take(one, 0)
    one.quiesce()
    assert (has(one, 1), notes(one)) == (False, {"nightly: 2 messages before it are not at b yet"})
    one.copy()
    eventually(lambda: one.rounds.step() is not None and has(one, 1))
    assert notes(one) == set()
    seek(one, 1)
    assert rest(one.spaces[1], one.subscriptions[1]) == numbers(0, 1, 3)


def test_a_deletion_follows_and_one_of_the_same_name_stays(two: Callable[..., Sites]) -> None:
    one = two()
    one.publish(0)
    one.copy()
    take(one, 0)
    one.quiesce()
    one.spaces[1].api.delete_snapshot({"snapshot": named(one, 1)})  # the copy
    one.quiesce()
    assert not has(one, 0)
    take(one, 0)
    one.quiesce()
    assert has(one, 1)
    one.spaces[0].api.delete_snapshot({"snapshot": named(one, 0)})
    one.acknowledge(1, 1)
    one.spaces[1].api.delete_snapshot({"snapshot": named(one, 1)})
    take(one, 1)  # anew, before anybody knows that the earlier one is gone
    take(one, 0)
    one.quiesce()
    assert (has(one, 0), has(one, 1)) == (True, True)
    assert notes(one) == {"nightly: b has another one of this name", "nightly: a has another one of this name"}
    seek(one, 1)
    assert rest(one.spaces[1], one.subscriptions[1]) == set()


def test_a_copy_that_would_lack_messages_is_not_made(two: Callable[..., Sites]) -> None:
    one = two()
    one.publish(*range(4))
    one.copy()
    one.acknowledge(1, 4, lambda data: int(data) < 2)  # at b, where nothing keeps them
    take(one, 0)
    one.quiesce()
    assert not has(one, 1)
    assert notes(one) == {"nightly: 2 of its messages may be gone at b: they were acknowledged there, or never copied"}
    kept = two(**KEPT)
    kept.publish(*range(4))
    kept.copy()
    kept.acknowledge(1, 4, lambda data: int(data) < 2)
    take(kept, 0)
    kept.quiesce()
    seek(kept, 1)
    assert set(bodies(kept.spaces[1].pull(kept.subscriptions[1], 4))) == numbers(0, 1, 2, 3)


def test_after_the_loss_of_a_site_the_other_one_goes_back_to_the_snapshot(boot: Any, tmp_path: Path) -> None:
    """It is taken while the other site does not answer, and acknowledgements follow; then the first one is lost."""
    servers = [boot(), boot()]
    one = Sites(Space(servers[0].endpoint), Space(servers[1].endpoint), tmp_path)
    one.publish(*range(6))
    one.copy()
    one.quiesce()
    servers[1].kill9()
    one.acknowledge(0, 6, lambda data: int(data) < 2)
    take(one, 0)
    assert one.acknowledge(0, 4) == numbers(2, 3, 4, 5)
    one.rounds.step()
    assert any(state.why for state in one.rounds.states)
    servers[1].start()
    one.quiesce()
    servers[0].kill9()
    assert rest(one.spaces[1], one.subscriptions[1]) == set()
    seek(one, 1)
    assert rest(one.spaces[1], one.subscriptions[1]) == numbers(2, 3, 4, 5)
    servers[0].start()
    one.quiesce()
    assert rest(one.spaces[0], one.subscriptions[0]) == set()
    one.close()
    for space in one.spaces:
        space.close()
