"""The machine of epochs: runs, stages, decisions; and whatever happens, nothing lost and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from syncpoint.base.model.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound
from syncpoint.broker.pipeline.epoch_commits import CommitRequest, Decided, GapRefused, Repeated
from syncpoint.broker.pipeline.epochs import QUERY_NS, STALE_NS, EpochState
from syncpoint.broker.pipeline.links import PlannedRange
from syncpoint.broker.pipeline.records import RESULTS_MAX, RUNS_MAX, QueryRun
from tests.kit.epoch_book import NAME, Log, Server, ask

A, B, C = QueryRun("q", "a"), QueryRun("q", "b"), QueryRun("q", "c")


def test_runs_are_ordered_by_first_appearance_and_only_the_latest_may_write() -> None:
    server = Server()
    server.stage(A, 0, 0, "x", [1])
    server.stage(B, 0, 0, "x", [1])
    for call in (
        lambda: server.stage(A, 0, 1, "x", [2]),
        lambda: server.commit(ask(A, 0)),
        lambda: server.state.on_run(A, 0),
    ):
        with pytest.raises(Aborted, match=r"superseded by run b"):
            call()
    server.stage(QueryRun("other", "a"), 0, 0, "x", [1])  # another query has its own runs
    assert server.state.queries["q"].run == "b"


def test_a_new_run_drops_what_the_one_before_has_staged() -> None:
    server = Server()
    old = server.stage(A, 0, 0, "x", [1])
    dropped = server.state.on_run(B, 0)
    assert dropped.stages == (old,)
    assert not server.state.stages
    assert server.state.on_run(B, 0).facts == []


def test_the_fence_survives_restarts_and_remembers_many_runs() -> None:
    server = Server()
    for number in range(RUNS_MAX + 1):
        server.write(server.state.on_run(QueryRun("q", str(number)), 0).facts)
    again = server.crashed(len(server.log.entries))
    for number in (0, 500, RUNS_MAX - 1):
        with pytest.raises(Aborted):
            again.state.on_run(QueryRun("q", str(number)), 0)
    assert len(again.state.queries["q"].earlier) == RUNS_MAX


@pytest.mark.parametrize(
    "run", [QueryRun("", "a"), QueryRun("q", ""), QueryRun("q" * 1025, "a"), QueryRun("q", "ü" * 513)]
)
def test_a_run_has_two_names(run: QueryRun) -> None:
    with pytest.raises(InvalidArgument, match="1 to 1024 bytes"):
        EpochState().on_run(run, 0)


def test_a_link_has_a_name_and_a_topic() -> None:
    server = Server()
    for link, topic in (("l" * 1025, "u/t-1"), ("l", ""), ("l", "t" * 1025)):
        with pytest.raises(InvalidArgument, match="1 to 1024 bytes"):
            server.commit(CommitRequest(A, 0, (), link, topic))


def test_an_epoch_becomes_visible_in_the_order_of_its_stages_once() -> None:
    server = Server()
    one, two = server.stage(A, 0, 0, "x", [1, 2]), server.stage(A, 0, 1, "x", [3, 4, 5, 6, 7])
    assert server.visible() == []
    outcome = server.commit(ask(A, 0, two, one))
    assert isinstance(outcome, Decided)
    assert server.visible() == [3, 4, 5, 6, 7, 1, 2]
    again = server.commit(ask(A, 0, two, one))
    assert isinstance(again, Repeated)
    assert again.result == b"%d" % outcome.decision.id
    assert server.visible() == [3, 4, 5, 6, 7, 1, 2]
    assert not server.state.stages


def test_a_repeated_epoch_drops_what_was_staged_for_it_again() -> None:
    server = Server()
    server.commit(ask(A, 0, server.stage(A, 0, 0, "x", [1])))
    again = server.stage(B, 0, 0, "y", [1])
    outcome = server.commit(ask(B, 0, again))
    assert isinstance(outcome, Repeated)
    assert outcome.released == (again,)
    assert server.visible() == [1]


def test_results_of_the_newest_epochs_are_remembered() -> None:
    server = Server()
    for epoch in range(RESULTS_MAX + 3):
        server.commit(ask(A, epoch, server.stage(A, epoch, 0, "x", [epoch])))
    assert server.commit(ask(A, 2)).result == b""
    assert server.commit(ask(A, 3)).result != b""
    assert len(server.state.queries["q"].results) == RESULTS_MAX


def test_only_the_named_attempt_counts_and_the_others_go() -> None:
    server = Server()
    lost, won = server.stage(A, 0, 0, "lost", [1]), server.stage(A, 0, 0, "won", [1])
    outcome = server.commit(ask(A, 0, won))
    assert isinstance(outcome, Decided)
    assert outcome.released == (lost,)
    assert server.visible() == [1]
    assert not server.state.stages


def test_an_attempt_staged_again_replaces_itself() -> None:
    server = Server()
    server.stage(A, 0, 0, "x", [1])
    server.commit(ask(A, 0, server.stage(A, 0, 0, "x", [2])))
    assert server.visible() == [2]


def test_what_makes_a_commit_impossible() -> None:
    server = Server()
    one = server.stage(A, 1, 0, "x", [1])
    with pytest.raises(FailedPrecondition, match="Partition 3, attempt 'y' of epoch 1 is not staged"):
        server.commit(_asked(1, [(3, "y")]))
    with pytest.raises(InvalidArgument, match=r"stages\[1\]: partition 0 must be named with one attempt only"):
        server.commit(_asked(1, [(0, "x"), (0, "y")]))
    with pytest.raises(InvalidArgument, match="epoch"):
        server.commit(_asked(-1, []))
    with pytest.raises(InvalidArgument, match="link"):
        server.commit(ask(A, 1, planned=(PlannedRange(1, 0, 1),)))
    with pytest.raises(NotFound, match=NAME):
        server.commit(ask(A, 1, one), exists=False)
    assert server.visible() == []
    server.commit(ask(A, 1, one))  # the epoch stayed open
    assert server.visible() == [1]


def _asked(epoch: int, stages: list[tuple[int, str]]) -> CommitRequest:
    return CommitRequest(A, epoch, stages)


def test_abort_drops_one_epoch() -> None:
    server = Server()
    server.stage(A, 0, 0, "x", [1])
    kept = server.stage(A, 1, 0, "x", [2])
    assert len(server.state.abort(A, 0).stages) == 1
    assert server.state.abort(A, 0) == server.state.abort(A, 5)
    assert list(server.state.stages.values()) == [kept]


def test_silent_queries_lose_their_stages_and_are_forgotten() -> None:
    server = Server()
    server.stage(A, 0, 0, "x", [1])
    assert not server.state.tidy(STALE_NS - 1).stages
    server.state.on_run(A, STALE_NS)  # alive: an epoch may take long
    assert not server.state.tidy(2 * STALE_NS - 1).stages
    assert len(server.state.tidy(2 * STALE_NS).stages) == 1
    assert "q" in server.state.queries
    assert server.state.tidy(STALE_NS + QUERY_NS).facts
    assert not server.state.queries


def test_after_a_restart_a_query_was_alive_when_it_last_left_a_fact() -> None:
    server = Server()
    server.stage(A, 0, 0, "x", [1])
    server.now = STALE_NS
    server.stage(A, 0, 1, "x", [2])
    again = server.crashed(len(server.log.entries))
    assert not again.state.tidy(2 * STALE_NS - 1).stages
    assert len(again.state.tidy(2 * STALE_NS).stages) == 2


def test_facts_twice_and_over_a_checkpoint_are_the_same() -> None:
    server = Server()
    for epoch in range(4):
        run = QueryRun("q", "ab"[epoch // 2])
        rows = list(range(10 * epoch, 10 * epoch + 10))
        stage = server.stage(run, epoch, 0, "x", rows, source=5)
        server.stage(run, epoch, 1, "y", [], source=5)
        server.commit(ask(run, epoch, stage, link="l", planned=(PlannedRange(5, 10 * epoch, 10 * epoch + 10),)))
    server.stage(B, 4, 0, "x", [99])
    facts = [entry for entry in server.log.entries if isinstance(entry, bytes)]
    wanted = sorted(server.state.facts())
    for at in range(len(facts) + 1):
        state = EpochState()
        begun = EpochState()
        for fact in facts[:at]:
            begun.apply(fact)
        for fact in [*begun.facts(), *facts[at // 2 :]]:
            state.apply(fact)
            if at % 3 == 0:
                state.apply(fact)
        assert sorted(state.facts()) == wanted, at
        assert state.new_id() >= server.state._next


def test_a_checkpoint_drawn_while_epochs_go_on_misses_nothing() -> None:
    """At every step of the drawing an epoch is decided, or done."""
    for decided_at in range(12):
        for done_at in range(decided_at, 13):
            server = Server()
            first = server.stage(A, 0, 0, "x", [1])
            server.commit(ask(A, 0, first))
            stage = server.stage(A, 1, 0, "x", [2, 3])
            begin = len(server.log.entries)
            drawn, parts = server.state.facts(), []
            decision = None
            for step in range(14):
                if step == decided_at:
                    outcome = server.state.decide(ask(A, 1, stage), 0, lambda one: True)
                    server.write(outcome.facts)
                    decision = outcome.decision
                if step == done_at and decision is not None:
                    server.finish(decision)
                parts += [part for part in (next(drawn, None),) if part is not None]
            state = EpochState()
            for fact in [*parts, *(entry for entry in server.log.entries[begin:] if isinstance(entry, bytes))]:
                state.apply(fact)
            assert state.queries["q"].committed_end == 2, (decided_at, done_at)
            assert not state.decisions
            assert not state.stages


# -- anything, in any order -------------------------------------------------------------------------------------------


class Driver:
    """What Spark would do: plans from its checkpoint, stages, commits, and remembers what it was reported."""

    def __init__(self, number: int, at: int, epoch: int) -> None:
        self.run = QueryRun("q", f"run {number}")
        self.at, self.epoch = at, epoch
        self.history: dict[int, int] = {epoch: at}  # epoch -> where it begins


class Epochs(RuleBasedStateMachine):
    """A link whose rows are offsets; every seventh row is left out by the query."""

    @initialize()
    def begin(self) -> None:
        self.server = Server(Log())
        self.end = 0
        self.runs = 1
        self.driver = Driver(1, 0, 0)
        self.server.write(self.server.state.on_run(self.driver.run, 0).facts)
        self.server.log.persist()
        self.zombies: list[Driver] = []
        self.confirmed = 0  # everything below was confirmed to a driver
        self.plans: dict[int, int] = {}  # the checkpoint's plan of an epoch: its end

    def rows(self, begin: int, end: int) -> list[int]:
        return [offset for offset in range(begin, end) if offset % 7]

    @rule(more=st.integers(1, 12))
    def publish(self, more: int) -> None:
        self.end += more

    def staged(self, driver: Driver, begin: int, end: int, attempts: int) -> list:  # type: ignore[type-arg]
        middle = (begin + end) // 2
        chosen = []
        for partition, (low, high) in enumerate(((begin, middle), (middle, end))):
            for attempt in range(attempts):
                stage = self.server.stage(
                    driver.run, driver.epoch, partition, f"{attempt}", self.rows(low, high), source=5
                )
            chosen.append(stage)
        return chosen

    def epoch(self, driver: Driver, attempts: int, crash: float | None) -> None:
        begin = driver.at
        end = self.plans.setdefault(driver.epoch, self.end) if driver is self.driver else self.end
        stages = self.staged(driver, begin, end, attempts)
        before = len(self.server.log.entries)
        outcome = self.server.commit(
            ask(driver.run, driver.epoch, *stages, link="l", planned=(PlannedRange(5, begin, end),))
        )
        assert not isinstance(outcome, GapRefused)
        if crash is not None:
            written = len(self.server.log.entries) - before
            self.server = self.server.crashed(before + round(crash * written), checkpoint=None)
            return  # no answer: the driver does it again
        self.server.log.persist()
        self.confirmed = max(self.confirmed, end)
        driver.epoch += 1
        driver.at = end
        driver.history[driver.epoch] = end

    @rule(attempts=st.integers(1, 2), crash=st.one_of(st.none(), st.floats(0, 1)))
    def go_on(self, attempts: int, crash: float | None) -> None:
        self.epoch(self.driver, attempts, crash)

    @rule()
    def restart_driver(self) -> None:
        """Killed after the commit and before its checkpoint, or anywhere else: the next run does the epoch again."""
        self.runs += 1
        old = self.driver
        self.zombies.append(old)
        self.driver = Driver(self.runs, old.at, old.epoch)
        self.driver.history = dict(old.history)
        self.server.write(self.server.state.on_run(self.driver.run, 0).facts)
        self.server.log.persist()

    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        """The newest files of the checkpoint are lost: epochs are planned anew, with other ends."""
        self.restart_driver()
        driver = self.driver
        driver.epoch = max(min(driver.history), driver.epoch - back)
        driver.at = driver.history[driver.epoch]
        self.plans = {epoch: end for epoch, end in self.plans.items() if epoch < driver.epoch}

    @rule()
    def empty_checkpoint(self) -> None:
        self.restart_driver()
        self.driver.at = self.driver.epoch = 0
        self.driver.history = {0: 0}
        self.plans = {}

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def zombie(self, data: st.DataObject) -> None:
        """A run that was superseded is refused, whatever it tries."""
        zombie = data.draw(st.sampled_from(self.zombies))
        with pytest.raises(Aborted):
            self.epoch(zombie, 1, None)

    @rule(checkpoint=st.integers(0, 1000))
    def crash(self, checkpoint: int) -> None:
        facts = sum(isinstance(entry, bytes) for entry in self.server.log.entries)
        self.server = self.server.crashed(len(self.server.log.entries), min(checkpoint, facts))

    @precondition(lambda self: self.end > 0)
    @rule()
    def gap(self) -> None:
        """A plan that begins behind what was committed stores nothing."""
        link = self.server.state.links.get("l")
        if link is None:
            return
        end = link.intervals[5].end
        before = self.server.visible()
        query = QueryRun("elsewhere", "r")
        outcome = self.server.commit(ask(query, 0, link="l", planned=(PlannedRange(5, end + 1, end + 3),)))
        assert isinstance(outcome, GapRefused)
        assert self.server.state.links["l"].refused == (PlannedRange(5, end, end + 1),)
        assert self.server.visible() == before

    @invariant()
    def nothing_lost_nothing_twice(self) -> None:
        visible = self.server.visible()
        link = self.server.state.links.get("l")
        committed = link.intervals[5].end if link is not None else 0
        assert committed >= self.confirmed
        assert visible == self.rows(0, committed)

    @invariant()
    def the_map_is_exact(self) -> None:
        stored = {}
        for source, first, rows in (entry for entry in self.server.log.entries if isinstance(entry, tuple)):
            if source % 2 == 0:
                stored.update({(source, first + index): row for index, row in enumerate(rows)})
        found = self.server.state.copies.find("l", 5, 0, 1 << 40, 1 << 20)
        mapped = {(one.source, one.first + index): one.begin + index for one in found for index in range(one.count)}
        assert mapped == stored


TestEpochs = Epochs.TestCase
TestEpochs.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
