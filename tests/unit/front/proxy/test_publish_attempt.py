"""What follows a failed attempt to publish, and what the caller is shown at last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from syncpoint.base.model.errors import (
    Code,
    FailedPrecondition,
    MetadataSilent,
    NotFound,
    OtherSchema,
    OtherTopic,
    ResourceExhausted,
    StaleEpoch,
    SyncpointError,
    Unavailable,
    Unprocessed,
)
from syncpoint.base.model.names import parse_topic
from syncpoint.front.proxy.publish_attempt import FULL_S, METADATA_S, NextStep, PublishAttempt
from syncpoint.front.proxy.retrying import LAG_S
from syncpoint.front.proxy.route_cache import Choice, RouteTarget

TOPIC = "projects/p/topics/topic"
LOST = Unavailable("the connection was lost")
SILENT = MetadataSilent("not now")


def attempt(key: bytes = b"", *, deadline: float | None = None, number: int = 0) -> PublishAttempt:
    call = cast(Any, SimpleNamespace(deadline=deadline, cancelled=False))
    topic = cast(Any, SimpleNamespace(name=TOPIC, regions=("north",)))
    return PublishAttempt(call, b"request", topic, key, number, 0.0)


def after(one: PublishAttempt, error: SyncpointError, now: float = 0.0, *, others: bool = True) -> NextStep:
    return one.failed(error, now, others=others, exists=True)


def shown(one: PublishAttempt, error: SyncpointError, now: float, *, others: bool = False, exists: bool = True) -> str:
    with pytest.raises(SyncpointError) as caught:
        one.failed(error, now, others=others, exists=exists)
    return caught.value.message


def test_chains_that_share_a_topic_come_by_turns_and_then_the_others() -> None:
    choice = Choice((RouteTarget(1, "a"), RouteTarget(2, "b")), (RouteTarget(3, "c"),))
    one, order = attempt(number=1), []
    while (target := one.next_target(choice)) is not None:
        one.begin(target.chain, 0.0)
        order.append(target.chain)
    assert order == [2, 1, 3]
    one.begin_round()
    assert one.next_target(choice) == RouteTarget(2, "b")


@pytest.mark.parametrize(("key", "chain", "step"), [(b"k", 1, NextStep.AGAIN), (b"", 2, NextStep.ELSEWHERE)])
def test_silent_metadata_do_not_hide_that_an_earlier_attempt_may_have_succeeded(
    key: bytes, chain: int, step: NextStep
) -> None:
    one = attempt(key)
    one.begin(1, 0.0)
    after(one, LOST)
    one.begin(chain, 0.1)
    assert after(one, SILENT, METADATA_S + 1) is step
    assert one.unknown


def test_without_a_key_a_lost_attempt_goes_elsewhere_and_with_one_it_stays() -> None:
    keyless, keyed = attempt(), attempt(b"k")
    for one in (keyless, keyed):
        one.begin(7, 0.0)
    assert after(keyless, LOST) is NextStep.ELSEWHERE
    assert after(keyed, LOST) is NextStep.AGAIN
    assert keyless.tried == {7}
    assert not keyed.tried
    assert keyless.doubtful == keyed.doubtful == {7}


@pytest.mark.parametrize("error", [Unprocessed("refused"), SILENT])
def test_what_was_certainly_not_begun_leaves_no_doubt(error: SyncpointError) -> None:
    one = attempt()
    one.begin(7, 0.0)
    assert after(one, error) is NextStep.ELSEWHERE
    assert not one.unknown


def test_what_may_be_stored_is_never_shown_as_not_stored() -> None:
    one = attempt()
    one.begin(7, 0.0)
    after(one, LOST)
    one.silent = True
    one.begin_round()  # does not raise
    for error in (one.cut_off(), *_raised(one, 61.0)):
        assert "may or may not be stored" in error.message


def test_a_caller_who_waited_for_nothing_is_shown_that_nothing_was_sent() -> None:
    (error,) = _raised(attempt(), 61.0)
    assert error.message == f"No publish forwarder can accept messages of {TOPIC} now. Nothing was stored. Try again."
    (error,) = _raised(attempt(deadline=5.0), 5.0)
    assert error.code is Code.DEADLINE_EXCEEDED


def _raised(one: PublishAttempt, now: float) -> list[SyncpointError]:
    with pytest.raises(SyncpointError) as begun:
        one.begin(8, now)
    with pytest.raises(SyncpointError) as paused:
        one.pause_s(now, 0)
    assert (begun.value.code, begun.value.message) == (paused.value.code, paused.value.message)
    return [begun.value]


def test_silent_metadata_are_waited_for_only_where_another_chain_may_have_the_topic_open() -> None:
    assert "needs the metadata" in shown(attempt(b"k"), SILENT, 0.0)
    one = attempt()
    one.begin(7, 0.0)
    assert after(one, SILENT, METADATA_S) is NextStep.ELSEWHERE
    assert "needs the metadata" in shown(one, SILENT, METADATA_S + 0.1)
    with pytest.raises(MetadataSilent):
        one.begin_round()


def test_full_forwarders_are_asked_again_for_a_while() -> None:
    one, full = attempt(), ResourceExhausted("full")
    assert after(one, full) is NextStep.ELSEWHERE
    assert after(one, full, FULL_S, others=False) is NextStep.AGAIN
    assert after(attempt(b"k"), full) is NextStep.AGAIN
    assert shown(one, full, FULL_S + 0.1) == "full"


def test_a_topic_that_is_not_found_may_be_news_to_the_forwarder() -> None:
    one, error = attempt(), NotFound(parse_topic(TOPIC))
    assert after(one, error, LAG_S) is NextStep.AGAIN
    assert TOPIC in shown(one, error, LAG_S + 0.1)
    assert TOPIC in shown(one, error, 0.0, exists=False)


def test_what_is_stale_is_renewed_before_the_next_attempt() -> None:
    assert after(attempt(b"k"), StaleEpoch("later")) is NextStep.NEWER_ROUTE
    assert after(attempt(), OtherTopic("other")) is NextStep.NEWER_TOPIC
    one = attempt()
    assert after(one, OtherSchema("other")) is NextStep.NEWER_SCHEMA
    one.refuse_old_schema(LAG_S)
    with pytest.raises(Unavailable, match="schema settings"):
        one.refuse_old_schema(LAG_S + 0.1)


def test_any_other_refusal_is_shown() -> None:
    assert shown(attempt(), FailedPrecondition("no"), 0.0) == "no"
    assert shown(attempt(), StaleEpoch("without a key"), 0.0) == "without a key"


def test_pauses_grow_with_the_turns_and_with_those_who_wait_and_end_with_the_time() -> None:
    one = attempt(deadline=60.0)
    assert [one.pause_s(0.0, 0) for _ in range(3)] == [0.01, 0.02, 0.03]
    assert one.pause_s(0.0, 400) == 0.2
    assert one.pause_s(0.0, 100_000) == 0.4
    assert one.pause_s(59.99, 0) == pytest.approx(0.01)
