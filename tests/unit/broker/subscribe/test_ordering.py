"""Ordering keys: one holder at a time, publish order, redelivery takes everything later back."""

from collections import deque
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.broker.subscribe.ordering import KeyOrder
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("ordering")


def start(order: KeyOrder, holder: int, limit: int) -> list[tuple[int, int]]:
    """Start and be done with reading."""
    begun = order.start(holder, limit)
    if begun is None:
        return []
    order.started(begun[0])
    return begun[1]


def test_several_messages_of_a_key_go_to_one_holder_and_wait_for_others() -> None:
    order = KeyOrder()
    assert order.admit(b"k", (1, 0), holder=7)
    assert order.admit(b"k", (1, 1), holder=7)
    assert not order.admit(b"k", (1, 2), holder=8)
    assert not order.admit(b"k", (1, 3), holder=7), "nothing overtakes what waits"
    order.on_discharged(1, encode_runs([(0, 2)]))
    assert start(order, 8, 10) == [(1, 2), (1, 3)]


def test_keys_do_not_hinder_each_other() -> None:
    order = KeyOrder()
    assert order.admit(b"a", (1, 0), holder=1)
    assert order.admit(b"b", (1, 1), holder=2)


def test_a_nack_takes_back_everything_later_of_the_key() -> None:
    order = KeyOrder()
    for offset in range(4):
        assert order.admit(b"k", (1, offset), holder=1)
    assert order.take_back((1, 1), block=False) == [(1, 1), (1, 2), (1, 3)]
    assert start(order, 2, 10) == [], "the first one is still outstanding elsewhere"
    order.discharge((1, 0))
    assert start(order, 2, 10) == [(1, 1), (1, 2), (1, 3)]


def test_nothing_overtakes_what_is_being_read_again() -> None:
    order = KeyOrder()
    assert order.admit(b"k", (1, 0), holder=1)
    assert not order.admit(b"k", (1, 1), holder=2)
    order.discharge((1, 0))
    assert order.start(2, 10) == (b"k", [(1, 1)])
    assert not order.admit(b"k", (1, 2), holder=2)
    order.started(b"k")
    assert start(order, 2, 10) == [(1, 2)], "more of a key goes to its holder while others are outstanding"


def test_what_is_taken_back_while_it_is_read_is_not_lent() -> None:
    order = KeyOrder()
    for offset in range(3):
        order.admit(b"k", (1, offset), holder=1 if offset == 0 else 2)
    assert order.start(1, 10) == (b"k", [(1, 1), (1, 2)])
    assert order.take_back((1, 0), block=False) == [(1, 0), (1, 1), (1, 2)]
    assert not order.is_outstanding((1, 1))
    order.discharge((1, 0))
    order.started(b"k")
    assert start(order, 2, 10) == [(1, 1), (1, 2)]


def test_more_of_a_held_key_waits_for_its_holder() -> None:
    order = KeyOrder()
    assert order.admit(b"k", (1, 0), holder=1)
    assert not order.admit(b"k", (1, 1), holder=2)
    assert start(order, 2, 10) == []
    assert start(order, 1, 10) == [(1, 1)]


def test_nothing_is_kept_of_a_holder_that_holds_nothing() -> None:
    order = KeyOrder()
    for offset in range(100):
        order.admit(b"k", (1, offset), holder=offset // 50)
    for offset in range(49):
        order.discharge((1, offset))
    assert sum(len(keys) for keys in order._more.values()) == 1
    order.discharge((1, 49))
    assert order._more == {}
    assert len(start(order, 7, 100)) == 50


def test_a_blocked_key_rests_until_its_time() -> None:
    order = KeyOrder()
    assert order.admit(b"k", (1, 0), holder=1)
    assert not order.admit(b"k", (1, 1), holder=2)
    order.take_back((1, 0), block=True)
    assert start(order, 1, 10) == []
    order.unblock((1, 0))
    assert start(order, 1, 10) == [(1, 0), (1, 1)]


def test_the_end_of_one_source_comes_before_the_next() -> None:
    order = KeyOrder()
    assert order.admit(b"k", (1, 9), holder=1)
    assert not order.admit(b"k", (2, 0), holder=2)
    order.discharge((1, 9))
    assert start(order, 2, 10) == [(2, 0)]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_any_history_delivers_each_key_in_order_to_one_holder(random: Random, size: int) -> None:
    """Against a plain model: first deliveries of a key come in publish order; nothing is lost; at rest nothing is
    kept.
    """
    order, keys = KeyOrder(), [b"a", b"b", b"c"]
    published = [random.choice(keys) for _ in range(size)]
    unread, lent = deque(enumerate(published)), {}  # offset -> holder
    acked: dict[bytes, list[int]] = {key: [] for key in keys}
    while unread or lent or order.waiting:
        action = random.choice(["read", "ready", "ack", "ack", "nack"])
        holder = random.randint(1, 3)
        if action == "read" and unread:
            offset, key = unread.popleft()
            if order.admit(key, (1, offset), holder):
                lent[offset] = holder
        elif action == "ready" or (action == "read" and not lent):
            for _, offset in start(order, holder, random.randint(1, 5)):
                lent[offset] = holder
        elif action == "ack" and lent:
            offset = min(lent)  # acks in order within a key
            del lent[offset]
            acked[published[offset]].append(offset)
            order.discharge((1, offset))
        elif action == "nack" and lent:
            offset = random.choice(sorted(lent))
            for _, back in order.take_back((1, offset), block=False):
                del lent[back]
        for key in keys:
            holders = {holder for offset, holder in lent.items() if published[offset] == key}
            assert len(holders) <= 1
    for key in keys:
        assert acked[key] == [offset for offset, k in enumerate(published) if k == key]
    assert repr(order) == "<KeyOrder keys=0 waiting=0 ready=0>"
    assert not any(order.knows((1, offset)) for offset in range(size))
