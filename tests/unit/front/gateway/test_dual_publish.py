"""Publishes to two sites under random failures: nothing stored twice, nothing answered before it is stored."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.front.gateway import dual_publish
from syncpoint.front.gateway.dual_publish import FILLED, AnswerWhen, Doubts, DualPublish, stamped
from syncpoint.wire.protobuf.messages import pubsub

UNKNOWN = Unavailable("the connection was lost")
NO_TOPIC = SyncpointError(Code.NOT_FOUND, "There is no such topic.")


def publish(answer: AnswerWhen, *sites: str) -> DualPublish:
    made = DualPublish(sites or ("eu", "us"), answer)
    made.begin()
    return made


def test_strict_waits_for_both_and_refuses_with_one() -> None:
    both = publish(AnswerWhen.STRICT)
    both.confirmed("us", b"us")
    assert both.outcome is None
    both.confirmed("eu", b"eu")
    assert both.outcome == b"eu"  # the home's ids
    assert isinstance(publish(AnswerWhen.STRICT, "eu").outcome, Unavailable)
    left = publish(AnswerWhen.STRICT)
    left.confirmed("eu", b"eu")
    left.leave("us")
    assert isinstance(left.outcome, Unavailable)


def test_degrade_waits_for_the_sites_that_take_calls() -> None:
    found = publish(AnswerWhen.DEGRADE)
    found.confirmed("us", b"us")
    assert found.failed("eu", UNKNOWN)
    assert found.outcome is None
    found.leave("eu")
    assert found.outcome == b"us"
    gone = publish(AnswerWhen.DEGRADE)
    gone.leave("eu")
    gone.leave("us")
    assert isinstance(gone.outcome, Unavailable)


def test_available_takes_the_first() -> None:
    found = publish(AnswerWhen.AVAILABLE)
    assert not found.failed("eu", NO_TOPIC)
    assert found.outcome is None
    found.confirmed("us", b"us")
    assert found.outcome == b"us"


def test_a_refusal_names_where_it_is_stored() -> None:
    found = publish(AnswerWhen.DEGRADE)
    found.confirmed("us", b"us")
    assert not found.failed("eu", NO_TOPIC)
    assert isinstance(found.outcome, SyncpointError)
    assert found.outcome.code is Code.NOT_FOUND
    assert "Stored at us, refused at eu" in found.outcome.message
    nowhere = publish(AnswerWhen.DEGRADE)
    nowhere.failed("eu", NO_TOPIC)
    nowhere.failed("us", NO_TOPIC)
    assert nowhere.outcome is NO_TOPIC


def test_identities_are_given_once_and_kept_over_a_publishers_retry() -> None:
    numbers = iter(range(100))
    messages = [{"data": b"a"}, {"data": b"b", "attributes": {IDENTITY: "mine"}}]
    request = pubsub.PublishRequest(topic="t", messages=messages).SerializeToString()
    data, given, topic, key = stamped(request, lambda: str(next(numbers)))
    assert (given, topic, key) == (["gw-0", "mine"], "t", "")
    assert [one.attributes[IDENTITY] for one in pubsub.PublishRequest.FromString(data).messages] == given
    doubts = Doubts()
    name = doubts.name("caller", request)
    assert name != doubts.name("another", request)
    doubts.note(name, given, 1.0)
    assert stamped(request, lambda: str(next(numbers)), doubts.take(name))[1] == given
    assert doubts.take(name) == []  # the same bytes once more are another message
    doubts.note(name, given, 1.0)
    doubts.note(b"newer", given, 1.0 + dual_publish.DOUBT_S + 1)
    assert doubts.take(name) == []


def test_doubts_are_bounded_by_how_many_messages_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_publish, "DOUBTS_MAX", 6)
    doubts = Doubts()
    for number in range(3):
        doubts.note(b"%d" % number, [f"gw-{number}", ""], 1.0)
    doubts.note(b"2", ["gw-3", ""], 2.0)
    assert [doubts.take(b"%d" % number) for number in range(3)] == [[], ["gw-1", ""], ["gw-3", ""]]
    for number in range(7):
        doubts.note(b"%d" % number, [], 3.0)
    assert doubts._held == 6
    doubts.note(b"large", ["gw-1"] * 6, 3.0)
    assert doubts.take(b"large") == []
    assert doubts._held == 0


@pytest.mark.parametrize("passed_on", ["gw-other", f"{FILLED}us.1", ""])
def test_an_identity_of_a_gateway_is_not_taken_over_from_a_publisher(passed_on: str) -> None:
    """It came with a message that a program passes on, and names that one."""
    messages = [{"data": b"a", "attributes": {IDENTITY: passed_on}}]
    request = pubsub.PublishRequest(topic="t", messages=messages).SerializeToString()
    assert stamped(request, lambda: "1")[1] == ["gw-1"]


@pytest.mark.parametrize(("message", "count"), [({"ordering_key": "k"}, 1), ({"data": b"x"}, 1_001)])
def test_what_no_site_takes_is_refused_before_it_is_taken_apart(message: dict[str, Any], count: int) -> None:
    request = pubsub.PublishRequest(topic="t", messages=[message] * count).SerializeToString()
    with pytest.raises(InvalidArgument, match="messages"):
        stamped(request, lambda: "1")
    with pytest.raises(InvalidArgument):
        stamped(b"\x12\x05", lambda: "1")


class SimulatedSite:
    """Stores what it is sent, once for each identity; may lose the answer, or the request; may be left."""

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()
        self.known: set[str] = set()

    def send(self, identities: list[str]) -> None:
        for one in identities:
            if one not in self.known:
                self.known.add(one)
                self.stored[one.removeprefix("gw-").partition("/")[0]] += 1


Stamp = Callable[[str, int], str]


def run_history(seed: int, stamp: Stamp = lambda message, attempt: f"gw-{message}") -> tuple[int, int]:
    """Many publishes to two sites that fail at random, and publishers that retry. Returns (stored twice, answered
    before stored where promised)."""
    chance = random.Random(seed)
    names = ("eu", "us")
    sites = {name: SimulatedSite() for name in names}
    opened = dict.fromkeys(names, True)
    answer = chance.choice(list(AnswerWhen))
    early = 0
    for number in range(60):
        message = f"m{number}"
        for _ in range(5):  # the publisher tries again, and its bytes are known by `Doubts`
            if chance.random() < 0.2:
                name = chance.choice(names)
                opened[name] = not opened[name]
                if not any(opened.values()):
                    opened[name] = True
            one = DualPublish([name for name in names if opened[name]], answer)
            waiting = list(one.begin())
            attempt = 0
            while (waiting and one.outcome is None) or (waiting and chance.random() < 0.5):
                attempt += 1
                name = chance.choice(waiting)
                fate = chance.random()
                if fate < 0.1 and sum(opened.values()) > 1:
                    opened[name] = False
                    one.leave(name)
                    waiting.remove(name)
                    continue
                if fate < 0.2:  # the request is lost
                    again = one.failed(name, UNKNOWN)
                elif fate < 0.45:  # it is stored, and the answer is lost
                    sites[name].send([stamp(message, attempt)])
                    again = one.failed(name, UNKNOWN)
                elif fate < 0.5:
                    again = one.failed(name, NO_TOPIC)
                else:
                    sites[name].send([stamp(message, attempt)])
                    one.confirmed(name, name.encode())
                    again = False
                if not again:
                    waiting.remove(name)
                if attempt > 50:
                    one.expire()
                    break
            if isinstance(one.outcome, bytes):
                held = [name for name in names if sites[name].stored[message]]
                promised = {
                    AnswerWhen.STRICT: 2,
                    AnswerWhen.AVAILABLE: 1,
                    AnswerWhen.DEGRADE: max(1, len([name for name in one.sites if name not in one.left])),
                }[answer]
                early += len(held) < promised
                break
    twice = sum(count > 1 for site in sites.values() for count in site.stored.values())
    return twice, early


@pytest.mark.parametrize("seed", range(200))
def test_random_failures_store_nothing_twice_and_answer_nothing_early(seed: int) -> None:
    assert run_history(seed) == (0, 0)


def test_a_fresh_identity_for_each_attempt_would_be_caught() -> None:
    assert any(run_history(seed, lambda message, attempt: f"gw-{message}/{attempt}")[0] for seed in range(20))


def test_an_answer_after_the_first_site_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DualPublish, "_enough", lambda self: bool(self.stored))
    assert any(run_history(seed)[1] for seed in range(20))
