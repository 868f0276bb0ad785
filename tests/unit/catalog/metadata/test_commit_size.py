"""How large a change of the catalog may be: no reader is stricter than the commit."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.metadata.commit_size import CHANGE_BYTES_MAX, check_commit, in_parts
from syncpoint.catalog.metadata.contract import TXN_BYTES_MAX, TXN_OPS_MAX, Put, check_size
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Snapshot, Subscription, Topic, encode_changes
from syncpoint.catalog.metadata.records import encode_record as encoded


def largest() -> list[CatalogChange]:
    """A change of two records that just passes."""
    topic, name = Topic(1, "projects/p/topics/t"), "iam-policy:topics/1"
    room = CHANGE_BYTES_MAX - len(encoded(topic)) - len(encoded(Setting(name, bytes(CHANGE_BYTES_MAX // 2))))
    changes = [CatalogChange.put(topic), CatalogChange.put(Setting(name, bytes(CHANGE_BYTES_MAX // 2 + room)))]
    assert sum(len(encoded(one.record)) for one in changes) == CHANGE_BYTES_MAX
    return changes


def test_what_passes_fits_into_the_transaction_of_a_cluster() -> None:
    changes = largest()
    check_commit(changes)
    operations = [Put(f"records/{number}", encoded(one.record)) for number, one in enumerate(changes)]
    check_size([*operations, Put("change", encode_changes(changes, "writer")), Put("head", bytes(50))])


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (Setting("iam-policy:topics/1", bytes(CHANGE_BYTES_MAX)), "iam-policy"),
        (Topic(1, "projects/p/topics/t", bytes(CHANGE_BYTES_MAX)), "topic"),
        (Subscription(1, "s", 1, "t", config=bytes(CHANGE_BYTES_MAX)), "subscription"),
        (Snapshot(1, "n", 1, "t", config=bytes(CHANGE_BYTES_MAX)), "snapshot"),
    ],
)
def test_what_does_not_is_refused_with_its_bound_and_can_be_deleted(record, field: str) -> None:
    small = CatalogChange.put(Setting("limits", b"v"))
    with pytest.raises(InvalidArgument, match=rf": {field}: .*the maximum is {CHANGE_BYTES_MAX}"):
        check_commit([small, CatalogChange.put(record)])
    check_commit([small, CatalogChange.delete(record)])


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, CHANGE_BYTES_MAX), (7, CHANGE_BYTES_MAX // 2), (300, 100)])
def test_many_deletions_are_made_in_parts_that_fit(count: int, size: int) -> None:
    gone = [CatalogChange.delete(Snapshot(n, f"s{n}", 1, "t", config=bytes(size))) for n in range(1, count + 1)]
    parts = list(in_parts(gone))
    assert [one for part in parts for one in part] == gone
    for part in parts:
        assert 0 < len(part) <= TXN_OPS_MAX // 4
        assert len(encode_changes(part)) < TXN_BYTES_MAX - CHANGE_BYTES_MAX
