"""Rate limits: bounded, fair, in order, and never stuck."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.flow import FlowLimit, FlowLimits
from syncpoint.front.proxy.rate_limits import RateLimiter, TurnWindow

WINDOW, TOPIC_WINDOW = 100, 60


def rate_limiter(system: int = 1000, topic: int = 500) -> RateLimiter:
    limits = FlowLimits(system=FlowLimit(0, system), topic=FlowLimit(0, topic))
    return RateLimiter(limits, window_bytes=WINDOW, topic_window_bytes=TOPIC_WINDOW)


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abc"), st.integers(1, 150)), st.none()), max_size=120))
def test_bounds_order_and_the_end(steps: list[tuple[str, int] | None]) -> None:
    tested = rate_limiter()
    underway: deque[tuple[str, int, int]] = deque()
    gone: list[tuple[str, int]] = []
    held = number = 0
    expected: dict[str, list[int]] = {}
    for step in steps:
        if step is None:
            if underway:
                topic, size, _ = underway.popleft()
                held -= size
                tested.release(topic, size)
            continue
        topic, size = step
        number += 1
        mine = number

        def go(topic: str = topic, size: int = size, mine: int = mine) -> None:
            underway.append((topic, size, mine))
            gone.append((topic, mine))

        try:
            tested.enter(topic, size, go)
            held += size
            expected.setdefault(topic, []).append(mine)
        except ResourceExhausted:
            pass
        total = sum(size for _, size, _ in underway)
        assert total <= WINDOW or len(underway) == 1
        for name in "abc":
            of_topic = [size for topic, size, _ in underway if topic == name]
            assert sum(of_topic) <= TOPIC_WINDOW or len(of_topic) == 1
        assert (tested.sending.underway, tested.held) == (total, held)
        assert held <= 1000
    while underway:
        topic, size, _ = underway.popleft()
        tested.release(topic, size)
    assert (tested.sending.underway, tested.held) == (0, 0)
    for name, numbers in expected.items():
        assert [mine for topic, mine in gone if topic == name] == numbers


def test_topics_take_turns() -> None:
    tested = rate_limiter()
    gone: list[str] = []
    tested.enter("first", 90, lambda: gone.append("first"))
    for _ in range(3):
        tested.enter("loud", 50, lambda: gone.append("loud"))
    tested.enter("quiet", 50, lambda: gone.append("quiet"))
    tested.release("first", 90)
    assert gone == ["first", "loud", "quiet"]


def test_small_ones_do_not_starve_a_large_one() -> None:
    tested = rate_limiter()
    gone: list[str] = []
    tested.enter("a", 40, lambda: gone.append("a"))
    tested.enter("b", 40, lambda: gone.append("b"))
    tested.enter("large", 90, lambda: gone.append("large"))
    tested.enter("c", 60, lambda: gone.append("c"))
    tested.release("a", 40)
    assert gone == ["a", "b"]
    tested.release("b", 40)
    assert gone == ["a", "b", "large"]


def test_refusals_say_who_is_full() -> None:
    tested = rate_limiter(topic=100)
    tested.enter("a", 90, lambda: None)
    with pytest.raises(ResourceExhausted, match="topic a"):
        tested.enter("a", 20, lambda: None)
    tested = rate_limiter(system=100)
    tested.enter("a", 90, lambda: None)
    with pytest.raises(ResourceExhausted, match="the system"):
        tested.enter("b", 20, lambda: None)
    assert tested.refused == 1


def test_what_is_to_be_transformed_takes_turns_by_project_and_no_more_than_is_left_to_others() -> None:
    tested = rate_limiter(system=200)
    tested.transforming = TurnWindow(100, 50)
    gone: list[str] = []

    def enter(project: str, topic: str, nbytes: int) -> None:
        tested.enter_transforming(project, topic, nbytes, lambda: gone.append(topic))

    for topic in ("a1", "a2", "a3"):
        enter("a", topic, 30)
    enter("b", "b1", 30)
    assert gone == ["a1", "b1"]
    with pytest.raises(ResourceExhausted, match="transformed for a"):
        enter("a", "a4", 30)
    tested.enter("b1", 40, lambda: gone.append("sent"))
    assert (tested.held, tested.refused) == (160, 1)
    tested.leave_transforming("a", "a1", 30)
    assert gone == ["a1", "b1", "sent", "a2"]
    for project, topic in (("a", "a2"), ("a", "a3"), ("b", "b1")):
        tested.leave_transforming(project, topic, 30)
    tested.release("b1", 40)
    assert (gone[-1], tested.held, tested.transforming.underway) == ("a3", 0, 0)
