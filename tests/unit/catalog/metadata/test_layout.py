"""Tests for the keys of the metadata: what is built can be read back, and no kind of keys lies under another."""

from itertools import permutations

from syncpoint.catalog.metadata import layout
from syncpoint.catalog.metadata.layout import ASSIGNMENTS, CHAINS, COUNTERS, KEYS, MEMBERS, OPEN, Prefix

GROUPS = (COUNTERS, ASSIGNMENTS, KEYS, layout.ROLLOUTS)


def test_keys_are_read_as_they_were_built() -> None:
    assert CHAINS.key(7) == "chains/7"
    assert CHAINS.number(CHAINS.key(7)) == 7
    assert MEMBERS.name(MEMBERS.key("eu/p1")) == "eu/p1"
    assert OPEN.numbers(OPEN.key(3, 7)) == (3, 7)
    assert OPEN.under(3).number(OPEN.key(3, 7)) == 7


def test_keys_of_one_kind_are_not_listed_with_another_kind() -> None:
    known = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)]
    for one, other in permutations(known, 2):
        assert not other.startswith(one) or one in GROUPS, (one, other)
    assert all(key.endswith("/") == isinstance(key, Prefix) for key in known)
