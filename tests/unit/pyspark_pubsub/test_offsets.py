"""Planning: the order of keys, limits shared fairly, sealed sources that leave, splits, losses."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pubsub.errors import DataLossError
from pyspark_pubsub.offsets import (
    Listing,
    Offsets,
    SourceOffsets,
    SourceRange,
    available,
    check_same,
    fair,
    initial,
    lost_before,
    plan,
    split,
)

TOPIC = "projects/p/topics/t"


def listing(*sources: SourceOffsets) -> Listing:
    ordered = sorted(sources, key=lambda source: (source.epoch, source.chain, source.number))
    return Listing(TOPIC, 3, "ab", tuple(ordered))


def ranges(offsets: Offsets) -> list[tuple[int, int, int | None]]:
    return [(found.source, found.begin, found.end) for found in offsets.ranges()]


def test_a_batch_begins_where_the_last_one_ended():
    one = plan(initial(listing(SourceOffsets(1, 1, 0, 0, 10))), listing(SourceOffsets(1, 1, 0, 0, 10)), rows=4)
    two = plan(one, listing(SourceOffsets(1, 1, 0, 0, 12)))
    assert ranges(one) == [(1, 0, 4)]
    assert ranges(two) == [(1, 4, 12)]


def test_nothing_new_is_the_same_offsets():
    now = listing(SourceOffsets(1, 1, 0, 0, 10))
    one = plan(initial(now), now)
    assert plan(one, now) is one
    assert available(one, now) == 0


def test_a_successor_is_read_only_behind_the_sealed_end_of_its_predecessor():
    live = listing(
        SourceOffsets(1, 1, 0, 0, 10),
        SourceOffsets(2, 1, 0, 0, 5),
        SourceOffsets(3, 1, 1, 0, 5),
        SourceOffsets(4, 2, 0, 0, 5),
    )
    assert ranges(plan(initial(live), live)) == [(1, 0, 10), (3, 0, 5)]
    sealed = listing(
        SourceOffsets(1, 1, 0, 0, 10, True),
        SourceOffsets(2, 1, 0, 0, 5),
        SourceOffsets(3, 1, 1, 0, 5),
        SourceOffsets(4, 2, 0, 0, 5),
    )
    assert ranges(plan(initial(sealed), sealed)) == [(1, 0, 10), (2, 0, 5), (3, 0, 5)]
    assert ranges(plan(initial(sealed), sealed, rows=4)) == [(1, 0, 2), (3, 0, 2)]


def test_an_epoch_is_read_only_behind_all_of_the_one_before():
    now = listing(SourceOffsets(1, 1, 0, 0, 3, True), SourceOffsets(2, 1, 1, 0, 3, True), SourceOffsets(3, 2, 0, 0, 3))
    assert ranges(plan(initial(now), now, rows=4)) == [(1, 0, 2), (2, 0, 2)]
    assert ranges(plan(initial(now), now)) == [(1, 0, 3), (2, 0, 3), (3, 0, 3)]


def test_a_sealed_source_leaves_once_its_successor_is_named_and_never_comes_back():
    now = listing(SourceOffsets(1, 1, 0, 0, 3, True), SourceOffsets(2, 1, 0, 0, 3))
    one = plan(initial(now), now)
    assert set(one.sources) == {1, 2}
    later = listing(SourceOffsets(1, 1, 0, 0, 3, True), SourceOffsets(2, 1, 0, 0, 4))
    two = plan(one, later)
    assert set(two.sources) == {2}
    assert ranges(two) == [(2, 3, 4)]


def test_offsets_stay_bounded_over_200_restarts_of_the_server():
    """Each restart seals two chains' sources; what was read stays listed, as with a topic that retains."""
    sources = {1: SourceOffsets(1, 1, 0, 0, 5), 2: SourceOffsets(2, 1, 1, 0, 5)}
    offsets = initial(listing(*sources.values()))
    seen: list[tuple[int, int]] = []
    largest = 0
    for restart in range(200):
        offsets = plan(offsets, listing(*sources.values()), rows=8)
        seen += [(found.source, at) for found in offsets.ranges() for at in range(found.begin, found.end or 0)]
        largest = max(largest, len(json.dumps(offsets.to_json())))
        for chain in (0, 1):
            number = max(n for n, s in sources.items() if s.chain == chain)
            old = sources[number]
            sources[number] = SourceOffsets(number, 1, chain, 0, old.end, True)
            new = 3 + restart * 2 + chain
            sources[new] = SourceOffsets(new, 1, chain, 0, 4)
    while (after := plan(offsets, listing(*sources.values()), rows=8)) is not offsets:
        offsets = after
        seen += [(found.source, at) for found in offsets.ranges() for at in range(found.begin, found.end or 0)]
        largest = max(largest, len(json.dumps(offsets.to_json())))
    assert sorted(seen) == sorted((s.number, at) for s in sources.values() for at in range(s.end))
    assert len(seen) == len(set(seen))
    assert largest < 1000


def test_a_start_in_a_source_that_must_wait_is_kept():
    now = listing(SourceOffsets(1, 1, 0, 0, 10, True, start=8), SourceOffsets(2, 1, 0, 0, 10, start=4))
    first = initial(now)
    assert first.starts == {2: 4}
    assert Offsets.from_json(json.loads(json.dumps(first.to_json()))) == first
    assert ranges(plan(first, now)) == [(1, 8, 10), (2, 4, 10)]


def test_losses_are_reported():
    before = plan(initial(listing(SourceOffsets(1, 1, 0, 0, 4))), listing(SourceOffsets(1, 1, 0, 0, 4)))
    assert lost_before(before, listing(SourceOffsets(1, 1, 0, 4, 9))) == []
    assert lost_before(before, listing(SourceOffsets(1, 1, 0, 6, 9))) == [SourceRange(1, 4, 6)]
    assert ranges(plan(before, listing(SourceOffsets(1, 1, 0, 6, 9)))) == [(1, 6, 9)]
    assert lost_before(before, listing(SourceOffsets(2, 1, 0, 0, 9))) == [SourceRange(1, 4, None)]
    assert lost_before(before, listing(SourceOffsets(2, 1, 0, 0, 9)), kept=True) == []
    with pytest.raises(DataLossError, match="set back to an older state"):
        lost_before(before, listing(SourceOffsets(1, 1, 0, 0, 3)))


def test_a_source_that_was_read_whole_and_went_while_nobody_looked_is_no_loss():
    now = listing(SourceOffsets(1, 1, 0, 0, 4))
    before = plan(initial(now), now)
    ended = replace(listing(SourceOffsets(2, 1, 0, 0, 9)), ended={1: 4})
    assert lost_before(before, ended) == []
    assert list(plan(before, ended).sources) == [2]
    assert lost_before(before, replace(ended, ended={1: 6})) == [SourceRange(1, 4, 6)]


def test_another_topic_or_server_is_refused():
    before = initial(listing(SourceOffsets(1, 1, 0, 0, 4)))
    with pytest.raises(DataLossError, match="another server"):
        check_same(before, Listing(TOPIC, 3, "cd", ()))
    with pytest.raises(DataLossError, match="deleted and created again"):
        check_same(before, Listing(TOPIC, 4, "ab", ()))


def test_other_json_is_refused():
    good = initial(listing(SourceOffsets(1, 1, 0, 0, 4))).to_json()
    for bad in ({}, {"logOffset": 3}, good | {"v": 2}, good | {"sources": 3}, good | {"places": {"1": 3}}):
        with pytest.raises(ValueError, match="offsets"):
            Offsets.from_json(bad)


def test_limits_by_bytes_use_the_mean_size():
    now = listing(SourceOffsets(1, 1, 0, 0, 100, mean_bytes=1000), SourceOffsets(2, 1, 1, 0, 100, mean_bytes=10))
    got = {source: (end or 0) - begin for source, begin, end in ranges(plan(initial(now), now, size=10_000))}
    assert got[2] == 100
    assert 8 <= got[1] <= 10


def test_a_message_larger_than_the_limit_is_read_alone():
    now = listing(SourceOffsets(1, 1, 0, 0, 5, mean_bytes=10_000))
    assert ranges(plan(initial(now), now, size=100)) == [(1, 0, 1)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.integers(0, 5000), st.integers(0, 100))
def test_shares_use_the_budget_and_starve_nobody_small(wants, budget, turn):
    shares = fair(wants, budget, turn)
    assert sum(shares) == min(budget, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    least = min((share for share, want in zip(shares, wants, strict=True) if share < want), default=None)
    if least is not None:  # whoever got less than he wanted got about as much as anybody
        assert max(shares) <= least + len(wants)


@st.composite
def cases(draw):
    """Listings that grow: sources are added behind sealed ones, ends only grow."""
    chains = draw(st.integers(1, 3))
    steps, number, live, all_sources = [], 0, {}, {}
    epoch = 1
    for chain in range(chains):
        number += 1
        live[chain] = number
        all_sources[number] = SourceOffsets(number, epoch, chain, 0, draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(1, 8))):
        for chain in list(live):
            old = all_sources[live[chain]]
            grown = old.end + draw(st.integers(0, 4))
            sealed = draw(st.booleans())
            all_sources[old.number] = SourceOffsets(old.number, old.epoch, chain, 0, grown, sealed)
            if sealed:
                number += 1
                live[chain] = number
                all_sources[number] = SourceOffsets(number, old.epoch, chain, 0, draw(st.integers(0, 3)))
        steps.append(listing(*all_sources.values()))
    return steps, draw(st.integers(0, 6)), draw(st.integers(0, 5000))


@settings(deadline=None)
@given(cases())
def test_everything_is_read_once_and_in_the_order_of_keys(harness):
    steps, rows, size = harness
    offsets = initial(steps[0])
    read: list[tuple[int, int]] = []
    final = steps[-1]
    places = {source.number: (source.epoch, source.chain) for source in final.sources}
    more = 0
    while True:
        now = steps.pop(0) if steps else final
        after = plan(offsets, now, rows, size)
        if after is offsets:
            more += 0 if steps else 1
            if more > 1:
                break
            continue
        more = 0
        for found in after.ranges():
            assert found.begin == offsets.sources.get(found.source, 0)
            read += [(found.source, at) for at in range(found.begin, found.end or 0)]
        if rows:
            assert sum((end or 0) - begin for _, begin, end in ranges(after)) <= rows
        offsets = Offsets.from_json(json.loads(json.dumps(after.to_json())))
    assert len(read) == len(set(read))
    assert set(read) == {(source.number, at) for source in final.sources for at in range(source.end)}
    for chain in set(places.values()):
        of_chain = [entry for entry in read if places[entry[0]] == chain]
        assert of_chain == sorted(of_chain)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500), st.integers(1, 300)), max_size=5),
    st.integers(0, 50),
    st.integers(0, 20),
)
def test_splits_are_contiguous_and_in_order(found, most, partitions):
    whole = [SourceRange(source, begin, begin + rows) for source, begin, rows in found]
    pieces = split(whole, {}, most, partitions)
    flat = [(piece.source, at) for piece in pieces for at in range(piece.begin, piece.end or 0)]
    assert flat == [(one.source, at) for one in whole for at in range(one.begin, one.end or 0)]
    if most:
        assert all((piece.end or 0) - piece.begin <= most for piece in pieces)
    if partitions and whole:
        total = sum((one.end or 0) - one.begin for one in whole)
        assert len(pieces) >= min(partitions, total)


def test_large_ranges_are_split_by_size_without_any_option():
    pieces = split([SourceRange(1, 0, 1_000_000)], {1: 1024})
    assert len(pieces) == 8


def test_a_source_that_appears_late_with_an_older_epoch_is_read_all_the_same():
    """A chain that knows of a new assignment late may begin one after sources of the new epoch were read."""
    first = listing(SourceOffsets(1, 2, 0, 0, 10))
    one = plan(initial(first), first)
    late = listing(SourceOffsets(9, 1, 1, 0, 5, True), SourceOffsets(1, 2, 0, 0, 12))
    assert ranges(plan(one, late)) == [(9, 0, 5), (1, 10, 12)]


def test_a_sealed_source_that_was_read_to_its_end_may_go_whichever_chain_it_was_of():
    now = listing(SourceOffsets(1, 0, 1, 0, 3, True), SourceOffsets(2, 0, 2, 0, 3, True), SourceOffsets(3, 0, 3, 0, 3))
    one = Offsets.from_json(json.loads(json.dumps(plan(initial(now), now, rows=8).to_json())))
    assert one.done == {1, 2}
    left = listing(SourceOffsets(3, 0, 3, 0, 9))
    assert lost_before(one, left) == []
    two = plan(one, left)
    assert (list(two.sources), two.done) == ([3], frozenset())
    assert lost_before(one, listing(SourceOffsets(1, 0, 1, 0, 3, True))) == [
        SourceRange(3, 2, None)
    ]  # it was open, and not read up
