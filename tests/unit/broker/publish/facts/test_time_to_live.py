"""Times to live: of topics, of subscriptions and of messages, with nobody listening, leased, through restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import DEAD_LETTERS_REFUSED
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.broker.publish.facts import time_to_live
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.facts.time_to_live import NEVER_NS, ExpiryIndex, ExpiryRun, SourceRun
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.publish.keep.retention import is_needed
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions, TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness, Subscriber

pytestmark = pytest.mark.shows("time-to-live")

DAY = 86_400
DEAD, DEAD_SUB = "projects/p/topics/dead", "projects/p/subscriptions/dead"


def harness_with(topic_ttl: int = 0, **options: Any) -> ForwarderHarness:
    """One whose subscription has these options."""
    ttl, letters = options.pop("ttl", 0), options.pop("letters", False)
    harness = ForwarderHarness(
        options=SubscriptionOptions(ttl_s=ttl, dead_letter_expired=letters),
        retention_s=60 * DAY,
        dead_letter=DeadLetter(DEAD, 5) if letters else None,
        **options,
    )
    if topic_ttl:
        topic = Topic(1, TOPIC, options=TopicOptions(default_ttl_s=topic_ttl))
        harness.commit(CatalogChange.put(topic))
    if letters:
        harness.commit(
            CatalogChange.put(Topic(7, DEAD)), CatalogChange.put(Subscription(8, DEAD_SUB, 7, DEAD))
        )  # fmt: skip
    return harness


def pass_time(harness: ForwarderHarness, seconds: float) -> None:
    """Without ticks: nobody is there, and the clock is right."""
    harness.clock.advance(seconds)


def needed(harness: ForwarderHarness) -> list[bool]:
    """Whether each stored entry of messages must be kept, once a checkpoint states where its source ends."""
    harness.checkpoint()
    found = [entry for entry in harness.store.entries if entry.kind == EntryKind.MESSAGES]
    return [is_needed(harness.publish, one.source, one.first_offset, one.count, one.time_ns) for one in found]


def letters_of(harness: ForwarderHarness) -> list[Any]:
    mine = harness.record
    record = harness.publish.catalog.subscription(DEAD_SUB)
    assert record is not None
    harness.record = record
    dead = Subscriber(harness)
    harness.quiesce()
    harness.record = mine
    return [one.message for one in dead.received]


@pytest.mark.parametrize("seconds", [2, 60, DAY, 31 * DAY])
@pytest.mark.parametrize("whose", ["topic", "subscription", "message", "ceiling"])
def test_what_nobody_took_in_time_is_neither_delivered_nor_kept(seconds: int, whose: str) -> None:
    harness = harness_with(
        topic_ttl=seconds if whose == "topic" else 40 * DAY, ttl=seconds if whose in ("subscription", "ceiling") else 0
    )
    days, rest = divmod(seconds, DAY)
    own = {"message": f"{days}.{rest // 3600}:{rest // 60 % 60}:{rest % 60}", "ceiling": "35.0:0"}.get(whose)
    harness.send("old", **({"sys.TimeToLive": own} if own else {}))
    pass_time(harness, seconds - 1)
    harness.send("new")
    assert needed(harness) == [True, True]
    pass_time(harness, 0.999)
    assert needed(harness)[0], "not a moment too early"
    early = Subscriber(harness)
    harness.quiesce()
    assert early.data == ["old", "new"]
    pass_time(harness, 0.1)
    assert needed(harness) == [False, True]
    harness.restart()
    late = Subscriber(harness)
    harness.quiesce()
    assert late.data == ["new"]


def test_messages_of_one_request_run_out_one_by_one() -> None:
    harness = harness_with()
    for ttl in ("0:0:30", "0:0:10", "0:0:20"):
        harness.send(ttl, quiesce=False, **{"sys.TimeToLive": ttl})
    harness.send("for ever")
    (count,) = [entry.count for entry in harness.store.entries if entry.kind == EntryKind.MESSAGES]
    assert count == 4
    pass_time(harness, 25)
    assert needed(harness) == [True]
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["0:0:30", "for ever"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_times_of_messages_survive_a_crash(checkpoint: bool) -> None:
    harness = harness_with()
    harness.send("short", **{"sys.TimeToLive": "0:0:10"})
    harness.send("long", **{"sys.TimeToLive": "0:2:0"})
    if checkpoint:
        harness.checkpoint()
    harness.restart()
    pass_time(harness, 60)
    assert needed(harness) == [False, True]
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["long"]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("letters", [False, True])
def test_what_is_lent_may_be_acknowledged_after_its_time(exactly_once: bool, letters: bool) -> None:
    harness = harness_with(ttl=2, letters=letters, exactly_once=exactly_once)
    subscriber = Subscriber(harness)
    harness.send("x")
    assert subscriber.data == ["x"]
    harness.advance(4)
    other = Subscriber(harness)  # what it reads must not take away what is lent
    harness.send("y")
    harness.advance(1)
    assert subscriber.data + other.data == ["x", "y"]
    assert subscriber.ack() == []
    harness.advance(20)
    if letters:
        assert [one.data for one in letters_of(harness)] in ([], [b"y"]), "x was acknowledged"


def test_what_has_run_out_is_no_backlog() -> None:
    harness = harness_with(ttl=60)
    for ttl in ("0:0:10", "0:2:0"):
        harness.send(ttl, **{"sys.TimeToLive": ttl})
    counts = []
    for seconds in (9, 2, 48, 2):
        pass_time(harness, seconds)
        counts.append(unacknowledged(harness.publish, harness.record))
    assert counts == [2, 1, 1, 0]


def test_what_an_exactly_once_subscriber_may_still_have_is_kept() -> None:
    harness = harness_with(ttl=2, exactly_once=True)
    harness.send("x")
    pass_time(harness, 590)
    subscriber = Subscriber(harness)
    harness.advance(1)
    assert (subscriber.data, needed(harness)) == ([], [True])
    pass_time(harness, 20)
    assert needed(harness) == [False]


@pytest.mark.parametrize("key", ["", "k"])
def test_what_comes_back_after_its_time_is_not_delivered_again(key: str) -> None:
    harness = harness_with(ttl=2, ordered=bool(key))
    subscriber = Subscriber(harness)
    harness.send("a", key=key)
    assert subscriber.data == ["a"]
    harness.advance(3)
    harness.send("b", key=key)
    harness.advance(1)
    subscriber.nack(*[one for one, data in subscriber.held.items() if data == "a"])
    harness.advance(1)
    assert subscriber.data == (["a", "b", "b"] if key else ["a", "b"]), "what came after it in its key comes again"


@pytest.mark.parametrize("own", [False, True])
def test_what_has_run_out_becomes_a_letter_that_says_why(own: bool) -> None:
    harness = harness_with(ttl=0 if own else 2, letters=True)
    for number in range(200):
        harness.send(f"m{number}", **({"sys.TimeToLive": "0:0:2"} if own else {}))
    harness.send("young", **({"sys.TimeToLive": "0:1:0"} if own else {}))
    pass_time(harness, 2.5 if own else 1)
    if not own:
        pass_time(harness, 1.5)
        harness.send("young")
    assert all(needed(harness)), "its letter is not written"
    subscriber = Subscriber(harness)
    harness.advance(3)
    assert subscriber.data == ["young"]
    letters = letters_of(harness)
    assert sorted(one.data for one in letters)[:3] == ([b"m0", b"m1", b"m10"])
    assert len({one.data for one in letters}) == len(letters) == (200 if own else 201)
    assert letters[0].attributes["sys.DeadLetterReason"] == "TTLExpiredException"
    assert letters[0].attributes["CloudPubSubDeadLetterSourceSubscription"] == SUB.rsplit("/", 1)[1]
    assert "sys.TimeToLive" not in letters[0].attributes, "a letter waits until somebody looks at it"
    assert not all(needed(harness))


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("redelivered", [False, True])
def test_what_runs_out_while_it_waits_for_room_is_not_delivered(letters: bool, own: bool, redelivered: bool) -> None:
    harness = harness_with(ttl=0 if own else 2, letters=letters)
    ttl = {"sys.TimeToLive": "0:0:2"} if own else {}
    subscriber = Subscriber(harness, max_messages=5 if redelivered else 1)
    for number in range(5):
        harness.send(f"m{number}", **ttl)
    first = next(iter(subscriber.held))
    if redelivered:
        subscriber.consumer.max_messages = 1
        subscriber.nack(*[one for one in subscriber.held if one != first])
    had = len(subscriber.data)
    assert had == (5 if redelivered else 1)
    harness.advance(3)
    harness.send("young", **ttl)
    subscriber.ack(first)
    harness.advance(3)
    assert subscriber.data[had:] == ["young"]
    if letters:
        assert [one.data for one in letters_of(harness)] == [b"m1", b"m2", b"m3", b"m4"]


def test_a_letter_that_cannot_be_written_is_tried_again() -> None:
    harness = harness_with(ttl=2, letters=True)
    allowed = False
    harness.subscribe.letter_refusal = lambda record: "" if allowed else DEAD_LETTERS_REFUSED
    harness.send("x")
    pass_time(harness, 3)
    subscriber = Subscriber(harness)
    harness.advance(5)
    assert (subscriber.data, harness.publish.sources.of_topic(7)) == ([], [])
    allowed = True
    harness.advance(5)
    assert [one.data for one in letters_of(harness)] == [b"x"]


def test_a_wrong_clock_lets_nothing_run_out_early() -> None:
    clock = ManualClock()
    harness = ForwarderHarness(clock=clock, options=SubscriptionOptions(ttl_s=60))
    harness.send("x", **{"sys.TimeToLive": "0:0:30"})
    clock.set_time_ns(clock.time_ns() + 3600 * 10**9)
    subscriber = Subscriber(harness)
    harness.advance(1)
    assert subscriber.data == ["x"]
    assert needed(harness) == [True]


def test_a_seek_back_revives_only_what_has_not_run_out() -> None:
    harness = harness_with(ttl=60, retain_acked=True)
    begin = harness.clock.time_ns()
    harness.send("old")
    pass_time(harness, 30)
    harness.send("new")
    subscriber = Subscriber(harness)
    harness.quiesce()
    subscriber.ack()
    pass_time(harness, 40)
    seek_to_time(harness.publish, harness.record, begin, None)
    harness.quiesce()
    assert subscriber.data == ["old", "new", "new"]


def test_a_time_that_cannot_be_read_is_refused() -> None:
    harness = harness_with()
    with pytest.raises(InvalidArgument, match=r"sys\.TimeToLive"):
        harness.send("x", **{"sys.TimeToLive": "soon"})
    assert len(harness.publish.expiry) == 0


def test_a_longer_time_asks_storage_to_judge_again() -> None:
    harness = harness_with(ttl=60)
    harness.send("x")
    harness.commit(CatalogChange.put(harness.record))  # what is kept by it is known from now on
    for options, more in ((SubscriptionOptions(ttl_s=30), False), (SubscriptionOptions(ttl_s=31), True),
                          (SubscriptionOptions(), True), (SubscriptionOptions(ttl_s=5), False)):  # fmt: skip
        before = harness.publish.needs.version
        harness.commit(CatalogChange.put(replace(harness.record, options=options)))
        assert (harness.publish.needs.version > before) is more


# -- the index ---------------------------------------------------------------------------------------------------------


def index(found: list[bytes] | None = None, first: int = 0) -> ExpiryIndex:
    made = ExpiryIndex(FactLog(lambda *entry: None), lambda source: (first, 1 << 40))
    made.recover(found or [])
    return made


runs = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 5), st.one_of(st.integers(0, 5), st.none())),
    min_size=1,
    max_size=12,
)


@given(runs, st.integers(0, 40), st.data())
def test_runs_answer_as_single_messages_would(written: list[Any], cut: int, data: st.DataObject) -> None:
    """Checkpoints, facts that come twice and joined runs may make the answers coarser, never wrong."""
    model: dict[int, tuple[int, int]] = {}
    facts, at = [], 0
    known = index()
    for gap, count, soonest, more in written:
        at += gap
        run = ExpiryRun(at, at + count, soonest, NEVER_NS if more is None else soonest + more)
        model |= dict.fromkeys(range(run.begin, run.end), run[2:])
        facts.append(ExpiryIndex.body([SourceRun(1, run)]))
        known.apply(SourceRun(1, run, joined_ns=2))
        at += count
    again = index([*known.facts(), *data.draw(st.permutations(facts)), *known.facts()])
    for one in (known, again):
        for begin, end in ((cut, cut + 1), (cut, cut + 5), (0, at)):
            inside = [model.get(offset, (NEVER_NS, NEVER_NS)) for offset in range(begin, end)]
            assert one.soonest_ns(1, begin, end) <= min(soonest for soonest, _ in inside)
            assert one.latest_ns(1, begin, end) >= max(latest for _, latest in inside)
    assert known.latest_ns(1, 0, at) <= max(latest + 2 for _, latest in model.values()) or at != len(model)


def test_the_index_stays_small_and_forgets_what_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_to_live, "RUNS_MAX", 100)
    known = index(first=5000)
    for at in range(10_000):
        known.apply(SourceRun(1, ExpiryRun(at, at + 1, at * 10, at * 10 + 5)))
    assert len(known) <= 100
    assert known.soonest_ns(1, 0, 10_000) == 0
    assert known.latest_ns(1, 0, 10_000) == 99_995
    kept = index(list(known.facts()))
    assert len(kept) <= 51 + 50
    assert kept.soonest_ns(1, 6000, 10_000) <= 60_000
    known.forgotten(Source(1, 1))
    assert len(known) == 0
