"""The order of names that every key has."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.broker.router.rendezvous import MASK, hash_key, mix, order, pick, pick_chain

NAMES = [f"publish-forwarder-{number}" for number in range(20)]
names = st.lists(st.text(max_size=12), min_size=1, max_size=12, unique=True)
keys = st.one_of(st.integers(0, MASK), st.binary(max_size=40))


@settings(deadline=None)
@given(keys, names)
def test_order_is_a_permutation_and_does_not_depend_on_how_names_are_listed(key: int | bytes, names: list[str]) -> None:
    found = order(key, names)
    assert sorted(found) == sorted(names)
    assert order(key, names[::-1]) == found
    assert pick(key, names) == found[0]


@settings(deadline=None)
@given(keys, names, st.data())
def test_without_a_name_the_rest_keeps_its_order(key: int | bytes, names: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(names))
    rest = [name for name in names if name != gone]
    assert order(key, rest) == [name for name in order(key, names) if name != gone]


@settings(deadline=None)
@given(st.integers(0, MASK), st.binary(max_size=40), st.sets(st.integers(1, 1000), min_size=1, max_size=9))
def test_the_chain_of_a_key_stays_when_another_chain_goes(topic: int, key: bytes, chains: set[int]) -> None:
    found = pick_chain(topic, key, sorted(chains))
    assert found in chains
    for gone in chains - {found}:
        assert pick_chain(topic, key, sorted(chains - {gone})) == found


def test_the_hash_is_a_format() -> None:
    assert order(1, NAMES[:4]) == order(1, NAMES[:4][::-1])
    assert [hash_key(0), hash_key(b"orders"), mix(1)] == [0xB456BCFC34C2CB2C, 0xD5ACEBE867B47F4D, 0xB456BCFC34C2CB2C]


def test_every_name_is_the_first_of_its_share() -> None:
    counts = Counter(pick(key, NAMES) for key in range(20_000))
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1_150


def test_keys_of_a_topic_spread_over_its_chains() -> None:
    counts = Counter(pick_chain(7, b"key-%d" % number, [3, 4, 5, 9]) for number in range(8_000))
    assert all(1_850 < count < 2_150 for count in counts.values())
    one, other = ([pick_chain(topic, b"key-%d" % n, [3, 4, 5, 9]) for n in range(100)] for topic in (7, 8))
    assert one != other


def test_weights_share_the_first_places_in_proportion() -> None:
    weights = {"a": 1.0, "b": 3.0, "c": 0.0}
    counts = Counter(order(key, ["a", "b", "c"], weights)[0] for key in range(8_000))
    assert 1_800 < counts["a"] < 2_200
    assert counts["c"] == 0
    assert all(order(key, ["a", "b", "c"], weights)[2] == "c" for key in range(100))


def test_a_weight_that_changes_moves_only_what_it_must() -> None:
    before = {key: order(key, NAMES, {NAMES[0]: 1.0})[0] for key in range(5_000)}
    after = {key: order(key, NAMES, {NAMES[0]: 2.0})[0] for key in range(5_000)}
    assert all(after[key] == NAMES[0] for key in before if before[key] != after[key])
