"""Builds of different ages agree on what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import FORMAT
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.node.cluster.formats import Agreed, Build, Formats, finalize
from syncpoint.testing.rigs.plain_tests import plain_test

OLD, BOTH, NEW = Build("1.0", 1, 1), Build("2.0", 1, 2), Build("3.0", 2, 3)
CLOCK = SystemClock()


def run(scenario: Callable[[LocalShared], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await scenario(LocalShared(MemoryStore(clock=CLOCK, random=SystemRandom()), CLOCK))

    asyncio.run(all_of_it())


async def join(store: LocalShared, build: Build, *, founding: bool = False) -> Formats:
    formats = Formats(store, build)
    await formats.start(founding=founding)
    return formats


async def member(store: LocalShared, name: str, build: Build) -> None:
    me = Member(
        name, ("proxy",), "h:1", 1, version=build.version, oldest_format=build.oldest, newest_format=build.newest
    )
    await store.txn([], [Put(f"members/{name}", me.encode())])


@plain_test(run)
async def test_a_new_cluster_writes_what_its_first_process_can(store: LocalShared) -> None:
    formats = await join(store, BOTH, founding=True)
    assert formats.finalized == 2
    assert formats.may_write(2)
    with pytest.raises(FailedPrecondition, match=r"version 1\.0 reads format 1, but the cluster writes format 2"):
        await join(store, OLD)
    await formats.close()


@plain_test(run)
async def test_new_formats_wait_for_finalize_which_waits_for_the_last_old_member(store: LocalShared) -> None:
    old = await join(store, OLD, founding=True)
    formats = await join(store, BOTH)
    await member(store, "a", OLD)
    await member(store, "b", BOTH)
    assert not formats.may_write(2)
    with pytest.raises(FailedPrecondition, match=r"a \(version 1.0\)"):
        await finalize(store, BOTH)
    await old.check()
    await member(store, "a", BOTH)
    assert await finalize(store, BOTH) == (1, 2)
    await asyncio.sleep(0.05)
    assert formats.may_write(2)
    assert await finalize(store, BOTH) == (2, 2)
    with pytest.raises(FailedPrecondition, match="Install that version"):
        await old.check()
    with pytest.raises(FailedPrecondition, match=r"finalize` of that version"):
        await finalize(store, OLD)
    await old.close()
    await formats.close()


@plain_test(run)
async def test_a_build_that_is_too_new_says_what_to_do(store: LocalShared) -> None:
    old = await join(store, OLD, founding=True)
    with pytest.raises(
        FailedPrecondition, match="reads 1 and a later format on all processes, then `syncpoint cluster final"
    ):
        await join(store, NEW)
    await old.close()


@plain_test(run)
async def test_a_cluster_from_before_formats_is_of_the_first(store: LocalShared) -> None:
    formats = await join(store, BOTH)
    assert formats.finalized == 1
    await formats.close()


@plain_test(run)
async def test_who_joins_while_it_is_finalized_is_seen_or_sees(store: LocalShared) -> None:
    old = await join(store, OLD, founding=True)
    await store.txn([], [Put(FORMAT, Agreed(1, "1.0", proposed=2).encode())])
    with pytest.raises(FailedPrecondition):
        await old.check()
    assert await finalize(store, BOTH) == (1, 2)
    await old.close()
