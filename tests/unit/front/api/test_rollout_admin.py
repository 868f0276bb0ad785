"""What is shown of a rollout is what its controller wrote; an abort goes to a controller that lives, or is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import ROLLOUT_STATE
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.front.api.rollout_admin import RolloutAdmin
from syncpoint.programs.rollout.progress import RestartedProcess, RolloutState
from syncpoint.programs.rollout.rollout_store import RolloutStore
from syncpoint.wire.protobuf.messages import admin

STATE = RolloutState(
    "october",
    "2.0",
    "0123456789abcdef",
    "d1",
    step="canary",
    steps=("test", "staging", "soak", "canary", "stage 100%"),
    deployed=True,
    watched_s=12.5,
    watch_s=60.0,
    begun=1_790_000_000.0,
    looked=1_790_000_100.0,
    restarting=RestartedProcess("production", "proxy-2", 1_790_000_050.0),
    waits_for="too little happens",
    shares={"proxy": 0.47},
    figures={"released_calls": 50.0, "others_calls": 60.0},
    problems={"test": ("a disk is away",)},
    history=((1_790_000_000.0, "test: begins"), (1_790_000_090.5, "canary: begins")),
)
Work = Callable[[RolloutAdmin, LocalShared], Awaitable[None]]


def over_a_store(work: Work) -> None:
    clock = ManualClock()
    shared = LocalShared(MemoryStore(clock=clock, random=SeededRandom(1)), clock)
    asyncio.run(_with(work, shared))


async def _with(work: Work, shared: LocalShared) -> None:
    await work(RolloutAdmin(None, shared), shared)  # type: ignore[arg-type]  # the control plane only serves


async def put(shared: LocalShared, state: RolloutState) -> None:
    await shared.txn([], [Put(ROLLOUT_STATE, json.dumps(state.encode()).encode())])


def test_all_that_a_controller_wrote_is_shown() -> None:
    async def work(asked: RolloutAdmin, shared: LocalShared) -> None:
        with pytest.raises(NotFound, match="No rollout has begun"):
            await asked.get_rollout(admin.GetRolloutRequest())
        driver = RolloutStore(shared, "ana at ops-1")
        await driver.claim()
        await driver.begin(STATE)
        found = await asked.get_rollout(admin.GetRolloutRequest())
        assert (found.name, found.version, found.state, found.step) == ("october", "2.0", "running", "canary")
        assert list(found.steps) == list(STATE.steps)
        assert (found.watched.ToMilliseconds(), found.watch.ToMilliseconds()) == (12_500, 60_000)
        assert (found.begin_time.ToSeconds(), found.HasField("end_time")) == (1_790_000_000, False)
        assert (found.restarting, found.restart_time.ToSeconds()) == ("production/proxy-2", 1_790_000_050)
        assert (dict(found.shares), dict(found.figures)) == (STATE.shares, STATE.figures)
        assert list(found.problems) == ["test: a disk is away"]
        assert [(one.time.ToMilliseconds(), one.text) for one in found.events] == [
            (1_790_000_000_000, "test: begins"),
            (1_790_000_090_500, "canary: begins"),
        ]
        assert (found.controller, found.waits_for) == ("ana at ops-1", "too little happens")

    over_a_store(work)


def test_an_abort_reaches_the_controller_or_says_why_not() -> None:
    async def work(asked: RolloutAdmin, shared: LocalShared) -> None:
        abort = partial(asked.abort_rollout, admin.AbortRolloutRequest(by="ben", reason="complaints"))
        with pytest.raises(NotFound):
            await abort()
        await put(shared, STATE)
        with pytest.raises(FailedPrecondition, match="syncpoint rollout abort FILE"):
            await abort()  # nobody drives it, nobody would heed it
        driver = RolloutStore(shared, "ana at ops-1")
        await driver.claim()
        assert (await abort()).aborted_by == "ben: complaints"
        assert await driver.aborted() == "ben: complaints"
        await put(shared, replace(STATE, state="rolled back", ended=1_790_000_200.0, reason="complaints"))
        found = await asked.get_rollout(admin.GetRolloutRequest())
        assert (found.aborted_by, found.end_time.ToSeconds()) == ("", 1_790_000_200)
        with pytest.raises(FailedPrecondition, match="is rolled back"):
            await abort()

    over_a_store(work)
