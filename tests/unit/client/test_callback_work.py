"""Which messages callbacks may have: keys one at a time and in order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.client.callback_work import CHUNK_MAX, KeyedWork


@dataclass(frozen=True)
class Keyed:
    """As much of a message as is used."""

    ordering_key: str
    number: int


def test_a_share_of_what_waits_is_taken():
    work = KeyedWork()
    work.offer(Keyed("", n) for n in range(1000))
    assert len(work.take(10)) == 25
    assert len(work.take(1)) == CHUNK_MAX
    small = KeyedWork()
    small.offer(Keyed("", n) for n in range(3))
    assert [len(small.take(10)) for _ in range(4)] == [1, 1, 1, 0]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("offer"), st.lists(st.sampled_from(["", "a", "b"]), max_size=30)),
            st.tuples(st.just("take"), st.integers(1, 5)),
            st.tuples(st.just("handle"), st.integers(0, 100)),
            st.tuples(st.just("drop"), st.none()),
        )
    )
)
def test_messages_of_a_key_are_out_one_at_a_time_in_order_and_none_is_lost(steps):
    work, out, left, number = KeyedWork(), [], [], 0
    handled = defaultdict(list)
    for kind, what in steps:
        if kind == "offer":
            work.offer([Keyed(key, number + at) for at, key in enumerate(what)])
            number += len(what)
        elif kind == "take":
            out += work.take(what)
            keys = [one.ordering_key for one in out if one.ordering_key]
            assert len(set(keys)) == len(keys)
        elif kind == "drop":
            left += work.drop()
            assert not work.ready
        elif out:
            one = out.pop(what % len(out))
            handled[one.ordering_key].append(one.number)
            work.handled(one)
    while out or work.ready:
        out += work.take(1)
        one = out.pop()
        handled[one.ordering_key].append(one.number)
        work.handled(one)
    for key, numbers in handled.items():
        assert not key or numbers == sorted(numbers)
    found = [n for numbers in handled.values() for n in numbers] + [one.number for one in left]
    assert sorted(found) == list(range(number))
