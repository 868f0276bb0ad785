"""The table of message ids against a plain dict, compiled or not, and what it takes."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.ids import ENTRY, IdTable
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("duplicates")


def hashed(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 300)),
        st.tuples(st.just("drop"), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.integers(1, 5)),
    ),
    max_size=400,
)


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.integers(0, 1))
def test_as_a_dict_of_what_has_not_left(taken: list[tuple[str, int]], close: int) -> None:
    """`close`: hashes that fall into few slots, so that gaps have to be closed over the end of the index."""
    table, kept, now, place = IdTable(), OrderedDict[int, tuple[bytes, int, int]](), 100, 0

    def key(number: int) -> bytes:
        return hashed(number) if not close else (number % 3 + 62).to_bytes(8, "little") + number.to_bytes(8, "little")

    for what, number in taken:
        if what == "add":
            table.add(key(number), place, now)
            kept[place] = (key(number), place, now)
            place += 1
        elif what == "wait":
            now += number
        else:
            gone = table.drop_before(now - number, 7)
            left = [at for at, one in kept.items() if one[2] < now - number][:7]
            assert gone == len(left)
            for at in left:
                del kept[at]
        assert len(table) == len(kept)
    newest = {one[0]: one[1:] for one in kept.values()}
    for number in range(301):
        assert table.find(key(number)) == newest.get(key(number))
    found, end = b"", 0
    while end < table.end:
        part, end = table.entries(end, 5)
        found += part
    assert len(found) == ENTRY * len(kept)
    assert [found[at : at + 16] for at in range(0, len(found), ENTRY)] == [one[0] for one in kept.values()]


def test_many_come_and_go() -> None:
    table = IdTable()
    for number in range(20_000):
        table.add(hashed(number), number, number // 100)
    assert all(table.find(hashed(number)) == (number, number // 100) for number in range(20_000))
    while table.drop_before(150, 1_000):
        pass
    assert len(table) == 5_000
    assert [table.find(hashed(number)) for number in (0, 14_999, 15_000)] == [None, None, (15_000, 150)]
    for number in range(20_000, 30_000):
        table.add(hashed(number), number, number // 100)
        table.drop_before(number // 100 - 50, 2)
    assert all(table.find(hashed(number)) == (number, number // 100) for number in range(25_000, 30_000))
    while table.drop_before(1 << 31, 1_000):
        pass
    assert (len(table), table.find(hashed(29_999)), table.end) == (0, None, 30_000)
