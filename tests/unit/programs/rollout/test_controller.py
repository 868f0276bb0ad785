"""The controller over a metadata store and environments that do at once what they are asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import Aborted, FailedPrecondition
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.catalog.metadata.layout import ROLLOUT_CONTROLLER, ROLLOUT_STATE
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.programs.rollout.controller import RolloutController
from syncpoint.programs.rollout.counters import ProcessCounters
from syncpoint.programs.rollout.progress import DONE, ROLLED_BACK, RolloutState
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS
from syncpoint.programs.rollout.rollout_store import RolloutStore, ask_to_abort, driven_by, read_state
from tests.kit.rollout_plans import COMMIT, FakeEnvironment, counted, planned

pytestmark = pytest.mark.shows("rollouts")


class Rolled:
    """One rollout.yaml, its environments, and the metadata; `sleep` lets the clock go on."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.plan = planned(folder, **changes)
        passed = {"version": "2.0", "commit": COMMIT, "changed": False, "whole": True, "outcome": "passed"}
        (folder / "result.json").write_text(json.dumps({**passed, "parts": {"unit": "passed"}}))
        self.environments = {name: FakeEnvironment(self.plan, name) for name in ENVIRONMENTS}
        self.now, self.said = 1000.0, list[str]()
        self.on_sleep: Callable[[], Any] = lambda: None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LocalShared]:
        clock = SystemClock()
        store = LocalShared(MemoryStore(clock=clock, random=SystemRandom()), clock)
        try:
            yield store
        finally:
            await store.close()

    def controller(self, store: LocalShared, who: str = "first") -> RolloutController:
        return RolloutController(
            self.plan,
            RolloutStore(store, who),
            self.environments,
            clock=lambda: self.now,
            report=self.said.append,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)
        found = self.on_sleep()
        if asyncio.iscoroutine(found):
            await found

    def start(self) -> RolloutState:
        async def run() -> RolloutState:
            async with self.opened() as store:
                return await self.controller(store).start()

        return asyncio.run(run())

    def versions(self) -> set[str]:
        return {assigned.version for one in self.environments.values() for assigned in one.running.values()}


def spoil(rolled: Rolled, monkeypatch: pytest.MonkeyPatch, *, only: str, work: ProcessCounters) -> None:
    """A process of production with the release does this from look to look."""
    production = rolled.environments["production"]
    usual = production.does

    def does(name: str) -> ProcessCounters:
        return work if name == only and production.running[name].version == "2.0" else usual(name)

    monkeypatch.setattr(production, "does", does)


def test_a_good_release_gets_to_the_end(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)
    state = rolled.start()
    assert state.state == DONE, state
    assert rolled.versions() == {"2.0"}
    assert any("canary: passed (share of all work: proxy 25%" in one for one in rolled.said)
    assert state.reference


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (counted(100, failed=30), "Publisher.Publish fails"),
        (counted(100, slow=20), "Publisher.Publish is slow"),
        (counted(100, again=40), "more messages are redelivered"),
        (counted(100, damaged=1), "damaged places"),
    ],
    ids=["errors", "p99", "redeliveries", "corruption"],
)
def test_a_canary_that_is_worse_goes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: ProcessCounters, words: str
) -> None:
    rolled = Rolled(tmp_path)
    spoil(rolled, monkeypatch, only="proxy-4", work=work)
    state = rolled.start()
    assert state.state == ROLLED_BACK
    assert words in state.reason
    assert state.step == "canary"
    assert rolled.versions() == {"1.0"}
    others = [name for name, _ in rolled.environments["production"].restarted if not name.endswith("-4")]
    assert others == []


def test_a_canary_that_ends_and_begins_again_goes_back(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)
    production = rolled.environments["production"]

    def crash() -> None:
        if production.running["proxy-4"].version == "2.0" and rolled.now > 1130:
            production.work["proxy-4"] = counted(1, started=99.0 + rolled.now)

    rolled.on_sleep = crash
    state = rolled.start()
    assert state.state == ROLLED_BACK
    assert "proxy-4 restarted unexpectedly" in state.reason


def test_a_regression_of_the_last_stage_is_found_by_earlier_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = Rolled(tmp_path)
    spoil(rolled, monkeypatch, only="proxy-3", work=counted(100, slow=90))
    state = rolled.start()
    assert state.state == ROLLED_BACK
    assert state.step == "stage 100%"
    assert rolled.versions() == {"1.0"}


def test_a_version_that_does_not_start_goes_back(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)
    rolled.environments["staging"].refused = {"2.0"}
    state = rolled.start()
    assert state.state == ROLLED_BACK
    assert state.step == "staging"
    assert "it ended while starting" in state.reason
    assert rolled.environments["production"].restarted == []
    assert not rolled.environments["staging"].down


def test_no_traffic_waits_until_there_is_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled = Rolled(tmp_path)
    production = rolled.environments["production"]
    monkeypatch.setattr(production, "does", lambda name: counted(100 if rolled.now > 5000 else 0))
    state = rolled.start()
    assert state.state == DONE
    assert state.ended > 5000
    assert any("too little traffic to judge" in one for one in rolled.said)


def test_a_refused_rollout_changes_nothing(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)
    (tmp_path / "result.json").unlink()
    with pytest.raises(FailedPrecondition, match="does not exist"):
        rolled.start()
    assert all(one.restarted == [] for one in rolled.environments.values())


def test_whoever_is_replaced_does_nothing_more(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)

    async def run() -> None:
        async with rolled.opened() as store:
            first = rolled.controller(store)

            async def lose_the_lease() -> None:
                if rolled.now > 1100:
                    await store.txn([], [_gone()])

            rolled.on_sleep = lose_the_lease
            with pytest.raises(Aborted, match="it has stopped"):
                await first.start()
            done = sum(len(one.restarted) for one in rolled.environments.values())
            rolled.on_sleep = lambda: None
            state = await rolled.controller(store, "second").resume()
            assert state.state == DONE
            assert state.controller == "second"
            assert sum(len(one.restarted) for one in rolled.environments.values()) > done

    asyncio.run(run())
    assert rolled.versions() == {"2.0"}


def _gone() -> Any:
    from syncpoint.catalog.metadata.contract import Delete

    return Delete(ROLLOUT_CONTROLLER)


def test_two_controllers_at_once_are_refused_and_a_second_rollout_too(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)

    async def run() -> None:
        async with rolled.opened() as store:
            refused = list[str]()

            async def try_too() -> None:
                if not refused:
                    with pytest.raises(FailedPrecondition) as caught:
                        await rolled.controller(store, "second").resume()
                    refused.append(caught.value.message)
                    assert await driven_by(store) == "first"

            rolled.on_sleep = try_too
            assert (await rolled.controller(store).start()).state == DONE
            assert refused == ["first already controls a rollout of this cluster"]
            with pytest.raises(FailedPrecondition, match="it is done"):
                await RolloutController(
                    rolled.plan, _unclaimed(store), rolled.environments, clock=lambda: 0.0, report=print
                ).resume()

    def _unclaimed(store: LocalShared) -> RolloutStore:
        store.store.txn([], [_gone()])
        return RolloutStore(store, "third")

    asyncio.run(run())


def test_an_abort_is_followed_by_the_controller(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)

    async def run() -> RolloutState:
        async with rolled.opened() as store:

            async def ask() -> None:
                state = await read_state(store)
                if state is not None and state.step == "canary" and state.deployed:
                    await ask_to_abort(store, "ann: complaints")

            rolled.on_sleep = ask
            state = await rolled.controller(store).start()
            kept = await store.get(ROLLOUT_STATE)
            assert kept is not None
            assert RolloutState.decode(json.loads(kept.value)) == state
            return state

    state = asyncio.run(run())
    assert (state.state, state.reason) == (ROLLED_BACK, "aborted by ann: complaints")
    assert rolled.versions() == {"1.0"}


def test_another_file_than_it_was_begun_with_is_refused(tmp_path: Path) -> None:
    rolled = Rolled(tmp_path)

    async def run() -> None:
        async with rolled.opened() as store:

            async def die() -> None:
                raise KeyboardInterrupt

            rolled.on_sleep = die
            with pytest.raises(KeyboardInterrupt):
                await rolled.controller(store).start()
            store.store.txn([], [_gone()])
            rolled.on_sleep = lambda: None
            rolled.plan = planned(tmp_path, look="11s")
            with pytest.raises(FailedPrecondition, match="restore these files"):
                await rolled.controller(store).resume()

    asyncio.run(run())
