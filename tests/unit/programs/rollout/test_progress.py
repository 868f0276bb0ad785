"""The machine of a rollout, with environments that answer at once and a clock of the test's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncpoint.programs.rollout.analysis import ReleaseJudgement
from syncpoint.programs.rollout.progress import (
    DONE,
    ROLLED_BACK,
    ROLLING_BACK,
    Restart,
    RolloutLook,
    RolloutState,
    begin,
    decide,
    excessive,
    taken_over,
)
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, PRODUCTION
from tests.kit.rollout_plans import FakeEnvironment, planned

pytestmark = pytest.mark.shows("rollouts")

GOOD = ReleaseJudgement()


class Driven:
    """A rollout whose environments are in the hands of a test."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.plan = planned(folder, **changes)
        self.environments = {name: FakeEnvironment(self.plan, name) for name in ENVIRONMENTS}
        self.now, self.judged, self.failed, self.aborted = 1000.0, GOOD, "", ""
        self.too_much = ""
        self.state = begin(self.plan, "digest", self.look(), "me")

    def look(self) -> RolloutLook:
        return RolloutLook(
            self.now,
            {name: one.reports() for name, one in self.environments.items()},
            {name: list(one.problems) for name, one in self.environments.items()},
            self.judged if getattr(self, "state", None) is not None and self.state.deployed else None,
            too_much=self.too_much,
            failed=self.failed,
            aborted=self.aborted,
        )

    def step(self, seconds: float = 10.0) -> Restart | None:
        """One look, after some seconds; a restart that is asked for works at once."""
        self.now += seconds
        self.state, restart = decide(self.plan, self.state, self.look())
        if restart is not None:
            self.environments[restart.environment].running[restart.process] = restart.assigned
        return restart

    def until(self, step: str, looks: int = 200) -> None:
        for _ in range(looks):
            if self.state.step == step and self.state.deployed:
                return
            self.step()
        raise AssertionError(f"not in {step}: {self.state.step}, {self.state.waits_for}, {self.state.history[-3:]}")

    def finish(self, looks: int = 400) -> None:
        for _ in range(looks):
            if self.state.over:
                return
            self.step()
        raise AssertionError(f"not over: {self.state}")

    def versions(self, environment: str) -> set[str]:
        return {one.version for one in self.environments[environment].running.values()}


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    return Driven(tmp_path)


def test_a_good_release_goes_through_all_steps_in_their_order(driven: Driven) -> None:
    driven.finish()
    assert driven.state.state == DONE
    assert all(driven.versions(name) == {"2.0"} for name in ENVIRONMENTS)
    begins = [text.partition(":")[0] for _, text in driven.state.history if text.endswith(": started")]
    assert begins == ["test", "staging", "soak", "canary", "stage 50%", "stage 100%"]


def test_one_process_at_a_time_and_none_before_the_one_before_reports(driven: Driven) -> None:
    first = driven.step()
    assert first is not None
    driven.environments[first.environment].running[first.process] = driven.plan.before("test")  # not there yet
    assert driven.step(1) is None
    assert "does not report version 2.0" in driven.state.waits_for
    driven.environments[first.environment].running[first.process] = first.assigned
    second = driven.step(1)
    assert second is not None
    assert second.process != first.process


def test_production_is_left_alone_until_test_and_staging_have_soaked(driven: Driven) -> None:
    driven.until("soak")
    assert driven.versions(PRODUCTION) == {"1.0"}
    soaking = driven.now
    driven.until("canary")
    assert driven.now - soaking >= 100
    released = {name for name, one in driven.environments[PRODUCTION].running.items() if one.version == "2.0"}
    assert released == {"taker-4", "giver-4", "proxy-4"}


def test_time_that_nobody_watched_does_not_count(driven: Driven) -> None:
    driven.until("soak")
    driven.step(100_000.0)
    assert driven.state.step == "soak"
    assert driven.state.watched_s <= 40


def test_a_clock_that_is_set_back_takes_nothing_away(driven: Driven) -> None:
    driven.until("soak")
    driven.step()
    watched = driven.state.watched_s
    driven.step(-5000.0)
    assert driven.state.watched_s == watched


def test_too_little_traffic_waits_and_is_never_good(driven: Driven) -> None:
    driven.judged = ReleaseJudgement(lacking=("with the release: 3 of 100 client calls (proxy)",))
    driven.until("soak")
    for _ in range(500):
        driven.step()
    assert driven.state.step == "soak"
    assert "too little traffic" in driven.state.waits_for
    driven.judged = GOOD
    driven.step()
    assert driven.state.step == "canary"


@pytest.mark.parametrize("step", ["soak", "canary", "stage 50%", "stage 100%"])
def test_a_breach_in_any_step_leads_back_to_what_ran_before(driven: Driven, step: str) -> None:
    driven.until(step)
    driven.judged = ReleaseJudgement(breaches=("Publisher.Publish fails",))
    driven.step()
    assert driven.state.state == ROLLING_BACK
    driven.finish()
    assert driven.state.state == ROLLED_BACK
    assert "Publisher.Publish fails" in driven.state.reason
    assert all(driven.versions(name) == {"1.0"} for name in ENVIRONMENTS)


def test_the_way_back_begins_in_production(driven: Driven) -> None:
    driven.until("canary")
    driven.judged = ReleaseJudgement(breaches=("bad",))
    driven.step()
    first = driven.step()
    assert first is not None
    assert first.environment == PRODUCTION


def test_a_process_that_does_not_start_leads_back_at_once(driven: Driven) -> None:
    driven.until("soak")
    while (restart := driven.step()) is None or restart.environment != PRODUCTION:
        pass
    driven.environments[PRODUCTION].down.add(restart.process)
    driven.failed = "production: taker-4 could not be restarted: refused its settings"
    driven.step()
    driven.failed = ""
    assert driven.state.state == ROLLING_BACK
    assert "refused its settings" in driven.state.reason
    back = driven.step()
    assert back is not None
    assert back.process == restart.process  # it is down, and was this rollout's
    driven.environments[PRODUCTION].down.clear()
    driven.finish()
    assert driven.versions(PRODUCTION) == {"1.0"}


def test_a_process_that_never_reports_its_release_leads_back(driven: Driven) -> None:
    restart = driven.step()
    assert restart is not None
    driven.environments["test"].running[restart.process] = driven.plan.before("test")
    driven.step(30)
    assert driven.state.state == "running"
    driven.step(31)
    assert driven.state.state == ROLLING_BACK


def test_a_released_process_that_dies_while_watched_leads_back_when_it_stays_away(driven: Driven) -> None:
    driven.until("canary")
    driven.environments[PRODUCTION].down.add("proxy-4")
    assert driven.step() is None
    assert driven.state.state == "running"
    watched = driven.state.watched_s
    driven.step(61)
    assert driven.state.state == ROLLING_BACK
    assert driven.state.watched_s == watched


def test_trouble_of_others_is_waited_out_and_counts_for_nothing(driven: Driven) -> None:
    driven.until("canary")
    watched = driven.state.watched_s
    driven.environments[PRODUCTION].problems = ["proxy-1 is down"]
    for _ in range(100):
        assert driven.step() is None
    assert driven.state.state == "running"
    assert driven.state.watched_s == watched
    assert "proxy-1 is down" in driven.state.waits_for
    driven.environments[PRODUCTION].problems = []
    driven.finish()
    assert driven.state.state == DONE


def test_mixed_versions_are_no_trouble(driven: Driven) -> None:
    driven.environments[PRODUCTION].problems = ["versions are mixed: 1 of 1.0, 2 of 2.0"]
    driven.finish()
    assert driven.state.state == DONE


def test_settings_unlike_those_of_staging_lead_back(driven: Driven) -> None:
    driven.environments[PRODUCTION].given = {"2.0": {"auth": True}}
    for _ in range(200):
        driven.step()
        if driven.state.over:
            break
    assert driven.state.state == ROLLED_BACK
    assert "auth is missing in staging and True in production" in driven.state.reason


def test_a_canary_that_does_too_much_leads_back(driven: Driven) -> None:
    driven.until("canary")
    driven.too_much = excessive({"proxy": 0.7}, {"proxy": 0.6}, 0.5)
    assert "proxy 70%" in driven.too_much
    driven.step()
    assert driven.state.state == ROLLING_BACK
    assert excessive({"proxy": 0.7}, {"proxy": 0.4}, 0.5) == ""


def test_an_abort_leads_back_from_any_step(driven: Driven) -> None:
    driven.until("stage 50%")
    driven.aborted = "somebody: complaints"
    driven.step()
    driven.finish()
    assert driven.state.state == ROLLED_BACK
    assert driven.state.reason == "aborted by somebody: complaints"


def test_a_slow_answer_of_a_process_restarts_nothing(driven: Driven) -> None:
    driven.until("soak")
    driven.environments["staging"].down.add("proxy-1")
    assert driven.step() is None
    driven.environments["staging"].down.clear()
    assert driven.step() is None
    assert driven.state.state == "running"


def test_forwarders_of_the_canary_get_weights_and_lose_them_again(tmp_path: Path) -> None:
    driven = Driven(tmp_path, canary={"watch": "50s", "share": 0.1})
    driven.until("canary")
    steered = driven.environments[PRODUCTION].running["taker-4"]
    assert steered != driven.environments[PRODUCTION].running["taker-1"]
    assert driven.plan.fleets[PRODUCTION].weights({"taker-4"}, 0.1) == {"taker-4": 0.333}
    driven.until("stage 50%")
    assert driven.environments[PRODUCTION].running["taker-4"].source != steered.source


def test_the_state_is_the_same_once_written_and_read(driven: Driven) -> None:
    driven.until("canary")
    driven.step()
    state = replace(driven.state, reference=(("clients", "Publisher.Publish", (0.1, 1.0), (5.0, 1.0, 0.0)),))
    assert RolloutState.decode(json.loads(json.dumps(state.encode()))) == state
    assert RolloutState.decode({**json.loads(json.dumps(state.encode())), "of_a_later_version": 1}) == state


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whenever_a_controller_dies_the_next_one_ends_it_rightly(tmp_path: Path, data: st.DataObject) -> None:
    """It dies after writing the state down, with the restart done, half done (the process is down) or not done."""
    driven = Driven(tmp_path)
    turn = data.draw(st.sampled_from(["", "breach", "abort"]))
    turn_at = data.draw(st.integers(0, 60))
    deaths = data.draw(st.sets(st.integers(0, 80), max_size=6))
    for number in range(600):
        if driven.state.over:
            break
        if number == turn_at and turn == "abort":
            driven.aborted = "somebody"
        if number >= turn_at and turn == "breach":
            driven.judged = ReleaseJudgement(breaches=("bad",))
        driven.now += 10
        driven.state, restart = decide(driven.plan, driven.state, driven.look())
        dies = number in deaths
        done = data.draw(st.sampled_from(["whole", "half", "none"])) if dies and restart is not None else "whole"
        if restart is not None:
            environment = driven.environments[restart.environment]
            if done == "half":
                environment.down.add(restart.process)
            elif done == "whole":
                environment.down.discard(restart.process)
                environment.running[restart.process] = restart.assigned
        if dies:
            driven.state = taken_over(driven.state, f"controller {number}", driven.now)
    assert driven.state.over, driven.state
    version = "2.0" if driven.state.state == DONE else "1.0"
    assert all(driven.versions(name) == {version} for name in ENVIRONMENTS)
    assert not any(one.down for one in driven.environments.values())
    if turn == "":
        assert driven.state.state == DONE
